"""What a user does with a pushed engine: variables, pushes, waits, versions, and what is refused."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from tests.engines.pushed.conftest import SPEC, add_then_multiply

import streamscope as ss
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engines.pushed.engine import Engine
from streamscope.errors import EngineError, ProgramError
from streamscope.program.variable import MemoryPlace


def ones():
    return np.ones(4, np.int64)


def test_versions_count_finished_writes(engine):
    x, y = engine.variable(ones()), engine.variable(ones(), place="host")
    assert (x.version, y.version) == (0, 0)
    engine.push(ss.ops.add, reads=(x, x), writes=(x,))
    engine.push(lambda values: values + 1, reads=(y,), writes=(y,))
    engine.push(ss.ops.to_host, reads=(x,), writes=(y,))
    engine.wait_all()
    assert (x.version, y.version) == (1, 2)


def test_a_variable_knows_what_it_is(engine):
    x = engine.variable(SPEC, name="x", place="host")
    assert (x.spec, x.place, x.name, x.version) == (SPEC, MemoryPlace.HOST, "x", 0)
    assert "x" in repr(x)


def test_attributes_reach_the_function(engine):
    x = engine.variable(np.arange(6, dtype=np.float32).reshape(2, 3))
    y = engine.variable(np.arange(4.0), place="host")
    out, scaled = engine.variable(x.spec), engine.variable(y.spec, place="host")
    engine.push(ss.ops.softmax, reads=(x,), writes=(out,))
    engine.push(lambda values, factor: values * factor, reads=(y,), writes=(scaled,), factor=3)
    engine.push(lambda values, factor: values * factor, reads=(y,), writes=(scaled,), factor=5)
    exponentials = np.exp(np.arange(6, dtype=np.float64).reshape(2, 3) % 3)
    np.testing.assert_allclose(engine.read(out), exponentials / exponentials.sum(axis=1, keepdims=True), rtol=1e-5)
    np.testing.assert_array_equal(engine.read(scaled), np.arange(4.0) * 5)


def scaled(x, factor):
    return ss.ops.multiply(x, factor)


def test_attributes_that_are_equal_and_of_other_types_are_others(engine):
    x = engine.variable(np.array([1, 2], np.int64))
    whole, real = engine.variable(x.spec), engine.variable(ss.ArraySpec((2,), "float64"))
    engine.push(scaled, reads=(x,), writes=(whole,), factor=2)
    engine.push(scaled, reads=(x,), writes=(real,), factor=2.0)
    np.testing.assert_array_equal(engine.read(whole), [2, 4])
    np.testing.assert_array_equal(engine.read(real), [2.0, 4.0])
    zero = engine.variable(np.array([1.0, -1.0]))
    for factor, expected in ((0.0, [False, True]), (-0.0, [True, False])):
        product = engine.variable(zero.spec)
        engine.push(scaled, reads=(zero,), writes=(product,), factor=factor)
        np.testing.assert_array_equal(np.signbit(engine.read(product)), expected)


def test_one_argument_twice(engine):
    x, y = engine.variable(ones() * 3), engine.variable(SPEC)
    engine.push(ss.ops.multiply, reads=(x, x), writes=(y,))
    np.testing.assert_array_equal(engine.read(y), ones() * 9)


def test_write_copies_its_argument(engine):
    for place in ("device", "host"):
        values = ones()
        x = engine.variable(values, place=place)
        engine.write(x, values)
        values += 1
        np.testing.assert_array_equal(engine.read(x), ones())
        assert x.version == 1


def test_a_host_function_of_streamscope(engine):
    @ss.host_function(results=[((2,), "float32"), ((3,), "int64")], duration_us=3)
    def made(x):
        return x[:2].astype(np.float32), np.array([x.sum()] * 3)

    x = engine.variable(ones(), place="host")
    first, second = engine.variable(ss.ArraySpec((2,), "float32"), place="host"), engine.variable(ss.ArraySpec((3,), "int64"), place="host")
    engine.push(made, reads=(x,), writes=(first, second))
    np.testing.assert_array_equal(engine.read(first), [1, 1])
    np.testing.assert_array_equal(engine.read(second), [4, 4, 4])


def test_a_host_operation_sees_what_it_only_reads_as_read_only(engine):
    x, y = engine.variable(ones(), place="host"), engine.variable(ones(), place="host")
    flags = []

    def look(read, updated):
        flags.append((read.flags.writeable, updated.flags.writeable))
        updated += read
        return updated

    engine.push(look, reads=(x, y), writes=(y,))
    np.testing.assert_array_equal(engine.read(y), ones() * 2)
    assert flags == [(False, True)]


def test_wait_to_read_waits_for_the_device():
    # Late and long: 1 ms of virtual time.
    device = SimulatedDevice(delays=lambda launch, stream: (1e6, 1.0))
    with Engine("async", device=device) as engine:
        x = engine.variable(ones())
        engine.push(ss.ops.add, reads=(x, x), writes=(x,))
        before = device.now_ns()
        assert before < 1e6
        engine.wait_to_read(x)
        assert device.now_ns() >= 2e6  # The copy to the device, then the addition.


def test_wait_to_write_waits_for_readers_and_wait_to_read_does_not():
    device = SimulatedDevice(delays=lambda launch, stream: (1e6, 1.0) if launch.name == "multiply" else (0, 1))
    with Engine("async", device=device) as engine:
        x, y = engine.variable(ones()), engine.variable(SPEC)
        engine.push(ss.ops.multiply, reads=(x, x), writes=(y,))
        engine.wait_to_read(x)
        assert device.now_ns() < 1e6
        engine.wait_to_write(x)
        assert device.now_ns() >= 1e6


def test_sync_leaves_nothing_pending():
    device = SimulatedDevice(delays=lambda launch, stream: (1e6, 1.0))
    with Engine("sync", device=device) as engine:
        x = engine.variable(ones())
        assert device.now_ns() >= 1e6
        engine.push(ss.ops.add, reads=(x, x), writes=(x,))
        assert device.now_ns() >= 2e6
        thread = []
        engine.push(lambda: thread.append(threading.current_thread()))
        assert thread == [threading.current_thread()]
        assert engine.statistics.stream_waits == 0


def test_async_returns_before_the_device_is_done_and_overlaps_host_and_device():
    device = SimulatedDevice(delays=lambda launch, stream: (1e6, 1.0) if launch.name == "add" else (0, 1))
    with Engine("async", device=device) as engine:
        x, h = engine.variable(ones()), engine.variable(ones(), place="host")
        engine.push(ss.ops.add, reads=(x, x), writes=(x,))
        engine.push(lambda values: values + 1, reads=(h,), writes=(h,))
        np.testing.assert_array_equal(engine.read(h), ones() * 2)
        assert device.now_ns() < 1e6  # The host operation is over, and the addition has not begun.


def test_dual_spreads_independent_work_and_keeps_chains_together():
    device = SimulatedDevice()
    device.log.enabled = True
    with Engine("dual", device=device, streams=2) as engine:
        strands = [engine.variable(np.ones(1 << 20)) for _ in range(2)]
        engine.wait_all()
        before = engine.statistics.stream_waits
        for _ in range(4):
            for x in strands:
                engine.push(ss.ops.add, reads=(x, x), writes=(x,))
        engine.wait_all()
        assert engine.statistics.stream_waits == before
        assert {record.stream for record in device.log if record.name == "add"} == {"main", "aux 1"}


def test_operations_of_priority_go_on_a_stream_of_their_own():
    made = []

    class Noting(SimulatedDevice):
        def stream(self, name, *, priority=0):
            made.append((name, priority))
            return super().stream(name, priority=priority)

    device = Noting()
    device.log.enabled = True
    with Engine("async", device=device) as engine:
        x, y = engine.variable(ones()), engine.variable(SPEC)
        engine.push(ss.ops.add, reads=(x, x), writes=(y,), priority=1)
        engine.push(ss.ops.add, reads=(x, x), writes=(y,))
        engine.wait_all()
        assert [record.stream for record in device.log if record.name == "add"] == ["priority", "main"]
    assert ("priority", 1) in made


@pytest.mark.parametrize("priority", [0, 5])
def test_priorities_order_what_is_ready(priority, device):
    """While the only worker is busy, host operations pile up, as do device operations behind it."""
    with Engine("async", device=device, workers=1, priority_workers=1) as engine:
        begun, go, order = threading.Event(), threading.Event(), []
        gate = engine.variable(ones(), place="host")
        sign = 1 if priority else -1

        def hold(values):
            begun.set()
            go.wait()
            return values

        engine.push(hold, reads=(gate,), writes=(gate,), priority=priority)
        begun.wait()
        for each in (3, 1, 2, 3):
            engine.push(lambda each=each: order.append(each), priority=each * sign)
        go.set()
        engine.wait_all()
    assert order == ([3, 3, 2, 1] if sign > 0 else [1, 2, 3, 3])


def test_what_becomes_ready_together_is_issued_by_priority():
    device = SimulatedDevice()
    with Engine("async", device=device) as engine:
        go = threading.Event()
        gate = engine.variable(ones(), place="host")
        results = [engine.variable(SPEC) for _ in range(3)]
        engine.push(lambda values: go.wait() and values, reads=(gate,), writes=(gate,))
        for priority, result in zip((-3, -1, -2), results, strict=True):
            engine.push(ss.ops.to_device, reads=(gate,), writes=(result,), priority=priority, name=f"copy {priority}")
        issued = []
        issue = engine._issuer.issue
        engine._issuer.issue = None  # Nothing may be issued before the host operation is over.
        queued = [operation for operation, _ in gate._state.waiting]
        engine._issuer.issue = issue
        for operation in queued:
            start = operation.start
            operation.start = lambda start=start, operation=operation: (issued.append(operation.priority), start())
        go.set()
        engine.wait_all()
    assert issued == [-1, -2, -3]


def test_statistics(engine):
    x, y = engine.variable(ones()), engine.variable(SPEC)
    start = engine.statistics
    for _ in range(5):
        engine.push(ss.ops.add, reads=(x, x), writes=(y,))
    engine.wait_all()
    end = engine.statistics
    assert end.pushed - start.pushed == 5
    assert end.events_recorded - start.events_recorded == 5
    assert (end.cache_misses - start.cache_misses, end.cache_hits - start.cache_hits) == (1, 4)
    assert end.in_use_bytes >= 64
    assert end.high_water_bytes >= end.in_use_bytes


class TestWhatIsRefused:
    @pytest.fixture
    def engine(self):
        with Engine("async", device="simulated") as engine:
            yield engine

    def test_operands_that_are_no_variables(self, engine):
        x = engine.variable(ones(), name="x")
        with pytest.raises(ProgramError, match=r"reads\[1\] is an ndarray"):
            engine.push(ss.ops.add, reads=(x, ones()), writes=(x,))
        with pytest.raises(ProgramError, match="give a tuple"):
            engine.push(ss.ops.add, reads=x, writes=(x,))
        with pytest.raises(ProgramError, match=r"exp got 'x' as out=.*reads= and writes="):
            engine.push(ss.ops.exp, reads=(x,), writes=(x,), out=x)
        with pytest.raises(ProgramError, match="push wants a function"):
            engine.push("add", reads=(x, x), writes=(x,))

    def test_another_engines_variable(self, engine):
        with Engine("async", device="simulated") as other:
            x = other.variable(ones(), name="x")
            with pytest.raises(ProgramError, match="'x' belongs to another engine"):
                engine.push(ss.ops.add, reads=(x, x), writes=(x,))

    def test_a_read_of_what_nothing_has_written(self, engine):
        x = engine.variable(SPEC, name="x")
        with pytest.raises(ProgramError, match="add reads 'x', which nothing has written"):
            engine.push(ss.ops.add, reads=(x, x), writes=(x,))
        with pytest.raises(ProgramError, match="nothing has written"):
            engine.read(engine.variable(SPEC, place="host"))

    def test_results_that_do_not_fit(self, engine):
        x, y = engine.variable(ones()), engine.variable(ss.ArraySpec((3,), "float32"), name="y")
        with pytest.raises(ProgramError, match=r"add makes int64\[4\] in device memory, and 'y' is float32\[3\]"):
            engine.push(ss.ops.add, reads=(x, x), writes=(y,))
        with pytest.raises(ProgramError, match="1 result, and writes= names 2"):
            engine.push(ss.ops.add, reads=(x, x), writes=(y, engine.variable(SPEC)))

    def test_in_place_where_the_function_cannot(self, engine):
        x, y = engine.variable(np.ones((2, 2))), engine.variable(np.ones((2, 2)))
        with pytest.raises(ProgramError, match="add_then_multiply cannot write"):
            engine.push(add_then_multiply, reads=(x, y), writes=(x,))
        engine.push(ss.ops.matmul, reads=(x, y), writes=(x,), name="product")
        with pytest.raises(ProgramError, match="cannot write over"):  # The tracer's own check, so it is raised where it is waited for.
            engine.wait_to_read(x)
        with pytest.raises(ProgramError, match="as it is"):
            engine.push(lambda a: a, reads=(x,), writes=(y,))

    def test_a_change_that_is_not_declared(self, engine):
        x, y, z = engine.variable(ones(), name="x"), engine.variable(ones()), engine.variable(SPEC)

        def sly(a, b):
            a = ss.ops.add(a, b, out=a)
            return ss.ops.multiply(a, b)

        with pytest.raises(ProgramError, match="changes 'x'"):
            engine.push(sly, reads=(x, y), writes=(z,))

    def test_attributes_that_cannot_be_looked_up(self, engine):
        x = engine.variable(ones())
        with pytest.raises(ProgramError, match="attribute axes= is a list"):
            engine.push(ss.ops.add, reads=(x, x), writes=(x,), axes=[1])

    def test_host_functions_among_device_operators(self, engine):
        @ss.host_function
        def double(x):
            return x * 2

        x, y = engine.variable(ones()), engine.variable(SPEC)
        with pytest.raises(ProgramError, match="push each of them by itself"):
            engine.push(lambda a: ss.ops.to_device(double(ss.ops.to_host(a))), reads=(x,), writes=(y,))

    def test_values_of_another_shape_or_dtype(self, engine):
        x = engine.variable(ones(), name="x")
        for wrong in (np.ones(4), np.ones(3, np.int64)):
            with pytest.raises(ProgramError, match=r"was written to 'x', which is int64\[4\]"):
                engine.write(x, wrong)

    def test_use_after_delete(self, engine):
        x, y = engine.variable(ones(), name="x"), engine.variable(SPEC)
        engine.push(ss.ops.add, reads=(x, x), writes=(y,))
        engine.delete(x)
        uses = [
            lambda: engine.push(ss.ops.add, reads=(x, x), writes=(y,)),
            lambda: engine.read(x),
            lambda: engine.write(x, ones()),
            lambda: engine.wait_to_read(x),
            lambda: engine.delete(x),
        ]
        for use in uses:
            with pytest.raises(ProgramError, match="'x' was deleted"):
                use()
        np.testing.assert_array_equal(engine.read(y), ones() * 2)

    def test_use_after_close(self, engine):
        x = engine.variable(ones())
        engine.push(ss.ops.add, reads=(x, x), writes=(x,))
        engine.close()
        engine.close()
        for use in (lambda: engine.push(ss.ops.add, reads=(x, x), writes=(x,)), engine.wait_all, lambda: engine.variable(ones())):
            with pytest.raises(EngineError, match="closed"):
                use()

    def test_numbers_out_of_range(self, engine):
        for options in ({"streams": 0}, {"workers": 0}, {"priority_workers": 1.5}, {"name": "fast"}):
            with pytest.raises(EngineError):
                Engine(**{"device": "simulated", **options})
        with pytest.raises(EngineError, match="size=0"), engine.bulk(0):
            pass
        with pytest.raises(ProgramError, match="neither 'device' nor 'host'"):
            engine.variable(ones(), place="moon")


class TestTheDefaultEngine:
    def test_comes_from_the_environment(self, monkeypatch):
        monkeypatch.delenv("STREAMSCOPE_ENGINE", raising=False)
        assert Engine(device="simulated").name == "async"
        monkeypatch.setenv("STREAMSCOPE_ENGINE", "sync")
        assert Engine(device="simulated").name == "sync"
        assert Engine("dual", device="simulated").name == "dual"

    def test_an_error_says_where_the_name_came_from(self, monkeypatch):
        monkeypatch.setenv("STREAMSCOPE_ENGINE", "naive")
        with pytest.raises(EngineError, match="'naive' in the environment variable STREAMSCOPE_ENGINE"):
            Engine(device="simulated")
        with pytest.raises(EngineError, match=r"unknown engine 'fast' \(choose"):
            Engine("fast", device="simulated")


def test_variables_of_another_engine_with_the_same_history(device):
    """Both engines number their variables alike; a push that is known must not be taken for the other's."""
    with Engine("async", device=device) as first, Engine("async", device=device) as second:
        one, total = first.variable(np.ones(4)), first.variable(np.zeros(4))
        other, sum_ = second.variable(np.full(4, 100.0)), second.variable(np.zeros(4))
        first.push(ss.ops.add, reads=(total, one), writes=(total,))
        with pytest.raises(ProgramError, match="another engine"):
            first.push(ss.ops.add, reads=(sum_, other), writes=(sum_,))
        np.testing.assert_array_equal(first.read(total), np.ones(4))


def test_variables_without_a_name_are_counted_by_their_engine(device):
    for _ in range(2):
        with Engine("async", device=device) as engine:
            x = engine.variable(np.ones(4))
            y = engine.variable(np.zeros(4), name="result")
            engine.push(ss.ops.add, reads=(x, x), writes=(y,))
            engine.read(y)
            assert [each.name for each in (x, y, engine.variable(np.ones(4)))] == ["variable 0", "result", "variable 1"]
