"""What operators touch besides what they declare, each kind with an operator that does it."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from numpy import empty
from tests.drawn_functions import drawn_function
from tests.engines.test_engines import SMALL

import streamscope as ss
from streamscope.auditing.audit import audit
from streamscope.auditing.findings import Kind, Severity
from streamscope.auditing.poison import poisoned_memory
from streamscope.auditing.touches import touch_findings
from streamscope.errors import ProgramError
from streamscope.ops.operators import OPERATORS
from streamscope.workloads import WORKLOADS

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def findings(function, *inputs):
    """Return the findings about what a function of variables touches."""
    return list(touch_findings(ss.program(function).trace(*inputs), inputs))


def only(function, *inputs):
    (finding,) = findings(function, *inputs)
    return finding


def operator(reference, reads=("x",), writes=("y",), shapes=None):
    """Return an operator with a NumPy reference, whose CUDA side is never called here."""

    def x_to_y(x, y):
        raise AssertionError

    def two_to_y(x, z, y):
        raise AssertionError

    function = two_to_y if "z" in reads else x_to_y
    return ss.operator(function, reads=reads, writes=writes, reference=reference, shapes=shapes)


def one(applied):
    """Return a function of one variable that applies an operator to it."""

    def step(x):
        return applied(x)

    return step


def two(applied):
    """Return a function of two variables that applies an operator to them."""

    def step(x, z):
        return applied(x, z)

    return step


@pytest.mark.parametrize("workload", WORKLOADS)
def test_our_operators_touch_what_they_declare(workload):
    function, inputs = WORKLOADS[workload].build(**SMALL[workload])
    assert list(touch_findings(function.trace(*inputs), inputs)) == []


def test_a_host_function_that_writes_to_its_argument():
    @ss.host_function
    def normalise(values, scale):
        values /= scale
        return values

    def step(x, scale):
        return normalise(x, scale)

    finding = only(step, X, X + 1)
    assert (finding.kind, finding.severity) == (Kind.UNDECLARED_TOUCH, Severity.ERROR)
    assert [variable.name for variable in finding.variables] == ["x"]
    assert [operation.name for operation in finding.operations] == ["normalise"]
    assert finding.lines == (f"test_touches.py:{step.__code__.co_firstlineno + 1}",)


def test_a_write_of_the_same_value_and_one_behind_a_views_base_are_seen():
    def same(x):
        x[0] = x[0]
        return x + 1

    def through_the_base(x):
        view = x.view()
        target = view if view.base is None else view.base
        result = x + 1
        target.flags.writeable = True
        target[...] = 7
        return result

    for reference in (same, through_the_base):
        finding = only(one(operator(reference)), X)
        assert finding.kind is Kind.UNDECLARED_TOUCH
        assert [variable.name for variable in finding.variables] == ["x"]


def test_the_rest_of_the_program_sees_the_values_as_they_were():
    @ss.host_function
    def spoil(values):
        result = values + 1
        values[...] = 100
        return result

    seen = []

    @ss.host_function
    def look(values, unspoilt):
        seen.append(unspoilt.copy())
        return values + unspoilt

    findings(lambda x: look(spoil(x), x), X)
    np.testing.assert_array_equal(seen[0], X)


def test_to_write_in_place_to_what_is_declared_as_written_is_fine():
    @ss.host_function
    def accumulate(total, values):
        total += values
        return total

    assert findings(lambda total, x: accumulate(total, x, out=total), X, X) == []


@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        (lambda x: x[0], r"returned float32[3] for a variable that is float32[2, 3]"),
        (lambda x: x.astype(np.complex64), "returned complex64[2, 3]"),
        (lambda x: (x, x), "returned 2 arrays for 1 variable"),
        (lambda x: x @ x, "raised ValueError: matmul"),
    ],
)
def test_results_that_do_not_fit(reference, problem):
    finding = only(one(operator(reference)), X)
    assert (finding.kind, finding.severity) == (Kind.WRONG_RESULT, Severity.ERROR)
    assert problem in finding.message


def test_after_a_result_that_does_not_fit_the_audit_goes_on():
    def step(x):
        broken = operator(lambda x: x[0])(x)
        return operator(lambda x: np.empty_like(x) * 2)(ss.ops.relu(broken))

    assert [finding.kind for finding in findings(step, X)] == [Kind.WRONG_RESULT, Kind.UNWRITTEN, Kind.NEEDLESS_READ]


def test_scratch_memory_that_is_written_before_it_is_read_is_fine():
    def scratch(x):
        y = np.empty_like(x)
        y[...] = x
        return y * 2

    assert findings(one(operator(scratch)), X) == []


def ndarray_of(shape, dtype):
    return np.ndarray(shape, dtype)


def view_of_bytes(shape, dtype):
    return np.ndarray(int(np.prod(shape)) * dtype.itemsize, np.uint8).view(dtype).reshape(shape)


@pytest.mark.parametrize("make", [np.empty, ndarray_of, view_of_bytes, empty])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint8", "int16", "int32", "int64", "uint64", "bool"])
def test_elements_that_are_never_written_however_their_memory_was_made(make, dtype):
    def first_row(x):
        y = make(x.shape, x.dtype)
        y[0] = x[0]
        return y

    finding = only(one(operator(first_row)), X.astype(dtype))
    assert (finding.kind, finding.severity) == (Kind.UNWRITTEN, Severity.ERROR)
    assert "3 of 6 elements" in finding.message


def test_elements_that_are_not_written_for_rare_values():
    def signs(x):
        y = np.empty_like(x)
        y[x >= 0] = 1
        y[x < 0] = -1
        return y  # NaN is neither.

    finding = only(one(operator(signs)), X)
    assert (finding.kind, finding.severity) == (Kind.UNWRITTEN, Severity.WARNING)
    assert "random values, not with the program's own" in finding.message


@pytest.mark.parametrize("is_rare", [lambda x: x > 50, lambda x: x < 0, np.isnan], ids=["large", "negative", "NaN"])
def test_a_write_to_an_argument_for_rare_values(is_rare):
    def clean(x):
        x[is_rare(x)] = 0
        return x + 1

    def when_needed(x):
        return clean(x) if is_rare(x).any() else x + 1

    finding = only(one(operator(when_needed)), X)
    assert (finding.kind, finding.severity) == (Kind.UNDECLARED_TOUCH, Severity.ERROR)
    assert [variable.name for variable in finding.variables] == ["x"]
    assert "random values, not with the program's own" in finding.message


def test_state_that_is_kept_from_the_call_before():
    before = []

    def smoothed(x):
        result = (x + before[-1]) / 2 if before else x
        before[:] = [x.copy()]
        return result

    finding = only(one(operator(smoothed)), X)
    assert (finding.kind, finding.severity) == (Kind.HIDDEN_STATE, Severity.WARNING)
    assert "after it was called with others" in finding.message


def test_poison_ends_with_its_block_and_leaves_what_is_defined_as_it_is():
    def fail():
        with poisoned_memory(0xA5):
            assert np.empty(3, np.uint8).tolist() == [0xA5] * 3
        assert np.empty(3, np.uint8).tolist() == [0x5A] * 3
        assert not np.zeros(1000, np.uint8).any()
        kept.append(np.ndarray(1000, np.uint8))
        raise RuntimeError

    kept = []
    np.empty(512, np.uint8).fill(7)
    with pytest.raises(RuntimeError), poisoned_memory(0x5A):
        fail()
    kept[0].resize(2000, refcheck=False)  # It goes back to whom it came from.
    assert kept.pop()[:1000].tolist() == [0x5A] * 1000
    assert np.empty(512, np.uint8).tolist() != [0x5A] * 512


def test_ctrl_c_while_numpy_allocates_is_not_lost(monkeypatch):
    memset = ctypes.memset

    def interrupted(*arguments):
        monkeypatch.setattr(ctypes, "memset", memset)
        raise KeyboardInterrupt

    monkeypatch.setattr(ctypes, "memset", interrupted)
    with pytest.raises(KeyboardInterrupt):
        findings(one(operator(lambda x: x + 1)), X)
    assert findings(one(operator(lambda x: x + 1)), X) == []


def test_hidden_state():
    calls = []

    @ss.host_function
    def counted(x):
        calls.append(1)
        return x + len(calls)

    random = np.random.default_rng(0)
    dropout = operator(lambda x: x * (random.random(x.shape) < 0.5))
    for function in (counted, dropout):
        finding = only(one(function), X + 1)
        assert (finding.kind, finding.severity) == (Kind.HIDDEN_STATE, Severity.WARNING)


def test_a_read_that_is_not_needed():
    ignore = operator(lambda x, z: x + 1, reads=("x", "z"))
    finding = only(two(ignore), X, X)
    assert (finding.kind, finding.severity) == (Kind.NEEDLESS_READ, Severity.NOTE)
    assert [variable.name for variable in finding.variables] == ["z"]


def test_an_in_place_read_that_is_not_needed():
    overwrite = operator(lambda x, y: x + 1, reads=("x", "y"), writes=("y",))
    finding = only(two(overwrite), X, X)
    assert finding.kind is Kind.NEEDLESS_READ
    assert [variable.name for variable in finding.variables] == ["z"]
    assert finding.advice == "declare it as written only."


def test_a_read_that_these_values_do_not_show_is_found_needed_with_random_ones():
    masked = operator(lambda x, z: np.where(x > 50, z, 0 * x), reads=("x", "z"))
    assert findings(two(masked), X, X) == []
    product = operator(lambda x, z: x * z, reads=("x", "z"))
    assert findings(two(product), np.zeros_like(X), np.zeros_like(X)) == []


def test_one_variable_read_twice_and_arrays_without_elements():
    assert findings(lambda x: ss.ops.add(x, x), X) == []
    assert findings(one(ss.ops.relu), X[:0]) == []


TELLING_LITTLE = [
    np.any,
    np.all,
    np.argmax,
    lambda x: x > 50,
    lambda x: x > 1e6,
    lambda x: np.array_equal(x, x[::-1]),
    lambda x: np.unique(x).size,
]
OF_FLOATS = [np.isnan, np.isinf, np.isfinite, np.signbit, lambda x: x < -0.5]


@pytest.mark.parametrize(
    ("function", "values"),
    [
        *((function, np.array(values)) for function in TELLING_LITTLE for values in ([1, 1, 1, 1], [0, 0, 0, 0], [0.0, 1.0, 2.0, 3.0])),
        *((function, np.array([1, 1, 1], np.float32)) for function in OF_FLOATS),
        *((function, np.array(2, np.float32)) for function in OF_FLOATS if function is not np.isinf),
        (np.any, np.ones((), np.int8)),
    ],
)
def test_a_value_that_few_arguments_change_is_needed(function, values):
    known = np.asarray(function(values))
    told = ss.host_function(function, results=[(known.shape, known.dtype)])
    assert findings(one(told), values) == []


@pytest.mark.parametrize(
    "function",
    [
        lambda x, z: x == z, lambda x, z: x != z, lambda x, z: x >= z, np.logical_or, np.logical_and, np.logical_xor,
        lambda x, z: (x > 0) & (z > 0), lambda x, z: np.where(x == 0, z, 0) > 0, lambda x, z: np.isnan(x) | (z == 1),
    ],
)  # fmt: skip
@pytest.mark.parametrize("shape", [(), (5,)])
def test_values_that_hide_each_other_are_needed(function, shape):
    told = ss.host_function(function, results=[(shape, "bool")])
    assert findings(two(told), np.full(shape, 3.0), np.full(shape, 4.0)) == []


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_a_read_that_is_not_needed_of_any_dtype_and_shape(dtype, shape):
    x, z = np.ones(shape, np.float32), np.ones(shape, dtype)
    ignored = [
        operator(lambda x, z: x + 1, reads=("x", "z")),
        ss.host_function(lambda x, z: np.tanh(x)),
        ss.elementwise("ignored = x > 0 ? x : 1", operands=["x", "z"], like=np.add),
    ]
    for function in ignored:
        finding = only(two(function), x, z)
        assert (finding.kind, [variable.name for variable in finding.variables]) == (Kind.NEEDLESS_READ, ["z"])


def test_what_counts_up_to_a_value_is_not_called_with_the_largest_there_is():
    def counted(x, n):
        assert np.max(n) < 1000
        return x * sum(range(int(n)))

    def waited(x, n):
        if np.max(n) >= 1000:
            longest.append(n)  # it would wait for as long
        return x + 1

    longest = []

    assert findings(two(ss.host_function(counted)), X, np.int64(3).reshape(())) == []
    for n in (np.array(3), np.array([2.5])):
        assert only(two(ss.host_function(waited)), X, n).kind is Kind.NEEDLESS_READ
    assert longest == []


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_our_element_wise_operators_are_not_accused(name):
    operands = OPERATORS[name].definition.operands
    for dtype, shape in product(["float32", "int32", "uint8", "bool"], [(), (1,), (3,)]):
        arrays = [np.ones(shape, dtype) for _ in operands]
        try:
            assert findings(OPERATORS[name], *arrays) == []
        except ProgramError as refused:
            assert "do not fit" in str(refused)  # noqa: PT017 — not all operators take all dtypes


@pytest.mark.parametrize("seed", range(60))
def test_random_right_programs_are_not_accused(seed):
    drawn = drawn_function(seed)
    for fuse in (False, True):
        assert findings(ss.program(drawn.function, fuse=fuse), *drawn.inputs) == []


def test_an_index_that_random_values_may_not_be():
    pick = operator(lambda x, z: x[:, z[0]], reads=("x", "z"), shapes=lambda x, z: {"y": ((2,), "float32")})
    assert findings(two(pick), X, np.array([2])) == []


def test_like_operations_are_probed_once_and_reported_together():
    calls = []

    def ignore(x, z):
        calls.append(1)
        return x + 1

    like = operator(ignore, reads=("x", "z"))

    def repeated(x, z):
        for _ in range(20):
            x = like(x, z)
        return x

    only(two(like), X, X)
    calls_of_one = len(calls)
    calls.clear()
    finding = only(repeated, X, X)
    assert len(finding.operations) == 20
    assert finding.lines == (f"test_touches.py:{repeated.__code__.co_firstlineno + 2}",)
    assert "16 more operations" in finding.message
    assert len(calls) == calls_of_one + 19


def test_operators_of_one_name_are_not_taken_for_each_other():
    def make(factor):
        return operator((lambda x, z: x + z) if factor else (lambda x, z: x), reads=("x", "z"))

    finding = only(lambda x, z: make(0)(make(1)(x, z), z), X, X)
    assert [operation.id for operation in finding.operations] == [1]


def test_methods_of_two_objects_are_not_taken_for_each_other():
    class Scale:
        def __init__(self, factor):
            self.factor = factor

        def __call__(self, x, z):
            return x + self.factor * z

        def apply(self, x, z):
            return self(x, z)

    for make in (Scale, lambda factor: Scale(factor).apply):
        with_z, without_z = (operator(make(factor), reads=("x", "z")) for factor in (1, 0))
        finding = only(lambda x, z, first=with_z, second=without_z: second(first(x, z), z), X, X)
        assert [operation.id for operation in finding.operations] == [1]


def test_an_audit_inside_an_audit():
    @ss.host_function
    def nested(x):
        assert audit(ss.program(one(ss.ops.relu)), x).ok
        return x + 1

    assert findings(one(nested), X) == []


def test_an_operator_without_a_reference_is_named():
    finding = only(lambda x: ss.ops.relu(operator(None)(x)), X)
    assert (finding.kind, finding.severity) == (Kind.UNCHECKED, Severity.NOTE)
    assert [operation.id for operation in finding.operations] == [0]


def test_launches_that_touch_what_their_operation_does_not_declare():
    traced = ss.program(two(ss.ops.add)).trace(X, X)
    (operation,) = traced.operations

    def found(**changes):
        changed = replace(traced, operations=(replace(operation, **changes),))
        return [(finding.kind, [variable.name for variable in finding.variables]) for finding in touch_findings(changed, (X, X))]

    assert found(reads=(0,)) == [(Kind.UNDECLARED_TOUCH, ["z"])]
    assert found(writes=()) == [(Kind.UNDECLARED_TOUCH, ["add_0"])]
    assert found(work=(replace(operation.launches[0], reads=(0, 2)),)) == [(Kind.NEEDLESS_READ, ["z"])]  # 2 was never written.
    assert found(work=(replace(operation.launches[0], reads=(0, 0)),)) == [(Kind.NEEDLESS_READ, ["z"])]


def test_the_audit_can_leave_it_out():
    @ss.host_function
    def alarm(x):
        raise AssertionError

    assert audit(ss.program(one(alarm)), X, touches=False).ok
    assert not audit(ss.program(one(alarm)), X).ok
