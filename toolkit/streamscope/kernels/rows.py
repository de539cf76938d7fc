"""Kernels of rows: how threads share them, and the loop around a row's own code (``cuda/rows.cuh``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streamscope.kernels.cuda import fill, pieces
from streamscope.kernels.form import THREADS
from streamscope.kernels.source import STORAGE, loaded, stored

_CUDA = pieces("rows")


@dataclass(frozen=True)
class RowForm:
    """How threads share the rows."""

    width: int
    """Elements that a thread loads at once."""
    lanes: int
    """Threads that share a row: a power of two up to `_MOST_THREADS`."""
    items: int
    """Loads of a thread that it keeps in registers; 0 if the row is too long for that and is read twice."""

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return max(THREADS, self.lanes)


WARP = 32
_MOST_THREADS = 1024
MOST_KEPT = {THREADS: 16, 512: 32, _MOST_THREADS: 32}
"""Registers that a thread has for elements of a row, over all inputs, by the threads that share it. Few keep more threads busy, so a row
is spread over `THREADS` first; of longer rows a thread keeps more."""


def row_form(columns: int, itemsize: int, inputs: int, *, aligned: bool) -> RowForm:
    """Return a good form for rows of so many elements."""
    width = 16 // itemsize if aligned and columns % (16 // itemsize) == 0 else 1
    loads = -(-columns // width)
    lanes = min(WARP, 1 << (loads - 1).bit_length())

    def kept() -> int:
        return -(-loads // lanes) * width * inputs * max(1, itemsize // 4)

    for most_lanes, registers in MOST_KEPT.items():
        # Places of single elements take registers too, which are few then.
        most_kept = registers // 2 if width == 1 and most_lanes == _MOST_THREADS else registers
        while kept() > most_kept and lanes < most_lanes:
            lanes *= 2
        if kept() <= most_kept:
            return RowForm(width, lanes, -(-loads // lanes))
    return RowForm(width, THREADS, 0)


def rows_kernel(dtype: str, form: RowForm, parameters: str, inputs: Sequence[str], body: str) -> str:
    """Return the kernel around the statements for one row; each of the inputs has a row, which is called ``<name>_row`` there."""
    return fill(
        _CUDA["rows"],
        threads=form.threads,
        parameters=parameters,
        lanes=form.lanes,
        tasks=form.threads // form.lanes,
        width=form.width,
        row_pointers="\n".join(f"const {STORAGE[dtype]}* {name}_row = {name} + row_index * columns;" for name in inputs),
        element=STORAGE[dtype],
        body=body,
    )


def over_kept(form: RowForm, statements: str) -> str:
    """Return a loop over a thread's loads of a row, with ``at`` the first element of each."""
    return fill(_CUDA["over_kept"], items=form.items, lanes=form.lanes, width=form.width, statements=statements)


def each(form: RowForm, statement: str) -> str:
    """Return a loop over the elements of a load."""
    return fill(_CUDA["each"], width=form.width, statement=statement)


def written(dtype: str, form: RowForm, value: str, *, accumulate: bool) -> str:
    """Return statements that write the results of a load, or add them."""
    total = f"{loaded(dtype, 'result.item[k]')} + {value}" if accumulate else value
    return fill(
        _CUDA["written"],
        element=STORAGE[dtype],
        width=form.width,
        start=f" = fetched<{form.width}>(target + at)" if accumulate else "",
        each=each(form, f"{{ {stored(dtype, 'result.item[k]', total)} }}"),
    )
