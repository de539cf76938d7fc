"""Whether captured code does what a plain call of the same function does: calls the same operators, with the same results."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from streamscope.arrays import Array
from streamscope.capturing.arrays import allowed, copyable, fetched
from streamscope.capturing.nodes import LaunchableNode
from streamscope.capturing.operators import Operator, Parting, listening, results_of
from streamscope.capturing.state import LEFT_FREE
from streamscope.kernels.library.libraries import libraries
from streamscope.tolerance import absolute_errors
from streamscope.words import counted


@dataclass(frozen=True)
class AsCalled:
    """How captured code compares with a plain call on the same inputs and from the same state.

    Attributes
    ----------
    results : int
        How many results were compared.
    error : float
        How far they are from those of the plain call, as a share of the largest value of a result.
    rounded : bool
        Whether rounding explains that.
    parting : Parting, optional
        Where the capture first called another operator than the plain call; None where all are the same, or nobody could listen.
    first : str
        The first operator whose result differs, with its module and line; empty where there is none, or it is not known.
    heard : bool
        Whether operators of both were compared.

    Examples
    --------
    >>> from streamscope.capturing.as_called import AsCalled
    >>> print(AsCalled(results=1, error=2e-4, first="aten.mm.default (model.py:7)"))
    Captured results differ from those of a plain call by up to 0.0002 of the largest value, as rounding may: first aten.mm.default (...7).
    """

    results: int
    error: float = 0.0
    rounded: bool = True
    parting: Parting | None = None
    first: str = ""
    heard: bool = True

    @property
    def verdict(self) -> Literal["equal", "rounding", "different", "unknown"]:
        """``"equal"`` in each bit, equal but for ``"rounding"``, or ``"different"``: further off, or off at all after going another way.

        ``"unknown"`` where it returns nothing and no operators were heard.
        """
        if self.results and not self.error:
            return "equal"
        if not self.results and not self.heard and self.parting is None:
            return "unknown"
        return "different" if self.parting is not None or not self.rounded else "rounding" if self.error else "equal"

    def __str__(self) -> str:
        how_far = f"by up to {self.error:.2g} of the largest value" if math.isfinite(self.error) else "in elements that are not finite"
        way = f"it goes another way, {self.parting}; some code looks whether a stream captures" if self.parting is not None else ""
        if way and self.verdict == "different":
            return f"Captured is not called: {way}." + (f" Its results differ {how_far}." if self.results else "")
        if self.verdict == "unknown":
            return (
                "Nobody knows whether it does captured what it does when called: it returns nothing, and calls no operators of PyTorch's."
            )
        if not self.results:
            return "Captured, it calls the same operators as a plain call; it returns nothing to compare."
        if not self.error:
            though = f", though {way}" if way else ""
            return f"Captured, it returns what a plain call returns: {counted(self.results, 'result')}, equal in each bit{though}."
        first = f": first {self.first}" if self.first else ""
        cause = ", as rounding may" if self.rounded else ", more than rounding explains"
        return f"Captured results differ from those of a plain call {how_far}{cause}{first}."


Apart = tuple[Operator | None, Operator | None]
"""The first operator whose result differs from that of a plain call, and the first whose result differs by more than rounding explains."""


def as_called(
    results: Sequence[Any], expected: Sequence[Array], parting: Parting | None, first: Callable[[], Apart], *, heard: bool = True
) -> AsCalled:
    """Compare results of captured code with those of a plain call; ``first`` looks for the operators that are apart, as `first_apart`."""
    found = [_apart(one, right) for one, right in zip(results, expected, strict=True)]
    error, rounded = max((share for share, _ in found), default=0.0), all(close for _, close in found)
    bits, further = first() if error and parting is None else (None, None)
    operator = bits if rounded else further or bits
    return AsCalled(len(found), error, rounded, parting, "" if operator is None else operator.named, heard)


def _apart(result: Any, right: Array) -> tuple[float, bool]:
    """Return how far an array is from what it should be, as a share of the largest value, and whether rounding explains that."""
    errors = absolute_errors(fetched(result), right)
    largest = float(np.abs(np.where(np.isfinite(right), right, 0)).max(initial=0.0)) if right.dtype.kind != "b" else 1.0
    most = float(errors.max(initial=0.0))
    return most / largest if most and largest else most, bool((errors <= allowed(result, right)).all())


def results_of_plain_call(call: Callable[[], Any], wanted: Collection[int]) -> dict[int, list[Any]]:
    """Make a plain call, and return copies of the results of some operators, by their numbers: of the first, where memory ends."""
    copies: dict[int, list[Any]] = {}
    calls, room = 0, int(libraries().runtime.memGetInfo()[0]) - LEFT_FREE

    def hear(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        nonlocal calls, room
        result = operator(*args, **kwargs)
        if calls in wanted and room > 0:
            copies[calls] = [copyable(one).clone().view(one.dtype) for one in results_of(operator, args, kwargs, result)]
            room -= sum(one.nbytes for one in copies[calls])
        calls += 1
        return result

    with listening(hear):
        call()
    return copies


def first_apart(nodes: Sequence[LaunchableNode], operators: Sequence[Operator], plain: Mapping[int, Sequence[Any]]) -> Apart:
    """Run nodes one by one, and return the first operators whose results are apart from those of a plain call, by their numbers."""
    numbers = {node.handle: number for number, node in enumerate(nodes)}
    ending = {max(numbers[one] for one in operator.nodes): operator for operator in operators if operator.call in plain}
    stream = libraries().cupy.cuda.Stream(non_blocking=True)
    bits: Operator | None = None
    for number, node in enumerate(nodes):
        node.bind(stream.ptr)()
        operator = ending.get(number)
        if operator is not None:
            stream.synchronize()
            apart, further = _results_apart([place.tensor() for place in operator.results], plain[operator.call])
            bits = bits or (operator if apart else None)
            if further:
                return bits, operator
    stream.synchronize()
    return bits, None


def _results_apart(results: Sequence[Any], plain: Sequence[Any]) -> tuple[bool, bool]:
    """Tell whether results of an operator differ from those of a plain call, and whether by more than rounding explains."""
    # Bits on the device first: most are equal, and to fetch them all takes long.
    found = [_apart(one, fetched(right)) for one, right in zip(results, plain, strict=True) if not _same_bits(one, right)]
    return any(share for share, _ in found), any(not close for _, close in found)


def _same_bits(one: Any, other: Any) -> bool:
    torch = sys.modules["torch"]
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[one.dtype.itemsize]
    return bool(torch.equal(one.view(whole), other.view(whole)))
