"""Host functions: Python that runs on the host as an operation of a program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from streamscope.errors import ProgramError
from streamscope.ops.operator import Application, Attributes, Operator
from streamscope.program.launch import HostCall
from streamscope.program.variable import ArraySpec, Place

Results = Sequence[tuple[Sequence[int], Any]]


def host_function(
    function: Callable[..., Any] | None = None, *, results: Results | None = None, duration_us: float = 20.0
) -> Any:
    """Make an operator of a Python function over NumPy arrays in host memory (a decorator).

    Parameters
    ----------
    function : callable
        ``function(*arrays) -> array or tuple of arrays``; it must not change its arguments.
    results : sequence of (shape, dtype), optional
        What it returns. By default one array like the first argument.
    duration_us : float
        How long it takes on the simulated device, in µs. On a real one it takes what it takes.

    Raises
    ------
    ProgramError
        ``duration_us`` is negative.
    """
    if duration_us < 0:
        raise ProgramError(f"duration_us={duration_us} is negative")

    def make(function: Callable[..., Any]) -> Operator:
        name = getattr(function, "__name__", "host_function")

        def infer(specs: Sequence[ArraySpec], attributes: Attributes) -> Sequence[ArraySpec]:
            if results is not None:
                return [ArraySpec(tuple(shape), np.dtype(dtype)) for shape, dtype in results]
            if not specs:
                raise ProgramError(f"{name} has no arguments, so its result is unknown", hint="give results=[(shape, dtype)]")
            return [specs[0]]

        def build(application: Application) -> HostCall:
            return HostCall(application.operation, name, application.reads, application.writes, function, duration_us * 1e3)

        return Operator(name, infer, build, Place.HOST, Place.HOST)

    return make if function is None else make(function)
