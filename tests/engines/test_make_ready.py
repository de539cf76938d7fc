"""What a program's launches need is got together before any of them is bound: on CUDA, its kernels in one batch."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import streamscope as ss
from streamscope.devices.cuda.device import CudaDevice
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engine_entry import ENGINES
from streamscope.engines.prepared import prepare_traced
from streamscope.errors import CompilationError
from streamscope.interrupts import Alive
from streamscope.kernels.compile.compilation_log import CompileStage, compilations
from streamscope.kernels.compile.kernel_cache import Origin
from streamscope.kernels.compile.program_kernels import program_kernels
from streamscope.program.reference import run_reference

X = np.linspace(-1, 1, 96, dtype=np.float32).reshape(8, 12)
broken = ss.elementwise("y = undeclared_function(x)", reference=np.negative)


@ss.program
def step(x):
    return ss.ops.softmax(ss.ops.relu(x) + ss.ops.tanh(x)), ss.ops.sum(x * 2.0, axis=0)


@ss.program
def same_kernels(x):
    return ss.ops.relu(x), ss.ops.tanh(x)


@ss.program
def half_broken(x):
    return ss.ops.relu(x), broken(x)


class Noting(SimulatedDevice):
    def __init__(self):
        super().__init__()
        self.calls = []

    def make_ready(self, program, progress=None):
        self.calls.append(program)

    def bind(self, launch, reads, writes, stream):
        self.calls.append("bind")
        return super().bind(launch, reads, writes, stream)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_device_is_told_of_a_program_before_its_launches_are_bound(engine):
    device, traced, other = Noting(), step.trace(X), step.trace(X[:4])
    prepared = prepare_traced(traced, engine, device)
    assert device.calls[0] is traced
    assert device.calls[1:] == ["bind"] * len(list(traced.launches()))
    device.calls.clear()
    prepared.retrace(other)
    assert device.calls[0] is other
    assert device.calls.count("bind") == len(device.calls) - 1


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("STREAMSCOPE_CACHE_DIR", str(tmp_path))


@pytest.fixture
def unopened(empty_cache):
    """A CUDA device as far as compilation sees it, with a list in the place of the driver."""
    pytest.importorskip("cuda.bindings.nvrtc")
    device = CudaDevice.__new__(CudaDevice)
    device.properties = {"major": 9, "minor": 0}
    device._modules, device._ready, device.loads, device.tuned = {}, Alive(), [], None

    def load(cubins, log=None):
        device.loads.append(dict(cubins))
        device._modules.update(cubins)

    device.load = load
    return device


def test_the_kernels_of_a_program_are_compiled_together_once(unopened):
    traced = step.trace(X)
    unopened.make_ready(traced)
    assert unopened.loads == [unopened._modules]
    assert set(unopened._modules) == set(program_kernels(traced))
    assert len(unopened._modules) == 6
    assert max(cubin.kernels for cubin in unopened._modules.values()) > 1
    for again in (traced, step.trace(X), same_kernels.trace(X)):
        unopened.make_ready(again)
    assert len(unopened.loads) == 1


def test_progress_is_told_how_many_kernels_are_there(unopened):
    told = []
    traced = step.trace(X)
    unopened.make_ready(traced, lambda *step: told.append(step))
    assert {(what, steps) for what, _, steps in told} == {("compiling kernels", len(program_kernels(traced)))}
    assert told[-1][1] == told[-1][2]


def test_a_program_that_is_known_is_not_looked_through_again(unopened, monkeypatch):
    traced = step.trace(X)
    unopened.make_ready(traced)
    monkeypatch.setattr("streamscope.devices.cuda.device.program_kernels", lambda program: pytest.fail("looked through again"))
    unopened.make_ready(traced)
    del traced
    gc.collect()
    assert len(unopened._ready) == 0  # the device keeps no program alive


def test_a_kernel_that_does_not_compile_leaves_the_others_loaded(unopened):
    traced = half_broken.trace(X)
    for _ in range(2):
        with pytest.raises(CompilationError, match="undeclared_function"):
            unopened.make_ready(traced)
    assert [source.name.startswith("relu") for source in unopened._modules] == [True]


@pytest.mark.gpu
@pytest.mark.parametrize("engine", ENGINES)
def test_on_a_gpu_no_kernel_is_compiled_by_itself(empty_cache, monkeypatch, engine):
    monkeypatch.setattr("streamscope.devices.cuda.device.compile_kernel", lambda *_: pytest.fail("compiled by itself"))
    log, device, traced = compilations(), CudaDevice(), step.trace(X)
    log.kernels.clear()
    log.stages.clear()
    prepared = prepare_traced(traced, engine, device)
    prepared.load([X])
    for _ in range(3):
        prepared.run()
    for found, expected in zip(prepared.outputs(), run_reference(traced, [X]), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    records, times = list(log.kernels), list(log.stages)
    assert [record.origin for record in records] == [Origin.COMPILED] * len(program_kernels(traced))
    cubins = {record.cubin.digest for record in records}
    assert sum(time.stage is CompileStage.LOAD for time in times) == len(cubins) < len(records)
