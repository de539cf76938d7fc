"""What counts as equal to NumPy's results: all that rounding explains, and nothing else."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
from tests.combinations import THOROUGH

import streamscope as ss
from streamscope import tolerance
from streamscope.measuring.case import Case, largest_error
from streamscope.program.reference import run_reference
from streamscope.tolerance import BEHIND_OTHERS, Perturbation, perturbed_program
from streamscope.workloads import ON_ONE_GPU

FLOATS = ["float16", "float32", "float64"]


def case_of(function, *inputs, fuse=False):
    return Case.of(ss.program(function, fuse=fuse), inputs, "compare").with_reference()


def share_used(case, outputs):
    """Return how much of what is allowed results use where they use most of it."""
    error, tolerance = largest_error(outputs, case.expected, case.allowed)
    return error / tolerance if error else 0.0


def normal(shape, dtype, mean=0.0):
    return np.asarray(np.random.default_rng(0).standard_normal(shape) + mean, dtype)


@pytest.mark.parametrize(
    ("output", "expected", "error"),
    [
        (np.array([2**60 + 1]), np.array([2**60]), 1),
        (np.array([2**63 - 1]), np.array([-(2**63)]), 2**64 - 1),
        (np.array([-3, 5], np.int8), np.array([-3, -100], np.int8), 105),
        (np.array([200], np.uint8), np.array([3], np.uint8), 197),
        (np.array([2**64 - 1], np.uint64), np.array([2**64 - 3], np.uint64), 2),
        (np.array([True]), np.array([False]), 1),
    ],
)
def test_whole_numbers_are_equal_or_off_by_what_they_differ(output, expected, error):
    assert largest_error([output], [expected]) == (float(error), 0)
    assert largest_error([expected], [expected]) == (0, 0)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("large", [1e2, 1e4])
def test_small_elements_beside_a_large_one_are_compared_too(dtype, large):
    wrong, right = np.full(100, 0, dtype), np.full(100, 1, dtype)
    wrong[0] = right[0] = large
    error, tolerance = largest_error([wrong], [right])
    assert (error, tolerance < 0.01) == (1, True)


@pytest.mark.parametrize("dtype", FLOATS)
def test_infinities_and_nan_must_be_where_they_are_due(dtype):
    right = np.array([np.nan, np.inf, -np.inf, 0, 1, np.finfo(dtype).max], dtype)
    assert largest_error([right], [right])[0] == 0
    for place, wrong in ((0, 1), (1, np.nan), (2, np.inf), (4, np.nan), (5, np.inf)):
        other = right.copy()
        other[place] = wrong
        assert largest_error([other], [right])[0] == np.inf


def test_where_nothing_is_expected_nothing_is_right():
    assert np.isnan(largest_error([], [])).all()
    assert np.isnan(largest_error([np.ones(3)], None)).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_what_is_due_to_be_zero_is_zero(dtype):
    assert largest_error([np.ones(3, dtype)], [np.zeros(3, dtype)])[0] == 1
    assert largest_error([np.zeros(3, dtype)], [np.zeros(3, dtype)])[0] == 0


def test_the_last_digits_of_one_operation_may_differ_and_no_more():
    case = case_of(ss.ops.exp, normal(1000, "float32"))
    (right,) = case.expected
    assert share_used(case, [np.nextafter(right, np.float32(9))]) < 0.3
    assert share_used(case, [right * np.float32(1 + 3e-5)]) > 1
    # Garbage in what is small beside others.
    assert share_used(case, [np.where(right < 0.1, 0, right)]) > 1


MOVES = {
    "copy": lambda x, places: x.T.flatten(),
    "concatenate": lambda x, places: ss.ops.concatenate([x, x]),
    "take": lambda x, places: ss.ops.take(x, places, axis=1),
    "embedding": ss.ops.embedding,
}


@pytest.mark.parametrize("move", MOVES)
def test_moving_elements_rounds_nothing(move):
    case = case_of(lambda x, places: MOVES[move](x, places) - MOVES[move](x, places), normal((4, 4), "float32"), np.array([3, 0, 0]))
    assert share_used(case, [np.full_like(case.expected[0], 1e-9)]) > 1


def test_a_name_makes_no_operator_exact():
    named = ss.elementwise("y = x * x", name="copy")
    case = case_of(lambda x: named(x) - named(x), normal((4, 4), "float32"))
    assert share_used(case, [np.full_like(case.expected[0], 1e-9)]) < 1


def test_what_is_shown_where_all_is_equal_is_the_most_that_is_allowed():
    case = case_of(ss.ops.exp, normal(1000, "float32"))
    assert largest_error(case.expected, case.expected, case.allowed) == (0, case.allowed[0].max())


def normalised(x):
    centred = x - ss.ops.mean(x, axis=1, keepdims=True)
    return centred / ss.ops.sqrt(ss.ops.mean(centred * centred, axis=1, keepdims=True) + 1e-3)


def gradients(x):
    y = ss.ops.softmax(x * 4)
    return ss.ops.softmax.gradient(x, y), ss.ops.softmax.gradient(x * 0 + 1, y)


PROGRAMS = {
    "normalised": normalised,
    "gradients of softmax": gradients,
    "sum of what cancels": lambda x: ss.ops.sum(x - ss.ops.mean(x)),
    "sum along columns": lambda x: ss.ops.sum(x, axis=0),
    "lost digits": lambda x: (ss.ops.exp(x / 256) + 1000) - 1000,
    "powers": lambda x: ss.ops.exp(ss.ops.log(ss.ops.abs(x) + 1) * 8),
    "mostly zeros": lambda x: ss.ops.relu(ss.ops.tanh(x) - 0.9),
    "a chain": lambda x: reduce(lambda y, _: ss.ops.tanh(y * 1.5), range(40), x),
    "chaos": lambda x: reduce(lambda y, _: (1 - y) * y * 3.9, range(12), ss.ops.sigmoid(ss.ops.sin(x))),
    "to double": lambda x: ss.ops.exp(x) * np.float64(2),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("mean", [0, 100])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_device_that_rounds_otherwise_is_right(monkeypatch, name, mean, dtype):
    x = normal((300, 40), dtype, mean)
    case = case_of(PROGRAMS[name], x)
    # Of half, which is rounded from float32, few elements come out as their neighbours.
    monkeypatch.setattr(tolerance, "PERTURBED_ULPS", {"float16": 0.26, "float32": 1, "float64": 1})
    monkeypatch.setattr(tolerance, "PERTURBED_ULPS_JOINED", 0)
    for seed in range(100, 120 if THOROUGH else 104):
        other = perturbed_program(case.program, case.program.operations, Perturbation(np.random.default_rng(seed)))
        assert share_used(case, run_reference(other, (x,))) < 1


@pytest.mark.parametrize("axis", [0, 1, None])
def test_sums_that_are_more_exact_than_numpys_are_right(axis):
    for x in (
        np.full((200_000, 3), 0.1, np.float32),
        normal((3, 200_000), "float32"),
        np.random.default_rng(0).random((200_000, 3), np.float32),
    ):
        for function in (ss.ops.sum, ss.ops.mean):
            case = case_of(lambda x, function=function: function(x, axis), x)
            exact = getattr(np, function.__name__)(x.astype(np.float64), axis=axis)
            assert share_used(case, [np.asarray(exact, np.float32)]) < 1
            if axis is not None or x.min() > 0:
                assert share_used(case, [np.asarray(exact * 1.1, np.float32)]) > 1


@pytest.mark.parametrize("mean", [0, 1])
def test_sums_of_gradients_that_are_more_exact_than_numpys_are_right(mean):
    x, bias = normal((200_000, 16), "float32", mean), np.zeros(16, np.float32)
    case = case_of(lambda dy, x, bias: ss.ops.add.gradient(dy, x, bias)[1], x, x, bias)
    exact = x.astype(np.float64).sum(axis=0)
    assert share_used(case, [np.asarray(exact, np.float32)]) < 1


def test_what_numpy_is_off_by_is_no_matter_of_chance():
    """Each element of the gradient is what is left of 1 less 1, and NumPy adds up 20,000 numbers one after the other."""
    x = normal((20_000, 7), "float64") * 4
    case = case_of(lambda x, ones: ss.ops.softmax.gradient(ones, ss.ops.softmax(x, 0), 0), x, np.ones_like(x))
    assert share_used(case, [np.zeros_like(x)]) < 1


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_coarsest_dtype_on_the_way_counts(dtype):
    case = case_of(lambda x: ss.ops.exp(x) * np.float64(2), normal(1000, dtype))
    (right,) = case.expected
    assert right.dtype == np.float64
    off = right * (1 + np.finfo(dtype).eps)
    assert 0 < share_used(case, [off]) < 1
    assert share_used(case, [right + 100 * (off - right)]) > 1


def test_operations_that_were_fused_are_moved_one_by_one():
    def lost(x):
        return (ss.ops.exp(x / 256) + 1000) - 1000

    x = normal(1000, "float32")
    plain, fused = case_of(lost, x), case_of(lost, x, fuse=True)
    assert (len(plain.program.operations), len(fused.program.operations)) == (4, 1)
    np.testing.assert_array_equal(plain.allowed, fused.allowed)


def product(x, w):
    return x @ w


@ss.operator(reads=["x"], writes=["y"], reference=lambda x: x + 1)
def own(x, y):
    y[...] = x + 1


@ss.host_function
def on_host(x):
    return x + x.dtype.type(1)


class TestBehindOthers:
    @pytest.mark.parametrize("dtype", FLOATS)
    @pytest.mark.parametrize(
        "function",
        [
            lambda x: x @ x,
            lambda x: ss.ops.relu(x @ x) + 1,
            own,
            lambda x: ss.ops.to_device(on_host(ss.ops.to_host(ss.ops.exp(x)))) * 2,
            lambda x: ss.ops.add(x @ x, x, out=x),
        ],
    )
    def test_a_share_of_the_largest_is_allowed(self, function, dtype):
        case = case_of(function, normal((30, 30), dtype))
        (right,) = case.expected
        assert case.allowed[0] == pytest.approx(BEHIND_OTHERS[dtype] * float(np.abs(right).max()))

    def test_the_coarsest_dtype_on_the_way_counts(self):
        case = case_of(lambda x: (x @ x) * np.float64(2), normal((30, 30), "float32"))
        assert case.allowed[0] == pytest.approx(BEHIND_OTHERS["float32"] * np.abs(case.expected[0]).max())

    def test_whole_numbers_must_be_equal(self):
        assert case_of(own, np.arange(5)).allowed[0] == 0

    def test_not_what_depends_on_nothing_of_theirs(self):
        def several(x):
            return ss.ops.exp(x), x @ x, ss.ops.relu(x) + 1

        case = case_of(several, normal((30, 30), "float32"))
        tight = [(np.max(allowed) < 1e-4 * np.abs(right).max()) for allowed, right in zip(case.allowed, case.expected, strict=True)]
        assert tight == [True, False, True]

    def test_not_what_was_written_over(self):
        def over(x):
            y = x @ x
            return ss.ops.exp(x, out=y)

        case = case_of(over, normal((30, 30), "float32"))
        assert case.allowed[0].max() < 1e-4 * case.expected[0].max()

    def test_they_are_run_once(self):
        runs = []

        @ss.host_function
        def counted(x):
            runs.append(1)
            return x

        x = normal(100, "float32")
        case_of(lambda a, b: (ss.ops.to_device(counted(a)) * 2, ss.ops.exp(b)), x, x)
        assert len(runs) == 1


@pytest.mark.parametrize("name", [each.name for each in ON_ONE_GPU])
def test_what_an_h200_computed_is_right(repository, name):
    recorded = ss.load_comparison(repository / "notebooks" / "recorded" / name)
    function, inputs = ss.workload(name).build(**recorded.settings)
    case = Case.of(function, inputs, "compare").with_reference()
    # A recording does not say which output its error is of; what it was allowed must be allowed today, too.
    most = max(float(np.max(allowed)) for allowed in case.allowed)
    assert all(run.max_abs_error <= run.tolerance <= most for run in recorded.values())


def test_what_stands_on_a_step_may_fall_to_either_side():
    """Where exp(log(x)) comes out just below a whole number, floor is off by one; every such element may be, whatever chance moved."""
    x = np.repeat(np.arange(1, 200, dtype=np.float32), 40)
    case = Case.of(ss.program(lambda x: ss.ops.floor(ss.ops.exp(ss.ops.log(x)))), (x,), "compare").with_reference()
    assert (case.allowed[0] >= 1).mean() > 0.999
    case = Case.of(ss.program(lambda x: ss.ops.floor(x * 1.0)), (x,), "compare").with_reference()
    assert (case.allowed[0] >= 1).all()


@pytest.mark.parametrize(("function", "zero", "off"), [(ss.ops.digamma, 1.4616321, 6.5e-7), (ss.ops.gammaln, 2.0, 3e-7)])
def test_errors_near_a_zero_are_those_of_the_terms(function, zero, off):
    x = np.linspace(zero - 0.01, zero + 0.01, 1001, dtype=np.float32)
    case = Case.of(ss.program(function), (x,), "compare").with_reference()
    error, allowed = largest_error([case.expected[0] + np.float32(off)], case.expected, case.allowed)
    assert 0 < error <= allowed < 1e-4


def test_a_reference_of_the_users_own_is_run_once_and_not_taken_to_the_last_digit():
    calls = []

    def reference(x):
        calls.append(x)
        return np.exp(x)

    line = ss.elementwise("y = __expf(x)", reference=reference)
    x = np.linspace(0, 1, 100, dtype=np.float32)
    case = Case.of(ss.program(line), (x,), "compare").with_reference()
    assert len(calls) == 1
    np.testing.assert_allclose(case.allowed[0], 2e-3 * np.e, rtol=1e-6)
