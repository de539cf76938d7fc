"""Bulk: neighbouring device operations issued as one, with one set of waits and one event."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from streamscope.engines.pushed.applications import Application
from streamscope.engines.pushed.variable import DynamicVariable
from streamscope.errors import EngineError

Variables = tuple[tuple[DynamicVariable, ...], tuple[DynamicVariable, ...]]
"""What an operation reads, and what it writes."""


@dataclass
class Bulk:
    """The operations that one thread has pushed in bulk and that are not issued yet.

    Attributes
    ----------
    size : int
        How many there may be.
    pushed : list of (Application, str, Variables)
        With the user's line of each, and its variables, which must not be let go before it is issued.
    priority : int
        The highest of theirs.
    """

    size: int
    pushed: list[tuple[Application, str, Variables]] = field(default_factory=list)
    priority: int = 0

    def takes(self, application: Application) -> bool:
        """Tell whether an operation can go with those that are there: on the same kind of stream."""
        if not self.pushed:
            return True
        first = self.pushed[0][0]
        return first.kind is application.kind and first.priority is application.priority

    def add(self, application: Application, line: str, priority: int, variables: Variables) -> bool:
        """Add an operation; True if that is as many as there may be."""
        pushed = self.pushed
        if priority > self.priority or not pushed:
            self.priority = priority
        pushed.append((application, line, variables))
        return len(pushed) >= self.size


def combined(pushed: Sequence[tuple[Application, str]]) -> Application:
    """Return operations, with the user's lines, as one."""
    applications, lines = zip(*pushed, strict=True)
    parts = [part for application in applications for part in application.parts]
    estimate_ns = sum(application.estimate_ns for application in applications)
    first = applications[0]
    return Application(parts, priority=first.priority, lines=lines, estimate_ns=estimate_ns, lane=first.lane)


def checked_size(size: object) -> int:
    """Return the size of a bulk.

    Raises
    ------
    EngineError
        It is no whole number above 0.
    """
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise EngineError(f"bulk(size={size!r}) is not a whole number above 0", hint="1 issues each operation by itself")
    return size
