"""Functions drawn at random: of any of our operators, over dtypes, broadcast shapes, views and arrays without axes."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import streamscope as ss
from streamscope.errors import ProgramError
from streamscope.ops.operators import OPERATORS
from streamscope.program.variable import SUPPORTED_DTYPES

SHAPES = [(), (), (1,), (3,), (16,), (2, 3), (4, 1), (2, 3, 4), (1, 1), (0, 3)]
NUMBERS = [0, 1, 2, -1, 0.5, 1e3, True]
REDUCTIONS = ["sum", "mean", "prod", "max", "min", "any", "all", "argmax", "argmin", "nansum", "nanprod", "norm", "var", "cumsum"]
OTHERS: list[Callable[..., Any]] = [
    lambda x, y: x.astype("float32"), lambda x, y: x.astype("int32"), lambda x, y: np.concatenate([x, y]), lambda x, y: np.stack([x, y]),
    lambda x, y: x @ y, lambda x, y: x @ y.T, lambda x, y: ss.ops.softmax(x), lambda x, y: ss.ops.log_softmax(x),
    lambda x, y: ss.ops.add_n(x, y, x), lambda x, y: ss.ops.copy(x), lambda x, y: x.T, lambda x, y: x[..., None], lambda x, y: x[0],
    lambda x, y: x[::-1], lambda x, y: np.ravel(x), np.take, lambda x, y: x[y], lambda x, y: ss.ops.where(x, y, y + y),
    lambda x, y: ss.ops.multiply.gradient(y, x, y)[0], lambda x, y: ss.ops.to_device(ss.ops.to_host(x)), lambda x, y: np.squeeze(x),
]  # fmt: skip


@dataclass(frozen=True)
class Drawn:
    """A function over variables, with inputs that it takes."""

    function: Callable[..., Any]
    inputs: tuple[np.ndarray, ...]


def drawn_function(seed: int, *, steps: int = 8) -> Drawn:
    """Draw a function of so many steps; steps that an operator refuses are left out when it is called."""
    chance, values = random.Random(seed), np.random.default_rng(seed)
    inputs = tuple(_array(values, chance.choice(SHAPES), chance.choice(SUPPORTED_DTYPES)) for _ in range(3))
    drawn = [_step(chance) for _ in range(steps)]

    def function(*variables: Any) -> tuple[Any, ...]:
        found = list(variables)
        for apply, places in drawn:
            try:
                found.append(apply(*(found[place % len(found)] for place in places)))
            except ProgramError:
                continue
        return tuple(found[len(variables) :]) or (ss.ops.copy(variables[0]),)

    return Drawn(function, inputs)


def _array(values: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    if np.dtype(dtype).kind == "f":
        return np.asarray(values.standard_normal(shape) * 3).astype(dtype)
    return np.asarray(values.integers(0, 2 if dtype == "bool" else 9, shape)).astype(dtype)


def _step(chance: random.Random) -> tuple[Callable[..., Any], list[int]]:
    places = [chance.randrange(100) for _ in range(3)]
    kind = chance.random()
    if kind < 0.25:
        name, axis, keepdims = chance.choice(REDUCTIONS), chance.choice([None, None, 0, -1]), chance.choice([{}, {"keepdims": True}])
        return (lambda x: getattr(ss.ops, name)(x, axis=axis, **(keepdims if name != "cumsum" else {}))), places[:1]
    if kind < 0.45:
        other = chance.choice(OTHERS)
        return other, places[:2]
    operator, number = chance.choice(list(OPERATORS.values())), chance.choice(NUMBERS)
    count = len(operator.definition.operands)
    if count > 1 and chance.random() < 0.3:
        return (lambda *variables: operator(*variables, number)), places[: count - 1]
    return operator, places[:count]
