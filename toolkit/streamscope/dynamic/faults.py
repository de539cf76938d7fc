"""Faults: what went wrong in an operation, kept until a wait meets it, and raised there once."""

from __future__ import annotations

from streamscope.errors import EngineError, StreamscopeError

KEPT = 100
"""How many faults that nobody has waited for are kept; of later ones only the number is."""


class Fault:
    """Why an operation did not do what it was asked for.

    Attributes
    ----------
    name, where : str
        The operation, and the user's line that pushed it.
    cause : BaseException
    raised : bool
        A wait has raised it. What shares the fault is then as good as any other: operations read the values that are there.
    """

    __slots__ = ("cause", "name", "raised", "where")

    def __init__(self, name: str, where: str, cause: BaseException) -> None:
        self.name = name
        self.where = where
        self.cause = cause
        self.raised = False

    def error(self) -> StreamscopeError:
        """Return the error to raise: of the cause's class if it is one of ours."""
        operation = f"{self.name} (pushed at {self.where})"
        if isinstance(self.cause, StreamscopeError):
            error = type(self.cause)(f"{operation} failed: {self.cause.message}", hint=self.cause.hint)
        elif isinstance(self.cause, Exception):
            error = EngineError(f"{operation} failed: {type(self.cause).__name__}: {self.cause}")
        else:
            error = EngineError(f"{operation} was interrupted by {type(self.cause).__name__}", hint="push it again")
        error.__cause__ = self.cause
        return error


class FaultLog:
    """The faults of one engine that no wait has raised yet, in order.

    Attributes
    ----------
    live : bool
        Whether there are any, so that operations must look at what they read.
    """

    def __init__(self) -> None:
        self.live = False
        self._faults: list[Fault] = []
        self._more = 0

    def add(self, fault: Fault) -> None:
        """Keep a fault."""
        if len(self._faults) < KEPT:
            self._faults.append(fault)
        else:
            self._more += 1
        self.live = True

    def take(self, fault: Fault | None) -> StreamscopeError | None:
        """Return the error to raise for one fault, if there is one and it was not raised before."""
        if fault is None or fault.raised:
            return None
        fault.raised = True
        if fault in self._faults:
            self._faults.remove(fault)
        else:
            self._more -= 1
        self.live = bool(self._faults or self._more)
        return fault.error()

    def take_all(self) -> StreamscopeError | None:
        """Return the error to raise for all faults: the first, with notes about the others."""
        faults, more = self._faults, self._more
        self._faults, self._more, self.live = [], 0, False
        for fault in faults:
            fault.raised = True
        if not faults:
            return None
        error = faults[0].error()
        for fault in faults[1:]:
            error.add_note(f"also: {fault.error()}")
        if more:
            error.add_note(f"and {more} more")
        return error
