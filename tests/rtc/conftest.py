"""The generated kernels, and a build of them for the host."""

from __future__ import annotations

import ctypes
import itertools
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import streamscope as ss
from streamscope.devices.cuda.bench import PackedArguments
from streamscope.rtc.types_source import HALF_CONVERSIONS

PRELUDE = Path(__file__).with_name("host_cuda.h")
HOST_HALF_CONVERSIONS = """
struct half_t { unsigned short bits; };
inline float load(half_t h) { _Float16 value; memcpy(&value, &h, 2); return value; }
inline void store(half_t& h, float f) { _Float16 value = f; memcpy(&h, &value, 2); }
"""


class HostArray:
    """A NumPy array that looks like CuPy's, so that what binds kernels to device memory binds them to the host's."""

    def __init__(self, values):
        self.values = values
        self.shape, self.strides, self.itemsize, self.dtype, self.size = (
            getattr(values, name) for name in ("shape", "strides", "itemsize", "dtype", "size")
        )
        self.data = SimpleNamespace(ptr=values.__array_interface__["data"][0])


class HostBench:
    """Prepares kernels as the CUDA device's bench does, but from a library built for the host."""

    def __init__(self, library, sources):
        self.library = library
        self.sources = sources

    def kernel(self, source, blocks, threads, arguments):
        assert source in self.sources, f"{source.name} was not built from this source"
        packed = PackedArguments(arguments)
        run = getattr(self.library, f"run_{source.name}")
        return lambda: run(blocks, threads, packed.pointers)


class DeferredBench:
    """Takes kernels as the CUDA device's bench does; they can run once `finish` has built them all in one library."""

    def __init__(self, build):
        self.build = build
        self.sources = {}
        self.bench = None

    def kernel(self, source, blocks, threads, arguments):
        if blocks == 0:
            return lambda: None
        self.sources[source] = source
        return lambda: self.bench.kernel(source, blocks, threads, arguments)()

    def finish(self):
        self.bench = self.build(self.sources)


class HostProgram:
    """A program of device operations whose kernels are bound to host memory.

    Variables lie where ``place(name, spec)`` puts them, a NumPy array each; by default in fresh, aligned memory.
    """

    def __init__(self, bench, function, inputs, place=None):
        self.program = ss.program(function).trace(*inputs)
        self.memory = [(place or fresh)(variable.name, variable.spec) for variable in self.program.variables]
        for variable, values in zip(self.program.inputs, inputs, strict=True):
            self.memory[variable][...] = values
        arrays = [HostArray(values) for values in self.memory]
        self.calls = [
            launch.cuda(bench, [arrays[v] for v in launch.reads], [arrays[v] for v in launch.writes]) for launch in self.program.launches()
        ]
        self.outputs = [self.memory[variable] for variable in self.program.outputs]

    def run(self):
        for call in self.calls:
            call()
        return self.outputs


def aligned_bytes(count, alignment=256):
    """Return a view of fresh memory that begins on a boundary, as device memory does."""
    memory = np.empty(count + alignment, np.uint8)
    first = -memory.__array_interface__["data"][0] % alignment
    return memory[first : first + count]


def fresh(name, spec):
    values = aligned_bytes(max(1, spec.nbytes))[: spec.nbytes].view(spec.dtype).reshape(spec.shape)
    values.view(np.uint8).reshape(-1)[...] = 0x5A if spec.dtype != np.bool_ else 1
    return values


@pytest.fixture(scope="session")
def deferred(build):
    """Return a function that makes a bench whose kernels are built together, later."""
    return lambda: DeferredBench(build)


@pytest.fixture(scope="session")
def host_program():
    return HostProgram


@pytest.fixture(scope="session")
def aligned():
    return aligned_bytes


def a_few_sources():
    """Return sources of all sorts of kernels, one each."""
    float32, float16 = np.ones((4, 8), np.float32), np.ones((1, 7), np.float16)
    return [
        source_of(ss.add, float32, float32),
        source_of(ss.add, float32, float32[0]),
        source_of(ss.multiply, np.ones((3, 7)), float16),
        source_of(lambda x, y: ss.add(x, x, out=y, request="add"), float16, float16),
        source_of(lambda x, b: ss.multiply.gradient(x, x, b)[1], float32, float32[0]),
    ]


def source_of(function, *arrays):
    """Return the source that an operator hands to the compiler for arrays like these."""
    taken = []

    class Bench:
        def kernel(self, source, blocks, threads, arguments):
            taken.append(source)

    HostProgram(Bench(), function, arrays)
    return taken[0]


def for_the_host(source):
    """Return a source as a part of a host library; half is converted by the compiler instead of by PTX."""
    code = source.code.replace(HALF_CONVERSIONS, HOST_HALF_CONVERSIONS)
    run = f'extern "C" void run_{source.name}(unsigned b, unsigned t, void** a) {{ host_cuda::launch({source.name}, b, t, a); }}'
    return f"namespace in_{source.name} {{\n{code}\n{run}\n}}\n"


@pytest.fixture(scope="session")
def build(tmp_path_factory):
    """Return a function that builds sources for the host and returns a bench with them; it takes a mapping of the source that an
    operator asks for to the one that is built in its place.
    """
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++ on the PATH")
    folder = tmp_path_factory.mktemp("host_build")
    numbers = itertools.count()

    def make(sources):
        path = folder / f"kernels_{next(numbers)}.cc"
        path.write_text(f'#include "{PRELUDE}"\n' + "\n".join(map(for_the_host, sources.values())))
        command = [compiler, "-std=c++17", "-O1", "-fwrapv", "-w", "-shared", "-fPIC", path, "-o", path.with_suffix(".so")]
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert result.returncode == 0, result.stderr
        return HostBench(ctypes.CDLL(str(path.with_suffix(".so"))), sources.keys())

    return make


def pytest_generate_tests(metafunc):
    if "source" in metafunc.fixturenames:
        sources = a_few_sources()
        metafunc.parametrize("source", sources, ids=[source.name for source in sources])
