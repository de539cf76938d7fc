"""Issuing: from operations on lanes to steps with the fewest events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from streamscope.engines.plan import CallHost, HostWait, Issue, RecordEvent, Step, WaitEvent
from streamscope.engines.sync_objects import HOST, START, DependencyTracker, Stamp
from streamscope.errors import EngineError
from streamscope.program.launch import HostCall, Launch
from streamscope.program.operation import Operation

LaneOf = Callable[[Launch], int]


@dataclass(frozen=True)
class _StampWait:
    """A wait for a stamp, before it is known which event stands for it."""

    lane: int
    stamp: Stamp


@dataclass
class Issuer:
    """Turns operations into steps, asking a tracker which waits they need.

    Attributes
    ----------
    tracker : DependencyTracker
    origin : Stamp, optional
        In a capture: what every lane must come after, so that it belongs to the capture.
    """

    tracker: DependencyTracker
    origin: Stamp | None = None
    _items: list[Issue | CallHost | _StampWait] = field(default_factory=list)
    _stamps: list[Stamp | None] = field(default_factory=list)

    def operation(self, operation: Operation, lane_of: LaneOf) -> None:
        """Issue all that an operation does."""
        if isinstance(operation.work, HostCall):
            call = operation.work
            self._issue(HOST, call.reads, call.writes, CallHost(call))
        for launch in operation.launches:
            lane = lane_of(launch)
            self._issue(lane, launch.reads, launch.writes, Issue(launch, lane))

    def wait(self, lane: int, stamp: Stamp) -> None:
        """Let a lane wait for a stamp, unless it already comes after it."""
        if not self.tracker.knows(lane, stamp):
            self.tracker.waited(lane, stamp)
            self._append(_StampWait(lane, stamp))

    def _issue(self, lane: int, reads: Iterable[int], writes: Iterable[int], item: Issue | CallHost) -> None:
        extra = [] if self.origin is None else [self.origin]
        for stamp in self.tracker.needed(lane, reads, writes, extra):
            self.tracker.waited(lane, stamp)
            self._append(_StampWait(lane, stamp))
        self._append(item, self.tracker.issued(lane, reads, writes))

    def _append(self, item: Issue | CallHost | _StampWait, stamp: Stamp | None = None) -> None:
        self._items.append(item)
        self._stamps.append(stamp)

    def steps(self, first: int, name_event: Callable[[Stamp], tuple[int, int]], events: dict[tuple[int, int], int]) -> list[Step]:
        """Return the steps from item ``first`` on, with an event recorded after each item that something waits for.

        ``name_event`` maps a stamp to the key of its event; ``events`` collects the number of each key's event.
        """
        items, stamps = self._items[first:], self._stamps[first:]
        for item in items:
            if isinstance(item, _StampWait):
                events.setdefault(name_event(item.stamp), len(events))
        steps: list[Step] = []
        if self.origin is not None and (key := name_event(self.origin)) in events:
            steps.append(RecordEvent(events[key], self.origin.lane))
        for item, stamp in zip(items, stamps, strict=True):
            if isinstance(item, _StampWait):
                event = events[name_event(item.stamp)]
                steps.append(HostWait(event) if item.lane == HOST else WaitEvent(event, item.lane))
                continue
            steps.append(item)
            if stamp is not None and stamp.lane != HOST and name_event(stamp) in events:
                steps.append(RecordEvent(events[name_event(stamp)], stamp.lane))
        return steps

    @property
    def length(self) -> int:
        """Number of items so far."""
        return len(self._items)


def repeating_steps(
    operations: Sequence[Operation], lanes: Sequence[int], lane_of: LaneOf, *, runs_apart: bool = False
) -> tuple[list[Step], int]:
    """Return the steps of a run that may follow another of the same program without a synchronisation, and the number of events.

    The operations are issued several times in a row, until two rounds have the same waits; the last round's steps are the plan. A wait
    for an item of the round before takes the event of the same item of this round, whose latest record, at the time of the call, is that
    of the round before (in the first run there is none, and so nothing to wait for).

    Raises
    ------
    EngineError
        The rounds do not settle, which would be a defect of ours.
    """
    if runs_apart:
        # As in a capture: every lane comes after what lane 0 holds already, and lane 0 after all of them.
        steps, used = captured_steps(operations, lanes, lane_of, 0)
        return list(steps), used
    issuer = Issuer(DependencyTracker(lanes))
    rounds: list[tuple[list[Step], int]] = []
    for _ in range(_MOST_ROUNDS):
        first, before = issuer.length, {lane: issuer.tracker.tail(lane).position for lane in lanes}
        for operation in operations:
            issuer.operation(operation, lane_of)
        each = {lane: issuer.tracker.tail(lane).position - before[lane] for lane in lanes}
        events: dict[tuple[int, int], int] = {}
        rounds.append((issuer.steps(first, _position_in_round(each), events), len(events)))
        if len(rounds) > 1 and rounds[-1] == rounds[-2]:
            return rounds[-1]
    raise EngineError(f"the waits of {len(operations)} operations on {len(lanes)} lanes do not settle", hint="please report this program")


_MOST_ROUNDS = 8


def _position_in_round(items: Mapping[int, int]) -> Callable[[Stamp], tuple[int, int]]:
    def name(stamp: Stamp) -> tuple[int, int]:
        return stamp.lane, (stamp.position - 1) % items[stamp.lane]

    return name


def captured_steps(
    operations: Sequence[Operation], lanes: Sequence[int], lane_of: LaneOf, first_event: int
) -> tuple[tuple[Step, ...], int]:
    """Return the steps of a capture that begins and ends on lane 0, and the number of events used, numbered from ``first_event``.

    Every other lane forks from lane 0 before its first item and is joined to it at the end, as a capture demands.
    """
    origin = Stamp(0, START)
    issuer = Issuer(DependencyTracker(lanes), origin)
    issuer.tracker.waited(0, origin)
    for operation in operations:
        issuer.operation(operation, lane_of)
    tails = (issuer.tracker.tail(lane) for lane in lanes if lane != 0)
    for stamp in issuer.tracker.needed(0, (), (), [tail for tail in tails if tail.position > START]):
        issuer.wait(0, stamp)
    events: dict[tuple[int, int], int] = {}
    steps = issuer.steps(0, lambda stamp: (stamp.lane, stamp.position), events)
    return tuple(_renumber(step, first_event) for step in steps), len(events)


def _renumber(step: Step, first: int) -> Step:
    if isinstance(step, RecordEvent):
        return RecordEvent(step.event + first, step.lane)
    if isinstance(step, WaitEvent):
        return WaitEvent(step.event + first, step.lane)
    return step
