"""How far results may be from NumPy's: as far as rounding explains or, behind code that is not ours, as far as libraries round.

Whole numbers and truth values must be equal.

Kernels that we generate compute each operation as NumPy does, but for the last digits. How much that changes of the outputs is measured
(`moved_runs.py`): NumPy runs the program again, with the result of each operation moved in its last digits. What an output moves by then is
how it depends on rounding, element by element, whatever the program is: errors of a chain add up, cancellation enlarges them, a mean makes
them small. `ALLOWED` times as much may be wrong with an element, and as much of what is usual among the elements besides, since a single
one may by chance stay where it was.

Libraries compute matrix products and convolutions less exactly than their dtype is, and what operators and host functions of the user's own
do, and how close a reference of their own is to a line of CUDA, is not known; they are not run again either, as that may have effects. What
depends on one of them may be off by `BEHIND_OTHERS`, a share of the output's largest value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.program.launch import HostCall
from streamscope.program.moved_runs import MOVED, spreads
from streamscope.program.operation import Operation, Program

Array = npt.NDArray[Any]

ALLOWED = 4
"""How many times what moved runs are off by is allowed."""
SAMPLE = 2**20
"""Of so many elements, what is usual is taken."""
BEHIND_OTHERS = {"float16": 2e-2, "float32": 2e-3, "float64": 1e-9}
"""For float32 that of TF32, which cuDNN uses. Of the dtypes on the way from the library to the output, the coarsest counts."""


def allowed_errors(program: Program, inputs: Sequence[Array], expected: Sequence[Array]) -> list[Array]:
    """Return how far each element of each output may be from what is expected; a number where that is the same for all.

    Parameters
    ----------
    program : Program
        Not fused: what is rounded inside of a fused operation would not be moved.
    inputs, expected : sequence of array
        On the host: what the outputs are computed from, and the results of NumPy.
    """
    shares, ours = _depending_on_others(program)
    exact = {variable: reference for variable, reference in zip(program.outputs, expected, strict=True) if variable not in shares}
    found = spreads(program, ours, inputs, exact)
    return [
        _behind_others(reference, shares[variable]) if variable in shares else _of_rounding(reference, found.get(variable))
        for variable, reference in zip(program.outputs, expected, strict=True)
    ]


def allowed_of_others(reference: Array) -> Array:
    """Return how far a result of captured code may be off."""
    return _behind_others(reference, _share(reference.dtype))


def allowed_alone(reference: Array) -> Array:
    """Return how far the result of a single operation of ours may be off."""
    return _of_rounding(reference, None)


def _depending_on_others(program: Program) -> tuple[dict[int, float], list[Operation]]:
    """Return the variables that in the end depend on code that is not ours, with their shares, and the operations that do not."""
    shares: dict[int, float] = {}
    ours = []
    for operation in program.operations:
        touched = (*operation.reads, *operation.writes)
        found = [shares[variable] for variable in operation.reads if variable in shares]
        if isinstance(operation.work, HostCall) or any(launch.library or launch.vouched for launch in operation.work):
            found += [_share(program.variables[variable].spec.dtype) for variable in touched]
        if not found:
            ours.append(operation)
        for variable in operation.writes:
            shares.pop(variable, None)
            if found:
                shares[variable] = max(*found, _share(program.variables[variable].spec.dtype))
    return shares, ours


def _share(dtype: np.dtype[Any]) -> float:
    """Return what `BEHIND_OTHERS` says of a dtype; of complex numbers, what it says of their parts."""
    return BEHIND_OTHERS.get(np.finfo(dtype).dtype.name, 0.0) if dtype.kind in "fc" else 0.0


def _behind_others(reference: Array, share: float) -> Array:
    if reference.dtype.kind not in "fc":
        return np.zeros(())
    return np.asarray(share * float(np.abs(np.where(np.isfinite(reference), reference, 0)).max(initial=0.0)))


def _of_rounding(reference: Array, spread: Array | None) -> Array:
    """Return what is allowed where moved runs were off by ``spread``, or where there were none."""
    if reference.dtype.kind != "f":
        return np.zeros(())
    limits, size = np.finfo(reference.dtype), np.abs(reference.astype(np.float64))
    finite = np.isfinite(size)
    off = MOVED[reference.dtype.name] * np.maximum(np.where(finite, size, 0.0) * float(limits.eps), float(limits.smallest_subnormal))
    off = np.where(finite, off, 0.0) if spread is None else np.maximum(np.where(finite, off, 0.0), spread)
    # Zeros stay where they are, and would be most where a relu is last.
    others = off[finite & (size > 0) & np.isfinite(off)]
    others = others[:: 1 + others.size // SAMPLE]
    return np.asarray(ALLOWED * (off + (np.quantile(others, 0.5, method="lower") if others.size else 0.0)))
