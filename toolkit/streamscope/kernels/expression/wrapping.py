"""Expressions whose whole numbers overflow, are divided by zero or shifted too far, written so that this means what it means in NumPy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import pairwise

import numpy as np

from streamscope.kernels.elementwise.wrapping_source import CASTS, WRAPS, Arithmetic, cast
from streamscope.kernels.expression.expressions import parsed, typed
from streamscope.kernels.expression.functions import UnknownExpressionError
from streamscope.kernels.expression.promotion import DType


@lru_cache(maxsize=4096)
def wrapped(expression: str, dtypes: tuple[tuple[str, DType], ...]) -> str:
    """Return an expression with its arithmetic of whole numbers as `streamscope.kernels.elementwise.wrapping_source` has it.

    Where types are unknown all operators are so written: what is not whole is computed there as in C++. An expression that is not
    understood at all stays as it is.

    Parameters
    ----------
    expression : str
    dtypes : tuple of (str, dtype)
        Of what it names, as the kernel computes with it, ``T`` among them; empty if they are unknown.
    """
    if not any(each in expression for each in WRAPS):
        return expression
    try:
        evaluate, found, unknown = parsed(expression)
    except UnknownExpressionError:
        return expression
    values = typed(dtypes)
    try:
        if dtypes and not unknown:
            with np.errstate(all="ignore"):
                evaluate(values)
            return _rewritten(
                expression, [_cast(expression, each, values.whole) for each in found if values.whole.keys() & set(each.signs)]
            )
    except (UnknownExpressionError, RecursionError):
        pass
    return _rewritten(expression, (each for each in found if expression[each.signs[0]] in "+-*/%<>"))


def _cast(expression: str, found: Arithmetic, whole: Mapping[int, DType]) -> Arithmetic:
    """Return arithmetic by plain casts where it is all of one type, which compiles quicker: ``int(unsigned(a) + b)``."""
    dtypes = {whole.get(sign) for sign in found.signs}
    casts = CASTS.get(str(dtypes.pop())) if len(dtypes) == 1 else None
    if casts is None or any(expression[sign] not in "+-*" for sign in found.signs):
        return found
    return found._replace(inserted=tuple((at, cast(text, casts)) for at, text in found.inserted))


def _rewritten(expression: str, found: Iterable[Arithmetic]) -> str:
    """Return an expression with arithmetic wrapped; of what begins at one place, that around the others comes last."""
    inserted: dict[int, str] = {}
    for each in found:
        for at, text in each.inserted:
            inserted[at] = inserted.get(at, "") + text if text.startswith(")") else text + inserted.get(at, "")
    places = [*sorted({0, *inserted}), len(expression)]
    return "".join(inserted.get(at, "") + expression[at:until] for at, until in pairwise(places))
