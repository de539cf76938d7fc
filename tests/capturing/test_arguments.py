"""Parameters of kernels as CUDA hands them over, in this process's memory, with a driver that only knows their layout."""

from __future__ import annotations

import ctypes
import struct
from itertools import permutations
from types import SimpleNamespace

import pytest

from streamscope.capturing import allocations, nodes
from streamscope.capturing.allocations import Allocated
from streamscope.capturing.memory import around
from streamscope.capturing.nodes import Parameter, parameters_of, pointers_among

LAYOUT = [(0, 8), (8, 4), (16, 24)]
"""Offset and size of three parameters: an address, a number, a structure."""
VALUES = [struct.pack("<Q", 0x7F0000000000), struct.pack("<i", -5), struct.pack("<QQQ", 3, 0x7F0000000200, 7)]
PACKED = VALUES[0] + VALUES[1] + b"\xff" * 4 + VALUES[2]


@pytest.fixture
def driver(monkeypatch):
    """A driver that knows the layout of a function and two pieces of memory, and counts what it is asked."""
    regions = [(0x10000, 0x20000), (0x30000, 0x30200)]
    fake = SimpleNamespace(layout=LAYOUT, asked=0)

    def info(function, number):
        return (0, *fake.layout[number]) if number < len(fake.layout) else (1, 0, 0)

    def address_range(address):
        fake.asked += 1
        found = around(regions, address)
        return (0, found[0], found[1] - found[0]) if found else (1, 0, 0)

    fake.cuFuncGetParamInfo, fake.cuMemGetAddressRange = info, address_range
    for module in (allocations, nodes):
        monkeypatch.setattr(module, "libraries", lambda: SimpleNamespace(cuda=fake))
    return fake


def in_memory(values: bytes) -> ctypes.Array:
    return ctypes.create_string_buffer(values, len(values))


def packed(buffer: ctypes.Array, keys=(1, 2)) -> tuple[ctypes.Array, object]:
    """Return a list of keys and values that names a buffer, and what must stay alive."""
    size = in_memory(struct.pack("<Q", len(buffer)))
    values = {1: ctypes.addressof(buffer), 2: ctypes.addressof(size)}
    return in_memory(b"".join(struct.pack("<QQ", key, values[key]) for key in keys) + struct.pack("<Q", 0)), (buffer, size)


def test_plain_parameters_are_read_where_each_lies(driver):
    values = [in_memory(one) for one in VALUES]
    array = in_memory(struct.pack("<QQQ", *map(ctypes.addressof, values)))
    found = parameters_of(None, ctypes.addressof(array), 0)
    assert found == tuple(Parameter(offset, value) for (offset, _), value in zip(LAYOUT, VALUES, strict=True))


@pytest.mark.parametrize("keys", list(permutations((1, 2))))
def test_a_packed_buffer_is_cut_as_the_function_says_whatever_the_order_of_its_keys(driver, keys):
    extra, kept = packed(in_memory(PACKED), keys)
    assert parameters_of(None, 0, ctypes.addressof(extra)) == tuple(
        Parameter(offset, value) for (offset, _), value in zip(LAYOUT, VALUES, strict=True)
    )
    assert kept


@pytest.mark.parametrize("layout", [[], [(0, 8), (8, 4), (16, 100)]])
def test_a_packed_buffer_whose_parts_are_not_known_is_one_parameter(driver, layout):
    driver.layout = layout
    extra, kept = packed(in_memory(PACKED))
    assert parameters_of(None, 0, ctypes.addressof(extra)) == (Parameter(0, PACKED),)
    assert kept


def test_a_kernel_without_parameters(driver):
    driver.layout = []
    assert parameters_of(None, 0, 0) == ()


def test_words_are_the_aligned_ones():
    assert Parameter(0, VALUES[2]).words == (3, 0x7F0000000200, 7)
    assert Parameter(0, VALUES[1]).words == ()
    assert Parameter(4, VALUES[0] + VALUES[1]).words == (0x7F0000000000,)


def test_the_driver_is_asked_once_for_each_piece_of_memory(driver):
    where = Allocated().around
    words = [5, 0x10000, 0x1FFFF, 0x20000, 0x30000, 0x301FF, 0x30200, 2**60, 0x10000]
    assert pointers_among(words, where) == (0x10000, 0x1FFFF, 0x30000, 0x301FF)
    assert driver.asked == 4  # The two pieces, and two words just behind them.
    assert pointers_among(words, where) == (0x10000, 0x1FFFF, 0x30000, 0x301FF)
    assert driver.asked == 4


def test_what_is_known_goes_before_what_the_driver_says(driver):
    where = Allocated([(0x11000, 0x12000)]).around
    assert where(0x11800) == (0x11000, 0x12000)
    assert driver.asked == 0
    assert where(0x12000) == (0x10000, 0x20000)


def test_an_address_between_the_allocations_of_a_pool_lies_in_none_of_them(driver):
    allocated = Allocated(held=[(0x10000, 0x11000)], pools=[(0x10000, 0x20000)])
    assert allocated.piece(0x10800) == (0x10000, 0x11000)
    assert allocated.piece(0x11000) is None
    assert driver.asked == 0
    assert allocated.piece(0x30000) == (0x30000, 0x30200)
