"""Undeclared accesses of operators: by their declarations, and by one serial run of NumPy references and host functions.

In that run, arrays that an operator declares as read only are locked against writing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from streamscope.arrays import Array
from streamscope.auditing.findings import Finding, Kind, Severity, named, quoted
from streamscope.engines.happens_before import Work
from streamscope.program.launch import HostCall, as_arrays
from streamscope.program.operation import Operation, Program
from streamscope.program.reference import collective_results, misfit
from streamscope.program.variable import ArraySpec
from streamscope.progress import Progress
from streamscope.words import counted, listed

_SHOWN = 4


def random_values(spec: ArraySpec, random: np.random.Generator) -> Array:
    """Return random values: normally distributed, or whole numbers from 0 that are small enough to be an index of something."""
    if spec.dtype.kind == "f":
        return np.asarray(random.standard_normal(spec.shape), spec.dtype)  # of no axes, NumPy draws a number
    return np.asarray(random.integers(0, 2 if spec.dtype.kind == "b" else 8, spec.shape), spec.dtype)


def touch_findings(program: Program, inputs: Sequence[Array], progress: Progress | None = None) -> Iterator[Finding]:
    """Yield undeclared accesses of a program's operators; ``progress`` gets the number of operations that were run."""
    memory = {variable: np.array(values, order="C") for variable, values in zip(program.inputs, inputs, strict=True)}
    random = np.random.default_rng(0)
    unchecked: dict[int, Operation] = {}
    for step, operation in enumerate(program.operations):
        if progress is not None:
            progress("running operations", step, len(program.operations))
        yield from _undeclared(program, operation)
        if operation.collective is not None:  # Its results need the operands of all its parts.
            for variable in {*operation.reads} - {*memory}:
                memory[variable] = random_values(program.variables[variable].spec, random)
            memory.update(zip(operation.writes, collective_results(operation, operation.collective, memory, program), strict=True))
            continue
        for work in operation.works:
            for variable in {*work.reads} - {*memory}:
                memory[variable] = random_values(program.variables[variable].spec, random)
            if isinstance(work, HostCall) or work.reference is not None:
                results, problem, touched = _run(work, memory, [program.variables[variable].spec for variable in work.writes])
                yield from _seen(program, operation, work, problem, touched)
            else:
                unchecked[operation.id], results = operation, None
            for index, variable in enumerate(work.writes):
                spec = program.variables[variable].spec
                memory[variable] = random_values(spec, random) if results is None else np.array(results[index], spec.dtype, order="C")
    if unchecked:
        names = [str(operation) for operation in unchecked.values()]
        who = listed([*names[:_SHOWN], *([counted(len(names) - _SHOWN, "more operation")] if len(names) > _SHOWN else [])])
        message = f"What {who} may touch was not looked at, because there is no NumPy reference."
        yield Finding(Kind.UNCHECKED, Severity.NOTE, tuple(unchecked.values()), (), message, "give ss.operator a reference=.")


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


def _run(work: Work, memory: dict[int, Array], specs: Sequence[ArraySpec]) -> tuple[list[Array] | None, str, set[int]]:
    """Run a piece of work on copies; return its results or None, the problem with them, and the read-only variables that it writes to."""
    read_only = set(work.reads) - set(work.writes)
    try:
        results, touched = _called(work, memory, read_only)
    except Exception as error:  # noqa: BLE001 — a reference or a host function is the user's code
        culprits = {variable for variable in read_only if "read-only" in str(error) and _refuses(work, memory, variable)}
        if not culprits:
            return None, f"raised {type(error).__name__}: {error}", set()
        try:
            results, touched = _called(work, memory)
        except Exception as second:  # noqa: BLE001 — as above
            return None, f"raised {type(second).__name__}: {second}", culprits
        touched |= culprits
    problem = misfit(results, specs)
    return None if problem else results, problem, touched & read_only


def _called(work: Work, memory: dict[int, Array], locked: Iterable[int] = ()) -> tuple[list[Array], set[int]]:
    """Call a piece of work on copies, some of them locked; return its results, and the variables whose copy it changed."""
    copies = {variable: memory[variable].copy() for variable in work.reads}
    for variable in locked:
        # The copy itself is locked, so that a view's base is not a way round it.
        copies[variable].flags.writeable = False
    arrays = [copies[variable] for variable in work.reads]
    with np.errstate(all="ignore"):
        if isinstance(work, HostCall):
            results: Sequence[Array] = as_arrays(work.function(*arrays))
        else:
            assert work.reference is not None
            results = work.reference(arrays)
    changed = {variable for variable, copy in copies.items() if copy.tobytes() != memory[variable].tobytes()}
    return [np.asarray(result) for result in results], changed


def _refuses(work: Work, memory: dict[int, Array], variable: int) -> bool:
    """Tell whether NumPy refuses a write when this variable alone is locked."""
    try:
        _called(work, memory, [variable])
    except Exception as error:  # noqa: BLE001 — as above
        return "read-only" in str(error)
    return False


def _seen(program: Program, operation: Operation, work: Work, problem: str, touched: set[int]) -> Iterator[Finding]:
    """Yield findings about one piece of work that was run."""
    if touched:
        variables = named(program, touched)
        message = (
            f"{operation}: writes to {quoted(variables)}, which is declared as read only; under an engine that overlaps work, others may "
            "read it meanwhile."
        )
        advice = "work on a copy, or declare that it is written."
        yield Finding(Kind.UNDECLARED_TOUCH, Severity.ERROR, (operation,), variables, message, advice)
    if problem:
        variables = named(program, work.writes)
        message = f"{operation}: {problem}. Random values stood in for {quoted(variables[:_SHOWN])} in the rest of the audit."
        advice = "return one array for each written variable, of its shape and dtype."
        yield Finding(Kind.WRONG_RESULT, Severity.ERROR, (operation,), variables, message, advice)
