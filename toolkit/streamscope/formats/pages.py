"""Footer and page headers of a Parquet file, checked before Arrow reads it.

Arrow crashes on some damaged footers, and takes as much memory as a page claims to need. So footer and page headers are decoded here, as
far as that matters. Both are structs of Thrift's compact protocol; a struct is decoded to a dict from the numbers of its fields.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

MAGIC = b"PAR1"
_MOST_FOOTER_BYTES = 1 << 26
MOST_PAGE_BYTES = 1 << 29
"""Of all pages together, once they are decompressed."""
_MOST_VALUES, _MOST_PAGES = 1_000_000, 100_000
_DEEPEST = 12
_BOOLEANS = {1: True, 2: False}


def checked_columns(data: bytes, most_rows: int) -> list[str]:
    """Check the footer and all page headers of a Parquet file with flat columns, and return the names of these.

    ``data``: the whole file.
    """
    footer = _footer(data)
    leaves = _leaves(footer[2])
    groups = footer[4]
    rows = sum(group[3] for group in groups)
    if footer[3] != rows or not 0 <= rows <= most_rows or any(group[3] < 0 for group in groups):
        raise ValueError(f"its footer counts {footer[3]:,} rows, its row groups {rows:,}; at most {most_rows:,} are read")
    nbytes = pages = 0
    for group in groups:
        chunks = [chunk[3] for chunk in group[1]]
        if [(chunk[1], chunk[3]) for chunk in chunks] != leaves:
            raise ValueError("its columns are not those of its schema")
        for chunk in chunks:
            sizes = _page_sizes(data, chunk, group[3], _MOST_PAGES - pages)
            pages += len(sizes)
            nbytes += sum(sizes)
    if nbytes > MOST_PAGE_BYTES:
        raise ValueError(f"its pages take {nbytes:,} bytes once they are decompressed, more than the {MOST_PAGE_BYTES:,} that are read")
    return [path[0].decode() for _, path in leaves]


def _footer(data: bytes) -> dict[int, Any]:
    if len(data) < 12 or data[:4] != MAGIC or data[-4:] != MAGIC:
        raise ValueError("it does not begin and end with PAR1")
    length = int.from_bytes(data[-8:-4], "little")
    if length > min(_MOST_FOOTER_BYTES, len(data) - 12):
        raise ValueError(f"its footer claims {length:,} of {len(data):,} bytes; at most {_MOST_FOOTER_BYTES:,} are read")
    return _Compact(data, len(data) - 8 - length, len(data) - 8).struct()


def _leaves(schema: list[dict[int, Any]]) -> list[tuple[int, list[bytes]]]:
    """Return type and path of each column; none is nested."""
    root, *columns = schema
    if root[5] != len(columns) or any(column.get(5) or column.get(3) == 2 for column in columns):
        raise ValueError("its columns are nested")
    return [(column[1], [column[4]]) for column in columns]


def _page_sizes(data: bytes, chunk: dict[int, Any], rows: int, most: int) -> list[int]:
    """Check the pages of one column in one group of rows, and return how many bytes each has once it is decompressed."""
    if chunk[5] == rows == 0:
        return []  # Arrow says that they are at 0, and reads none.
    at = min(chunk[9], chunk.get(11) or chunk[9])
    end = at + chunk[7]
    if chunk[5] != rows or not 4 <= at <= end <= len(data):
        raise ValueError("a column's offset or length in the footer is wrong")
    values, sizes = 0, list[int]()
    while values < rows or at < end:
        reader = _Compact(data, at, end)
        page = reader.struct()
        if page[2] < 0 or not 0 <= page[3] <= end - reader.at:
            raise ValueError(f"a page claims {page[3]:,} bytes, {page[2]:,} decompressed")
        values += max(0, (page.get(5) or page.get(8) or {1: 0})[1])
        sizes.append(page[2])
        if len(sizes) > most:
            raise ValueError(f"it has more than {_MOST_PAGES:,} pages")
        at = reader.at + page[3]
    if values != rows:
        raise ValueError(f"a column has {values:,} values in {rows:,} rows")
    return sizes


@dataclass
class _Compact:
    """Decodes Thrift's compact protocol from ``data[at:end]``."""

    data: bytes
    at: int
    end: int
    depth: int = 0
    values: int = 0

    def struct(self) -> dict[int, Any]:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise ValueError("it is nested too deeply")
        fields: dict[int, Any] = {}
        number = 0
        while header := self._byte():
            number = number + (header >> 4) if header >> 4 else self._signed()
            kind = header & 15
            fields[number] = _BOOLEANS[kind] if kind in _BOOLEANS else self._value(kind)
        self.depth -= 1
        return fields

    def _value(self, kind: int) -> Any:
        self.values += 1
        if self.values > _MOST_VALUES:
            raise ValueError(f"its footer holds more than {_MOST_VALUES:,} values")
        if kind in (4, 5, 6):
            return self._signed()
        if kind in (1, 2, 3):
            return self._byte()
        if kind == 7:
            return struct.unpack("<d", self._bytes(8))
        if kind == 8:
            return self._bytes(self._varint())
        if kind in (9, 10):
            header = self._byte()
            length = header >> 4 if header >> 4 < 15 else self._varint()
            # Before the list is made: a length of some bytes could ask for all memory.
            if length > self.end - self.at:
                raise ValueError("a list is longer than its page header or footer")
            return [self._value(header & 15) for _ in range(length)]
        if kind == 12:
            return self.struct()
        raise ValueError(f"it has a value of the unknown kind {kind}")

    def _bytes(self, length: int) -> bytes:
        if length > self.end - self.at:
            raise ValueError("it ends in the middle of a value")
        self.at += length
        return self.data[self.at - length : self.at]

    def _byte(self) -> int:
        return self._bytes(1)[0]

    def _varint(self) -> int:
        number = shift = 0
        while (byte := self._byte()) & 128:
            number |= (byte & 127) << shift
            shift += 7
            if shift > 63:
                raise ValueError("a number has too many bytes")
        return number | byte << shift

    def _signed(self) -> int:
        number = self._varint()
        return (number >> 1) ^ -(number & 1)
