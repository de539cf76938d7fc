"""Which operand made a result wider than the user may expect: an int32 mask beside float32 is float64, as in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from streamscope.program.variable import ArraySpec

if TYPE_CHECKING:
    from streamscope.program.operation import Operation

_SpecOf = Callable[[int], ArraySpec]
_NameOf = Callable[[int], str]


def widened(operation: Operation, spec_of: _SpecOf) -> str:
    """Explain a widened floating-point result, as "float64 from int32 and float32"; empty where it is as wide as an operand."""
    return _widened(operation, spec_of, lambda variable: spec_of(variable).dtype.name)


def _widened(operation: Operation, spec_of: _SpecOf, called: _NameOf) -> str:
    result = spec_of(operation.writes[0]).dtype if len(operation.writes) == 1 else np.dtype(np.bool_)
    reads = [variable for variable in operation.reads if variable not in operation.writes]
    dtypes = [spec_of(variable).dtype for variable in reads]
    if result.kind != "f" or "dtype" in operation.attributes or any(_as_wide(dtype, result) for dtype in dtypes):
        return ""
    numbers = [repr(number) for number in _numpy_numbers(operation.attributes) if _as_wide(number.dtype, result)]
    causes = numbers or list(dict.fromkeys(map(called, reads)))
    return f"{result.name} from {' and '.join(causes)}" if causes else ""


def origin_of(dtype: np.dtype[Any], variable: int, operations: Sequence[Operation], spec_of: _SpecOf, name_of: _NameOf) -> str:
    """Return a sentence about where a variable got its floating-point dtype; empty where it is that of an input, or asked for."""
    for operation in reversed(operations):
        if operation.writes != (variable,):
            continue
        cause = _widened(operation, spec_of, lambda each: f"{spec_of(each).dtype.name} {name_of(each)!r}")
        if cause:
            return f"{operation.name} at {operation.where} made {cause}{_advice(operation, dtype, spec_of, name_of)}"
        # It had the dtype before: look where from.
        wide = [each for each in operation.reads if spec_of(each).dtype == dtype and each != variable]
        if not wide:
            return ""
        variable = wide[0]
    return ""


def _advice(operation: Operation, dtype: np.dtype[Any], spec_of: _SpecOf, name_of: _NameOf) -> str:
    if any(_as_wide(number.dtype, dtype) for number in _numpy_numbers(operation.attributes)):
        return ": write float(...) around that number, since Python's numbers widen nothing"
    floats = [spec_of(each).dtype for each in operation.reads if spec_of(each).dtype.kind == "f"]
    whole = [each for each in operation.reads if spec_of(each).dtype.kind in "iu"]
    if floats and whole:
        widest = max(floats, key=lambda each: each.itemsize)
        return f", as in NumPy: convert it first, {name_of(whole[0])}.astype({widest.name!r})"
    return ", as in NumPy"


def _as_wide(dtype: np.dtype[Any], result: np.dtype[Any]) -> bool:
    return dtype.kind == "f" and dtype.itemsize >= result.itemsize


def _numpy_numbers(attributes: Mapping[str, Any]) -> list[np.generic]:
    scalars = attributes.get("scalars", {})
    return [number for number in scalars.values() if isinstance(number, np.generic)] if isinstance(scalars, Mapping) else []
