"""Layout of elements: shapes and strides in their simplest equivalent form, and how kernels follow them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from streamscope.kernels.cuda import fill, pieces

_CUDA = pieces("placing")

INDEX32_LIMIT = 2**31
"""Below so many elements, indices are computed in 32 bits."""


@dataclass(frozen=True)
class StridedLayout:
    """Extents that several arrays are walked along together, and each array's strides."""

    extents: tuple[int, ...]
    """Outermost axis first; at least one axis, none of extent 1 unless it is the only one."""
    strides: tuple[tuple[int, ...], ...]
    """For each array a stride for each axis, in elements; 0 where the array repeats."""

    @property
    def size(self) -> int:
        """Number of elements that are walked over."""
        return math.prod(self.extents)

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.extents)


def broadcast_strides(shape: Sequence[int], strides: Sequence[int], target: Sequence[int]) -> tuple[int, ...]:
    """Return the strides with which an array is walked along a shape that it is broadcast to: 0 where it repeats."""
    missing = len(target) - len(shape)
    repeated = (stride if extent != 1 else 0 for extent, stride in zip(shape, strides, strict=True))
    return (0,) * missing + tuple(repeated)


def one_stride(extents: Sequence[int], strides: Sequence[int]) -> int | None:
    """Return the stride of merged axes, if it is the same for all neighbours; 0 for a single element."""
    inner: tuple[int, int] | None = None
    for extent, stride in reversed([*zip(extents, strides, strict=True)]):
        if extent == 1:
            continue
        if inner is None:
            inner = extent, stride
        elif stride == inner[0] * inner[1]:
            inner = extent * inner[0], inner[1]
        else:
            return None
    return 0 if inner is None else inner[1]


def compact(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> StridedLayout:
    """Return the simplest layout in which the same elements meet; strides are those of each array, the result's last, in elements.

    Axes of extent 1 are dropped, axes are put in the order in which the last array (the result) lies in memory, and neighbouring axes that
    every array walks as one are merged. Contiguous arrays of one shape come out with a single axis.
    """
    axes = [axis for axis, extent in enumerate(shape) if extent != 1]
    axes.sort(key=lambda axis: -abs(strides[-1][axis]))
    merged: list[tuple[int, tuple[int, ...]]] = []
    for axis in axes:
        extent, steps = shape[axis], tuple(of_array[axis] for of_array in strides)
        if merged and all(outer == inner * extent for outer, inner in zip(merged[-1][1], steps, strict=True)):
            merged[-1] = (merged[-1][0] * extent, steps)
        else:
            merged.append((extent, steps))
    if not merged:
        return StridedLayout((1,), tuple((1,) for _ in strides))
    return StridedLayout(tuple(extent for extent, _ in merged), tuple(zip(*(steps for _, steps in merged), strict=True)))


def divisor(extent: int) -> tuple[int, int]:
    """Return ``magic`` and ``shift`` with ``n // extent == ((n * magic >> 32) + n) >> shift`` for 0 ≤ n < 2**31.

    Granlund and Montgomery, "Division by invariant integers using multiplication" (1994), figure 4.1 for 32 bits.
    """
    shift = (extent - 1).bit_length()
    return ((1 << 32) * ((1 << shift) - extent)) // extent + 1, shift


def placing_source(names: Sequence[str], rank: int, *, wide: bool) -> str:
    """Return the struct ``layout`` and the function ``place``: an element's offsets in the arrays of these names.

    Below 2**31 elements, division is a multiplication and a shift (see `divisor`).
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


def layout_numbers(layout: StridedLayout, arrays: Sequence[int]) -> list[int]:
    """Return the fields of the struct ``layout``, in order, for those arrays of a layout that the kernel places."""
    magics, shifts = zip(*map(divisor, layout.extents), strict=True)
    return [*layout.extents, *magics, *shifts, *(stride for array in arrays for stride in layout.strides[array])]
