"""The sum of any number of arrays."""

from __future__ import annotations

from functools import lru_cache, reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.errors import ProgramError
from streamscope.ops.definition import Definition
from streamscope.ops.pointwise import Elementwise

Array = npt.NDArray[Any]

MOST_AT_ONCE = 32
"""Operands of one kernel; it has an address in registers for each of them."""


def add_n(*operands: object, out: Any = None) -> Any:
    """Return the sum of any number of arrays, added in order; half is rounded once for each 31 operands.

    Parameters
    ----------
    operands : variable or number
        Shapes broadcast and dtypes promote as in `add`.
    out : variable, optional
        Where the result goes, which may be an operand (in place); by default a new variable.

    Raises
    ------
    ProgramError
        There are no operands, or they do not fit.
    """
    if not operands:
        raise ProgramError("add_n: nothing to add", hint="give at least one variable")
    total, rest = None, list(operands)
    while rest:
        some, rest = rest[: MOST_AT_ONCE - 1], rest[MOST_AT_ONCE - 1 :]
        # An intermediate sum has a variable of its own, since `out` may be an operand that is still to be read.
        target = total if rest else out
        total = _adder(len(some))(*some, out=target) if total is None else _adder(len(some) + 1)(total, *some, out=target)
    return total


@lru_cache(maxsize=MOST_AT_ONCE)
def _adder(count: int) -> Elementwise:
    """Return the operator that adds so many operands."""
    names = tuple(f"x{index}" for index in range(count))
    summary = f"Return the sum of {count} operands."

    def reference(*values: Array) -> Array:
        return reduce(np.add, values)

    return Elementwise(
        Definition(
            "add_n",
            summary,
            names,
            " + ".join(names),
            np.add if count > 1 else np.positive,
            reference,
            gradient=("dy",) * count,
            flops=count - 1,
        )
    )
