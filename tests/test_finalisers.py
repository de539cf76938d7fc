"""Ctrl-C that comes while Python lets something go: what was to be done is done all the same, and Ctrl-C comes right after.

Warnings are errors, and pytest warns of what Python swallows.
"""

from __future__ import annotations

import gc
import signal
import weakref
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from tests.interrupting import Countdown, Tripping, profiled

import streamscope as ss
from streamscope.devices.cost_model import CostModel
from streamscope.devices.cuda.memory import _Owner, _Pool
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engines.prepared import prepare_traced
from streamscope.interrupts import clean_up, deferred, when_gone
from streamscope.program.variable import MemoryPlace

MOMENTS = range(1, 13)
NBYTES = 900_000


class Beginnings:
    """Interrupts as the n-th Python function of ours, or of `weakref`, begins or a C function returns there."""

    def __init__(self, at):
        self.countdown = Countdown(at)

    def __call__(self, frame, event, argument):
        if event in ("call", "c_return") and frame.f_globals.get("__name__", "").startswith(("streamscope.", "weakref")):
            self.countdown.tick()


def let_go(things, at):
    """Empty a list, with Ctrl-C at some moment, which is not lost."""
    watch, interrupted = Beginnings(at), False
    gc.collect()  # What an earlier test left, which Python may let go at any time, is not to be counted.
    try:
        with profiled(watch):
            things.clear()
    except KeyboardInterrupt:
        interrupted = True
    assert interrupted == (watch.countdown.count >= at)


def small_device():
    return SimulatedDevice(replace(CostModel.load(), memory_gb=0.001))


def test_memory_of_a_simulated_device_is_free_again():
    device, came = small_device(), []
    for at in MOMENTS:
        blocks, watch = [device.allocate_block(NBYTES, MemoryPlace.DEVICE)], Beginnings(at)
        with suppress(KeyboardInterrupt), profiled(watch):
            blocks.clear()
            assert device.free_share() == 1
        came.append(watch.countdown.count >= at)
        device.allocate_block(NBYTES, MemoryPlace.DEVICE)  # There is room for one.
    assert came[:3] == [True] * 3


def test_memory_is_counted_only_with_what_gives_it_back():
    for at in range(1, 40):
        device = small_device()
        with suppress(KeyboardInterrupt), profiled(Beginnings(at)):
            device.allocate_block(NBYTES, MemoryPlace.DEVICE)
        device.allocate_block(NBYTES, MemoryPlace.DEVICE)


@pytest.mark.parametrize("name", ["sync", "async"])
def test_a_variable_is_deleted(name):
    with ss.Engine(name, device=SimulatedDevice()) as engine:
        x = engine.variable(np.ones(4))
        for at in MOMENTS:
            let_go([engine.variable(np.ones(NBYTES))], at)
            engine.push(ss.ops.add, reads=(x, x), writes=(x,), name=f"number {at}")
            engine.wait_all()
            assert engine.statistics.in_use_bytes < NBYTES


def test_temporaries_of_an_operation_are_given_back():
    for at in MOMENTS:
        with ss.Engine("async", device=SimulatedDevice()) as engine:
            x, y = engine.variable(np.ones(NBYTES)), engine.variable(np.ones(NBYTES))
            before = engine.statistics.in_use_bytes
            engine.push(lambda a: ss.ops.multiply(ss.ops.add(a, a), a), reads=(x,), writes=(y,))
            engine.wait_all()  # What is under way holds its memory.
            assert engine.statistics.in_use_bytes > before
            keys = [key for key in engine._catalogue.keys_of(y._state) if callable(key[0]) and key[0] is not ss.ops.to_device]
            (application,) = map(engine._catalogue.applications.__getitem__, keys)
            scratch = application.parts[0]._scratch
            del application
            let_go(scratch, at)
            assert engine.statistics.in_use_bytes == before


@pytest.mark.parametrize("engine", ["async", "graph"])
def test_a_prepared_program_waits_for_its_streams_and_keeps_its_memory_until_then(engine):
    for at in MOMENTS:
        finished, memory = [], []

        class Noting(SimulatedDevice):
            def let_finish(self, streams, finished=finished, memory=memory):
                finished.append(all(buffer() is not None for buffer in memory))

        prepared = prepare_traced(ss.program(lambda x: ss.ops.add(x, x)).trace(np.ones(4)), engine, Noting())
        prepared.load([np.ones(4)])
        prepared.run()
        prepared.wait()  # What is pending on a simulated device holds its memory.
        memory += [weakref.ref(buffer) for buffer in prepared._binder.buffers.values()]
        things = [prepared]
        del prepared
        let_go(things, at)
        gc.collect()
        clean_up()
        assert finished == [True]
        assert all(buffer() is None for buffer in memory), at


def test_an_engine_that_nobody_closes_ends_its_threads():
    for at in MOMENTS:
        engine = ss.Engine("async", device=SimulatedDevice())
        engine.push(lambda: None)
        engine.wait_all()
        threads = [thread for pool in engine._scheduler.pools for thread in pool.threads]
        things = [engine]
        del engine
        let_go(things, at)
        gc.collect()
        clean_up()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()


def test_a_temporary_goes_back_to_its_pool_before_the_pool_gives_its_memory_back():
    for at in MOMENTS:
        order = []
        pool = _Pool(SimpleNamespace(free_all_blocks=partial(order.append, "pool")), nullcontext())
        piece = Thing()
        weakref.finalize(piece, order.append, "piece")
        things = [_Owner(piece, pool)]
        del piece, pool
        let_go(things, at)
        clean_up()
        assert order == ["piece", "pool"], at


class Thing:
    """Can be let go."""


def test_what_is_to_be_done_is_done_once():
    done, things = [], [Thing() for _ in range(3)]
    first, second, _ = (when_gone(thing, lambda number=number: done.append(number)) for number, thing in enumerate(things))
    first.now()
    first.now()
    second.cancel()
    assert (first.alive, second.alive) == (False, False)
    things.clear()
    clean_up()
    assert done == [0, 2]


@pytest.mark.parametrize("after", [0, 1, 50])
def test_ctrl_c_comes_once_all_is_done_where_the_first_code_to_notice_it_is_a_finaliser(after):
    done, things = [], [Thing() for _ in range(100 + after)]
    for number in range(100 + after):
        when_gone(things[number], lambda number=number: done.append(number))
    things.insert(100, Tripping())  # The last goes first.
    interrupted = False
    try:
        things.clear()
        list(map(int, "1"))
        done.append("never")
    except KeyboardInterrupt:
        interrupted = True
    assert interrupted
    assert len(done) == 100 + after
    assert "never" not in done


def test_ctrl_c_in_a_finaliser_waits_for_the_end_of_the_block_that_let_the_object_go():
    done, things = [], [Thing()]
    when_gone(things[0], lambda: (signal.raise_signal(signal.SIGINT), done.append("finished")))
    with pytest.raises(KeyboardInterrupt), deferred():  # noqa: PT012 — the order of statements is tested
        things.clear()
        done.append("block")
    assert done == ["finished", "block"]


def test_a_finaliser_that_fails_says_so_as_pythons_own_do(monkeypatch):
    said, things = [], [Thing()]
    monkeypatch.setattr("sys.unraisablehook", said.append)
    when_gone(things[0], lambda: 1 // 0)
    things.clear()
    assert [type(one.exc_value) for one in said] == [ZeroDivisionError]
