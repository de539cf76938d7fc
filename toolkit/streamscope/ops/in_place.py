"""Writing to variables as NumPy's arrays are written: ``x += y``, ``x[1:] += y``, ``x[0] += 1``."""

from __future__ import annotations

from typing import Any, cast

from streamscope.errors import ProgramError
from streamscope.ops.elementwise_operator import Elementwise
from streamscope.ops.indexing import index
from streamscope.ops.selection import conversion
from streamscope.ops.views import COPY
from streamscope.program.aliasing import Aliasing, check_update
from streamscope.program.symbol import Symbol, operators
from streamscope.program.tracer import current_tracer
from streamscope.program.user_line import user_line


def update(operator: str, x: Symbol, other: object) -> Symbol:
    """Return ``x`` after ``x += other``, or after another operator of that kind.

    Everyone who sees the memory of ``x`` sees the result, as in NumPy: it is written there, in the dtype of ``x``. A number is not written:
    the name stands for another one then.
    """
    apply = operators[operator]
    if x.sharing is Aliasing.NUMBER:
        return cast("Symbol", apply(x, other))
    if isinstance(apply, Elementwise):
        return apply.update(x, x, other)
    result = cast("Symbol", apply(x, other))
    check_update(x, operator, result.spec)
    assign(x, result)
    return x


def assign(target: Symbol, values: Symbol) -> None:
    """Write values to a variable, or to a part of one, in its dtype."""
    if values.dtype == target.dtype:
        current_tracer("assign").update(COPY, [values], {}, target)
    else:
        conversion(target.dtype).update(target, values)


def set_item(x: Symbol, key: Any, values: object) -> None:
    """End ``x[key] += y``: Python assigns the updated ``x[key]``."""
    keys = key if isinstance(key, tuple) else (key,)
    if isinstance(values, Symbol) and not any(isinstance(each, Symbol) for each in keys):
        is_number = index(x, key).sharing is Aliasing.NUMBER
        part = index(x, keys if Ellipsis in keys else (*keys, Ellipsis))
        if not is_number and (values.id, values.seen) == (part.id, part.seen):
            return  # It is written already.
        if is_number and not values.shape:
            assign(part, values)
            return
    raise ProgramError(
        f"item assignment to {x.name!r} at {user_line()} is not an operator of a program",
        hint="join the parts of a new array with ss.ops.concatenate; x[1:] += y, with numbers and slices, writes in place",
    )
