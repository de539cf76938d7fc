"""Serial execution in NumPy: the meaning of a program, and the reference of every engine's results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from streamscope.arrays import Array
from streamscope.errors import OutOfMemoryError, ProgramError, StreamscopeError, described
from streamscope.program.collective import Collective
from streamscope.program.launch import (
    RESULTS_HINT,
    HostCall,
    Reference,
    call_collective,
    call_host_function,
    call_reference,
    writes_refused,
)
from streamscope.program.operation import Operation, Program
from streamscope.program.variable import HINT, ArraySpec, host_array
from streamscope.words import counted


def run_reference(program: Program, inputs: Sequence[Array], begun: Callable[[Operation], None] = lambda operation: None) -> list[Array]:
    """Run a program serially in NumPy and return its outputs; ``begun`` is called before each operation. Dead values are let go.

    Exceptions of host functions are passed on. All else that goes wrong is a `ProgramError`, or an `OutOfMemoryError`.
    """
    memory = _filled(program, inputs)
    last_of = _let_go(program)
    for operation, done_with in zip(program.operations, last_of, strict=True):
        begun(operation)
        try:
            # Like a GPU, it goes on after an overflow without a word.
            with np.errstate(all="ignore"):
                for writes, results in _results(operation, memory, program):
                    specs = [program.variables[variable].spec for variable in writes]
                    memory.update(zip(writes, _fitting(operation, specs, results), strict=True))
        except MemoryError as error:
            raise OutOfMemoryError(f"{_what(operation)}: {error}", hint="use smaller shapes") from error
        for variable in done_with:
            del memory[variable]
    return [program.result(variable, memory[variable]) for variable in program.outputs]


def peak_bytes(program: Program) -> int:
    """Return the peak memory of the variables in a serial run; temporaries of operators are unknown."""
    sizes = {variable.id: variable.spec.nbytes for variable in program.variables}
    there = set(program.inputs)
    held = most = sum(sizes[variable] for variable in there)
    for operation, done_with in zip(program.operations, _let_go(program), strict=True):
        held += sum(sizes[variable] for variable in operation.touched - there)
        there |= operation.touched
        most = max(most, held)
        there.difference_update(done_with)
        held -= sum(sizes[variable] for variable in done_with)
    return most


def known_part(program: Program) -> Program:
    """Return a program without the operations that depend on one that NumPy knows nothing of, and without the outputs that do."""
    unknown: set[int] = set()
    known = []
    for operation in program.operations:
        if _is_known(operation) and unknown.isdisjoint(operation.reads):
            known.append(operation)
            unknown.difference_update(operation.writes)
        else:
            unknown.update(operation.writes)
    return replace(program, operations=tuple(known), outputs=tuple(each for each in program.outputs if each not in unknown))


def _let_go(program: Program) -> list[list[int]]:
    """Return for each operation the variables that no later one uses, and that are not outputs."""
    last = {variable: index for index, operation in enumerate(program.operations) for variable in operation.touched}
    done: list[list[int]] = [[] for _ in program.operations]
    for variable in last.keys() - program.outputs:
        done[last[variable]].append(variable)
    return done


def _is_known(operation: Operation) -> bool:
    return all((launch.reference is not None or launch.collective is not None) and not launch.stateful for launch in operation.launches)


def _filled(program: Program, inputs: Sequence[Array]) -> dict[int, Array]:
    """Return the values of the inputs, which are copied, and of empty variables, which are never written."""
    memory: dict[int, Array] = {each.id: np.empty(each.spec.shape, each.spec.dtype) for each in program.variables if not each.spec.size}
    for variable, values in zip(program.inputs, inputs, strict=True):
        name, spec = program.variables[variable].name, program.variables[variable].spec
        array = host_array(values)
        try:
            memory[variable] = np.array(array, spec.dtype)
        except (TypeError, ValueError) as error:
            raise ProgramError(f"input {name!r} is {array.dtype.name}{list(array.shape)}, not {spec}", hint=HINT) from error
        except MemoryError as error:
            raise OutOfMemoryError(f"input {name!r}, which is {spec}, has no copy: {error}", hint="use smaller shapes") from error
    return memory


def _what(operation: Operation) -> str:
    return f"{'host function' if isinstance(operation.work, HostCall) else 'the NumPy reference of'} {operation}"


def misfit(results: Sequence[Array], specs: Sequence[ArraySpec]) -> str:
    """Return why results do not fit the variables that work writes; empty if they do."""
    if len(results) != len(specs):
        return f"returned {counted(len(results), 'array')} for {counted(len(specs), 'variable')}"
    for array, spec in zip(results, specs, strict=True):
        if array.shape != spec.shape or not np.can_cast(array.dtype, spec.dtype, "same_kind"):
            return f"returned {array.dtype.name}{list(array.shape)} for a variable that is {spec}"
    return ""


def _fitting(operation: Operation, specs: Sequence[ArraySpec], results: Sequence[Array]) -> list[Array]:
    """Return an operation's results in the dtypes of its outputs.

    It is copied: it may be a view of an argument, or memory of the user's function, which writes to it when it is called again.
    """
    if problem := misfit(results, specs):
        raise ProgramError(f"{operation} {problem}", hint=RESULTS_HINT)
    return [array.astype(spec.dtype) for array, spec in zip(results, specs, strict=True)]


def _results(operation: Operation, memory: dict[int, Array], program: Program) -> Iterator[tuple[Sequence[int], Sequence[Array]]]:
    """Yield the variables that an operation writes with their new values, one launch after the other."""
    if isinstance(operation.work, HostCall):
        call = operation.work
        with writes_refused(_what(operation)):
            results = call_host_function(call, [memory[variable] for variable in call.reads])
        yield call.writes, results
        return
    if operation.collective is not None:
        yield operation.writes, collective_results(operation, operation.collective, memory, program)
        return
    for launch in operation.work:
        if launch.reference is None:
            raise ProgramError(
                f"{operation} {launch.without_reference}, so its result cannot be checked",
                hint=f"give {'ss.elementwise' if launch.unknown else 'ss.operator'} a reference=",
            )
        yield launch.writes, _referred(operation, launch.reference, [memory[variable] for variable in launch.reads])


def collective_results(operation: Operation, collective: Collective, memory: dict[int, Array], program: Program) -> list[Array]:
    """Return the variables that a collective writes, whole also where it writes a part of each."""
    parts = operation.launches
    operands = [memory[part.reads[0]] for number, part in enumerate(parts) if collective.reads(number)]
    results = zip((part for part in parts if part.writes), call_collective(parts, operands), strict=True)
    found = {}
    for part, result in results:
        ((variable, view),) = part.results
        spec = program.variables[variable].spec
        found[variable] = result if view is None else np.array(memory.get(variable, np.empty(spec.shape, spec.dtype)), order="C")
        if view is not None:
            view.put(found[variable], result)
    return [found[variable] for variable in operation.writes]


def _referred(operation: Operation, reference: Reference, arrays: Sequence[Array]) -> Sequence[Array]:
    try:
        return call_reference(_what(operation), reference, arrays)
    except (StreamscopeError, MemoryError):
        raise
    except Exception as error:
        hint = "it is called with NumPy arrays, in the order of the reads, and with the attributes by name"
        raise ProgramError(f"{_what(operation)} failed: {described(error)}", hint=hint) from error
