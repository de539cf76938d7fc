"""Expressions whose whole numbers overflow, divide by zero or shift too far, written so that this means what it means in NumPy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

import numpy as np

from streamscope.ops.expressions import Span, parsed, typed
from streamscope.ops.operand_types import UnknownExpressionError
from streamscope.ops.promotion import DType, arithmetic
from streamscope.rtc.signature import Signature
from streamscope.rtc.wrapping_source import SIGNS


def wrapping(signature: Signature) -> Signature:
    """Return a signature whose kernel wraps: what its expressions compute of whole numbers is defined everywhere."""
    dtypes = {parameter.name: parameter.taken for parameter in signature.parameters}
    dtypes |= dict.fromkeys(("T", *(name for name, _ in signature.lets)), signature.arithmetic)
    taken = tuple((name, arithmetic(np.dtype(dtype))) for name, dtype in dtypes.items())
    texts = dict.fromkeys([signature.expression, *(text for _, text in signature.lets)])
    written = ((text, wrapped(text, taken)) for text in texts)
    return replace(signature, wrapped=tuple((text, code) for text, code in written if code != text))


@lru_cache(maxsize=4096)
def wrapped(expression: str, dtypes: tuple[tuple[str, DType], ...]) -> str:
    """Return an expression with its arithmetic of whole numbers as `streamscope.rtc.wrapping_source` has it.

    Where types are unknown, since it calls functions of the user's own, all arithmetic is: what is not whole is computed there as in C++.
    An expression that is not understood at all stays as it is.

    Parameters
    ----------
    expression : str
    dtypes : tuple of (str, dtype)
        Of what it names, as the kernel computes with it; ``T`` among them.
    """
    if not any(sign in expression for sign in SIGNS):
        return expression
    try:
        evaluate, spans, _ = parsed(expression)
    except UnknownExpressionError:
        return expression
    values = typed(dtypes)
    try:
        with np.errstate(all="ignore"):
            evaluate(values)
    except (UnknownExpressionError, RecursionError):
        return _rewritten(expression, spans)
    return _rewritten(expression, [span for span in spans if not values.whole.isdisjoint(span.signs)])


def _rewritten(expression: str, spans: Iterable[Span]) -> str:
    """Return an expression with some of its arithmetic wrapped; of spans that begin together, the one around the others comes last."""
    inserted: dict[int, str] = {}
    for start, first, first_end, end, _ in spans:
        inserted[first] = "wrapping::of(" + inserted.get(first, "")
        inserted[start] = "wrapping::result(" + inserted.get(start, "")
        for closed in (first_end, end):
            inserted[closed] = inserted.get(closed, "") + ")"
    places = [*sorted({0, *inserted}), len(expression)]
    return "".join(inserted.get(at, "") + expression[at:until] for at, until in pairwise(places))
