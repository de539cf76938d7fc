"""Serial execution in NumPy: what a program means, and what every engine's results are compared with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.errors import OutOfMemoryError, ProgramError, StreamscopeError
from streamscope.program.launch import RESULTS_HINT, HostCall, Reference, call_host_function
from streamscope.program.operation import Operation, Program
from streamscope.program.variable import ArraySpec

Array = npt.NDArray[Any]


def run_reference(program: Program, inputs: Sequence[Array]) -> list[Array]:
    """Run a program serially in NumPy and return its outputs.

    Raises
    ------
    ProgramError
        An operator of the user's own has no NumPy reference, its reference raises, or it or a host function returns what does not fit.
    OutOfMemoryError
        This machine has too little memory.
    """
    # What is empty is never written.
    memory: dict[int, Array] = {each.id: np.empty(each.spec.shape, each.spec.dtype) for each in program.variables if not each.spec.size}
    for variable, values in zip(program.inputs, inputs, strict=True):
        memory[variable] = np.array(values, dtype=program.variables[variable].spec.dtype)
    for operation in program.operations:
        # Like a GPU, it goes on after an overflow without a word.
        with np.errstate(all="ignore"):
            for writes, results in _results(operation, memory):
                specs = [program.variables[variable].spec for variable in writes]
                memory.update(zip(writes, _fitting(operation, specs, results), strict=True))
    return [memory[variable] for variable in program.outputs]


def has_reference(program: Program) -> bool:
    """Tell whether every operation of a program can be run in NumPy."""
    return all(launch.reference is not None for launch in program.launches())


def _fitting(operation: Operation, specs: Sequence[ArraySpec], results: Sequence[Array]) -> list[Array]:
    """Return what an operation computed in the dtypes of the variables that it writes."""
    arrays = [np.asarray(result) for result in results]
    if len(arrays) != len(specs):
        raise ProgramError(f"{operation} returned {len(arrays)} arrays for {len(specs)} variables", hint=RESULTS_HINT)
    for array, spec in zip(arrays, specs, strict=True):
        if array.shape != spec.shape or not np.can_cast(array.dtype, spec.dtype, "same_kind"):
            raise ProgramError(
                f"{operation} returned {array.dtype.name}{list(array.shape)} for a variable that is {spec}", hint=RESULTS_HINT
            )
    return [array.astype(spec.dtype, copy=False) for array, spec in zip(arrays, specs, strict=True)]


def _results(operation: Operation, memory: dict[int, Array]) -> Iterator[tuple[Sequence[int], Sequence[Array]]]:
    """Yield the variables that an operation writes with their new values, one launch after the other."""
    if isinstance(operation.work, HostCall):
        call = operation.work
        yield call.writes, call_host_function(call, [memory[variable] for variable in call.reads])
        return
    for launch in operation.work:
        if launch.reference is None:
            raise ProgramError(f"{operation} has no NumPy reference, so its result cannot be checked", hint="give ss.operator a reference=")
        yield launch.writes, _referred(operation, launch.reference, [memory[variable] for variable in launch.reads])


def _referred(operation: Operation, reference: Reference, arrays: Sequence[Array]) -> Sequence[Array]:
    try:
        return reference(arrays)
    except StreamscopeError:
        raise
    except MemoryError as error:
        raise OutOfMemoryError(f"the NumPy reference of {operation}: {error}", hint="use smaller shapes") from error
    except Exception as error:
        raise ProgramError(f"the NumPy reference of {operation} failed: {type(error).__name__}: {error}", hint=RESULTS_HINT) from error
