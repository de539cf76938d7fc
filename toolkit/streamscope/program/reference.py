"""Serial execution in NumPy: what a program means, and what every engine's results are compared with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.errors import ProgramError
from streamscope.program.launch import HostCall, call_host_function
from streamscope.program.operation import Operation, Program

Array = npt.NDArray[Any]


def run_reference(program: Program, inputs: Sequence[Array]) -> list[Array]:
    """Run a program serially in NumPy and return its outputs.

    Raises
    ------
    ProgramError
        An operator of the user's own has no NumPy reference.
    """
    memory: dict[int, Array] = {}
    for variable, values in zip(program.inputs, inputs, strict=True):
        memory[variable] = np.array(values, dtype=program.variables[variable].spec.dtype)
    for operation in program.operations:
        for writes, results in _results(operation, memory):
            for variable, result in zip(writes, results, strict=True):
                spec = program.variables[variable].spec
                memory[variable] = np.asarray(result).astype(spec.dtype, copy=False).reshape(spec.shape)
    return [memory[variable] for variable in program.outputs]


def has_reference(program: Program) -> bool:
    """Tell whether every operation of a program can be run in NumPy."""
    return all(launch.reference is not None for launch in program.launches())


def _results(operation: Operation, memory: dict[int, Array]) -> Iterator[tuple[Sequence[int], Sequence[Array]]]:
    """Yield the variables that an operation writes with their new values, one launch after the other."""
    if isinstance(operation.work, HostCall):
        call = operation.work
        yield call.writes, call_host_function(call, [memory[variable] for variable in call.reads])
        return
    for launch in operation.work:
        if launch.reference is None:
            raise ProgramError(
                f"{operation} has no NumPy reference, so its result cannot be checked", hint="give ss.operator a reference="
            )
        yield launch.writes, launch.reference([memory[variable] for variable in launch.reads])
