from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

import streamscope as ss
from streamscope.errors import ProgramError
from streamscope.kernels.compile.program_kernels import program_kernels
from streamscope.ops import reductions
from streamscope.ops.reductions import norm_of_order
from streamscope.program.reference import run_reference

NAMES = ("sum", "mean", "prod", "nansum", "nanprod", "max", "min", "any", "all", "argmax", "argmin")
ORDERS = (1, 2, 3, 2.5, float("inf"))
DIFFERENTIABLE = [*(getattr(reductions, name) for name in NAMES[:7]), *map(norm_of_order, map(float, ORDERS))]


@st.composite
def cases(draw, dtypes=("float16", "float32", "float64", "int8", "uint8", "int32", "int64", "uint64", "bool")):
    shape = draw(nps.array_shapes(min_dims=0, max_dims=4, max_side=5))
    dtype = np.dtype(draw(st.sampled_from(dtypes)))
    random = np.random.default_rng(draw(st.integers(0, 1000)))
    x = np.asarray(random.integers(0 if dtype.kind in "ub" else -3, 4, shape)).astype(dtype)
    axes = st.lists(st.integers(-len(shape), len(shape) - 1), unique_by=lambda axis: axis % len(shape)).map(tuple) if shape else st.just(())
    axis = draw(st.none() | axes)
    return x, axis, draw(st.booleans())


@pytest.mark.parametrize("name", NAMES)
@given(case=cases())
def test_reductions_are_numpys(name, case):
    x, axis, keepdims = case
    if name.startswith("arg") and axis is not None:
        axis = axis[0] if axis else None
    (result,) = run_reference(ss.program(lambda x: getattr(ss.ops, name)(x, axis, keepdims=keepdims)).trace(x), [x])
    expected = getattr(np, name)(x, axis=axis, keepdims=keepdims)
    assert result.shape == expected.shape
    assert result.dtype == expected.dtype
    np.testing.assert_allclose(result, expected, rtol=2e-3)


@pytest.mark.parametrize("order", ORDERS)
@given(case=cases(dtypes=("float32", "float64", "int16")))
def test_norms_are_numpys(order, case):
    x, _, _ = case
    (result,) = run_reference(ss.program(lambda x: ss.ops.norm(x, order)).trace(x), [x])
    np.testing.assert_allclose(result, np.linalg.norm(x.reshape(-1).astype(np.float64), order), rtol=1e-5)


def test_adding_to_a_variable():
    x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(2, np.float32)
    (result,) = run_reference(ss.program(lambda x, y: ss.ops.sum(x, 1, out=y, request="add")).trace(x, y), [x, y])
    np.testing.assert_array_equal(result, [4, 13])


@pytest.mark.parametrize("axis", [None, 0, (0, 2), 1])
@pytest.mark.parametrize("keepdims", [True, False])
@pytest.mark.parametrize("reduction", DIFFERENTIABLE, ids=str)
def test_gradients_are_finite_differences(reduction, axis, keepdims):
    # Far apart and away from zero, so that no step changes which element is largest.
    x = np.random.default_rng(0).permutation(np.linspace(-1.3, 1.7, 24)).reshape(2, 3, 4)
    program = ss.program(lambda x: reduction(x, axis, keepdims=keepdims)).trace(x)
    (y,) = run_reference(program, [x])
    dy = np.random.default_rng(1).standard_normal(y.shape)
    (dx,) = run_reference(ss.program(lambda dy, x: reduction.gradient(dy, x, axis, keepdims=keepdims)).trace(dy, x), [dy, x])
    step = 1e-6
    for place in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[place] += step
        down[place] -= step
        slope = np.sum(dy * (run_reference(program, [up])[0] - run_reference(program, [down])[0])) / (2 * step)
        assert dx[place] == pytest.approx(slope, rel=1e-5, abs=1e-8)


@pytest.mark.parametrize("reduction", DIFFERENTIABLE, ids=str)
def test_gradients_go_where_they_are_asked_to(evaluate, reduction):
    x, before = np.array([[3.0, -4.0, 1.0], [0.5, 2.0, 7.0]]), np.full((2, 3), 100.0)
    dy = np.array([2.0, 3.0])
    alone = evaluate(lambda dy, x: reduction.gradient(dy, x, 1), dy, x)
    for request, expected in (("write", alone), ("add", before + alone), ("null", before)):
        got = evaluate(lambda dy, x, out, request=request: reduction.gradient(dy, x, 1, out=out, request=request), dy, x, before)
        np.testing.assert_allclose(got, expected)
    in_place = evaluate(lambda dy, x: reduction.gradient(dy, x, 1, out=x), dy, x)
    np.testing.assert_array_equal(in_place, alone)
    with pytest.raises(ProgramError, match=r"gradient: request='add' needs a variable"):
        ss.program(lambda dy, x: reduction.gradient(dy, x, 1, request="add")).trace(dy, x)


def test_sources_of_gradients():
    dy, x = np.ones(64, np.float16), np.ones((64, 256), np.float16)
    for function in (ss.ops.sum, ss.ops.max, ss.ops.prod, ss.ops.norm):
        write = ss.program(lambda dy, x, of=function: of.gradient(dy, x, axis=1)).source(dy, x)
        add = ss.program(lambda dy, x, of=function: of.gradient(dy, x, axis=1, out=x, request="add")).source(dy, x)
        assert write != add
        assert "dy" in write
    assert ss.program(lambda dy, x: ss.ops.prod.gradient(dy, x, 1)).source(dy, x).count("__global__") == 4  # three reductions help
    with pytest.raises(ProgramError, match=r"any: truth values cannot be added"):
        ss.program(lambda x, y: ss.ops.any(x, 1, out=y, request="add")).trace(x, dy.astype(bool))


@pytest.mark.parametrize(("zeros", "expected"), [(0, [15, 10, 6]), (1, [0, 10, 0]), (2, [0, 0, 0])])
def test_gradient_of_a_product_with_zeros(zeros, expected):
    x = {0: np.array([2.0, 3.0, 5.0]), 1: np.array([2.0, 0.0, 5.0]), 2: np.array([0.0, 0.0, 5.0])}[zeros]
    (dx,) = run_reference(ss.program(ss.ops.prod.gradient).trace(np.ones(()), x), [np.ones(()), x])
    np.testing.assert_array_equal(dx, expected)


# No seven of them have a product beyond double, whichever of them are multiplied first.
SINGLES = st.floats(width=32, allow_nan=False).filter(lambda x: x == 0 or abs(x) > 1e-38)


@given(x=st.lists(SINGLES | st.sampled_from([0.0, np.inf, -np.inf]), min_size=1, max_size=7), dy=st.floats(-8, 8, width=32))
def test_gradient_of_a_product_is_the_product_of_the_others(x, dy):
    arrays = [np.array(dy, np.float32), np.array(x, np.float32)]
    (dx,) = run_reference(ss.program(ss.ops.prod.gradient).trace(*arrays), arrays)
    with np.errstate(all="ignore"):
        others = [dy * np.prod(x[:index] + x[index + 1 :]) for index in range(len(x))]
        expected = np.array(others).astype(np.float32)
    np.testing.assert_allclose(dx, expected, rtol=3e-7, atol=1e-44)


NAN = np.nan


@pytest.mark.parametrize(
    ("reduction", "x", "expected"),
    [
        (ss.ops.prod, [NAN, 2, 3], [NAN, NAN, NAN]),
        (ss.ops.prod, [0, NAN, 2], [NAN, NAN, NAN]),
        (ss.ops.prod, [0, NAN, 0], [NAN, NAN, NAN]),
        (ss.ops.nanprod, [0, NAN, 2], [2, 0, 0]),
        (ss.ops.nanprod, [NAN, 2, 3], [0, 3, 2]),
        (ss.ops.nansum, [NAN, 2, 3], [0, 1, 1]),
        (ss.ops.max, [NAN, 2, NAN], [1, 0, 1]),
        (partial(ss.ops.norm, order=1), [NAN, -2, 0], [NAN, -1, 0]),
        (ss.ops.norm, [NAN, -2, 0], [NAN, NAN, NAN]),
        (partial(ss.ops.norm, order=np.inf), [NAN, -2, 0], [NAN, 0, 0]),
    ],
    ids=str,
)
def test_gradients_pass_nan_on(reduction, x, expected):
    x, options = np.array(x), getattr(reduction, "keywords", {})
    gradient = getattr(reduction, "func", reduction).gradient
    (dx,) = run_reference(ss.program(lambda dy, x: gradient(dy, x, **options)).trace(np.ones(()), x), [np.ones(()), x])
    np.testing.assert_array_equal(dx, expected)


@pytest.mark.parametrize(
    ("reduction", "x", "expected"),
    [(ss.ops.prod, [300, 300], 300), (ss.ops.prod, [1e-4, 1e-4], 1e-4), (ss.ops.norm, [2000] * 4096, 1 / 64)],
    ids=str,
)
def test_gradients_of_half_where_the_result_itself_does_not_fit_half(reduction, x, expected):
    x, one = np.array(x, np.float16), np.ones((), np.float16)
    (dx,) = run_reference(ss.program(reduction.gradient).trace(one, x), [one, x])
    assert dx.dtype == np.float16
    np.testing.assert_allclose(dx, np.full(x.shape, expected), rtol=2e-3)


@pytest.mark.parametrize("reduction", [ss.ops.sum, ss.ops.mean, ss.ops.max, ss.ops.norm], ids=str)
def test_another_extent_needs_no_other_kernel_for_a_gradient(reduction):
    def kernels(extent):
        program = ss.program(lambda dy, x: reduction.gradient(dy, x, axis=1)).trace(np.ones(64), np.ones((64, extent)))
        return program_kernels(program)

    assert kernels(1024) == kernels(2048)


@pytest.mark.parametrize(
    ("apply", "problem"),
    [
        (lambda x: ss.ops.sum(x, 2), r"sum: axis 2 is outside of shape \(2, 0\)"),
        (lambda x: ss.ops.sum(x, (0, -2)), r"sum: axis=\(0, -2\) names an axis twice"),
        (lambda x: ss.ops.sum(x, "all"), r"sum: axis must be a whole number, a tuple of them, or None, not 'all'"),
        (lambda x: ss.ops.sum(x, True), r"sum: axis must be a whole number, a tuple of them, or None, not True"),
        (lambda x: ss.ops.sum(x, (0, True)), r"sum: axis must be a whole number, a tuple of them, or None, not \(0, True\)"),
        (lambda x: ss.ops.max(x, 1), r"max: float32\[2, 0\] has no elements to reduce"),
        (lambda x: ss.ops.argmax(x, (0, 1)), r"argmax: axis=\(0, 1\) is not one axis.*\(give a whole number\)"),
        (lambda x: ss.ops.argmax(x, ()), r"argmax: axis=\(\) is not one axis"),
        (lambda x: ss.ops.argmax(x, (0,)), r"argmax: axis=\(0,\) is not one axis"),
        (lambda x: ss.ops.norm(x, 0.5), r"norm: order=0.5 must be a number from 1 on"),
        (lambda x: ss.ops.sum(x, request="subtract"), r"request='subtract' is unknown"),
        (lambda x: ss.ops.argmax.gradient(ss.ops.sum(x, 1), x, 1), r"argmax: it has no gradient"),
        (lambda x: ss.ops.sum.gradient(x, x, 1), r"the result's gradient has shape \(2, 0\), the result \(2,\)"),
    ],
)
def test_errors(apply, problem):
    with pytest.raises(ProgramError, match=problem):
        ss.program(apply).trace(np.ones((2, 0), np.float32))


@pytest.mark.parametrize("keepdims", ["a", None, 2, 1, 0, np.ones(1, bool)])
@pytest.mark.parametrize("request_", ["write", "null"])
def test_what_is_neither_true_nor_false(keepdims, request_):
    for reduction in (ss.ops.sum, ss.ops.argmax, ss.ops.norm):
        with pytest.raises(ProgramError, match=rf"{reduction.__name__}: keepdims=.* is neither True nor False"):
            ss.program(lambda x: reduction(x, keepdims=keepdims, out=x, request=request_)).trace(np.ones(3))  # noqa: B023
    for reduction in (ss.ops.sum, ss.ops.norm):
        with pytest.raises(ProgramError, match=r"keepdims=.* is neither True nor False"):
            ss.program(lambda dy, x: reduction.gradient(dy, x, keepdims=keepdims)).trace(np.ones(()), np.ones(3))  # noqa: B023


def test_truth_values_of_numpy_are_taken():
    program = ss.program(lambda x: ss.ops.sum(x, keepdims=np.bool_(True))).trace(np.ones(3))
    assert run_reference(program, [np.ones(3)])[0].tolist() == [3]


def test_source_is_readable():
    text = ss.program(lambda x: ss.ops.sum(x, 1)).source(np.ones((1000, 3000), np.float16))
    assert "joined" in text
    assert "__launch_bounds__(256, 4)" in text


def test_norm_has_what_its_orders_have(evaluate):
    x, dy = np.array([[3.0, -4.0], [0.0, 2.0]]), np.ones(2)
    np.testing.assert_allclose(evaluate(lambda dy, x: ss.ops.norm.gradient(dy, x, 2, 1), dy, x), [[0.6, -0.8], [0, 1]])
    np.testing.assert_array_equal(evaluate(lambda dy, x: ss.ops.norm.gradient(dy, x, 1, 1), dy, x), [[1, -1], [0, 1]])
    assert norm_of_order(np.int64(2)) is norm_of_order(np.float32(2)) is norm_of_order(2)


@pytest.mark.parametrize("order", ["2", None, True, float("nan"), 0, 10**400])
def test_orders_that_are_none(order):
    with pytest.raises(ProgramError, match=r"norm: order=.* must be a number from 1 on"):
        ss.program(lambda x: ss.ops.norm(x, order)).trace(np.ones(3))


def test_null_checks_and_does_nothing(evaluate, launches):
    x, before = np.ones((2, 3)), np.full(2, 7.0)
    np.testing.assert_array_equal(evaluate(lambda x, b: (ss.ops.sum(x, 1, out=b, request="null"), b * 1.0)[1], x, before), before)
    assert len(launches(lambda x, b: (ss.ops.sum(x, 1, out=b, request="null"), b * 1.0)[1], x, before)) == 1
    with pytest.raises(ProgramError, match="axis 2 is outside of shape"):
        evaluate(lambda x, b: ss.ops.sum(x, 2, out=b, request="null"), x, before)
    for operator in (ss.ops.sum, ss.ops.softmax):
        with pytest.raises(ProgramError, match="it takes variables, got an int"):
            evaluate(lambda x, b, operator=operator: operator(3, out=b, request="null"), x, before)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", ["float16", "float32", "int32", "bool"])
def test_means_are_numpys(evaluate, dtype):
    x = np.arange(24).reshape(2, 3, 4).astype(dtype)
    for axis in (None, 0, (0, 2)):
        found = evaluate(lambda x, axis=axis: ss.ops.mean(x, axis=axis), x)
        np.testing.assert_allclose(found, np.mean(x, axis=axis), rtol=1e-6)
    assert np.isnan(evaluate(ss.ops.mean, np.ones(0, dtype)))
    assert evaluate(lambda x: ss.ops.mean(x, 1), np.ones((0, 3), dtype)).shape == (0,)
