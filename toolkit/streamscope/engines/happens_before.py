"""Happens-before of a plan: the work known to be done when a piece starts, run after run.

The rules are those of `streamscope.devices.protocol`. Work on a lane is in order. A wait takes the event's latest record at the time of
the call, and whoever waits for a record knows all that its lane knew there. The host issues in order: its functions are done before
anything is issued after them, and what it has waited for is done for all that it issues later. A graph starts when all before it on lane 0
is done and counts as one item there; inside it, only the capture's own order holds. Runs follow each other without a synchronisation.
A part of a collective ends when the parts that it awaits have begun, and so knows what they knew at their start.

What is known is a vector clock: for each *strand* (a lane, a lane inside graphs, the host) the position up to which its items are done.
A graph that cannot be captured is read as what then happens: its steps issued one by one. In a capture, every lane forks from the main one
and joins it again: `capture_breaks`.

This checks plans, so it shares no walk over steps with the code that makes them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from streamscope.engines.plan import CallHost, HostWait, Issue, Plan, RecordEvent, Replay, Step, Synchronize, WaitEvent
from streamscope.program.collective import Collective
from streamscope.program.launch import HostCall, Launch
from streamscope.words import a_kind

Work = Launch | HostCall
WorkKey = tuple[int, int]
"""Operation and part: the key of a piece of work in the program and in every plan of it."""
_Clock = npt.NDArray[np.int64]


def key_of(work: Work) -> WorkKey:
    """Return the key of a piece of work."""
    return work.operation, 0 if isinstance(work, HostCall) else work.part


@dataclass(frozen=True, eq=False)
class Item:
    """A piece of work at its place in a plan."""

    index: int
    """Which piece of work of the run it is, from 0, in the order of issue."""
    work: Work
    lane: int | None
    """The lane it is put on; None for the host."""
    graph: int | None
    """Which of the plan's graphs it is in."""


@dataclass(eq=False)
class GraphReplay:
    """One replay of a graph: the clocks inside it, a row for each lane, and the clock after it, once it was read."""

    clocks: npt.NDArray[np.int64]
    end: _Clock | None = None


@dataclass(eq=False)
class Visit:
    """An item in one run, with its clock."""

    item: Item
    run: int
    strand: int
    position: int
    """Where it stands."""
    knows: _Clock
    """Clock of the work done before it starts. Whoever sees the visit first may add to it with `learn`."""
    host: _Clock
    """Clock of the host when it issued the item."""
    region: GraphReplay | None
    """The replay that it is in."""
    end: _Clock = field(init=False)
    """Clock at its end; set when the walk goes on."""

    def after(self, other: Visit) -> bool:
        """Tell whether this item starts only when another is done."""
        return bool(self.knows[other.strand] >= other.position)

    def behind(self, other: Visit) -> _Clock:
        """Return this item's clock after it waits for another; an item inside a graph stands for the graph."""
        if other.region is None or other.region is self.region or other.region.end is None:
            return other.end
        return other.region.end

    def learn(self, other: Visit) -> None:
        """Let this item and its successors wait for another, as an event would make them.

        An item in a graph waits for one outside before the graph starts.
        """
        mine = self.knows if self.region is None or self.region is other.region else self.region.clocks
        np.maximum(mine, self.behind(other), out=mine)


@dataclass
class Walk:
    """Reads a plan in the order of issue, several runs in a row."""

    plan: Plan
    _clocks: npt.NDArray[np.int64] = field(init=False)
    _pending: dict[int, list[_Clock]] = field(default_factory=lambda: defaultdict(list))
    """Records that a strand waits for before its next item."""
    _events: dict[int, _Clock] = field(default_factory=dict)
    _items: list[Item] = field(default_factory=list)
    _run: int = 0
    _next_item: int = 0
    _parts: list[Visit] = field(default_factory=list)
    """The parts of a collective that are visited so far."""

    def __post_init__(self) -> None:
        self._lanes = len(self.plan.lanes)
        self._host = 2 * self._lanes
        self._counts = [0] * (self._host + 1)
        self._clocks = np.zeros((len(self._counts), len(self._counts)), np.int64)
        self._captured = {index: not capture_breaks(step.steps) for index, step in enumerate(self.plan.steps) if isinstance(step, Replay)}

    def runs(self, number: int) -> Iterator[Visit]:
        """Yield every item of some runs in a row."""
        for self._run in range(number):
            self._next_item = 0
            for index, step in enumerate(self.plan.steps):
                if not isinstance(step, Replay):
                    yield from self._step(step, self._events)
                elif self._captured[index]:
                    yield from self._replay(step, index)
                else:
                    for inner in step.steps:
                        yield from self._step(inner, self._events)

    def _step(self, step: Step, events: dict[int, _Clock], graph: int | None = None, region: GraphReplay | None = None) -> Iterator[Visit]:
        """Read a step: one of a replay has strands and events of its own, and the host takes no part in it."""
        first = 0 if region is None else self._lanes
        ready = self._ready if region is None else self._settle
        match step:
            case WaitEvent(event, lane):
                self._wait(event, first + lane, events)
            case HostWait(event):
                self._wait(event, self._host, events)
            case Issue(launch, lane):
                ready(first + lane)
                yield from self._item(launch, lane, first + lane, graph, region)
            case CallHost(call):
                ready(self._host)
                yield from self._item(call, None, self._host, None, None)
            case RecordEvent(event, lane):
                ready(first + lane)
                events[event] = self._clocks[first + lane].copy()
            case Synchronize(lane):
                ready(lane)
                _merge(self._clocks[self._host], self._clocks[lane])

    def _replay(self, replay: Replay, graph: int) -> Iterator[Visit]:
        self._ready(0)
        # Where the graph begins is an item of lane 0. A lane that knows it has forked.
        self._done(0)
        inside = self._clocks[self._lanes : 2 * self._lanes]
        inside[0], inside[1:] = self._clocks[0], 0
        region = GraphReplay(inside)
        events: dict[int, _Clock] = {}
        for step in replay.steps:
            yield from self._step(step, events, graph, region)
        for lane in range(self._lanes):
            self._settle(self._lanes + lane)
        self._clocks[0] = inside[0]
        region.end = inside[0].copy()

    def _wait(self, event: int, strand: int, events: dict[int, _Clock]) -> None:
        # An event without a record, as all events of the run before the first one are, is not a wait.
        if event in events:
            self._pending[strand].append(events[event])

    def _ready(self, strand: int) -> None:
        """Apply the pending waits of the host, and then of a strand."""
        self._settle(self._host)
        _merge(self._clocks[strand], self._clocks[self._host])
        self._settle(strand)

    def _settle(self, strand: int) -> None:
        for clock in self._pending.pop(strand, ()):
            _merge(self._clocks[strand], clock)

    def _item(self, work: Work, lane: int | None, strand: int, graph: int | None, region: GraphReplay | None) -> Iterator[Visit]:
        if self._next_item == len(self._items):
            self._items.append(Item(self._next_item, work, lane, graph))
        item = self._items[self._next_item]
        self._next_item += 1
        clock = self._clocks[strand]
        visit = Visit(item, self._run, strand, self._counts[strand] + 1, clock, self._clocks[self._host].copy(), region)
        yield visit
        visit.knows = clock.copy()
        visit.end = self._done(strand)
        if isinstance(work, Launch) and work.collective is not None:
            self._meet(visit, work.collective)

    def _meet(self, visit: Visit, collective: Collective) -> None:
        """Let each part of a collective know what those that it awaits knew, once the last part is visited."""
        if self._parts and self._parts[0].item.work.operation != visit.item.work.operation:
            self._parts = []  # Parts that are left alone.
        self._parts.append(visit)
        if len(self._parts) < len(collective.gpus):
            return
        parts, self._parts = self._parts, []
        for part in parts:
            awaited = collective.awaits(_part(part))
            part.end = np.maximum.reduce([part.end, *(other.knows for other in parts if _part(other) in awaited)])
            _merge(self._clocks[part.strand], part.end)

    def _done(self, strand: int) -> _Clock:
        self._counts[strand] += 1
        self._clocks[strand][strand] = self._counts[strand]
        return np.array(self._clocks[strand])


def _part(visit: Visit) -> int:
    return key_of(visit.item.work)[1]


def _merge(clock: _Clock, other: _Clock) -> None:
    np.maximum(clock, other, out=clock)


@dataclass(frozen=True)
class Break:
    """Something that breaks a capture."""

    launch: Launch | None
    """The launch at which it shows; for a lane that is not joined, its last one. None if it shows at no launch."""
    lane: int
    why: str
    """Problem, with ``{lane}`` and ``{main}`` for the names of the lanes."""
    advice: str
    """Remedy, likewise."""


_NOT_FORKED = "{lane} has not forked from {main} when it is put there", "let {lane} wait for an event recorded on {main} before it"
_NOT_JOINED = "{lane} is not joined to {main} behind it", "let {main} wait, at the end, for an event recorded on {lane} behind it"


def capture_breaks(steps: Sequence[Step]) -> list[Break]:
    """Return the breaches of a capture, which begins and ends on lane 0; empty if there are none."""
    clocks: dict[int, Counter[int]] = {0: Counter()}  # For each lane in it, after how many launches of each other lane it comes.
    events: dict[int, Counter[int]] = {}
    launches: dict[int, list[Launch]] = defaultdict(list)
    breaks: list[Break] = []
    for step in steps:
        match step:
            case Issue(launch, lane):
                if not launch.capturable:
                    why = f"{launch.name} cannot be captured: {launch.why_not or 'no reason was given'}"
                    breaks.append(Break(launch, lane, why, "run it outside the graph"))
                if lane not in clocks:
                    clocks[lane] = Counter()  # Taken as mended, so that what follows from it is not reported too.
                    breaks.append(Break(launch, lane, *_NOT_FORKED))
                launches[lane].append(launch)
                clocks[lane][lane] = len(launches[lane])
            case RecordEvent(event, lane):
                events.pop(event, None)
                if lane in clocks:
                    events[event] = clocks[lane].copy()
            case WaitEvent(event, lane) if event in events:
                clocks[lane] = clocks.get(lane, Counter()) | events[event]
            case WaitEvent(event, lane):
                if lane in clocks:
                    why = f"{{lane}} waits for event {event}, which was not recorded in the capture"
                    last = launches[lane][-1] if launches[lane] else None
                    breaks.append(Break(last, lane, why, "record the event in the capture, or wait before it begins"))
            case _:
                why = f"{a_kind(step)} step makes the host wait or work, which no capture records"
                breaks.append(Break(None, 0, why, "end the graph before it"))
    left = [lane for lane, issued in launches.items() if lane != 0 and clocks[0][lane] < len(issued)]
    return breaks + [Break(launches[lane][-1], lane, *_NOT_JOINED) for lane in left]
