"""What `streamscope calibrate` sweeps, on the simulated device: measured there, a cost model is found again."""

import math
from dataclasses import replace

import numpy as np
import pytest

from streamscope.calibrating import kernel_sweep, product_sweep
from streamscope.calibrating.kernel_sweep import START, fitted_rates, kernel_steps, traced_kernels
from streamscope.calibrating.launch_times import LaunchTimer
from streamscope.calibrating.product_sweep import product_steps, sweeps, table, traced_case
from streamscope.calibrating.program_times import COUNTS, FEW, MANY, program_times
from streamscope.devices.cost_model import CostModel
from streamscope.devices.product_times import ProductTimes, table_of, tiles_of
from streamscope.devices.simulated import SimulatedDevice
from streamscope.program.launch import Product

H200 = CostModel.load()
RATES = {name: rate * 1.3 for name, rate in START.items()}
MODEL = replace(H200, cache_mb=37.5, **RATES)


@pytest.mark.parametrize("factor", [0.7, 1.0, 1.6])
def test_the_rates_are_found_that_explain_the_times(factor):
    true = replace(H200, **{name: rate * factor for name, rate in START.items()})
    _, launches = traced_kernels()
    steps = [(one.cost, sum(true.graph_node_gap_ns + true.kernel_ns(cost) for cost in one.cost.kernels)) for one in launches]
    found = replace(H200, **fitted_rates(H200, steps))
    for cost, _ in steps:
        assert found.kernel_ns(cost) == pytest.approx(true.kernel_ns(cost), rel=0.05)


def test_single_kernels_that_are_slow_for_a_reason_of_their_own_move_nothing():
    _, launches = traced_kernels()
    steps = [(one.cost, sum(MODEL.graph_node_gap_ns + MODEL.kernel_ns(cost) for cost in one.cost.kernels)) for one in launches]
    odd = [(cost, ns * (8 if index % 12 == 5 else 1)) for index, (cost, ns) in enumerate(steps)]
    found = replace(H200, **fitted_rates(H200, odd))
    errors = [abs(np.log(found.kernel_ns(cost) / MODEL.kernel_ns(cost))) for cost, _ in steps]
    assert np.median(errors) < 0.03


def test_kernels_take_on_the_simulated_device_what_its_model_says(monkeypatch):
    monkeypatch.setattr(kernel_sweep, "SIZES", (256, 65_536))
    monkeypatch.setattr(kernel_sweep, "ROWS", ((8, 64), (392, 256)))
    monkeypatch.setattr(kernel_sweep, "IMAGES", ((2, 8, 8, 16),))
    steps = kernel_steps(SimulatedDevice(MODEL))
    assert len(steps) == 2 * (2 * 3 + 2 * 8 + 1)
    for cost, ns in steps:
        expected = sum(MODEL.graph_node_gap_ns + MODEL.kernel_ns(kernel) for kernel in cost.kernels)
        assert ns == pytest.approx(expected, abs=1)


def test_products_take_on_the_simulated_device_what_its_tables_say(monkeypatch):
    monkeypatch.setattr(product_sweep, "RESULTS", ((1, 1), (2, 2)))
    monkeypatch.setattr(product_sweep, "SUMS", (32, 128))
    monkeypatch.setattr(product_sweep, "MATMUL_SUMS", (32, 128))
    monkeypatch.setattr(product_sweep, "VECTORS", (128, 512))
    monkeypatch.setattr(product_sweep, "LONG", (64, 256))
    monkeypatch.setattr(product_sweep, "COUNTS", (4, 32))
    monkeypatch.setattr(product_sweep, "IMAGES", ((1, 8), (1, 16)))
    monkeypatch.setattr(product_sweep, "MANY", (1, 32))
    monkeypatch.setattr(product_sweep, "CHANNELS", (8, 32))
    monkeypatch.setattr(product_sweep, "WEIGHTS", ((16, 8), (64, 64)))
    measured = {name: table(steps, H200.graph_node_gap_ns) for name, steps in product_steps(SimulatedDevice(H200))}
    assert set(measured) >= set(H200.product_times)
    for name in H200.product_times:
        found = measured[name]
        for tiles, curve in found.curves:
            for inner, ns in curve:
                assert ns <= H200.product_times[name].of(product_of(name, tiles, inner)) * 1.001 + 1
        last_tiles, (_, (inner, ns)) = found.curves[-1][0], found.curves[-1][1][-2:]
        assert ns == pytest.approx(H200.product_times[name].of(product_of(name, last_tiles, inner)), rel=0.01)


def product_of(name, tiles, inner):
    """Return a product of a table's, of so many tiles."""
    kind, dtype, *special = name.split()
    count, rows, columns = {
        "vector": (1, 1, tiles * 256),
        "narrow": (1, 16, tiles * 256),
        "small": (tiles * 16, 16, 16),
        "odd": (tiles, 64, 63),
        "wide": (1, tiles * 32, 128),
    }.get("".join(special), (tiles, 64, 64))
    found = Product(kind, dtype, int(count), rows, int(inner), int(columns))
    assert (table_of(found), tiles_of(found)) == (name, tiles)
    return found


def test_each_table_has_a_grid_of_its_own_kind():
    names = []
    for sweep in sweeps():
        timed = [traced_case(sweep, case)[2] for case in sweep.cases]
        (name,) = {table_of(product) for product in timed}
        names.append(name)
        found = {(tiles_of(product), product.inner) for product in timed}
        ways = 1 if "odd" in name or "matmul" not in name else 3  # Matrices lie three ways.
        if "narrow" in name or "small" in name:  # As many tiles of one long matrix as of a higher one, or of many small ones.
            assert len(found) * ways < len(timed)
        else:
            assert len(found) * ways == len(timed)
        tiles, inner = ({one[at] for one in found} for at in (0, 1))
        # Sums are over the pixels of two filters, or over images; of these filters' gradients there are few tiles.
        assert len(tiles) >= (2 if "stem_weight" in name else 4 if "vector" in name else 5)
        assert len(inner) >= (2 if "stem" in name else 4)
    assert len(set(names)) == len(names)
    assert set(names) == set(H200.product_times)


def test_operands_are_no_larger_than_a_table_needs():
    for sweep in sweeps():
        name = table_of(traced_case(sweep, sweep.cases[0])[2])
        times = 2 if "vector" in name else 4 if "stem" in name else 1
        largest = max(math.prod(shape) for _, shapes in sweep.cases for shape in shapes)
        assert largest <= times * product_sweep.MOST_ELEMENTS + product_sweep.SUMS[-1]


def test_what_takes_no_longer_for_more_work_makes_less_work_as_fast():
    def product(inner):
        return Product("matmul", "float16", 1, 64, inner, 64)

    found = table([(product(64), 300.0), (product(16), 250.0), (product(32), 400.0)], 100.0)
    assert found == ProductTimes(((1.0, ((16.0, 150.0), (32.0, 200.0), (64.0, 200.0))),))


def test_products_that_a_table_does_not_tell_apart_have_their_geometric_mean():
    one, other = Product("matmul", "float32", 1, 64, 32, 256), Product("matmul", "float32", 1, 256, 32, 64)
    longer = Product("matmul", "float32", 1, 64, 64, 256)
    assert table([(one, 300.0), (other, 900.0), (longer, 900.0)], 100.0) == ProductTimes(((4.0, ((32.0, 400.0), (64.0, 800.0))),))


def test_a_launch_that_takes_long_is_timed_alone():
    device = SimulatedDevice(replace(H200, memory_gb_s=0.01, cache_gb_s=0.01))
    traced, launches = traced_kernels()
    timer = LaunchTimer(device)
    (launch,) = [one for one in launches if one.name == "add" and one.cost.bytes == 5000 * 12]
    alone = timer.step_ns(timer.bound(traced, launch))
    assert alone == pytest.approx(device.model.kernel_ns(launch.cost) + device.model.event_pair_gated_excess_ns, abs=1000)


def test_calls_cost_on_the_simulated_device_what_its_model_says():
    times = program_times(SimulatedDevice(H200))
    assert times.each_ns("kernels") == pytest.approx(H200.launch_ns, abs=1)
    assert times.each_ns("products") == pytest.approx(H200.matmul_launch_ns, abs=1)
    assert times.each_ns("convolutions") == pytest.approx(H200.convolution_launch_ns, abs=1)
    assert times.issue_ns("synchronous", MANY) > times.issue_ns("kernels", MANY) > times.issue_ns("kernels", FEW)
    for count in COUNTS:
        assert times.issue_ns("graph", count) == pytest.approx(H200.graph_launch_ns(count), abs=1)
    waiting = H200.launch_latency_ns + H200.synchronize_return_ns
    assert times.waiting_ns(H200.launch_ns, H200.working_kernel_ns) == pytest.approx(waiting, rel=0.02)


def test_the_costs_of_another_host_are_found():
    """A model of one host is that of another, once what its calls cost there stands in it."""
    slower = replace(H200, launch_ns=6000.0, matmul_launch_ns=19_000.0, convolution_launch_ns=18_000.0, synchronize_return_ns=5000.0)
    found = replace(H200, **program_times(SimulatedDevice(slower)).host_costs(H200.working_kernel_ns))
    for name in ("launch_ns", "matmul_launch_ns", "convolution_launch_ns", "synchronize_return_ns"):
        assert getattr(found, name) == pytest.approx(getattr(slower, name), abs=1)
    assert found.launch_latency_ns == pytest.approx(H200.launch_latency_ns, rel=0.05)
    assert found.graph_launch_latency_ns == pytest.approx(H200.graph_launch_latency_ns, rel=0.05)
    assert found.graph_launch_points == H200.graph_launch_points
