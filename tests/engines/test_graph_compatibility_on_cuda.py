"""Whether an operator can be captured is tried, so that what it says cannot be wrong."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from tests.operator_numbers import domain_of

import streamscope as ss
from streamscope.engines.plan import Replay
from streamscope.errors import ProgramError
from streamscope.ops.operators import OPERATORS

X = np.linspace(-1, 1, 64 * 64, dtype=np.float32).reshape(64, 64)
IMAGE = np.linspace(-1, 1, 8 * 8 * 8, dtype=np.float16).reshape(1, 8, 8, 8)
WEIGHTS = np.linspace(-1, 1, 8 * 3 * 3 * 8, dtype=np.float16).reshape(8, 3, 3, 8)

WHOLE = np.arange(1, 65, dtype=np.int32).reshape(8, 8)

APPLICATIONS = {
    "matmul": (ss.ops.matmul, X, X),
    "bias_add": (ss.ops.bias_add, X, X[0]),
    "add_n": (lambda x, y: ss.ops.add_n(x, y, x), X, X),
    "convolution": (lambda x, w: ss.ops.convolution(x, w, padding=1), IMAGE, WEIGHTS),
    "convolution_backward": (lambda x, w: ss.ops.convolution_backward(x, w, x, padding=1), IMAGE, WEIGHTS),
    "to_device": (ss.ops.to_device, X),
    "to_host": (lambda x: ss.ops.to_host(ss.ops.relu(x)), X),
    "norm": (lambda x: ss.ops.norm(x, 3, 1), X),
    "astype": (lambda x: x.astype(np.float16), X),
    "max_pool": (lambda x: ss.ops.max_pool(x, 3, stride=2, padding=1), IMAGE),
    "max_pool_backward": (lambda x: ss.ops.max_pool_backward(x, ss.ops.max_pool(x, 2), ss.ops.max_pool(x, 2), 2), IMAGE),
    "avg_pool": (lambda x: ss.ops.avg_pool(x, 2), IMAGE),
    "avg_pool_backward": (lambda x: ss.ops.avg_pool_backward(x, ss.ops.avg_pool(x, 2), 2), IMAGE),
    "take": (lambda x, i: ss.ops.take(x, i, 1), X, WHOLE),
    "take_backward": (ss.ops.take_backward, X, WHOLE[0], X[0, :8].copy()),
    "embedding": (ss.ops.embedding, X, WHOLE),
    "embedding_backward": (ss.ops.embedding_backward, X, WHOLE[0], X[:8].copy()),
    "cumsum": (lambda x: (ss.ops.cumsum(x, 1), ss.ops.cumsum(x @ x)), np.tile(X, (8, 8))),
    "var": (lambda x: ss.ops.var(x, axis=1), X),
    "batch_norm": (ss.ops.batch_norm, X, X[0], X[1], X[2], X[63]),
    "batch_norm_training": (ss.ops.batch_norm_training, X, X[0], X[1]),
    "batch_norm_backward": (ss.ops.batch_norm_backward, X, X[0], X[1], X[63], X),
    "layer_norm": (ss.ops.layer_norm, X, X[0], X[1]),
    "layer_norm_backward": (ss.ops.layer_norm_backward, X, X[0], X),
    "softmax": (ss.ops.softmax, X),
    "log_softmax": (ss.ops.log_softmax, X),
    "softmax.gradient": (ss.ops.softmax.gradient, X, X),
    "log_softmax.gradient": (ss.ops.log_softmax.gradient, X, X),
    "copy": (ss.ops.copy, X),
    "concatenate": (lambda x: ss.ops.concatenate([x, x.T], axis=1), X),
    "stack": (lambda x: ss.ops.stack([x, x.T], axis=1), X),
}
VIEWS = {
    "broadcast_to": lambda x: ss.ops.broadcast_to(x, (3, 64, 64)),
    "expand_dims": lambda x: ss.ops.expand_dims(x, 1),
    "flip": ss.ops.flip,
    "moveaxis": lambda x: ss.ops.moveaxis(x, 0, 1),
    "ravel": ss.ops.ravel,
    "reshape": lambda x: ss.ops.reshape(x, (16, 256)),
    "split": lambda x: ss.ops.split(x, 4, axis=1)[2],
    "squeeze": lambda x: ss.ops.squeeze(x[:1]),
    "swapaxes": lambda x: ss.ops.swapaxes(x, 0, 1),
    "transpose": ss.ops.transpose,
}
"""They launch nothing by themselves; what reads them is captured."""
APPLICATIONS |= {name: (lambda x, view=view: ss.ops.copy(view(x)), X) for name, view in VIEWS.items()}


def values_for(operator):
    """Return inputs that an element-wise operator takes: numbers of its domain, whole ones where it takes no others."""
    low, high = domain_of(operator.__name__)
    floats = np.linspace(max(low, -4), min(high, 4), 4096, dtype=np.float32).reshape(64, 64)
    for inputs in (floats, WHOLE):
        try:
            ss.program(operator).trace(*[inputs] * len(operator.definition.operands))
        except ProgramError:
            continue
        return [inputs] * len(operator.definition.operands)
    raise AssertionError(f"{operator} takes neither")


for _operator in OPERATORS.values():
    APPLICATIONS.setdefault(_operator.__name__, (_operator, *values_for(_operator)))
for _name in ("sum", "mean", "prod", "nansum", "nanprod", "max", "min", "any", "all", "argmax", "argmin"):
    APPLICATIONS[_name] = (partial(getattr(ss.ops, _name), axis=1), X)


def test_every_operator_is_tried():
    public = set(ss.ops.__all__)
    over_several_gpus = {"all_gather", "all_reduce", "all_to_all", "broadcast", "reduce_scatter", "send", "to_gpu"}
    operators = public - {"host_function", "operator", "elementwise"} - over_several_gpus
    assert {name for name in APPLICATIONS if "." not in name} == operators


@pytest.mark.gpu
@pytest.mark.parametrize("engine", ["graph", "graph-dual"])
@pytest.mark.parametrize("name", APPLICATIONS)
def test_an_operator_that_says_so_can_be_captured(name, engine):
    function, *inputs = APPLICATIONS[name]
    traced = ss.program(function).trace(*inputs)
    assert all(operation.capturable for operation in traced.operations)
    prepared = ss.prepare(traced, engine=engine, device=ss.open_device("cuda"))
    for _ in range(3):
        prepared.load(inputs)
        prepared.run()
        prepared.wait()
    assert prepared.notes == []
    assert all(bound.graph is not None for bound in prepared.bound if isinstance(bound.step, Replay))
    plain = ss.prepare(traced, engine="async", device=ss.open_device("cuda"))
    plain.load(inputs)
    plain.run()
    for one, other in zip(prepared.outputs(), plain.outputs(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_host_function_says_that_it_cannot():
    @ss.host_function
    def same(values):
        return values

    @ss.program
    def copied(x):
        return same(x)

    traced = copied.trace(X)
    assert not traced.operations[0].capturable
