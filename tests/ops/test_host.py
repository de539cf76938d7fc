from __future__ import annotations

import numpy as np
import pytest

import streamscope as ss
from streamscope.errors import ProgramError
from streamscope.program.launch import HostCall

X = np.arange(6, dtype=np.float32)


def test_one_result_like_the_first_argument(evaluate):
    blend = ss.host_function(lambda a, b: a + 2 * b)
    np.testing.assert_array_equal(evaluate(blend, X, np.ones(6, np.float32)), X + 2)


def test_results_of_declared_shapes_and_dtypes(evaluate):
    @ss.host_function(results=[((2,), "int64"), ((), np.float64)])
    def summary(values):
        return np.array([values.min(), values.max()]).astype(np.int64), values.sum(dtype=float)

    extremes, total = evaluate(summary, X)
    np.testing.assert_array_equal(extremes, [0, 5])
    assert (extremes.dtype, extremes.shape, total.dtype, total.shape, total) == (np.int64, (2,), np.float64, (), 15)


def test_a_function_without_arguments(evaluate):
    source = ss.host_function(lambda: np.ones(3), results=[((3,), "float64")])
    np.testing.assert_array_equal(evaluate(lambda x: source(), X), np.ones(3))
    with pytest.raises(ProgramError, match=r"has no arguments, so its result is unknown.*results="):
        evaluate(lambda x: ss.host_function(lambda: X)(), X)


def test_a_function_that_returns_nothing_has_no_results(evaluate):
    seen = []

    @ss.host_function(results=[])
    def noted(x):
        seen.append(float(x.sum()))

    def step(x):
        noted(ss.ops.to_host(x))
        return x + 1

    assert evaluate(step, np.ones(4)).tolist() == [2.0] * 4
    assert set(seen) == {4.0}


def test_arguments_that_the_function_does_not_take(evaluate):
    @ss.host_function
    def twice(values):
        return values * 2

    with pytest.raises(ProgramError, match=r"twice cannot take 2 arguments: too many .*, applied to 'a', 'b' at test_host\.py"):
        evaluate(lambda a, b: ss.ops.to_device(twice(a, b)), X, X)


def scaled(values, scale=2.0, *, shift=0.0):
    return values * scale + shift


@pytest.mark.parametrize("options", [{}, {"scale": 3.0}, {"scale": 3.0, "shift": 1.0}])
def test_what_is_given_by_name_is_passed_on(evaluate, options):
    by_name = ss.host_function(scaled)
    np.testing.assert_array_equal(evaluate(lambda x: by_name(x, **options), X), scaled(X, **options))
    with ss.Engine("async", device="simulated") as engine:
        np.testing.assert_array_equal(engine.run(ss.program(lambda x: by_name(x, **options)), X), scaled(X, **options))
    audit = ss.audit(lambda x: by_name(by_name(x, **options), scale=1.0), X, device="simulated", progress=False)
    assert audit.findings == ()


def test_what_is_given_by_name_and_is_not_taken(evaluate):
    by_name = ss.host_function(scaled)
    with pytest.raises(ProgramError, match=r"scaled cannot take 1 argument, size=: got an unexpected keyword.* at test_host\.py:\d+"):
        evaluate(lambda x: by_name(x, size=3), X)
    with pytest.raises(ProgramError, match=r"scaled was given the variable 'y' by name, scale=.*by position"):
        evaluate(lambda x, y: by_name(x, scale=y), X, X)


def test_a_built_in_function_that_tells_no_arguments(evaluate):
    negative = ss.host_function(np.negative)
    np.testing.assert_array_equal(evaluate(negative, X), -X)


def test_in_place(evaluate):
    def function(x):
        ss.host_function(lambda values: values + 1)(x, out=x)
        return x

    np.testing.assert_array_equal(evaluate(function, X), X + 1)


@pytest.mark.parametrize("duration_us", [-1, -1e-9])
def test_a_negative_duration(duration_us):
    with pytest.raises(ProgramError, match=rf"duration_us={duration_us} is negative"):
        ss.host_function(lambda x: x, duration_us=duration_us)


def test_the_duration_is_kept_in_nanoseconds():
    (operation,) = ss.program(ss.host_function(lambda v: v, duration_us=1.5)).trace(X).operations
    assert isinstance(operation.work, HostCall)
    assert operation.work.duration_ns == 1500
    assert not operation.capturable
    assert operation.launches == ()


def test_impossible_results(evaluate):
    with pytest.raises(ProgramError, match="dtype 'complex64' is not supported"):
        evaluate(ss.host_function(lambda v: v, results=[((3,), "complex64")]), X)
    with pytest.raises(ProgramError, match="negative extent"):
        evaluate(ss.host_function(lambda v: v, results=[((-3,), "float32")]), X)


@pytest.mark.parametrize("duration_us", ["a", None, True, np.nan, np.inf, -np.inf, 10**400, 1 + 1j, [1]])
def test_what_is_no_duration(duration_us):
    with pytest.raises(ProgramError, match=r"^duration_us=.* must be a time \(give a number of µs, 0 or more\)"):
        ss.host_function(lambda x: x, duration_us=duration_us)


@pytest.mark.parametrize("results", [5, "float32", [5], [None], [((2,), "float32", 1)], [(5, "float32")], ((2,), "float32")])
def test_what_are_no_results(results):
    with pytest.raises(ProgramError, match=r"^ss\.host_function: results=.*\(give \[?\(shape, dtype\)"):
        ss.host_function(lambda x: x, results=results)


def test_what_is_no_function():
    for make in (ss.host_function, ss.host_function()):
        with pytest.raises(ProgramError, match=r"ss\.host_function wants a function, not an int"):
            make(5)
