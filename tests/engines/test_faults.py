"""Faults in the middle of a run, on both devices: named, raised once, and the engine works on, as do others on the device."""

from __future__ import annotations

import traceback

import numpy as np
import pytest

import streamscope as ss
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engine_entry import ENGINES
from streamscope.engines.plan import Synchronize
from streamscope.engines.prepared import prepare_traced
from streamscope.errors import DeviceError
from streamscope.program.reference import run_reference

X = np.arange(1, 9, dtype=np.float32)


class Switch:
    """Breaks operations while it is on."""

    def __init__(self):
        self.on = False


@pytest.fixture(params=["simulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    return SimulatedDevice() if request.param == "simulated" else ss.open_device("cuda")


@pytest.fixture(params=ENGINES)
def engine(request):
    return request.param


@pytest.fixture
def bystander(device):
    """Another program on the device, with runs under way; call it to see that it computes what it should."""
    prepared = prepare_traced(ss.program(lambda x: ss.ops.multiply(ss.ops.add(x, x, out=x), x)).trace(X), "graph-dual", device)
    prepared.load([X])
    for _ in range(3):
        prepared.run()

    def check():
        np.testing.assert_array_equal(prepared.outputs()[0], (8 * X) ** 2)
        prepared.load([X])
        prepared.run()
        np.testing.assert_array_equal(prepared.outputs()[0], (2 * X) ** 2)
        for _ in range(2):
            prepared.run()

    return check


def ready(program, engine, device, *inputs):
    """Prepare a program, with what it should compute."""
    inputs = inputs or (X,)
    traced = program.trace(*inputs)
    expected = run_reference(traced, inputs)
    prepared = prepare_traced(traced, engine, device)
    prepared.load(inputs)
    return prepared, expected


def runs_right(prepared, expected, times=3):
    for _ in range(times):
        prepared.run()
        np.testing.assert_array_equal(prepared.outputs()[0], expected[0])
    assert prepared.notes == []


def run_and_wait(prepared):
    prepared.run()
    prepared.wait()


def told(error):
    """What a user sees of an error."""
    return "".join(traceback.format_exception(error))


def host_program(switch):
    @ss.host_function
    def fragile(values):
        if switch.on:
            raise ValueError("the host function is broken")
        return values + 1

    @ss.program
    def mixed(x):
        y = ss.ops.multiply(x, x)
        back = fragile(ss.ops.to_host(y))
        return ss.ops.add(ss.ops.to_device(back), y)

    return mixed


@pytest.mark.parametrize("before", [0, 1, 3])
def test_a_host_function_that_raises(device, engine, bystander, before):
    switch = Switch()
    prepared, expected = ready(host_program(switch), engine, device)
    runs_right(prepared, expected, before)
    for _ in range(2):
        switch.on = True
        with pytest.raises(ValueError, match="the host function is broken") as caught:
            prepared.run()
        # The user's traceback ends in the user's function, and a note names the operation and the line that applied it.
        assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "fragile"
        (note,) = caught.value.__notes__
        assert note.startswith("in host function fragile (operation 2, test_faults.py:")
        prepared.wait()  # It was raised once.
        switch.on = False
        runs_right(prepared, expected)
        bystander()


def operator_program(switch):
    def reference(x):
        if switch.on:
            raise ValueError("the operator is broken")
        return x + 1

    @ss.operator(reads=["x"], writes=["y"], reference=reference, capturable=False)
    def fragile(x, y):
        import cupy

        if switch.on:
            raise ValueError("the operator is broken")
        cupy.add(x, 1, out=y)

    return ss.program(lambda x: ss.ops.relu(fragile(ss.ops.multiply(x, x))))


@pytest.mark.parametrize("before", [0, 1, 3])
def test_an_operator_of_the_users_own_that_raises(device, engine, bystander, before):
    switch = Switch()
    prepared, expected = ready(operator_program(switch), engine, device)
    runs_right(prepared, expected, before)
    for _ in range(2):
        switch.on = True
        # On the simulated device it computes when the device gets there, on CUDA when it is issued.
        with pytest.raises((ValueError, DeviceError), match="the operator is broken") as caught:
            run_and_wait(prepared)
        assert "fragile (operation 1, test_faults.py:" in told(caught.value)
        assert "in reference" in told(caught.value) or "in fragile" in told(caught.value)
        switch.on = False
        prepared.wait()
        runs_right(prepared, expected)
        bystander()


ONE_MORE = 'extern "C" __global__ void one_more(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x] + 1; }'


def launch_program(switch):
    """A kernel whose launch fails: with more threads than a block can have, or on the simulated device by `refusing`."""

    @ss.operator(reads=["x"], writes=["y"], reference=lambda x: x + 1, capturable=False)
    def fragile(x, y):
        import cupy

        cupy.RawKernel(ONE_MORE, "one_more")((1,), (4096 if switch.on else x.size,), (x, y))

    return ss.program(lambda x: ss.ops.relu(fragile(ss.ops.multiply(x, x))))


@pytest.mark.parametrize("before", [0, 1, 3])
def test_a_launch_that_fails(device, engine, bystander, before, monkeypatch):
    switch = Switch()

    def refusing(core, launch, stream):
        if switch.on and launch.name == "fragile":
            raise DeviceError("invalid argument")
        return 0.0, 1.0

    monkeypatch.setattr("streamscope.devices.simulated.core.Core.delay_and_stretch", refusing)
    prepared, expected = ready(launch_program(switch), engine, device)
    runs_right(prepared, expected, before)
    for _ in range(2):
        switch.on = True
        with pytest.raises(Exception, match=r"(?i)invalid.(argument|value)") as caught:
            prepared.run()
        (note,) = caught.value.__notes__
        assert note.startswith("while fragile (operation 1, test_faults.py:")
        switch.on = False
        prepared.wait()
        runs_right(prepared, expected)
        bystander()


def test_two_faults_at_once(engine):
    """A launch that has failed on the device comes to light when the run is broken off by a host function."""
    switch = Switch()

    def sunk(x):
        if switch.on:
            raise ValueError("the operator is broken")
        return x

    sink = ss.operator(lambda x, y: None, reads=["x"], writes=["y"], reference=sunk)

    @ss.host_function
    def fragile(values):
        if switch.on:
            raise KeyError("the host function is broken")
        return values + 1

    @ss.program
    def both(x, raw):
        return sink(x), fragile(raw)

    prepared, expected = ready(both, engine, SimulatedDevice(), X, X)
    runs_right(prepared, expected)
    switch.on = True
    with pytest.raises((KeyError, DeviceError)) as caught:
        prepared.run()
    switch.on = False
    if any(isinstance(step, Synchronize) for step in prepared.plan.steps):  # It waits for the operator before it calls the function.
        assert "<lambda> (operation 0, test_faults.py:" in str(caught.value)
    else:
        assert caught.type is KeyError
        _, meanwhile = caught.value.__notes__
        assert meanwhile.startswith("meanwhile <lambda> (operation 0, test_faults.py:")
    prepared.wait()
    runs_right(prepared, expected)


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_who_wants_to_stop_is_not_taken_for_a_fault(engine, stop):
    """A function of the user's may raise what ends the program; it is passed on as it is, and nothing is left half done."""
    switch = Switch()

    def reference(x):
        if switch.on:
            raise stop
        return x + 1

    fragile = ss.operator(lambda x, y: None, reads=["x"], writes=["y"], reference=reference)
    prepared, expected = ready(ss.program(lambda x: ss.ops.relu(fragile(x))), engine, SimulatedDevice())
    runs_right(prepared, expected)
    switch.on = True
    with pytest.raises(stop):
        run_and_wait(prepared)
    switch.on = False
    prepared.wait()
    runs_right(prepared, expected)


def test_a_comparison_that_breaks_off_leaves_the_device_usable(device):
    switch = Switch()
    program = host_program(switch)
    switch.on = True
    with pytest.raises(ValueError, match="the host function is broken"):
        ss.compare(program, X, device=device, repeats=2, progress=False)
    switch.on = False
    runs = ss.compare(program, X, device=device, repeats=2, progress=False)
    assert all(run.max_abs_error == 0 for run in runs.values())
