"""What an element-wise operator is, as data: everything else about it is made from this, its documentation too."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Reference = Callable[..., Any]


@dataclass(frozen=True)
class Definition:
    """An element-wise operator.

    Attributes
    ----------
    name : str
    summary : str
        One sentence, for its documentation.
    operands : tuple of str
        What the expressions call the operands.
    expression : str
        CUDA expression of the result: over the operands, and ``T``, the type of arithmetic; half is float in it.
    like : numpy.ufunc
        Whose dtypes it has.
    reference : callable, optional
        NumPy or SciPy function of arrays that means the same; None: the expression is evaluated in NumPy.
    unknown : str
        What of the expression NumPy does not know: without a reference, the operator runs on CUDA only.
    whole, truth, half : str, optional
        The expression for whole numbers, for bools, and for half, where it is another one: a cheaper one that has all of half's digits.
    gradient : tuple of str or None, optional
        For each operand, the CUDA expression of its gradient, over the operands, the result ``y`` and the result's gradient ``dy``;
        None where that operand has none. None for an operator without gradients.
    result : str
        What gradients call the result.
    lets : tuple of (str, str)
        Names with the expressions that they stand for, computed first.
    functions : str
        CUDA source of device functions that the expressions call.
    flops : int
        Arithmetic operations an element, about.
    ulp : float
        How far the CUDA result may be from the exact one, in units in the last place of the type of arithmetic; CUDA's documented bound for
        its function (CUDA C++ Programming Guide, "Mathematical Functions"), or ours with its reason where it is defined.
    vouched : bool
        The reference is the user's word, not the same expression in NumPy.
    keep_whole : bool
        Operands that are whole numbers stay whole beside floating-point ones.
    domain : (float, float)
        Between which numbers an operand is interesting: where tests take their values from.
    example : str
        The *Examples* section of its documentation.
    """

    name: str
    summary: str
    operands: tuple[str, ...]
    expression: str
    like: np.ufunc
    reference: Reference | None
    whole: str | None = None
    truth: str | None = None
    gradient: tuple[str | None, ...] | None = None
    result: str = "y"
    lets: tuple[tuple[str, str], ...] = ()
    functions: str = ""
    flops: int = 1
    ulp: float = 0.5
    domain: tuple[float, float] = (-8.0, 8.0)
    half: str | None = None
    unknown: str = ""
    vouched: bool = False
    keep_whole: bool = False
    example: str = ""

    def expression_for(self, dtype: np.dtype[Any]) -> str:
        """Return the expression for operands that are taken in a dtype."""
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


def documentation(definition: Definition) -> str:
    """Return the documentation of the operator."""
    operands = ", ".join(definition.operands)
    code = f"{definition.whole} or {definition.expression}" if definition.whole else definition.expression
    gradient = "It has a gradient." if definition.gradient is not None else "It has no gradient."
    return f"""{definition.summary}

    Parameters
    ----------
    {operands} : variable or number
        At least one is a variable. Shapes broadcast and dtypes promote as those of NumPy's ``{definition.like.__name__}``.
    out : variable, optional
        Where the result goes, which may be an operand (in place); by default a new variable.
    request : {{"write", "add", "null"}}
        Whether ``out`` is replaced, added to or left alone.

    Notes
    -----
    CUDA: ``{code}``, half computed in float. {gradient}{definition.example}
    """
