"""Plans made by hand or at random, and a plain model of what they order: one node a step, one edge a rule, and reachability."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from streamscope.devices.simulated import SimulatedDevice
from streamscope.engine_entry import ENGINES
from streamscope.engines.issuing import captured_steps, repeating_steps
from streamscope.engines.plan import CallHost, HostWait, Issue, Plan, RecordEvent, Replay, Synchronize, WaitEvent
from streamscope.ops import add, multiply, relu
from streamscope.ops.host import host_function, to_device, to_host
from streamscope.program.launch import Cost, HostCall, Launch, LaunchKind
from streamscope.program.operation import Operation, Program, Variable
from streamscope.program.variable import ArraySpec, MemoryPlace
from streamscope.tracing import program

LANES = ("main", "aux", "copy in")
NAMES = "abcdefgh"


def launch(number, reads="", writes="", name=None):
    return Launch(number, 0, name or f"k{number}", LaunchKind.KERNEL, ids(reads), ids(writes), Cost(0), None)


def host_call(number, reads="", writes="", duration_ns=1000.0):
    return HostCall(number, f"h{number}", ids(reads), ids(writes), lambda *arrays: arrays, duration_ns)


def ids(names):
    return tuple(NAMES.index(name) for name in names)


def plan_of(*steps, lanes=LANES):
    """Return a plan of steps, with a program of just their work, in their order."""
    work = []
    for step in steps:
        inner = step.steps if isinstance(step, Replay) else (step,)
        work += [each.launch if isinstance(each, Issue) else each.call for each in inner if isinstance(each, Issue | CallHost)]
    operations = tuple(
        Operation(one.operation, one.name, one.reads, one.writes, {}, f"cell:{one.operation}", one if isinstance(one, HostCall) else (one,))
        for one in sorted(work, key=lambda one: one.operation)
    )
    variables = tuple(Variable(number, name, ArraySpec((4,), "float32"), MemoryPlace.DEVICE) for number, name in enumerate(NAMES))
    return Plan("made", Program("made", variables, operations, (), ()), lanes, tuple(steps), 9)


def spread(traced, lane_of=lambda launch: launch.operation % len(LANES), *, graph=False):
    """Return a plan whose launches lie on chosen lanes, whatever a scheduler would choose; with ``graph``, captured where it can be."""
    if not graph:
        steps, events = repeating_steps(traced.operations, len(LANES), lane_of)
        return Plan("spread", traced, LANES, tuple(steps), events)
    steps, events = captured_steps(traced.operations, len(LANES), lane_of, 0)
    return Plan("spread", traced, LANES, (Replay(tuple(steps)),), events)


@st.composite
def engine_plans(draw, *, graphs=True):
    """Return the plan of an engine for a random program, or one in its manner on random lanes."""
    engine = draw(
        st.sampled_from([*(name for name in ENGINES if graphs or "graph" not in name), "spread", *(["spread graph"] if graphs else [])])
    )
    traced = draw(programs(host=engine != "spread graph"))
    if not engine.startswith("spread"):
        return ENGINES[engine].plan(traced, lambda launch: 1e5)
    lanes = draw(st.lists(st.integers(0, len(LANES) - 1), min_size=len(traced.operations), max_size=len(traced.operations)))
    return spread(traced, lambda launch: lanes[launch.operation], graph=engine == "spread graph")


@dataclass
class Model:
    """A plan, several times in a row, as a graph of nodes; a node's predecessors have lower numbers."""

    plan: Plan
    runs: int = 3
    extra: set = field(default_factory=set)  # (earlier operation, later operation, next run): orders that are to be added
    without: set = field(default_factory=set)  # waits left out

    def __post_init__(self):
        self.before, self.items, self.place = [], [], {}
        self.last, self.records, self.host = {}, {}, None
        self.broken = {index for index, step in enumerate(self.plan.steps) if isinstance(step, Replay) and breaks(step.steps)}
        for run in range(self.runs):
            self.wait = 0
            for index, step in enumerate(self.plan.steps):
                inner = step.steps if index in self.broken else (step,)
                for each in inner:
                    self.replay(each, run) if isinstance(each, Replay) else self.step(each, run)
        self.reached = []
        for node, before in enumerate(self.before):
            bits = 1 << node
            for other in before:
                bits |= self.reached[other]
            self.reached.append(bits)

    def node(self, before):
        self.before.append([other for other in before if other is not None])
        return len(self.before) - 1

    def on_lane(self, lane, *before):
        self.last[lane] = self.node([self.last.get(lane), self.host, *before])
        return self.last[lane]

    def waited(self, event, records):
        self.wait += 1
        return None if self.wait - 1 in self.without else records.get(event)

    def wanted(self, work, run):
        """Return the ends of the items that the extra orders put before this one."""
        ends = []
        for earlier, later, next_run in self.extra:
            if later == work.operation and (earlier, run - next_run) in self.place:
                ends.append(self.place[earlier, run - next_run])
        return ends

    def item(self, work, run, node, region, ends):
        self.items.append((work, run, node))
        self.place[work.operation, run] = (node, region, ends)

    def step(self, step, run):
        match step:
            case Issue(launch, lane):
                before = [end[2][0] if end[1] else end[0] for end in self.wanted(launch, run)]
                node = self.on_lane(lane, *before)
                self.item(launch, run, node, None, None)
            case CallHost(call):
                before = [end[2][0] if end[1] else end[0] for end in self.wanted(call, run)]
                self.host = self.node([self.host, *before])
                self.item(call, run, self.host, None, None)
            case RecordEvent(event, lane):
                self.records[event] = self.on_lane(lane)
            case WaitEvent(event, lane):
                self.on_lane(lane, self.waited(event, self.records))
            case HostWait(event):
                self.host = self.node([self.host, self.waited(event, self.records)])
            case Synchronize(lane):
                self.host = self.node([self.host, self.last.get(lane)])

    def replay(self, step, run):
        region, ends = object(), []
        inside = [each.launch for each in step.steps if isinstance(each, Issue)]
        outside = [end for work in inside for end in self.wanted(work, run) if (end[1] is None or end[2])]
        begin = self.on_lane(0, *(end[2][0] if end[1] else end[0] for end in outside))
        last, records = {0: begin}, {}
        for each in step.steps:
            before = [last.get(each.lane)]
            if isinstance(each, WaitEvent):
                before.append(self.waited(each.event, records))
            if isinstance(each, Issue):
                before += [end[0] for end in self.wanted(each.launch, run) if end[1] is not None and not end[2]]
            last[each.lane] = self.node(before)
            if isinstance(each, RecordEvent):
                records[each.event] = last[each.lane]
            if isinstance(each, Issue):
                self.item(each.launch, run, last[each.lane], region, ends)
        self.last[0] = self.node([last[0]])
        ends.append(self.last[0])

    def ordered(self):
        """Return the pairs (operation, run), (operation, run) of items that are ordered."""
        return {
            ((one.operation, run), (other.operation, later))
            for one, run, node in self.items
            for other, later, end in self.items
            if node != end and self.reached[end] >> node & 1
        }

    def races(self):
        """Return (earlier operation, later operation, runs between) of all conflicting items that are not ordered."""
        found = set()
        for index, (later, run, end) in enumerate(self.items):
            for earlier, other_run, node in self.items[:index]:
                conflict = {*earlier.writes} & {*later.reads, *later.writes} or {*earlier.reads} & {*later.writes}
                if conflict and not self.reached[end] >> node & 1:
                    found.add((earlier.operation, later.operation, run - other_run))
        return found


def breaks(steps):
    """Tell, by reachability, whether a capture breaks: a launch that lane 0 does not lead to or does not come after, or a foreign event."""
    edges, records, last = defaultdict(set), {}, {0: "begin"}
    for number, step in enumerate(steps):
        if isinstance(step, WaitEvent):
            if step.event not in records:
                if step.lane in last:
                    return True
                continue
            edges[number].add(records[step.event])
        elif step.lane not in last:
            if isinstance(step, Issue):
                return True
            records.pop(step.event, None)
            continue
        edges[number] |= {last[step.lane]} if step.lane in last else set()
        last[step.lane] = number
        if isinstance(step, RecordEvent):
            records[step.event] = number
    joined, pending = set(), [last[0]]
    while pending:
        node = pending.pop()
        if node not in joined:
            joined.add(node)
            pending += edges[node]
    return any(isinstance(step, Issue) and number not in joined for number, step in enumerate(steps))


@host_function
def host_step(*arrays):
    return sum(arrays)


@st.composite
def programs(draw, *, host=True, most=16):
    """Return a program over a few variables on the device and on the host, in place and not."""
    kinds = ["add", "multiply", "relu", *(["to_device", "to_host", "host"] if host else [])]
    numbers = st.integers(0, 5)
    steps = draw(st.lists(st.tuples(st.sampled_from(kinds), numbers, numbers, st.booleans()), min_size=1, max_size=most))

    def made(*arrays):
        device, on_host = list(arrays), [to_host(arrays[0])] if host else []
        for kind, first, second, in_place in steps:
            a, b = device[first % len(device)], device[second % len(device)]
            if kind == "to_device":
                device.append(to_device(on_host[first % len(on_host)], out=b if in_place else None))
            elif kind == "to_host":
                on_host.append(to_host(a, out=on_host[second % len(on_host)] if in_place else None))
            elif kind == "host":
                c, d = on_host[first % len(on_host)], on_host[second % len(on_host)]
                on_host.append(host_step(c, d, out=d if in_place else None))
            elif kind == "relu":
                device.append(relu(a, out=b if in_place else None))
            else:
                device.append((add if kind == "add" else multiply)(a, b, out=b if in_place else None))
        return tuple(dict.fromkeys([*device, *on_host]))

    return program(made).trace(*(np.array([value, -value], np.float32) for value in (1.0, 0.5)))


@st.composite
def plans(draw):
    """Return a plan of random steps: most of them have races and waits that do nothing, and some have graphs."""
    number = iter(range(100))
    events = st.integers(0, 3)
    lanes = st.integers(0, len(LANES) - 1)

    def touched():
        return "".join(draw(st.sets(st.sampled_from("abcd"), max_size=2)))

    def stream_step():
        match draw(st.sampled_from(["issue", "issue", "record", "wait"])):
            case "issue":
                return Issue(launch(next(number), touched(), touched()), draw(lanes))
            case "record":
                return RecordEvent(draw(events), draw(lanes))
            case _:
                return WaitEvent(draw(events), draw(lanes))

    def replay():
        forks = [step for lane in (1, 2) for step in (RecordEvent(4, 0), WaitEvent(4, lane))]
        joins = [step for lane in (1, 2) for step in (RecordEvent(4 + lane, lane), WaitEvent(4 + lane, 0))]
        # Events of the capture's own, recorded first on lane 0, so that no wait is for one from outside.
        own = [RecordEvent(event, 0) for event in range(4)]
        steps = [*forks, *own, *(stream_step() for _ in range(draw(st.integers(1, 6)))), *joins]
        left_out = draw(st.one_of(st.none(), st.integers(0, len(steps) - 1)))
        return Replay(tuple(step for index, step in enumerate(steps) if index != left_out))

    def other_step(kind):
        match kind:
            case "host":
                return CallHost(host_call(next(number), touched(), touched()))
            case "host wait":
                return HostWait(draw(events))
            case "synchronize":
                return Synchronize(draw(lanes))
            case _:
                return replay()

    kinds = st.sampled_from(["stream"] * 6 + ["host", "host wait", "synchronize", "graph"])
    listed = draw(st.lists(kinds, min_size=2, max_size=14))
    return plan_of(*(stream_step() if kind == "stream" else other_step(kind) for kind in listed))


class Estimating(SimulatedDevice):
    """A device whose estimate of a launch is the test's."""

    def __init__(self, estimate):
        super().__init__()
        self._estimate = estimate

    def estimate_ns(self, launch):
        return self._estimate(launch)
