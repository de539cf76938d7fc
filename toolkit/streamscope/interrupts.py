"""Ctrl-C and other signals at a harmless time: work that must not stop halfway is finished first.

Python calls the handlers of signals between any two lines of the main thread, and they may raise: `KeyboardInterrupt` on Ctrl-C, a
`TimeoutError` of the user's on SIGALRM. A stream that is held by a gate, a capture that was begun, an operation that is counted and not
queued, or a simulated device in the middle of a step would then stay as it is for ever.
"""

from __future__ import annotations

# The C functions: those of `signal` look up enumerations, which takes longer than a simulated launch.
import _signal  # type: ignore[import-not-found]
import atexit
import gc
from _thread import interrupt_main
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from inspect import CO_GENERATOR
from sys import _getframe
from threading import get_ident, main_thread
from types import CodeType, FrameType, TracebackType
from typing import Any, Generic, Self, TypeVar
from weakref import ref

Result = TypeVar("Result")
_K = TypeVar("_K")
_V = TypeVar("_V")
_Handler = Callable[[int, FrameType | None], Any]
_CONTEXTLIB = contextmanager.__code__.co_filename
_SIGINT: int = _signal.SIGINT
_FAULTS = {_signal.SIGSEGV, _signal.SIGBUS, _signal.SIGFPE, _signal.SIGILL, _signal.SIGABRT, _signal.SIGTRAP, _signal.SIGSYS}
_OTHERS = tuple(sorted({*range(1, 32)} - {_SIGINT, _signal.SIGKILL, _signal.SIGSTOP} - _FAULTS))
"""Signals beside Ctrl-C whose handlers wait, too. Faults come back until they are handled; those from 32 on would double the time."""


class Deferral:
    """Lets Ctrl-C, and all signals that Python code handles, wait until the end of a block; the one there is, is what `deferred` returns.

    Only the main thread gets interrupts, so in others it does nothing. Blocks may be nested: the outermost ends the waiting.
    """

    __slots__ = ("_arrived", "_depth", "_handler", "_none", "_open", "_others", "_outermost")

    def __init__(self) -> None:
        self._arrived: dict[int, tuple[_Handler | None, FrameType | None]] = {}
        self._depth = 0
        self._open = 0  # at which depth Ctrl-C goes through
        self._outermost: FrameType | None = None  # whose the outermost block is
        self._handler: _Handler | None = None
        self._others: dict[int, _Handler] = {}  # of the other signals that wait
        self._none: list[object] = []  # the handlers of the others when Python code handled none of them, which saves looking at each

    @property
    def handlers(self) -> list[object]:
        """All that handle signals, or are to after this block."""
        return [*map(_signal.getsignal, (_SIGINT, *_OTHERS)), self._handler, *self._others.values()]

    @property
    def due(self) -> bool:
        """Whether a handler will be called as soon as this block ends: one that takes long can stop for it where it is safe to."""
        return bool(self._arrived) and self._depth == self._open + 1 and get_ident() == main_thread().ident

    def __enter__(self) -> Self:
        if get_ident() == main_thread().ident:
            if self._depth:
                self._depth += 1
                return self
            try:
                # First: Ctrl-C that comes as the handler changes finds the block begun, as does a finaliser that opens one of its own.
                self._depth = 1
                frame = _getframe(1)
                self._begin(_whose_block(frame) if frame.f_code.co_flags & CO_GENERATOR else frame)
            except BaseException:
                self._depth = 0
                self._end()
                raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if get_ident() == main_thread().ident:
            self._depth = max(0, self._depth - 1)
            if not self._depth:
                self._end()
            elif self._depth == self._open:
                self._deliver()

    def lifted(self, function: Callable[..., Result], /, *arguments: Any, **options: Any) -> Result:
        """Call a function with Ctrl-C let through, inside a block that defers it; blocks inside the function defer it again."""
        if not self._depth or get_ident() != main_thread().ident:
            return function(*arguments, **options)
        # From this depth on, `_look` delivers what arrives instead of noting it.
        before, self._open = self._open, self._depth
        try:
            self._deliver()
            return function(*arguments, **options)
        finally:
            # Python raises Ctrl-C at calls, and there is none here: the outer block defers again, come what may.
            self._open = before

    def swap(self, expected: _Handler | None, handler: _Handler) -> _Handler | None:
        """Let another handler get Ctrl-C from the end of the outermost block on; return the one before, None where there is none to swap.

        With ``expected``, that one only is swapped.
        """
        before = self._handler
        if not self._depth or get_ident() != main_thread().ident or before is None or (expected is not None and before != expected):
            return None
        self._handler = handler
        return before

    def _begin(self, outermost: FrameType) -> None:
        self._open, self._outermost = 0, outermost
        handler = _signal.getsignal(_SIGINT)
        if handler != self._note:  # else another signal's handler raised between here and the block
            # Where Ctrl-C is ignored, or kills the process, there is nothing to wait with.
            self._handler = handler if callable(handler) else None
            if self._handler is not None:
                _signal.signal(_SIGINT, self._note)
        others = [*map(_signal.getsignal, _OTHERS)]
        if others == self._none:
            return
        for number, other in zip(_OTHERS, others, strict=True):
            if callable(other) and other != self._note_other:
                self._others[number] = other
                _signal.signal(number, self._note_other)
        if not any(map(callable, others)):
            self._none = others

    def _end(self) -> None:
        self._outermost = None
        try:
            if self._handler is not None and _signal.getsignal(_SIGINT) == self._note:
                _signal.signal(_SIGINT, self._handler)
            # These last: the handler of one that is back may raise, and that of Ctrl-C is back by then.
            for number, other in [*self._others.items()] if self._others else ():
                if _signal.getsignal(number) == self._note_other:
                    _signal.signal(number, other)
                self._others.pop(number, None)
        finally:
            if self._arrived:
                self._deliver()

    def _deliver(self) -> None:
        """Hand the arrived signals to the earlier handlers, each, even if one raises."""
        if not self._arrived:
            return
        number = next(iter(self._arrived))
        handler, frame = self._arrived.pop(number)
        try:
            if handler is not None:
                handler(number, frame)
        finally:
            self._deliver()

    def _hand_over(self, number: int, frame: FrameType | None) -> None:
        """Call who handles Ctrl-C now, whom `swap` may have changed since it came."""
        if self._handler is not None:
            self._handler(number, frame)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._arrived[number] = (self._hand_over, frame)
        self._look(frame)

    def _note_other(self, number: int, frame: FrameType | None) -> None:
        self._arrived[number] = (self._others.get(number), frame)
        self._look(frame)

    def _look(self, frame: FrameType | None) -> None:
        """Deliver the signals that just arrived, unless the block is to wait for its end."""
        if not self._depth or not self._is_inside(frame):
            # Another signal's handler raised as the block was to begin or end, which then did not.
            self._depth = 0
            self._end()
        elif self._depth == self._open:
            self._deliver()

    def _is_inside(self, frame: FrameType | None) -> bool:
        while frame is not None and frame is not self._outermost:
            frame = frame.f_back
        return frame is not None


def _whose_block(frame: FrameType) -> FrameType:
    """Return the frame that a ``with`` block is in, where it may be a generator made a context manager that enters it."""
    while frame.f_back is not None and (frame.f_code.co_flags & CO_GENERATOR or frame.f_code.co_filename == _CONTEXTLIB):
        frame = frame.f_back
    return frame


_deferral = Deferral()


def deferred() -> Deferral:
    """Let Ctrl-C and other signals wait until the end of the block: ``with deferred(): ...``."""
    return _deferral


def let_through(function: Callable[..., Result], /, *arguments: Any, **options: Any) -> Result:
    """Call a function of the user's with Ctrl-C let through, inside a block that defers it; see `Deferral.lifted`."""
    return _deferral.lifted(function, *arguments, **options)


def is_interruption(error: BaseException) -> bool:
    """Tell whether an error has nothing to do with the code that it came in: it ends the program, or a signal's handler has raised it."""
    return not isinstance(error, Exception) or _is_of_a_handler(error)


def _is_of_a_handler(error: BaseException) -> bool:
    codes = {_code_of(handler) for handler in _deferral.handlers if callable(handler)}
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code not in codes:
        trace = trace.tb_next
    return trace is not None


def _code_of(handler: object) -> CodeType | None:
    """Return the code of a function, a method, a `partial` or an object that is called; None of C's."""
    handler = getattr(handler, "func", handler)
    return getattr(handler, "__code__", None) or getattr(type(handler).__call__, "__code__", None)


@contextmanager
def nothing_collected() -> Iterator[None]:
    """Keep Python's garbage collector away from a block.

    CUDA's memory and streams may be among its garbage. Giving them back breaks a capture, and waits for a stream that is held.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class Again:
    """Lets Ctrl-C come again, in the main thread, as soon as Python runs any code after this object has gone.

    For code that C calls, which swallows exceptions: drop one last. Both this finaliser and its caller are C, so no code of the
    one who drops it runs in between.
    """

    __slots__ = ()
    __del__ = interrupt_main


class CalledByC:
    """Keeps Ctrl-C away from functions that C calls, which swallows exceptions: it comes again when they have returned.

    Each of the functions returns the result of `again`.
    """

    def __init__(self, *functions: Callable[..., object]) -> None:
        self._codes = {function.__code__ for function in functions}
        self._before: _Handler | None = None
        self.arrived = False
        """Whether Ctrl-C came in one of them, and has not come again."""

    def begin(self) -> None:
        """Be the one to get Ctrl-C after this `deferred` block; of use in the main thread only."""
        self._before = _deferral.swap(None, self._note)

    def end(self) -> None:
        """Let the earlier handler get it, and signals that arrived meanwhile, after this `deferred` block."""
        if self._before is not None:
            _deferral.swap(self._note, self._before)
            self._before = None
        if self.arrived:
            self.arrived = False
            _signal.raise_signal(_SIGINT)

    def again(self) -> Again | None:
        """Return the object that lets Ctrl-C come again, if it arrived."""
        if not self.arrived:
            return None
        self.arrived = False
        return Again()

    def _note(self, number: int, frame: FrameType | None) -> None:
        caller: FrameType | None = _getframe(1)
        while caller is not None and caller.f_code not in self._codes:
            caller = caller.f_back
        if caller is not None:
            self.arrived = True
        elif self._before is not None:
            self._before(number, frame)


class Alive(Generic[_K, _V]):
    """Values by their keys, for as long as something else holds them.

    No Python code takes a value out that has gone, as in a `WeakValueDictionary`, where Python would swallow Ctrl-C.
    """

    def __init__(self) -> None:
        self._references: dict[_K, ref[_V]] = {}

    def __setitem__(self, key: _K, value: _V) -> None:
        self._references[key] = ref(value, partial(self._references.pop, key))

    def __len__(self) -> int:
        return len(self._references)

    def get(self, key: _K) -> _V | None:
        """Return the value of a key, if it is alive."""
        reference = self._references.get(key)
        return None if reference is None else reference()

    def pop(self, key: _K) -> _V | None:
        """Take a key out, and return its value if it is alive."""
        reference = self._references.pop(key, None)
        return None if reference is None else reference()

    def values(self) -> list[_V]:
        """Return the values that are alive."""
        return [value for reference in list(self._references.values()) if (value := reference()) is not None]

    def clear(self) -> None:
        """Take all out."""
        self._references.clear()


class Finaliser:
    """Work left when an object has gone; see `when_gone`."""

    __slots__ = ("_finish", "_notice", "_reference", "at_exit")

    def __init__(self, thing: object, finish: Callable[[], object], *, at_exit: bool) -> None:
        self.at_exit = at_exit
        self._finish = finish
        # The one that is made last is called first. It is a C function, in which no Ctrl-C can come.
        noticing = _noticing()
        next(noticing)
        self._notice = ref(thing, partial(next, noticing))
        self._reference = ref(thing, _gone.append)
        # By the address of a reference that lives in the entry itself, so it is nobody else's.
        _finalisers[id(self._reference)] = self

    @property
    def alive(self) -> bool:
        """Whether it has neither been done nor cancelled."""
        return id(self._reference) in _finalisers

    def now(self) -> None:
        """Do it now, if it was not done before."""
        # Before `cancel`, which lets go of it.
        finish = self._finish
        if self.cancel():
            finish()

    def cancel(self) -> bool:
        """Never do it; return whether it would have been."""
        if _finalisers.pop(id(self._reference), None) is None:
            return False
        self._finish = int  # What the function holds can go.
        return True


_gone: deque[ref[object]] = deque()
_finalisers: dict[int, Finaliser] = {}
"""Those that are alive, by the address of their reference."""


def when_gone(thing: object, finish: Callable[[], object], *, at_exit: bool = False) -> Finaliser:
    """Call a function when Python has let an object go, or at the end of the process, where that is wanted.

    Python swallows Ctrl-C that comes in a finaliser, and one that was about to begin never runs. Here, the work left is noted before
    any Python code runs, and Ctrl-C that comes meanwhile comes again right after, in the code that let the object go. What is kept from
    being done all the same, `clean_up` does, and so does the next finaliser. Until it is done, the function and all that it holds stay;
    it must not hold the object.
    """
    with deferred():
        return Finaliser(thing, finish, at_exit=at_exit)


def clean_up() -> None:
    """Finish the work of objects that have gone, which Ctrl-C kept from being done."""
    while _gone:
        with deferred():
            try:
                finaliser = _finalisers.get(id(_gone.popleft()))
            except IndexError:  # Another thread does it.
                return
            if finaliser is not None:
                finaliser.now()


def _noticing() -> Generator[None, None, None]:
    """Clean up when it goes on.

    A function would have Ctrl-C as it begins, before its ``try``, and Python would swallow it; a generator goes on inside.
    """
    begun, again = False, None
    while True:
        try:
            if not begun:
                begun = True
                yield
            clean_up()
            break
        except KeyboardInterrupt:
            again = again or Again()  # It goes with this frame.


@atexit.register
def _clean_up_at_exit() -> None:
    for finaliser in list(_finalisers.values()):
        if finaliser.at_exit:
            finaliser.now()
    _finalisers.clear()  # What goes from now on goes with the process.
