"""Operations over several GPUs: where they run, what they order, and what is refused."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engines.hostile_schedules import adversary
from tests.engines.pushed import several_gpus
from tests.engines.pushed.conftest import WithoutOneWait
from tests.engines.pushed.several_gpus import Hosts

import streamscope as ss
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engines.pushed import issuing
from streamscope.errors import DeviceError, EngineError, ProgramError


@pytest.fixture
def host():
    with ss.Engine("async", device="simulated", gpus=2) as engine:
        yield engine


def both(engine, values=(1.0, 2.0)):
    return [engine.variable(np.full(4, value), gpu=gpu) for gpu, value in enumerate(values)]


@pytest.mark.parametrize("name", ["sync", "async", "dual"])
@settings(max_examples=30)
@given(gpus=st.integers(1, 3), seed=st.integers(0, 10_000), bulk=st.integers(1, 4))
def test_equal_to_serial_execution_against_an_adversary(name, gpus, seed, bulk):
    chance = random.Random(seed)
    with ss.Engine(name, device=SimulatedDevice(gpus=gpus, delays=adversary(seed)), streams=2) as engine:
        serial = Hosts(engine, gpus)
        with engine.bulk(bulk):
            for _ in range(25):
                serial.push(chance.choice(several_gpus.KINDS), chance, chance.choice([0, 0, 1]))
        serial.check()


def test_thousands_of_operations():
    chance = random.Random(5)
    with ss.Engine("dual", device="simulated", gpus=4) as engine:
        serial = Hosts(engine, 4)
        for _ in range(1500):
            serial.push(chance.choice(several_gpus.KINDS), chance, chance.choice([0, 0, 0, 1]))
        serial.check()


def test_threads_push_collectives_in_one_order_on_all_gpus():
    with ss.Engine("dual", device="simulated", gpus=3) as engine:

        def work(value):
            members = [engine.variable(np.full(4, value), gpu=gpu) for gpu in range(3)]
            results = [engine.variable(members[0].spec, gpu=gpu) for gpu in range(3)]
            for _ in range(20):
                engine.push(ss.ops.all_reduce, reads=members, writes=results)
                engine.push(ss.ops.send, reads=(results[2],), writes=(members[0],), gpu=0)
                engine.push(ss.ops.broadcast, reads=(results[1],), writes=members, gpus=(0, 1, 2))
            found[value] = [engine.read(each) for each in results]

        found = {}
        threads = [threading.Thread(target=work, args=(value,)) for value in (1, 2, 3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        for value in (1, 2, 3):
            np.testing.assert_array_equal(found[value], np.full((3, 4), value * 3**20))


def test_a_collective_has_one_turn_and_one_event_on_each_gpu(host):
    u, v = both(host)
    p, q = (host.variable(u.spec, gpu=gpu) for gpu in (0, 1))
    before = host.statistics.events_recorded
    host.push(ss.ops.all_reduce, reads=(u, v), writes=(p, q))
    host.push(ss.ops.all_reduce, reads=(u, v), writes=(p, q))
    assert host.statistics.events_recorded - before == 4
    assert host.statistics.cache_hits == 1
    np.testing.assert_array_equal([host.read(p), host.read(q)], np.full((2, 4), 3.0))
    assert p.version == q.version == 2


def test_the_other_collectives_take_what_they_take_in_programs(host):
    u, v = both(host)
    joined = [host.variable(ss.ArraySpec((8,), "float64"), gpu=gpu) for gpu in (0, 1)]
    host.push(ss.ops.all_gather, reads=(u, v), writes=joined)
    np.testing.assert_array_equal(host.read(joined[1]), [1.0] * 4 + [2.0] * 4)
    host.push(ss.ops.reduce_scatter, reads=joined, writes=(u, v), op="max")
    np.testing.assert_array_equal(host.read(v), [2.0] * 4)


def test_lanes_are_made_for_a_gpu_when_it_is_first_used():
    with ss.Engine("async", device="simulated", gpus=3) as engine:
        engine.variable(ss.ArraySpec((4,), "float64"), gpu=2)
        assert {lane.gpu for lane in engine._issuer.lanes.values()} == {0}
        engine.variable(np.ones(4), gpu=2)
        assert [lane.stream.name for lane in engine._issuer.lanes.values() if lane.gpu == 2] == [
            "GPU 2 main", "GPU 2 priority", "GPU 2 copy in", "GPU 2 copy out", "GPU 2 comm", "GPU 2 peer copy", "GPU 2 priority peer copy",
        ]  # fmt: skip


def test_memory_is_handed_out_again_on_its_own_gpu_only(host):
    _, y = both(host)
    host.delete(y)
    host.variable(np.ones(4))
    z = host.variable(np.ones(4), gpu=1)
    statistics = host._issuer.memory.statistics()
    assert (statistics.allocations, statistics.reuses) == (3, 1)
    np.testing.assert_array_equal(host.read(z), np.ones(4))


def test_a_copy_of_priority_does_not_wait_behind_others():
    device = SimulatedDevice(gpus=2, delays=lambda launch, stream: (500_000, 1) if launch.name == "sin" else (0, 1))
    with ss.Engine("dual", device=device) as engine:
        (x, late), (y, z) = ([engine.variable(np.ones(4), gpu=gpu) for _ in range(2)] for gpu in (0, 1))
        engine.push(ss.ops.sin, reads=(late,), writes=(late,))
        engine.push(ss.ops.to_gpu, reads=(late,), writes=(y,), gpu=1)
        engine.push(ss.ops.to_gpu, reads=(x,), writes=(z,), gpu=1, priority=1)
        engine.wait_to_read(z)
        assert device.now_ns() < 400_000
        engine.wait_to_read(y)
        assert device.now_ns() > 500_000


def test_what_is_refused(host):
    x, y = both(host)
    z = host.variable(x.spec)
    host.push(ss.ops.add, reads=(x, y), writes=(z,))
    with pytest.raises(ProgramError, match=r"lies on GPU 0, and .* on GPU 1 \(copy one of them first: ss.ops.to_gpu, gpu=0\)"):
        host.wait_to_read(z)
    with pytest.raises(ProgramError, match="makes its result on GPU 1, and 'variable 2' lies on GPU 0"):
        host.push(ss.ops.relu, reads=(y,), writes=(z,))
    with pytest.raises(ProgramError, match="works on GPUs 0 and 1"):
        host.push(lambda x, y: (ss.ops.relu(x), ss.ops.relu(y)), reads=(x, y), writes=both(host))
    with pytest.raises(ProgramError, match="applies collectives among other operations"):
        host.push(lambda x, y: ss.ops.all_reduce([ss.ops.relu(x), y]), reads=(x, y), writes=both(host))


@pytest.mark.parametrize(("written", "attributes"), [((0, 1), {}), ((1, 0), {}), ((0,), {}), ((0, 1), {"bucket": 8})])
def test_collectives_write_other_variables_than_they_read(host, written, attributes):
    operands = both(host)
    host.push(ss.ops.all_reduce, reads=operands, writes=[operands[at] for at in written], **attributes)
    with pytest.raises(ProgramError, match=r"all_reduce cannot write over 'variable .', which it reads") as caught:
        host.wait_all()
    assert caught.value.hint == "name other variables in writes="


def test_a_push_without_an_attribute_that_it_needs_is_refused_at_once(host):
    x, y = both(host)
    with pytest.raises(ProgramError, match="to_gpu needs gpu=, which was not given") as caught:
        host.push(ss.ops.to_gpu, reads=(x,), writes=(y,))
    assert caught.value.hint == "engine.push(..., gpu=...), or another variable in reads="


@pytest.mark.parametrize("gpu", [2, -1, True, "1"])
def test_there_is_no_such_gpu(host, gpu):
    with pytest.raises(ProgramError, match="no GPU of this engine, which has 2 GPUs"):
        host.variable(np.ones(3), gpu=gpu)


def test_host_memory_belongs_to_no_gpu(host):
    with pytest.raises(ProgramError, match="gpu=1 and place='host'"):
        host.variable(np.ones(3), gpu=1, place="host")


def _failed(engine):
    """Push a collective one of whose operands has failed; return its results."""

    def boom(values):
        raise ValueError("boom")

    u, v = both(engine)
    p, q = both(engine, (3.0, 4.0))
    values = engine.variable(np.ones(4), place="host")
    engine.push(boom, reads=(values,), writes=(values,))
    engine.push(ss.ops.to_device, reads=(values,), writes=(v,))
    engine.push(ss.ops.all_reduce, reads=(u, v), writes=(p, q))
    return p, q


@pytest.mark.parametrize("first", [0, 1])
def test_each_gpu_tells_of_a_failed_collective_once(host, first):
    results = _failed(host)
    for gpu in (first, 1 - first):
        with pytest.raises(EngineError, match="ValueError: boom"):
            host.read(results[gpu])
    assert [host.read(result)[0] for result in results] == [3, 4]
    host.wait_all()


def test_a_wait_for_all_tells_of_a_failed_collective_for_all_gpus(host):
    p, q = _failed(host)
    with pytest.raises(EngineError, match="ValueError: boom") as caught:
        host.wait_all()
    assert not hasattr(caught.value, "__notes__")
    assert (host.read(p)[0], host.read(q)[0]) == (3, 4)


def test_a_collective_that_is_pushed_again_mends_its_results(host):
    p, q = _failed(host)
    with pytest.raises(EngineError, match="ValueError: boom"):
        host.read(p)
    host.push(ss.ops.all_reduce, reads=tuple(both(host)), writes=(p, q))
    assert (host.read(p)[0], host.read(q)[0]) == (3, 3)
    host.wait_all()


def _braid(engine):
    """Strands on two GPUs that cross by copies and collectives."""
    serial = Hosts(engine, 2)
    engine.wait_all()
    for turn in range(3):
        serial.apply(ss.ops.to_gpu, [(0, 0)], [(1, 0)], lambda x: [x], gpu=1)
        serial.apply(ss.ops.add, [(1, 0), (1, 1)], [(1, 1)], lambda x, y: [x + y])
        serial.apply(ss.ops.to_gpu, [(1, 1)], [(0, 1)], lambda x: [x], gpu=0, priority=turn % 2)
        serial.apply(ss.ops.multiply, [(0, 1), (0, 0)], [(0, 0)], lambda x, y: [x * y])
        serial.apply(ss.ops.all_reduce, [(0, 0), (1, 0)], [(0, 2), (1, 2)], lambda x, y: [x + y] * 2)
        serial.apply(ss.ops.add, [(0, 2), (0, 0)], [(0, 0)], lambda x, y: [x + y])
        serial.apply(ss.ops.add, [(1, 2), (1, 0)], [(1, 0)], lambda x, y: [x + y])
    engine.device.synchronize()
    for key, variable in serial.variables.items():
        np.testing.assert_array_equal(engine.device.read(variable._state.buffer), serial.values[key])


def test_every_wait_of_a_stream_is_needed(monkeypatch):
    with monkeypatch.context() as patch, ss.Engine("async", device="simulated", gpus=2) as engine:
        counted = WithoutOneWait(patch, None)
        _braid(engine)
        names = [lane.stream.name for lane in engine._issuer.lanes.values() if lane.position]
    assert counted.waits > 20
    for left_out in range(counted.waits):
        caught = False
        for name in names:
            late = SimulatedDevice(gpus=2, delays=lambda launch, stream, name=name: (500_000, 1) if stream == name else (0, 1))
            with monkeypatch.context() as patch:
                WithoutOneWait(patch, left_out)
                try:
                    _braid(ss.Engine("async", device=late))
                except (AssertionError, DeviceError):
                    caught = True
                    break
        assert caught, f"nobody notices that wait {left_out} is missing"


def test_deletion_comes_first_of_what_is_ready(host, monkeypatch):
    order, (x, y), h = [], both(host), host.variable(np.ones(4), place="host")
    host.wait_all()
    release, issue = host._lifetimes._release, issuing.Issuer.issue
    monkeypatch.setattr(host._lifetimes, "_release", lambda state: (order.append(f"deletion of {state.name}"), release(state)))
    monkeypatch.setattr(issuing.Issuer, "issue", lambda *of: (order.append(of[1].parts[0].name), issue(*of))[1])
    host.push(lambda values: values, reads=(h,), writes=(h,))
    host.push(ss.ops.to_device, reads=(h,), writes=(x,))
    host.push(ss.ops.to_gpu, reads=(x,), writes=(y,), gpu=1, priority=5)
    host.delete(h)
    host.wait_all()
    assert order[-3:] == ["to_device", f"deletion of {h.name}", "to_gpu"]
