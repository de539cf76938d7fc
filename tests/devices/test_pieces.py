"""Launches of several kernels on the simulated device, at prices that somebody else gives."""

from dataclasses import dataclass, replace
from functools import partial
from math import inf

import numpy as np
import pytest

import streamscope as ss
from streamscope.devices.cost_model import CostModel, KernelCost, Residency
from streamscope.devices.link_model import LinkModel, part_begins_ns
from streamscope.devices.simulated import SimulatedDevice
from streamscope.devices.simulated.core import Timeline
from streamscope.devices.simulated.execution import Multiprocessors
from streamscope.engines.prepare import prepare
from streamscope.recording.device_log import DeviceLogRecorder
from streamscope.trace import SpanKind
from streamscope.trace.spans import DEVICE_KINDS


@dataclass
class Given:
    """Every launch takes 5 µs to launch, the last 2 of them when it is on its stream, and has three kernels of 1, 2 and 3 µs."""

    def call_ns(self, launch):
        return 5_000.0

    def tail_ns(self, launch):
        return 2_000.0

    def pieces(self, launch):
        return [KernelCost(alone_ns, launch.cost) for alone_ns in (1_000.0, 2_000.0, 3_000.0)]


@pytest.mark.parametrize(("engine", "gap"), [("async", "kernel_gap_ns"), ("graph", "graph_node_gap_ns")])
def test_kernels_of_a_launch_follow_each_other_and_its_results_are_there_at_the_end(engine, gap):
    device = SimulatedDevice(prices=Given())
    x = np.ones(8, np.float32)
    prepared = prepare(lambda x: ss.ops.relu(x + 1) * 2, x, engine=engine, device=device)
    for _ in range(3):
        prepared.load([x])
        prepared.run()
        (result,) = prepared.outputs()
    np.testing.assert_array_equal(result, np.full(8, 4, np.float32))
    spans = DeviceLogRecorder(device, device.log).record(prepared).spans
    kernels = spans.of_kind([SpanKind.KERNEL])
    assert kernels.duration_ns.tolist() == [1_000, 2_000, 3_000] * (len(kernels) // 3)
    assert kernels.operation.tolist() == sorted(kernels.operation.tolist())
    gaps = kernels.start_ns[1:] - kernels.end_ns[:-1]
    within = kernels.operation[1:] == kernels.operation[:-1]
    assert set(gaps[within].tolist()) == {round(getattr(device.model, gap))}
    if engine == "async":
        launches = spans.of_kind([SpanKind.LAUNCH])
        assert set(launches.duration_ns.tolist()) == {5_000}
        assert kernels.start_ns[0] - launches.end_ns[0] == device.model.launch_latency_ns - 2_000


@dataclass
class Whole:
    """Kernels whose blocks take multiprocessors whole, or half where the sizes say so: how long alone, and on how many, by operation."""

    sizes: tuple

    def call_ns(self, launch):
        return 1.0

    def tail_ns(self, launch):
        return 0.0

    def pieces(self, launch):
        alone_ns, multiprocessors, *half = self.sizes[launch.operation]
        return [KernelCost(alone_ns, launch.cost, Residency(multiprocessors, multiprocessors * 2048, whole=not half, half=bool(half)))]


LATER_NS = round(CostModel.load().graph_root_ns)
"""The second one starts so much later: the host puts both on the device, one after the other."""
START_NS = round(CostModel.load().working_kernel_ns)
"""While blocks of one end, those of the next one start already."""


@pytest.mark.parametrize(("sizes", "durations"), [
    (((100_000, 60), (80_000, 72)), [100_000, 80_000]),  # both fit on 132 multiprocessors
    (((100_000, 72), (80_000, 98)), [100_000, 160_000 - START_NS]),  # 60 are left: 60 blocks at once, 38 after these
    (((100_000, 128), (80_000, 128)), [100_000, 180_000 - LATER_NS - START_NS]),  # 4 are left, so the second waits for the first
    (((100_000, 128), (80_000, 8, "half")), [100_000, 80_000]),  # 8 blocks fit on the 4 that are left
    (((100_000, 128), (80_000, 14, "half")), [100_000, 160_000 - START_NS]),  # 8 at once, 6 after these
    (((100_000, 132), (80_000, 14, "half")), [100_000, 180_000 - LATER_NS - START_NS]),  # none is left
    (((100_000, 14, "half"), (80_000, 118)), [100_000, 80_000]),
    (((100_000, 14, "half"), (80_000, 128)), [100_000, 160_000 - START_NS]),  # 118 are left: 118 blocks at once, 10 after these
    (((100_000, 60, "half"), (80_000, 72, "half")), [100_000, 80_000]),
])  # fmt: skip
def test_kernels_that_take_multiprocessors_whole_or_half_get_those_that_are_left_or_wait(sizes, durations):
    device = SimulatedDevice(prices=Whole(sizes))
    x = np.ones(8, np.float32)
    prepared = prepare(lambda x: (ss.ops.relu(x), x + 1), x, engine="graph-dual", device=device)
    for _ in range(2):
        prepared.load([x])
        prepared.run()
        prepared.wait()
    spans = DeviceLogRecorder(device, device.log).record(prepared).spans
    kernels = spans.of_kind([SpanKind.KERNEL])
    assert kernels.start_ns[1] - kernels.start_ns[0] == LATER_NS
    assert kernels.duration_ns[np.argsort(kernels.operation)].tolist() == durations


@pytest.mark.parametrize(("multiprocessors", "rounds"), [(100, 1), (108, 1), (109, 2), (120, 2)])
def test_a_kernel_whose_blocks_would_run_at_once_needs_a_second_round_beside_a_collective(multiprocessors, rounds):
    """The all-reduce of 4 MiB has 24 channels on each GPU, so 108 of 132 multiprocessors are left to the last kernel."""
    links, alone_ns = LinkModel.load(), 80_000
    device = SimulatedDevice(prices=Whole(((1_000_000, 24), (10_000, 8), (alone_ns, multiprocessors))), gpus=2)
    x = np.ones(1 << 20, np.float32)

    def beside(x, y):
        summed = ss.ops.all_reduce([x, y])
        return *summed, ss.ops.tanh(ss.ops.relu(x))

    prepared = prepare(beside, x, x, engine="graph-dual", device=device)
    assert device.channels(prepared.program.operations[0].launches[0].collective) == 24
    prepared.run()
    prepared.wait()
    spans = DeviceLogRecorder(device, device.log).record(prepared).spans
    (last,) = np.flatnonzero((spans.operation == 2) & (spans.kind == SpanKind.KERNEL))
    slowed_ns = round(alone_ns / links.kernel_speed_beside("elementwise", x.nbytes, "communication"))
    expected = slowed_ns if rounds == 1 else 2 * alone_ns - START_NS
    assert spans.duration_ns[last] == pytest.approx(expected, abs=1)


def test_the_blocks_that_a_collective_held_up_begin_when_it_ends():
    """Not when the first round ends: a product behind a short all-reduce took 90 µs instead of 52, by CUPTI on two H100."""
    alone_ns = 200_000
    device = SimulatedDevice(prices=Whole(((100_000, 24), (10_000, 8), (alone_ns, 120))), gpus=2)
    x = np.ones(1 << 20, np.float32)
    prepared = prepare(lambda x, y: (*ss.ops.all_reduce([x, y]), ss.ops.tanh(ss.ops.relu(x))), x, x, engine="graph-dual", device=device)
    for _ in range(2):
        prepared.run()
        prepared.wait()
    spans = DeviceLogRecorder(device, device.log).record(prepared).spans
    (last,) = np.flatnonzero((spans.operation == 2) & (spans.kind == SpanKind.KERNEL))
    reduced_ns = spans.end_ns[(spans.operation == 0) & (spans.kind == SpanKind.KERNEL)].max()
    assert spans.start_ns[last] < reduced_ns < spans.start_ns[last] + alone_ns
    assert spans.end_ns[last] - reduced_ns == pytest.approx(alone_ns - START_NS, abs=2)


def test_element_wise_blocks_wait_for_those_of_a_product_and_a_product_for_them():
    timeline, came = Timeline(), {}
    chip = Multiprocessors(timeline, CostModel.load())
    for name, whole in (("product", True), ("relu", False), ("next product", True)):
        chip.start(
            Residency(132, 132 * 384, whole), 10_000, partial(lambda name: came.update({name: timeline.now_ns}), name), product=whole
        )
    timeline.run_to(1_000_000)
    assert came == {"product": 10_000, "relu": 20_000 - START_NS, "next product": 30_000 - 2 * START_NS}


def test_blocks_wait_in_the_order_in_which_their_kernels_came():
    """So a product that comes behind a waiting all-reduce is slowed by it, as two H200 showed by the time between products' ends."""
    timeline, came = Timeline(), {}
    chip = Multiprocessors(timeline, CostModel.load())
    whole = partial(Residency, threads=0, whole=True)

    def at(name):
        return lambda *_: came.update({name: timeline.now_ns})

    chip.start(whole(128), 100_000, at("first"), product=True)
    chip.start(Residency(24, 24 * 544), inf, at("never"), beside={True: 0.5, False: 0.5}, resident=at("all-reduce"))
    chip.start(whole(108), 80_000, at("fits beside it"), product=True)
    chip.start(whole(20), 50_000, at("last"), product=True)
    timeline.run_to(1_000_000)
    assert came == {"first": 100_000, "all-reduce": 100_000, "fits beside it": 180_000 - START_NS, "last": 230_000 - 2 * START_NS}


@pytest.mark.parametrize("waited_ns", [0, 10_000])
def test_a_product_is_slowed_by_a_collective_that_comes_later_though_it_waited_for_another_product(waited_ns):
    timeline, came = Timeline(), {}
    chip = Multiprocessors(timeline, CostModel.load())
    whole = partial(Residency, threads=0, whole=True)

    def at(name):
        return lambda *_: came.update({name: timeline.now_ns})

    if waited_ns:
        chip.start(whole(132), waited_ns, at("first"), product=True)
    chip.start(whole(108), 100_000, at("product"), product=True)
    timeline.at(20_000, lambda: chip.start(Residency(24, 24 * 544), inf, at("never"), beside={True: 0.5, False: 0.5}))
    timeline.run_to(1_000_000)
    done_ns = 20_000 - waited_ns + (START_NS if waited_ns else 0)
    assert came["product"] == 20_000 + 2 * (100_000 - done_ns)


@pytest.mark.parametrize(("blocks", "channels", "begins_ns"), [(128, 24, 10_000), (124, 24, 0), (128, 4, 0)])
def test_the_channels_of_a_collective_begin_beside_a_product_where_two_clusters_have_room(blocks, channels, begins_ns):
    timeline, came = Timeline(), {}
    chip = Multiprocessors(timeline, CostModel.load())

    def at(name):
        return lambda *_: came.update({name: timeline.now_ns})

    chip.start(Residency(blocks, blocks * 384, whole=True), 10_000, at("product"), product=True)
    held = Residency(channels, channels * 544)
    chip.start(held, inf, at("never"), beside={True: 1.0, False: 1.0}, begun=at("begun"), resident=at("resident"))
    timeline.run_to(1_000_000)
    assert came == {"product": 10_000, "begun": begins_ns, "resident": begins_ns if channels == 4 else 10_000}


def test_the_last_channels_of_a_collective_need_no_more_room_than_they_have():
    timeline, came = Timeline(), {}
    chip = Multiprocessors(timeline, CostModel.load())
    for blocks, ns in ((118, 10_000), (6, 5_000)):
        chip.start(Residency(blocks, blocks * 384, whole=True), ns, lambda: None, product=True)
    held = Residency(10, 10 * 544)
    chip.start(held, inf, lambda: None, beside={True: 1.0, False: 1.0}, resident=lambda _: came.update(resident=timeline.now_ns))
    timeline.run_to(1_000_000)
    assert came == {"resident": 5_000}


def test_the_channels_of_a_collective_begin_on_whole_multiprocessors():
    timeline, came = Timeline(), {}
    chip = Multiprocessors(timeline, CostModel.load())

    def at(name):
        return lambda *_: came.update({name: timeline.now_ns})

    chip.start(Residency(131.7, 131.7 * 2048), 10_000, at("first"))
    chip.start(Residency(24, 24 * 544), inf, at("never"), beside={True: 0.5, False: 0.5}, begun=at("begun"), resident=at("resident"))
    timeline.run_to(1_000_000)
    assert came == {"first": 10_000, "begun": 10_000, "resident": 10_000}


def nodes_of(function, *inputs):
    """Return the spans of the kernels, copies and parts of a program as one graph over two GPUs, by operation."""
    device = SimulatedDevice(gpus=2)
    prepared = prepare(function, *inputs, engine="graph-dual", device=device)
    for _ in range(2):
        prepared.run()
        prepared.wait()
    spans = DeviceLogRecorder(device, device.log).record(prepared).spans.of_kind(DEVICE_KINDS)
    return device, spans.select(np.argsort(spans.operation, kind="stable"))


def test_a_copy_between_gpus_begins_later_in_a_graph_and_so_does_what_waits_for_it():
    def there(x):
        with ss.gpu(0):
            x = x + 1
        return ss.ops.to_gpu(x, 1) * 2

    device, spans = nodes_of(there, np.ones(8, np.float32))
    model, links = device.model, device.links
    expected = [model.graph_node_gap_ns + longer_ns for longer_ns in (links.graph_copy_ns, links.graph_arrival_ns)]
    assert spans.start_ns[1:] - spans.end_ns[:-1] == pytest.approx(expected, abs=2)


@pytest.mark.parametrize(("priority", "later"), [(0, "graph_behind_ns"), (1, "graph_collective_ns")])
def test_behind_a_collective_of_another_communicator_one_begins_as_behind_a_kernel(priority, later):
    """On two H100 and two H200, a step of six all-reduces of six priorities took 28 to 37 us longer than with one priority."""
    x = np.ones(1 << 20, np.float32)
    device, spans = nodes_of(lambda x, y: ss.ops.all_reduce(ss.ops.all_reduce([x, y]), priority=priority), x, x)
    first, second = (spans.operation == number for number in (0, 1))
    gap_ns = spans.start_ns[second].min() - spans.end_ns[first].max()
    assert gap_ns == pytest.approx(device.model.graph_node_gap_ns + getattr(device.links, later), abs=2)


def test_a_kernel_that_becomes_ready_with_a_collective_is_first_and_takes_the_multiprocessors():
    """By CUPTI on two H100, the second all-to-all of an expert-parallel block began with the end of the product behind the first."""
    x = np.ones((1024, 1024), np.float16)

    def both(x, y):
        first, other = ss.ops.all_reduce([x, y])
        with ss.gpu(0):
            product = first @ first
        return product, other, *ss.ops.all_reduce([x, y])

    device, spans = nodes_of(both, x, x)
    product = spans.operation == 1
    reduced = np.flatnonzero(spans.operation == 2)
    assert spans.start_ns[product] < spans.start_ns[reduced].min()
    assert spans.start_ns[reduced].max() == spans.end_ns[product][0]  # It has 128 blocks, and the four multiprocessors left lie apart.
    transfer_ns = device.links.collective_ns("all_reduce", x.nbytes, 2)
    assert spans.end_ns[reduced] - spans.end_ns[product] == pytest.approx(transfer_ns, abs=2)


def test_a_collective_on_all_multiprocessors_of_a_small_gpu_stops_no_kernel():
    small = replace(CostModel.load(), multiprocessors=20)
    device = SimulatedDevice(small, prices=Whole(((1_000_000, 24), (10_000, 8), (80_000, 8))), gpus=2)
    x = np.ones(1 << 20, np.float32)
    prepared = prepare(lambda x, y: (*ss.ops.all_reduce([x, y]), ss.ops.tanh(ss.ops.relu(x))), x, x, engine="graph-dual", device=device)
    prepared.run()
    prepared.wait()
    np.testing.assert_array_equal(prepared.outputs()[0], 2 * x)


def test_a_graph_over_several_gpus_begins_before_its_launch_ends():
    """The host still puts parts of collectives on them."""
    x = np.ones(8, np.float32)

    def reduced(x, y):
        for _ in range(10):
            x, y = ss.ops.all_reduce([x, y])
        return x, y

    device = SimulatedDevice(gpus=2)
    prepared = prepare(reduced, x, x, engine="graph", device=device)
    for _ in range(2):
        prepared.run()
        prepared.wait()
    spans = DeviceLogRecorder(device, device.log).record(prepared).spans
    (call,) = np.flatnonzero(spans.kind == SpanKind.GRAPH_LAUNCH)
    links, tail_ns = device.links, device.links.graph_tail_ns(2, parts=20)
    assert tail_ns == 20 * links.graph_part_ns
    first_ns = spans.start_ns[spans.kind == SpanKind.KERNEL].min()
    branches_ns = device.model.graph_root_ns + device.model.graph_leaf_ns  # Each GPU has a first and a last node.
    begun_ns = device.model.graph_launch_latency_ns - branches_ns - tail_ns
    assert first_ns - spans.end_ns[call] == pytest.approx(begun_ns, abs=2)


@pytest.mark.parametrize("gpus", [2, 4])
def test_one_call_launches_the_parts_of_a_collective_at_its_end_the_first_gpu_last(gpus):
    """Not spread over the call: GPU 0 would wait in a collective for the rest of the call, and that would seem communication."""
    device = SimulatedDevice(gpus=gpus)
    prepared = prepare(lambda *values: tuple(ss.ops.all_reduce(values)), *[np.ones(8, np.float32)] * gpus, engine="async", device=device)
    spans = DeviceLogRecorder(device, device.log).record(prepared).spans
    (call,), parts = np.flatnonzero(spans.kind == SpanKind.LAUNCH), np.flatnonzero(spans.kind == SpanKind.KERNEL)
    assert spans.duration_ns[call] == round(device.links.call_ns(gpus))
    begins_ns = dict(zip(spans.part[parts].tolist(), (spans.start_ns[parts] - spans.end_ns[call]).tolist(), strict=True))
    assert begins_ns == {part: pytest.approx(part_begins_ns(part, spans.duration_ns[call]), abs=2) for part in range(gpus)}
    assert max(begins_ns, key=begins_ns.__getitem__) == 0
