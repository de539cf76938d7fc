"""Ctrl-C anywhere leaves engine, streams, locks and threads usable."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from tests.engines.pushed.conftest import SPEC
from tests.interrupting import Calls, HandlerError, profiled, raising

import streamscope as ss
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engines.pushed.engine import Engine
from streamscope.errors import EngineError
from streamscope.interrupts import deferred
from streamscope.program.variable import MemoryPlace


def ones():
    return np.ones(4, np.int64)


def works(engine: Engine) -> None:
    """Use everything once more: streams, workers, copies, programs."""
    x, h = engine.variable(ones()), engine.variable(SPEC, place="host")
    engine.push(ss.ops.add, reads=(x, x), writes=(x,))
    engine.push(ss.ops.to_host, reads=(x,), writes=(h,))
    engine.push(lambda values: values + 1, reads=(h,), writes=(h,))
    engine.push(ss.ops.to_device, reads=(h,), writes=(x,))
    np.testing.assert_array_equal(engine.read(x), ones() * 3)
    np.testing.assert_array_equal(engine.run(double, np.ones(3)), np.full(3, 2.0))
    other = threading.Thread(target=lambda: engine.push(ss.ops.add, reads=(x, x), writes=(x,)))
    other.start()
    other.join(10)
    np.testing.assert_array_equal(engine.read(x), ones() * 6)


@ss.program
def double(x):
    return ss.ops.add(x, x)


@pytest.mark.parametrize("wait", ["wait_to_read", "wait_to_write", "wait_all", "read"])
@pytest.mark.parametrize("name", ["async", "dual"])
def test_in_a_wait(device, name, wait):
    with Engine(name, device=device) as engine:
        go, h = threading.Event(), engine.variable(ones(), place="host")

        def interrupt(values):
            # So that the main thread waits. A signal that comes as it is about to is noticed by Python when the wait ends.
            go.wait(0.05)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            go.wait(10)
            return values

        with pytest.raises(KeyboardInterrupt):  # noqa: PT012 — either call may be the one
            engine.push(interrupt, reads=(h,), writes=(h,))
            getattr(engine, wait)(*([] if wait == "wait_all" else [h]))
            pytest.fail("the wait was not interrupted")
        go.set()
        np.testing.assert_array_equal(engine.read(h), ones())
        works(engine)


def test_in_a_host_operation_of_the_synchronous_engine(device):
    with Engine("sync", device=device) as engine:
        h = engine.variable(ones(), place="host")

        def stopped(values):
            signal.raise_signal(signal.SIGINT)
            return values

        with pytest.raises(KeyboardInterrupt):
            engine.push(stopped, reads=(h,), writes=(h,))
        with pytest.raises(EngineError, match=r"stopped .* was interrupted by KeyboardInterrupt"):
            engine.wait_to_read(h)
        works(engine)


@pytest.mark.parametrize("moment", ["before the launch", "between launch and event", "after the event"])
@pytest.mark.parametrize("name", ["sync", "async", "dual"])
def test_in_the_middle_of_a_push(device, name, moment, monkeypatch):
    """The event of what was launched may be missing; nothing that comes later may overtake it."""
    with Engine(name, device=device) as engine:
        x, h = engine.variable(np.ones(1 << 16, np.int64)), engine.variable(ss.ArraySpec((1 << 16,), "int64"), place="host")
        engine.push(ss.ops.add, reads=(x, x), writes=(x,))
        with monkeypatch.context() as patch:
            interrupt_at(patch, engine, moment)
            with pytest.raises(KeyboardInterrupt):
                engine.push(ss.ops.add, reads=(x, x), writes=(x,))
        engine.push(ss.ops.to_host, reads=(x,), writes=(h,))
        with pytest.raises(EngineError, match=r"add .* was interrupted"):
            engine.wait_to_read(h)
        engine.push(ss.ops.to_host, reads=(x,), writes=(h,))  # It holds what it holds: the addition was done, or was not.
        assert set(engine.read(h).tolist()) <= {2, 4}
        assert len(set(engine.read(h).tolist())) == 1
        works(engine)


def interrupt_at(patch: pytest.MonkeyPatch, engine: Engine, moment: str) -> None:
    (lane,) = engine._issuer.lanes_of(0).compute[:1]
    record, issuer = type(lane).record, engine._issuer

    def interrupt_before(lane):
        signal.raise_signal(signal.SIGINT)
        return record(lane)

    def interrupt_after(lane):
        stamp = record(lane)
        signal.raise_signal(signal.SIGINT)
        return stamp

    if moment == "before the launch":
        application = next(reversed(engine._catalogue.applications.values()))
        (part,) = application.parts
        for index in part.calls:
            patch.setitem(part.calls, index, (lambda: signal.raise_signal(signal.SIGINT), *part.calls[index]))
    else:
        patch.setattr(type(lane), "record", interrupt_before if moment == "between launch and event" else interrupt_after)
    assert issuer.torn is False


def test_while_queues_change():
    """Ctrl-C at every call that a push makes behind a busy host operation: it is taken note of when the push is done."""
    with Engine("async", device=SimulatedDevice()) as engine:
        go, h, x = threading.Event(), engine.variable(ones(), place="host"), engine.variable(SPEC)
        engine.push(lambda values: go.wait(30) and values, reads=(h,), writes=(h,))
        engine.push(ss.ops.to_device, reads=(h,), writes=(x,))
        enter, interrupted = engine._scheduler._enter, []

        def enter_interrupted(operation):
            signal.raise_signal(signal.SIGINT)
            enter(operation)
            interrupted.append(operation)

        engine._scheduler._enter = enter_interrupted
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                engine.push(ss.ops.add, reads=(x, x), writes=(x,))
        engine._scheduler._enter = enter
        assert len(interrupted) == 3
        go.set()
        np.testing.assert_array_equal(engine.read(x), ones() * 8)
        works(engine)


def test_in_run(device):
    @ss.host_function
    def stop(x):
        signal.raise_signal(signal.SIGINT)
        return x

    @ss.program
    def stopped(x):
        return ss.ops.add(ss.ops.to_device(stop(ss.ops.to_host(ss.ops.add(x, x)))), x)

    for name in ("sync", "async", "dual", "graph", "graph-dual"):
        with Engine(name, device=device) as engine:
            with pytest.raises(KeyboardInterrupt):
                engine.run(stopped, np.ones(3))
            works(engine)


def by_hand(x):
    return x + 1


def runs(engine):
    np.testing.assert_array_equal(engine.run(stepped, np.ones(3)), np.full(3, 5.0))


def pushes(engine):
    """Host functions are called by the main thread under `sync`, by a worker under the others."""
    h = engine.variable(ones(), place="host")
    engine.push(by_hand, reads=(h,), writes=(h,))
    np.testing.assert_array_equal(engine.read(h), ones() * 2)


def bulks(engine):
    x = engine.variable(ones())
    with engine.bulk():
        engine.push(ss.ops.add, reads=(x, x), writes=(x,))
        engine.push(ss.ops.add, reads=(x, x), writes=(x,))
    np.testing.assert_array_equal(engine.read(x), ones() * 4)


@ss.program
def stepped(x):
    return ss.ops.add(ss.ops.to_device(ss.host_function(by_hand)(ss.ops.to_host(ss.ops.add(x, x)))), ss.ops.add(x, x))


# Python raises nothing out of a finaliser; it only tells of it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", ["sync", "async", "graph-dual"])
@pytest.mark.parametrize("scenario", [runs, pushes, bulks])
def test_at_any_call_of_a_function(device, scenario, name):
    with Engine(name, device=device) as engine:
        scenario(engine)
        with profiled(undisturbed := Calls()):
            scenario(engine)
        samples = random.Random(f"{scenario.__name__} {name}")
        for _ in range(60):
            with suppress(KeyboardInterrupt), profiled(Calls(samples.randint(1, undisturbed.countdown.count))):
                scenario(engine)
            with suppress(EngineError):  # what was interrupted
                engine.wait_all()
            scenario(engine)
    with pytest.raises(KeyboardInterrupt), deferred():
        signal.raise_signal(signal.SIGINT)


def pushes_two(engine, variable):
    """Pushed twice, so that the second meets the first; on a device variable, it is the quick way of a push."""
    for _ in range(2):
        if variable.place is MemoryPlace.HOST:
            engine.push(by_hand, reads=(variable,), writes=(variable,))
        else:
            engine.push(ss.ops.add, reads=(variable, variable), writes=(variable,))


def waited(engine):
    """Wait for all in a thread, where no signal comes, and return what that raises; a wait that hangs fails."""
    raised = []

    def wait():
        try:
            engine.wait_all()
        except EngineError as error:
            raised.append(error)

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    waiting.join(30)
    assert not waiting.is_alive(), "the engine waits for an operation that will never end"
    return raised


@pytest.mark.parametrize("place", ["host", "device"])
@pytest.mark.parametrize("name", ["sync", "async", "dual"])
def test_wherever_another_signals_handler_raises_in_a_push(device, name, place):
    """As a limit on time does. It raises there, and each operation was pushed whole, was not pushed, or counts as interrupted."""
    with Engine(name, device=device) as engine, raising(signal.SIGUSR1):
        variable = engine.variable(ones(), place=place)
        pushes_two(engine, variable)
        with profiled(undisturbed := Calls()):
            pushes_two(engine, variable)
        engine.wait_all()
        last = undisturbed.countdown.count - 5  # Not all runs have as many.
        for at in random.Random(f"{name} {place}").sample(range(1, last), min(60, last - 1)):
            before = variable.version
            with pytest.raises(HandlerError), profiled(Calls(at, signal.SIGUSR1)):
                pushes_two(engine, variable)
            failed = waited(engine)
            assert all("was interrupted by HandlerError" in str(error) for error in failed)
            assert variable.version - before in range(3)
            assert engine._scheduler.unfinished == 0
        pushes_two(engine, variable)
        assert waited(engine) == []
        works(engine)


def test_a_host_function_that_takes_too_long_is_stopped_where_it_is_pushed(device):
    """The synchronous engine calls it there."""
    with Engine("sync", device=device) as engine, raising(signal.SIGUSR1):
        h = engine.variable(ones(), place="host")
        with pytest.raises(HandlerError):
            engine.push(lambda values: signal.raise_signal(signal.SIGUSR1), reads=(h,), writes=(h,), name="endless")
        with pytest.raises(EngineError, match=r"endless .* was interrupted by HandlerError"):
            engine.wait_to_read(h)
        works(engine)


def test_a_bulk_that_is_interrupted_as_it_begins_does_not_stay_open(device):
    with Engine("async", device=device) as engine:
        with profiled(undisturbed := Calls()), engine.bulk():
            pass
        for at in range(1, undisturbed.countdown.count + 1):
            with suppress(KeyboardInterrupt), profiled(Calls(at)), engine.bulk():
                pass
            assert engine._pusher.bulks == {}, at


@pytest.mark.parametrize("wait", ["wait_to_read", "wait_all", "bulk", "push"])
def test_once_more_before_anything_was_mended(device, wait, monkeypatch):
    """The operation still counts as failed, and whatever is done next waits for what it may have launched."""
    with Engine("async", device=device) as engine:
        x, y = engine.variable(ones()), engine.variable(SPEC)
        engine.push(ss.ops.add, reads=(x, x), writes=(y,))
        with monkeypatch.context() as patch:
            patch.setattr(type(engine._issuer.lanes[0]), "record", lambda lane: signal.raise_signal(signal.SIGINT))
            patch.setattr("streamscope.engines.pushed.issuing.deferred", lambda: signal.raise_signal(signal.SIGINT))
            with pytest.raises(KeyboardInterrupt):
                engine.push(ss.ops.add, reads=(x, x), writes=(y,))
        assert engine._issuer.torn
        if wait == "push":
            engine.push(ss.ops.add, reads=(x, x), writes=(x,))
        elif wait == "bulk":
            with engine.bulk():
                engine.push(ss.ops.add, reads=(x, x), writes=(x,))
        with pytest.raises(EngineError, match=r"add .* was interrupted by KeyboardInterrupt"):
            engine.wait_all() if wait == "wait_all" else engine.wait_to_read(y)
        assert engine._issuer.torn is False
        works(engine)


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="Ctrl-C between a lock and its block leaves it locked: CPython's issue 148874")
@pytest.mark.parametrize("device", ["simulated", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(("name", "seed"), [("sync", "1"), ("async", "3"), ("dual", "3")])
def test_at_random_and_often(name, device, seed, environment):
    script = Path(__file__).with_name("interrupted_pushes.py")
    command = [sys.executable, script, name, device, seed]
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert finished.returncode == 0, finished.stderr
    assert int(finished.stdout) > 20, finished.stderr  # How often it was interrupted, and of what turns.
