"""Faults: why operations failed, kept until a wait meets them, and raised there once."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from types import TracebackType

from streamscope.errors import EngineError, StreamscopeError, described
from streamscope.interrupts import Alive, is_interruption

KEPT = 100
"""How many faults that nobody has waited for are kept; later ones live as long as the variables that they spoil."""


@dataclass(slots=True, weakref_slot=True, eq=False)
class Fault:
    """Why an operation failed or was skipped."""

    name: str
    where: str
    """The operation, and the user's line that pushed it."""
    cause: BaseException | None
    """As `kept` leaves it; once it was raised, the error has it."""
    pushed: int | None = None
    """The operation's number, see `FaultLog.number`; None until the fault is kept."""
    raised: int | None = None
    """The number of the wait that has raised it."""
    lost: bool = False
    """It is of a collective that was aborted after it was issued."""
    interrupted: bool = field(default=False, init=False)
    """Whether the cause came from outside the operation."""
    others: dict[int, Fault] = field(default_factory=dict, init=False)
    """The same fault for the results on other GPUs, each raised once, too."""

    def __post_init__(self) -> None:
        if self.cause is not None:
            self.interrupted = is_interruption(self.cause)
            self.cause = kept(self.cause)

    def on_gpu(self, gpu: int) -> Fault:
        """Return the same fault for the results on another GPU than the first."""
        if gpu not in self.others:
            self.others[gpu] = Fault(self.name, self.where, self.cause, self.pushed, self.raised, self.lost)
        return self.others[gpu]

    def spoils(self, pushed: int | None) -> bool:
        """Tell whether a reader of a spoiled variable is skipped: it was pushed before a wait raised the fault.

        An operation pushed later reads the values that are there. When it runs does not matter.

        ``pushed``: the operation's number; None for one that runs as it is pushed.
        """
        return self.raised is None or (pushed is not None and pushed < self.raised)

    def settle(self, raised: int) -> None:
        """Count it as raised, on other GPUs too, by the wait of that number."""
        self.raised, self.cause = raised, None
        for other in self.others.values():
            other.settle(raised)

    def error(self, raised: int = 0) -> StreamscopeError:
        """Return the error to raise, once, at the wait of that number: of the cause's class if it is one of ours."""
        operation = f"{self.name} (pushed at {self.where})"
        if self.interrupted or self.cause is None:
            error: StreamscopeError = EngineError(f"{operation} was interrupted by {type(self.cause).__name__}", hint="push it again")
        elif isinstance(self.cause, StreamscopeError):
            # A class that a user derived from ours may want other arguments, and keep others.
            ours = next(each for each in type(self.cause).__mro__ if each.__module__ == StreamscopeError.__module__)
            message, hint = getattr(self.cause, "message", described(self.cause)), getattr(self.cause, "hint", None)
            error = ours(f"{operation} failed: {message}", hint=hint)
        else:
            error = EngineError(f"{operation} failed: {described(self.cause)}")
        error.__cause__ = self.cause
        # Frames of the user's lead back to ours, and these to the variable, which holds this.
        self.raised, self.cause = raised, None
        return error


class FaultLog:
    """The faults of one engine that no wait has raised yet.

    Each is raised once. A wait for all raises the first fault by push, whenever it failed. Beyond `KEPT`, one is not kept but known:
    it is raised where its variable is waited for, and a wait for all counts it.
    """

    def __init__(self) -> None:
        self.live = False
        """Whether there are any, so that operations must look at their inputs."""
        self.number = count(1).__next__
        """Returns the next number of an operation that does not run at once, of one that fails, or of a wait that raises: one order of
        all."""
        self._faults: list[Fault] = []
        self._later = Alive[int, Fault]()  # by address
        self._more = 0
        self._others = Alive[int, Fault]()
        """By address: faults of results on other GPUs than that of the one which was raised."""

    def add(self, fault: Fault) -> None:
        """Keep a fault; the caller holds the engine's lock."""
        if fault.pushed is None:
            fault.pushed = self.number()  # It failed as it was pushed.
        if len(self._faults) < KEPT:
            self._faults.append(fault)
        else:
            self._later[id(fault)] = fault
            self._more += 1
        self.live = True

    def take(self, fault: Fault | None) -> StreamscopeError | None:
        """Return the error to raise for one fault, if there is one and it was not raised before."""
        if fault is None or fault.raised is not None:
            return None
        if fault in self._faults:
            self._faults.remove(fault)
        elif self._later.pop(id(fault)) is not None:
            self._more -= 1
        self._others.pop(id(fault))
        for other in fault.others.values():
            self._others[id(other)] = other
        self.live = bool(self._faults or self._more or len(self._others))
        return fault.error(self.number())

    def take_all(self) -> StreamscopeError | None:
        """Return the error to raise for all faults: the first pushed, with notes about the others; beyond `KEPT` they are counted."""
        known = sorted((*self._faults, *self._later.values()), key=lambda fault: fault.pushed or 0)
        number = len(self._faults) + self._more
        self._faults, self._more, self.live = [], 0, False
        self._later.clear()
        raised = self.number()
        for other in (*self._others.values(), *(each for fault in known for each in fault.others.values())):
            other.settle(raised)
        self._others.clear()
        if not number:
            return None
        if not known:
            return EngineError(
                f"{number} operations failed after {KEPT} others, and only the first {KEPT} errors are kept",
                hint="wait more often",
            )
        error, *others = [fault.error(raised) for fault in known]
        for later in others[: KEPT - 1]:
            error.add_note(f"also: {later}")
        if number > min(len(known), KEPT):
            error.add_note(f"and {number - min(len(known), KEPT)} more")
        return error


def kept(error: BaseException) -> BaseException:
    """Return an error as it can be kept for long: frames of this package are taken out of its traceback, and of those it came from.

    Those frames hold operations and variables, and these hold the error: a cycle, which would stay until the collector runs. An error that
    ends the program, or that a signal's handler has raised, is raised on, which puts the frames back in. In its place another one is kept,
    without a traceback.
    """
    if is_interruption(error):
        return _another(error)
    told: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is not None and id(one) not in told:
            told.add(id(one))
            one.__traceback__ = _of_others(one.__traceback__)
            left += [one.__cause__, one.__context__]
    return error


def _another(error: BaseException) -> BaseException:
    """Return an error of the same class, made by Python's own class that it is derived from: a user's may want other arguments."""
    base = next(each for each in type(error).__mro__ if each.__module__ == "builtins")
    arguments = (error.message, error.exceptions) if isinstance(error, BaseExceptionGroup) else error.args
    another: BaseException = base.__new__(type(error), *arguments)
    return another


def _of_others(traceback: TracebackType | None) -> TracebackType | None:
    """Link the entries of a traceback that are not ours."""
    first: TracebackType | None = None
    last: TracebackType | None = None
    while traceback is not None:
        following = traceback.tb_next
        if not str(traceback.tb_frame.f_globals.get("__name__", "")).startswith("streamscope."):
            if last is None:
                first = traceback
            else:
                last.tb_next = traceback
            last = traceback
        traceback = following
    if last is not None:
        last.tb_next = None
    return first
