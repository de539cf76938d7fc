"""Values of the events of a Kineto file: columns of numbers, and what arguments say of collectives and copies between GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.errors import printable
from streamscope.formats.kineto.events import Arguments, Sizes
from streamscope.trace.activities import FAR_NS
from streamscope.trace.communication import collective_kind
from streamscope.trace.instances import CollectiveFacts, PeerFacts
from streamscope.trace.spans import MOST_GPU

_MOST_DIGITS = 20
"""Of a number that is a text."""


def times_ns(values: Sequence[Any]) -> npt.NDArray[np.int64]:
    """Return times in µs, doubles or decimal numbers, as whole ns; those beyond `FAR_NS`, which are left out and noted, as that."""
    if values and not isinstance(values[0], float):
        return np.array([int(min(max((value * 1000).to_integral_value(), -FAR_NS), FAR_NS)) for value in values], np.int64)
    us = np.clip(np.array(values, np.float64), -FAR_NS / 1000, FAR_NS / 1000)
    whole = np.floor(us)
    return whole.astype(np.int64) * 1000 + np.rint((us - whole) * 1000).astype(np.int64)


def whole_numbers(values: Sequence[Any], missing: int) -> npt.NDArray[np.int64]:
    """Return whole numbers, which some versions write as texts."""
    numbers = [missing if value is None else value for value in values]
    found = np.array(numbers or np.zeros(0, np.int64))
    if found.dtype != np.int64 or found.ndim != 1:
        found = np.array([_parsed(number) for number in numbers], np.int64)
    return found


def _parsed(value: Any) -> int:
    """Return a whole number of 64 bits; one without a sign beyond half of them stands for a negative one, as 2**64 - 1 for -1."""
    try:
        number = int(value) if isinstance(value, str) and len(value) <= _MOST_DIGITS else value
    except ValueError:
        number = None
    if type(number) is not int or not -(2**63) <= number < 2**64:
        raise ValueError(f"{value!r:.20} is not a whole number of 64 bits")
    return number if number < 2**63 else number - 2**64


def products(values: Sequence[Sizes | str | int | None]) -> npt.NDArray[np.int64]:
    """Return the product of each three sizes; 0 where there are none, -1 where it cannot be."""
    known: dict[Sizes | str | int | None, int] = {None: 0}  # few different ones stand in many events
    found = []
    for value in values:
        product = known.get(value)
        if product is None:
            product = known[value] = _product(value)
        found.append(product)
    return np.array(found, np.int64)


def _product(sizes: Sizes | str | int | None) -> int:
    if not isinstance(sizes, Sizes):
        raise TypeError(f"{sizes!r:.20} is not the size of a grid or a block")
    product = sizes.x * sizes.y * sizes.z
    return product if min(sizes.x, sizes.y, sizes.z) >= 0 and product < 2**63 else -1


_LONGEST_NAME = 500
"""Characters of a communicator's name, which may list its ranks."""
_MOST_BYTES = 2**62
_ITEMSIZE = {
    "byte": 1, "char": 1, "bool": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "half": 2,
    "bfloat16": 2, "short": 2, "int": 4, "float": 4, "uint32": 4, "long": 8, "double": 8, "complexfloat": 8, "uint64": 8,
    "complexdouble": 16,
}  # fmt: skip
"""Bytes of an element by PyTorch's names of types."""


def fact_of(given: Arguments) -> CollectiveFacts | PeerFacts:
    """Return what the arguments of a kernel or a copy say; what they do not say in Kineto's way is left out."""
    if given.collective is None:
        return PeerFacts(_whole(given.from_gpu, -1, most=MOST_GPU), _whole(given.to_gpu, -1, most=MOST_GPU))
    elements = [_whole(count, 0) for count in (given.elements_in, given.elements_out)]
    kind = collective_kind(given.collective) if isinstance(given.collective, str) else ""
    # All-gather writes, and reduce-scatter reads, the whole buffer. An all-to-all may send more than it gets.
    count = elements[0] if kind == "all_to_all" and elements[0] else max(elements)
    nbytes = count * _ITEMSIZE.get(str(given.dtype).lower(), 0)
    return CollectiveFacts(
        kind=kind,
        op=given.reduction if given.reduction in ("sum", "mean", "min", "max", "prod") else "",
        nbytes=nbytes if nbytes < _MOST_BYTES else 0,
        ranks=_whole(given.group_size, 0, most=2**31 - 1),
        communicator=_communicator(*("" if text is None else str(text) for text in (given.group, given.group_ranks))),
        sequence=_whole(given.sequence, -1),
        instance=_whole(given.instance, -1, most=2**31 - 1),
        peer=_whole({"send": given.receiver, "recv": given.sender}.get(kind), -1, most=2**31 - 1),
    )


@lru_cache(maxsize=1024)
def _communicator(group: str, ranks: str) -> str:
    """Return the name of a process group with its ranks: two groups may have one name, and two names one group."""
    return printable(" ".join(filter(None, (group, ranks))))[:_LONGEST_NAME]


def _whole(value: Any, missing: int, *, most: int = 2**53) -> int:
    """Return a whole number from 0 on, also from a text."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 19:
        value = int(value)
    return value if type(value) is int and 0 <= value <= most else missing
