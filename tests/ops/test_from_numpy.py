"""NumPy's functions on what a program sees: a plain NumPy function is a program."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import streamscope as ss
from streamscope.errors import ProgramError
from streamscope.ops.operators import FUNCTIONS, UFUNCS
from streamscope.ops.views import VIEW_FUNCTIONS
from streamscope.program.symbol import Symbol

X = np.linspace(-0.9, 0.9, 24, dtype=np.float32).reshape(4, 6)
W = np.linspace(-1, 1, 18, dtype=np.float32).reshape(6, 3)


def results(function, *inputs):
    """Return what a function gives as a program on the simulated device."""
    prepared = ss.prepare(ss.program(function).trace(*inputs), engine="async", device="simulated")
    prepared.load(inputs)
    prepared.run()
    prepared.wait()
    return prepared.outputs()


def calling(function):
    """Return a function of Python's own, which is what a program is made of."""

    def call(*inputs):
        return function(*inputs)

    return call


def layer(x, w):
    h = np.tanh(x @ w) * np.float32(2) + np.maximum(x @ w, 0.0)
    return np.sum(h, axis=1, keepdims=True), np.exp(h - np.max(h, axis=1, keepdims=True)), np.mean(np.abs(h))


def test_a_plain_numpy_function_is_a_program():
    for found, expected in zip(results(layer, X, W), layer(X, W), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        assert found.dtype == expected.dtype


@pytest.mark.parametrize("function", [each for each in UFUNCS if each is not np.matmul], ids=lambda each: each.__name__)
def test_every_ufunc_means_in_a_program_what_it_means_in_numpy(function):
    whole = function.__name__.startswith(("bitwise", "invert", "gcd", "lcm", "left", "right"))
    values = np.arange(1, 7, dtype=np.int32) if whole else np.linspace(0.05, 0.95, 6, dtype=np.float32)
    inputs = [values] * function.nin
    if function is np.ldexp:
        inputs = [values, np.arange(6, dtype=np.int32)]
    if function is np.arccosh:
        inputs = [values + 1]
    expected = function(*inputs)
    (found,) = results(calling(function), *inputs)
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-6)
    assert found.dtype == expected.dtype


@pytest.mark.parametrize(
    "function",
    [each for each in FUNCTIONS if each not in (np.shape, np.ndim, np.size, np.astype, np.cumsum, np.take, np.var, *VIEW_FUNCTIONS)],
    ids=lambda each: each.__name__,
)
def test_every_other_function_too(function):
    values = np.array([[-1.5, 0.5], [2.5, np.inf]], dtype=np.float32)
    (found,) = results(calling(function), values)
    np.testing.assert_allclose(found, function(values), rtol=1e-6)


def test_shapes_are_known_while_a_program_is_traced():
    seen = []

    def step(x):
        seen.append((np.shape(x), np.ndim(x), np.size(x)))
        return np.negative(x, out=x)

    assert results(step, X)[0][0, 0] == -X[0, 0]
    assert seen[0] == ((4, 6), 2, 24)


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (calling(np.linalg.inv), r"NumPy's inv at \S+ \(call NumPy in an ss\.host_function"),  # no line for each element can help
        (calling(np.sort), r"no operator for NumPy's sort at test_from_numpy\.py:\d+.*ss\.host_function"),
        (calling(np.add.reduce), r"NumPy's add\.reduce at .*\(use np\.sum"),
        (lambda x: np.sum(x, dtype=np.float64), r"NumPy's sum with dtype= at .*\(leave dtype out\)"),
        (lambda x: np.add(x, 1.0, where=[True]), r"NumPy's add with where= at"),
        (lambda x: np.add(x, 1.0, out=np.zeros((4, 6), np.float32)), r"NumPy's add with an array for out= at"),
        (lambda x: np.round(x, 2), r"NumPy's round with decimals= at"),
        (lambda x: np.dot(x, x), r"NumPy's dot at .*\(use a @ b\)"),
        (lambda x: np.divmod(x, x), r"NumPy's divmod at"),
        (lambda x: np.hstack([x, x]), r"NumPy's hstack at .*\(use np\.concatenate\)"),
        (lambda x: np.einsum("ij,kj->ik", x, x), r"NumPy's einsum at .*\(use @ and views"),
        (lambda x: np.array_split(x, 3), r"NumPy's array_split at .*\(use np\.split"),
    ],
)
def test_what_a_program_cannot_do_is_refused_by_name(use, said):
    with pytest.raises(ProgramError, match=said):
        ss.program(use).trace(X)


OPTIONS = {
    **dict.fromkeys(("sum", "prod"), "dtype initial where"),
    **dict.fromkeys(("max", "min"), "initial where"),
    **dict.fromkeys(("any", "all"), "where"),
    **dict.fromkeys(("argmax", "argmin", "transpose", "swapaxes", "squeeze", "ravel", "flatten", "copy"), ""),
    "mean": "dtype where",
    "reshape": "copy",
    "astype": "casting subok order",
}
"""Of each method, what NumPy takes and no operator does."""
NEEDED = {"swapaxes": (0, 1), "reshape": ((6, 4),), "astype": ("float64",)}


def test_every_method_of_arrays_is_looked_at():
    methods = {name for name in vars(Symbol) if not name.startswith("_") and callable(getattr(Symbol, name))}
    assert methods == OPTIONS.keys()


@pytest.mark.parametrize(("method", "option"), [(method, option) for method in OPTIONS for option in [*OPTIONS[method].split(), "bogus"]])
def test_options_of_methods_are_refused_as_those_of_functions(method, option):
    said = rf"^a program has no operator for NumPy's {method} with {option}= at test_from_numpy\.py:\d+ \(leave {option} out\)$"
    with pytest.raises(ProgramError, match=said):
        ss.program(lambda x: getattr(x, method)(*NEEDED.get(method, ()), **{option: 3})).trace(X)
    if option in inspect.signature(getattr(np, method, len)).parameters:
        with pytest.raises(ProgramError, match=said):
            ss.program(lambda x: getattr(np, method)(x, *NEEDED.get(method, ()), **{option: 3})).trace(X)


@pytest.mark.parametrize("method", [each for each in OPTIONS if each not in ("transpose", "reshape")])
def test_methods_take_no_more_arguments_than_numpys(method):
    said = rf"no operator for NumPy's {method} with such arguments at test_from_numpy\.py:\d+ \(too many positional arguments\)"
    with pytest.raises(ProgramError, match=said):
        ss.program(lambda x: getattr(x, method)(*range(9))).trace(X)


@pytest.mark.parametrize(
    "use",
    [
        lambda x: x.sum(0, None, None, True),
        lambda x: x.sum(axis=1, dtype=None, out=None),
        lambda x: x.max(1, keepdims=True),
        lambda x: x.argmin(0, None),
        lambda x: x.reshape(6, 4, copy=None),
        lambda x: x.astype("float64", order="K", casting="unsafe", subok=True, copy=False),
    ],
)
def test_options_that_are_numpys_defaults_change_nothing(use):
    (found,) = results(use, X)
    expected = use(X)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert found.dtype == expected.dtype


def test_a_method_writes_where_its_function_does():
    def step(x, y):
        return x.sum(axis=0, out=y)

    np.testing.assert_allclose(results(step, X, np.zeros(6, np.float32))[0], X.sum(axis=0), rtol=1e-6)
