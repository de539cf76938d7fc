"""Pieces of CUDA source that find an element's place in arrays of several axes, and the numbers that they need."""

from __future__ import annotations

from collections.abc import Sequence

from streamscope.kernels.cuda import fill, pieces
from streamscope.kernels.layout import Layout, divisor

_CUDA = pieces("placing")


def placing_source(names: Sequence[str], rank: int, *, wide: bool) -> str:
    """Return the struct ``layout`` and the function ``place``: an element's offsets in the arrays of these names.

    Below 2**31 elements, division is a multiplication and a shift (see `streamscope.kernels.layout.divisor`).
    """

    def of_all(piece: str) -> str:
        return "".join(fill(_CUDA[piece], array=name) for name in names)

    body = of_all("along_one")
    if rank > 1:
        divided = _CUDA["divided_64" if wide else "divided_32"]
        body = fill(_CUDA["along_several"], last_axis=rank - 1, divided=divided, inner=of_all("inner"), outer=of_all("outer"))
    return fill(
        _CUDA["place"],
        index="long long" if wide else "unsigned",
        rank=rank,
        strides=", ".join(f"{name}[{rank}]" for name in names),
        offsets=", ".join(names),
        body=body,
    )


def layout_numbers(layout: Layout, arrays: Sequence[int]) -> list[int]:
    """Return the fields of the struct ``layout``, in order, for those arrays of a layout that the kernel places."""
    magics, shifts = zip(*map(divisor, layout.extents), strict=True)
    return [*layout.extents, *magics, *shifts, *(stride for array in arrays for stride in layout.strides[array])]
