"""Ctrl-C at every call of a device, and between any two lines, of a comparison and of a recording: the device works on as if new.

There are some thousand such calls. With `STREAMSCOPE_EVERY_INTERRUPT=1` each of them is tried, which takes some minutes, else a sample that
differs by engine.
"""

from __future__ import annotations

import gc
import os
import random
import signal
from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest
from tests.interrupting import Countdown, Lines, traced

import streamscope as ss
from streamscope.devices.simulated import SimulatedDevice
from streamscope.devices.simulated.graphs import SimulatedGraph
from streamscope.devices.simulated.streams import SimulatedEvent, SimulatedGate, SimulatedStream
from streamscope.engine_entry import ENGINES
from streamscope.engines.prepared import prepare_traced
from streamscope.program.reference import run_reference
from streamscope.recording import calibration, passes
from streamscope.recording.events import EventRecorder

CALLS = {
    SimulatedDevice: (
        "adopt", "allocate", "begin_capture", "bind", "bind_host", "captured_nodes", "elapsed_ns", "end_capture", "event", "gate",
        "now_ns", "read", "stream", "synchronize", "write",
    ),
    SimulatedStream: ("launch", "record", "synchronize", "wait"),
    SimulatedEvent: ("synchronize",),
    SimulatedGate: ("hold", "open"),
    SimulatedGraph: ("launch",),
}  # fmt: skip


@ss.host_function
def shifted(values):
    """A step on the host in the middle, so that there are two segments."""
    return values + 1


@ss.program
def step(x, raw):
    """Two branches, a host step, and an input that is written over."""
    left, right = ss.ops.multiply(x, x), ss.ops.add(x, x)
    y = ss.ops.to_device(shifted(raw))
    x = ss.ops.add(left, right, out=x)
    return x, ss.ops.multiply(y, x)


EVERY = "STREAMSCOPE_EVERY_INTERRUPT" in os.environ
INPUTS = (np.arange(1.0, 5.0), np.arange(4.0))
EXPECTED = run_reference(step.trace(*INPUTS), INPUTS)


def comparison(engine, device):
    ss.compare(step, *INPUTS, engines=[engine], device=device, repeats=1, progress=False)


def recording(engine, device):
    prepared = prepare_traced(step.trace(*INPUTS), engine, device)
    for _ in range(3):
        prepared.load(INPUTS)
        prepared.run()
    EventRecorder.on(device).record(prepared, partial(prepared.load, INPUTS))


def noticing(scenario, engine, device):
    """Run a scenario; Ctrl-C that comes as its last objects go is noticed at the next call."""
    scenario(engine, device)
    gc.isenabled()


class Bystander:
    """Another program on the device, that is under way while the first is interrupted."""

    def __init__(self, device):
        self.prepared = prepare_traced(ss.program(lambda x: ss.ops.multiply(ss.ops.add(x, x, out=x), x)).trace(INPUTS[0]), "dual", device)
        self.prepared.load(INPUTS[:1])
        for _ in range(3):
            self.prepared.run()

    def check(self):
        np.testing.assert_array_equal(self.prepared.outputs()[0], (8 * INPUTS[0]) ** 2)


def check(device, engine):
    """The device computes what it should, under the same engine as before, and all is as it was."""
    prepared = prepare_traced(step.trace(*INPUTS), engine, device)
    for _ in range(3):
        prepared.load(INPUTS)
        prepared.run()
        for found, expected in zip(prepared.outputs(), EXPECTED, strict=True):
            np.testing.assert_array_equal(found, expected)
    assert prepared.notes == []
    assert gc.isenabled()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def cuda_calls():
    from streamscope.devices.cuda.device import CudaDevice
    from streamscope.devices.cuda.gate import CudaGate
    from streamscope.devices.cuda.graph import CudaGraph
    from streamscope.devices.cuda.streams import CudaEvent, CudaStream

    kinds = (CudaDevice, CudaStream, CudaEvent, CudaGate, CudaGraph)
    return {
        kind: [name for name in names if name in vars(kind)]  # a launch is a call of CuPy's
        for kind, names in zip(kinds, CALLS.values(), strict=True)
    }


@contextmanager
def counted(countdown, calls=CALLS):
    """Let every call of a device tick twice: as it begins, and when it has ended."""

    def ticking(method):
        def call(*arguments, **options):
            countdown.tick()
            result = method(*arguments, **options)
            countdown.tick()
            return result

        return call

    with pytest.MonkeyPatch.context() as patch:
        for kind, names in calls.items():
            for name in names:
                patch.setattr(kind, name, ticking(getattr(kind, name)))
        yield


@pytest.fixture(autouse=True)
def _few_samples(monkeypatch):
    monkeypatch.setattr(calibration, "PAIRS", 2)
    monkeypatch.setattr(passes, "MOST_EXACT_VARIANTS", 2)


@pytest.fixture(autouse=True)
def _default_handler():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("scenario", "stride"), [(comparison, 17), (recording, 47)])
def test_an_interrupt_at_any_call_of_the_device(scenario, engine, stride):
    undisturbed = Countdown()
    with counted(undisturbed):
        scenario(engine, SimulatedDevice())
    device = SimulatedDevice()
    for at in range(1 + list(ENGINES).index(engine) % stride, undisturbed.count + 1, 1 if EVERY else stride):
        bystander = Bystander(device)
        with counted(Countdown(at)), pytest.raises(KeyboardInterrupt):
            noticing(scenario, engine, device)
        bystander.check()
        check(device, engine)
    scenario(engine, device)


@pytest.mark.gpu
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("scenario", [comparison, recording])
def test_an_interrupt_at_any_call_of_a_gpu(scenario, engine):
    device = ss.open_device("cuda")
    scenario(engine, device)
    undisturbed = Countdown()
    with counted(undisturbed, cuda_calls()):
        scenario(engine, device)
    stride = 1 if EVERY else max(1, undisturbed.count // 30)
    for at in range(1 + list(ENGINES).index(engine), undisturbed.count + 1, stride):
        bystander = Bystander(device)
        with counted(Countdown(at), cuda_calls()), pytest.raises(KeyboardInterrupt):
            noticing(scenario, engine, device)
        bystander.check()
        check(device, engine)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("scenario", [comparison, recording])
def test_an_interrupt_between_any_two_lines(scenario, engine):
    undisturbed = Lines()
    for lines in (Lines(), undisturbed):  # once, so that all modules are loaded
        with traced(lines):
            scenario(engine, SimulatedDevice())
    device, samples = SimulatedDevice(), random.Random(f"{scenario.__name__} {engine}")
    for _ in range(100 if EVERY else 4):
        bystander = Bystander(device)
        with pytest.raises(KeyboardInterrupt), traced(Lines(samples.randint(1, undisturbed.countdown.count - 1))):
            noticing(scenario, engine, device)
        bystander.check()
        check(device, engine)
