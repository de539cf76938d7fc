"""Cubins as files that can tell whether they are whole: a magic word, a checksum of all that follows, a header, the machine code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from streamscope.rtc.cubin import Cubin

FORMAT = 1
MAGIC = b"SSCUBIN" + bytes([FORMAT])
CHECKSUM_END = len(MAGIC) + 32
HEADER_START = CHECKSUM_END + 4


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
    return Cubin(image=content[_header_end(content) :], **header_of(content))


def checksum_of(start: bytes) -> bytes | None:
    """Return the checksum that stands in the first bytes of a file; None where it is none of ours, or too short."""
    return start[len(MAGIC) : CHECKSUM_END] if start.startswith(MAGIC) and len(start) >= CHECKSUM_END else None


def header_of(start: bytes) -> Mapping[str, Any]:
    """Return what the first bytes of a file say about its cubin; empty where they say nothing."""
    try:
        header = json.loads(start[HEADER_START : _header_end(start)])
    except ValueError:
        return {}
    return header if isinstance(header, dict) else {}


def _header_end(start: bytes) -> int:
    return HEADER_START + int.from_bytes(start[CHECKSUM_END:HEADER_START], "little")
