"""Files that somebody else may have written or damaged: ordinary and not too large, strict JSON, a digest of what it holds."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from streamscope.trace.values import is_count, plain

SCHEMA_VERSION = 2
"""Of traces and of comparisons in files. From 2 on, a file holds a digest of its content."""
MOST_JSON_BYTES = 1 << 24


@contextmanager
def opened(path: Path, most_bytes: int) -> Iterator[BinaryIO]:
    """Open an ordinary file of at most so many bytes.

    Raises
    ------
    OSError
        It cannot be opened, is too large, or is something else, such as a named pipe, which could keep a reader waiting for ever.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is a folder, a named pipe or a device, not an ordinary file")
    if status.st_size > most_bytes:
        raise OSError(errno.EFBIG, f"it has {status.st_size:,} bytes, more than the {most_bytes:,} that are read")
    with path.open("rb") as file:
        yield file


def read_content(path: Path) -> dict[str, Any]:
    """Read a file of JSON that holds what `with_digest` returned, or what was written before there were digests.

    Raises
    ------
    OSError
        As from `opened`.
    TypeError, ValueError
        It is not JSON, or not what was written.
    """
    with opened(path, MOST_JSON_BYTES) as file:
        return checked_content(parsed(file.read(MOST_JSON_BYTES)))


def parsed(text: bytes) -> Any:
    """Return the value of a JSON text, without what JSON does not know or no number can hold.

    Raises
    ------
    ValueError
        It is not JSON or too long, has NaN, a number that no double or 64 bits can hold, one key twice, or is nested too deeply.
    """
    if len(text) > MOST_JSON_BYTES:
        raise ValueError(f"it has {len(text):,} bytes of JSON, more than the {MOST_JSON_BYTES:,} that are read")
    try:
        return json.loads(text, parse_constant=_constant, parse_float=_finite, parse_int=_whole, object_pairs_hook=_without_doubles)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def with_digest(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return content, as JSON values, with the version of its schema and with its digest."""
    complete: dict[str, Any] = {"schema": SCHEMA_VERSION} | plain(content)
    return complete | {"digest": _digest(complete)}


def checked_content(content: Any) -> dict[str, Any]:
    """Return what `with_digest` returned, if nobody has changed it since.

    Raises
    ------
    TypeError, ValueError
        It was changed, or written by a newer version.
    """
    if not isinstance(content, dict):
        raise TypeError(f"it holds a {type(content).__name__} instead of names with values")
    found: dict[str, Any] = content
    schema = found.get("schema", 1)
    if not is_count(schema) or not 1 <= schema <= SCHEMA_VERSION:
        raise ValueError(f"it has schema {schema!r:.20}, and this Streamscope reads up to {SCHEMA_VERSION}: upgrade streamscope")
    if schema == 1 and "digest" not in found:
        return found
    if found.get("digest") != _digest({key: value for key, value in found.items() if key != "digest"}):
        raise ValueError("it was changed after it was written, since its digest does not fit")
    return found


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()).hexdigest()


def _constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    if not math.isfinite(number := float(digits)):
        raise ValueError(f"{digits:.20} is too large")
    return number


def _whole(digits: str) -> int:
    if len(digits) > 20 or not -(2**63) <= (number := int(digits)) < 2**63:
        raise ValueError(f"{digits:.20}… is too large: whole numbers may have 64 bits")
    return number


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("an object has one name twice")
    return content
