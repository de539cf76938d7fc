"""What graphs of captured code order: the capture under `graph`, what memory asks for under `graph-dual`, and which order is taken."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engines.test_captured_edges import captured, closure, order_of

import streamscope as ss
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engine_entry import ENGINES
from streamscope.engines import graph_dual
from streamscope.engines.issuing import edges_of
from streamscope.engines.plan import MOST_STREAMS, Issue, Replay, own_branches
from streamscope.engines.prepared import Prepared, planned
from streamscope.errors import EngineError
from streamscope.program.launch import Cost
from streamscope.words import time_text


class Raw:
    """A captured graph whose replays take what the test says."""

    def __init__(self, times_us=(), waits_us=None):
        self.given_us, self.asked, self.added = list(times_us), [], []
        self.given_waits_us, self.once_more = waits_us or self.given_us, []

    def times_us(self, orders, added):
        self.asked, self.added = list(orders), list(added)
        return self.given_us

    def waits_us(self, orders, added):
        places = [self.asked.index(order) for order in orders]
        assert list(added) == [self.added[place] for place in places]
        self.once_more = [self.given_us[place] for place in places]
        return [self.given_waits_us[place] for place in places]

    def graph(self, edges):
        raise AssertionError("a simulated device has no use for it")


def program_of(capture, true, raw=None):
    """Return captured code whose nodes must come after fewer others than the capture orders."""
    program = captured(capture)
    operations = tuple(
        replace(one, reads=before, work=(replace(one.launches[0], reads=before),))
        for one, before in zip(program.operations, true, strict=True)
    )
    return replace(program, operations=operations, raw=raw)


@st.composite
def orders(draw):
    """Draw the edges of a capture, and fewer that are needed."""
    count = draw(st.integers(1, 12))
    capture = [tuple(sorted(draw(st.sets(st.integers(0, number - 1), max_size=3)))) if number else () for number in range(count)]
    if draw(st.booleans()):
        capture = [(number - 1,) if number else () for number in range(count)]
    before = closure(capture)
    true = [tuple(one for one in sorted(before[number]) if draw(st.integers(0, 2)) == 0) for number in range(count)]
    return tuple(capture), tuple(true)


def replay_of(plan):
    (replay,) = (step for step in plan.steps if isinstance(step, Replay))
    return replay


def everything_before(edges):
    """Return for each operation all that come before it, however they are numbered."""
    found = [set(earlier) for earlier in edges]
    for _ in edges:
        found = [earlier.union(*(found[one] for one in earlier)) for earlier in found]
    return found


@given(orders())
def test_the_graph_engine_keeps_the_capture_whatever_memory_asks_for(drawn):
    capture, true = drawn
    plan = ENGINES["graph"].plan(program_of(capture, true), lambda launch: 1.0)
    assert replay_of(plan).edges == capture
    assert order_of(replay_of(plan).steps) == closure(capture)


@given(orders(), st.lists(st.integers(1, 50), min_size=12, max_size=12), st.integers(2, 12))
def test_every_order_that_is_tried_keeps_what_is_needed_and_says_what_it_is(drawn, lengths, streams):
    capture, true = drawn
    plan = graph_dual.plan(program_of(capture, true, Raw()), lambda launch: 1e3 * lengths[launch.operation], streams)
    needed, as_captured = closure(true), closure(capture)
    if needed == as_captured:
        assert (plan.others, plan.order) == ((), "the capture's own order")
        assert replay_of(plan).edges == capture
        return
    widest = graph_dual.plan(program_of(capture, true, Raw()), lambda launch: 1e3 * lengths[launch.operation])
    assert widest.order == "fewest edges"
    assert everything_before(replay_of(widest).edges) == order_of(replay_of(widest).steps) == needed
    assert (plan.order == "fewest edges") == (widest.streams <= streams)  # CUDA could run more branches at a time than were asked for.
    assert plan.others[-1].order == "the capture's own order"
    for other in (*([] if plan.order == "fewest edges" else [plan]), *plan.others):
        order = everything_before(replay_of(other).edges)
        assert order == order_of(replay_of(other).steps)
        assert all(few <= many for few, many in zip(needed, order, strict=True))
        if other is plan.others[-1]:
            assert (other.order, order) == ("the capture's own order", everything_before(capture))
            continue
        assert other.streams <= int(other.order.split()[0]) <= min(streams, widest.streams - 1)
        lanes = {}
        for step in replay_of(other).steps:
            if isinstance(step, Issue):
                lanes.setdefault(step.lane, []).append(step.launch.operation)
        for lane in lanes.values():
            assert all(set(lane[:index]) <= order[number] for index, number in enumerate(lane))


@given(orders())
def test_the_edges_of_steps_are_the_fewest_that_order_the_same(drawn):
    capture, _ = drawn
    steps = replay_of(ENGINES["graph"].plan(captured(capture), lambda launch: 1.0)).steps
    edges = edges_of(steps, len(capture))
    assert closure(edges) == closure(capture)
    for earlier in edges:
        assert all(one not in closure(edges)[other] for one in earlier for other in earlier)


GPU = SimpleNamespace(info=SimpleNamespace(simulated=False))
CHAIN_OF_NINE = tuple((number - 1,) if number else () for number in range(9))
EIGHT_BRANCHES = ((), *[(0,)] * 8)


@pytest.mark.parametrize(
    ("times_us", "order"),
    [
        ([634, 655, 650, 640, 635, 1100], "fewest edges"),
        ([655, 700, 650, 634, 635, 1100], "4 streams"),
        ([589, 600, 595, 590, 590, 402], "the capture's own order"),
    ],
)
def test_the_fastest_order_is_taken(times_us, order):
    raw = Raw(times_us)
    plan = graph_dual.plan(program_of(CHAIN_OF_NINE, EIGHT_BRANCHES, raw), lambda launch: 1e4, streams=8)
    # By rank and in program order is the same here, and is tried once.
    streams = [f"{count} streams" for count in (2, 3, 4, 6)]
    assert [one.order for one in (plan, *plan.others)] == ["fewest edges", *streams, "the capture's own order"]
    taken = graph_dual.fastest(plan, GPU)
    assert raw.asked == [replay_of(one).edges for one in (plan, *plan.others)]
    assert raw.added[1] == (0, 1, 3, 5, 7, 2, 4, 6, 8)  # One stream after the other.
    assert all(sorted(each) == list(range(9)) for each in raw.added)
    assert taken.order == order
    assert taken.others == ()
    assert replay_of(taken) == replay_of(next(one for one in (plan, *plan.others) if one.order == order))


@given(st.lists(st.integers(100, 130), min_size=6, max_size=6), st.lists(st.integers(105, 140), min_size=6, max_size=6))
def test_of_orders_that_are_nearly_the_fastest_the_one_is_taken_that_the_host_waits_least_for(times_us, waits_us):
    raw = Raw(times_us, waits_us)
    plan = graph_dual.plan(program_of(CHAIN_OF_NINE, EIGHT_BRANCHES, raw), lambda launch: 1e4, streams=8)
    taken = graph_dual.fastest(plan, GPU)
    near = [one for one in sorted(times_us) if one <= 1.05 * min(times_us)]
    assert raw.once_more == (near if len(near) > 1 else [])  # One alone is not measured again.
    number = next(number for number, one in enumerate((plan, *plan.others)) if replay_of(one) == replay_of(taken))
    assert times_us[number] in near
    assert waits_us[number] == min(wait for wait, one in zip(waits_us, times_us, strict=True) if one in near)


def test_what_was_taken_is_said():
    def chosen(*times_us, waits_us=None):
        plan = graph_dual.plan(program_of(CHAIN_OF_NINE, EIGHT_BRANCHES, Raw(times_us, waits_us)), lambda launch: 1e4, streams=8)
        return graph_dual.fastest(plan, GPU).chosen

    own = "the capture's own order 1.11 ms"
    said = f"taken of 6 orders: 4 streams 634 µs; then 6 streams 635 µs and 3 streams 650 µs; {own}"
    assert chosen(660, 655, 650, 634, 635, 1113) == said
    said = f"taken of 6 orders: fewest edges 600 µs; then 4 streams 634 µs and 6 streams 635 µs; {own}"
    assert chosen(600, 655, 650, 634, 635, 1113) == said
    said = f"taken of 6 orders, by how long the host waits: 4 streams 610 µs; then fewest edges 600 µs and 6 streams 635 µs; {own}"
    assert chosen(600, 655, 650, 610, 635, 1113, waits_us=[640, 655, 650, 630, 635, 1113]) == said
    said = "taken of 6 orders: the capture's own order 402 µs; then 2 streams 589 µs and fewest edges 590 µs"
    assert chosen(590, 589, 595, 600, 600, 402) == said


def test_of_two_orders_both_are_said():
    program = program_of(CHAIN_OF_NINE[:2], ((), ()), Raw([451, 473]))
    plan = graph_dual.fastest(graph_dual.plan(program, lambda launch: 1e4), GPU)
    assert plan.chosen == "taken of 2 orders: fewest edges 451 µs; the capture's own order 473 µs"


def test_streams_are_filled_by_rank_and_in_program_order():
    # Two kernels and a chain of four: by rank the chain comes first, and the two share the other stream.
    edges = ((), (), (), (2,), (3,), (4,))
    plan = graph_dual.plan(program_of(CHAIN_OF_NINE[:6], edges, Raw()), lambda launch: 1e4)
    assert [one.order for one in plan.others[:-1]] == ["2 streams", "2 streams in program order"]
    assert replay_of(plan.others[0]).edges == ((), (0,), (), (2,), (3,), (4,))
    assert replay_of(plan.others[1]).edges == ((), (), (0,), (2,), (3,), (4,))


def test_streams_that_begin_one_after_another_are_tried_where_they_make_a_difference():
    # Three kernels of 1 µs: a second stream begins more than that later, so by that count it only takes the last of them.
    plan = graph_dual.plan(program_of(CHAIN_OF_NINE[:3], ((),) * 3, Raw()), lambda launch: 1e3)
    assert [one.order for one in plan.others[:-1]] == ["2 streams", "2 streams begun in turn"]
    assert [replay_of(one).edges for one in plan.others[:-1]] == [((), (), (0,)), ((), (0,), ())]


@pytest.mark.parametrize(("streams", "tried"), [(2, [2]), (5, [2, 3, 4, 5]), (7, [2, 3, 4, 6, 7]), (128, [2, 3, 4, 6])])
def test_orders_are_laid_on_no_more_streams_than_were_asked_for(streams, tried):
    tried = [*tried]
    plan = graph_dual.plan(program_of(CHAIN_OF_NINE, EIGHT_BRANCHES, Raw()), lambda _: 1e4, streams)
    names = [one.order for one in (plan, *plan.others)]
    # The fewest edges leave eight branches to CUDA, which may run all of them at a time.
    fewest = ["fewest edges"] if streams >= 8 else []
    # The freest is the first: where something hangs, it hangs there.
    first = fewest or [f"{tried.pop()} streams"]
    assert names == [*first, *(f"{count} streams" for count in tried), "the capture's own order"]


@pytest.mark.parametrize("streams", [0, 129])
def test_streams_out_of_range_are_refused_for_captured_code_too(streams):
    with pytest.raises(EngineError, match="streams"):
        graph_dual.plan(program_of(CHAIN_OF_NINE, EIGHT_BRANCHES, Raw()), lambda launch: 1e4, streams)


def test_more_branches_than_streams_are_shared_out_evenly():
    roots = ((),) * (3 * MOST_STREAMS)
    stream_of = own_branches(captured(roots).operations, roots)
    assert Counter(stream_of(launch) for launch in captured(roots).launches()) == dict.fromkeys(range(MOST_STREAMS), 3)


def test_one_stream_is_the_capture():
    plan = graph_dual.plan(program_of(CHAIN_OF_NINE, EIGHT_BRANCHES, Raw()), lambda launch: 1e4, streams=1)
    assert replay_of(plan).edges == CHAIN_OF_NINE
    assert plan.others == ()


def nothing(arrays):
    """Return what a node of captured code leaves."""
    return [np.zeros(0, np.uint8)]


def test_the_order_that_is_predicted_to_be_the_fastest_is_the_fastest_in_simulated_runs():
    captured = ss.load_captured("notebooks/recorded/captured/mixture_of_experts.captured.json")
    taken = ss.prepare(captured, engine="graph-dual", streams=8, progress=False).plan

    def run_us(plan):
        device = SimulatedDevice()
        prepared = Prepared(plan, device)
        prepared.capture()
        start_ns = device.now_ns()
        prepared.run()
        prepared.wait()
        return (device.now_ns() - start_ns) / 1e3

    made = graph_dual.plan(captured.program, SimulatedDevice().estimate_ns, 8)
    times_us = {one.order: run_us(one) for one in (replace(made, others=()), *made.others)}
    assert times_us[taken.order] <= 1.01 * min(times_us.values())
    assert f"{taken.order} {time_text(1e3 * times_us[taken.order])}" in taken.chosen


def test_a_simulated_device_measures_nothing_and_takes_what_is_predicted():
    raw = Raw()
    program = program_of(CHAIN_OF_NINE, EIGHT_BRANCHES, raw)
    cost = Cost(0, blocks=4, threads=128, alone_ns=20_000.0)
    operations = tuple(replace(one, work=(replace(one.launches[0], cost=cost, reference=nothing),)) for one in program.operations)
    plan = planned(replace(program, operations=operations), "graph-dual", SimulatedDevice(), 8)
    assert raw.asked == []
    assert plan.order == "fewest edges"
    assert plan.chosen.startswith("taken of 6 orders, as predicted: fewest edges ")


@pytest.mark.parametrize(("order", "branches"), [("fewest edges", 8), ("8 streams in program order", None), ("", None)])
def test_a_trace_tells_the_branches_of_a_graph_that_is_on_no_streams(order, branches):
    wide = graph_dual.plan(program_of(CHAIN_OF_NINE, EIGHT_BRANCHES, Raw()), lambda launch: 1e4)
    assert replace(wide, order=order).counts.get("branches") == branches
