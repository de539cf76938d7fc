"""Memory of a real GPU: running out of it, what streams hold, and what users' operators allocate."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import streamscope as ss
from streamscope.engine_entry import ENGINES
from streamscope.engines.prepared import prepare_traced
from streamscope.errors import DeviceError, OutOfMemoryError
from streamscope.program.variable import ArraySpec, MemoryPlace
from streamscope.workloads import WORKLOADS

pytestmark = pytest.mark.gpu

X = np.linspace(-1, 1, 1 << 18, dtype=np.float32)  # 1 MiB
TOO_MANY = 1 << 45


@pytest.fixture(scope="module")
def device():
    return ss.open_device("cuda")


@ss.operator(reads=["x"], writes=["y"], reference=lambda x: 2 * x + 1)
def through_a_temporary(x, y):
    """Allocate what is twice the input, and free it on return."""
    import cupy

    cupy.add(x * np.float32(2), np.float32(1), out=y)


@ss.program
def steps(x):
    return ss.ops.relu(through_a_temporary(ss.ops.add(x, x)))


def ready(program, engine, device):
    prepared = prepare_traced(program.trace(X), engine, device)
    prepared.load([X])
    for _ in range(3):
        prepared.run()
    prepared.wait()
    return prepared


def test_more_than_the_card_has(device):
    with pytest.raises(OutOfMemoryError, match=r"allocating 35,184,372,088,832 bytes of device memory"):
        device.allocate(ArraySpec((TOO_MANY,), np.dtype("int8")), MemoryPlace.DEVICE)
    with pytest.raises(OutOfMemoryError, match=r"35,184,372,088,832 bytes of workspace"):
        device.stream("main").workspace(TOO_MANY)


def test_empty_and_zero_dimensional_arrays(device):
    buffer = device.allocate(ArraySpec((3, 0), np.dtype("float32")), MemoryPlace.DEVICE)
    assert buffer.array.shape == (3, 0)
    scalar = device.allocate(ArraySpec((), np.dtype("float64")), MemoryPlace.DEVICE)
    device.write(scalar, np.float64(2.5))
    assert device.read(scalar) == 2.5


def test_one_block_holds_one_array_after_the_other(device):
    for place in MemoryPlace:
        block = device.allocate_block(4096, place)
        whole = device.buffer_on(block, ArraySpec((512,), np.dtype("float64")))
        device.write(whole, np.arange(512.0))
        part = device.buffer_on(block, ArraySpec((2, 4), np.dtype("float64")))
        np.testing.assert_array_equal(device.read(part), np.arange(8.0).reshape(2, 4))
        assert part.pointer == whole.pointer
        with pytest.raises(DeviceError, match="a block of 4,096 bytes cannot hold"):
            device.buffer_on(block, ArraySpec((513,), np.dtype("float64")))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_variable_that_does_not_fit_is_named_by_its_operation(device, engine):
    @ss.operator(reads=["x"], writes=["y"], shapes=lambda x: {"y": ((TOO_MANY,), "int8")})
    def huge(x, y):
        raise AssertionError("not reached")

    @ss.program
    def too_large(x):
        return huge(ss.ops.relu(x))

    with pytest.raises(OutOfMemoryError, match=r"^huge \(operation 1, test_memory_on_cuda.py:\d+\) needs 35,184,372,088,832 bytes"):
        prepare_traced(too_large.trace(X), engine, device)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_operator_that_asks_for_too_much_is_named_and_the_engine_goes_on(device, engine):
    greedy = [False]

    @ss.operator(reads=["x"], writes=["y"], reference=lambda x: x + 1)
    def hungry(x, y):
        import cupy

        if greedy[0]:
            cupy.empty(TOO_MANY, np.uint8)
        cupy.add(x, np.float32(1), out=y)

    @ss.program
    def meal(x):
        return hungry(ss.ops.relu(x))

    prepared = prepare_traced(meal.trace(X), engine, device)
    prepared.load([X])
    greedy[0] = True
    with pytest.raises(OutOfMemoryError, match=r"'hungry' \(operation 1\): Out of memory allocating 35,184,372,088,832 bytes"):
        prepared.run()
    greedy[0] = False
    for _ in range(3):
        prepared.run()
    np.testing.assert_array_equal(prepared.outputs()[0], np.maximum(X, 0) + 1)


def test_streams_do_not_share_workspaces_and_that_is_counted(device):
    streams = [device.stream(name) for name in ("one", "two")]
    assert device.memory_of(streams) == {"workspaces_bytes": 0, "temporaries_bytes": 0}
    first = streams[0].workspace(1 << 20)
    assert streams[0].workspace(1 << 10) is first
    assert device.memory_of(streams)["workspaces_bytes"] == 1 << 20
    streams[1].workspace(1 << 20)
    assert device.memory_of(streams)["workspaces_bytes"] == 2 << 20
    larger = streams[0].workspace(1 << 21)  # The first is kept: packed calls have its address.
    assert device.memory_of(streams)["workspaces_bytes"] == 4 << 20
    assert larger.nbytes == 1 << 21
    device.pair(streams[0], streams[1])
    assert device.memory_of(streams[:1]) == device.memory_of(streams)


def test_matrix_products_side_by_side_have_a_workspace_each(device):
    @ss.program
    def side_by_side(a, b):
        return ss.ops.add(ss.ops.matmul(a, a), ss.ops.matmul(b, b))

    a = np.eye(64, dtype=np.float32)
    alone, dual = (prepare_traced(side_by_side.trace(a, a), engine, device) for engine in ("graph", "dual"))
    assert alone.memory["workspaces_bytes"] == 32 << 20
    assert dual.memory["workspaces_bytes"] == len({one.stream for one in dual.bound if "matmul" in str(one.step)}) * (32 << 20)
    assert alone.memory["device_bytes"] == alone.memory["workspaces_bytes"] + 5 * a.nbytes


def test_a_second_stream_costs_memory(device):
    """Convolution backward, side by side: the workspaces cannot be shared (C.2)."""
    function, inputs = WORKLOADS["conv-backward"].build()
    traced = function.trace(*inputs)
    memory = {}
    for engine in ("graph", "graph-dual"):
        prepared = prepare_traced(traced, engine, device)
        memory[engine] = prepared.memory
        assert memory[engine]["device_bytes"] - memory[engine]["variables_bytes"] == memory[engine]["workspaces_bytes"]
    assert memory["graph-dual"]["variables_bytes"] == memory["graph"]["variables_bytes"]
    assert memory["graph-dual"]["workspaces_bytes"] >= memory["graph"]["workspaces_bytes"]


@pytest.mark.parametrize("engine", ENGINES)
def test_temporaries_of_operators_are_counted(device, engine):
    memory = ready(steps, engine, device).memory
    assert X.nbytes <= memory["temporaries_bytes"] <= 2 * X.nbytes
    assert memory["device_bytes"] == memory["variables_bytes"] + memory["temporaries_bytes"] + memory["workspaces_bytes"]
    assert memory["variables_bytes"] == 4 * X.nbytes


@pytest.mark.parametrize("engine", ["graph", "graph-dual"])
def test_a_graph_does_not_write_to_memory_that_others_got_after_its_capture(device, engine):
    """The temporary was freed when the capture ended, and every replay writes to it."""
    import cupy

    prepared = ready(steps, engine, device)
    assert prepared.notes == []
    with prepared.streams[0].handle:  # CuPy's pool keeps free memory by stream.
        others = [cupy.full(X.shape, 7, np.float32) for _ in range(8)]
        cupy.cuda.get_current_stream().synchronize()
    for _ in range(3):
        prepared.run()
    np.testing.assert_allclose(prepared.outputs()[0], np.maximum(4 * X + 1, 0), rtol=1e-6)
    assert all(bool((other == 7).all()) for other in others)


def test_an_array_that_an_operator_keeps_outlives_the_engine(device):
    import cupy

    kept = []

    @ss.operator(reads=["x"], writes=["y"], reference=lambda x: x)
    def keeping(x, y):
        kept.append(x * np.float32(3))
        cupy.copyto(y, x)

    @ss.program
    def keeps(x):
        return keeping(x)

    prepared = prepare_traced(keeps.trace(X), "async", device)
    prepared.load([X])
    prepared.run()
    prepared.wait()
    del prepared
    gc.collect()
    others = [cupy.zeros(X.shape, np.float32) for _ in range(8)]
    np.testing.assert_array_equal(kept[0].get(), X * np.float32(3))
    assert len(others) == 8


def test_engines_made_and_dropped_again_take_no_more_memory(device):
    import cupy

    pool, used = cupy.get_default_memory_pool(), []
    for _ in range(6):
        ready(steps, "graph-dual", device)
        gc.collect()
        used.append(pool.used_bytes())
    assert used[-1] == used[1]
