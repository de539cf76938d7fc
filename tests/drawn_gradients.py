"""Programs drawn at random over all operators with a gradient: broadcast shapes, views, fan-out, writes in place; for PyTorch, too."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tests.operator_numbers import DOMAIN

import streamscope as ss
from streamscope.errors import ProgramError
from streamscope.ops.operators import OPERATORS
from streamscope.program.reference import run_reference

SHAPES = [(), (1,), (3,), (4,), (2, 3), (3, 4), (4, 1), (1, 4), (2, 3, 4), *[(1, 4, 4, 2), (2, 4, 4, 1)] * 2]
MOST = 200
"""Elements of a variable."""
UNARY = [name for name, each in OPERATORS.items() if each.definition.gradient and len(each.definition.operands) == 1]
BINARY = [name for name, each in OPERATORS.items() if each.definition.gradient and len(each.definition.operands) == 2 and name != "ldexp"]
NARROW = {
    **dict.fromkeys(("mod", "fmod", "reciprocal", "divide", "smooth_l1"), (0.4, 3)), "gamma": (0.5, 4), "gammaln": (2.5, 20),
    "digamma": (2, 20), "power": (0.3, 3), "arccosh": (1.1, 20), "log1p": (-0.8, 20),
}  # fmt: skip
"""Between which numbers operands lie, where others make results that grow, or slopes that are not there."""

Step = Callable[[Any, Any, Any], Any]
"""``step(operators, x, y) -> variable``"""


def _within(o: Any, x: Any, low: float, high: float) -> Any:
    return o.sigmoid(x) * (high - low) + low


def _distinct(o: Any, x: Any) -> Any:
    """Return elements of which no two are the same: where several are the largest, a maximum has no slope."""
    return o.tanh(x) * o.weights[: math.prod(x.shape)].reshape(x.shape)


def _unary(name: str) -> Step:
    low, high = NARROW.get(name, DOMAIN.get(name, (-2.0, 2.0)))
    return lambda o, x, y: getattr(o, name)(_within(o, x, max(low, -20), min(high, 20)))


def _binary(name: str) -> Step:
    low, high = NARROW.get(name, (-2.0, 2.0))
    return lambda o, x, y: getattr(o, name)(_within(o, x, low, high), _within(o, y, low + 0.01, high + 0.7))


def _updated(o: Any, x: Any, y: Any) -> Any:
    z = x[None] * 2.0
    z += y
    return z


def _partly(o: Any, x: Any, y: Any) -> Any:
    z = x * 2.0
    z[1:] += y[:1]
    return z


def _scaled(o: Any, x: Any, y: Any) -> Any:
    z = x * 2.0
    z *= 0.5
    z[:1] *= 3.0
    return z


def _halves(o: Any, x: Any, y: Any) -> Any:
    first, second = o.split(x, 2, x.ndim - 1)
    return o.tanh(first) * second


STEPS: list[Step] = [
    *map(_unary, UNARY),
    *[_binary(name) for name in BINARY for _ in range(2)],
    *[lambda o, x, y, name=name: getattr(o, name)(_distinct(o, x)) for name in ("sum", "mean", "prod", "max", "min", "norm", "var")],
    *[lambda o, x, y, name=name: getattr(o, name)(_distinct(o, x), 0) for name in ("sum", "mean", "prod", "max", "min", "var")],
    *[lambda o, x, y, name=name: getattr(o, name)(_distinct(o, x), -1, keepdims=True) for name in ("sum", "mean", "prod", "max", "var")],
    lambda o, x, y: o.norm(x, 3, 0), lambda o, x, y: o.norm(x, 1, -1), lambda o, x, y: o.nansum(x, 0), lambda o, x, y: o.nanprod(x, 0),
    lambda o, x, y: o.mean(x, (0, 2)), lambda o, x, y: o.var(x, -1, ddof=1),
    lambda o, x, y: o.softmax(x), lambda o, x, y: o.softmax(x, 0), lambda o, x, y: o.log_softmax(x), lambda o, x, y: o.log_softmax(x, 0),
    lambda o, x, y: o.cumsum(x, 0), lambda o, x, y: o.cumsum(x, -1, reverse=True), lambda o, x, y: o.cumsum(x),
    *[lambda o, x, y: x @ y, lambda o, x, y: x @ o.transpose(y), lambda o, x, y: o.transpose(x) @ y] * 3,
    *[lambda o, x, y: x @ y.mT, lambda o, x, y: x.mT @ y] * 3,
    *[lambda o, x, y: o.transpose(x), lambda o, x, y: x[0], lambda o, x, y: x[1:]] * 2,
    *[lambda o, x, y: x[..., 0], lambda o, x, y: x[..., None]] * 2,
    lambda o, x, y: x.reshape(-1), lambda o, x, y: o.transpose(x).reshape(-1), lambda o, x, y: o.flip(x, 0), lambda o, x, y: x[..., :2],
    lambda o, x, y: o.broadcast_to(x, (2, *x.shape)), lambda o, x, y: o.moveaxis(x, 0, -1), lambda o, x, y: o.squeeze(x),
    lambda o, x, y: o.copy(o.transpose(x)), lambda o, x, y: x.swapaxes(0, -1), lambda o, x, y: o.expand_dims(x, 0),
    _halves, _halves, _updated, _updated, _partly, _partly, _scaled,
    lambda o, x, y: o.concatenate([x, y, x]), lambda o, x, y: o.concatenate([x, y], x.ndim - 1), lambda o, x, y: o.stack([x, y, x], 1),
    lambda o, x, y: o.where(x > y, x, y * 2), lambda o, x, y: o.clip(x, -0.5, 0.5), lambda o, x, y: o.add_n(x, y, x, 2 * y),
    lambda o, x, y: o.smooth_l1(x, 1.5), lambda o, x, y: o.bias_add(x, y), lambda o, x, y: x * x, lambda o, x, y: 1 / (2 + o.tanh(x)),
    lambda o, x, y: o.take(x, o.indices, 0), lambda o, x, y: o.take(x, o.indices), lambda o, x, y: o.embedding(x, o.indices),
    lambda o, x, y: o.take(x, o.indices, x.ndim - 1),
    lambda o, x, y: o.layer_norm(x), lambda o, x, y: o.layer_norm(x, y), lambda o, x, y: o.layer_norm(x, y, o.sin(y)),
    lambda o, x, y: o.ldexp(x[..., None], o.indices),
    *[lambda o, x, y: o.batch_norm_training(x, y, o.sin(y))[0], lambda o, x, y: o.batch_norm_training(x, x[0, 0, 0], y)[0]] * 3,
    *[lambda o, x, y: o.batch_norm(x, y, o.sin(y), o.cos(y), _within(o, y, 0.5, 2)), lambda o, x, y: o.bias_add(x, y)] * 4,
    *[lambda o, x, y: o.max_pool(_distinct(o, x), 2), lambda o, x, y: o.max_pool(_distinct(o, x), 3, stride=1, padding=1)] * 2,
    *[lambda o, x, y: o.avg_pool(x, 2)] * 2,
    lambda o, x, y: o.avg_pool(x, 3, stride=2, padding=1),
    *[lambda o, x, y: o.convolution(x, y, padding=1), lambda o, x, y: o.convolution(x, x[:, :2, :3])] * 3,
    *[lambda o, x, y: o.convolution(x, y)] * 3,
    lambda o, x, y: o.convolution(x, y[:, :2, :2], stride=2, padding=1),
]  # fmt: skip


class Ours:
    """Our operators, and inputs of other kinds."""

    def __init__(self, indices: Any, weights: Any) -> None:
        self.indices, self.weights = indices, weights

    def __getattr__(self, name: str) -> Any:
        return getattr(ss.ops, name)


@dataclass(frozen=True)
class Drawn:
    """A function of `INDICES` and of inputs, the first of which are weights."""

    steps: Sequence[tuple[Step, int, int]]
    inputs: tuple[np.ndarray, ...]
    upstream: tuple[np.ndarray, ...]
    """Gradients of its results."""

    def apply(self, operators: Any, variables: Sequence[Any]) -> tuple[Any, ...]:
        """Apply the steps with some operators to variables."""
        found = list(variables)
        for step, one, other in self.steps:
            found.append(step(operators, found[one], found[other]))
        return tuple(found[len(variables) :][-3:])

    def ours(self, indices: Any, weights: Any, *variables: Any) -> tuple[Any, ...]:
        """Apply the steps to variables of a program."""
        return self.apply(Ours(indices, weights), variables)

    def gradients(self, indices: Any, *given: Any) -> tuple[Any, ...]:
        """Return the results and the gradients of the inputs, inside a program; behind the inputs come gradients of the results."""
        count = len(self.inputs)
        results, pullback = ss.vjp(lambda *variables: self.ours(indices, *variables), *given[:count])
        return (*results, *pullback(given[count:]))


INDICES = np.array([0, -1, 0, -1], "int32")


def drawn_gradients(seed: int, *, steps: int = 7) -> Drawn:
    """Draw a function of so many steps, as far as operators take their operands."""
    chance, values = random.Random(seed), np.random.default_rng(seed)
    shape = chance.choice(SHAPES)
    shapes = [shape, shape[-1:], chance.choice([shape, chance.choice(SHAPES)])]
    inputs = (values.uniform(0.5, 1.5, MOST), *(np.asarray(values.standard_normal(each)) for each in shapes))
    taken: list[tuple[Step, int, int]] = []
    specs: list[Any] = []

    def trial(indices: Any, weights: Any, *variables: Any) -> Any:
        found = list(variables)
        while len(taken) < steps:
            step = chance.choice(STEPS)
            # The latest variables more often, so that programs are deep.
            one, other = (len(found) - 1 - min(int(chance.expovariate(0.5)), len(found) - 1) for _ in range(2))
            try:
                made = step(Ours(indices, weights), found[one], found[other])
            except (ProgramError, TypeError, IndexError):
                continue
            if 0 < made.size <= MOST:
                found.append(made)
                taken.append((step, one, other))
        specs.extend(each.spec for each in found[len(variables) :][-3:])
        return found[-1]

    ss.program(trial).trace(INDICES, *inputs)
    upstream = tuple(np.asarray(values.standard_normal(spec.shape)) for spec in specs)
    return Drawn(tuple(taken), inputs, upstream)


def error_of(drawn: Drawn, gradients: Sequence[np.ndarray], seed: int) -> float | None:
    """Return how far gradients are from the slope along a random direction, 1 being as far as differences may be off.

    None: the function has no slope there, or one that changes within the steps.
    """
    program, values = ss.program(drawn.ours).trace(INDICES, *drawn.inputs), np.random.default_rng(seed)
    direction = [values.standard_normal(each.shape) for each in drawn.inputs]

    def slope(step: float) -> float:
        ends = [
            run_reference(program, [INDICES, *(x + sign * step * along for x, along in zip(drawn.inputs, direction, strict=True))])
            for sign in (1, -1)
        ]
        ahead, behind = (sum(np.sum(dy * y) for dy, y in zip(drawn.upstream, end, strict=True)) for end in ends)
        return float(ahead - behind) / (2 * step)

    with np.errstate(all="ignore"):
        wide, narrow = slope(1e-4), slope(5e-5)
    products = [gradient * along for gradient, along in zip(gradients, direction, strict=True)]
    scale = sum(float(np.abs(each).sum()) for each in products) + 1e-3
    if not abs(narrow - wide) < 1e-3 * scale:
        return None
    # The error of a difference goes with the square of its step, so that both steps together have less.
    off = sum(float(each.sum()) for each in products) - (4 * narrow - wide) / 3
    return abs(off) / (1e-6 * scale + abs(narrow - wide))
