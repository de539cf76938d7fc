"""NumPy's functions whose arguments are not those of the operator that means the same; each takes what NumPy's takes and a program can."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from streamscope.errors import ProgramError
from streamscope.ops.application import require
from streamscope.ops.binary import maximum, minimum
from streamscope.ops.joining import concatenate, stack
from streamscope.ops.selection import clip, where
from streamscope.program.symbol import Symbol
from streamscope.program.user_line import user_line


def _where(condition: object, x: object = None, y: object = None, /) -> Symbol:
    if x is None or y is None:
        raise ProgramError(
            f"np.where of a condition alone at {user_line()} has a result whose size depends on values",
            hint="give both choices: np.where(condition, x, y)",
        )
    return where(condition, x, y)


def _clip(
    a: object,
    a_min: object = None,
    a_max: object = None,
    out: object = None,
    *,
    min: object = None,  # noqa: A002 — NumPy's name
    max: object = None,  # noqa: A002 — NumPy's name
) -> Symbol:
    low, high = (a_min if min is None else min), (a_max if max is None else max)
    if low is None and high is None:
        raise ProgramError(f"np.clip at {user_line()} has no limit", hint="give one: np.clip(x, 0, 1)")
    if low is None:
        return minimum(a, high, out=out)
    return maximum(a, low, out=out) if high is None else clip(a, low, high, out=out)


def _joining(operator: Callable[..., Symbol]) -> Callable[..., Symbol]:
    def call(arrays: object, /, axis: int | None = 0, out: object = None, *, casting: str = "same_kind") -> Symbol:
        require(casting == "same_kind", operator.__name__, f"casting={casting!r} is not an option here", "leave casting out")
        return operator(arrays, axis, out=out)

    return call


ADAPTED: Mapping[Any, Callable[..., Any]] = {
    np.where: _where,
    np.clip: _clip,
    np.concatenate: _joining(concatenate),
    np.stack: _joining(stack),
}
"""What is called for each, with the arguments that NumPy's function got."""
