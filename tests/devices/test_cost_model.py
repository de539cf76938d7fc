"""The cost model: its arithmetic, its file, and what it refuses."""

import json
import math
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamscope.devices.cost_model import CostModel
from streamscope.devices.product_times import ProductTimes
from streamscope.errors import DeviceError
from streamscope.program.launch import Cost, Launch, LaunchKind, Product

H200 = CostModel.load()
TABLE = ProductTimes(((1.0, ((64.0, 2000.0), (128.0, 4000.0))), (2.0, ((64.0, 2000.0), (128.0, 4000.0)))))
# The shortest working kernel takes 50 ns, of which its 48 bytes a thread take 10.
SMALL = replace(
    H200,
    multiprocessors=10,
    threads_per_multiprocessor=1000,
    blocks_per_multiprocessor=4,
    throughput_points=((0, 0), (250, 0.5), (1000, 1)),
    memory_gb_s=100,
    cache_gb_s=1000,
    cache_mb=1,
    thread_gb_s=4.8,
    stage_ns=7,
    stage_block_ns=3,
    plain_tflops=1,
    matrix_tflops=10,
    product_times={"matmul float16": TABLE},
    null_kernel_ns=50,
    working_kernel_ns=50,
)

products = st.builds(
    Product,
    kind=st.sampled_from(["matmul", "convolution", "weight_gradient", "pointwise"]),
    dtype=st.sampled_from(["float16", "float32", "float64"]),
    count=st.integers(1, 100),
    rows=st.integers(1, 10**5),
    inner=st.integers(1, 10**5),
    columns=st.integers(1, 10**5),
)
costs = st.builds(
    Cost,
    bytes=st.integers(0, 10**12),
    flops=st.integers(0, 10**15),
    blocks=st.integers(0, 10**6),
    threads=st.integers(0, 1024),
    stages=st.integers(0, 3),
    product=st.none() | products,
)


def matmul(inner, dtype="float16"):
    return Product("matmul", dtype, 1, 64, inner, 64)


@pytest.mark.parametrize(
    ("cost", "ns"),
    [
        (Cost(bytes=0, blocks=1), 50),
        (Cost(bytes=0, blocks=1, stages=2), 50),  # empty
        (Cost(bytes=10**7, blocks=40, threads=250), 40 + math.hypot(100_000, 10**7 / 48_000)),  # from memory; all threads wait for it
        (Cost(bytes=10**6, blocks=40, threads=250), 40 + math.hypot(1000, 10**6 / 48_000)),  # in the cache
        (Cost(bytes=10**6, blocks=4000, threads=250), 40 + math.hypot(1000, 10**6 / 48_000)),  # no more are resident
        (Cost(bytes=10**6, blocks=1, threads=250), 40 + math.hypot(1000, 10**6 / 1200)),  # few threads have few bytes under way
        (Cost(bytes=10**6, blocks=40, threads=125), 40 + math.hypot(1000, 10**6 / 24_000)),  # 4 blocks of 125 are all that is resident
        (Cost(bytes=12_000, blocks=1, threads=250), 40 + math.hypot(12, 10)),  # 48 bytes a thread
        (Cost(bytes=1200, blocks=1, threads=250), 50),  # nothing that works on memory is shorter
        (Cost(bytes=12_000, blocks=1, threads=250, stages=2), 54 + math.hypot(12, 10)),
        (Cost(bytes=12_000, blocks=110, threads=250, stages=2), 54 + 10 * 2 * 3),  # 10 more blocks on each multiprocessor
        (Cost(bytes=0, flops=10**6, blocks=40, threads=250), 1000),  # 1,000 flops a ns
        (Cost(bytes=0, flops=10**6, blocks=10, threads=250), 2000),  # one block each: half the throughput
        (Cost(bytes=0, flops=10**6, blocks=5, threads=250), 4000),  # on half of the multiprocessors
        (Cost(bytes=0, flops=10**6, blocks=20, threads=250), 1500),  # 500 threads: 2/3 of the throughput
        (Cost(bytes=0, flops=10**6, blocks=40, threads=250, product=matmul(9, "float32")), 1000),  # without a table, flops count
        (Cost(bytes=0, flops=10**6, blocks=40, threads=250, product=matmul(9)), 100),  # rows that are not aligned have no table here
        (Cost(bytes=100, flops=10**9, product=matmul(64)), 2000),
        (Cost(bytes=100, flops=10**9, product=matmul(128)), 4000),
        (Cost(bytes=10**7, blocks=40, threads=250, product=matmul(64)), 40 + 100_000),  # no less than its bytes
    ],
)
def test_a_kernel_alone(cost, ns):
    assert SMALL.kernel_ns(cost) == pytest.approx(ns)


def test_a_kernel_that_starts_and_waits_holds_less():
    busy = SMALL.residency(Cost(bytes=0, flops=10**9, blocks=20, threads=250))
    assert (busy.multiprocessors, busy.threads, busy.load) == pytest.approx((10, 5000, 500), rel=0.01)
    idle = SMALL.residency(Cost(bytes=12_000, blocks=10, threads=25, stages=2))
    moving = math.hypot(12, 10)
    assert (idle.multiprocessors, idle.threads) == pytest.approx((10 * moving / (54 + moving), 250 * moving / (54 + moving)))
    assert SMALL.residency(Cost(bytes=0)).load == 0
    whole = SMALL.residency(Cost(bytes=12_000, blocks=10, threads=25, stages=2, per_multiprocessor=1))
    assert whole.multiprocessors > idle.multiprocessors  # It is kept for all its time, also while little is done.


def launch(*, library=False, **cost):
    return Launch(0, 0, "launch", LaunchKind.KERNEL, (), (), Cost(**({"bytes": 0} | cost)), None, library=library)


def test_a_launch_of_two_kernels():
    first, second = Cost(bytes=12_000, blocks=1, threads=250), Cost(bytes=0)
    both = launch(bytes=12_000, blocks=1, threads=250, then=second)
    assert [piece.cost for piece in SMALL.pieces(both)] == [replace(first, then=second), second]
    assert [piece.alone_ns for piece in SMALL.pieces(both)] == [SMALL.kernel_ns(first), 50]
    assert SMALL.estimate_ns(both) == SMALL.kernel_ns(first) + 50


def test_what_calls_cost_the_host():
    model = replace(SMALL, launch_ns=1, matmul_launch_ns=2, convolution_launch_ns=4, library_launch_ns=8)
    assert model.call_ns(launch()) == 1
    assert model.call_ns(launch(then=Cost(0))) == 2
    assert model.call_ns(launch(library=True, product=matmul(8))) == 2
    for kind in ("convolution", "data_gradient", "weight_gradient", "pointwise"):
        assert model.call_ns(launch(library=True, product=replace(matmul(8), kind=kind))) == 4
    assert model.call_ns(launch(library=True)) == 8


@given(costs, st.integers(1, 20))
def test_more_work_and_fewer_blocks_never_take_less_time(cost, factor):
    taken = H200.kernel_ns(cost)
    assert math.isfinite(taken)
    assert taken >= H200.null_kernel_ns
    assert H200.kernel_ns(replace(cost, bytes=cost.bytes * factor, flops=cost.flops * factor)) >= taken
    assert H200.kernel_ns(replace(cost, stages=cost.stages + factor)) >= taken
    if not cost.stages:  # Each block that waits for its threads holds the multiprocessor up.
        assert H200.kernel_ns(replace(cost, blocks=cost.blocks * factor)) <= taken * (1 + 1e-9)


@given(costs)
def test_a_kernel_holds_no_more_than_there_is(cost):
    held = H200.residency(cost)
    assert 0 <= held.multiprocessors <= H200.multiprocessors
    assert 0 <= held.threads <= H200.multiprocessors * H200.threads_per_multiprocessor


@pytest.mark.parametrize("name", sorted(H200.product_times))
def test_products_of_the_built_in_model_are_of_a_plausible_speed(name):
    kind, dtype, *_ = name.split()
    for tiles in (1, 100, 10_000):
        for inner in (64, 1000, 10_000):
            product = Product(kind, dtype, 1, 64 * tiles, inner, 64)
            tflops = 2 * tiles * 64 * 64 * inner / H200.product_times[name].of(product) / 1e3
            assert tflops < {"float16": 990, "float32": 495, "float64": 67}[dtype]  # NVIDIA's data sheet, float32 as TF32


@given(st.floats(1, 5000), st.floats(1, 5000))
def test_threads_share_what_they_get(load, more):
    assert H200.efficiency(load + more) <= H200.efficiency(load) * (1 + 1e-9)
    assert H200.throughput(load + more) >= H200.throughput(load)


def test_copies():
    model = replace(H200, copy_in_latency_ns=100, copy_out_latency_ns=100, bus_in_gb_s=2, bus_out_gb_s=4)
    assert model.copy_ns(Cost(bytes=1000), LaunchKind.COPY_IN) == 600
    assert model.copy_ns(Cost(bytes=1000), LaunchKind.COPY_OUT) == 350
    with pytest.raises(DeviceError, match="kernel was priced as a copy"):
        model.copy_ns(Cost(bytes=1000), LaunchKind.KERNEL)


@pytest.mark.parametrize(("nodes", "ns"), [(0, 100), (1, 100), (2, 150), (3, 200), (5, 260), (10, 410)])
def test_points_are_joined_by_lines_and_the_last_goes_on(nodes, ns):
    model = replace(H200, graph_launch_points=((1, 100), (3, 200), (4, 230)))
    assert model.graph_launch_ns(nodes) == pytest.approx(ns)


def test_a_model_survives_its_file(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(H200.to_dict()))
    assert CostModel.load(path) == H200
    assert CostModel.load(str(path)) == H200


def test_every_number_of_the_built_in_model_says_how_it_was_found():
    assert set(H200.provenance.how) == {item.name for item in fields(CostModel)} - {"provenance"}


@pytest.mark.parametrize("item", [item.name for item in fields(CostModel)])
def test_every_key_is_needed_and_explained(item):
    assert item in (CostModel.__doc__ or "")
    values = H200.to_dict()
    del values[item]
    with pytest.raises(DeviceError, match=f"lacks {item}"):
        CostModel.from_dict(values)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"speed": 1}, "unknown speed"),
        ({"launch_ns": "3030"}, "launch_ns is '3030', expected a number"),
        ({"launch_ns": True}, "launch_ns is True"),
        ({"launch_ns": -1}, "launch_ns is -1, expected a number above 0"),
        ({"launch_ns": float("nan")}, "launch_ns is nan"),
        ({"multiprocessors": 1.5}, "multiprocessors is 1.5, expected a whole number"),
        ({"queue_depth": 0}, "queue_depth is 0"),
        ({"graph_launch_points": [[1, 1300]]}, "two or more pairs"),
        ({"graph_launch_points": [[1, 1300, 4], [2, 3, 4]]}, "two or more pairs"),
        ({"graph_launch_points": 5}, "two or more pairs"),
        ({"graph_launch_points": [[1, "x"], [2, 3]]}, "has 'x'"),
        ({"graph_launch_points": [[2, 1], [1, 1]]}, "must grow"),
        ({"throughput_points": [[0, 0], [1024, 1]]}, r"expected from \(0, 0\) to \(2048, 1\)"),
        ({"throughput_points": [[0, 0], [1024, 0.1], [2048, 1]]}, "rise ever more slowly"),
        ({"throughput_points": [[0, 0], [1024, 1.5], [2048, 1]]}, "rise ever more slowly"),
        ({"event_pair_gated_excess_ns": 1300}, "event_pair_gated_excess_ns = 1300 is \\d+ ns less than"),
        ({"event_pair_graph_excess_ns": 100}, "event_pair_graph_excess_ns = 100 is \\d+ ns less than"),
        ({"product_times": 5}, "product_times is 5, expected tables by name"),
        ({"product_times": {"matmul float16": [[1, 2]]}}, "product_times 'matmul float16' of 1 tiles is 2"),
        ({"provenance": None}, "provenance is None"),
        ({"provenance": {"device": "NVIDIA H200"}}, "lacks date, driver, how, versions"),
    ],
)
def test_an_impossible_model_is_refused(change, message):
    with pytest.raises(DeviceError, match=message):
        CostModel.from_dict(H200.to_dict() | change)


def test_a_model_that_is_not_there_or_not_json_is_our_error(tmp_path):
    with pytest.raises(DeviceError, match=r"no cost model 'h300'.*one of: .*h200"):
        CostModel.load("h300")
    with pytest.raises(DeviceError, match="no cost model"):
        CostModel.load(tmp_path)
    broken = tmp_path / "broken.json"
    broken.write_text('{"launch_ns": 30')
    with pytest.raises(DeviceError, match="is not JSON"):
        CostModel.load(broken)
    broken.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DeviceError, match="is not JSON"):
        CostModel.load(broken)
    with pytest.raises(DeviceError, match="mapping of names to numbers, not list"):
        CostModel.from_dict([])
