"""Findings of an audit, each with its operations, variables and the user's lines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from streamscope.program.operation import Operation, Program, Variable
from streamscope.words import listed

_WORTH = 0.01
"""The share of a makespan, or of the longest path, from which on a cost is a warning and not a note."""


class Severity(Enum):
    """How bad a finding is."""

    ERROR = "error"
    """Results can be wrong, or a part of the plan does not work."""
    WARNING = "warning"
    """Results are right, but something costs time or may surprise."""
    NOTE = "note"
    """Good to know."""

    @classmethod
    def of_cost(cls, cost_ns: float, whole_ns: float) -> Severity:
        """Grade a cost by its share of the whole."""
        return cls.WARNING if cost_ns > _WORTH * whole_ns else cls.NOTE


class Kind(Enum):
    """Kinds of findings."""

    MISSING_WAIT = "missing wait"
    """Two pieces of work touch one variable, at least one writes it, and the plan does not order them: a race."""
    WRONG_ORDER = "wrong order"
    """Two conflicting pieces of work are issued in another order than the program's."""
    NOT_ISSUED = "not issued"
    """The plan leaves a piece of work out, or does it twice."""
    BROKEN_CAPTURE = "broken capture"
    """A graph cannot be captured: a lane does not fork from the main one or is not joined to it, or an operation cannot be captured."""
    FALSE_SERIALISATION = "false serialisation"
    """The plan orders work that no path of declared dependencies orders."""
    NOT_UNDERSTOOD = "not understood"
    """Opaque nodes of captured code, which are ordered against all others."""
    SHARED_WORKSPACE = "shared workspace"
    """Nodes of captured code lead to the same memory, and may or may not use it."""
    REUSED_MEMORY = "memory used twice"
    """The allocator handed the same memory out again, so nodes of captured code are ordered that share nothing else."""
    UNDECLARED_TOUCH = "undeclared touch"
    """An operator writes to a variable declared as read only, or a launch touches one that its operation does not declare."""
    WRONG_RESULT = "wrong result"
    """An operator raises an exception, or its results do not fit the variables that it writes."""
    NEEDLESS_READ = "declared but not needed"
    """An operation declares a read that none of its launches does."""
    OTHER_FUNCTION = "not what the function does"
    """The traced program has other results than the function itself has for the same arrays in NumPy."""
    DEADLOCK = "deadlock"
    """Collectives of captured code could wait for each other for ever: ranks run them in different orders, or there is no room."""
    UNCHECKED = "not checked"
    """A limit of the audit."""


@dataclass(frozen=True)
class Finding:
    """One thing that an audit found.

    Attributes
    ----------
    kind : Kind
    severity : Severity
    operations : tuple of Operation
        Of a race, the earlier one first.
    variables : tuple of Variable
    message : str
        The problem, in plain words.
    advice : str
        What to do about it.
    cost_ns : float
        About how much longer it makes a run, in ns, by an estimate; 0 where it costs nothing or the cost is not known.
    """

    kind: Kind
    severity: Severity
    operations: tuple[Operation, ...]
    variables: tuple[Variable, ...]
    message: str
    advice: str
    cost_ns: float = 0.0

    @property
    def lines(self) -> tuple[str, ...]:
        """The user's lines, ``"file.py:12"``, each once, in the order of the operations."""
        return tuple(dict.fromkeys(operation.where for operation in self.operations))

    @property
    def sources(self) -> tuple[str, ...]:
        """The same lines with their labels and their text: ``"file.py:12 in 'mlp': h = x @ w"``."""
        return tuple(dict.fromkeys(operation.line for operation in self.operations if operation.where))

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as values: ids of operations, names of variables, the cost in µs."""
        return {
            "kind": self.kind.value,
            "severity": self.severity.value,
            "operations": tuple(operation.id for operation in self.operations),
            "variables": tuple(variable.name for variable in self.variables),
            "lines": self.lines,
            "message": self.message,
            "advice": self.advice,
            "cost_us": self.cost_ns / 1e3,
        }

    def __str__(self) -> str:
        return f"{self.severity.value}, {self.kind.value}: {self.message} To mend it: {self.advice}"


def named(program: Program, variables: Iterable[int]) -> tuple[Variable, ...]:
    """Return the variables with some ids, each once, by id."""
    return tuple(program.variables[variable] for variable in sorted(set(variables)))


def quoted(variables: Iterable[Variable]) -> str:
    """Return the names of variables for a message: ``'x' and 'y'``."""
    return listed([repr(variable.name) for variable in variables])
