"""The file of a cubin tells whether it is whole: whatever is cut off, changed or added is noticed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamscope.kernels.compile.cubin import CHECKSUM_END, MAGIC, Cubin, checksum_of, packed, unpacked

WHOLE = Cubin(b"\x7fELF machine code" * 9, "sm_90", "13.0", 123_456_789, 3)
CONTENT = packed(WHOLE)

words = st.text(max_size=9)
cubins = st.builds(Cubin, st.binary(max_size=300), words, words, st.integers(0, 2**63), st.integers(1, 99))


@given(cubins)
def test_what_is_packed_is_unpacked(cubin):
    assert unpacked(packed(cubin)) == cubin


def test_truncated_anywhere():
    assert [length for length in range(len(CONTENT)) if unpacked(CONTENT[:length]) is not None] == []


def test_any_bit_flipped():
    for at in range(len(CONTENT)):
        for bit in range(8):
            changed = bytearray(CONTENT)
            changed[at] ^= 1 << bit
            assert unpacked(bytes(changed)) is None, (at, bit)


@given(st.binary(max_size=200))
def test_anything_else(content):
    assert unpacked(content) is None
    assert unpacked(MAGIC + content) is None
    assert unpacked(CONTENT + content + b"\0") is None


def test_the_start_has_the_checksum():
    assert checksum_of(CONTENT[:CHECKSUM_END]) == CONTENT[len(MAGIC) : CHECKSUM_END]
