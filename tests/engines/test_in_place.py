"""Random programs that write in place through views and aliases: under every engine they are what their plain function is in NumPy."""

from __future__ import annotations

import operator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamscope as ss
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engines import PLANNERS
from streamscope.engines.prepared import Prepared
from streamscope.errors import ProgramError
from streamscope.program.reference import run_reference

SIDE, RUNS = 3, 2
VIEWS = [
    lambda x: x,
    lambda x: x.T,
    lambda x: x[::-1],
    lambda x: x[:, 1:],
    lambda x: x[1],
    lambda x: x[2, 0],
    lambda x: x[0, 1, ...],
    lambda x: x.reshape(-1),
    lambda x: x.reshape(-1)[::2],
    lambda x: x.T.reshape(-1),  # a copy
    lambda x: x[::2].ravel(),  # a copy
    lambda x: x.T[None, 1:],
    lambda x: np.flip(np.swapaxes(x, 0, -1)),
    lambda x: np.split(x, SIDE)[1],
    lambda x: np.squeeze(x[:, :1]),
    lambda x: np.broadcast_to(x[0], (SIDE, SIDE)),
    lambda x: np.sum(x, axis=tuple(range(len(x.shape)))[:1]),
    np.copy,
]
UPDATES = [operator.iadd, operator.isub, operator.imul, operator.imatmul]
NUMBER, VIEW = st.integers(0, 7), st.sampled_from(VIEWS)
STEP = st.tuples(st.sampled_from(["update", "update", "item", "see", "new"]), NUMBER, NUMBER, VIEW, VIEW, st.sampled_from(UPDATES))


def following(steps):
    """Return a function that takes the steps, in a program as in NumPy; it holds all that it has seen, and returns it.

    Remainders, in place too, keep numbers small, and so exact.
    """

    def function(*given):
        held = list(given)
        for kind, one_of, other_of, one, other, update in steps:
            first, second = one_of % len(held), other_of % len(held)
            if kind == "see":  # Views of numbers are copies, which a program does not write.
                held.append(one(held[first]) if held[first].shape else -held[first])
            elif kind == "new":
                held.append(one(held[first]) + other(held[second]))
            elif kind == "item":
                held[first][..., 1:] += held[second]
                held[first] %= 61
            else:
                held[first] = update(held[first], other(held[second]))
                held[first] %= 53
        return tuple(each * 1.0 for each in held)

    return function


def fits(function, inputs):
    """Tell whether NumPy takes the steps: random shapes need not fit each other, and views in which elements repeat are not written."""
    try:
        function(*(array.copy() for array in inputs))
    except (ValueError, TypeError, IndexError):
        return False
    return True


@pytest.mark.parametrize("engine", PLANNERS)
@settings(max_examples=25)
@given(steps=st.lists(STEP, min_size=3, max_size=10), fuse=st.booleans(), late=st.integers(0, 2**32 - 1))
def test_random_programs_that_write_in_place(engine, steps, fuse, late):
    kept, inputs = [], [np.arange(9.0).reshape(SIDE, SIDE) % 7, (np.arange(9.0).reshape(SIDE, SIDE) * 5 + 2) % 11]
    for step in steps:
        if fits(following([*kept, step]), inputs):
            kept.append(step)
    function = following(kept)
    program = ss.program(function, fuse=fuse).trace(*inputs)
    random = np.random.default_rng(late)
    device = SimulatedDevice(delays=lambda launch, stream: (float(random.choice([0, 0, 1e5])), float(random.uniform(1, 20))))
    prepared = Prepared(PLANNERS[engine](program, lambda launch: 1e5, 2), device)
    for _ in range(RUNS):
        prepared.load(inputs)
        prepared.run()
    prepared.wait()
    expected = function(*(array.copy() for array in inputs))
    for found, reference, right in zip(prepared.outputs(), run_reference(program, inputs), expected, strict=True):
        np.testing.assert_array_equal(reference, right)
        np.testing.assert_array_equal(found, right)


WRITES_Y = [lambda x, y: x + y.__iadd__(1), lambda x, y: (np.add(y, 1, out=y), x * 1)]


@pytest.mark.parametrize("function", WRITES_Y)
@pytest.mark.parametrize("other", [lambda x: x, lambda x: x[::-1], lambda x: x[:, :2], lambda x: x.T])
def test_inputs_that_share_memory_are_refused_where_one_is_written(function, other):
    x = np.arange(9.0).reshape(SIDE, SIDE)
    inputs = x[:, : other(x).shape[1]], other(x)
    with ss.Engine(device="simulated") as engine:
        engine.run(function, *(array.copy() for array in inputs))  # prepares it
        for run in (engine.run, lambda *given: ss.compare(*given, device="simulated", progress=False)):
            with pytest.raises(ProgramError, match=r"writes in place, and its inputs 'x' and 'y' share memory: NumPy would .*copy as 'y'"):
                run(function, *inputs)
        engine.run(lambda x, y: x + y, *inputs)


@pytest.mark.parametrize("function", WRITES_Y)
def test_inputs_that_lie_between_each_other_are_apart(function):
    x = np.arange(12.0).reshape(SIDE, 4)
    with ss.Engine(device="simulated") as engine:
        found = engine.run(function, x[:, ::2], x[:, 1::2])
        expected = function(x[:, ::2].copy(), x[:, 1::2].copy())
        np.testing.assert_array_equal(found, expected)
