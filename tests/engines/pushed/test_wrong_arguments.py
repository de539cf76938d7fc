"""What is wrong with a call of the engine is said at once, in an error of ours, and changes nothing."""

from __future__ import annotations

import numpy as np
import pytest

import streamscope as ss
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engines.pushed.engine import Engine
from streamscope.errors import EngineError, ProgramError


class Fake:
    """What looks like an array and is none."""

    dtype = "float32"

    def __init__(self, shape):
        self.shape = shape


@ss.program
def double(x):
    return ss.ops.add(x, x)


@pytest.fixture
def engine():
    with Engine("async", device=SimulatedDevice()) as opened:
        yield opened


@pytest.mark.parametrize("place", ["device", "host"])
@pytest.mark.parametrize(
    "wrong", [{"name": 5}, {"name": ["a"]}, {"name": b"a"}, *({"priority": one} for one in (1.5, "1", np.float64(1), None))]
)
def test_of_a_push_also_when_the_same_was_pushed_before(engine, place, wrong):
    function = ss.ops.negative if place == "device" else np.negative
    x, y = (engine.variable(np.ones(4), place=place) for _ in range(2))
    for priority in (0, 1):
        engine.push(function, reads=(x,), writes=(y,), priority=priority)
    (name,) = wrong
    with pytest.raises(ProgramError, match=f"^{name}="):
        engine.push(function, reads=(x,), writes=(y,), **wrong)
    engine.wait_all()
    assert y.version == 2


@pytest.mark.parametrize("place", ["device", "host"])
def test_a_variable_that_is_written_twice_counts_once(engine, place):
    x, y = (engine.variable(np.ones(4), place=place) for _ in range(2))
    function = ss.ops.negative if place == "device" else np.negative
    for _ in range(2):
        engine.push(function, reads=(x,), writes=(y, y))
    np.testing.assert_array_equal(engine.read(y), -np.ones(4))
    assert y.version == 2
    if place == "device":
        with pytest.raises(ProgramError, match=r"2 results, and writes= names 1 variable .each counts once"):
            engine.push(lambda a: (ss.ops.add(a, a), ss.ops.negative(a)), reads=(x,), writes=(y, y))
    else:
        engine.push(lambda a: (a, a), reads=(x,), writes=(y, y))
        with pytest.raises(ss.StreamscopeError, match="2 arrays"):
            engine.wait_to_read(y)


@pytest.mark.parametrize("wrong", [None, 5, "double", [], np.ones(3)])
def test_of_what_is_run(engine, wrong):
    with pytest.raises(ProgramError, match=r"engine\.run wants|cannot be looked up"):
        engine.run(wrong, np.ones(3))


@pytest.mark.parametrize("wrong", [None, "a", [1.0], Fake(3), Fake([[3]]), Fake((3,))])
def test_of_what_it_is_run_on(engine, wrong):
    for _ in range(2):
        with pytest.raises(ProgramError):
            engine.run(double, wrong)
    np.testing.assert_array_equal(engine.run(double, np.ones(3)), np.full(3, 2.0))


@pytest.mark.parametrize("wrong", [{"name": 5}, {"place": ["device"]}, {"place": np.ones(2)}, {"place": "gpu"}, {"place": None}])
def test_of_a_variable(engine, wrong):
    (name,) = wrong
    with pytest.raises(ProgramError, match=f"^{name}="):
        engine.variable(np.ones(4), **wrong)
    assert engine.statistics.in_use_bytes == 0


@pytest.mark.parametrize("place", ["device", "host"])
def test_of_an_array_of_objects_the_dtype_is_named(engine, place):
    with pytest.raises(ProgramError, match=r"^dtype 'object' is not supported .use one of float16"):
        engine.variable(np.array([None]), place=place)
    x = engine.variable(np.ones(1), place=place)
    with pytest.raises(ProgramError, match=r"^dtype 'object' is not supported .use one of float16"):
        engine.write(x, np.array([None]))
    with pytest.raises(ProgramError, match=r"^a NoneType is not an array of numbers .pass a NumPy or CuPy array"):
        engine.variable(None, place=place)


@pytest.mark.parametrize("wrong", [True, 0, -1, 1.0, "2", None])
def test_of_a_bulk(engine, wrong):
    with pytest.raises(EngineError, match=r"^size=.* is (not a whole number|out of range)"), engine.bulk(wrong):
        pass


@pytest.mark.parametrize("wrong", [[], {}, 5, ("async",), "asynch", ""])
def test_of_an_engine(wrong):
    with pytest.raises(EngineError, match="unknown engine"):
        Engine(wrong, device=SimulatedDevice())
