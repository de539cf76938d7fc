"""Arithmetic of whole numbers that C++ leaves undefined, written so that it is NumPy's: overflow, division by zero, shifts by the width.

Expressions keep their operators: ``a + b - c`` becomes ``wrapping::result(wrapping::of(a) + b - c)`` or, where all three are known to be
of one type, ``int(unsigned(a) + b - c)``. ``cuda/wrapping.cuh`` defines these names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import pairwise

import numpy as np

from streamscope.kernels.expression.expressions import SIGNS, Arithmetic, parsed, typed
from streamscope.kernels.expression.functions import UnknownExpressionError
from streamscope.kernels.expression.promotion import DType

_WRAPS = SIGNS | {"abs"}
"""Parts of an expression that may be rewritten."""
_CASTS = {"int32": ("int(", "unsigned("), "int64": ("(long long)(", "(unsigned long long)(")}
"""Replacements of ``wrapping::result(`` and ``wrapping::of(`` in sums, differences and products of a known dtype."""
_OF_TWO = re.compile(r"a [-+*] b")


@lru_cache(maxsize=4096)
def wrapped(expression: str, dtypes: tuple[tuple[str, DType], ...]) -> str:
    """Return an expression with its arithmetic of whole numbers wrapped; the dtypes are those that the kernel computes with, ``T``'s too.

    Where types are unknown (no dtypes), all operators are written so; other numbers are computed as in C++. An expression that is
    not understood at all stays as it is.
    """
    if not any(each in expression for each in _WRAPS):
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
    except UnknownExpressionError:
        return expression  # C++ has no such operator for these types: the compiler says it of the user's own text.
    except RecursionError:
        pass
    return _rewritten(expression, (each for each in found if expression[each.signs[0]] in "+-*/%<>"))


def _cast(expression: str, found: Arithmetic, whole: Mapping[int, DType]) -> Arithmetic:
    """Return arithmetic by plain casts where it is all of one type, which compiles quicker: ``int(unsigned(a) + b)``."""
    dtypes = {whole.get(sign) for sign in found.signs}
    casts = _CASTS.get(str(dtypes.pop())) if len(dtypes) == 1 else None
    if casts is None or any(expression[sign] not in "+-*" for sign in found.signs):
        return found
    return found._replace(inserted=tuple((at, cast(text, casts)) for at, text in found.inserted))


def _rewritten(expression: str, found: Iterable[Arithmetic]) -> str:
    """Return an expression with arithmetic wrapped; of insertions at one place, the outermost comes last."""
    inserted: dict[int, str] = {}
    for each in found:
        for at, text in each.inserted:
            inserted[at] = inserted.get(at, "") + text if text.startswith(")") else text + inserted.get(at, "")
    places = [*sorted({0, *inserted}), len(expression)]
    return "".join(inserted.get(at, "") + expression[at:until] for at, until in pairwise(places))


def cast(text: str, casts: tuple[str, str]) -> str:
    """Return the insertions with casts of `_CASTS` instead."""
    return text.replace("wrapping::result(", casts[0]).replace("wrapping::of(", casts[1])


def joined(kind: str, expression: str) -> str:
    """Return an expression of ``a`` and ``b``, which are of a C++ type: a sum or a product of whole numbers wraps."""
    dtype = {"int": "int32", "long long": "int64"}.get(kind, "")
    return _cast_of_two(dtype, "a", expression[1:]) if _OF_TWO.fullmatch(expression) else expression


def added(dtype: str, a: str, b: str) -> str:
    """Return the C++ expression for the sum of two values of a dtype; shorter numbers than these two cannot overflow."""
    return _cast_of_two(dtype, a, f" + {b}")


def _cast_of_two(dtype: str, a: str, rest: str) -> str:
    if dtype not in _CASTS:
        return f"{a}{rest}"
    result, of = _CASTS[dtype]
    return f"{result}{of}{a}){rest})"
