"""The last seconds of a recording: what was launched before them is left out, calls and work alike, so that nothing seems to be missing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from streamscope.recording.activity_records import ActivityRecords
from streamscope.recording.counting import folded
from streamscope.recording.pauses import Piece
from streamscope.words import counted, time_text


class Window:
    """The last so many ns of recorded time, on the system's clock; with None, all of it."""

    def __init__(self, last_ns: int | None) -> None:
        self._last_ns = last_ns
        self._ended: list[tuple[int, int]] = []
        self._begun_ns: int | None = None

    def begin(self) -> None:
        """Count the time from now on."""
        self._begun_ns = time.time_ns()

    def end(self) -> None:
        """Count no more time until it begins again."""
        if self._begun_ns is not None:
            self._ended.append((self._begun_ns, time.time_ns()))
            self._begun_ns = None

    def since_ns(self) -> int:
        """Return when it began; 0 where all that was recorded lies in it."""
        if self._last_ns is None:
            return 0
        left_ns = self._last_ns
        now = [] if self._begun_ns is None else [(self._begun_ns, time.time_ns())]
        for start_ns, end_ns in reversed([*self._ended, *now]):
            left_ns -= end_ns - start_ns
            if left_ns <= 0:
                return start_ns - left_ns
        return 0


def needed(pieces: Sequence[Piece], last_ns: int) -> list[Piece]:
    """Return the pieces that reach into the last so many ns of recorded time. Counters go on in the first of them."""
    *older, newest = pieces
    kept, length_ns = [newest], newest.end_ns - newest.start_ns  # The recording ends before it waits for the GPUs.
    while older and length_ns < last_ns:
        kept.insert(0, older.pop())
        length_ns += kept[0].waited_ns - kept[0].start_ns
    if said := kept[0].said:
        said.values[:0] = folded(value for piece in older if piece.said for value in piece.said.values)
    return kept


def launched_since(records: ActivityRecords, edge_ns: int) -> tuple[ActivityRecords, int, str]:
    """Return the records of what was launched from an edge on, when the GPUs had finished what was launched before, and a note.

    Work without a record of its call counts as launched before: that record was dropped with older ones.
    """
    calls, work = records.calls, records.work
    old = calls["start_ns"] < edge_ns
    # The driver's call inside of the runtime's has the same number, and may begin behind the edge.
    before = np.unique(calls["correlation"][old & (calls["correlation"] != 0)])
    late = ~old & ~np.isin(calls["correlation"], before)
    own = np.isin(work["correlation"], calls["correlation"][late])
    running = ~own & (work["end_ns"] > edge_ns)
    whole_ns = int(max(edge_ns, work["end_ns"][~own].max(initial=edge_ns)))
    cut_calls = int((old & (calls["end_ns"] > edge_ns)).sum())
    parts = [counted(int(running.sum()), "kernel, copy or set", "kernels, copies and sets")] if running.any() else []
    parts += [counted(cut_calls, "call")] if cut_calls else []
    said = f": {' and '.join(parts)} that began earlier and ended later left out" if parts else ""
    whole = f"; GPUs are whole from {time_text(whole_ns - edge_ns)} on" if whole_ns > edge_ns else ""
    return replace(records, calls=calls[late], work=work[own]), whole_ns, f"launched before is dropped{said}{whole}"
