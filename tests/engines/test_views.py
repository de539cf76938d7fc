"""Programs that see variables as other arrays, in every engine. That no wait behind a view can be left out shows `test_missing_waits`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engines.against_numpy import check_function

from streamscope.engine_entry import ENGINES

SIDE, VARIABLES = 3, 3
VIEWS = [
    lambda x: x,
    lambda x: x.T,
    lambda x: x[::-1],
    lambda x: x[:, 1:2],
    lambda x: x[2],
    lambda x: x.reshape(-1)[:SIDE],
    lambda x: x.T.reshape(SIDE, SIDE),  # takes a copy
    lambda x: np.flip(x.swapaxes(0, 1), 1),
    lambda x: np.broadcast_to(x[0], (SIDE, SIDE)),
    lambda x: np.split(x, SIDE, axis=1)[1],
]
VARIABLE, VIEW = st.integers(0, VARIABLES - 1), st.sampled_from(VIEWS)
STEP = st.tuples(st.sampled_from(["add", "subtract", "in place", "back", "matmul", "sum"]), VARIABLE, VARIABLE, VARIABLE, VIEW, VIEW)


def following(steps):
    """Return a function that takes the steps, in a program as in NumPy: remainders keep numbers small, and so exact."""

    def function(*given):
        state = list(given)
        for kind, first, second, target, one, other in steps:
            a, b = one(state[first]), other(state[second])
            if kind == "in place":
                # One operation may not read a view of what it writes; `TestFusion` in tests/ops/test_views.py tries it.
                np.add(state[target], b if second != target else 1.0, out=state[target])
            elif kind == "back":
                # Two may, one after the other, which fusion must leave two: `Launch` refuses to be both.
                np.mod(one(state[target]) - b + state[first], 79.0, out=state[target])
            elif kind == "matmul":
                product = a @ b
                state[target] = np.mod(product + state[target], 97.0)
            elif kind == "sum":
                state[target] = np.mod(np.sum(a, axis=0) - state[target], 89.0)
            else:
                state[target] = np.mod(getattr(np, kind)(a, b) + state[target], 83.0)
        # What nothing has used yet, and is returned, lies nowhere.
        return tuple(each * 1.0 for each in state)

    return function


def fits(function, inputs):
    """Tell whether NumPy takes the steps: random shapes need not fit each other."""
    try:
        results = function(*(array.copy() for array in inputs))
    except ValueError:
        return False
    return all(result.shape == (SIDE, SIDE) for result in results)


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=25)
@given(steps=st.lists(STEP, min_size=2, max_size=8), fuse=st.booleans(), late=st.integers(0, 2**32 - 1))
def test_random_programs_of_views(engine, steps, fuse, late):
    kept, inputs = [], [np.arange(9.0).reshape(SIDE, SIDE) % 7 + number for number in range(VARIABLES)]
    for step in steps:
        if fits(following([*kept, step]), inputs):
            kept.append(step)
    check_function(following(kept), inputs, engine, fuse=fuse, late=late)
