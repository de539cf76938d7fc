"""A plain call: the user's function, called once with NumPy arrays, is compared with the traced program.

Nobody else would find out: every engine runs the program, and so does the reference. Functions that cannot be called like that, for example
since they apply operators of `streamscope.ops`, are left alone, and the answer says why.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from streamscope.arguments import shown
from streamscope.arrays import Array
from streamscope.errors import ProgramError, described
from streamscope.program.operation import Program
from streamscope.program.variable import host_array
from streamscope.tolerance import absolute_errors, adds_up_halves
from streamscope.tracing import called_with_arrays
from streamscope.words import counted

_MOST_HALF_FLOPS = 2**28
"""NumPy multiplies matrices of float16 without a library, at about this rate: it takes a second."""

_LEFT_OPEN = ("in cast", "in reciprocal")
"""How NumPy's warnings end where the result depends on the machine, and kernels have their own: of a conversion of a number that is out of
range, and of 1 / 0 of whole numbers. Of conversions to 8 and 16 bits, NumPy often does not warn: see `_converts_to_whole`."""


@dataclass(frozen=True)
class Answer:
    """Outcome of comparing a plain call with the results of a program."""

    results: tuple[Array, ...] = ()
    """Those of the function, where they differ from the program's."""
    why_not: str = ""
    """Why it says nothing: a sentence without its subject, the function."""


@dataclass(frozen=True)
class PlainFunction:
    """A function with the arguments that it was traced for."""

    function: Callable[..., Any]
    inputs: tuple[Any, ...]
    attributes: Mapping[str, Any]

    def __call__(self, *, on_error: Literal["ignore", "warn"] = "ignore") -> tuple[Array, ...]:
        """Call it with copies of its inputs, whose memory nobody else has, and return its results.

        ``on_error``: NumPy's reaction to numbers that it cannot compute with.
        """
        # NumPy's own numbers are no arrays without axes: nobody can write to them.
        copies = [value if isinstance(value, np.generic) else _like(host_array(value)) for value in self.inputs]
        with called_with_arrays(), np.errstate(all=on_error):
            result = self.function(*copies, **self.attributes)
        return tuple(np.array(one) for one in (result if isinstance(result, tuple | list) else [result]) if one is not None)

    def results(self, program: Program) -> tuple[Array, ...] | Answer:
        """Return the function's results or, if it cannot be called, the reason; ``program`` is its traced program."""
        if _half_flops(program) > _MOST_HALF_FLOPS:
            return Answer(why_not="multiplies matrices of float16, which takes NumPy long")
        try:
            return self()
        except ProgramError:
            return Answer(why_not="uses operators of Streamscope")
        except Exception as error:  # noqa: BLE001 — the user's code, which was written for variables of a program
            return Answer(why_not=f"raises {shown(described(error))} for NumPy arrays")

    def judged(
        self, found: tuple[Array, ...] | Answer, program: Program, results: Sequence[Array | None], allowed: Sequence[Array | None]
    ) -> Answer:
        """Compare the function's results with the program's; None is an unknown result.

        Where they differ, the function is called once more: one that returns something else then says nothing.
        """
        if isinstance(found, Answer):
            return found
        if same(found, results, allowed):
            return Answer()
        try:
            # Once more: a function that draws random numbers, or counts its calls, is no reference.
            again, is_open = self._again()
        except Exception as error:  # noqa: BLE001 — as above
            return Answer(why_not=f"raises {shown(described(error))} when it is called again")
        if not _equal(found, again):
            return Answer(why_not="returns other results when it is called again")
        if is_open or _converts_to_whole(program):
            return Answer(why_not="converts numbers to whole ones, or takes 1 / 0 of them, which NumPy may leave open")
        if adds_up_halves(program):
            return Answer(why_not="adds up numbers of float16, which NumPy rounds one by one")
        if len(found) != len(results):
            return Answer(why_not=f"returns {counted(len(found), 'array')} for NumPy arrays, and {len(results)} in a program")
        return Answer(found)

    def _again(self) -> tuple[tuple[Array, ...], bool]:
        """Return the results of a further call, and whether it meets one of `_LEFT_OPEN`."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            again = self(on_error="warn")
        return again, any(str(each.message).endswith(_LEFT_OPEN) for each in caught)


def _like(array: Array) -> Array:
    """Return a copy that lies in memory as the array does, on which it depends whether NumPy's reshape copies; read-only if that is."""
    copy = np.array(array, order="K")
    copy.flags.writeable = array.flags.writeable
    return copy


def same(found: Sequence[Array], results: Sequence[Array | None], allowed: Sequence[Array | None]) -> bool:
    """Tell whether a function's results are a program's: of the same shapes and dtypes, and as near as rounding explains."""
    return len(found) == len(results) and all(
        right is None
        or most is None
        or (one.shape == right.shape and one.dtype == right.dtype and bool(np.all(absolute_errors(one, right) <= most)))
        for one, right, most in zip(found, results, allowed, strict=True)
    )


def _equal(one: Sequence[Array], other: Sequence[Array]) -> bool:
    return len(one) == len(other) and all(
        a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind in "fc") for a, b in zip(one, other, strict=True)
    )


def _converts_to_whole(program: Program) -> bool:
    """Tell whether a program converts floating-point numbers to whole ones: out of range, NumPy leaves open what comes, often silently."""
    kinds = (
        [program.variables[one].spec.dtype.kind for one in (*each.reads, *each.writes)]
        for each in program.operations
        if each.name == "astype"
    )
    return any(source == "f" and target in "iu" for source, target in kinds)


def _half_flops(program: Program) -> int:
    """Return how many operations libraries take for matrices of float16."""
    return sum(
        launch.cost.flops
        for launch in program.launches()
        if launch.library and any(program.variables[variable].spec.dtype == np.float16 for variable in launch.reads)
    )
