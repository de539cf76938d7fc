"""Every element-wise operator that has a name of its own."""

from __future__ import annotations

from streamscope.ops import activations, binary, logic, unary
from streamscope.ops.pointwise import Elementwise

OPERATORS: dict[str, Elementwise] = {
    name: value for module in (unary, activations, binary, logic) for name, value in vars(module).items() if isinstance(value, Elementwise)
}
"""The operators by name, in the order in which they are defined."""
