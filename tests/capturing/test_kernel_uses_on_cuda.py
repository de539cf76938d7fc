"""What captured kernels that no operator launched touch, and CuPy's matrix products under capture, on a GPU."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import streamscope as ss
from streamscope.capturing.memory import Evidence
from streamscope.errors import EngineError

pytestmark = pytest.mark.gpu

LOOP = "for (int i = threadIdx.x; i < n; i += 256)"
TWICE = f'extern "C" __global__ void twice(const float* x, float* y, int n) {{ {LOOP} y[i] = 2 * x[i]; }}'
COUNTING = f"""__device__ float calls;
extern "C" __global__ void counting(const float* x, float* y, int n) {{ calls += 1; {LOOP} y[i] = x[i]; }}"""
LYING = f'extern "C" __global__ void lying(float* y, int n, long long far) {{ {LOOP} y[i + far] = y[i] + 1; }}'
CASTING = f'extern "C" __global__ void casting(const float* x, float* y, int n) {{ {LOOP} ((float*)x)[i] = y[i] + 1; }}'


@pytest.fixture(scope="module")
def kernels():
    """The Triton kernels whose texts lie in tests/data/ttir."""
    pytest.importorskip("triton")
    path = Path(__file__).parents[1] / "data" / "ttir" / "kernels.py"
    spec = importlib.util.spec_from_file_location("ttir_kernels", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def accesses(captured, number):
    """Return what a node reads and what it writes, as sets of first addresses."""
    memory = captured.memories[number]
    assert memory.understood, memory.why_unknown
    return {one.start for one in memory.accesses if one.reads and not one.writes}, {one.start for one in memory.accesses if one.writes}


def not_understood(captured):
    return [
        f"{node.name}: {memory.why_unknown}" for node, memory in zip(captured.nodes, captured.memories, strict=True) if memory.why_unknown
    ]


def equal_under(captured, engine="graph-dual"):
    prepared = ss.prepare(captured.trace(), engine=engine, device=ss.open_device("cuda"))
    for _ in range(3):
        captured.clear_outputs()
        prepared.run()
        prepared.wait()
        for found, expected in zip(captured.outputs(), captured.expected(), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_two_branches_of_cupy_kernels_do_not_wait_for_each_other(cupy):
    def branches(x):
        return cupy.tanh(x) * 2, cupy.exp(-x) + 1

    captured = ss.capture(branches, cupy.linspace(-1, 1, 100_000, dtype=cupy.float32))
    assert not_understood(captured) == []
    assert [operation.reads for operation in captured.program.operations] == [(), (0,), (), (2,), (3,)]
    equal_under(captured)


def test_kinds_of_cupy_kernels_are_understood(cupy):
    raw = cupy.RawKernel(TWICE, "twice")
    template = cupy.RawModule(
        code="template <typename T> __global__ void plus(const T* x, T* y, T z) { y[threadIdx.x] = x[threadIdx.x] + z; }",
        name_expressions=("plus<float>",),
    )
    mine = cupy.ElementwiseKernel("T x, raw T y", "T z", "z = x + y[0]", "mine")
    norm = cupy.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "norm")

    @cupy.fuse()
    def fused(x, y):
        return cupy.sqrt(x * x + y * y)

    def many(x, table, at):
        y = cupy.empty_like(x)
        raw((4,), (256,), (x, y, np.int32(x.size)))
        template.get_function("plus<float>")((1,), (256,), (y, y, np.float32(1)))
        z = mine(x, y)
        cupy.add.at(z, at, cupy.float32(1))
        picked = cupy.take(y, at)
        return norm(z), z.sum(), table.sum(axis=0), fused(y, z), picked, cupy.cumsum(z), cupy.argmax(z), cupy.concatenate([y, z])

    x = cupy.linspace(0, 1, 1000, dtype=cupy.float32)
    captured = ss.capture(many, x, cupy.ones((64, 32), cupy.float32), cupy.arange(10))
    assert not_understood(captured) == []
    assert accesses(captured, 0) == ({x.data.ptr}, {captured.memories[0].accesses[1].start})
    equal_under(captured)


def test_a_kernel_with_variables_of_its_own_is_ordered_against_all(cupy):
    kernel = cupy.RawKernel(COUNTING, "counting")

    def function(x):
        y = cupy.empty_like(x)
        kernel((1,), (256,), (x, y, np.int32(x.size)))
        return y

    captured = ss.capture(function, cupy.ones(100, cupy.float32))
    assert "variables of its own" in captured.memories[-1].why_unknown


def test_a_kernel_that_writes_through_a_const_pointer_is_not_trusted(cupy):
    kernel = cupy.RawKernel(CASTING, "casting")

    def function(x):
        y = cupy.zeros_like(x)
        kernel((1,), (256,), (x, y, np.int32(x.size)))
        return y

    captured = ss.capture(function, cupy.full(100, 7, cupy.float32))
    assert "makes pointers" in captured.memories[-1].why_unknown


def test_a_kernel_that_writes_behind_its_array_is_found_out(cupy):
    kernel = cupy.RawKernel(LYING, "lying")

    def function(x):
        y = cupy.zeros_like(x)
        kernel((1,), (256,), (y, np.int32(x.size), np.int64((x.data.ptr - y.data.ptr) // 4)))
        return x * 1, y

    captured = ss.capture(function, cupy.full(100, 7, cupy.float32))
    (why,) = (memory.why_unknown for node, memory in zip(captured.nodes, captured.memories, strict=True) if node.name == "lying")
    assert "changed memory" in why


def test_triton_kernels_say_what_they_store_to(cupy, torch, kernels):
    def function(x, y):
        out, moved = torch.empty_like(x), torch.empty_like(x)
        kernels.add[(8,)](x, y, out, 1024, block=128)
        kernels.moving[(1,)](x, y, moved, 8, block=128)  # Writes all 1,024.
        return out, moved

    x, y = (torch.rand(1024, device="cuda") for _ in range(2))
    captured = ss.capture(function, x, y)
    assert not_understood(captured) == []
    for number, result in enumerate(captured.results):
        assert accesses(captured, number) == ({x.data_ptr(), y.data_ptr()}, {result.data_ptr()})
        assert {one.evidence for one in captured.memories[number].accesses} == {Evidence.TRITON}
    assert captured.program.operations[1].reads == ()
    equal_under(captured)


def test_triton_kernels_that_follow_addresses_are_not_understood(cupy, torch, kernels):
    def function(table, x):
        out = torch.empty(128, device="cuda")
        kernels.pointers[(1,)](table, out, block=128)
        return out

    x = torch.rand(128, device="cuda")
    captured = ss.capture(function, torch.tensor([x.data_ptr()], device="cuda"), x)
    assert "addresses that lie in memory" in captured.memories[-1].why_unknown


def test_our_analysis_of_triton_kernels_finds_all_that_pytorchs_finds(torch, kernels):
    wrap = pytest.importorskip("torch._higher_order_ops.triton_kernel_wrap")
    from streamscope.capturing.triton_kernels import kernel_arguments

    texts = Path(__file__).parents[1] / "data" / "ttir"
    for kernel, signature in kernels.SIGNATURES.items():
        if any("desc" in str(one) for one in signature.values()) or kernel.__name__ == "pointers":
            continue
        kinds = {"*fp32": torch.float32, "*fp16": torch.float16, "*i32": torch.int32}
        given = {name: torch.empty(256, dtype=kinds[one], device="cuda") if one in kinds else 7 for name, one in signature.items()}
        given |= {name: one for name, one in signature.items() if isinstance(one, int)}
        theirs = set(wrap.identify_mutated_tensors(kernel, given, {}))
        found = kernel_arguments((texts / f"{kernel.__name__}.ttir").read_text())
        if found is None:  # It calls a function, which we do not read.
            continue
        names = [name for name, one in signature.items() if not isinstance(one, int)]
        ours = {names[number] for number in found.written if number >= 0 and signature[names[number]] in kinds}
        all_pointers = {name for name, one in signature.items() if one in kinds}
        assert theirs <= ours or theirs == all_pointers, kernel.__name__  # PyTorch's takes all for written where it gives up.


@pytest.mark.filterwarnings("ignore")  # PyTorch's own, when it compiles.
def test_compiled_pytorch_code_is_understood(cupy, torch):
    def function(a, b):
        return (a * b).sum(0), torch.softmax(a, 1) + 1

    captured = ss.capture(torch.compile(function), *(torch.rand(512, 256, device="cuda") for _ in range(2)))
    assert not_understood(captured) == []
    assert any(one.evidence is Evidence.TRITON for memory in captured.memories for one in memory.accesses)
    equal_under(captured)


def test_products_of_cupy_are_captured(cupy):
    def products(a, b, c, v, z):
        return (
            a @ b,
            cupy.dot(a, b),
            a.dot(b),
            cupy.tensordot(a, b, 1),
            cupy.einsum("ij,jk->ik", a, b),
            c @ c,
            cupy.einsum("bij,bjk->bik", c, c),
            a @ v,
            z @ z.T,
            cupy.inner(a, a),
            a.astype(cupy.float16) @ b.astype(cupy.float16),
            cupy.matmul(c, c[0]),
            cupy.outer(v, v),
            cupy.linalg.matrix_power(c[0], 3),
            a.T @ a,
            a.astype(cupy.float64) @ b,
        )

    random = cupy.random.default_rng(1)
    a, b, c, v = (random.random(shape, dtype=cupy.float32) for shape in ((64, 32), (32, 48), (5, 32, 32), 32))
    inputs = a, b, c, v, random.random((8, 8)) + 1j * random.random((8, 8))
    captured = ss.capture(products, *inputs)
    for found, expected in zip(captured.expected(), products(*inputs), strict=True):
        np.testing.assert_array_equal(found, expected.get())
    for number, (node, memory) in enumerate(zip(captured.nodes, captured.memories, strict=True)):
        # A product of matrices that are broadcast takes addresses from memory, which a kernel wrote there.
        broadcast = node.name == "cupy_mat_ptrs" or "arrays of addresses" in memory.why_unknown
        assert memory.understood or broadcast, f"{number} {node.name}: {memory.why_unknown}"
    equal_under(captured)


def test_independent_products_of_cupy_do_not_wait_for_each_other(cupy):
    def both(a, b):
        return a @ b, b @ a

    a, b = cupy.ones((64, 64), cupy.float32), cupy.full((64, 64), 2, cupy.float32)
    captured = ss.capture(both, a, b)
    assert not_understood(captured) == []
    firsts = [number for number, operation in enumerate(captured.program.operations) if not operation.reads]
    assert len(firsts) >= 2
    assert all(one.operator.startswith("cublas") for one in captured.nodes)
    assert all("test_kernel_uses_on_cuda.py" in one.where for one in captured.nodes)


def test_products_of_cupy_are_its_own_again_after_a_capture(cupy):
    from cupy_backends.cuda.libs import cublas

    before = cublas.gemmEx
    ss.capture(lambda a: a @ a, cupy.ones((4, 4), cupy.float32))
    assert cublas.gemmEx is before
    with pytest.raises(EngineError):
        ss.capture(lambda a: a @ a + float(a.sum()), cupy.ones((4, 4), cupy.float32))
    assert cublas.gemmEx is before


def test_what_cupy_refuses_in_a_capture_is_named(cupy):
    def solving(a, b):
        return cupy.linalg.solve(a, b)

    with pytest.raises(
        EngineError, match=r"solving cannot be captured: cupy\.linalg\.solve calls cusolver\.\w+ \(test_kernel_uses_on_cuda\.py:\d+\)"
    ):
        ss.capture(solving, cupy.eye(4, dtype=cupy.float32), cupy.ones(4, cupy.float32))
