"""Ctrl-C at a time when it does no harm: what must not stop halfway is finished first.

Python raises `KeyboardInterrupt` between any two lines of the main thread. A stream that is held by a gate, a capture that was begun, or a
simulated device in the middle of a step would then stay as it is for ever.
"""

from __future__ import annotations

# The C functions: those of `signal` look up enumerations, which takes longer than a simulated launch.
import _signal  # type: ignore[import-not-found]
from collections.abc import Callable
from threading import get_ident, main_thread
from types import FrameType, TracebackType
from typing import Any, Self, TypeVar

Result = TypeVar("Result")
_Handler = Callable[[int, FrameType | None], Any]
_SIGINT: int = _signal.SIGINT


class Deferral:
    """Lets Ctrl-C wait until the end of a block; the one there is, is what `deferred` returns.

    Only the main thread gets interrupts, so in others it does nothing. Blocks may be nested: the outermost ends the waiting.
    """

    __slots__ = ("_arrived", "_depth", "_handler")

    def __init__(self) -> None:
        self._arrived: tuple[int, FrameType | None] | None = None
        self._depth = 0
        self._handler: _Handler | None = None

    @property
    def due(self) -> bool:
        """Whether Ctrl-C will be raised as soon as this block ends: one that takes long can stop for it where it is safe to."""
        return self._arrived is not None and self._depth == 1 and get_ident() == main_thread().ident

    def __enter__(self) -> Self:
        if get_ident() == main_thread().ident:
            if not self._depth:
                self._begin()
            self._depth += 1
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if get_ident() == main_thread().ident:
            self._depth = max(0, self._depth - 1)
            if not self._depth:
                self._end()

    def lifted(self, function: Callable[..., Result], *arguments: Any, **options: Any) -> Result:
        """Call a function with Ctrl-C let through, inside a block that defers it.

        What arrives after the function has returned, while deferring begins again, is raised at the end of the block like any other.
        """
        if not self._depth or get_ident() != main_thread().ident:
            return function(*arguments, **options)
        depth, self._depth, late = self._depth, 0, False
        try:
            self._end()
            return function(*arguments, **options)
        finally:
            # No call may come before this: Python raises Ctrl-C at calls, and the outer blocks count on their depth.
            self._depth = depth
            while True:
                try:
                    self._begin()
                    break
                except BaseException:  # noqa: BLE001 — whatever the user's handler raises, it is called again at the end of the block
                    late = True
            if late:
                self._arrived = (_SIGINT, None)

    def _begin(self) -> None:
        handler, self._arrived = _signal.getsignal(_SIGINT), None
        # Where Ctrl-C is ignored, or kills the process, there is nothing to wait with.
        self._handler = handler if callable(handler) else None
        if self._handler is not None:
            _signal.signal(_SIGINT, self._note)

    def _end(self) -> None:
        handler, self._handler = self._handler, None
        if handler is not None and _signal.getsignal(_SIGINT) == self._note:
            _signal.signal(_SIGINT, handler)
        arrived, self._arrived = self._arrived, None
        if arrived is not None and handler is not None:
            handler(*arrived)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._arrived = (number, frame)


_deferral = Deferral()


def deferred() -> Deferral:
    """Let Ctrl-C wait until the end of the block: ``with deferred(): ...``."""
    return _deferral


def let_through(function: Callable[..., Result], *arguments: Any, **options: Any) -> Result:
    """Call a function of the user's with Ctrl-C let through, inside a block that defers it; see `Deferral.lifted`."""
    return _deferral.lifted(function, *arguments, **options)
