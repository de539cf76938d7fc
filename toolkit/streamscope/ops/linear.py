"""Matrix multiplication, through cuBLAS."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from streamscope.ops.application import require, require_float
from streamscope.program.launch import Array, Cost, CudaBench, CudaCall, Launch
from streamscope.program.symbol import Symbol
from streamscope.program.tracer import Application, Attributes, Operator, applies_operators
from streamscope.program.variable import ArraySpec

TILE = 64
"""Edge of the tile that one block of a library kernel is taken to compute: an estimate, used by the simulated device only."""


def accumulation_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype that sums are kept in: float32 for half, else the dtype itself."""
    return np.dtype(np.float32) if dtype == np.float16 else dtype


def tiles(rows: int, columns: int) -> int:
    """Return the blocks of a library kernel that computes a matrix of this size (an estimate)."""
    return -(-rows // TILE) * -(-columns // TILE)


def _infer(specs: Sequence[ArraySpec], attributes: Attributes) -> Sequence[ArraySpec]:
    require_float(specs, "matmul")
    a, b = specs
    require(len(a.shape) == 2 and len(b.shape) == 2, "matmul", f"shapes {a.shape} and {b.shape} are not matrices")
    require(a.shape[1] == b.shape[0], "matmul", f"inner extents of {a.shape} and {b.shape} differ")
    require(a.size > 0 and b.size > 0, "matmul", f"shapes {a.shape} and {b.shape} hold no elements")
    return [ArraySpec((a.shape[0], b.shape[1]), a.dtype)]


def _reference(arrays: Sequence[Array]) -> Sequence[Array]:
    a, b = arrays
    wide = accumulation_dtype(a.dtype)
    return [(a.astype(wide) @ b.astype(wide)).astype(a.dtype)]


def _cuda(bench: CudaBench, reads: Sequence[Any], writes: Sequence[Any]) -> CudaCall:
    return bench.matmul(reads[0], reads[1], writes[0])


def _build(application: Application) -> tuple[Launch, ...]:
    (rows, inner), (_, columns) = (spec.shape for spec in application.read_specs)
    matrix = application.read_specs[0].dtype == np.float16
    cost = Cost(application.nbytes, 2 * rows * inner * columns, tiles(rows, columns), 128, matrix)
    return application.kernel("matmul", cost, _reference, _cuda, library=True)


_matmul = Operator("matmul", _infer, _build)


@applies_operators
def matmul(a: object, b: object, *, out: object = None) -> Symbol:
    """Return the product of two matrices; half accumulates in float32.

    Parameters
    ----------
    a, b : variable
        Shapes (M, K) and (K, N), of one floating dtype.
    out : variable, optional
        Where the result goes; by default a new variable. It is not an argument: the library reads them while it writes.

    Examples
    --------
    >>> with ss.Engine(device="simulated") as engine:
    ...     print(engine.run(ss.program(ss.ops.matmul), np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]])))
    [[11.]]
    """
    return cast("Symbol", _matmul(a, b, out=out))
