"""Programs made of code that was never written for Streamscope."""

from __future__ import annotations

import numpy as np
import pytest
from tests.capturing.test_orders_on_cuda import runs_right

import streamscope as ss
from streamscope.engine_entry import ENGINES
from streamscope.errors import EngineError, ProgramError
from streamscope.trace.spans import DEVICE_KINDS

pytestmark = pytest.mark.gpu


def fifty_calls(x):
    """Return something that fifty CuPy calls make, with temporaries, a reduction and a set."""
    import cupy

    total = cupy.zeros_like(x)
    for _ in range(12):
        y = cupy.tanh(x) * 0.5
        total += y * y
        x = x + total.mean()
    return x, total


@pytest.mark.parametrize("engine", ENGINES)
def test_a_cupy_function_gives_what_a_plain_call_gives(cupy, engine):
    captured = ss.capture(fifty_calls, cupy.linspace(-1, 1, 10_000, dtype=cupy.float32))
    prepared = ss.prepare(captured.trace(), engine=engine, device=ss.open_device("cuda"))
    runs_right(captured, prepared)
    assert prepared.notes == [prepared.plan.chosen] * bool(prepared.plan.chosen)
    assert not prepared.plan.chosen or engine == "graph-dual"


def test_nodes_are_listed_with_their_size_and_edges(cupy):
    captured = ss.capture(fifty_calls, cupy.linspace(-1, 1, 10_000, dtype=cupy.float32))
    assert len(captured.nodes) >= 50
    assert all(node.block[0] > 0 for node in captured.nodes if node.name not in {"memset", "memcpy"})
    assert captured.nodes[0].after == ()
    assert all(earlier < number for number, node in enumerate(captured.nodes) for earlier in node.after)


@pytest.mark.parametrize("name", ["async", "graph"])
def test_an_engine_runs_captured_code(cupy, name):
    captured = ss.capture(fifty_calls, cupy.linspace(-1, 1, 10_000, dtype=cupy.float32))
    with ss.Engine(name, device="cuda") as engine:
        for _ in range(3):
            captured.clear_outputs()
            for found, expected in zip(engine.run(captured), captured.expected(), strict=True):
                np.testing.assert_array_equal(found, expected)
        assert engine.statistics.programs_prepared == 1


def test_captured_code_is_compared_under_every_engine(cupy):
    captured = ss.capture(fifty_calls, cupy.linspace(-1, 1, 10_000, dtype=cupy.float32))
    comparison = ss.compare(captured, repeats=10, progress=False)
    assert set(comparison) == set(ENGINES)
    assert all(run.max_abs_error == 0 for run in comparison.values())
    assert all(len(run.trace.spans.of_kind(DEVICE_KINDS)) == len(captured.nodes) for run in comparison.values())
    assert comparison["graph"].metrics.makespan_us < comparison["async"].metrics.makespan_us


def test_pytorch_code_with_parallel_streams(cupy):
    torch = pytest.importorskip("torch")

    def forked(x):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = torch.sin(x)
        z = torch.cos(x)
        torch.cuda.current_stream().wait_stream(side)
        return y + z

    captured = ss.capture(forked, torch.linspace(0, 1, 1000, device="cuda"))
    final = captured.nodes[-1]
    assert len(final.after) == 2
    for engine in ENGINES:
        prepared = ss.prepare(captured.trace(), engine=engine, device=ss.open_device("cuda"))
        for _ in range(3):
            captured.clear_outputs()
            prepared.run()
            prepared.wait()
            np.testing.assert_array_equal(captured.outputs()[0], captured.expected()[0])


def test_arrays_that_only_a_global_names_live_as_long_as_the_capture(cupy):
    held = {"weights": cupy.full(300_000, 3, np.float32)}
    double = cupy.RawKernel(
        'extern "C" __global__ void scaled(const float* w, const float* x, float* y)'
        "{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < 300000) y[i] = w[i] * x[i]; }",
        "scaled",
    )

    def function(x):
        y = cupy.empty_like(x)
        double((300_000 // 256 + 1,), (256,), (held["weights"], x, y))
        return y

    captured = ss.capture(function, cupy.full(300_000, 2, np.float32))
    prepared = ss.prepare(captured, engine="graph", device="cuda", progress=False)
    held.clear()
    others = [cupy.full(300_000, 100, np.float32) for _ in range(8)]  # They take the memory, where it was given back.
    prepared.run()
    prepared.wait()
    assert np.array_equal(captured.outputs()[0], np.full(300_000, 6, np.float32))
    assert len(others) == 8


def test_what_cannot_be_captured_says_why(cupy):
    def impatient(x):
        return x + float(x.sum())

    with pytest.raises(EngineError, match="impatient cannot be captured"):
        ss.capture(impatient, cupy.ones(10))
    # The device is as good as new.
    assert ss.capture(fifty_calls, cupy.ones(10, cupy.float32)).nodes


def test_a_function_that_launches_nothing_or_returns_something_else(cupy):
    with pytest.raises(EngineError, match="launched nothing"):
        ss.capture(lambda x: x, cupy.ones(10))
    with pytest.raises(ProgramError, match="returned a float"):
        ss.capture(lambda x: 1.0, cupy.ones(10))


def test_an_input_that_was_expanded_is_captured(cupy):
    torch = pytest.importorskip("torch")
    x = torch.arange(8.0, device="cuda").expand(4, 8)
    captured = ss.capture(lambda x: x * 2, x)
    prepared = ss.prepare(captured, engine="graph", device="cuda", progress=False)
    captured.clear_outputs()
    prepared.run()
    prepared.wait()
    assert torch.equal(captured.results[0], x * 2)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_library_may_lower_the_shared_memory_of_a_kernel_between_its_launches(cupy, engine):
    """As cuDNN's batch norm does: it sets the limit before each of its launches, to what that one takes."""
    source = r"""extern "C" __global__ void turned(const float* x, float* y, int n) {
        extern __shared__ float kept[];
        for (int i = threadIdx.x; i < n; i += blockDim.x) kept[i] = x[i];
        __syncthreads();
        for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = kept[n - 1 - i];
    }"""
    kernel = cupy.RawKernel(source, "turned")

    def turned(x, count):
        y = cupy.zeros_like(x)
        kernel.max_dynamic_shared_size_bytes = 4 * count
        kernel((1,), (256,), (x, y, np.int32(count)), shared_mem=4 * count)
        return y

    def both(x):
        return turned(turned(x, 20_000), 1_000)

    x = cupy.arange(20_000, dtype=cupy.float32)
    captured = ss.capture(both, x)
    expected = cupy.asnumpy(both(x))
    assert kernel.max_dynamic_shared_size_bytes == 4_000
    prepared = ss.prepare(captured, engine=engine, device="cuda", progress=False)
    for _ in range(3):
        captured.clear_outputs()
        both(x)  # lowers the limit again
        prepared.run()
        prepared.wait()
        np.testing.assert_array_equal(captured.outputs()[0], expected)


def test_numpy_arrays_that_a_cupy_function_uses_are_constants_of_the_capture(cupy):
    from cupyx.scipy import ndimage

    weights = np.arange(3, dtype=np.float32)

    def filtered(x):
        total = cupy.asarray(weights)
        total += x[:3, 0]  # Begins anew in each run.
        return ndimage.gaussian_filter(x, 2), total, cupy.array([[1, 2], [3, 4]]) * 2

    x = cupy.random.default_rng(0).standard_normal((64, 64), dtype=np.float32)
    captured = ss.capture(filtered, x)
    assert "NumPy arrays that the function hands to CuPy" in " ".join(captured.certificate().sentences)
    for engine in ("graph", "graph-dual"):
        prepared = ss.prepare(captured, engine=engine, device="cuda", progress=False)
        for number in range(3):
            x += number
            cupy.cuda.runtime.deviceSynchronize()
            prepared.run()
            prepared.wait()
            for found, expected in zip(captured.outputs(), filtered(x), strict=True):
                np.testing.assert_array_equal(found, cupy.asnumpy(expected))


def test_pytorch_inside_a_cupy_function_is_captured(cupy):
    torch = pytest.importorskip("torch")
    torch.zeros(1, device="cuda")

    def both(x, y):
        product = torch.from_dlpack(x) @ torch.from_dlpack(y)
        return cupy.tanh(cupy.asarray(torch.relu(product))), x + y

    x, y = cupy.random.default_rng(0).standard_normal((2, 64, 64), dtype=np.float32)
    captured = ss.capture(both, x, y)
    prepared = ss.prepare(captured, engine="graph-dual", device="cuda", progress=False)
    for _ in range(3):
        x *= 0.5
        cupy.cuda.runtime.deviceSynchronize()
        prepared.run()
        prepared.wait()
        for found, expected in zip(captured.outputs(), both(x, y), strict=True):
            np.testing.assert_allclose(found, cupy.asnumpy(expected), rtol=1e-5)
