"""Random programs that write in place through views and aliases: under every engine they are what their plain function is in NumPy."""

from __future__ import annotations

import operator
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view
from tests.engines.against_numpy import check_function

import streamscope as ss
from streamscope.engine_entry import ENGINES
from streamscope.errors import ProgramError
from streamscope.program.aliasing import check_memory

SIDE = 3
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


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=25)
@given(steps=st.lists(STEP, min_size=3, max_size=10), fuse=st.booleans(), late=st.integers(0, 2**32 - 1))
def test_random_programs_that_write_in_place(engine, steps, fuse, late):
    kept, inputs = [], [np.arange(9.0).reshape(SIDE, SIDE) % 7, (np.arange(9.0).reshape(SIDE, SIDE) * 5 + 2) % 11]
    for step in steps:
        if fits(following([*kept, step]), inputs):
            kept.append(step)
    check_function(following(kept), inputs, engine, fuse=fuse, late=late)


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


def square():
    return np.arange(9.0).reshape(SIDE, SIDE)


def read_only(x):
    x.flags.writeable = False
    return x


def writes_a_view(x):
    v = x.reshape(-1)
    v += 100
    return x * 1


def writes_a_copy(x):  # a view of memory in the other order
    v = x.T.ravel()
    v += 100
    return x * 1


def writes_a_ravel(x):
    v = np.ravel(x)
    v += 100
    return x * 1


def sees_a_view(x):
    v = x.reshape(-1)
    x += 100
    return v * 1


def writes_what_is_made_of_it(x):
    y = x * 2
    v = y.reshape(-1)
    v += 100
    return y


def writes_the_first(x):
    x[0] += 10
    return x * 1


SHARE = "has elements that share memory: .*pass a copy"
C_ORDER = "does not lie in C order .*pass np.ascontiguousarray"


@pytest.mark.parametrize(
    ("function", "x", "said"),
    [
        *((each, square().T, C_ORDER) for each in (writes_a_view, writes_a_copy, writes_a_ravel, sees_a_view, writes_what_is_made_of_it)),
        (ss.program(writes_what_is_made_of_it, fuse=True), np.asfortranarray(square()), C_ORDER),
        (writes_a_ravel, np.arange(12.0)[::2], C_ORDER),
        (writes_a_view, square()[::-1], C_ORDER),
        (writes_the_first, sliding_window_view(np.arange(5.0), SIDE, writeable=True), SHARE),
        (writes_the_first, np.lib.stride_tricks.as_strided(np.arange(3.0), (2, 3), (0, 8)), SHARE),
        (writes_the_first, np.broadcast_to(np.arange(3.0), (2, 3)), "is read-only: .*pass a copy"),
        (writes_the_first, read_only(square()), "is read-only: .*pass a copy"),
    ],
)  # fmt: skip
def test_an_input_that_numpy_would_write_otherwise_as_it_lies_in_memory_is_refused(function, x, said):
    with ss.Engine(device="simulated") as engine:
        for run in (engine.run, lambda *given: ss.compare(*given, device="simulated", progress=False)):
            with pytest.raises(ProgramError, match=f"writes in place, and its input 'x' {said}"):
                run(function, x)
        plain, lying = getattr(function, "function", function), np.array(x, order="C")
        np.testing.assert_array_equal(engine.run(function, lying), plain(lying.copy()))


@pytest.mark.parametrize("lying", [lambda x: x.T, lambda x: x[::-1], lambda x: x[:, ::2], np.asfortranarray, lambda x: x[:1].T])
@pytest.mark.parametrize("function", [writes_the_first, lambda x: (x.T[1:].__iadd__(x[0, 0]), x.reshape(1, *x.shape)[0] * x)[1]])
def test_an_input_may_lie_in_any_way_where_that_means_the_same(function, lying):
    x = lying(square())
    with ss.Engine(device="simulated") as engine:
        np.testing.assert_array_equal(engine.run(function, x), function(lying(square())))


@pytest.mark.parametrize(
    ("interface", "said"),
    [
        ({"data": (4096, False), "strides": None}, ""),
        ({"data": (4096, True), "strides": None}, "is read-only"),
        ({"data": (4096, False), "strides": (8, 8)}, "has elements that share memory"),
        ({"data": (4096, False), "strides": (8, 24)}, "does not lie in C order"),
    ],
)
def test_inputs_in_gpu_memory_are_told_by_their_interface(interface, said):
    x = SimpleNamespace(shape=(SIDE, SIDE), dtype=np.dtype(float), nbytes=72, __cuda_array_interface__=interface)
    program = ss.program(writes_a_view).trace(square())
    if not said:
        check_memory(program, [x])
        return
    with pytest.raises(ProgramError, match=said):
        check_memory(program, [x])
