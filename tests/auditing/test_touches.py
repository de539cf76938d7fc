"""What operators touch besides what they declare, each kind with an operator that does it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.engines.test_engines import SMALL

import streamscope as ss
from streamscope.auditing.audit import audit
from streamscope.auditing.findings import Kind, Severity
from streamscope.auditing.touches import touch_findings
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
        return operator(lambda x: (x, x))(ss.ops.relu(broken))

    assert [finding.kind for finding in findings(step, X)] == [Kind.WRONG_RESULT, Kind.WRONG_RESULT]


def test_one_variable_read_twice_and_arrays_without_elements():
    assert findings(lambda x: ss.ops.add(x, x), X) == []
    assert findings(one(ss.ops.relu), X[:0]) == []


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
