"""Undeclared accesses of operators, found by running the program's NumPy references and host functions.

The program is run once, serially, on the given inputs, with each operator's declared reads locked against writing. Each kind of call (the
same function on the same shapes) is then probed: called again with the same values, with random ones in between, and with other bytes in
fresh memory. What stays out of reach is said with each audit; see `audit.UNSEEN`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import CodeType
from typing import Any

import numpy as np

from streamscope.arrays import Array
from streamscope.auditing.dependencies import Work
from streamscope.auditing.findings import Finding, Kind, Severity, named, quoted
from streamscope.auditing.probes import GuardedCall, Remark, call_guarded, guarded_call, probe, random_values
from streamscope.program.launch import HostCall, Launch
from streamscope.program.operation import Operation, Program
from streamscope.program.view import Placing, Viewing
from streamscope.progress import Progress
from streamscope.words import counted

_Signature = tuple[Hashable, ...]
_SHOWN = 4


@dataclass
class _Group:
    """All operations of which a probe found the same."""

    remark: Remark
    operations: dict[int, Operation] = field(default_factory=dict)
    variables: set[int] = field(default_factory=set)
    in_place: bool = False


@dataclass
class _Touches:
    """Runs a program and collects remarks, those of like calls together."""

    program: Program
    memory: dict[int, Array]
    groups: dict[Hashable, _Group] = field(default_factory=dict)
    probed: dict[_Signature, list[Remark]] = field(default_factory=dict)
    unchecked: dict[int, Operation] = field(default_factory=dict)
    stateful: dict[int, Operation] = field(default_factory=dict)
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def run(self, operation: Operation, work: Work) -> None:
        """Run a piece of work, guarded, and probe it if it is the first of its kind."""
        call = guarded_call(work, [self.program.variables[variable].spec for variable in work.writes])
        if call is None:
            self.unchecked[operation.id] = operation
            self._store(work, None)
            return
        variables = tuple(dict.fromkeys((*work.reads, *work.writes)))
        for variable in set(work.reads) - set(self.memory):
            self.memory[variable] = random_values(self.program.variables[variable].spec, self.random)
        signature = self._signature(operation, work, variables)
        results, remarks = call_guarded(call, self.memory)
        if isinstance(work, Launch) and work.stateful:
            self.stateful[operation.id] = operation
        elif results is not None and signature not in self.probed:
            self.probed[signature] = [_placed(remark, variables) for remark in self._probe(call, work)]
        remarks = [_placed(remark, variables) for remark in remarks] + self.probed.get(signature, [])
        for remark in _told_once(remarks):
            group = self.groups.setdefault((signature, remark), _Group(remark))
            group.operations[operation.id] = operation
            group.variables.update(variables[place] for place in remark.variables)
            group.in_place = any(variables[place] in work.writes for place in remark.variables)
        self._store(work, results)

    def _probe(self, call: GuardedCall, work: Work) -> list[Remark]:
        specs = {variable: self.program.variables[variable].spec for variable in (*call.reads, *call.writes)}
        return probe(call, self.memory, specs, declared=isinstance(work, HostCall) or work.declared)

    def _store(self, work: Work, results: Sequence[Array] | None) -> None:
        """Keep the computed values; random ones stand in for missing ones."""
        for index, variable in enumerate(work.writes):
            spec = self.program.variables[variable].spec
            values = random_values(spec, self.random) if results is None else results[index]
            self.memory[variable] = np.array(values, dtype=spec.dtype, order="C")

    def _signature(self, operation: Operation, work: Work, variables: Sequence[int]) -> _Signature:
        function = work.function if isinstance(work, HostCall) else work.reference
        places = {variable: place for place, variable in enumerate(variables)}
        shape = tuple(places[variable] for variable in work.reads), tuple(places[variable] for variable in work.writes)
        specs = tuple((spec.shape, spec.dtype.str) for spec in (self.program.variables[variable].spec for variable in variables))
        return operation.name, work.name, shape, specs, _identity(function)


def _placed(remark: Remark, variables: Sequence[int]) -> Remark:
    """Return a remark with places among the call's variables instead of their ids, so that like calls have like remarks."""
    return replace(remark, variables=tuple(variables.index(variable) for variable in remark.variables))


def _told_once(remarks: Sequence[Remark]) -> Iterator[Remark]:
    """Yield remarks, of several kinds of values the first."""
    told = set()
    for remark in remarks:
        if (remark.kind, remark.variables) not in told:
            told.add((remark.kind, remark.variables))
            yield remark


def _identity(function: Any) -> Hashable:
    """Return a key that is equal only for functions that do the same: one code over the same captured values."""
    if isinstance(function, Viewing):
        return function.views, _identity(function.function)
    if isinstance(function, Placing):
        return function.view, function.spec.shape, _identity(function.function)
    if isinstance(function, partial):
        return _identity(function.func), tuple((name, _hashable(value)) for name, value in function.keywords.items())
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType) or hasattr(function, "__self__"):
        return id(function)
    try:
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
    except ValueError:  # a captured name that was deleted
        return id(function)
    return code, tuple(_hashable(value) for value in (*cells, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items()))


def _hashable(value: Any) -> Hashable:
    try:
        hash(value)
    except TypeError:
        return "object", id(value)
    return type(value), value


def touch_findings(program: Program, inputs: Sequence[Array], progress: Progress | None = None) -> Iterator[Finding]:
    """Yield undeclared accesses of a program's operators; ``progress`` gets the number of operations that were run."""
    memory = {variable: np.array(values, order="C") for variable, values in zip(program.inputs, inputs, strict=True)}
    touches = _Touches(program, memory)
    for step, operation in enumerate(program.operations):
        if progress is not None:
            progress("running operations", step, len(program.operations))
        yield from _undeclared(program, operation)
        for work in operation.works:
            touches.run(operation, work)
    for group in touches.groups.values():
        yield _finding(program, group)
    if touches.unchecked:
        message = f"What {_listed(touches.unchecked.values())} may touch was not looked at, because there is no NumPy reference."
        operations = tuple(touches.unchecked.values())
        yield Finding(Kind.UNCHECKED, Severity.NOTE, operations, (), message, "give ss.operator a reference=.")
    if touches.stateful:
        message = f"What {_listed(touches.stateful.values())} may touch was looked at only once, because it is declared stateful."
        operations = tuple(touches.stateful.values())
        yield Finding(Kind.UNCHECKED, Severity.NOTE, operations, (), message, "to have it checked, pass its state as a variable.")


def _undeclared(program: Program, operation: Operation) -> Iterator[Finding]:
    """Yield accesses that the launches of an operation declare and the operation does not, and the other way round."""
    reads = {variable for work in operation.works for variable in work.reads}
    writes = {variable for work in operation.works for variable in work.writes}
    for verb, extra in (
        ("reads", reads - {*operation.reads, *operation.writes}),
        ("writes", writes - set(operation.writes)),
    ):
        if extra:
            variables = named(program, extra)
            message = f"A launch of {operation} {verb} {quoted(variables)}, which the operation does not declare."
            advice = f"name it in what the operation {verb}."
            yield Finding(Kind.UNDECLARED_TOUCH, Severity.ERROR, (operation,), variables, message, advice)
    if operation.work and (unused := set(operation.reads) - reads):  # what writes empty arrays only has no launches
        variables = named(program, unused)
        message = f"{operation} declares that it reads {quoted(variables)}, but no launch of it does."
        yield Finding(Kind.NEEDLESS_READ, Severity.NOTE, (operation,), variables, message, "take it out of its reads.")


def _finding(program: Program, group: _Group) -> Finding:
    operations = tuple(group.operations.values())
    variables = named(program, group.variables)
    who, names, detail = _listed(operations), quoted(variables[:_SHOWN]), group.remark.detail
    again = " and written in place" if group.in_place else ""
    drawn = " It shows with random values, not with the program's own." if group.remark.drawn else ""
    severity, message, advice = {
        Kind.UNDECLARED_TOUCH: (
            Severity.ERROR,
            f"{who}: writes to {names}, which is declared as read only; under an engine that overlaps work, others may read it meanwhile."
            + drawn,
            "work on a copy, or declare that it is written.",
        ),
        Kind.WRONG_RESULT: (
            Severity.ERROR,
            f"{who}: {detail}. Random values stood in for {names} in the rest of the audit.",
            "return one array for each written variable, of its shape and dtype.",
        ),
        Kind.UNWRITTEN: (
            Severity.WARNING if drawn else Severity.ERROR,
            f"{who}: {detail} of {names} depend on memory that was never written (np.empty, np.ndarray).{drawn}",
            "write every element, or begin with np.zeros.",
        ),
        Kind.HIDDEN_STATE: (
            Severity.WARNING,
            f"{who}: {detail}, so {names} depends on something that is not declared (a closure, a global, a random generator).",
            "pass the state as a variable that it reads and writes.",
        ),
        Kind.NEEDLESS_READ: (
            Severity.NOTE,
            f"{who}: no finite value of {names} that was tried changed the results, though it is declared as read{again}.",
            "declare it as written only." if group.in_place else "take it out of its reads, so that it waits for less.",
        ),
    }[group.remark.kind]
    return Finding(group.remark.kind, severity, operations, variables, message, advice)


def _listed(operations: Iterable[Operation]) -> str:
    everything = list(operations)
    more = len(everything) - _SHOWN
    shown = ", ".join(map(str, everything[:_SHOWN]))
    return f"{shown} and {counted(more, 'more operation')}" if more > 0 else shown
