"""Attention, an LSTM's step and a residual block, written as users write them: against NumPy, by differences, under every engine."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import scipy.special
from tests.ops.conftest import evaluate, slopes  # noqa: F401 — fixtures

import streamscope as ss
from streamscope.engine_entry import ENGINES
from streamscope.workloads import models

RANDOM = np.random.default_rng(11)


def drawn(*shapes):
    return [RANDOM.standard_normal(shape) * 0.5 for shape in shapes]


HEADS = 2
ATTENTION = drawn((2, 3, 4), *[(4, 4)] * 4)
LSTM = drawn((2, 3), (2, 4), (2, 4), (3, 16), (4, 16), (16,))
BLOCK = drawn((2, 4, 3, 4), (2, 1, 1, 4), (2, 3, 3, 2), (4, 1, 1, 2), (4,), (4,), (2,), (2,), (2,), (2,))


def numpy_attention(x, wq, wk, wv, wo):
    """Head by head, row by row."""
    batch, length, width = x.shape
    depth = width // HEADS
    joined = np.empty_like(x)
    for image in range(batch):
        for head in range(HEADS):
            part = slice(head * depth, (head + 1) * depth)
            q, k, v = ((x[image] @ w)[:, part] for w in (wq, wk, wv))
            for row in range(length):
                scores = np.array([q[row] @ k[other] for other in range(length)]) / depth**0.5
                joined[image, row, part] = scipy.special.softmax(scores) @ v
    return joined @ wo


def numpy_lstm(x, h, c, w, u, b):
    width = h.shape[1]
    gates = x @ w + h @ u + b
    i, f, g, o = (gates[:, n * width : (n + 1) * width] for n in range(4))
    c = scipy.special.expit(f) * c + scipy.special.expit(i) * np.tanh(g)
    return scipy.special.expit(o) * np.tanh(c), c


def numpy_convolution(x, w):
    """Pixel by pixel, with as much padding as keeps the size."""
    edge = w.shape[1] // 2
    padded = np.pad(x, ((0, 0), (edge, edge), (edge, edge), (0, 0)))
    y = np.zeros((*x.shape[:3], w.shape[0]))
    for p, q in np.ndindex(x.shape[1:3]):
        y[:, p, q] = np.einsum("nrsc,krsc->nk", padded[:, p : p + w.shape[1], q : q + w.shape[2]], w)
    return y


def numpy_block(x, w1, w2, w3, *affine):
    h = x
    for number, w in enumerate((w1, w2, w3)):
        normal = (h - h.mean((0, 1, 2))) / np.sqrt(h.var((0, 1, 2)) + 1e-5) * affine[2 * number] + affine[2 * number + 1]
        h = numpy_convolution(np.maximum(normal, 0), w)
    return x + h


MODELS = {
    "attention": (partial(models.attention, heads=HEADS), numpy_attention, ATTENTION, drawn((2, 3, 4))),
    "lstm": (models.lstm_cell, numpy_lstm, LSTM, drawn((2, 4), (2, 4))),
    "block": (models.residual_block, numpy_block, BLOCK, drawn((2, 4, 3, 4))),
}


def as_list(results):
    return list(results) if isinstance(results, tuple | list) else [results]


def both(forward, *arrays):
    """Results and gradients of a model, whose last arguments are the gradients of its results."""
    count = 2 if forward is models.lstm_cell else 1
    results, pullback = ss.vjp(forward, *arrays[:-count])
    return *as_list(results), *pullback(arrays[-count:] if count > 1 else arrays[-1])


@pytest.mark.parametrize("name", MODELS)
def test_the_result_is_numpys(evaluate, name):  # noqa: F811
    forward, reference, inputs, _ = MODELS[name]
    for found, expected in zip(as_list(evaluate(forward, *inputs)), as_list(reference(*inputs)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_slopes(evaluate, slopes, name):  # noqa: F811
    forward, _, inputs, upstream = MODELS[name]
    found = evaluate(partial(both, forward), *inputs, *upstream)[len(upstream) :]

    def scalar(*variables):
        results, gradients = variables[: len(inputs)], variables[len(inputs) :]
        total = [ss.ops.sum(result * dy) for result, dy in zip(as_list(forward(*results)), gradients, strict=True)]
        return total[0] if len(total) == 1 else total[0] + total[1]

    expected = slopes(scalar, np.float64(1), *inputs, *upstream)[: len(inputs)]
    assert len(found) == len(expected)
    for number, (gradient, right) in enumerate(zip(found, expected, strict=True)):
        np.testing.assert_allclose(gradient, right, rtol=1e-5, atol=1e-7, err_msg=f"of argument {number}")


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("name", MODELS)
def test_every_engine_computes_the_same(name, dtype):
    forward, _, inputs, upstream = MODELS[name]
    arrays = [array.astype(dtype) for array in (*inputs, *upstream)]
    runs = ss.compare(partial(both, forward), *arrays, device="simulated", repeats=2, progress=False)
    assert list(runs) == list(ENGINES)
    assert all(run.correct for run in runs.values())
