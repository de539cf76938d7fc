"""Bulk: one set of waits and one event for several operations, and the same results."""

from __future__ import annotations

import numpy as np
import pytest
from tests.engines.pushed.conftest import SPEC

import streamscope as ss
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engines.pushed.engine import Engine
from streamscope.errors import ProgramError


def ones():
    return np.ones(4, np.int64)


@pytest.mark.parametrize(("size", "events"), [(1, 10), (4, 3), (10, 1), (100, 1)])
def test_one_event_for_all(engine, size, events):
    x = engine.variable(ones())
    engine.push(ss.ops.add, reads=(x, x), writes=(x,))
    engine.wait_all()
    before = engine.statistics.events_recorded
    with engine.bulk(size):
        for _ in range(10):
            engine.push(ss.ops.add, reads=(x, x), writes=(x,))
    assert engine.statistics.events_recorded - before == events
    np.testing.assert_array_equal(engine.read(x), ones() * 2**11)
    assert x.version == 11


def test_one_set_of_waits():
    with Engine("async", device=SimulatedDevice()) as engine:
        inputs = [engine.variable(ones()) for _ in range(4)]
        outputs = [engine.variable(SPEC) for _ in inputs]
        before = engine.statistics.stream_waits
        with engine.bulk():
            for x, y in zip(inputs, outputs, strict=True):
                engine.push(ss.ops.add, reads=(x, x), writes=(y,))
        assert engine.statistics.stream_waits - before == 1  # For the last of the copies in, which come one after the other.


def test_what_ends_a_bulk(engine):
    x, h = engine.variable(ones()), engine.variable(ones(), place="host")
    ends = [
        lambda: engine.push(lambda values: values, reads=(h,), writes=(h,)),
        lambda: engine.push(ss.ops.to_host, reads=(x,), writes=(h,)),
        lambda: engine.wait_to_read(x),
        engine.wait_all,
        lambda: engine.write(engine.variable(SPEC), ones()),
        lambda: engine.delete(engine.variable(SPEC)),
    ]
    with engine.bulk(100):
        for number, end in enumerate(ends):
            engine.push(ss.ops.add, reads=(x, x), writes=(x,))
            assert x.version == number
            end()
            assert x.version == number + 1
        with engine.bulk(1):  # Joins the outer one.
            engine.push(ss.ops.add, reads=(x, x), writes=(x,))
        assert x.version == len(ends)
    assert x.version == len(ends) + 1


def test_what_was_pushed_before_an_exception_is_issued(engine):
    x = engine.variable(ones())
    with pytest.raises(ZeroDivisionError), engine.bulk():  # noqa: PT012 — the block is what is tested
        engine.push(ss.ops.add, reads=(x, x), writes=(x,))
        1 / 0  # noqa: B018
    np.testing.assert_array_equal(engine.read(x), ones() * 2)


def test_a_variable_that_is_let_go_in_the_block(engine):
    total = engine.variable(ones())
    with engine.bulk():
        for _ in range(5):
            x = engine.variable(ones())
            engine.push(ss.ops.add, reads=(total, x), writes=(total,))
            del x
            engine.push(ss.ops.add, reads=(total, total), writes=(total,))
    np.testing.assert_array_equal(engine.read(total), ones() * 94)


def test_a_variable_that_another_thread_deletes_meanwhile(engine):
    x, y, z = engine.variable(ones(), name="x"), engine.variable(SPEC), engine.variable(SPEC)
    with engine.bulk():
        engine.push(ss.ops.add, reads=(x, x), writes=(y,))
        engine._lifetimes.delete(x._state)  # As another thread would, which does not end this one's bulk.
        engine.push(ss.ops.add, reads=(y, y), writes=(z,))
    with pytest.raises(ProgramError, match="'x' was deleted before the bulk was issued"):
        engine.wait_to_read(z)
    engine.wait_all()
