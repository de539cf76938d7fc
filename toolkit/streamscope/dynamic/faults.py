"""Faults: what went wrong in an operation, kept until a wait meets it, and raised there once."""

from __future__ import annotations

from weakref import WeakSet

from streamscope.dynamic.tracebacks import kept
from streamscope.errors import EngineError, StreamscopeError, described

KEPT = 100
"""How many faults that nobody has waited for are kept; later ones live as long as the variables that they spoil."""


class Fault:
    """Why an operation did not do what it was asked for.

    Attributes
    ----------
    name, where : str
        The operation, and the user's line that pushed it.
    cause : BaseException or None
        As `kept` leaves it; once it was raised, the error has it.
    raised : bool
        A wait has raised it. What shares the fault is then as good as any other: operations read the values that are there.
    """

    __slots__ = ("__weakref__", "cause", "name", "raised", "where")

    def __init__(self, name: str, where: str, cause: BaseException) -> None:
        self.name = name
        self.where = where
        self.cause: BaseException | None = kept(cause)
        self.raised = False

    def error(self) -> StreamscopeError:
        """Return the error to raise, once: of the cause's class if it is one of ours."""
        operation = f"{self.name} (pushed at {self.where})"
        if isinstance(self.cause, StreamscopeError):
            # A class that a user derived from ours may want other arguments, and keep others.
            ours = next(each for each in type(self.cause).__mro__ if each.__module__ == StreamscopeError.__module__)
            message, hint = getattr(self.cause, "message", described(self.cause)), getattr(self.cause, "hint", None)
            error: StreamscopeError = ours(f"{operation} failed: {message}", hint=hint)
        elif isinstance(self.cause, Exception):
            error = EngineError(f"{operation} failed: {described(self.cause)}")
        else:
            error = EngineError(f"{operation} was interrupted by {type(self.cause).__name__}", hint="push it again")
        error.__cause__ = self.cause
        # Frames of the user's lead back to ours, and these to the variable, which holds this.
        self.raised, self.cause = True, None
        return error


class FaultLog:
    """The faults of one engine that no wait has raised yet, in order.

    Each is raised once. Beyond `KEPT`, one is not kept but known: it is raised where its variable is waited for, and a wait for all counts
    it.

    Attributes
    ----------
    live : bool
        Whether there are any, so that operations must look at what they read.
    """

    def __init__(self) -> None:
        self.live = False
        self._faults: list[Fault] = []
        self._later: WeakSet[Fault] = WeakSet()
        self._more = 0

    def add(self, fault: Fault) -> None:
        """Keep a fault."""
        if len(self._faults) < KEPT:
            self._faults.append(fault)
        else:
            self._later.add(fault)
            self._more += 1
        self.live = True

    def take(self, fault: Fault | None) -> StreamscopeError | None:
        """Return the error to raise for one fault, if there is one and it was not raised before."""
        if fault is None or fault.raised:
            return None
        if fault in self._faults:
            self._faults.remove(fault)
        elif fault in self._later:
            self._later.remove(fault)
            self._more -= 1
        self.live = bool(self._faults or self._more)
        return fault.error()

    def take_all(self) -> StreamscopeError | None:
        """Return the error to raise for all faults: the first, with notes about the others; beyond `KEPT` they are counted."""
        known, number = [*self._faults, *self._later], len(self._faults) + self._more
        self._faults, self._later, self._more, self.live = [], WeakSet(), 0, False
        if not number:
            return None
        if not known:
            return EngineError(
                f"{number} operations failed, after {KEPT} others; nothing holds what they were to write any more, or why they failed",
                hint="wait more often",
            )
        error, *others = [fault.error() for fault in known]
        for other in others[: KEPT - 1]:
            error.add_note(f"also: {other}")
        if number > min(len(known), KEPT):
            error.add_note(f"and {number - min(len(known), KEPT)} more")
        return error
