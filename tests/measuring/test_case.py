"""A case for one engine, by hand."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import streamscope as ss
from streamscope.measuring.case import Case, Checked, run_ns
from streamscope.program.reference import peak_bytes

X = np.ones(8, np.float32)


@ss.program
def chain(x):
    for _ in range(6):
        x = ss.ops.relu(x)
    return x


@pytest.mark.parametrize(
    ("error", "tolerance", "correct"),
    [(0.0, 0.0, True), (0.5, 0.5, True), (0.6, 0.5, False), (math.nan, math.nan, True), (math.inf, 0.0, False)],
)
def test_results_are_right_up_to_their_tolerance_and_where_nothing_is_expected(error, tolerance, correct):
    assert Checked(None, error, tolerance).correct is correct


def test_a_case_that_is_not_checked_has_no_reference():
    whole_numbers = np.arange(8, dtype=np.int32)  # They are not rounded, so nothing is run again for a tolerance.
    checked, unchecked = (Case.of(chain, (whole_numbers,), "ss.best", checked=wanted) for wanted in (True, False))
    assert (checked.plain is None, checked.function is None, checked.reference_steps) == (False, False, 6 + 1)
    assert (unchecked.plain, unchecked.function, unchecked.reference_steps) == (None, None, 0)


def test_outputs_that_are_not_checked_are_named_where_others_are():
    @ss.program
    def two(x):
        return ss.ops.relu(x), ss.ops.tanh(x)

    case = Case.of(two, (X,), "ss.best")
    names = [case.program.variables[variable].name for variable in case.program.outputs]
    assert replace(case, expected=[X, None]).unchecked == (f"outputs[1] ({names[1]})",)
    assert replace(case, expected=[X, X]).unchecked == replace(case, expected=None).unchecked == ()


@pytest.mark.parametrize(
    ("exact", "repeats_exactly", "steps"),
    [(True, True, 2 * 6 + 3 + 4), (True, False, 2 * 3 * 6 + 3 * 2 * 6 + 4 * 6), (False, False, 2 + 3 + 4)],
)
def test_steps_are_the_launches_that_a_device_computes_or_the_runs_that_it_makes(exact, repeats_exactly, steps):
    """Two engines are prepared, take three turns, and four runs are recorded; the program has six launches."""
    device = SimpleNamespace(repeats_exactly=repeats_exactly, info=SimpleNamespace(exact=exact))
    assert Case.of(chain, (X,), "ss.best").measuring_steps(device, 2, rounds=3, recorded=4) == steps


def test_a_run_is_issued_before_it_is_done():
    clock = iter([100, 130, 190])
    prepared = SimpleNamespace(device=SimpleNamespace(now_ns=lambda: next(clock)), run=lambda: None, wait=lambda: None)
    assert run_ns(prepared) == (30, 90)


def test_memory_of_this_machine_is_that_of_the_reference_and_of_a_device_that_computes_here():
    """Input and output are 32 bytes each; errors of eight elements are two times 8 bytes each."""
    gpu, exact = (SimpleNamespace(info=SimpleNamespace(exact=value)) for value in (False, True))
    checked, unchecked = (Case.of(chain, (X,), "ss.best", checked=wanted) for wanted in (True, False))
    peak = peak_bytes(unchecked.program)
    assert (unchecked.host_bytes(gpu, 3), unchecked.host_bytes(exact, 3)) == (0, 3 * 64 + peak)
    assert (checked.host_bytes(gpu, 3), checked.host_bytes(exact, 3)) == (peak + 32 + 128, peak + 32 + 128 + 3 * 64 + peak)
