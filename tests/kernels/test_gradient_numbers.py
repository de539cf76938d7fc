"""Gradients, from the generated source built for the host: against finite differences, and against their meaning in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from tests.operator_numbers import domain_of

import streamscope as ss
from streamscope.ops.operators import OPERATORS
from streamscope.program.reference import run_reference

pytestmark = pytest.mark.slow

DIFFERENTIABLE = [name for name, operator in OPERATORS.items() if operator.definition.gradient is not None]
STEP = 1e-6
BROADCAST = [
    ((5, 8), (8,)),
    ((5, 7), (5, 1)),
    ((3, 4, 5), (4, 1)),
    ((3, 1, 8), (1, 4, 1)),
    ((4, 8), ()),
    ((9, 1), (1, 300)),
    ((700, 40), (40,)),
    ((3, 2, 1, 5), (2, 6, 1)),
    ((0, 3), (3,)),
    ((3, 0), (3, 1)),
]


def values(name, shape, dtype="float64", seed=0):
    low, high = domain_of(name)
    generator = np.random.default_rng(seed)
    if name == "ldexp" and seed:
        return generator.integers(-3, 4, shape).astype("int32")
    if name == "where" and not seed:
        return generator.integers(0, 2, shape).astype("bool")
    drawn = generator.uniform(low, high, shape)  # kept away from kinks and jumps, across which differences say nothing
    if name in ("rint", "round", "ceil", "floor", "trunc", "fix"):
        drawn = np.floor(drawn) + generator.uniform(0.1, 0.4, shape)
    if name in ("mod", "fmod") and seed:
        drawn = np.sign(drawn) * 7.3  # the quotient stays clear of whole numbers, mostly
    return np.where(np.abs(drawn) < 0.05, 0.5, drawn).astype(dtype)


def arrays_of(name, dtype="float64"):
    return [values(name, (41,), dtype, seed) for seed in range(len(OPERATORS[name].definition.operands))]


def differences(name, arrays, index):
    """Return the derivative by one operand, by central differences."""
    function = OPERATORS[name].definition.reference
    step = STEP * np.maximum(1, np.abs(arrays[index]))
    ends = [[a + sign * step if place == index else a for place, a in enumerate(arrays)] for sign in (1, -1)]
    with np.errstate(all="ignore"):
        high, low = (np.asarray(function(*end)) for end in ends)
    return (high - low) / (2 * step)


def traced(name):
    operator = OPERATORS[name]

    def program(dy, *operands):
        gradients = operator.gradient(dy, *operands)
        each = gradients if isinstance(gradients, tuple) else (gradients,)
        return tuple(gradient for gradient in each if gradient is not None)

    return program


@pytest.fixture(scope="module")
def programs(new_bench, bound_program):
    bench = new_bench()
    made = {}
    for name in DIFFERENTIABLE:
        for dtype in ("float64", "float32", "float16"):
            arrays = arrays_of(name, dtype)
            dy = np.random.default_rng(5).uniform(0.5, 2, 41).astype(dtype)
            made[name, dtype] = bound_program(bench, traced(name), [dy, *arrays]), [dy, *arrays]
    bench.finish()
    return made


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_against_finite_differences(programs, name):
    program, (dy, *arrays) = programs[name, "float64"]
    results = program.run()
    floating = [index for index, array in enumerate(arrays) if array.dtype.kind == "f"]
    assert len(results) == len(floating)
    for index, result in zip(floating, results, strict=True):
        expected = dy * differences(name, arrays, index)
        # The second difference of the function times the step, and rounding over the step: about 1e-9 of either.
        np.testing.assert_allclose(result, expected, rtol=2e-6, atol=2e-6 * np.abs(expected).max() + 1e-7, err_msg=f"by operand {index}")


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_the_reference_means_the_same(programs, name, dtype):
    program, arrays = programs[name, dtype]
    for result, expected in zip(program.run(), run_reference(program.program, arrays), strict=True):
        assert result.dtype == dtype
        scale = np.maximum(np.abs(expected.astype(np.float64)), np.abs(expected[np.isfinite(expected)]).max(initial=0) / 100)
        tolerance = {"float16": 2e-3, "float32": 5e-6}[dtype]
        np.testing.assert_array_equal(np.isfinite(result), np.isfinite(expected))
        finite = np.isfinite(expected)
        assert (np.abs(result[finite].astype(np.float64) - expected[finite]) <= tolerance * scale[finite]).all()


def test_the_gradient_goes_to_whom_a_nan_came_from(new_bench, bound_program):
    """The result is NaN where an operand is; were the gradient another's, or nobody's, it would not show there."""
    nan = np.nan
    dy, a, b = np.full(5, 2.0), np.array([nan, 1, nan, 3, 1]), np.array([1, nan, nan, 1, 3.0])
    bench = new_bench()
    pairs = {name: bound_program(bench, traced(name), [dy, a, b]) for name in ("maximum", "minimum", "fmax", "fmin")}
    relu = bound_program(bench, traced("relu"), [dy, np.array([nan, 1, -1, 0, np.inf])])
    bench.finish()
    to_a = {"maximum": [2, 0, 2, 2, 0], "minimum": [2, 0, 2, 0, 2], "fmax": [0, 2, 2, 2, 0], "fmin": [0, 2, 2, 0, 2]}
    for name, program in pairs.items():
        da, db = program.run()
        np.testing.assert_array_equal(da, to_a[name], err_msg=name)
        np.testing.assert_array_equal(db, 2 - da, err_msg=name)
    np.testing.assert_array_equal(relu.run()[0], [2, 2, 0, 0, 2])


@pytest.fixture(scope="module")
def broadcast(new_bench, bound_program):
    bench = new_bench()
    made = []
    for name in ("multiply", "add", "arctan2"):
        for first, second in BROADCAST:
            for dtype in ("float64", "float16"):
                arrays = [values(name, shape, dtype, seed) for seed, shape in enumerate((first, second))]
                dy = np.random.default_rng(5).uniform(0.5, 2, np.broadcast_shapes(first, second)).astype(dtype)
                made.append((name, bound_program(bench, traced(name), [dy, *arrays]), [dy, *arrays]))
    bench.finish()
    return made


def test_gradients_of_what_was_broadcast_are_sums(broadcast):
    partial = {
        "add": lambda dy, a, b: (dy + 0 * a * b, dy + 0 * a * b),
        "multiply": lambda dy, a, b: (dy * b + 0 * a, dy * a + 0 * b),
        "arctan2": lambda dy, a, b: (dy * b / (a * a + b * b), -dy * a / (a * a + b * b)),
    }
    for name, program, arrays in broadcast:
        results = program.run()
        wide = [array.astype(np.float64) for array in arrays]
        for result, everywhere, operand in zip(results, partial[name](*wide), arrays[1:], strict=True):
            missing = everywhere.ndim - operand.ndim
            padded = (1,) * missing + operand.shape
            axes = tuple(axis for axis in range(everywhere.ndim) if padded[axis] != everywhere.shape[axis] or axis < missing)
            expected = everywhere.sum(axis=axes, keepdims=True).reshape(operand.shape)
            # Each term is rounded once, and their sum in a few steps.
            bound = np.abs(everywhere).sum(axis=axes, keepdims=True).reshape(operand.shape)
            unit = {"float64": 1e-14, "float16": 2e-3}[operand.dtype.name]
            assert result.shape == operand.shape
            assert (np.abs(result - expected) <= unit * bound + (1e-3 if operand.dtype == np.float16 else 0)).all(), (name, operand.shape)


def test_gradients_accumulate(new_bench, bound_program):
    def program(dy, a, b, da, db):
        ss.ops.multiply.gradient(dy, a, b, out=(da, db), request="add")
        return da, db

    generator = np.random.default_rng(0)
    dy, a, b = generator.standard_normal((6, 8)), generator.standard_normal((6, 8)), generator.standard_normal(8)
    da, db = generator.standard_normal((6, 8)), generator.standard_normal(8)
    bench = new_bench()
    prepared = bound_program(bench, program, [dy, a, b, da, db])
    bench.finish()
    results = prepared.run()
    np.testing.assert_allclose(results[0], da + dy * b, rtol=1e-13)
    np.testing.assert_allclose(results[1], db + (dy * a).sum(axis=0), rtol=1e-12)
    for result, expected in zip(results, run_reference(prepared.program, [dy, a, b, da, db]), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-12)
