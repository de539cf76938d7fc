"""Short ways to apply operators outside a program of one's own."""

from __future__ import annotations

import numpy as np
import pytest

import streamscope as ss
from streamscope.program.reference import known_part, run_reference


@pytest.fixture
def evaluate():
    """Return what a function over variables computes in NumPy: one array, or a list of them."""

    def run(function, *arrays):
        program = ss.program(function).trace(*arrays)
        results = run_reference(program, arrays)
        return results[0] if program.single_output else results

    return run


@pytest.fixture(scope="session")
def device():
    """The GPU."""
    return ss.open_device("cuda")


@pytest.fixture
def both(device):
    """Return what a function over variables computes on CUDA, and in NumPy."""

    def run(function, *arrays, engine="async", fuse=False):
        program = ss.program(function, fuse=fuse).trace(*arrays)
        prepared = ss.prepare(program, engine=engine, device=device)
        for _ in range(3):  # Warm, captured, replayed; no run may depend on what the one before left behind.
            prepared.load(arrays)
            prepared.run()
            prepared.wait()
        return prepared.outputs(), run_reference(program, arrays)

    return run


@pytest.fixture
def launches():
    """Return the launches of the only operation of a function over variables."""

    def run(function, *arrays):
        (operation,) = ss.program(function).trace(*arrays).operations
        return operation.launches

    return run


@pytest.fixture
def slopes():
    """Return what gradients must be: differences of ``sum(dy * function(*arrays))`` by each element of each array, in double."""

    def run(function, dy, *arrays, step=1e-6):
        program, found = ss.program(function).trace(*arrays), []
        for index, array in enumerate(arrays):
            gradient = np.zeros_like(array)
            for place in np.ndindex(array.shape):
                ends = []
                for sign in (1, -1):
                    moved = array.copy()
                    moved[place] += sign * step
                    (result,) = run_reference(program, [*arrays[:index], moved, *arrays[index + 1 :]])
                    ends.append(np.sum(dy * result))
                gradient[place] = (ends[0] - ends[1]) / (2 * step)
            found.append(gradient)
        return found

    return run


def has_reference(program):
    """Tell whether NumPy says what every operation of a program computes."""
    return known_part(program).operations == program.operations
