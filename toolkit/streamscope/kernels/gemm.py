"""Matrix products as libraries take them: each operand as it is or transposed, rows at any distance, matrices at one distance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from streamscope.kernels.layout import one_stride

LIMIT = 2**31
"""Largest C ``int``: libraries take extents, counts and leading dimensions so, and ctypes would cut a longer number."""


@dataclass(frozen=True)
class Matrices:
    """One operand: matrices of one shape in memory."""

    transposed: bool
    """Each is stored column by column."""
    leading: int
    """Elements from one row to the next or, where they are transposed, from one column to the next."""
    apart: int
    """Elements from one matrix to the next; 0 where there is one for all."""


@dataclass(frozen=True)
class Gemm:
    """``out[i] = a[i] @ b[i]`` for ``count`` matrices; the results follow each other without gaps."""

    count: int
    rows: int
    inner: int
    columns: int
    """``a`` is (rows, inner), ``b`` is (inner, columns)."""
    a: Matrices
    b: Matrices


def matrices(shape: Sequence[int], strides: Sequence[int]) -> Matrices | None:
    """Return how a library finds matrices of such a shape, with strides in elements; None where it cannot."""
    rows, columns = shape[-2:]
    across, along = strides[-2:]
    apart = one_stride(shape[:-2], strides[:-2])
    if apart is None or apart < 0:
        return None
    if (along == 1 or columns == 1) and (across >= columns or rows == 1):
        found = Matrices(transposed=False, leading=columns if rows == 1 else across, apart=apart)
    elif (across == 1 or rows == 1) and (along >= rows or columns == 1):
        found = Matrices(transposed=True, leading=rows if columns == 1 else along, apart=apart)
    else:
        return None
    return found if max(rows, columns, found.leading) < LIMIT else None


def gemm(a_shape: Sequence[int], a_strides: Sequence[int], b_shape: Sequence[int], b_strides: Sequence[int]) -> Gemm | None:
    """Return the product of two operands, which NumPy's rules allow; None where it takes several calls, or a copy.

    A vector is a matrix with one row or one column. Many matrices ``a`` that lie like one, times a single ``b``, are one product.
    """
    if len(a_shape) == 1:
        a_shape, a_strides = (1, *a_shape), (0, *a_strides)
    if len(b_shape) == 1:
        b_shape, b_strides = (*b_shape, 1), (*b_strides, 0)
    (rows, inner), columns = a_shape[-2:], b_shape[-1]
    batches = math.prod(a_shape[:-2]), math.prod(b_shape[:-2])
    count = max(batches)
    a, b = matrices(a_shape, a_strides), matrices(b_shape, b_strides)
    if a is None or b is None or count >= LIMIT or (min(batches) > 1 and tuple(a_shape[:-2]) != tuple(b_shape[:-2])):
        return None
    a, b = (replace(each, apart=0) if batch == 1 else each for each, batch in zip((a, b), batches, strict=True))
    if count > 1 and b.apart == 0 and not a.transposed:
        if rows == 1 and inner <= a.apart < LIMIT:
            return Gemm(1, count, inner, columns, replace(a, leading=a.apart, apart=0), b)
        if rows > 1 and a.apart == rows * a.leading and count * rows < LIMIT:
            return Gemm(1, count * rows, inner, columns, replace(a, apart=0), b)
    return Gemm(count, rows, inner, columns, a, b)
