"""What goes wrong in an operation is kept on what it writes, passed on, and raised once, wherever it went wrong."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest
from tests.engines.pushed.conftest import SPEC

import streamscope as ss
from streamscope.devices.cost_model import CostModel
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engines.pushed.engine import Engine
from streamscope.engines.pushed.faults import KEPT, Fault, FaultLog
from streamscope.errors import DeviceError, EngineError, OutOfMemoryError, ProgramError, StreamscopeError


def ones():
    return np.ones(4, np.int64)


class Planned(Exception):  # noqa: N818 — it is no error, but planned
    """What the tests' functions raise."""


def fails_on_host(*arrays):
    raise Planned("as planned")


def fails_in_tracing(x):
    raise Planned("as planned")


def break_on_host(engine):
    h, x = engine.variable(ones(), place="host"), engine.variable(SPEC)
    engine.push(fails_on_host, reads=(h,), writes=(h,))
    engine.push(ss.ops.to_device, reads=(h,), writes=(x,))
    return x


def break_in_tracing(engine):
    x = engine.variable(ones())
    engine.push(fails_in_tracing, reads=(x,), writes=(x,))
    return x


def break_at_launch(engine):
    """The function is not pushed for the first time, and its launch fails."""
    x = engine.variable(ones())
    engine.push(ss.ops.add, reads=(x, x), writes=(x,))
    engine.wait_all()
    (key,) = (key for key in engine._catalogue.keys_of(x._state) if key[0] is ss.ops.add)
    (part,) = engine._catalogue.applications[key].parts
    calls = part.calls

    def launch():
        part.calls = calls
        raise Planned("as planned")

    part.calls = dict.fromkeys(calls, (launch,))
    engine.push(ss.ops.add, reads=(x, x), writes=(x,))
    return x


BREAKS = {"on the host": break_on_host, "in tracing": break_in_tracing, "at launch": break_at_launch}


@pytest.mark.parametrize("place", BREAKS)
class TestAFault:
    def test_is_raised_once_where_it_is_waited_for(self, engine, place):
        x = BREAKS[place](engine)
        with pytest.raises(EngineError, match=r"\(pushed at test_faults.py:\d+\) failed: Planned: as planned") as raised:
            engine.wait_to_read(x)
        assert isinstance(raised.value.__cause__, Planned)
        engine.wait_to_read(x)
        engine.wait_to_write(x)
        engine.wait_all()

    def test_is_passed_on_and_what_reads_it_is_skipped(self, engine, place):
        x, y, h = BREAKS[place](engine), engine.variable(ones()), engine.variable(ones(), place="host")
        called = []
        engine.push(ss.ops.add, reads=(x, y), writes=(y,))
        engine.push(ss.ops.to_host, reads=(y,), writes=(h,))
        engine.push(lambda values: called.append(1) or values, reads=(h,), writes=(h,))
        assert y.version == 0
        with pytest.raises(EngineError, match="as planned"):
            engine.read(h)
        assert called == []
        engine.wait_all()

    def test_leaves_others_alone(self, engine, place):
        good = engine.variable(ones())
        BREAKS[place](engine)
        engine.push(ss.ops.add, reads=(good, good), writes=(good,))
        np.testing.assert_array_equal(engine.read(good), ones() * 2)
        with pytest.raises(EngineError, match="as planned"):
            engine.wait_all()
        engine.wait_all()

    def test_is_gone_when_the_variable_is_written_anew(self, engine, place):
        x = BREAKS[place](engine)
        engine.write(x, ones() * 7)
        np.testing.assert_array_equal(engine.read(x), ones() * 7)
        with pytest.raises(EngineError, match="as planned"):  # Nobody has met it yet.
            engine.wait_all()

    def test_is_still_told_when_the_variable_is_deleted(self, engine, place):
        x = BREAKS[place](engine)
        engine.delete(x)
        with pytest.raises(EngineError, match="as planned"):
            engine.wait_all()

    def test_lets_the_engine_go_on(self, engine, place):
        x = BREAKS[place](engine)
        with pytest.raises(EngineError, match="as planned"):
            engine.wait_all()
        engine.write(x, ones())
        for _ in range(3):
            engine.push(ss.ops.add, reads=(x, x), writes=(x,))
        np.testing.assert_array_equal(engine.read(x), ones() * 8)

    def test_in_a_bulk_is_that_operations_own(self, engine, place):
        y, z = engine.variable(ones()), engine.variable(SPEC)
        with engine.bulk():
            engine.push(ss.ops.add, reads=(y, y), writes=(y,))
            x = BREAKS[place](engine)
            engine.push(ss.ops.add, reads=(x, y), writes=(z,))
            engine.push(ss.ops.add, reads=(y, y), writes=(y,))
        np.testing.assert_array_equal(engine.read(y), ones() * 4)
        with pytest.raises(EngineError, match="as planned"):
            engine.wait_to_read(z)

    def test_is_raised_by_close(self, device, place):
        engine = Engine("async", device=device)
        BREAKS[place](engine)
        with pytest.raises(EngineError, match="as planned"):
            engine.close()
        assert engine.statistics.in_use_bytes == 0


def test_the_first_of_several_is_raised_with_notes_of_the_others(engine):
    for number in range(3):
        engine.push(lambda number=number: fails_on_host(), name=f"number {number}")
        engine.wait_to_read(engine.variable(ones()))
    with pytest.raises(EngineError, match="number") as raised:
        engine.wait_all()
    assert len(raised.value.__notes__) == 2


def test_faults_that_nobody_waits_for_do_not_pile_up():
    log = FaultLog()
    faults = [Fault(f"number {number}", "here", Planned()) for number in range(KEPT + 5)]
    for fault in faults:
        log.add(fault)
    assert log.take(faults[-1]) is not None
    assert log.take(faults[-1]) is None
    error = log.take_all()
    assert "number 0 " in str(error)
    assert error.__notes__[-1] == "and 4 more"
    assert not log.live


def test_an_error_of_ours_keeps_its_class_and_hint(engine):
    x, y, z = (engine.variable(values) for values in (ones(), np.ones(3, np.int64), ones()))
    engine.push(ss.ops.add, reads=(x, y), writes=(z,))
    with pytest.raises(ProgramError, match=r"add \(pushed at test_faults"):
        engine.wait_to_read(z)


def test_a_host_function_that_returns_what_does_not_fit(engine):
    x = engine.variable(ones(), place="host")
    for wrong, message in ((lambda: np.ones(3), "float64"), (lambda: None, "returned None"), (lambda: (ones(), ones()), "2 arrays")):
        engine.push(wrong, writes=(x,), name="wrong")
        with pytest.raises(StreamscopeError, match=message):
            engine.wait_to_read(x)


def test_a_device_fault_is_raised_by_the_wait_that_meets_it():
    @ss.operator(reads=["x"], writes=["y"], reference=fails_on_host)
    def broken(x, y):
        """Fail when it runs."""

    for name in ("async", "dual"):
        with Engine(name, device=SimulatedDevice()) as engine:
            x = engine.variable(ones())
            y = engine.variable(SPEC)
            engine.push(broken, reads=(x,), writes=(y,))
            with pytest.raises(DeviceError, match=r"broken.*as planned"):
                engine.wait_all()
            engine.wait_all()
            np.testing.assert_array_equal(engine.read(x), ones())
    with Engine("sync", device=SimulatedDevice()) as engine:
        x, y, z = engine.variable(ones()), engine.variable(SPEC), engine.variable(SPEC)
        engine.push(broken, reads=(x,), writes=(y,))  # Does not raise: the semantics are the same.
        engine.push(ss.ops.add, reads=(y, y), writes=(z,))
        with pytest.raises(DeviceError, match=r"broken .pushed at test_faults.py:\d+. failed: .*as planned"):
            engine.wait_to_read(z)
        engine.wait_all()


def test_a_device_fault_that_a_host_operation_meets_is_its_own():
    @ss.operator(reads=["x"], writes=["y"], reference=fails_on_host)
    def broken(x, y):
        """Fail when it runs."""

    with Engine("async", device=SimulatedDevice()) as engine:
        x, y = engine.variable(ones()), engine.variable(SPEC)
        h = engine.variable(SPEC, place="host")
        engine.push(broken, reads=(x,), writes=(y,))
        engine.push(ss.ops.to_host, reads=(y,), writes=(h,))
        engine.push(lambda values: values, reads=(h,), writes=(h,), name="reader")
        with pytest.raises(DeviceError, match=r"reader .*broken"):
            engine.wait_to_read(h)
        engine.wait_all()


def test_out_of_memory_names_the_operation_and_the_bytes():
    device = SimulatedDevice(CostModel.load())
    with Engine("async", device=device) as engine:
        small = engine.variable(np.ones(1, np.float32))
        huge = engine.variable(ss.ArraySpec((1 << 38,), "float32"), name="huge")

        @ss.operator(reads=["x"], writes=["y"], shapes=lambda x: {"y": ((1 << 38,), "float32")}, reference=lambda x: x)
        def grow(x, y):
            """Never runs."""

        engine.push(grow, reads=(small,), writes=(huge,))
        with pytest.raises(OutOfMemoryError, match=r"grow .*'huge', which grow writes, needs 1,099,511,627,776 bytes"):
            engine.wait_to_read(huge)
        np.testing.assert_array_equal(engine.read(small), [1])


def test_a_host_operation_cannot_wait_for_its_engine(engine):
    x = engine.variable(ones())
    waits = [engine.wait_all, engine.close, lambda: engine.wait_to_read(x), lambda: engine.read(x)]
    for wait in waits:
        engine.push(wait, name="impatient")
        with pytest.raises(EngineError, match="cannot wait for the engine that runs it"):
            engine.wait_all()


def test_a_host_operation_may_push(engine):
    x, h = engine.variable(ones()), engine.variable(ones(), place="host")
    engine.push(lambda: engine.push(ss.ops.add, reads=(x, x), writes=(x,)))
    engine.push(lambda: engine.push(lambda values: values + 1, reads=(h,), writes=(h,)))
    engine.wait_all()
    np.testing.assert_array_equal(engine.read(x), ones() * 2)
    np.testing.assert_array_equal(engine.read(h), ones() * 2)


def test_an_operator_that_uses_the_engine_that_calls_it():
    with Engine("sync", device=SimulatedDevice()) as engine:
        x, y = engine.variable(ones()), engine.variable(SPEC)

        def reference(values):
            engine.push(ss.ops.add, reads=(x, x), writes=(x,))
            return values

        @ss.operator(reads=["x"], writes=["y"], reference=reference)
        def inward(x, y):
            """Push."""

        engine.push(ss.ops.add, reads=(x, x), writes=(x,))
        engine.push(inward, reads=(x,), writes=(y,))
        with pytest.raises(StreamscopeError, match="used the engine that was calling it"):
            engine.wait_all()
        np.testing.assert_array_equal(engine.read(x), ones() * 2)


def test_an_exception_in_the_with_block_is_the_one_that_is_raised(device):
    with pytest.raises(Planned), Engine("async", device=device) as engine:  # noqa: PT012 — the block is what is tested
        engine.push(fails_on_host)
        raise Planned
    assert engine._pusher.closed


def test_a_failed_operation_does_not_keep_the_engine_alive():
    engine = Engine("async", device=SimulatedDevice())
    engine.push(fails_on_host)
    with pytest.raises(EngineError):
        engine.wait_all()
    threads = [thread for pool in engine._scheduler.pools for thread in pool.threads]
    assert threads
    del engine
    gc.collect()
    for thread in threads:
        thread.join(5)
    assert not any(thread.is_alive() for thread in threads)
    assert threading.current_thread().is_alive()
