"""`.correct` means "as your function": it is called with NumPy arrays, beside the traced program, and the result says which was checked."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

import streamscope as ss
from streamscope.analysis.verdict import FUNCTION, NUMPY
from streamscope.measuring.case import Case
from streamscope.measuring.plain_call import _equal, _half_flops
from streamscope.program.variable import SUPPORTED_DTYPES

X = np.arange(1.0, 7.0)
OPEN = "converts numbers to whole ones, or takes 1 / 0 of them, which NumPy may leave open"
HALVES = np.ones((5000, 2), np.float16)


def compared(function, *inputs, **options):
    return ss.compare(function, *inputs, engines="sync,graph", device="simulated", progress=False, **options)


def told(runs):
    return runs.checked_against, runs.why_not_function, {run.correct for run in runs.values()}


def raising(x):
    if isinstance(x, np.ndarray):
        raise KeyError("no")
    return x * 1


def raising_later(x, calls=[]):  # noqa: B006 — kept from call to call
    if isinstance(x, np.ndarray):
        calls.append(x)
        if len(calls) > 1:
            raise KeyError("no")
        return x * 2
    return x * 1


@ss.program
def a_program(x):
    x += 1
    return x * 2


@ss.host_function
def on_the_host(x):
    return x * 2


@pytest.mark.parametrize(
    ("function", "inputs", "why_not"),
    [
        (lambda x: ss.ops.relu(x) + 1, [X], "uses operators of Streamscope"),
        (lambda x: x @ ss.ops.softmax(x), [X], "uses operators of Streamscope"),
        (on_the_host, [X], "uses operators of Streamscope"),
        (ss.program(ss.program(lambda x: x + 1)), [X], ""),
        (lambda x: a_program(x) + 1, [X], ""),
        (lambda x: x * random.random(), [X], "returns other results when it is called again"),
        (raising, [X], "raises \"KeyError: 'no'\" for NumPy arrays"),
        (raising_later, [X], "raises \"KeyError: 'no'\" when it is called again"),
        (lambda x: (x, x + 1) if isinstance(x, np.ndarray) else x * 2, [X], "returns 2 arrays for NumPy arrays, and 1 in a program"),
        (
            lambda x: (x * 1e30).astype("int8"),
            [X],
            OPEN,
        ),
        # NumPy does not warn of these.
        (lambda x: x.astype("uint8"), [np.array([-9.0, 1, 300])], OPEN),
        (lambda x: (x[::-1] * 1).astype("uint64") * 2, [np.array([1, -1.5, 7], "float32")], OPEN),
        (lambda x: np.concatenate([x.T[0].astype("uint8"), x[0].astype("uint8")]), [np.array([[1, 2], [-1.0, 5]])], OPEN),
        (
            np.reciprocal,
            [np.arange(3)],
            OPEN,
        ),
        (lambda x: np.sum(x, axis=0), [HALVES], "adds up numbers of float16, which NumPy rounds one by one"),
        (lambda x, y: x @ y, [np.zeros((600, 600), "float16")] * 2, "multiplies matrices of float16, which takes NumPy long"),
    ],
)
def test_a_function_that_says_nothing_is_left_alone_and_why_is_said(function, inputs, why_not):
    runs = compared(function, *inputs)
    assert told(runs) == (NUMPY if why_not else FUNCTION, why_not, {True})
    ending = f"traced program in NumPy (the function itself {why_not})." if why_not else "Results are those of the plain function."
    assert runs.verdict.endswith(ending)


@pytest.mark.parametrize(
    ("function", "off"),
    [
        (lambda x: x * (2 if isinstance(x, np.ndarray) else 3), 6.0),
        (lambda x: x.astype("float32" if isinstance(x, np.ndarray) else "float64"), np.inf),
        (lambda x: x[None] * 1 if isinstance(x, np.ndarray) else x * 1, np.inf),
        (lambda x: x[:0] if isinstance(x, np.ndarray) else x[:0].astype("float32"), np.inf),
    ],
)
def test_a_program_that_does_something_else_than_its_function_is_wrong(function, off):
    runs = compared(function, X)
    assert told(runs) == (FUNCTION, "", {False})
    assert {run.max_abs_error for run in runs.values()} == {off}
    assert runs.verdict.startswith(
        "RESULTS ARE WRONG under sync, graph: they differ from those of the plain function by more than is allowed. "
        "Under every engine, so the traced program does something else than the function. "
    )
    assert "Results are" not in runs.verdict


def test_what_was_checked_is_saved_and_read_back(tmp_path):
    for function in (lambda x: x + 1, ss.ops.relu):
        runs = compared(function, X)
        again = ss.load_comparison(runs.save(tmp_path))
        assert told(again) == told(runs)
        assert again.to_dict() == runs.to_dict()
        assert again.to_dict()["checked_against"] == runs.checked_against
        assert again.to_dict().get("why_not_function", "") == runs.why_not_function


def test_the_function_is_called_once_more_with_arrays_that_nobody_else_has():
    called = []

    def function(x, y, scale=1, gradient=False):
        if isinstance(x, np.ndarray):
            called.append((x, y, scale, gradient))
        x += scale
        return [x, None, y * 2]

    x, y = X.copy(), np.float64(3)
    assert told(compared(function, x, y, scale=4, gradient=True)) == (FUNCTION, "", {True})
    (given,) = called
    assert given[0] is not x
    assert given[1:] == (3.0, 4, True)
    assert isinstance(given[1], np.float64)
    np.testing.assert_array_equal(x, X)


@pytest.mark.parametrize("lying", [np.asfortranarray, lambda x: x[::2], lambda x: x[::-1], lambda x: np.broadcast_to(x, (2, 3, 3))])
def test_the_function_is_called_with_arrays_that_lie_as_the_users(lying):
    called, x = [], lying(np.arange(9.0).reshape(3, 3))

    def function(x):
        if isinstance(x, np.ndarray):
            called.append((x.flags.c_contiguous, x.flags.f_contiguous, x.flags.writeable))
        return x * 1

    assert told(compared(function, x)) == (FUNCTION, "", {True})
    copy = x.copy(order="K").flags
    assert called == [(copy.c_contiguous, copy.f_contiguous, x.flags.writeable)]


def test_fused_programs_and_choices_are_checked_too():
    @ss.program(fuse=True)
    def function(x):
        x *= 2
        return x * x - x

    assert told(compared(function, X)) == (FUNCTION, "", {True})
    assert ss.best(function, X, device="simulated", progress=False).engine


STEPS = [
    np.negative, np.floor, np.rint, np.abs, np.square, np.exp, np.tanh, np.copy, np.ravel, np.isfinite, np.reciprocal,
    lambda x: x.T, lambda x: x[::-1], lambda x: x > 0, lambda x: np.clip(x, -1, 1), lambda x: x.sum(axis=-1, keepdims=True),
    lambda x: x.max(axis=0, keepdims=True), lambda x: np.cumsum(x, axis=-1), lambda x: x.reshape(-1, 1), lambda x: np.argmax(x, axis=-1),
    *(lambda x, dtype=dtype: x.astype(dtype) for dtype in SUPPORTED_DTYPES for _ in range(2)),
]  # fmt: skip
PAIRS = [np.add, np.subtract, np.multiply, np.divide, np.maximum, np.floor_divide, np.mod, np.hypot, np.less, lambda a, b: a.__iadd__(b)]


def drawn(chance):
    """Draw a function of NumPy's alone; steps that a program refuses are left out of both."""
    steps = [(chance.choice(STEPS if chance.random() < 0.6 else PAIRS), chance.random(), chance.random()) for _ in range(5)]
    refused = set()

    def function(*given):
        found = list(given)
        for number, (apply, *places) in enumerate(steps):
            operands = [found[int(place * len(found))] for place in places[: 1 + (apply in PAIRS)]]
            if number not in refused:
                try:
                    found.append(apply(*operands))
                except ss.StreamscopeError:
                    refused.add(number)
        return tuple(each * 1 for each in found)

    return function


@pytest.mark.parametrize("seed", range(4))
def test_no_function_is_accused_that_does_the_same_in_a_program(seed):
    chance, values, against = random.Random(seed), np.random.default_rng(seed), Counter()
    for _ in range(60):
        with np.errstate(all="ignore"):
            wide = [values.normal(size=(3, 3)) * chance.choice([1, 3, 100, 1e5]) for _ in range(2)]
            inputs = [each.astype(chance.choice(SUPPORTED_DTYPES)) for each in wide]
        program = ss.program(drawn(chance))
        if chance.random() < 0.3 and not program.trace(*inputs).needs_row_major:
            inputs = [np.asfortranarray(each) for each in inputs]
        case = Case.of(program, inputs, "test").with_reference()
        assert not case.answer.results, f"{program.trace(*inputs)}\n{inputs}"
        against[case.checked_against] += 1
    assert against[FUNCTION] > 30


@pytest.mark.parametrize(
    ("function", "said", "found"),
    [
        (lambda x: x[1:] + 1, "The plain function has the results of the traced program.", 0),
        (ss.program(lambda x: x + 1, fuse=True), "The plain function has the results of the traced program.", 0),
        (ss.ops.relu, "The traced program was not compared with the function itself, which uses operators of Streamscope.", 0),
        (
            lambda x: (x - 1, x * (2 if isinstance(x, np.ndarray) else 3)),
            "The plain function has other results than the traced program.",
            1,
        ),
    ],
)
def test_an_audit_compares_with_the_function_too(function, said, found):
    audit = ss.audit(function, X, device="simulated", progress=False)
    errors = audit.of("not what the function does")
    assert audit.compared == said
    assert said in " ".join(str(audit).split())
    assert said in audit._repr_html_()
    assert len(errors) == found
    assert audit.ok == (not found)
    for error in errors:
        assert [variable.name for variable in error.variables] == ["multiply_1"]
        assert [operation.name for operation in error.operations] == ["multiply"]
    apart = ss.audit(function, X, device="simulated", progress=False, touches=False)
    assert apart.compared == ""
    assert not apart.of("not what the function does")


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ([1.0, np.nan], [1.0, np.nan], True), ([1.0, np.nan], [np.nan, 1.0], False), ([1, 2], [1, 2], True), ([1, 2], [1, 3], False),
        ([1, 2], [1.0, 2.0], False), (["a"], ["a"], True),
    ],
)  # fmt: skip
def test_results_are_returned_again_where_each_element_is_the_same_or_no_number_in_both(one, other, equal):
    assert _equal([np.array(one)], [np.array(other)]) is equal
    assert not _equal([np.array(one)], [])


@pytest.mark.parametrize(("dtype", "flops"), [(np.float16, 2 * 8 * 8 * 8), (np.float32, 0)])
def test_products_of_halves_are_those_that_take_numpy_long(dtype, flops):
    function = ss.program(lambda x: ss.ops.matmul(x, x) + x)
    assert _half_flops(function.trace(np.ones((8, 8), dtype))) == flops
