"""Whether an operator can be captured is tried, so that what it says cannot be wrong."""

from __future__ import annotations

import numpy as np
import pytest

import streamscope as ss
from streamscope.engines.plan import Replay
from streamscope.program.reference import run_reference

pytestmark = pytest.mark.gpu

X = np.linspace(-1, 1, 64 * 64, dtype=np.float32).reshape(64, 64)
IMAGE = np.linspace(-1, 1, 8 * 8 * 8, dtype=np.float16).reshape(1, 8, 8, 8)
WEIGHTS = np.linspace(-1, 1, 8 * 3 * 3 * 8, dtype=np.float16).reshape(8, 3, 3, 8)

APPLICATIONS = {
    "add": (lambda x: ss.add(x, x), X),
    "multiply": (lambda x: ss.multiply(x, x), X),
    "relu": (ss.relu, X),
    "bias_add": (ss.bias_add, X, X[0]),
    "matmul": (ss.matmul, X, X),
    "softmax": (ss.softmax, X),
    "convolution": (lambda x, w: ss.convolution(x, w, padding=1), IMAGE, WEIGHTS),
    "convolution_backward": (lambda x, w: ss.convolution_backward(x, w, x, padding=1), IMAGE, WEIGHTS),
    "to_device": (ss.to_device, X),
    "to_host": (lambda x: ss.to_host(ss.relu(x)), X),
}


def test_every_operator_is_tried():
    from streamscope import _HOME

    operators = {name for name, home in _HOME.items() if home.startswith("ops.")} - {"host_function", "operator"}
    assert set(APPLICATIONS) == operators


@pytest.mark.parametrize("engine", ["graph", "graph-dual"])
@pytest.mark.parametrize("name", APPLICATIONS)
def test_an_operator_that_says_so_can_be_captured(name, engine):
    function, *inputs = APPLICATIONS[name]
    traced = ss.program(function).trace(*inputs)
    assert all(operation.capturable for operation in traced.operations)
    prepared = ss.prepare(traced, engine, ss.open_device("cuda"))
    for _ in range(3):
        prepared.load(inputs)
        prepared.run()
        prepared.wait()
    assert prepared.notes == []
    assert all(bound.graph is not None for bound in prepared.bound if isinstance(bound.step, Replay))
    for one, other in zip(prepared.outputs(), run_reference(traced, inputs), strict=True):
        np.testing.assert_allclose(one.astype(np.float32), other.astype(np.float32), rtol=2e-2, atol=2e-2 * np.abs(other).max())


def test_a_host_function_says_that_it_cannot():
    @ss.host_function
    def same(values):
        return values

    @ss.program
    def copied(x):
        return same(x)

    traced = copied.trace(X)
    assert not traced.operations[0].capturable
