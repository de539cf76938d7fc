"""What is data can be pickled, and what is not says why."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from tests.engines.test_engines import SMALL

import streamscope as ss
from streamscope.capturing.function import CapturedFunction
from streamscope.capturing.memory import MemoryHeld
from streamscope.errors import ProgramError
from streamscope.workloads import WORKLOADS

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@ss.program(fuse=True)
def decorated(x):
    return ss.ops.relu(x) * 2


def plain(x):
    return ss.ops.relu(x) + 1


of_a_function = ss.program(plain, fuse=True)
of_a_program = ss.program(decorated)


class Model:
    @staticmethod
    @ss.program
    def inner(x):
        return -x


def again(value):
    return pickle.loads(pickle.dumps(value))


@pytest.mark.parametrize("program", [decorated, Model.inner])
def test_a_program_that_can_be_imported_comes_back_as_itself(program):
    assert again(program) is program


@pytest.mark.parametrize("program", [of_a_function, of_a_program])
def test_a_program_of_what_can_be_imported_comes_back_as_one_like_it(program):
    other = again(program)
    assert (other.function, other.fuse) == (program.function, program.fuse)
    assert str(other.trace(X)) == str(program.trace(X))


def test_a_program_that_cannot_be_imported_says_why():
    @ss.program
    def local(x):
        return x + 1

    with pytest.raises(ProgramError, match=r"program 'local' cannot be pickled: .*<locals>.local.* \(define it at the top of a module"):
        again(local)
    with pytest.raises(ProgramError, match="program '<lambda>' cannot be pickled"):
        again(ss.program(lambda x: x + 1))
    captured = CapturedFunction("captured", decorated.trace(X), [], [], [], MemoryHeld(0, ()), None, len, (), [], [], None, None)
    with pytest.raises(ProgramError, match=r"captured 'captured' cannot be pickled.*capture it in each process"):
        again(captured)


def test_a_choice_leaves_its_preparation_behind():
    choice = ss.best(decorated, X, device="simulated")
    assert choice.prepared is not None
    other = again(choice)
    assert (other, str(other), other.prepared) == (choice, str(choice), None)


@pytest.mark.parametrize("engine", ["async", "graph-dual"])
@pytest.mark.parametrize("workload", WORKLOADS)
def test_an_audit_shows_the_same_again(workload, engine):
    function, inputs = WORKLOADS[workload].build(**SMALL[workload])
    audit = ss.audit(function, *inputs, engine=engine, touches=False)
    other = again(audit)
    assert str(other) == str(audit)
    assert other._repr_html_() == audit._repr_html_()
    assert str(other.plan.program) == str(audit.plan.program)
    assert list(map(type, other.plan.steps)) == list(map(type, audit.plan.steps))


def test_findings_come_with_their_operations_and_variables():
    audit = ss.audit(ss.program(ss.operator(lambda x, y: None, reads=["x"], writes=["y"], reference=lambda x: x[0])), X)
    other = again(audit)
    assert [finding.message for finding in other.findings] == [finding.message for finding in audit.findings]
    assert [operation.id for operation in other.findings[0].operations] == [0]
    assert other.findings[0].variables == audit.findings[0].variables != ()


def test_a_traced_program_is_data_that_says_why_it_does_not_run():
    traced = decorated.trace(X)
    other = again(traced)
    assert str(other) == str(traced)
    prepared = ss.prepare(other, engine="async", device="simulated")
    prepared.load([X])
    prepared.run()
    with pytest.raises(ss.StreamscopeError, match=r"the functions of .* were dropped when its program was pickled"):
        prepared.wait()
    assert copy.deepcopy(traced).operations[0].work == traced.operations[0].work
