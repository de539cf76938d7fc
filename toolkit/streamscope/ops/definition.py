"""Definition of an element-wise operator, as data: kernel, reference and documentation are made from it, with ``examples.txt``."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

Reference = Callable[..., Any]


@dataclass(frozen=True)
class Definition:
    """An element-wise operator."""

    name: str
    summary: str
    """One sentence, for its documentation."""
    operands: tuple[str, ...]
    """Names of the operands in expressions."""
    expression: str
    """CUDA expression of the result: over the operands, and ``T``, the type of arithmetic; half is float in it."""
    like: np.ufunc
    """Whose dtypes it has."""
    reference: Reference | None
    """NumPy or SciPy function of arrays that means the same; None: the expression is evaluated in NumPy."""
    whole: str | None = None
    truth: str | None = None
    half: str | None = None
    """The expression for whole numbers, for bools, and for half, where it is another one: a cheaper one that has all of half's digits."""
    unlike: str | None = None
    """The expression for two whole numbers, one of which has no sign, where C++ has another meaning than NumPy."""
    gradient: tuple[str | None, ...] | None = None
    """For each operand, the CUDA expression of its gradient, over the operands, the result ``y`` and the result's gradient ``dy``; None
    where that operand has none. None for an operator without gradients."""
    choosing: tuple[str, ...] = ()
    """Operands that only choose among the others: their gradient is zero."""
    result: str = "y"
    """Name of the result in gradients."""
    flops: int = 1
    """Arithmetic operations an element, about."""
    unknown: str = ""
    """Part of the expression that NumPy does not know: without a reference, the operator runs on CUDA only."""
    vouched: bool = False
    """The reference is the user's word, not the same expression in NumPy."""
    keep_whole: bool = False
    """Operands that are whole numbers stay whole beside floating-point ones."""
    example: str = ""
    """The *Examples* section of its documentation."""

    def expression_for(self, taken: Sequence[np.dtype[Any]], dtype: np.dtype[Any]) -> str:
        """Return the expression for operands that are taken in some dtypes, and computed in one."""
        if self.unlike is not None and {each.kind for each in taken} == {"i", "u"}:
            return self.unlike
        if dtype.kind == "b" and self.truth is not None:
            return self.truth
        if dtype == np.float16 and self.half is not None:
            return self.half
        return self.whole if dtype.kind in "iub" and self.whole is not None else self.expression


def call_signature(definition: Definition) -> inspect.Signature:
    """Return how the operator is called; a program that is an operator takes the names of its arguments from it."""
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value) for name, value in (("out", None), ("request", "write"))
    ]
    taken = {option.name for option in options}
    operands = [inspect.Parameter(name + "_" * (name in taken), inspect.Parameter.POSITIONAL_ONLY) for name in definition.operands]
    return inspect.Signature([*operands, *options])


def documentation(summary: str, call: Callable[..., Any], *sections: str) -> str:
    """Return the documentation of an operator: a sentence, all but the first of how it is called, and further sections."""
    _, _, called = inspect.cleandoc(call.__doc__ or "").partition("\n\n")
    return "\n\n".join(filter(None, (summary, called, *sections)))


def example_of(name: str) -> str:
    """Return the *Examples* section of an operator's documentation, which tests run; empty where there is none."""
    if name not in _examples():
        return ""
    *operands, shown = _examples()[name]
    arrays = ", ".join(f"np.array({operand})" for operand in operands)
    run = f"engine.run(ss.program(ss.ops.{name}), {arrays})"
    lines = ["Examples", "--------", '>>> with ss.Engine(device="simulated") as engine:', f"...     print({run})", *shown.split("\\n")]
    return "\n".join(lines)


@cache
def _examples() -> dict[str, list[str]]:
    lines = (pkgutil.get_data("streamscope.ops", "examples.txt") or b"").decode().splitlines()  # also where the package lies in a zip
    return {name: rest for name, *rest in (line.split(" | ") for line in lines)}
