"""What an element-wise operator is, as data: everything else about it is made from this."""

from __future__ import annotations

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

    def expression_for(self, dtype: np.dtype[Any]) -> str:
        """Return the expression for operands that are taken in a dtype."""
        if dtype.kind == "b" and self.truth is not None:
            return self.truth
        if dtype == np.float16 and self.half is not None:
            return self.half
        return self.whole if dtype.kind in "iub" and self.whole is not None else self.expression
