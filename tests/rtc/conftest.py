"""The generated kernels, and a build of them for the host."""

from __future__ import annotations

import ctypes
import itertools
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import streamscope as ss
from streamscope.rtc.elementwise_source import VECTOR_BYTES
from streamscope.rtc.softmax_source import softmax_source
from streamscope.rtc.types_source import HALF_CONVERSIONS

PRELUDE = Path(__file__).with_name("host_cuda.h")
FLOATS = ("float16", "float32", "float64")
HOST_HALF_CONVERSIONS = """
struct half_t { unsigned short bits; };
inline float load(half_t h) { _Float16 value; memcpy(&value, &h, 2); return value; }
inline void store(half_t& h, float f) { _Float16 value = f; memcpy(&h, &value, 2); }
"""


class HostBench:
    """Prepares kernels as the CUDA device's bench does, but from a library built for the host."""

    def __init__(self, library, sources):
        self.library = library
        self.sources = sources

    def kernel(self, source, blocks, threads, arguments):
        assert source in self.sources, f"{source.name} was not built from this source"
        pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(argument) for argument in arguments))
        run = getattr(self.library, f"run_{source.name}")

        def call():
            assert len(pointers) == len(arguments)  # keeps the arguments alive
            run(blocks, threads, pointers)

        return call


def source_of(function, *arrays):
    """Return the source that an operator hands to the compiler for arrays like these."""
    taken = []

    class Bench:
        def kernel(self, source, blocks, threads, arguments):
            taken.append(source)

    (launch,) = ss.program(function).trace(*arrays).launches()
    launch.cuda(Bench(), [None] * len(launch.reads), [None])
    return taken[0]


def every_source():
    """Return the source of every kernel that the operators generate: dtypes, vector widths, operators."""
    sources = []
    for dtype in FLOATS:
        width = VECTOR_BYTES // np.dtype(dtype).itemsize
        for size in (width, width + 1):
            x, bias = np.ones((1, size), dtype), np.ones(size, dtype)
            sources += [source_of(ss.add, x, x), source_of(ss.multiply, x, x), source_of(ss.relu, x), source_of(ss.bias_add, x, bias)]
        sources.append(softmax_source(dtype))
    return sources


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
        command = [compiler, "-std=c++17", "-O1", "-Wno-unknown-pragmas", "-shared", "-fPIC", path, "-o", path.with_suffix(".so")]
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert result.returncode == 0, result.stderr
        return HostBench(ctypes.CDLL(str(path.with_suffix(".so"))), sources.keys())

    return make


@pytest.fixture(scope="session")
def bench(build):
    """Every kernel, on the host."""
    return build({source: source for source in every_source()})


@pytest.fixture(scope="session")
def on_host():
    """Return a function that runs the only launch of a program on the host and returns its result."""

    def run(bench, function, *inputs):
        program = ss.program(function).trace(*inputs)
        (launch,) = program.launches()
        memory = [np.full(variable.spec.shape, np.nan, variable.spec.dtype) for variable in program.variables]
        for variable, values in zip(program.inputs, inputs, strict=True):
            memory[variable][...] = values
        reads, writes = ([ctypes.c_void_p(memory[v].ctypes.data) for v in ids] for ids in (launch.reads, launch.writes))
        launch.cuda(bench, reads, writes)()
        return memory[program.outputs[0]]

    return run


def pytest_generate_tests(metafunc):
    if "source" in metafunc.fixturenames:
        sources = every_source()
        metafunc.parametrize("source", sources, ids=[source.name for source in sources])
