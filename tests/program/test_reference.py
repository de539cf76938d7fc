"""Serial execution in NumPy is what a program means: it equals NumPy code that knows no program."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special
from hypothesis import assume, given
from hypothesis import strategies as st

import streamscope as ss
from streamscope.errors import OutOfMemoryError, ProgramError
from streamscope.program.reference import has_reference, run_reference

N = 3
BINARY = {"add": (ss.add, np.add), "multiply": (ss.multiply, np.multiply), "matmul": (ss.matmul, np.matmul)}
UNARY = {"relu": (ss.relu, lambda x: np.maximum(x, 0)), "softmax": (ss.softmax, lambda x: scipy.special.softmax(x, axis=-1))}


def trace(function, *arguments):
    return ss.program(function).trace(*arguments)


@st.composite
def random_steps(draw):
    """Draw steps ``(operator, operands, target)``: a target of None is a new variable, else an earlier one is overwritten."""
    steps, variables = [], 2
    for _ in range(draw(st.integers(1, 10))):
        name = draw(st.sampled_from([*BINARY, *UNARY, "bias_add"]))
        operands = tuple(draw(st.integers(0, variables - 1)) for _ in range(2 if name in BINARY else 1))
        target = draw(st.none() | st.integers(0, variables - 1))
        if name == "matmul" and target in operands:
            target = None
        variables += target is None
        steps.append((name, operands, target))
    return steps


def apply_steps(steps, variables, bias):
    for name, operands, target in steps:
        out = None if target is None else variables[target]
        if name == "bias_add":
            result = ss.bias_add(variables[operands[0]], bias, out=out)
        else:
            result = (BINARY | UNARY)[name][0](*(variables[v] for v in operands), out=out)
        if target is None:
            variables.append(result)
        else:
            assert result is variables[target]
    return tuple(variables)


def compute_steps(steps, arrays, bias):
    for name, operands, target in steps:
        values = [arrays[v] for v in operands]
        result = values[0] + bias[np.newaxis, :] if name == "bias_add" else (BINARY | UNARY)[name][1](*values)
        if target is None:
            arrays.append(result)
        else:
            arrays[target] = result
    return arrays


@given(random_steps(), st.sampled_from(["float32", "float64"]), st.integers(0, 2**32 - 1))
def test_random_programs(steps, dtype, seed):
    random = np.random.default_rng(seed)
    x, y = (random.uniform(-1, 1, (N, N)).astype(dtype) for _ in range(2))
    bias = random.uniform(-1, 1, N).astype(dtype)
    with np.errstate(all="ignore"):
        expected = compute_steps(steps, [x, y], bias)
    assume(all(np.isfinite(array).all() and np.abs(array).max() < 1e6 for array in expected))
    before = x.copy(), y.copy(), bias.copy()
    program = trace(lambda x, y, bias: apply_steps(steps, [x, y], bias), x, y, bias)
    results = run_reference(program, (x, y, bias))
    assert len(program.operations) == len(steps)
    for result, array in zip(results, expected, strict=True):
        assert result.dtype == dtype
        np.testing.assert_allclose(result, array, rtol=2e-4 if dtype == "float32" else 1e-9, atol=1e-4 if dtype == "float32" else 1e-10)
    for array, kept in zip((x, y, bias), before, strict=True):
        np.testing.assert_array_equal(array, kept, err_msg="the caller's array was changed")


def test_a_chain_with_copies_and_a_host_function():
    @ss.host_function
    def halve(values):
        return values / 2

    program = trace(lambda x: ss.to_host(ss.relu(ss.to_device(halve(x)))), np.zeros(4, np.float32))
    (result,) = run_reference(program, [np.array([-4, 0, 1, 6], np.float32)])
    np.testing.assert_array_equal(result, [0, 0, 0.5, 3])
    assert result.dtype == np.float32


def test_in_place_changes_are_seen_by_what_follows_only():
    def function(x, y):
        before = ss.add(x, y)
        ss.multiply(x, y, out=x)
        return before, ss.add(x, y)

    program = trace(function, np.zeros(1), np.zeros(1))
    before, after = run_reference(program, [np.array([2.0]), np.array([5.0])])
    assert (before, after) == (7, 15)


def test_overflow_is_silent_as_on_a_gpu():
    program = trace(lambda x: ss.softmax(ss.multiply(x, x)), np.zeros(2, np.float16))
    (result,) = run_reference(program, [np.array([1e3, 1e3], np.float16)])
    assert np.isnan(result).all()


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (lambda x: x[:2], r"returned float32\[2\] for a variable that is float32\[4\]"),
        (lambda x: (x, x), "returned 2 arrays for 1 variables"),
        (lambda x: x.astype(complex), "returned complex128"),
        (lambda x: None, "returned object"),
    ],
)
def test_a_host_function_that_returns_what_does_not_fit(returned, said):
    program = trace(ss.host_function(returned), np.zeros(4, np.float32))
    with pytest.raises(ProgramError, match=rf"\(operation 0, test_reference\.py:\d+\) {said}"):
        run_reference(program, [np.zeros(4, np.float32)])


def test_an_operator_without_a_reference():
    mystery = ss.operator(lambda x, y: None, reads=["x"], writes=["y"])
    program = trace(lambda x: mystery(ss.relu(x)), np.zeros(4))
    assert not has_reference(program)
    assert has_reference(trace(ss.relu, np.zeros(4)))
    with pytest.raises(ProgramError, match=r"operation 1, test_reference\.py:\d+\) has no NumPy reference.*reference="):
        run_reference(program, [np.zeros(4)])


def test_a_reference_that_raises():
    broken = ss.operator(lambda x, y: None, reads=["x"], writes=["y"], reference=lambda x: 1 / 0)
    with pytest.raises(
        ProgramError, match=r"NumPy reference of .*operation 0, test_reference\.py:\d+\) failed: ZeroDivisionError: division"
    ):
        run_reference(trace(broken, np.zeros(4)), [np.zeros(4)])
    hungry = ss.operator(lambda x, y: None, reads=["x"], writes=["y"], reference=lambda x: np.empty(2**56))
    with pytest.raises(OutOfMemoryError, match=r"the NumPy reference of .*operation 0"):
        run_reference(trace(hungry, np.zeros(4)), [np.zeros(4)])
