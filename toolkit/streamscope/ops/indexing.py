"""Indexing variables of a program: ``x[1:3]``, ``x[..., None]``, ``x[ids]``."""

from __future__ import annotations

from operator import index as whole_number
from typing import Any

import numpy as np

from streamscope.arguments import shown
from streamscope.errors import ProgramError
from streamscope.ops.views import viewed
from streamscope.program.aliasing import Aliasing, of_element_or_view, of_view
from streamscope.program.symbol import Symbol, operators
from streamscope.program.user_line import user_line


def index(x: Symbol, key: Any) -> Symbol:
    """Return ``x[key]``: a view where the key has whole numbers, slices, ``...`` and ``None`` only; `take` where one is a variable."""
    keys = key if isinstance(key, tuple) else (key,)
    places = [place for place, each in enumerate(keys) if isinstance(each, Symbol) and each.dtype.kind in "iu"]
    if len(places) == 1 and all(_makes_axes(each) for place, each in enumerate(keys) if place != places[0]):
        return _taken(x, keys, places[0])
    for each in keys:
        if not _makes_axes(each) and not _is_whole(each):
            kind = f"the variable {each.name!r}" if isinstance(each, Symbol) else shown(each)
            allowed = "whole numbers, slices, ... and None, or one variable of whole numbers beside slices"
            raise ProgramError(
                f"{x.name!r} is indexed with {kind} at {user_line()}: a program takes {allowed}",
                hint=_instead_of(keys, each),
            )
    plain = tuple(each if _makes_axes(each) else whole_number(each) for each in keys)
    # With an ellipsis, a single element is an array, too, and not its value.
    full = plain if Ellipsis in plain else (*plain, Ellipsis)
    how = f"[{', '.join(map(_shown_key, plain))}]"
    return viewed("indexing", x, lambda array: array[full], how, sharing=of_view if Ellipsis in plain else of_element_or_view)


def _instead_of(keys: tuple[Any, ...], key: Any) -> str:
    """Hint at another form of a key that a program cannot follow."""
    dtype: Any = bool if isinstance(key, list) and {*map(type, key)} == {bool} else int if isinstance(key, list) else type(key)
    kind = np.dtype(getattr(key, "dtype", dtype)).kind
    if kind == "b":
        return "shapes must be known while the program is traced: for a condition, use np.where"
    if kind not in "iu":
        return "make it whole numbers first, with int(...) or .astype('int32')"
    if not isinstance(key, Symbol):
        return "take the number out of the array: int(...)" if np.ndim(key) == 0 else "pass the indices as an input of the program"
    if sum(isinstance(one, Symbol) for one in keys) > 1:
        return "for pairs of indices, say where each element is: x.ravel()[i * x.shape[1] + j]"
    return "index in two steps, with the numbers first: x[0][i] for x[0, i]"


def _makes_axes(key: object) -> bool:
    return key is None or key is Ellipsis or isinstance(key, slice)


def _is_whole(key: object) -> bool:
    return hasattr(type(key), "__index__") and not isinstance(key, bool | np.bool_ | np.ndarray)


def _taken(x: Symbol, keys: tuple[Any, ...], place: int) -> Symbol:
    """Return ``x[keys]``, one of which is a variable of indices: the others' view of x, taken along the variable's axis."""
    used = sum(each is not None and each is not Ellipsis for each in keys)
    axis = sum(len(x.shape) - used if each is Ellipsis else 1 for each in keys[:place])
    seen = index(x, (*keys[:place], slice(None), *keys[place + 1 :]))
    result: Symbol = operators["take"](seen, keys[place], axis)
    if keys[place].sharing is Aliasing.NUMBER and (result.shape or Ellipsis in keys):
        # To NumPy it is a basic index. Here it is copied, so it must not be used once the other is written.
        result.sharing, result.taken_from = Aliasing.TAKEN, x
        result.tracer.before_writes(x.id, result)
    return result


def _shown_key(key: object) -> str:
    if isinstance(key, slice):
        parts = ["" if part is None else str(part) for part in (key.start, key.stop, key.step)]
        return ":".join(parts if parts[2] else parts[:2])
    return "..." if key is Ellipsis else str(key)
