"""Blocks of kernels: which multiprocessor ran which block, and when."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from streamscope.arrays import IntArray
from streamscope.errors import TraceError
from streamscope.trace.columns import Columns, none


@dataclass(frozen=True, eq=False)
class Blocks(Columns):
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

    operation: IntArray = field(default_factory=none, repr=False)
    part: IntArray = field(default_factory=none, repr=False)
    multiprocessor: IntArray = field(default_factory=none, repr=False)
    start_ns: IntArray = field(default_factory=none, repr=False)
    end_ns: IntArray = field(default_factory=none, repr=False)

    DTYPES: ClassVar = {
        "operation": np.int32,
        "part": np.int16,
        "multiprocessor": np.int16,
        "start_ns": np.int64,
        "end_ns": np.int64,
    }
    NOUN: ClassVar = "blocks"
    MOST: ClassVar = 200_000

    def __post_init__(self) -> None:
        super().__post_init__()
        if (np.diff(self.start_ns) < 0).any() or (self.end_ns < self.start_ns).any():
            raise TraceError("blocks must be sorted by their starts, and none may end before it starts")
