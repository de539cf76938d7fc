"""Blocks of kernels: which multiprocessor ran which block, and when."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.arrays import IntArray
from streamscope.errors import TraceError
from streamscope.trace.file_checks import MOST_NS, named_values

MOST_BLOCKS = 200_000
"""Blocks that a trace keeps."""


def _none() -> IntArray:
    return np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class Blocks:
    """Blocks as equally long columns, sorted by ``start_ns``.

    A block belongs to the kernel of the same operation and part within whose times it lies.

    Attributes
    ----------
    operation, part : int32 and int16 arrays
        Which launch of the program it is of.
    multiprocessor : int16 array
        Number of the multiprocessor that ran it; the numbers may have gaps.
    start_ns, end_ns : int64 arrays
        Since the trace's zero, as the times of its spans.

    Raises
    ------
    TraceError
        A column is not as said here, or there are more than 200,000 blocks.
    """

    operation: IntArray = field(default_factory=_none, repr=False)
    part: IntArray = field(default_factory=_none, repr=False)
    multiprocessor: IntArray = field(default_factory=_none, repr=False)
    start_ns: IntArray = field(default_factory=_none, repr=False)
    end_ns: IntArray = field(default_factory=_none, repr=False)

    def __post_init__(self) -> None:
        for name, dtype in _DTYPES.items():
            values = np.asarray(getattr(self, name))
            if values.shape != (len(self),) or not np.issubdtype(values.dtype, np.integer):
                raise TraceError(f"{name} of blocks must be {len(self)} whole numbers, not {values.dtype} of shape {values.shape}")
            most = MOST_NS if name.endswith("_ns") else int(np.iinfo(dtype).max)
            least = -MOST_NS if name.endswith("_ns") else 0
            if len(values) and not least <= values.min() <= values.max() <= most:
                raise TraceError(f"{name} of blocks must be from {least:,} to {most:,}")
            object.__setattr__(self, name, values.astype(dtype, copy=False))
        if len(self) > MOST_BLOCKS:
            raise TraceError(f"{len(self):,} blocks are too many: a trace keeps {MOST_BLOCKS:,}")
        if (np.diff(self.start_ns) < 0).any() or (self.end_ns < self.start_ns).any():
            raise TraceError("blocks must be sorted by their starts, and none may end before it starts")

    def __len__(self) -> int:
        """Return how many blocks there are."""
        return len(self.operation)

    def __eq__(self, other: object) -> bool:
        """Tell whether the columns are equal."""
        return isinstance(other, Blocks) and all(np.array_equal(getattr(self, name), getattr(other, name)) for name in _DTYPES)

    __hash__ = None  # type: ignore[assignment]

    def to_dict(self) -> dict[str, list[int]]:
        """Return the columns as JSON values."""
        return {name: getattr(self, name).tolist() for name in _DTYPES}

    @classmethod
    def from_dict(cls, stored: Any) -> Blocks:
        """Read the values of `to_dict`; empty where nothing was stored.

        Raises
        ------
        LookupError, TypeError, ValueError, TraceError
            It is something else.
        """
        if stored is None:
            return cls()
        columns = {name: named_values(stored)[name] for name in _DTYPES}
        return cls(**{name: np.asarray(values) if len(values) else _none() for name, values in columns.items()})


_DTYPES: dict[str, npt.DTypeLike] = {
    "operation": np.int32,
    "part": np.int16,
    "multiprocessor": np.int16,
    "start_ns": np.int64,
    "end_ns": np.int64,
}
assert [f.name for f in fields(Blocks)] == list(_DTYPES)
