"""Estimated makespan of a plan: a walk through its steps with a cost model, for schedulers that compare plans.

The walk is coarser than the simulated device, and three times as quick. It knows the calls of the host, the order of the lanes, events,
graph launches and the room on the multiprocessors: a kernel that was issued earlier gets what it wants, and a later one what is left.
See ``docs/decisions/two-walks-one-cost-model.md``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from math import inf

from streamscope.devices.cost_model import CostModel
from streamscope.devices.graph_node import Branching
from streamscope.engines.plan import (
    CallHost,
    Estimate,
    HostWait,
    Issue,
    Plan,
    RecordEvent,
    Replay,
    Step,
    Synchronize,
    WaitEvent,
    predecessors,
)
from streamscope.order.graph import without_implied
from streamscope.program.launch import Launch, LaunchKind

_CRUMBS = 1e-9
"""Room that rounding leaves on a full chip, and ns of a kernel that is done: less than clocks can tell apart."""


@cache
def reference_model() -> CostModel:
    """Return the built-in cost model, for plans, which are made without a device to ask."""
    return CostModel.load()


def makespan_ns(plan: Plan, estimate: Estimate, model: CostModel) -> float:
    """Return the expected makespan of one run of a plan on an idle device, in ns: until the host knows that all is done.

    ``plan``: its graphs count as captured.
    ``estimate``: how long each launch runs alone, in ns.
    ``model``: what everything else costs.
    """
    walk = _Walk(estimate, model)
    for step in plan.steps:
        walk.take(step)
    for _, done_ns in sorted(walk.done_ns.items()):
        walk.host_waits(done_ns)
    return walk.host_ns


@dataclass
class Chip:
    """The share of the multiprocessors' throughput that is taken: ``taken[i]`` from ``times_ns[i]`` on."""

    times_ns: list[float] = field(default_factory=lambda: [-inf])
    taken: list[float] = field(default_factory=lambda: [0.0])

    def run(self, start_ns: float, alone_ns: float, share: float) -> float:
        """Run a kernel on the free share of the chip and return its end; alone, it takes ``alone_ns`` and the given share."""
        piece = self._piece(start_ns)
        now_ns, left_ns = start_ns, alone_ns
        while left_ns > _CRUMBS:
            until_ns = self.times_ns[piece + 1] if piece + 1 < len(self.times_ns) else inf
            room = 1 - self.taken[piece]
            speed = 0.0 if room <= _CRUMBS else min(1.0, room / share) if share else 1.0
            if speed and now_ns + left_ns / speed < until_ns:
                until_ns = now_ns + left_ns / speed
                self._piece(until_ns)
                left_ns = 0.0
            else:
                left_ns -= (until_ns - now_ns) * speed
            self.taken[piece] += speed * share
            now_ns, piece = until_ns, piece + 1
        return now_ns

    def _piece(self, start_ns: float) -> int:
        """Return the index of the piece that begins at a time, cut off from the one before if need be."""
        piece = bisect_right(self.times_ns, start_ns) - 1
        if self.times_ns[piece] == start_ns:
            return piece
        self.times_ns.insert(piece + 1, start_ns)
        self.taken.insert(piece + 1, self.taken[piece])
        return piece + 1


@dataclass
class _Nodes:
    """The nodes of a graph: for each those that it comes right after, on its lane and through the events that its lane waited for."""

    launches: list[Launch]
    before: list[list[int]]

    @classmethod
    def of(cls, steps: Sequence[Step]) -> _Nodes:
        nodes, number = cls([], []), dict[int, int]()
        # One by one, so that few lists live at a time: thousands more make the garbage collector look through all that is alive.
        for position, step, earlier in predecessors(steps):
            if isinstance(step, Issue):
                number[position] = len(nodes.launches)
                nodes.before.append([*map(number.__getitem__, earlier)])
                nodes.launches.append(step.launch)
        return nodes


def _apart(starts_ns: list[float], ready_ns: float, apart_ns: float) -> float:
    """Return the first time from ``ready_ns`` on that is so far from all of the starts, which are sorted and get it."""
    at = bisect_right(starts_ns, ready_ns - apart_ns + _CRUMBS)
    while at < len(starts_ns) and starts_ns[at] < ready_ns + apart_ns - _CRUMBS:
        ready_ns = starts_ns[at] + apart_ns
        at += 1
    starts_ns.insert(at, ready_ns)
    return ready_ns


@dataclass
class _Walk:
    """Where the host, the lanes and the chip are."""

    estimate: Estimate
    model: CostModel
    host_ns: float = 0.0
    done_ns: dict[int, float] = field(default_factory=dict)
    """End of the work on each lane."""
    recorded_ns: dict[int, float] = field(default_factory=dict)
    """Time of each event. One that this run has not recorded yet stands for the run before, which is over."""
    chips: defaultdict[int, Chip] = field(default_factory=partial(defaultdict, Chip))
    """The chip of each GPU."""
    parts: list[tuple[int, float]] = field(default_factory=list)
    """Of a collective that is being issued: lanes, or nodes, of its parts so far, and when each begins."""

    def take(self, step: Step) -> None:
        """Carry out a step as the host does."""
        model, done_ns = self.model, self.done_ns
        match step:
            case Issue(launch, lane):
                self.host_ns += model.call_ns(launch)
                start_ns = self._start_ns(lane, model.launch_latency_ns)
                if launch.collective is None:
                    done_ns[lane] = self._end_ns(launch, start_ns)
                else:
                    done_ns.update(self._with_parts(launch, lane, start_ns))
            case RecordEvent(event, lane):
                self.host_ns += model.event_record_ns
                # What is behind the record waits for it, and so for what is before it to drain.
                done_ns[lane] = max(self.host_ns + model.launch_latency_ns, done_ns.get(lane, -inf) + model.drain_ns)
                self.recorded_ns[event] = done_ns[lane]
            case WaitEvent(event, lane):
                self.host_ns += model.stream_wait_ns
                earlier_ns = max(done_ns.get(lane, -inf), self.recorded_ns.get(event, -inf))
                done_ns[lane] = max(earlier_ns, self.host_ns + model.launch_latency_ns)
            case HostWait(event):
                self.host_waits(self.recorded_ns.get(event, -inf))
            case Synchronize(lane):
                self.host_waits(done_ns.get(lane, -inf))
            case CallHost(call):
                self.host_ns += call.duration_ns
            case Replay(steps):
                self._replay(steps)

    def host_waits(self, done_ns: float) -> None:
        """Let the host wait for a time, and go on."""
        self.host_ns = max(self.host_ns, done_ns) + self.model.synchronize_return_ns

    def _replay(self, steps: Sequence[Step]) -> None:
        """Launch a graph on lane 0; that lane is done when all of the graph is."""
        model, nodes = self.model, _Nodes.of(steps)
        before = without_implied(nodes.before)
        branching = Branching.of(before)
        copies = sum(launch.kind is not LaunchKind.KERNEL and launch.collective is None for launch in nodes.launches)
        self.host_ns += model.graph_launch_ns(max(1, len(nodes.launches)), copies)
        start_ns = self._start_ns(0, model.graph_launch_latency_ns)
        root_ns = {node: start_ns + number * model.graph_root_ns for number, node in enumerate(branching.roots)}
        self.host_ns += model.graph_branching_ns(branching)
        starts_ns: list[float] = []
        ends_ns: list[float] = []
        for node, launch in enumerate(nodes.launches):
            ready_ns = max((ends_ns[one] for one in before[node]), default=0.0) + model.graph_node_gap_ns
            ready_ns += launch.cost.gap_ns + (model.graph_crossing_ns if branching.crossing[node] else 0.0)
            begin_ns = _apart(starts_ns, root_ns.get(node, ready_ns), model.graph_dispatch_ns)
            if launch.collective is None:
                ends_ns.append(self._end_ns(launch, begin_ns))
            else:
                ends_ns.append(begin_ns)
                for part, end_ns in self._with_parts(launch, node, begin_ns).items():
                    ends_ns[part] = end_ns
        self.done_ns[0] = max(ends_ns, default=start_ns)

    def _start_ns(self, lane: int, latency_ns: float) -> float:
        """Return when work starts that the host has just put on a lane."""
        return max(self.host_ns + latency_ns, self.done_ns.get(lane, -inf) + self.model.kernel_gap_ns)

    def _with_parts(self, launch: Launch, place: int, start_ns: float) -> dict[int, float]:
        """Return the end of each part of a collective, by its place, once the last is issued: none ends before all have begun."""
        self.parts.append((place, start_ns))
        assert launch.collective is not None
        if len(self.parts) < len(launch.collective.gpus):
            return {}
        end_ns = max(begin_ns for _, begin_ns in self.parts) + self.estimate(launch)
        found = dict.fromkeys((each for each, _ in self.parts), end_ns)
        self.parts = []
        return found

    def _end_ns(self, launch: Launch, start_ns: float) -> float:
        alone_ns = self.estimate(launch)
        if launch.kind is not LaunchKind.KERNEL:
            return start_ns + alone_ns
        held = self.model.residency(launch.cost)
        share = held.multiprocessors / self.model.multiprocessors * self.model.throughput(held.load)
        return self.chips[launch.gpu].run(start_ns, alone_ns, share)
