"""All engines on a real GPU."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from tests.engines.conftest import RUNS

import streamscope as ss
from streamscope.engine_entry import ENGINES
from streamscope.engines.prepared import prepare_traced
from streamscope.errors import DeviceError
from streamscope.program.reference import run_reference
from streamscope.workloads import ON_ONE_GPU, WORKLOADS

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def device():
    return ss.open_device("cuda")


def run(prepared, inputs, times=3):
    prepared.load(inputs)
    for _ in range(times):
        prepared.run()
    prepared.wait()
    return prepared.outputs()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("workload", [each.name for each in ON_ONE_GPU])
def test_every_workload_equals_its_reference(device, workload, engine):
    function, inputs = WORKLOADS[workload].build()
    traced = function.trace(*inputs)
    prepared = prepare_traced(traced, engine, device)
    found = run(prepared, inputs)
    assert prepared.notes == []
    for one, other in zip(found, run_reference(traced, inputs), strict=True):
        scale = np.abs(other.astype(np.float64)).max()
        np.testing.assert_allclose(one.astype(np.float64), other.astype(np.float64), atol=2e-2 * scale, rtol=0)


@pytest.mark.parametrize("engine", ENGINES)
def test_runs_in_a_row_without_synchronization(device, stateful, engine):
    prepared = prepare_traced(stateful.program, engine, device)
    for one, other in zip(run(prepared, stateful.inputs, RUNS), stateful.expected(), strict=True):
        np.testing.assert_array_equal(one, other)


@ss.operator(reads=["x"], writes=["doubled", "squared"], reference=lambda x: (2 * x, x * x))
def double_and_square(x, doubled, squared):
    """Two CuPy calls, one in a scope."""
    import cupy

    with ss.auxiliary_stream():
        cupy.multiply(x, x, out=squared)
    cupy.add(x, x, out=doubled)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_operator_of_the_users_own_with_an_auxiliary_scope(device, engine):
    @ss.program
    def scoped(x):
        for _ in range(5):
            doubled, squared = double_and_square(x)
            x = ss.ops.add(doubled, squared)
        return x

    inputs = [np.linspace(-0.2, 0.2, 1 << 16, dtype=np.float32)]
    traced = scoped.trace(*inputs)
    prepared = prepare_traced(traced, engine, device)
    np.testing.assert_allclose(run(prepared, inputs)[0], run_reference(traced, inputs)[0], rtol=1e-5)
    assert prepared.notes == []


@pytest.mark.parametrize("engine", ["graph", "graph-dual"])
def test_an_operator_that_synchronizes_breaks_its_capture_only(device, engine):
    @ss.operator(reads=["x"], writes=["y"], reference=lambda x: x + 1)
    def impatient(x, y):
        import cupy

        cupy.add(x, 1, out=y)
        cupy.cuda.get_current_stream().synchronize()

    @ss.program
    def broken(x):
        return ss.ops.relu(impatient(ss.ops.relu(x)))

    inputs = [np.arange(8, dtype=np.float32)]
    prepared = prepare_traced(broken.trace(*inputs), engine, device)
    np.testing.assert_array_equal(run(prepared, inputs)[0], inputs[0] + 1)
    assert len(prepared.notes) == 1
    assert "impatient (operation 1" in prepared.notes[0]
    # The device is as good as new.
    function, inputs = WORKLOADS["elementwise-chain"].build(length=8)
    other = prepare_traced(function.trace(*inputs), engine, device)
    run(other, inputs)
    assert other.notes == []


def test_graphs_that_go_out_of_use_during_a_capture_do_not_break_it(device):
    function, inputs = WORKLOADS["elementwise-chain"].build(length=8)
    traced = function.trace(*inputs)
    old, new = prepare_traced(traced, "graph", device), prepare_traced(traced, "graph", device)
    run(old, inputs)
    bound = new.bound[0].inner[3]
    call, cell = bound.call, [old]
    del old

    def forget() -> None:
        cell.clear()
        gc.collect()
        call()

    bound.call = forget
    run(new, inputs)
    assert new.notes == []


def test_pytorch_through_an_external_stream(device):
    torch = pytest.importorskip("torch")

    @ss.operator(reads=["x"], writes=["y"], reference=np.tanh)
    def torch_tanh(x, y):
        import cupy

        stream = torch.cuda.ExternalStream(cupy.cuda.get_current_stream().ptr)
        with torch.cuda.stream(stream):
            torch.tanh(torch.as_tensor(x, device="cuda"), out=torch.as_tensor(y, device="cuda"))

    @ss.program
    def mixed(x):
        return ss.ops.relu(torch_tanh(ss.ops.add(x, x)))

    inputs = [np.linspace(-2, 2, 1000, dtype=np.float32)]
    traced = mixed.trace(*inputs)
    for engine in ENGINES:
        np.testing.assert_allclose(run(prepare_traced(traced, engine, device), inputs)[0], run_reference(traced, inputs)[0], atol=1e-6)


def test_a_host_function_that_returns_the_wrong_shape(device):
    @ss.host_function
    def shrink(values):
        return values[:1]

    @ss.program
    def wrong(x):
        return shrink(x)

    prepared = prepare_traced(wrong.trace(np.zeros(4, np.float32)), "async", device)
    prepared.load([np.zeros(4, np.float32)])
    with pytest.raises(DeviceError, match="shrink returned"):
        prepared.run()
