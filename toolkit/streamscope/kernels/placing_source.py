"""Pieces of CUDA source that find an element's place in arrays of several axes, and the numbers that they need."""

from __future__ import annotations

from collections.abc import Sequence

from streamscope.kernels.layout import Layout, divisor

_DIVISIONS = {
    False: (
        "unsigned",
        "((unsigned)(((unsigned long long)rest * (unsigned)at.magic[axis]) >> 32) + rest) >> at.shift[axis]",
    ),
    True: ("long long", "rest / at.extent[axis]"),
}


def placing_source(names: Sequence[str], rank: int, *, wide: bool) -> str:
    """Return the struct ``layout`` and the function ``place``: an element's offsets in the arrays of these names.

    Below 2**31 elements, division is a multiplication and a shift (see `streamscope.kernels.layout.divisor`).
    """
    index, quotient = _DIVISIONS[wide]
    strides = ", ".join(f"{name}[{rank}]" for name in names)
    body = _along_one(names) if rank == 1 else _along_several(names, rank, quotient)
    return f"""\
typedef {index} index_t;
// Outermost axis first; strides in elements.
struct layout {{ long long extent[{rank}], magic[{rank}], shift[{rank}], {strides}; }};
struct offsets {{ long long {", ".join(names)}; }};

__device__ inline offsets place(long long n, const layout& at)
{{
    offsets to = {{}};
{body}
    return to;
}}
"""


def _along_one(names: Sequence[str]) -> str:
    # Also right where n is below 0: before the first element of a masked kernel's first vector.
    return "\n".join(f"    to.{name} = n * at.{name}[0];" for name in names)


def _along_several(names: Sequence[str], rank: int, quotient: str) -> str:
    inner = "\n".join(f"        to.{name} += (long long)(rest - quotient * (index_t)at.extent[axis]) * at.{name}[axis];" for name in names)
    outer = "\n".join(f"    to.{name} += (long long)rest * at.{name}[0];" for name in names)
    return f"""\
    index_t rest = (index_t)n;
    #pragma unroll
    for (int axis = {rank - 1}; axis > 0; --axis) {{
        const index_t quotient = {quotient};
{inner}
        rest = quotient;
    }}
{outer}"""


def layout_numbers(layout: Layout, arrays: Sequence[int]) -> list[int]:
    """Return the fields of the struct ``layout``, in order, for those arrays of a layout that the kernel places."""
    magics, shifts = zip(*map(divisor, layout.extents), strict=True)
    return [*layout.extents, *magics, *shifts, *(stride for array in arrays for stride in layout.strides[array])]
