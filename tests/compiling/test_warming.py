"""`ss.warm`: compiles what a program needs, without a GPU too, and tells what it did."""

from __future__ import annotations

import numpy as np
import pytest

import streamscope as ss
from streamscope.compiling import warming
from streamscope.errors import CompilationError, DeviceError, ProgramError
from streamscope.kernels.compile.compilation_log import CompileStage
from streamscope.kernels.compile.cubin import Cubin
from streamscope.kernels.compile.kernel_cache import Origin, kernel_cache
from streamscope.kernels.compile.program_kernels import program_kernels
from streamscope.kernels.form import Variant

pytest.importorskip("cuda.bindings.nvrtc")
X = np.ones((8, 16), np.float32)


@ss.program
def step(x):
    return ss.ops.softmax(ss.ops.relu(x)), ss.ops.sum(x)


@pytest.fixture(autouse=True)
def _fresh(monkeypatch, tmp_path):
    monkeypatch.setenv("STREAMSCOPE_CACHE_DIR", str(tmp_path))


def names(log):
    return sorted(record.name for record in log.kernels)


def test_first_compiled_then_there():
    first = ss.warm(step, X, device="simulated", progress=False)
    second = ss.warm(step.trace(X), device="simulated", progress=False)
    kernel_cache().forget()
    third = ss.warm(step, X, device="simulated", progress=False)
    assert names(first) == names(second) == names(third) == sorted(source.name for source in program_kernels(step.trace(X)))
    assert [list(log.counts) for log in (first, second, third)] == [[Origin.COMPILED], [Origin.MEMORY], [Origin.DISK]]
    assert CompileStage.GENERATE in first.stage_ns
    assert {record.architecture for record in first.kernels} == {"sm_90"}


def test_the_session_knows_of_it():
    before = len(ss.compilations().kernels)
    log = ss.warm(step, X, device="simulated", progress=False)
    assert list(ss.compilations().kernels)[before:] == list(log.kernels)


def test_another_architecture():
    log = ss.warm(step, X, architecture="sm_100", progress=False)
    assert {record.architecture for record in log.kernels} == {"sm_100"}
    assert CompileStage.LOAD not in log.stage_ns


def test_with_an_architecture_the_device_is_not_opened(monkeypatch):
    monkeypatch.setattr(warming, "open_device", lambda _: pytest.fail("opened"))
    log = ss.warm(step, X, device="cuda", architecture="sm_80", progress=False)
    assert {record.architecture for record in log.kernels} == {"sm_80"}


def test_a_device_that_is_none_is_told_beside_an_architecture_too():
    for function in (ss.warm, ss.compare_compilation):
        with pytest.raises(DeviceError, match="unknown device 'gpu'"):
            function(step, X, device="gpu", architecture="sm_90", progress=False)
        with pytest.raises(DeviceError, match="3 is not a device"):
            function(step, X, device=3, architecture="sm_90", progress=False)


def test_progress_is_told():
    seen = []
    log = ss.warm(step, X, device="simulated", progress=lambda *report: seen.append(report))
    assert seen[-1] == ("compiling for sm_90", len(log.kernels), len(log.kernels))


def test_a_program_of_no_kernels():
    log = ss.warm(ss.program(lambda x: ss.ops.matmul(x, x)), np.ones((8, 8), np.float32), device="simulated", progress=False)
    assert log.counts == {}
    assert "No kernel has been asked for" in log._repr_html_()


@pytest.mark.parametrize(
    ("program", "inputs", "options", "error", "match"),
    [
        (step.trace(X), (X,), {}, ProgramError, "takes no inputs here, got 1"),
        (step, (X,), {"architecture": "sm_123"}, CompilationError, "architecture='sm_123'"),
        (step, (X,), {"architecture": ""}, CompilationError, "architecture=''"),
        (step, (X,), {"architecture": b"sm_90"}, CompilationError, "architecture=b'sm_90'"),
        (step, (X,), {"workers": 0}, CompilationError, "workers=0"),
        (step, (X,), {"workers": "2"}, CompilationError, "workers='2'"),
    ],
)
def test_wrong_arguments(program, inputs, options, error, match):
    with pytest.raises(error, match=match):
        ss.warm(program, *inputs, device="simulated", progress=False, **options)


def test_a_kernel_that_does_not_compile_leaves_the_others():
    bad = ss.elementwise("y = undeclared(x)", name="bad", reference=np.negative)
    with pytest.raises(CompilationError, match=r"(?s)kernel 'bad_\w+' did not compile.*\"undeclared\" is undefined.*\^"):
        ss.warm(ss.program(lambda x: (ss.ops.relu(x), bad(x), ss.ops.sum(x))), X, device="simulated", progress=False)
    log = ss.warm(ss.program(lambda x: (ss.ops.relu(x), ss.ops.sum(x))), X, device="simulated", progress=False)
    assert list(log.counts) == [Origin.MEMORY]


class TunedDevice:
    """What `warm` asks of a CUDA device on which tuning has chosen two vectors in flight for everything."""

    architecture = "sm_90"

    def __init__(self):
        self.tuned = self
        self.loaded = {}

    def of(self, source, size):
        return Variant(8, 2)

    def load(self, cubins, log):
        self.loaded.update(cubins)


def test_on_a_tuned_device_the_chosen_variants_are_compiled(monkeypatch):
    """Those that preparing the program will ask for."""
    device = TunedDevice()
    monkeypatch.setattr(warming, "opened_cuda", lambda _: device)
    monkeypatch.setattr("streamscope.compiling.launch_cost.launch_cost", lambda _: None)
    traced = ss.program(ss.ops.erf).trace(np.ones((300, 1000), np.float32))
    ss.warm(traced, progress=False)
    assert tuple(device.loaded) == program_kernels(traced, device)
    assert tuple(device.loaded) != program_kernels(traced)
    assert all(isinstance(cubin, Cubin) for cubin in device.loaded.values())
