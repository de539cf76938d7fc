"""Products of matrices, one or many at a time, through cuBLAS."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from streamscope.arrays import Array
from streamscope.kernels.expression.promotion import arithmetic
from streamscope.kernels.gemm import matrices
from streamscope.ops.application import require, require_float, specs_of
from streamscope.ops.reductions import sum as sum_of
from streamscope.ops.views import broadcast_to, expand_dims, matrix_transposed, reshape
from streamscope.program.launch import Cost, CudaBench, CudaCall, Launch, Product
from streamscope.program.symbol import Symbol, SymbolView
from streamscope.program.tracer import Application, Attributes, Backward, Operator, applies_operators
from streamscope.program.variable import ArraySpec
from streamscope.program.view import View

_TILE = 64
"""Edge of the tile that one block of a library kernel is taken to compute: an estimate, used by the simulated device only."""


def tiles(rows: int, columns: int) -> int:
    """Return the blocks of a library kernel that computes a matrix of this size (an estimate)."""
    return -(-rows // _TILE) * -(-columns // _TILE)


def _infer(specs: Sequence[ArraySpec], attributes: Attributes) -> Sequence[ArraySpec]:
    require_float(specs, "matmul")
    (a, b), dtype = (spec.shape for spec in specs), specs[0].dtype
    require(len(a) > 0 and len(b) > 0, "matmul", f"shapes {a} and {b} are not matrices", "use * for a single number")
    require(a[-1] == b[max(0, len(b) - 2)], "matmul", f"inner extents of {a} and {b} differ")
    batch = _batch(a, b)
    require(batch is not None, "matmul", f"shapes {a} and {b} do not broadcast", "but for the last two, extents must be equal or 1")
    require(all(spec.size > 0 for spec in specs), "matmul", f"shapes {a} and {b} hold no elements")
    return [ArraySpec((*(batch or ()), *a[-2:-1], *(b[-1:] if len(b) > 1 else ())), dtype)]


def _batch(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...] | None:
    """Return how many matrices the product has, along each axis but the last two; None where the operands' do not broadcast."""
    if len(a) <= 2 and len(b) <= 2:
        return ()
    try:
        return np.broadcast_shapes(tuple(a[:-2]), tuple(b[:-2]))
    except ValueError:
        return None


def _reference(arrays: Sequence[Array]) -> Sequence[Array]:
    a, b = arrays
    wide = arithmetic(a.dtype)
    return [(a.astype(wide) @ b.astype(wide)).astype(a.dtype)]


def _cuda(bench: CudaBench, reads: Sequence[Any], writes: Sequence[Any]) -> CudaCall:
    return bench.matmul(reads[0], reads[1], writes[0])


def _build(application: Application) -> tuple[Launch, ...]:
    (a, b), (out,) = application.read_specs, application.write_specs
    rows, columns = (a.shape[-2] if len(a.shape) > 1 else 1), (b.shape[-1] if len(b.shape) > 1 else 1)
    count = out.size // (rows * columns)
    if len(b.shape) < 3 or b.size == math.prod(b.shape[-2:]):
        count, rows = 1, count * rows  # Many matrices times one are one product: see `gemm`.
    product = Product("matmul", a.dtype.name, count, rows, a.shape[-1], columns)
    cost = Cost(application.nbytes, 2 * out.size * a.shape[-1], tiles(rows, columns) * count, 128, product=product)
    return application.kernel("matmul", cost, _reference, _cuda, library=True)


def _reads_view(view: View) -> bool:
    """Tell whether a library takes matrices as a view has them."""
    shape, strides = view.spec.shape, view.strides
    vector = len(shape) < 2
    return matrices((1, *shape) if vector else shape, (0, *strides) if vector else strides) is not None


def _gradient(backward: Backward) -> Sequence[Symbol | None]:
    """Return ``dy @ b.mT`` and ``a.mT @ dy``, summed over the matrices that an operand was repeated for."""
    a, b = backward.read_specs
    dy = backward.dy if len(a.shape) > 1 else expand_dims(backward.dy, -2 if len(b.shape) > 1 else -1)
    dy = dy if len(b.shape) > 1 else expand_dims(dy, -1)
    da = _summed_to(a, matmul(dy, matrix_transposed(_matrix(backward.operand(1), -1)))) if backward.wanted[0] else None
    if not backward.wanted[1]:
        return [da, None]
    rows = _matrix(backward.operand(0), 0)
    if len(rows.shape) > 2 and b.size == math.prod(b.shape[-2:]):
        rows, dy = (reshape(each, (-1, each.shape[-1])) for each in (rows, dy))  # one product over all rows, and no sum
    return [da, _summed_to(b, matmul(matrix_transposed(rows), dy))]


def _matrix(operand: Symbol, axis: int) -> Symbol:
    """Return an operand, a vector as a matrix with a further axis."""
    return operand if len(operand.shape) > 1 else expand_dims(operand, axis)


def _summed_to(operand: ArraySpec, gradient: Symbol) -> Symbol:
    """Return the sum of a product over the matrices that an operand was repeated for, in the operand's shape."""
    own = operand.shape if len(operand.shape) > 1 else (1, *operand.shape)
    extra = len(gradient.shape) - len(own)
    repeated = [axis for axis in range(len(gradient.shape) - 2) if axis < extra or own[axis - extra] != gradient.shape[axis]]
    return reshape(sum_of(gradient, axis=repeated) if repeated else gradient, operand.shape)


_matmul = Operator("matmul", _infer, _build, reads_view=_reads_view, gradient=_gradient)


@applies_operators
def matmul(a: object, b: object, *, transpose_a: bool = False, transpose_b: bool = False, out: object = None) -> Symbol:
    """Return the product of two matrices, or of many pairs; half accumulates in float32. ``a @ b`` is the same.

    Transposed operands cost nothing, whether by ``transpose_a`` and ``transpose_b`` or as ``a.T``, ``a.mT`` and ``a.swapaxes(-1, -2)``:
    the library reads them as they lie. The same holds for slices, and for heads as in ``x.reshape(n, heads, -1).swapaxes(0, 1)``. Where the
    matrices of an operand do not lie at equal distances, they are copied first, by an operation ``copy``.

    Parameters
    ----------
    a, b : variable
        Shapes (..., M, K) and (..., K, N), of one floating dtype. Axes before the last two broadcast. A vector (K,) has no axis M or N, and
        neither has the result.
    transpose_a, transpose_b : bool
        The last two axes are the other way round: (..., K, M) and (..., N, K).
    out : variable, optional
        Where the result goes; by default a new variable. It is not an argument: the library reads them while it writes.

    Raises
    ------
    ProgramError
        Called outside a program, or the operands do not fit.

    Examples
    --------
    >>> with ss.Engine(device="simulated") as engine:
    ...     print(engine.run(ss.program(ss.ops.matmul), np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]])))
    [[11.]]

    Five matrices at once, those of ``k`` transposed:

    >>> q, k = np.ones((5, 2, 3)), np.ones((5, 4, 3))
    >>> print(ss.program(lambda q, k: ss.ops.matmul(q, k, transpose_b=True)).trace(q, k))
    <lambda>: 1 operation, 3 variables
         0  %2:float64[5, 2, 4] = matmul(%0:float64[5, 2, 3], %1.mT:float64[5, 3, 4])    # ...
    """
    given = [_turned(operand, name) if turn else operand for operand, turn, name in ((a, transpose_a, "a"), (b, transpose_b, "b"))]
    specs = specs_of("matmul", given)
    batch = _batch(specs[0].shape, specs[1].shape)
    operands = [_fitted(_repeated(cast("Symbol", operand), batch)) for operand in given] if batch is not None else given
    return cast("Symbol", _matmul(*operands, out=out))


def _turned(operand: object, name: str) -> Symbol:
    (spec,) = specs_of("matmul", [operand])
    require(len(spec.shape) >= 2, "matmul", f"transpose_{name} for shape {spec.shape}, which is not a matrix", "leave it out")
    return matrix_transposed(cast("Symbol", operand))


def _repeated(operand: Symbol, batch: tuple[int, ...]) -> Symbol:
    """Return an operand with as many matrices as the product has, unless it has only one: libraries repeat that by themselves."""
    own = operand.shape[:-2]
    if own == batch or operand.spec.size == int(np.prod(operand.shape[-2:])):
        return operand
    return broadcast_to(operand, (*batch, *operand.shape[-2:]))


def _fitted(operand: Symbol) -> Symbol:
    """Return an operand that must be copied as a view of its copy where that lies as it did: columns that are rows in memory stay so."""
    if not isinstance(operand, SymbolView) or len(operand.shape) < 2 or _reads_view(operand.view) or operand.view.strides[-2] != 1:
        return operand
    turned = matrix_transposed(operand)
    return matrix_transposed(turned.tracer.copied(turned) if isinstance(turned, SymbolView) else turned)
