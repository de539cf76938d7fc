"""The parameters of captured kernels, as the nodes hold them, and the addresses of device memory among them."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamscope.capturing.memory import AddressRange
from streamscope.kernels.library.libraries import libraries

Around = Callable[[int], AddressRange | None]
"""``around(address)`` returns the piece of memory that an address lies in."""

WORD = 8
_END, _BUFFER, _SIZE = 0, 1, 2  # CU_LAUNCH_PARAM_END, _BUFFER_POINTER, _BUFFER_SIZE


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel."""

    offset: int
    """Where it begins among all of them, in bytes."""
    values: bytes
    """Its value: a number, an address, a structure that is passed whole. A packed buffer whose parts nobody knows is one parameter."""

    @property
    def words(self) -> tuple[int, ...]:
        """Its aligned words of eight bytes, where an address can lie; also those of structures and tensor maps (see below)."""
        return tuple(np.frombuffer(self.values[: len(self.values) // WORD * WORD], np.uint64).tolist())


def parameters_of(function: Any, parameters: int, extra: int) -> tuple[Parameter, ...]:
    """Return the parameters of a kernel node.

    ``parameters``: address of an array of pointers to values; 0 where there is none.
    ``extra``: address of a list of keys and values that names one packed buffer, as libraries hand it over; 0 where there is none.
    """
    if parameters:
        pieces = enumerate(_described(function))
        return tuple(Parameter(offset, ctypes.string_at(_word_at(parameters + WORD * one), nbytes)) for one, (offset, nbytes) in pieces)
    if not extra:
        return ()
    packed = _packed(extra)
    described = list(_described(function))
    # Between two parameters there is padding at most, so described ones hold every word that means anything.
    if not described or any(offset + nbytes > len(packed) for offset, nbytes in described):
        return (Parameter(0, packed),)
    return tuple(Parameter(offset, packed[offset : offset + nbytes]) for offset, nbytes in described)


def _described(function: Any) -> Iterator[tuple[int, int]]:
    """Return offset and size of each parameter, as the function has them."""
    described = (libraries().cuda.cuFuncGetParamInfo(function, number) for number in itertools.count())
    return ((int(offset), int(nbytes)) for _, offset, nbytes in itertools.takewhile(lambda one: int(one[0]) == 0, described))


def _packed(extra: int) -> bytes:
    """Return the buffer that a list of keys and values names; libraries give the keys in any order."""
    values = {}
    while (key := _word_at(extra)) != _END:
        values[key], extra = _word_at(extra + WORD), extra + 2 * WORD
    return ctypes.string_at(values[_BUFFER], _word_at(values[_SIZE]))


def _word_at(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


def pointers_among(words: Iterable[int], where: Around) -> tuple[int, ...]:
    """Return those words that are addresses in some piece of memory, each once, in their order.

    Examples
    --------
    The first word lies in the only piece of memory, and the second one just behind it:

    >>> from streamscope.capturing.arguments import pointers_among
    >>> from streamscope.capturing.memory import around
    >>> pointers_among([0x10000, 0x20000], lambda address: around([(0x10000, 0x20000)], address))
    (65536,)
    """
    return tuple(word for word in dict.fromkeys(words) if where(word) is not None)
