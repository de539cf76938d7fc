"""Every element-wise operator by name, and the meaning of Python's operators, ``x += y`` among them, and NumPy's functions on variables.

Each of NumPy's functions is the operator that means the same, or is refused by name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from streamscope.errors import ProgramError
from streamscope.ops import activations, binary, indexing, reductions, selection, unary, views
from streamscope.ops.application import require
from streamscope.ops.cumulative import cumsum
from streamscope.ops.elementwise_operator import Elementwise
from streamscope.ops.indexing import index
from streamscope.ops.joining import concatenate, stack
from streamscope.ops.linear import matmul
from streamscope.ops.selection import astype, conversion
from streamscope.ops.takes import take
from streamscope.ops.variances import var
from streamscope.ops.views import COPY
from streamscope.program.aliasing import Aliasing, check_update
from streamscope.program.symbol import Symbol, bound, is_same, operators, refused, unknown_options
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


OPERATORS: dict[str, Elementwise] = {
    name: value
    for module in (unary, activations, binary, selection)
    for name, value in vars(module).items()
    if isinstance(value, Elementwise)
}
"""The operators by name, in the order in which they are defined."""
UFUNCS: Mapping[np.ufunc, Callable[..., Any]] = {
    **{getattr(np, name): each for name, each in OPERATORS.items() if isinstance(getattr(np, name, None), np.ufunc)},
    np.matmul: matmul,
    np.deg2rad: OPERATORS["radians"],
    np.rad2deg: OPERATORS["degrees"],
}
FUNCTIONS: Mapping[Any, Callable[..., Any]] = {
    **{getattr(np, name): each for name, each in vars(reductions).items() if isinstance(each, reductions.Reduction)},
    **{getattr(np, name): OPERATORS[name] for name in ("fix", "isposinf", "isneginf", "round")},
    **views.VIEW_FUNCTIONS,
    **{getattr(np, each.__name__): each for each in (astype, cumsum, take, var)},
    np.shape: lambda a: a.shape,
    np.ndim: lambda a: len(a.shape),
    np.size: lambda a: a.spec.size,
}
_INSTEAD: Mapping[Any, str] = {
    np.around: "round to whole numbers with np.rint",
    np.dot: "use a @ b",
    np.einsum: "use @ and views: a @ b.swapaxes(-1, -2)",
    np.outer: "use a[:, None] * b",
    np.positive: "leave the + out",
    **dict.fromkeys((np.hstack, np.vstack, np.append, np.roll, np.pad, np.tile), "use np.concatenate"),
    **dict.fromkeys((np.array_split, np.hsplit, np.vsplit), "use np.split, or slices"),
}

_OWN = "call NumPy in an ss.host_function, or make an ss.operator of your own"
"""The way out where there is no operator for a function."""


def _where(condition: object, x: object = None, y: object = None, /) -> Symbol:
    if x is None or y is None:
        raise ProgramError(
            f"np.where of a condition alone at {user_line()} has a result whose size depends on values",
            hint="give both choices: np.where(condition, x, y)",
        )
    return selection.where(condition, x, y)


def _clip(
    a: object,
    a_min: object = None,
    a_max: object = None,
    out: object = None,
    *,
    min: object = None,  # noqa: A002 — NumPy's name
    max: object = None,  # noqa: A002 — NumPy's name
) -> Symbol:
    low, high = (a_min if min is None else min), (a_max if max is None else max)
    if low is None and high is None:
        raise ProgramError(f"np.clip at {user_line()} has no limit", hint="give one: np.clip(x, 0, 1)")
    if low is None:
        return binary.minimum(a, high, out=out)
    return binary.maximum(a, low, out=out) if high is None else selection.clip(a, low, high, out=out)


def _joining(operator: Callable[..., Symbol]) -> Callable[..., Symbol]:
    def call(arrays: object, /, axis: int | None = 0, out: object = None, *, casting: str = "same_kind") -> Symbol:
        require(casting == "same_kind", operator.__name__, f"casting={casting!r} is not an option here", "leave casting out")
        return operator(arrays, axis, out=out)

    return call


ADAPTED: Mapping[Any, Callable[..., Any]] = {
    np.where: _where,
    np.clip: _clip,
    np.concatenate: _joining(concatenate),
    np.stack: _joining(stack),
}
"""NumPy's functions whose arguments differ from our operator's: adapters that take NumPy's arguments."""


def _apply_ufunc(function: np.ufunc, method: str, inputs: Sequence[object], options: Mapping[str, Any]) -> Any:
    """Apply the operator that a ufunc means."""
    if method != "__call__":
        raise _refused(f"{function.__name__}.{method}", "use np.sum, np.max and the like" if method == "reduce" else "")
    if function not in UFUNCS:
        raise _refused(function.__name__, _INSTEAD.get(function, f"write it as one line with ss.elementwise, or {_OWN}"))
    out = options.get("out", (None,))
    return _applied(function.__name__, UFUNCS[function], inputs, {**options, "out": out[0] if len(out) == 1 else out})


def _apply_function(function: Callable[..., Any], arguments: Sequence[object], options: Mapping[str, Any]) -> Any:
    """Apply the operator that another function of NumPy's means."""
    if function in ADAPTED:
        return _adapted(function.__name__, ADAPTED[function], arguments, options)
    if function not in FUNCTIONS:
        raise _refused(function.__name__, _INSTEAD.get(function, ""))
    signature = inspect.signature(function)
    (_, variable), *others = bound(function.__name__, signature, arguments, options).arguments.items()
    given = {option: value for option, value in others if not is_same(value, signature.parameters[option].default)}
    return _applied(function.__name__, FUNCTIONS[function], [variable], given)


def _adapted(name: str, call: Callable[..., Any], arguments: Sequence[object], options: Mapping[str, Any]) -> Any:
    given = bound(name, inspect.signature(call), arguments, options)
    return call(*given.args, **given.kwargs)


def _applied(name: str, operator: Callable[..., Any], inputs: Sequence[object], options: Mapping[str, Any]) -> Any:
    others = options.keys() - {"out"}
    if others and (unknown := others - inspect.signature(operator).parameters.keys()):
        raise unknown_options(name, unknown)
    if not isinstance(options.get("out"), Symbol | None):
        raise _refused(f"{name} with an array for out=", "give a variable, or take what the function returns")
    return operator(*inputs, **options)


def _refused(what: str, hint: str) -> ProgramError:
    return refused(what, hint or _OWN)


OF_SYMBOLS: Mapping[str, Callable[..., Any]] = {
    **OPERATORS,
    **views.OF_SYMBOLS,
    "index": indexing.index,
    "update": update,
    "assign": assign,
    "set_item": set_item,
    **{name: getattr(reductions, name) for name in ("sum", "mean", "prod", "max", "min", "any", "all", "argmax", "argmin")},
    "matmul": matmul,
    "astype": astype,
    "take": take,
    "__array_ufunc__": _apply_ufunc,
    "__array_function__": _apply_function,
}
"""Implementations of Python's operators and NumPy's functions, for `streamscope.program.symbol`."""
