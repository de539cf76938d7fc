"""A run that does not fit this machine's memory is warned of before it starts, with the figures."""

from __future__ import annotations

import numpy as np
import pytest

import streamscope as ss
from streamscope.devices.simulated import SimulatedDevice
from streamscope.errors import MemoryWarning
from streamscope.measuring import case
from streamscope.measuring.case import Case
from streamscope.program.reference import peak_bytes

X = np.ones(1000, np.float32)


def chain(x):
    for _ in range(10):
        x = ss.ops.tanh(x)
    return x


def test_a_chain_holds_two_variables_at_a_time():
    assert peak_bytes(ss.program(chain).trace(X)) == 2 * X.nbytes


def test_what_is_read_later_is_held_until_then():
    def function(x):
        a, b = x + 1, x + 2  # x, a and b
        c = a * b  # a, b and c, and x, which is read at the end
        return c + x, a

    assert peak_bytes(ss.program(function).trace(X)) == 4 * X.nbytes


def test_the_estimate_of_a_chain():
    """Two variables at a time in NumPy, the output, its errors in float64 twice; under each engine input and output, and two variables."""
    made = Case.of(ss.program(chain), [X], "ss.compare")
    assert made.host_bytes(SimulatedDevice(), 3) == (2 + 1 + 4 + 3 * 2 + 2) * X.nbytes


@pytest.mark.parametrize("verb", [ss.compare, ss.best])
def test_the_warning_names_both_figures_and_the_users_line(monkeypatch, verb):
    monkeypatch.setattr(case, "free_bytes", lambda: 40 << 10)
    message = r"'chain' under 5 engines takes about 74\.2 KiB of this machine's memory, and 40\.0 KiB are free"
    with pytest.warns(MemoryWarning, match=message) as caught:
        verb(chain, X, engines="sync,async,dual,graph,graph-dual", device="simulated", progress=False)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("free", [0, 1 << 40])
def test_there_is_no_warning_where_it_fits_or_nothing_is_known(monkeypatch, free):
    monkeypatch.setattr(case, "free_bytes", lambda: free)
    ss.compare(chain, X, device="simulated", engines="async", progress=False)
