"""Cubins as files that can tell whether they are whole: a magic word, a checksum of all that follows, a header, the machine code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from streamscope.kernels.compile.cubin import Cubin

FORMAT = 1
MAGIC = b"SSCUBIN" + bytes([FORMAT])
CHECKSUM_END = len(MAGIC) + 32
HEADER_START = CHECKSUM_END + 4
HEADER_BYTES = 4096
"""The header ends before this; what stands there else need not be read to tell that it is none."""


def packed(cubin: Cubin) -> bytes:
    """Return a cubin as the content of a file."""
    fields = asdict(cubin)
    image: bytes = fields.pop("image")
    header = json.dumps(fields).encode()
    body = len(header).to_bytes(4, "little") + header + image
    return MAGIC + hashlib.sha256(body).digest() + body


def unpacked(content: bytes) -> Cubin | None:
    """Return the cubin in the content of a file; None where it is none of ours, truncated or changed."""
    checksum = checksum_of(content)
    if checksum is None or hashlib.sha256(content[CHECKSUM_END:]).digest() != checksum:
        return None
    header = header_of(content)
    return Cubin(image=content[_header_end(content) :], **header) if header else None


def checksum_of(start: bytes) -> bytes | None:
    """Return the checksum that stands in the first bytes of a file; None where it is none of ours, or too short."""
    return start[len(MAGIC) : CHECKSUM_END] if start.startswith(MAGIC) and len(start) >= CHECKSUM_END else None


def header_of(start: bytes) -> Mapping[str, Any]:
    """Return what the first bytes of a file say about its cubin; empty where that is not what `packed` writes."""
    try:
        header = json.loads(start[HEADER_START : min(_header_end(start), HEADER_BYTES)])
    except (ValueError, RecursionError):
        return {}
    known = isinstance(header, dict) and header.keys() == _FIELDS.keys()
    return header if known and all(fits(header[name]) for name, fits in _FIELDS.items()) else {}


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value <= 2**63  # a truth value is an int, too


_FIELDS: Mapping[str, Callable[[object], bool]] = {
    "architecture": _is_text,
    "nvrtc": _is_text,
    "compile_ns": _is_number,
    "kernels": lambda value: _is_number(value) and value != 0,
}


def _header_end(start: bytes) -> int:
    return HEADER_START + int.from_bytes(start[CHECKSUM_END:HEADER_START], "little")
