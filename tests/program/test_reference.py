"""Serial execution in NumPy is what a program means: it equals NumPy code that knows no program."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.ops.conftest import has_reference

import streamscope as ss
from streamscope.errors import DeviceError, OutOfMemoryError, ProgramError
from streamscope.program.collective import Collective
from streamscope.program.reference import run_reference

N = 3
BINARY = {"add": (ss.ops.add, np.add), "multiply": (ss.ops.multiply, np.multiply), "matmul": (ss.ops.matmul, np.matmul)}
UNARY = {
    "relu": (ss.ops.relu, lambda x: np.maximum(x, 0)),
    "softmax": (ss.ops.softmax, lambda x: shares(np.exp(x - x.max(-1, keepdims=True)))),
}


def shares(values):
    """Return each row divided by its sum."""
    return values / values.sum(-1, keepdims=True)


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
            result = ss.ops.bias_add(variables[operands[0]], bias, out=out)
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

    program = trace(lambda x: ss.ops.to_host(ss.ops.relu(ss.ops.to_device(halve(x)))), np.zeros(4, np.float32))
    (result,) = run_reference(program, [np.array([-4, 0, 1, 6], np.float32)])
    np.testing.assert_array_equal(result, [0, 0, 0.5, 3])
    assert result.dtype == np.float32


def test_in_place_changes_are_seen_by_what_follows_only():
    def function(x, y):
        before = ss.ops.add(x, y)
        ss.ops.multiply(x, y, out=x)
        return before, ss.ops.add(x, y)

    program = trace(function, np.zeros(1), np.zeros(1))
    before, after = run_reference(program, [np.array([2.0]), np.array([5.0])])
    assert (before, after) == (7, 15)


def test_overflow_is_silent_as_on_a_gpu():
    program = trace(lambda x: ss.ops.softmax(ss.ops.multiply(x, x)), np.zeros(2, np.float16))
    (result,) = run_reference(program, [np.array([1e3, 1e3], np.float16)])
    assert np.isnan(result).all()


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (lambda x: x[:2], r"returned float32\[2\] for a variable that is float32\[4\]"),
        (lambda x: (x, x), "returned 2 arrays for 1 variable"),
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
    program = trace(lambda x: mystery(ss.ops.relu(x)), np.zeros(4))
    assert not has_reference(program)
    assert has_reference(trace(ss.ops.relu, np.zeros(4)))
    with pytest.raises(ProgramError, match=r"operation 1, test_reference\.py:\d+\) has no NumPy reference.*reference="):
        run_reference(program, [np.zeros(4)])


class Silent(Exception):  # noqa: N818
    """Fails to say what it is."""

    def __str__(self):
        raise ZeroDivisionError


def raise_what_says_nothing():
    raise Silent


def test_a_reference_that_raises():
    broken = ss.operator(lambda x, y: None, reads=["x"], writes=["y"], reference=lambda x: 1 / 0)
    with pytest.raises(
        ProgramError, match=r"NumPy reference of .*operation 0, test_reference\.py:\d+\) failed: ZeroDivisionError: division"
    ):
        run_reference(trace(broken, np.zeros(4)), [np.zeros(4)])
    silent = ss.operator(lambda x, y: None, reads=["x"], writes=["y"], reference=lambda x: raise_what_says_nothing())
    with pytest.raises(ProgramError, match=r"failed: Silent: \(its text cannot be had: ZeroDivisionError\)"):
        run_reference(trace(silent, np.zeros(4)), [np.zeros(4)])
    hungry = ss.operator(lambda x, y: None, reads=["x"], writes=["y"], reference=lambda x: np.empty(2**56))
    with pytest.raises(OutOfMemoryError, match=r"the NumPy reference of .*operation 0"):
        run_reference(trace(hungry, np.zeros(4)), [np.zeros(4)])


X = np.zeros(4, np.float32)


def made_of(reference, **options):
    return ss.operator(lambda x, y: None, reads=["x"], writes=["y"], reference=reference, **options)


def check_both(function, x, error, said):
    """Check that a program is refused with an error, as well by the reference as by a comparison."""
    for call in (
        lambda: run_reference(trace(function, x), [x]),
        lambda: ss.compare(ss.program(function), x, engines="sync", device="simulated", progress=False),
    ):
        with pytest.raises(error, match=said) as caught:
            call()
        assert type(caught.value) is error
        assert caught.value.hint


@pytest.mark.parametrize("change", [lambda x: x.__iadd__(1), lambda x: x.fill(1), lambda x: x.sort(), lambda x: np.exp(x, out=x)])
def test_a_function_that_changes_its_arguments(change):
    for function in (made_of(change), ss.operator(lambda x: None, reads=["x"], writes=["x"], reference=change), ss.host_function(change)):
        check_both(function, X, ProgramError, r"operation 0, test_reference\.py:\d+\) changes its arguments: .*is read-only \(let it copy")
    prepared = ss.prepare(trace(made_of(change), X), engine="async", device="simulated")
    prepared.run()
    with pytest.raises(DeviceError, match=r"failed: its reference changes its arguments: .* \(let it copy"):
        prepared.wait()


def test_what_else_is_wrong_with_a_host_function_is_raised_as_it_is():
    def fails(x):
        raise ValueError("as planned")

    with pytest.raises(ValueError, match="as planned") as caught:
        run_reference(trace(ss.host_function(fails), X), [X])
    assert type(caught.value) is ValueError


def test_a_result_that_is_an_argument_is_another_array():
    def function(x):
        same = made_of(lambda x: x)(x)
        ss.ops.add(x, 1, out=x)
        return x, same, ss.host_function(lambda x: x)(ss.ops.to_host(x))

    results = run_reference(trace(function, X), [X])
    assert [result.tolist() for result in results] == [[1] * 4, [0] * 4, [1] * 4]
    assert not any(np.may_share_memory(one, other) for one, other in itertools.combinations([*results, X], 2))
    assert all(result.flags.writeable for result in results)


def test_memory_that_a_reference_uses_again():
    memory = np.empty_like(X)

    def plus(x):
        return np.add(x, 1, out=memory)

    plus_one = made_of(plus)
    one, two = run_reference(trace(lambda x: (y := plus_one(x), plus_one(y)), X), [X])
    assert (one.tolist(), two.tolist()) == ([1] * 4, [2] * 4)


def test_what_is_no_array():
    uneven = [[1.0], [2.0, 3.0]]
    said = r"operation 0, test_reference\.py:\d+\) did not return an array: ValueError: .*inhomogeneous"
    for function in (made_of(lambda x: (uneven,)), ss.host_function(lambda x: (uneven,))):
        check_both(function, X, ProgramError, said)
    for values, problem in [(uneven, "a list is not an array of numbers"), (np.array(["a"] * 4), r"input 'x' is .*, not float32\[4\]")]:
        with pytest.raises(ProgramError, match=problem):
            run_reference(trace(ss.ops.relu, X), [values])


@pytest.mark.filterwarnings("ignore::streamscope.errors.MemoryWarning")  # said before, with the figures
def test_more_than_this_machine_has():
    huge = np.broadcast_to(np.float32(1), 2**44)
    check_both(ss.ops.sum, huge, OutOfMemoryError, r"input 'x', which is float32\[17592186044416\], has no copy: Unable to allocate")
    large = made_of(lambda x: np.broadcast_to(x[:1], 2**44), shapes=lambda x: {"y": ((2**44,), "float32")})
    check_both(large, X, OutOfMemoryError, r"the NumPy reference of .*operation 0.*: Unable to allocate")


def test_what_is_unknown_to_numpy_is_named():
    same = ss.elementwise("y = x", name="same", gradient={"x": "dy * round(x)"})
    for function, said in [
        (ss.elementwise("y = round(x)"), "function round"),
        (lambda x: same.gradient(x, x), "function round"),
    ]:
        program = trace(function, X)
        with pytest.raises(
            ProgramError, match=rf"has no NumPy reference \(unknown there: {said}\), so .*give ss\.elementwise a reference="
        ):
            run_reference(program, [X])
        with pytest.raises(DeviceError, match=rf"has no NumPy reference \(unknown there: {said}\), so it runs on CUDA only"):
            ss.prepare(program, engine="async", device="simulated")
    fused = ss.program(lambda x: ss.ops.relu(ss.elementwise("y = round(x)")(x)), fuse=True).trace(X)
    assert [launch.unknown for launch in fused.launches()] == ["function round"]


def test_a_collective_that_overflows_says_nothing():
    largest = np.full(2, 60_000, np.float16)
    for result in Collective("all_reduce", (0, 1), largest.nbytes, "sum").results([largest, largest]):
        assert np.isinf(result).all()
