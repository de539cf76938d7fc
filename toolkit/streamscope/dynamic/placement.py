"""Which stream an operation goes on, where there are several."""

from __future__ import annotations

from collections.abc import Sequence

from streamscope.dynamic.applications import Application
from streamscope.dynamic.lanes import Lane, Stamp

CROSSING_NS = 2_000.0
"""What it takes about until a stream goes on after an event of another one; as long as the host's calls for event and wait."""


def earliest(lanes: Sequence[Lane], application: Application, now_ns: float) -> Lane:
    """Return the lane on which an operation can start first, by estimates.

    Of several, the one of what it reads, which needs no wait; then the one that was given least to do so far.
    """
    producers = [state.writer for state in (*application.reads, *application.writes) if state.writer is not None]
    others = [stamp for state in application.writes for stamp in state.readers.values()]
    newest = max(producers, key=lambda stamp: stamp.end_ns, default=None)

    def rank(lane: Lane) -> tuple[float, bool, float, int]:
        ends = [_end_ns(stamp, lane) for stamp in (*producers, *others)]
        start_ns = max((now_ns, lane.free_ns, *ends))
        return start_ns, newest is None or newest.lane != lane.index, lane.issued_ns, lane.index

    return min(lanes, key=rank)


def expect(lane: Lane, duration_ns: float, now_ns: float) -> None:
    """Note that a lane is about to get something to do."""
    lane.free_ns = max(lane.free_ns, now_ns) + duration_ns
    lane.issued_ns += duration_ns


def _end_ns(stamp: Stamp, lane: Lane) -> float:
    if stamp.lane == lane.index or lane.clock[stamp.lane] >= stamp.position:
        return 0.0
    return stamp.end_ns + CROSSING_NS
