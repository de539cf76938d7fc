"""How a kernel goes about its arrays: vector width, vectors in flight, and how each array is addressed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from streamscope.kernels.layout import INDEX32_LIMIT, StridedLayout
from streamscope.program.view import row_major

_LARGE = 2**22
"""From so many elements on, two vectors a thread still leave enough blocks to fill a GPU."""
THREADS = 256
VECTOR_BYTES = 16


@dataclass(frozen=True)
class Variant:
    """Free choices of a form: the results are the same, the time is not."""

    vector_bytes: int = VECTOR_BYTES
    """The most that a thread loads of one array at once."""
    items: int | None = None
    """Vectors that a thread has in flight; by default by the size."""


DEFAULT = Variant()


class Access(Enum):
    """How the elements of one array are found."""

    LINEAR = "linear"
    """Like the result's, one after the other."""
    ROW = "row"
    """One after the other within a row, the innermost axis: vectors from the row's start."""
    REPEATED = "repeated"
    """One element for a whole row."""
    STRIDED = "strided"
    """Each by its own index."""


@dataclass(frozen=True)
class Form:
    """Variant of a kernel's source, besides its operator and dtypes."""

    width: int
    """Elements that a thread loads at once."""
    items: int
    """Vectors that a thread has in flight."""
    rank: int
    """Axes of the compact layout."""
    accesses: tuple[Access, ...]
    """Of each array, the result last."""
    rows: bool
    """Every vector lies within one row."""
    wide: bool
    """Indices need 64 bits."""
    masked: bool = True
    """The first or the last vector reaches beyond the arrays: they begin behind a vector boundary, or end before one."""

    def blocks(self, size: int, lead: int = 0) -> int:
        """Return how many blocks of `THREADS` threads cover so many elements; 0 for none."""
        return -(-(size + lead) // (THREADS * self.width * self.items)) if size else 0


def choose_form(
    layout: StridedLayout, itemsizes: Sequence[int], addresses: Sequence[int] | None = None, variant: Variant = DEFAULT
) -> tuple[Form, int]:
    """Return the widest form that a layout and the arrays' addresses allow, and how they are aligned: the result comes last.

    Arrays begin so many elements behind a vector boundary, all alike, and the first vector is masked by as many. By default, the addresses
    are those of fresh allocations.
    """
    where = addresses or [0] * len(itemsizes)
    accesses = [_access(layout, steps) for steps in layout.strides]
    vectors = [array for array, access in enumerate(accesses) if access in (Access.LINEAR, Access.ROW)]
    width = max(1, variant.vector_bytes // max((itemsizes[array] for array in vectors), default=variant.vector_bytes))
    first = [address // itemsize for address, itemsize in zip(where, itemsizes, strict=True)]
    leads = {first[array] % width for array in vectors if accesses[array] is Access.LINEAR}
    lead = leads.pop() if leads else 0
    if leads:  # aligned differently
        width, lead = 1, 0
    rows = layout.rank == 1 or (lead == 0 and _vectors_fit_rows(layout, accesses, width, first))
    if not rows:
        accesses = [access if access is Access.LINEAR else Access.STRIDED for access in accesses]
    wide = layout.size >= INDEX32_LIMIT
    masked = lead > 0 or layout.size % width > 0
    return Form(width, variant.items or _default_items(layout.size, accesses), layout.rank, tuple(accesses), rows, wide, masked), lead


def _default_items(size: int, accesses: Sequence[Access]) -> int:
    """Return how many vectors a thread has in flight: one, or two for large results of which no operand is as large.

    Measured on an H200, 256 MiB: with one, additions, comparisons and biases reach the rate of a device-to-device copy (4.2 TB/s).
    With two, they are up to 10 % slower. An outer product reaches 3.8 TB/s with one and 4.4 with two, products over four axes 3.6 and 3.8.
    """
    return 2 if size >= _LARGE and Access.LINEAR not in accesses[:-1] else 1


def _access(layout: StridedLayout, strides: Sequence[int]) -> Access:
    if tuple(strides) == row_major(layout.extents):
        return Access.LINEAR
    if strides[-1] == 0:
        return Access.REPEATED
    return Access.ROW if strides[-1] == 1 else Access.STRIDED


def _vectors_fit_rows(layout: StridedLayout, accesses: Sequence[Access], width: int, first: Sequence[int]) -> bool:
    """Tell whether rows are whole vectors, and begin on vector boundaries wherever vectors are loaded (``first``: address in elements)."""
    starts = [[first[array], *layout.strides[array][:-1]] for array, access in enumerate(accesses) if access is Access.ROW]
    return all(extent % width == 0 for extent in (layout.extents[-1], *(start for array in starts for start in array)))
