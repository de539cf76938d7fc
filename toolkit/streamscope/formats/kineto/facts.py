"""What Kineto's arguments say of collectives, and of copies between GPUs."""

from __future__ import annotations

from typing import Any

from streamscope.errors import printable
from streamscope.formats.kineto.events import Arguments
from streamscope.trace.communication import collective_kind
from streamscope.trace.instances import CollectiveFacts, PeerFacts
from streamscope.trace.spans import MOST_GPU

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
        communicator=_communicator(given),
        sequence=_whole(given.sequence, -1),
        instance=_whole(given.instance, -1, most=2**31 - 1),
    )


def _communicator(given: Arguments) -> str:
    """Return the name of the process group with its ranks: two groups may have one name, and two names one group."""
    texts = (text if isinstance(text, str) else "" if text is None else str(text) for text in (given.group, given.group_ranks))
    return printable(" ".join(filter(None, texts)))[:_LONGEST_NAME]


def _whole(value: Any, missing: int, *, most: int = 2**53) -> int:
    """Return a whole number from 0 on, also from a text."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 19:
        value = int(value)
    return value if type(value) is int and 0 <= value <= most else missing
