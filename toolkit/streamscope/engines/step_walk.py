"""A walk through the steps of a plan, as streams, events, graphs and the host carry them out, for checks of its orders.

Planners do not use it: a check must not share a fault with what it checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from streamscope.engines.plan import CallHost, HostWait, Issue, RecordEvent, Replay, Step, Synchronize, WaitEvent

_Known = TypeVar("_Known")
OUTSIDE = -1
"""Stands for the plan's own steps, where a graph is meant by its place in the plan."""


class StepWalk(Generic[_Known]):
    """Carries knowledge of earlier work along lanes, by events and by the host.

    ``nothing``: known on a lane without work.
    ``joined``: returns all that is known by one of two.
    """

    def __init__(self, nothing: _Known, joined: Callable[[_Known, _Known], _Known]) -> None:
        self.lanes: dict[int, _Known] = {}
        """Known at the end of each lane; the caller sets it behind each launch."""
        self.host = nothing
        """Known to the host."""
        self._events: dict[int, _Known] = {}
        self._nothing, self._joined = nothing, joined

    def at(self, lane: int) -> _Known:
        """Return what is known to a launch that the host puts on a lane now."""
        return self._joined(self.lanes.get(lane, self._nothing), self.host)

    def launches(self, steps: Sequence[Step], graph: int = OUTSIDE) -> Iterator[tuple[Issue, int]]:
        """Yield the launches of one run, each with the graph that it is in."""
        for place, step in enumerate(steps):
            match step:
                case Issue():
                    yield step, graph
                case RecordEvent(event, lane):
                    self._events[event] = self.at(lane)
                case WaitEvent(event, lane):
                    self.lanes[lane] = self._joined(self.at(lane), self._events.get(event, self._nothing))
                case HostWait(event):
                    self.host = self._joined(self.host, self._events.get(event, self._nothing))
                case Synchronize(lane):
                    self.host = self._joined(self.host, self.at(lane))
                case Replay(captured):
                    # Inside, nothing is known but what comes before the graph on lane 0; behind it, what lane 0 was joined with.
                    outside, self.lanes = self.lanes, {0: self.at(0)}
                    yield from self.launches(captured, place)
                    self.lanes = {**outside, 0: self.at(0)}
                case CallHost():
                    pass
