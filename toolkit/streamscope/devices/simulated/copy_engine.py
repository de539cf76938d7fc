"""A copy engine: one direction of the bus, one copy at a time, in the order of arrival."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from streamscope.devices.simulated.timeline import Action, Timeline


@dataclass(frozen=True, slots=True)
class _Copy:
    duration_ns: float
    started: Action
    finished: Action


class CopyEngine:
    """Copies of one direction, which run beside kernels and beside those of the other."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._copies: deque[_Copy] = deque()

    def put(self, duration_ns: float, started: Action, finished: Action) -> None:
        """Queue a copy; ``started`` is called when the engine takes it up."""
        self._copies.append(_Copy(duration_ns, started, finished))
        if len(self._copies) == 1:
            self._take_up()

    def _take_up(self) -> None:
        copy = self._copies[0]
        copy.started()
        self._timeline.at(self._timeline.now_ns + copy.duration_ns, self._end)

    def _end(self) -> None:
        copy = self._copies.popleft()
        # What is waiting is taken up after this copy's values have been committed.
        copy.finished()
        if self._copies:
            self._take_up()
