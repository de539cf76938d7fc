"""Files that gzip compressed, decompressed while they are read."""

from __future__ import annotations

import io
import zlib
from typing import TYPE_CHECKING, BinaryIO

from streamscope.trace.file_checks import DamagedError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MAGIC = b"\x1f\x8b"
_AT_ONCE = 1 << 12
"""Compressed bytes that are decompressed together: they become at most 4 MiB, so that a small file cannot fill the memory."""
_GZIP = 16 + zlib.MAX_WBITS


class Decompressed(io.RawIOBase):
    """A gzip stream, decompressed as it is read. It cannot seek.

    Where its data are damaged or end too early, `readinto` raises. With ``skip`` it stops there, and ``damage`` holds the reason.
    """

    def __init__(self, file: BinaryIO | io.BufferedIOBase, *, skip: bool = False) -> None:
        self.damage = ""
        self._file, self._skip = file, skip
        self._member = zlib.decompressobj(_GZIP)
        self._members, self._began = 0, False
        self._text = bytearray()
        self._ended = False

    def readable(self) -> bool:
        """Tell that it can be read."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fill a buffer with decompressed bytes, wholly but at the end, and return how many they are."""
        with memoryview(buffer) as view, view.cast("B") as wanted:
            while len(self._text) < len(wanted) and not self._ended:
                self._read_more()
            count = min(len(wanted), len(self._text))
            wanted[:count] = self._text[:count]
        del self._text[:count]
        return count

    def _read_more(self) -> None:
        data = self._file.read(_AT_ONCE)
        if not data:
            self._end("they end too early" if self._began or not self._members else "")
        while data and not self._ended:
            data = self._decompress(data)

    def _decompress(self, data: bytes) -> bytes:
        """Decompress a chunk; return the bytes behind the end of its member, where another one may begin."""
        if not self._began and self._members:
            data = data.lstrip(b"\0")  # Some writers fill up a block.
        if not data:
            return b""
        self._began = True
        # After an error, zlib keeps nothing of the chunk; the copy decompresses it again, byte by byte.
        before = self._member.copy()
        try:
            self._text += self._member.decompress(data)
        except zlib.error as error:
            self._text += _until_damage(before, data)
            self._end(str(error))
            return b""
        if not self._member.eof:
            return b""
        rest, self._member, self._began = self._member.unused_data, zlib.decompressobj(_GZIP), False
        self._members += 1
        return rest

    def _end(self, damage: str) -> None:
        self._ended = True
        if damage and not self._skip:
            raise DamagedError(f"its compressed data are damaged or truncated: {damage}")
        self.damage = damage


def _until_damage(member: zlib._Decompress, data: bytes) -> bytes:
    """Return all that can be decompressed before data turn out to be damaged."""
    found = bytearray()
    try:
        for byte in data:
            found += member.decompress(bytes((byte,)))
    except zlib.error:
        pass
    return bytes(found)
