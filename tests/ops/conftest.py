"""Short ways to apply operators outside a program of one's own."""

from __future__ import annotations

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


@pytest.fixture
def launches():
    """Return the launches of the only operation of a function over variables."""

    def run(function, *arrays):
        (operation,) = ss.program(function).trace(*arrays).operations
        return operation.launches

    return run


def has_reference(program):
    """Tell whether NumPy says what every operation of a program computes."""
    return known_part(program).operations == program.operations
