"""Which kernels waited for which, in what other programs recorded: from waits of streams for events to rows of the table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamscope.trace.spans import IntArray


@dataclass(frozen=True)
class EventWaits:
    """Calls that made a stream wait for an event: int64 arrays with one row each.

    Attributes
    ----------
    recorded_on, waiting : int64 arrays
        Numbers of the streams: of the one on which the event was recorded, and of the one that waited.
    record_ns, wait_ns : int64 arrays
        When the host called: to record, and to wait.
    """

    recorded_on: npt.NDArray[np.int64]
    record_ns: npt.NDArray[np.int64]
    waiting: npt.NDArray[np.int64]
    wait_ns: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.wait_ns)

    def rows(self, stream: IntArray, launch_ns: IntArray, row: IntArray) -> IntArray:
        """Return the rows that waits join, int32, shape (n, 2): the last one that was launched before the record, the first after the wait.

        ``stream``, ``launch_ns``, ``row``: of each kernel, copy and set: its stream, when the host launched it, and its row. In the order
            of the rows.
        """
        order = np.lexsort((launch_ns, stream))
        stream, launch_ns, row = stream[order], launch_ns[order], row[order]
        found = np.full((len(self), 2), -1, np.int64)
        for side, (streams, times, side_of, step) in enumerate(
            ((self.recorded_on, self.record_ns, "left", -1), (self.waiting, self.wait_ns, "right", 0))
        ):
            for one in np.unique(streams).tolist():
                low, high = np.searchsorted(stream, one, side="left"), np.searchsorted(stream, one, side="right")
                which = np.flatnonzero(streams == one)
                at = low + np.searchsorted(launch_ns[low:high], times[which], side=side_of) + step  # type: ignore[call-overload]
                there = (at >= low) & (at < high)
                found[which[there], side] = row[at[there]]
        found = found[(found >= 0).all(axis=1)]
        return np.unique(found, axis=0).astype(np.int32)
