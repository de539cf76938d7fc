"""Every element-wise operator that has a name of its own."""

from __future__ import annotations

from collections.abc import Sequence
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
    )
)
