"""Captured code that other hands launch: Numba, JAX, cuda.core, graphs inside the capture, modules that PyTorch writes on nodes.

Each is captured beside operators of PyTorch's. What becomes of its nodes: understood, not understood (they keep their place), or refused.

python benchmarks/other_hands.py [RESULT.json]
"""

from __future__ import annotations

import argparse
import ctypes
import json
import subprocess
import tempfile
import traceback
from collections.abc import Callable
from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import cupy
import numpy as np
import torch
from provenance import provenance
from torch import Tensor

import streamscope as ss
from streamscope.files import written_whole

SOURCE = 'extern "C" __global__ void doubled(const float* x, float* y, int n) { int i = threadIdx.x; if (i < n) y[i] = 2 * x[i]; }'
OF_XLA = """
#include "xla/ffi/api/ffi.h"
namespace ffi = xla::ffi;
__global__ void doubled(const float* x, float* y, int n) { int i = threadIdx.x; if (i < n) y[i] = 2 * x[i]; }
static ffi::Error launched(cudaStream_t stream, ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> y) {
  doubled<<<1, 64, 0, stream>>>(x.typed_data(), y->typed_data(), static_cast<int>(x.element_count()));
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(Doubled, launched,
    ffi::Ffi::Bind().Ctx<ffi::PlatformStream<cudaStream_t>>().Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>());
"""
Case = Callable[[Tensor], Tensor]


def by_numba() -> Case:
    vars(np).setdefault("row_stack", np.vstack)  # NumPy 2.5 has it no more, and Numba asks for it.
    cuda = import_module("numba.cuda")

    def twice(x: Any, y: Any) -> None:
        i = cuda.threadIdx.x
        if i < x.size:
            y[i] = 2 * x[i]

    doubled = cuda.jit(twice)

    def call(x: Tensor) -> Tensor:
        y = torch.empty_like(x)
        doubled[1, 64, cuda.external_stream(torch.cuda.current_stream().cuda_stream)](cuda.as_cuda_array(x), cuda.as_cuda_array(y))
        return y + 1

    return call


def by_jax() -> Case:
    jax = import_module("jax")
    doubled = jax.jit(lambda x: 2 * x)
    return lambda x: torch.from_dlpack(doubled(jax.dlpack.from_dlpack(x))) + 1


def by_jax_after_operators() -> Case:
    jax = import_module("jax")
    doubled = jax.jit(lambda x: 2 * x)
    return lambda x: torch.from_dlpack(doubled(jax.dlpack.from_dlpack(x.sin()))) + 1


def of_jax_arrays() -> Callable[[Any], Any]:
    function: Callable[[Any], Any] = import_module("jax").jit(lambda x: 2 * x + 1)
    return function


@cache
def _of_ffi() -> Any:
    """Return a kernel of ours as a function of JAX's: compiled by nvcc, called by XLA with the stream that it runs on."""
    jax, ffi = import_module("jax"), import_module("jax.ffi")
    folder = Path(tempfile.mkdtemp())
    (folder / "doubled.cu").write_text(OF_XLA)
    options = f"-w -std=c++17 -arch=sm_90 -shared -Xcompiler -fPIC -I {ffi.include_dir()}"
    subprocess.run(["nvcc", *options.split(), "doubled.cu", "-o", "doubled.so"], cwd=folder, check=True)
    ffi.register_ffi_target("doubled", ffi.pycapsule(ctypes.CDLL(str(folder / "doubled.so")).Doubled), platform="CUDA")
    return jax.jit(lambda x: ffi.ffi_call("doubled", jax.ShapeDtypeStruct(x.shape, x.dtype))(x))


def by_jax_ffi() -> Case:
    jax, doubled = import_module("jax"), _of_ffi()
    assert (doubled(jax.numpy.ones(64)) == 2).all()
    return lambda x: torch.from_dlpack(doubled(jax.dlpack.from_dlpack(x))) + 1


def by_jax_ffi_of_its_own_array() -> Case:
    jax, doubled = import_module("jax"), _of_ffi()
    held = jax.numpy.ones(64)
    return lambda x: x + torch.from_dlpack(doubled(held))


def _kernel() -> tuple[Any, Any]:
    try:
        from cuda import core
    except ImportError:
        from cuda.core import experimental as core

    device = core.Device()
    device.set_current()
    options = core.ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
    program = core.Program(SOURCE, "c++", options)
    return core, program.compile("cubin").get_kernel("doubled")


def by_cuda_core() -> Case:
    core, kernel = _kernel()

    def call(x: Tensor) -> Tensor:
        y = torch.empty_like(x)
        stream = core.Stream.from_handle(torch.cuda.current_stream().cuda_stream)
        core.launch(stream, core.LaunchConfig(grid=1, block=64), kernel, x.data_ptr(), y.data_ptr(), 64)
        return y + 1

    return call


def by_a_graph_of_cuda_core() -> Case:
    core, kernel = _kernel()
    device, held = core.Device(), torch.zeros(2, 64, device="cuda")
    builder = device.create_graph_builder().begin_building()
    core.launch(builder, core.LaunchConfig(grid=1, block=64), kernel, held[0].data_ptr(), held[1].data_ptr(), 64)
    graph = builder.end_building().complete()

    def call(x: Tensor) -> Tensor:
        held[0].copy_(x)
        graph.launch(core.Stream.from_handle(torch.cuda.current_stream().cuda_stream))
        return held[1] + 1

    return call


def by_a_graph_of_pytorch() -> Case:
    held, graph = torch.zeros(64, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        twice = held * 2

    def call(x: Tensor) -> Tensor:
        held.copy_(x)
        graph.replay()
        return twice + 1

    return call


def with_modules_on_nodes() -> Case:
    annotations = import_module("torch.cuda._graph_annotations")
    annotations.enable_annotations()

    def call(x: Tensor) -> Tensor:
        with annotations.mark_kernels("doubled"):
            y = x * 2
        return y + 1

    return call


def by_cupy() -> Case:
    kernel = cupy.RawKernel(SOURCE, "doubled")

    def call(x: Tensor) -> Tensor:
        y = torch.empty_like(x)
        kernel((1,), (64,), (cupy.from_dlpack(x), cupy.from_dlpack(y), 64))
        return y + 1

    return call


CASES: dict[str, Callable[[], Callable[[Any], Any]]] = {
    "a kernel of CuPy": by_cupy,
    "a kernel of cuda.core": by_cuda_core,
    "a graph of cuda.core": by_a_graph_of_cuda_core,
    "a graph of PyTorch": by_a_graph_of_pytorch,
    "modules on nodes (mark_kernels)": with_modules_on_nodes,
    "a kernel of Numba": by_numba,
    "jax.jit of PyTorch's arrays": by_jax,
    "jax.jit after operators of PyTorch": by_jax_after_operators,
    "jax.jit of JAX's arrays": of_jax_arrays,
    "jax.ffi of PyTorch's arrays": by_jax_ffi,
    "jax.ffi of an array that JAX holds": by_jax_ffi_of_its_own_array,
}


def tried(name: str, make: Callable[[], Callable[[Any], Any]]) -> dict[str, Any]:
    """Return what becomes of a case."""
    x: Any = torch.linspace(0, 1, 64, device="cuda")
    if name.endswith("JAX's arrays"):
        x = import_module("jax.numpy").linspace(0, 1, 64)
    try:
        captured = ss.capture(make(), x)
    except ss.StreamscopeError as error:
        return {"refused": str(error)}
    certificate = captured.certificate()
    nodes = [{"node": str(one.name), "operator": one.operator, "module": one.module, "where": one.where} for one in captured.nodes]
    return {"nodes": nodes, "not_understood": dict(certificate.unknown), "as_called": str(captured.as_called), "runs": ran(captured)}


def ran(captured: Any) -> str:
    """Return how far replays are from a plain call."""
    runs = ss.compare(captured, engines="graph,graph-dual", repeats=5, progress=False)
    return "; ".join(f"{name}: {run.max_abs_error}" for name, run in runs.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", nargs="?", type=Path, default=Path(__file__).parent / "results" / "other_hands.json")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    for name, make in CASES.items():
        try:
            results[name] = tried(name, make)
        except Exception as error:  # noqa: BLE001 — what fails is a result, too
            traceback.print_exc(limit=-4)
            results[name] = {"failed": f"{type(error).__name__}: {error}"[:600]}
        print(name, json.dumps(results[name], ensure_ascii=False), flush=True)
    versions: dict[str, str] = {}
    for name in ("torch", "numba", "jax", "cuda-core"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    content = {"what": "captured code that other hands launch", "results": results, **provenance(ss.open_device("cuda"), **versions)}
    with written_whole(options.result) as temporary:
        temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
