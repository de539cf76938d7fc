"""Shared memory by NumPy's rules, and in-place writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from streamscope.errors import ProgramError
from streamscope.program.user_line import user_line
from streamscope.program.variable import ArraySpec
from streamscope.words import listed

if TYPE_CHECKING:
    from streamscope.program.operation import Program
    from streamscope.program.symbol import Symbol
    from streamscope.program.tracer import Operator


class Aliasing(Enum):
    """NumPy's counterpart of a symbol."""

    ARRAY = "an array, or a view of one that may be written"
    READ_ONLY = "a view in which elements repeat (broadcast_to), which NumPy makes read-only"
    COPY = "a view of a number, which is a copy in NumPy"
    NUMBER = "a number, which never changes"
    TAKEN = "a view in NumPy, at an index that is known only when the program runs"


SharingRule = Callable[[Aliasing, tuple[int, ...]], Aliasing]
"""``rule(sharing of an array, shape of a view of it) -> sharing of the view``."""


def of_view(of: Aliasing, shape: tuple[int, ...]) -> Aliasing:
    """Classify a view: of a number, it is a copy, since numbers cannot be written."""
    return Aliasing.COPY if of is Aliasing.NUMBER else of


def of_number_or_view(of: Aliasing, shape: tuple[int, ...]) -> Aliasing:
    """Classify the view of transposes and reshapes: of a number, a number again where there are no axes."""
    return Aliasing.NUMBER if of is Aliasing.NUMBER and not shape else of_view(of, shape)


def of_element_or_view(of: Aliasing, shape: tuple[int, ...]) -> Aliasing:
    """Apply an index: a number where no axis is left."""
    return of_view(of, shape) if shape else Aliasing.NUMBER


def of_repeated(of: Aliasing, shape: tuple[int, ...]) -> Aliasing:
    """Return the view of ``np.broadcast_to``, which cannot be written."""
    return Aliasing.READ_ONLY if of is Aliasing.ARRAY else of_view(of, shape)


_MOST_WORK: Any = 1000
"""How long NumPy may look for an element that two arrays share; after that, two whose memory overlaps are taken to share one."""


def check_memory(program: Program, inputs: Sequence[Any]) -> None:
    """Raise a `ProgramError` where a program that writes in place means something else in NumPy, by how its inputs lie in memory."""
    for variable, values in zip(program.inputs, inputs, strict=True):
        wrong = _why_not(program, variable, values)
        if wrong:
            name = program.variables[variable].name
            said = f"program {program.name!r} writes in place, and its input {name!r} {wrong[0]}"
            raise ProgramError(said, hint=f"pass {wrong[1]} as {name!r}")
    _check_apart(program, inputs)


def _why_not(program: Program, variable: int, values: Any) -> tuple[str, str] | None:
    """Return why an input would be something else in NumPy, and a remedy."""
    strides, read_only = _layout(values)
    if variable in program.written_inputs and read_only:
        return "is read-only: NumPy would refuse to write it", "a copy, np.array(...),"
    if variable in program.written_inputs and strides is not None and _overlaps_itself(values.shape, strides, values.dtype.itemsize):
        return "has elements that share memory: NumPy would change them together", "a copy, np.array(...),"
    if program.needs_row_major and strides is not None:
        said = "does not lie in C order (last axis fastest, no gaps), by which a reshape in NumPy is a copy or a view"
        return said, "np.ascontiguousarray(...)"
    return None


def _layout(values: Any) -> tuple[tuple[int, ...] | None, bool]:
    """Return an array's strides in bytes, None where it lies in C order, and whether it is read-only; other values are neither."""
    if isinstance(values, np.ndarray):
        return None if values.flags.c_contiguous else values.strides, not values.flags.writeable
    interface = getattr(values, "__cuda_array_interface__", {})
    return interface.get("strides"), interface.get("data", (0, False))[1]


def _overlaps_itself(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> bool:
    """Tell whether elements may share memory: each axis must step over all that the axes of smaller steps reach."""
    reach = itemsize
    for stride, extent in sorted((abs(stride), extent) for stride, extent in zip(strides, shape, strict=True) if extent > 1):
        if stride < reach:
            return True
        reach += stride * (extent - 1)
    return False


def _check_apart(program: Program, inputs: Sequence[Any]) -> None:
    """Raise a `ProgramError` where an input that is written shares memory with another one: in a program, each has its own."""
    if len(inputs) < 2 or not program.changes_inputs:
        return
    for pair in _overlapping([_bounds(values) for values in inputs]):
        variables = [program.inputs[number] for number in pair]
        if program.written_inputs.isdisjoint(variables) or not _share(*(inputs[number] for number in pair)):
            continue
        one, other = (repr(program.variables[each].name) for each in variables)
        raise ProgramError(
            f"program {program.name!r} writes in place, and its inputs {one} and {other} share memory: NumPy would change both",
            hint=f"pass a copy as {other}; in a program, each input has memory of its own",
        )


def _bounds(values: Any) -> tuple[int, int]:
    """Return where an array's memory begins, and where it ends."""
    if isinstance(values, np.ndarray):
        return byte_bounds(values)
    begin = getattr(values, "__cuda_array_interface__", {}).get("data", (0,))[0] or 0
    return begin, begin + (values.nbytes if begin else 0)


def _overlapping(bounds: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the pairs of arrays whose bounds overlap, the lower number first."""
    order = sorted(range(len(bounds)), key=bounds.__getitem__)
    for place, first in enumerate(order):
        for second in order[place + 1 :]:
            if bounds[second][0] >= bounds[first][1]:
                break
            yield min(first, second), max(first, second)


def _share(one: Any, other: Any) -> bool:
    """Tell whether two arrays whose bounds overlap have an element in common; on a GPU, they are taken to have one."""
    if not isinstance(one, np.ndarray) or not isinstance(other, np.ndarray):
        return True
    try:
        return np.shares_memory(one, other, max_work=_MOST_WORK)
    except np.exceptions.TooHardError:
        return True


_SIGNS = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "floor_divide": "//", "mod": "%", "power": "**", "matmul": "@",
    "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^", "left_shift": "<<", "right_shift": ">>",
}  # fmt: skip
"""How Python writes each operator that works in place."""


def too_wide(operator: Operator, sources: Sequence[Symbol], attributes: Mapping[str, Any], dtype: np.dtype[Any]) -> list[str]:
    """Return the operands that keep a result from a dtype: in that dtype, they would give it. None where the operator itself does."""
    numbers = attributes.get("scalars", {})
    wide = [np.result_type(source.dtype, dtype) != dtype for source in sources]
    wide_numbers = {name: number for name, number in numbers.items() if np.result_type(number, dtype) != dtype}
    specs = [ArraySpec(source.shape, dtype) if one else source.spec for source, one in zip(sources, wide, strict=True)]
    try:
        narrow = {**numbers, **{name: dtype.type(number) for name, number in wide_numbers.items()}}
        found = operator.infer(specs, {**attributes, "scalars": narrow} if numbers else attributes)
    except (ProgramError, ValueError, OverflowError):
        return []
    named = [*(repr(source.name) for source, one in zip(sources, wide, strict=True) if one), *map(str, wide_numbers.values())]
    return list(dict.fromkeys(named)) if all(spec.dtype == dtype for spec in found) else []


def check_update(target: Symbol, operator: str, result: ArraySpec, wide: Callable[[], Sequence[str]] = list) -> None:
    """Raise a `ProgramError` where NumPy would not write a result of an operator in place; ``wide`` tells which operands are too wide."""
    sign = _SIGNS.get(operator)
    instead = f"write x = x {sign} y" if sign else "write a new variable"
    where = f"in-place {operator} of {target.name!r} at {user_line()}"
    if target.sharing is not Aliasing.ARRAY:
        raise ProgramError(f"{where}: it is {target.sharing.value}", hint=f"{instead}, or copy it first: x = np.copy(x)")
    if result.shape != target.shape:
        raise ProgramError(
            f"{where}: the result has shape {result.shape}, and {target.name!r} keeps its shape {target.shape}", hint=instead
        )
    if not np.can_cast(result.dtype, target.dtype, "same_kind"):
        narrowed = f"{listed(wide())} to {target.dtype.name}" if wide() else f"{target.name!r} to {result.dtype.name}"
        raise ProgramError(
            f"{where}: the result is {result.dtype.name}, and NumPy does not cast that to {target.dtype.name} in place (same_kind)",
            hint=f"{instead}, or convert {narrowed} first",
        )
