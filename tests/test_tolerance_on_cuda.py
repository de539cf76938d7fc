"""What the tolerance allows, against what a real GPU computes: right kernels are within it."""

from __future__ import annotations

import sys
from functools import reduce

import numpy as np
import pytest
from tests.operator_numbers import domain_of

import streamscope as ss
from streamscope.measuring.case import Case
from streamscope.ops.operators import OPERATORS
from streamscope.ops.reductions import norm_of_order
from streamscope.tolerance import absolute_errors
from streamscope.workloads import ON_ONE_GPU, WORKLOADS

pytestmark = pytest.mark.gpu

FLOATS = ["float16", "float32", "float64"]
SIZE = 10_007
SHAPES = [((1000, 33), 1), ((20_000, 33), 0), ((3, 100_000), 1), ((200_000, 3), 0), ((300, 64, 49), (0, 2)), ((123_457,), None)]
REDUCTIONS = (ss.ops.sum, ss.ops.mean, ss.ops.prod, ss.ops.nansum, ss.ops.max, *(norm_of_order(order) for order in (1.0, 2.0, 3.0)))


@pytest.fixture(scope="module")
def device():
    return ss.open_device("cuda")


def assert_allowed(device, titles, function, inputs):
    case = Case.of(ss.program(function), inputs, "compare").with_reference()
    checked = case.prepare("async", device, 1)
    outputs = checked.prepared.outputs()
    with np.errstate(all="ignore"):
        off = {
            title: float(np.max(np.nan_to_num(absolute_errors(got, right) / limit), initial=0.0))
            for title, got, right, limit in zip(titles, outputs, case.expected, case.allowed, strict=True)
        }
    closest = sorted(off, key=off.get)[-5:]
    sys.stdout.write(f"\nshare of what is allowed: {', '.join(f'{title} {off[title]:.2g}' for title in closest)}\n")
    assert [title for title, share in off.items() if share > 1] == []
    assert checked.correct


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("spread", [1, 5])
def test_operators_and_their_gradients(device, dtype, spread):
    random = np.random.default_rng(0)
    chosen = {
        name: one
        for name, one in OPERATORS.items()
        if name not in ("ldexp", "gcd", "lcm") and not name.startswith(("bitwise", "left", "right"))
    }
    inputs, titles = [np.asarray(random.standard_normal(SIZE), dtype)], []
    for name, one in chosen.items():
        low, high = domain_of(one.__name__)
        low, high = (low * spread if low < -1 else low), (high * spread if high > 4 and name != "gamma" else high)
        inputs += [np.asarray(random.uniform(low, high, SIZE), dtype) for _ in one.definition.operands]

    def all_of_them(dy, *rest):
        given, results, named = iter(rest), [], []
        for name, one in chosen.items():
            operands = [next(given) for _ in one.definition.operands]
            results.append(one(*operands))
            named.append(name)
            if one.definition.gradient is not None:
                found = one.gradient(dy, *operands)
                for index, gradient in enumerate(found if isinstance(found, tuple) else (found,)):
                    if gradient is not None:
                        results.append(gradient)
                        named.append(f"{name}.gradient {index}")
        titles[:] = named  # The function is also called with NumPy arrays, which ends at the first operator.
        return tuple(results)

    ss.program(all_of_them).trace(*inputs)
    assert_allowed(device, titles, all_of_them, inputs)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kind", ["zero mean", "positive", "the same"])
def test_reductions(device, dtype, kind):
    random = np.random.default_rng(1)
    draw = {"zero mean": random.standard_normal, "positive": random.random, "the same": lambda shape: np.full(shape, 0.1)}[kind]
    for shape, axis in SHAPES:
        x = np.asarray(draw(shape), dtype)
        near_one = np.asarray(1 + draw(shape) / 1000, dtype)

        def all_of_them(x, near_one, axis=axis):
            return tuple(each(near_one if each is ss.ops.prod else x, axis) for each in REDUCTIONS)

        assert_allowed(device, [f"{each} {shape} {axis}" for each in REDUCTIONS], all_of_them, (x, near_one))


@pytest.mark.parametrize("dtype", FLOATS)
def test_softmax_and_sums_of_gradients(device, dtype):
    random = np.random.default_rng(2)
    for shape, axis in (((300, 64), 1), ((3, 100_001), 1), ((50_000, 7), 0)):
        x, dy = (np.asarray(random.standard_normal(shape) * 4, dtype) for _ in range(2))
        bias = np.asarray(random.standard_normal(shape[-1:]), dtype)

        def all_of_them(x, dy, ones, bias, axis=axis):
            y, z = ss.ops.softmax(x, axis), ss.ops.log_softmax(x, axis)
            gradients = (
                ss.ops.softmax.gradient(dy, y, axis),
                ss.ops.log_softmax.gradient(dy, z, axis),
                ss.ops.softmax.gradient(ones, y, axis),
            )
            return y, z, *gradients, *ss.ops.add.gradient(dy, x, bias)[1:], *ss.ops.multiply.gradient(dy, x, bias)[1:]

        titles = ["softmax", "log_softmax", "gradient", "log gradient", "gradient of ones", "bias", "scale"]
        assert_allowed(device, [f"{title} {shape}" for title in titles], all_of_them, (x, dy, np.ones_like(x), bias))


def normalised(x):
    centred = x - ss.ops.mean(x, axis=1, keepdims=True)
    return centred / ss.ops.sqrt(ss.ops.mean(centred * centred, axis=1, keepdims=True) + 1e-3)


PROGRAMS = {
    "normalised": normalised,
    "sum of what is centred": lambda x: ss.ops.sum(x - ss.ops.mean(x)),
    "log of a sum of exponentials": lambda x: ss.ops.log(ss.ops.sum(ss.ops.exp(x - ss.ops.max(x, axis=1, keepdims=True)), axis=1)),
    "lost digits": lambda x: (ss.ops.exp(x / 256) + 1000) - 1000,
    "gelu": lambda x: x * 0.5 * (1 + ss.ops.erf(x * 0.7071)),
    "powers": lambda x: ss.ops.exp(ss.ops.log(ss.ops.abs(x) + 1) * 8),
    "a chain": lambda x: reduce(lambda y, _: ss.ops.tanh(y * 1.5), range(40), x),
    "chaos": lambda x: reduce(lambda y, _: (1 - y) * y * 3.9, range(30), ss.ops.sigmoid(x)),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("mean", [0, 100])
@pytest.mark.parametrize("fuse", [False, True])
def test_programs(device, dtype, mean, fuse):
    x = np.asarray(np.random.default_rng(3).standard_normal((512, 300)) + mean, dtype)

    def all_of_them(x):
        return tuple(each(x) for each in PROGRAMS.values())

    assert_allowed(device, PROGRAMS, ss.program(all_of_them, fuse=fuse), (x,))


@pytest.mark.parametrize("name", [each.name for each in ON_ONE_GPU])
def test_workloads(device, name):
    function, inputs = WORKLOADS[name].build()
    runs = ss.compare(function, *inputs, device=device, repeats=1, progress=False)
    assert all(run.correct for run in runs.values())
