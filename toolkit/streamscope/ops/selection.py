"""Element-wise operators that choose between operands: where, and clip."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.kernels.expression.promotion import Promoted, promote
from streamscope.ops.definition import Definition
from streamscope.ops.elementwise_operator import Elementwise, Scalars, defined
from streamscope.ops.examples import example_of
from streamscope.program.variable import ArraySpec

Array = npt.NDArray[Any]


class _Where(Elementwise):
    """The choice between two operands, whose dtypes promote without that of the condition."""

    def promoted(self, specs: Sequence[ArraySpec], scalars: Scalars) -> Promoted:
        """Return the dtypes that the operands are taken in, and the result's."""
        condition, *choices = self._kinds(specs, scalars)
        chosen = promote(self.__name__, self.definition.like, choices)
        taken = np.dtype(np.bool_) if "condition" in scalars or isinstance(condition, type) else condition
        return Promoted((taken, *chosen.taken), chosen.result, chosen.first)


where = _Where(
    Definition(
        "where",
        "Return a where the condition is not zero, and b elsewhere; the condition, of any dtype, does not promote.",
        ("condition", "a", "b"),
        "condition ? a : b",
        np.maximum,
        np.where,
        gradient=(None, "condition ? dy : T(0)", "condition ? T(0) : dy"),
        example=example_of("where"),
    )
)


def _clip(x: Array, low: Array, high: Array) -> Array:
    return np.asarray(np.minimum(np.maximum(x, low), high))


clip = defined(
    ("x", "low", "high"),
    "clip",
    "Return x within limits: low where it is below, high where it is above. For one limit there are `maximum` and `minimum`.",
    "minimum(maximum(x, low), high)",
    np.maximum,
    ("x < low || x > high ? T(0) : dy", "x < low && low <= high ? dy : T(0)", "maximum(x, low) > high ? dy : T(0)"),
    reference=_clip,
    flops=2,
)
