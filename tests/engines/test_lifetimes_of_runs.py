"""What is let go while it runs, or breaks off while another thread captures, harms nobody."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

import streamscope as ss
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engine_entry import ENGINES
from streamscope.engines.prepared import prepare_traced
from streamscope.errors import DeviceError
from streamscope.recording.calibration import held

X = np.ones((4, 4), np.float32)


@ss.program
def step(x):
    return ss.ops.relu(x) + x


class Noting(SimulatedDevice):
    def __init__(self):
        super().__init__()
        self.finished = []

    def let_finish(self, streams):
        self.finished.append(tuple(streams))

    def synchronize(self):
        raise DeviceError("another thread captures")


@pytest.mark.parametrize("engine", ENGINES)
def test_who_lets_a_prepared_program_go_waits_for_its_streams(engine):
    device = Noting()
    prepared = prepare_traced(step.trace(X), engine, device)
    streams = tuple(prepared.streams.values())
    prepared.load([X])
    prepared.run()
    assert device.finished == []
    del prepared
    gc.collect()
    assert device.finished == [streams]


def test_the_streams_are_those_of_the_last_trace():
    device = Noting()
    prepared = prepare_traced(step.trace(X), "dual", device)
    prepared.retrace(ss.program(lambda x: (ss.ops.relu(x), ss.ops.tanh(x))).trace(X))
    streams = set(prepared.streams.values())
    del prepared
    gc.collect()
    assert streams in [set(each) for each in device.finished]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_run_that_breaks_off_waits_for_its_own_streams_only(engine):
    """`Noting.synchronize` fails as the whole device's does on CUDA while another thread captures."""
    device = Noting()
    prepared = prepare_traced(step.trace(X), engine, device)
    prepared.load([X])

    def broken():
        raise DeviceError("as planned")

    prepared._calls = [prepared._calls[0], broken]
    with pytest.raises(DeviceError, match="as planned") as caught:
        prepared.run()
    assert "captures" not in str(getattr(caught.value, "__notes__", ""))


@pytest.mark.gpu
class TestOnAGpu:
    @pytest.fixture
    def device(self):
        return ss.open_device("cuda")

    def test_its_memory_is_free_only_when_it_is_done(self, device):
        x = np.ones((4096, 4096), np.float16)
        prepared = prepare_traced(ss.program(lambda x: x @ x @ x @ x).trace(x), "async", device)
        prepared.load([x])
        for _ in range(20):
            prepared.run()
        handles = [stream.handle for stream in prepared.streams.values()]
        assert not all(handle.done for handle in handles)
        del prepared
        gc.collect()
        assert all(handle.done for handle in handles)

    def test_letting_go_waits_also_while_the_thread_captures(self, device):
        from streamscope.devices.cuda.captures import relaxed_captures

        x = np.ones((4096, 4096), np.float16)
        prepared = prepare_traced(ss.program(lambda x: x @ x @ x @ x).trace(x), "async", device)
        prepared.load([x])
        for _ in range(10):
            prepared.run()
        handles = [stream.handle for stream in prepared.streams.values()]
        small = prepare_traced(step.trace(X), "async", device)
        small.load([X])
        capturing = device.stream("capturing")
        device.begin_capture(capturing)
        try:
            del prepared
            gc.collect()
            with relaxed_captures():  # asking would break the capture, too
                assert all(handle.done for handle in handles)
        finally:
            graph = device.end_capture(capturing)
        graph.launch(capturing)
        capturing.synchronize()
        small.run()
        np.testing.assert_array_equal(small.outputs()[0], X + X)

    def test_a_device_is_let_go_while_the_thread_captures(self, device):
        """Its kernels are unloaded afterwards, since that would break the capture."""
        other = type(device)()
        prepared = prepare_traced(step.trace(X), "async", other)
        prepared.load([X])
        prepared.run()
        cubins = other._cubins
        assert cubins
        here = prepare_traced(step.trace(X), "async", device)
        capturing = device.stream("capturing")
        device.begin_capture(capturing)
        try:
            del prepared, other
            gc.collect()
            assert cubins  # not yet
        finally:
            graph = device.end_capture(capturing)
        assert not cubins
        graph.launch(capturing)
        here.load([X])
        here.run()
        np.testing.assert_array_equal(here.outputs()[0], X + X)

    def test_a_device_is_let_go_while_a_gate_holds_a_stream(self, device):
        """Its kernels are unloaded afterwards: the driver waits for all that runs there, and would wait for the gate."""
        other = type(device)()
        prepared = prepare_traced(step.trace(X), "async", other)
        prepared.load([X])
        prepared.run()
        cubins, stream = other._cubins, device.stream("held")
        with held(device, [stream]):  # It would raise if the gate had opened by itself.
            del prepared, other
            gc.collect()
            assert cubins  # not yet
        assert not cubins

    def test_the_word_of_a_gate_is_never_set_back(self, device):
        """A stream that has not got past an open gate yet would wait for ever."""
        other = type(device)()
        gate = other.gate()
        gate.open()
        word = other._gates
        del gate, other
        gc.collect()
        third = type(device)()
        assert third._gates is word
        assert int(word.word[0]) == word.last > 0
        following = third.gate()
        following.hold(stream := third.stream("held"))
        assert not stream.handle.done
        following.open()
        stream.synchronize()

    def test_a_run_breaks_off_while_another_thread_captures(self, device):
        prepared = prepare_traced(step.trace(X), "async", device)
        prepared.load([X])
        begun, over, graphs = threading.Event(), threading.Event(), []

        def capture():
            stream = device.stream("capturing")
            device.begin_capture(stream)
            begun.set()
            over.wait(30)
            graphs.append(device.end_capture(stream))

        thread = threading.Thread(target=capture)
        thread.start()
        begun.wait(30)

        def broken():
            raise DeviceError("as planned")

        calls = prepared._calls
        prepared._calls = [calls[0], broken]
        with pytest.raises(DeviceError, match="as planned") as caught:
            prepared.run()
        over.set()
        thread.join()
        assert graphs
        assert not getattr(caught.value, "__notes__", [])
        prepared._calls = calls
        prepared.run()
        np.testing.assert_array_equal(prepared.outputs()[0], X + X)
