"""Sums with a shape or a number of operands of their own: of any number of arrays, and of an array and a bias."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from streamscope.errors import ProgramError
from streamscope.ops.application import Request, require
from streamscope.ops.binary import add
from streamscope.ops.definition import Definition, example_of
from streamscope.ops.elementwise_operator import Elementwise
from streamscope.program.symbol import Symbol
from streamscope.program.tracer import applies_operators

_MOST_AT_ONCE = 32
"""Operands of one kernel; it has an address in registers for each of them."""


@applies_operators
class AddN:
    """The sum of any number of arrays, added in order; half is rounded once for each 31 operands.

    Apply it, inside a program, to variables and numbers: ``add_n(a, b, c, d)``.

    Parameters
    ----------
    operands : variable or number
        Shapes broadcast and dtypes promote as in `add`.
    out : variable, optional
        Where the result goes, which may be an operand (in place); by default a new variable.
    request : {"write", "add", "null"}
        Whether ``out`` is replaced, added to or left alone.

    Raises
    ------
    ProgramError
        There are no operands, or they do not fit.

    Examples
    --------
    >>> with ss.Engine(device="simulated") as engine:
    ...     print(engine.run(ss.program(ss.ops.add_n), np.array([1, 2]), np.array([3, 4]), np.array([5, 6])))
    [ 9 12]
    """

    __name__ = "add_n"

    def __repr__(self) -> str:
        return "<element-wise operator add_n(x0, x1, ...)>"

    def __call__(self, *operands: object, out: Any = None, request: Request = "write") -> Symbol:
        """Apply the operator inside a program that is being traced."""
        given = _some(operands)
        terms, rest = given[: _MOST_AT_ONCE - 1], given[_MOST_AT_ONCE - 1 :]
        while rest:
            # An intermediate sum has a variable of its own, since `out` may be an operand that is still to be read.
            terms, rest = [_adder(len(terms))(*terms), *rest[: _MOST_AT_ONCE - 1]], rest[_MOST_AT_ONCE - 1 :]
        return _adder(len(terms))(*terms, out=out, request=request)

    def gradient(self, dy: object, *operands: object, out: object = None, request: Request = "write") -> Any:
        """Return the gradient of each operand, inside a program: one variable for one operand, else a tuple; see `Elementwise.gradient`."""
        return _adder(len(_some(operands))).gradient(dy, *operands, out=out, request=request)


def _some(operands: Sequence[object]) -> list[object]:
    if not operands:
        raise ProgramError("add_n: nothing to add", hint="give at least one variable")
    return list(operands)


@lru_cache(maxsize=_MOST_AT_ONCE)
def _adder(count: int) -> Elementwise:
    """Return the operator that adds so many operands."""
    names = tuple(f"x{index}" for index in range(count))
    summary = f"Return the sum of {count} operands."

    return Elementwise(
        Definition(
            "add_n",
            summary,
            names,
            " + ".join(names),
            np.add if count > 1 else np.positive,
            None,
            gradient=("dy",) * count,
            flops=count - 1,
        )
    )


add_n = AddN()


class _BiasAdd(Elementwise):
    """`add` with a check of the shapes."""

    def sorted_operands(self, operands: Sequence[object]) -> tuple[list[Any], dict[str, Any]]:
        """Return the operands that are arrays, in order, and the numbers by name."""
        arrays, numbers = super().sorted_operands(operands)
        if all(isinstance(array, Symbol) for array in arrays) and len(arrays) == 2:
            x, bias = arrays
            require(
                len(bias.shape) == 1 and x.shape[-1:] == bias.shape,
                "bias_add",
                f"bias of shape {bias.shape} does not fit the last axis of {x.shape}",
                "give one bias for each entry of the last axis",
            )
        return arrays, numbers


bias_add = _BiasAdd(
    replace(
        add.definition,
        name="bias_add",
        operands=("x", "bias"),
        expression="x + bias",
        summary="Return ``x + bias``, the bias, of shape (C,), repeated over all but the last axis of x, of shape (..., C).",
        example=example_of("bias_add"),
    )
)
