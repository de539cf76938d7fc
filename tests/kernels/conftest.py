"""The generated kernels, and a build of them for the host."""

from __future__ import annotations

import ctypes
import importlib
import itertools
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import streamscope as ss
from streamscope.devices.cuda.bench import CudaBench, PackedArguments
from streamscope.kernels.source import HALF_CONVERSIONS
from streamscope.program.reference import run_reference
from streamscope.tolerance import absolute_errors, allowed_errors

PRELUDE = Path(__file__).with_name("host_cuda.h")
SANITIZED = "-fsanitize=signed-integer-overflow,integer-divide-by-zero,shift"
ROOMY = "--param=ggc-min-heapsize=2000000"
"""The compiler collects no garbage below 2 GB, which it does not need: a tenth less time."""
HOST_HALF_CONVERSIONS = """
struct half_t { unsigned short bits; };
inline float load(half_t h) { _Float16 value; memcpy(&value, &h, 2); return value; }
inline void store(half_t& h, float f) { _Float16 value = f; memcpy(&h, &value, 2); }
"""


class HostArray:
    """A NumPy array that looks like CuPy's, so that what binds kernels to device memory binds them to the host's."""

    def __init__(self, values):
        self.values = values  # keeps the memory
        self.shape, self.strides, self.itemsize, self.dtype, self.size = (
            getattr(values, name) for name in ("shape", "strides", "itemsize", "dtype", "size")
        )
        self.data = SimpleNamespace(ptr=address(values))

    def reshape(self, shape):
        return HostArray(self.values.reshape(shape))


class HostBench:
    """Prepares kernels as the CUDA device's bench does, but from a library built for the host.

    A kernel fails that does what C++ leaves undefined: the compiler for GPUs may take it that this never happens.
    """

    tuned = None

    def __init__(self, path, sources):
        self.library = ctypes.CDLL(str(path.with_suffix(".so")))
        self.library.undefined_behaviour.restype = ctypes.c_char_p
        self.path = path
        self.sources = sources

    def kernel(self, source, blocks, threads, arguments):
        assert source in self.sources, f"{source.name} was not built from this source"
        packed = PackedArguments(arguments)
        run = getattr(self.library, f"run_{source.name}")

        def call():
            run(blocks, threads, packed.pointers)
            undefined = self.library.undefined_behaviour().decode()
            assert not undefined, f"{source.name}: {undefined}: {self.path.read_text().splitlines()[int(undefined.split()[-1]) - 1]}"

        return call


class DeferredBench:
    """Host memory, and kernels taken as the CUDA device's bench takes them; they can run once `finish` has built them all together."""

    tuned = None

    def __init__(self, build):
        self.build = build
        self.stream = SimpleNamespace(workspace=lambda nbytes: HostArray(self.memory(nbytes)))
        self.sources = {}
        self.bench = None

    def kernel(self, source, blocks, threads, arguments):
        if blocks:
            self.sources[source] = source

        def call():
            self.bench.kernel(source, blocks, threads, arguments)()

        return call

    def finish(self):
        self.bench = self.build(self.sources)

    def memory(self, count):
        """Return bytes that begin on a boundary, as device memory does."""
        memory = np.empty(count + 256, np.uint8)
        first = -address(memory) % 256
        return memory[first : first + count]

    def argument(self, array):
        return HostArray(array)

    def write(self, array, values):
        array[...] = values

    def read(self, array):
        return array


class GpuBench:
    """The same for a GPU."""

    tuned = None

    def __init__(self):
        device = ss.open_device("cuda")
        self.bench = CudaBench(device, device.stream("test"))
        self.stream = self.bench.stream

    def kernel(self, source, blocks, threads, arguments):
        return self.bench.kernel(source, blocks, threads, arguments)

    def finish(self):
        pass

    def memory(self, count):
        import cupy

        return cupy.empty(count, np.uint8)

    def argument(self, array):
        return array

    def write(self, array, values):
        import cupy

        array[...] = cupy.asarray(values)
        cupy.cuda.runtime.deviceSynchronize()  # the kernels' stream does not wait for the one of this copy

    def read(self, array):
        self.bench.stream.synchronize()
        return array.get()


def address(array):
    """Return where an array's first element lies."""
    return array.data.ptr if hasattr(array.data, "ptr") else array.__array_interface__["data"][0]


class BoundProgram:
    """A program of device operations whose kernels are bound by a bench to memory of its own."""

    def __init__(self, bench, function, inputs):
        self.bench = bench
        self.program = ss.program(function).trace(*inputs)
        self.memory = [fresh(bench, variable.spec) for variable in self.program.variables]
        for variable, values in zip(self.program.inputs, inputs, strict=True):
            bench.write(self.memory[variable], values)

        def arguments(operands):
            return [bench.argument(seen(self.memory[variable], view)) for variable, view in operands]

        self.calls = [launch.cuda(bench, arguments(launch.operands), arguments(launch.results)) for launch in self.program.launches()]

    def run(self):
        """Return the outputs; to be called once where a program changes its inputs."""
        for call in self.calls:
            call()
        return [self.bench.read(self.memory[variable]) for variable in self.program.outputs]

    def shares(self, inputs):
        """Return the error of each output, as a share of what rounding explains: of its worst element."""
        expected = run_reference(self.program, inputs)
        allowed = allowed_errors(self.program, inputs, expected)
        with np.errstate(invalid="ignore", divide="ignore"):
            return [
                np.where((found := absolute_errors(result, one)) == 0, 0, found / bound).max(initial=0)
                for result, one, bound in zip(self.run(), expected, allowed, strict=True)
            ]


def seen(array, view):
    """Return an array as a view sees it."""
    if view is None or not view.spec.size:
        return array if view is None else array.ravel()[:0].reshape(view.spec.shape)
    library = np if isinstance(array, np.ndarray) else importlib.import_module("cupy")
    strides = [array.itemsize * stride for stride in view.strides]
    return library.lib.stride_tricks.as_strided(array.ravel()[view.offset :], view.spec.shape, strides)


def fresh(bench, spec):
    memory = bench.memory(max(1, spec.nbytes))[: spec.nbytes]
    memory[...] = 1 if spec.dtype == np.bool_ else 0x5A
    return memory.view(spec.dtype).reshape(spec.shape)


@pytest.fixture(scope="session", params=["host", pytest.param("cuda", marks=pytest.mark.gpu)])
def new_bench(request):
    """Return a function that makes a bench: for the host, whose kernels are built together when it is finished, or for a GPU."""
    if request.param == "cuda":
        return GpuBench
    build = request.getfixturevalue("build")
    return lambda: DeferredBench(build)


@pytest.fixture(scope="session")
def differing(new_bench):
    """Return a function of programs with their inputs, by name, that runs their kernels and returns the names of those whose results are
    further from NumPy's than rounding explains.
    """

    def run(cases):
        bench = new_bench()
        made = {name: BoundProgram(bench, function, inputs) for name, (function, *inputs) in cases.items()}
        bench.finish()
        return [name for name, each in made.items() if not all(share <= 1 for share in each.shares(cases[name][1:]))]

    return run


@pytest.fixture(scope="session")
def host_bench():
    return DeferredBench


@pytest.fixture(scope="session")
def bound_program():
    return BoundProgram


@pytest.fixture(scope="session")
def address_of():
    return address


def sources_of(function, *arrays):
    """Return the sources that a function over variables hands to the compiler, for arrays like these."""
    taken = []

    class Bench(DeferredBench):
        def kernel(self, source, blocks, threads, arguments):
            taken.append(source)

    BoundProgram(Bench(None), function, arrays)
    return taken


def a_few_sources():
    """Return sources of all sorts of kernels, one each."""
    float32, float16 = np.ones((4, 8), np.float32), np.ones((1, 7), np.float16)
    return [
        *sources_of(ss.ops.add, float32, float32),
        *sources_of(ss.ops.add, float32, float32[0]),
        *sources_of(ss.ops.multiply, np.ones((3, 7)), float16),
        *sources_of(lambda x, y: ss.ops.add(x, x, out=y, request="add"), float16, float16),
        *sources_of(lambda x, b: ss.ops.multiply.gradient(x, x, b), float32, float32[0]),
    ]


@pytest.fixture(scope="session")
def traced_sources():
    return sources_of


TOGETHER = 48
"""How many kernels one unit has: the compiler for GPUs takes half as long for each as when it is alone."""


@pytest.fixture(scope="session")
def compiled_together():
    """Return a function of sources and an architecture that compiles them, many in a unit, and yields each unit's machine code.

    Whether a source compiles is decided before it is optimized, which takes NVRTC a third of its time; ``optimized`` asks for that too.
    """
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC's bindings are not installed")
    from streamscope.kernels.compile import nvrtc

    def images(sources, architecture, *, optimized=False):
        options = nvrtc.OPTIONS if optimized else (*nvrtc.OPTIONS, "--Ofast-compile=max")
        named = sorted({source.name: source.code for source in sources}.items())
        for first in range(0, len(named), TOGETHER):
            some = named[first : first + TOGETHER]
            unit = "\n".join(f"namespace n{number} {{\n{code}\n}}" for number, (_, code) in enumerate(some))
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(nvrtc, "OPTIONS", options)
                image, log = nvrtc.compile_unit(unit, "together", architecture)
            assert image is not None, log
            assert [name for name, _ in some if not re.search(rb"\b%s\b" % name.encode(), image)] == []
            yield image

    return images


SHARED = 8
"""How many sources have to begin with the same text for it to be compiled once, for all of them."""


def for_the_host(sources):
    """Return sources as one library of the host, which takes half as long as one by one; half is converted by the compiler, not by PTX."""
    codes = {source.name: source.code.replace(HALF_CONVERSIONS, HOST_HALF_CONVERSIONS) for source in sources}
    shared = Counter(head for code in codes.values() for head in heads(code))
    together: dict[str, list[str]] = {}
    for name, code in codes.items():
        head = max((each for each in heads(code) if shared[each] >= SHARED), key=len, default="")
        run = f'extern "C" void run_{name}(unsigned b, unsigned t, void** a) {{ host_cuda::launch({name}, b, t, a); }}'
        together.setdefault(head, []).append(f"namespace in_{name} {{{code[len(head) :]}\n{run}\n}}")
    return "\n".join("\n".join([f"namespace head_{n} {{", head, *rest, "}"]) for n, (head, rest) in enumerate(together.items()))


def heads(code):
    """Yield the beginnings of a source that end with a paragraph and leave no brace open."""
    end = code.find("\n\n")
    while end >= 0:
        if code.count("{", 0, end) == code.count("}", 0, end):
            yield code[:end]
        end = code.find("\n\n", end + 1)


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

    def compiled(*arguments):
        command = [compiler, "-std=c++17", "-O0", SANITIZED, ROOMY, "-w", "-shared", "-fPIC", *arguments]
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert result.returncode == 0, result.stderr

    # Parsed once: what it includes takes the compiler longer than most kernels.
    prelude = shutil.copy(PRELUDE, folder)
    compiled("-x", "c++-header", prelude, "-o", f"{prelude}.gch")

    def make(sources):
        path = folder / f"kernels_{next(numbers)}.cc"
        path.write_text(f'#include "{prelude}"\n{for_the_host(sources.values())}')
        compiled("-Winvalid-pch", path, "-o", path.with_suffix(".so"))
        return HostBench(path, sources.keys())

    return make


def pytest_generate_tests(metafunc):
    if "source" in metafunc.fixturenames:
        sources = a_few_sources()
        metafunc.parametrize("source", sources, ids=[source.name for source in sources])
