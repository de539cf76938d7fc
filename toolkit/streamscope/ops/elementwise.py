"""Every element-wise operator that has a name of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from streamscope.ops import activations, binary, logic, unary
from streamscope.ops.activations import relu
from streamscope.ops.binary import add, multiply
from streamscope.ops.operator import require
from streamscope.ops.pointwise import Elementwise
from streamscope.program.symbol import Symbol

__all__ = ["OPERATORS", "add", "bias_add", "multiply", "relu"]

OPERATORS: dict[str, Elementwise] = {
    name: value for module in (unary, activations, binary, logic) for name, value in vars(module).items() if isinstance(value, Elementwise)
}
"""The operators by name, in the order in which they are defined."""


_bias_add = Elementwise(replace(add.definition, name="bias_add"))


def bias_add(x: object, bias: object, *, out: object = None) -> Any:
    """Return ``x + bias``, the bias repeated over all but the last axis of ``x``: `add` with a check of the shapes.

    Parameters
    ----------
    x : variable
        Shape (..., C).
    bias : variable
        Shape (C,).
    out : variable, optional
        Where the result goes, which may be an argument (in place); by default a new variable.
    """
    if isinstance(x, Symbol) and isinstance(bias, Symbol):
        require(
            len(bias.shape) == 1 and x.shape[-1:] == bias.shape,
            "bias_add",
            f"bias of shape {bias.shape} does not fit the last axis of {x.shape}",
            "give one bias for each entry of the last axis",
        )
    return _bias_add(x, bias, out=out)
