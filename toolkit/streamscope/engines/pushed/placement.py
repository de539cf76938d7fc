"""Which stream an operation goes on, where there are several."""

from __future__ import annotations

from collections.abc import Sequence

from streamscope.engines.pushed.applications import Application
from streamscope.engines.pushed.lanes import EventStamp, Lane

CROSSING_NS = 2_000.0
"""How long about until a stream goes on after an event of another one, the host's calls for event and wait included."""


def earliest(lanes: Sequence[Lane], application: Application, now_ns: float) -> Lane:
    """Return the lane on which an operation can start first, by estimates.

    Of several, the one of what it must come after, which needs no wait; then the one that was given least to do so far.
    """
    newest: EventStamp | None = None
    for states in (application.reads, application.writes):
        for state in states:
            stamp = state.writer
            if stamp is not None and (newest is None or stamp.end_ns > newest.end_ns):
                newest = stamp
    for state in application.writes:
        for stamp in state.readers.values():
            if newest is None or stamp.end_ns > newest.end_ns:
                newest = stamp
    near = lanes[newest.lane] if newest is not None and newest.lane < len(lanes) else None
    if near is not None and near.free_ns <= now_ns:
        return near
    elsewhere_ns = now_ns if newest is None else max(now_ns, newest.end_ns + CROSSING_NS)

    def rank(lane: Lane) -> tuple[float, bool, float, int]:
        start_ns = max(lane.free_ns, now_ns if lane is near else elsewhere_ns)
        return start_ns, lane is not near, lane.issued_ns, lane.index

    return min(lanes, key=rank)


def expect(lane: Lane, duration_ns: float, now_ns: float) -> None:
    """Note that a lane is about to get something to do."""
    lane.free_ns = max(lane.free_ns, now_ns) + duration_ns
    lane.issued_ns += duration_ns
