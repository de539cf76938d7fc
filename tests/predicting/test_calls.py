"""What a trace tells of its host, by hand."""

from dataclasses import replace

import pytest

from streamscope.devices.cost_model import CostModel, KernelCost
from streamscope.predicting.calls import (
    LONGER_KERNEL_GAP_NS,
    LONGER_NODE_GAP_NS,
    _event_ns,
    _last_wait_ns,
    _share_of_longer,
    host_of,
    pace_of,
)
from streamscope.predicting.tasks import Task
from streamscope.program.launch import Cost
from streamscope.trace import Basis, DeviceInfo, SpanBuilder, SpanKind, SpanTable, Trace, TraceInfo
from streamscope.trace.origins import Trait

H200 = CostModel.load()


def task(alone_ns, trait=Trait.CAPTURED):
    return Task((0, 0), "k", trait, (), pieces=(KernelCost(alone_ns, Cost(0, 0)),))


def test_the_share_of_long_kernels_counts_those_up_to_twice_as_long_in_part():
    shortest_ns = H200.working_kernel_ns
    tasks = [*(task(times * shortest_ns) for times in (0.5, 1, 1.5, 3)), task(9 * shortest_ns, Trait.LIBRARY)]
    assert _share_of_longer(tasks, H200) == pytest.approx(1.5 / 5)
    assert _share_of_longer([*tasks, replace(task(0.0), trait=Trait.HOST)], H200) == pytest.approx(1.5 / 5)
    assert _share_of_longer([], H200) == 0


def test_calls_that_a_trace_does_not_have_take_as_many_times_as_long_as_those_that_it_has():
    trace = Trace(SpanTable.of(), TraceInfo("async", "p", DeviceInfo("simulated", "card")))
    plain = Task((0, 0), "k", Trait(0), (), call_ns=2 * H200.launch_ns)
    found = host_of(trace, [plain, task(5.0)], H200).model  # A call of captured code is of another kind.
    for name in ("event_record_ns", "stream_wait_ns", "graph_root_ns", "graph_leaf_ns"):
        assert getattr(found, name) == 2 * getattr(H200, name)
    assert found.graph_launch_ns(3) == pytest.approx(2 * H200.graph_launch_ns(3))
    assert (found.kernel_gap_ns, found.launch_ns) == (H200.kernel_gap_ns, H200.launch_ns)


def test_gaps_behind_long_kernels_are_longer_but_on_the_simulated_device():
    tasks = [task(9 * H200.working_kernel_ns), task(0.0)]
    measured, simulated = (
        host_of(Trace(SpanTable.of(), TraceInfo("async", "p", DeviceInfo(kind, "card"))), tasks, H200).model
        for kind in ("cuda", "simulated")
    )
    assert measured.kernel_gap_ns == H200.kernel_gap_ns + LONGER_KERNEL_GAP_NS / 2
    assert measured.graph_node_gap_ns == H200.graph_node_gap_ns + LONGER_NODE_GAP_NS / 2
    assert (simulated.kernel_gap_ns, simulated.graph_node_gap_ns) == (H200.kernel_gap_ns, H200.graph_node_gap_ns)


@pytest.mark.parametrize(("spans", "wait_ns"), [
    ([("launch", "a", "host", 0, 3, 0), ("sync", "wait", "host", 3, 20), ("sync", "wait", "host", 20, 22)], 2),
    ([("sync", "wait", "host", 0, 3), ("sync", "wait", "host", 3, 5)], 2),
    ([("launch", "a", "host", 0, 3, 0), ("sync", "wait", "host", 3, 20)], 0), ([("sync", "wait", "host", 0, 3)], 0),
])  # fmt: skip
def test_the_last_wait_is_one_for_nothing_behind_another(spans, wait_ns):
    assert _last_wait_ns(Trace(SpanTable.of(*spans), TraceInfo("async", "p", DeviceInfo("cuda", "card")))) == wait_ns


@pytest.mark.parametrize(("launches", "hosts", "pace"), [(8, 0, 1.5), (8, 1, 1.5), (7, 0, 1), (7, 1, 1)])
def test_eight_launches_that_were_waited_for_tell_the_pace_of_the_host(launches, hosts, pace):
    """Calls took 1 µs each, 100 ns of each wait are no call's; a usual run takes so long that calls take 1.5 µs."""
    tasks = [
        Task((number, 0), "k", Trait.HOST if number >= launches else Trait(0), (), call_ns=1_000) for number in range(launches + hosts)
    ]
    trace = Trace(SpanTable.of(), TraceInfo("sync", "p", DeviceInfo("cuda", "card")))
    waits = {(number, 0): 100.0 for number in range(launches)}
    assert pace_of(trace, tasks, waits, 1_500 * len(tasks) + 100 * launches) == pytest.approx(pace)


@pytest.mark.parametrize(
    ("basis", "rows", "trait", "event_ns"),
    [
        (Basis.DERIVED, (0,), Trait.CAPTURED, 300), (Basis.MEASURED, (0,), Trait.CAPTURED, 0), (Basis.DERIVED, (), Trait.CAPTURED, 300),
        (Basis.DERIVED, (), Trait.HOST, 0),
    ],
)  # fmt: skip
def test_an_event_delays_who_waits_for_a_launch_that_does_not_stamp_itself(basis, rows, trait, event_ns):
    builder = SpanBuilder(["main"])
    builder.add(SpanKind.KERNEL, "k", "main", 0, 5, basis=basis)
    trace = Trace(builder.build(), TraceInfo("sync", "p", DeviceInfo("cuda", "card"), calibration={"end_latency_ns": 300.0}))
    assert _event_ns(trace, replace(task(5.0, trait), rows=rows)) == event_ns


def test_a_call_goes_on_for_as_long_as_the_wait_behind_it_is_shorter_than_others():
    """Waits take 7, 9 and 30 ns beyond what ran, in the median of the kernels 8. That of a copy tells nothing of kernels."""
    builder, tasks, now_ns = SpanBuilder(["host", "main"]), [], 0
    works = (("a", Trait(0), 10, 7), ("b", Trait(0), 20, 9), ("x", Trait.COPY_IN, 15, 30))
    for number, (name, trait, takes_ns, waits_ns) in enumerate(works):
        builder.add(SpanKind.LAUNCH, name, "host", now_ns, now_ns + 3, operation=number)
        end_ns = now_ns + 3 + takes_ns + waits_ns
        builder.add(SpanKind.SYNC, "wait", "host", now_ns + 3, end_ns)
        tasks.append(replace(task(float(takes_ns), trait), place=(number, 0), name=name, call_ns=3.0))
        now_ns = end_ns
    found = host_of(Trace(builder.build(), TraceInfo("sync", "p", DeviceInfo("cuda", "card"))), tasks, H200)
    assert found.tails_ns == {"a": pytest.approx(1), "b": 0}
    assert found.model.launch_latency_ns + found.model.synchronize_return_ns == pytest.approx(8)
