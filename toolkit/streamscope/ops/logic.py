"""Element-wise comparisons and logic: the result is bool."""

from __future__ import annotations

import numpy as np

from streamscope.ops.definition import Definition
from streamscope.ops.pointwise import Elementwise


def _logic(name: str, summary: str, expression: str, like: np.ufunc) -> Elementwise:
    return Elementwise(Definition(name, summary, ("a", "b"), expression, like, like))


equal = _logic("equal", "Tell where ``a == b``.", "a == b", np.equal)
not_equal = _logic("not_equal", "Tell where ``a != b``.", "a != b", np.not_equal)
greater = _logic("greater", "Tell where ``a > b``.", "a > b", np.greater)
greater_equal = _logic("greater_equal", "Tell where ``a >= b``.", "a >= b", np.greater_equal)
less = _logic("less", "Tell where ``a < b``.", "a < b", np.less)
less_equal = _logic("less_equal", "Tell where ``a <= b``.", "a <= b", np.less_equal)
logical_and = _logic("logical_and", "Tell where neither a nor b is zero.", "a && b", np.logical_and)
logical_or = _logic("logical_or", "Tell where a or b is not zero.", "a || b", np.logical_or)
logical_xor = _logic("logical_xor", "Tell where one of a and b is not zero.", "!a != !b", np.logical_xor)
