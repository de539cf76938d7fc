"""Content of files, and its checks: values that fit, strict JSON, ordinary files of a limited size, a digest of the content.

Somebody else may have written a file, or damaged it. Fields of a trace and of a comparison are checked alike where they are made and where
they are read.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import math
import re
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from streamscope.errors import TraceError, printable
from streamscope.words import a_kind

SCHEMA_VERSION = 3
"""Of traces, comparisons and captured code in files: the only one that is read."""
MOST_JSON_BYTES = 1 << 24


class DamagedError(ValueError):
    """A file is damaged, but its whole parts can be read."""

    hint = 'damaged="skip" reads what is whole and counts the rest; in a terminal, --damaged skip'


def check_ordinary(path: Path, most_bytes: int) -> None:
    """Refuse anything but an ordinary file of at most so many bytes, as an `OSError`."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is a folder, a named pipe or a device, not an ordinary file")
    if status.st_size > most_bytes:
        raise OSError(errno.EFBIG, f"it has {status.st_size:,} bytes, more than the {most_bytes:,} that are read")


@contextmanager
def opened(path: Path, most_bytes: int) -> Iterator[io.BufferedReader]:
    """Open an ordinary file of at most so many bytes."""
    check_ordinary(path, most_bytes)
    with path.open("rb") as file:
        yield file


def whole(file: io.BufferedReader[Any], most_bytes: int) -> bytes:
    """Read an open file whole, which may turn out longer once it is decompressed.

    Raises
    ------
    TraceError
        It is too long.
    """
    data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise TraceError(f"it has more than the {most_bytes:,} bytes that are read")
    return data


@contextmanager
def file_errors(path: Path, *, hint: str | Callable[[], str], what: str = "", passing: Collection[BaseException] = ()) -> Iterator[None]:
    """Raise a `TraceError` that names the file, for anything wrong with it.

    Parameters
    ----------
    path : Path
    hint : str or callable
        Remedy where a file is refused, unless the error knows better; or a function that says it, called then. Of a damaged file, only
        the error can know one.
    what : str
        Name of the format that the file is damaged as.
    passing : collection of exceptions
        Those of the caller, which say nothing of the file.
    """
    try:
        yield
    except Exception as error:
        if error in passing or (isinstance(error, TraceError) and repr(str(path)) in error.message):
            raise  # A `TraceError` that names the file was told further down.
        if not isinstance(error, OSError | TraceError):
            raise TraceError(_damage(path, error, what), hint=error.hint if isinstance(error, DamagedError) else None) from error
        better = error.hint if isinstance(error, TraceError) else None
        raise TraceError(_refusal(path, error), hint=better or (hint if isinstance(hint, str) else hint())) from error


def _refusal(path: Path, error: OSError | TraceError) -> str:
    """Describe in words why a file is not read."""
    if isinstance(error, FileNotFoundError):
        return f"there is no trace file {'' if path.suffix else 'or folder '}{str(path)!r}"
    if isinstance(error, OSError):
        return f"cannot read {str(path)!r}: {error.strerror or error}"
    return f"cannot read {str(path)!r}: {error.message}"


def _damage(path: Path, error: Exception, what: str) -> str:
    """Describe the damage of a file in words."""
    kind = "" if isinstance(error, ValueError | TypeError) and str(error) else f"{type(error).__name__}: "
    shape = f" ({what})" if what else ""
    return f"the trace in {str(path)!r}{shape} is damaged: {kind}{printable(str(error)):.1000}"


def read_content(path: Path) -> dict[str, Any]:
    """Read a file of JSON that was written by `with_digest`."""
    with opened(path, MOST_JSON_BYTES) as file:
        return checked_content(parsed(file.read(MOST_JSON_BYTES)))


_LONG_NUMBER = re.compile(rb"[0-9]{19,}")
"""Others have 64 bits at most."""


def parsed(text: bytes) -> Any:
    """Return the value of a strict JSON text."""
    if len(text) > MOST_JSON_BYTES:
        raise ValueError(f"it has {len(text):,} bytes of JSON, more than the {MOST_JSON_BYTES:,} that are read")
    try:
        too_long = any(int(found[0][:20]) >= 2**63 for found in _LONG_NUMBER.finditer(text))
        whole = _whole if too_long else int  # A function of Python for each number takes long.
        return json.loads(text, parse_constant=_constant, parse_float=_finite, parse_int=whole, object_pairs_hook=without_doubles)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def with_digest(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return content, as JSON values, with the version of its schema and with its digest."""
    complete: dict[str, Any] = {"schema": SCHEMA_VERSION} | plain(content)
    return complete | {"digest": _digest(complete)}


def checked_content(content: Any) -> dict[str, Any]:
    """Return the content of `with_digest`, if nobody has changed it since."""
    if not isinstance(content, dict):
        raise TypeError(f"it holds {a_kind(content)} instead of a JSON object")
    found: dict[str, Any] = content
    if "schema" not in found:
        raise ValueError("it has no schema number, so Streamscope did not write it")
    if (schema := found["schema"]) != SCHEMA_VERSION:
        way_out = "make it again" if schema in range(SCHEMA_VERSION) else "upgrade streamscope"
        raise ValueError(f"it has schema {schema!r:.20}, and this Streamscope reads schema {SCHEMA_VERSION}: {way_out}")
    if found.get("digest") != _digest({key: value for key, value in found.items() if key != "digest"}):
        raise ValueError("its digest does not match: it was changed after it was written")
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


def without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the names and values of a JSON object, as ``object_pairs_hook``."""
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("an object has one name twice")
    return content


MOST_NS = 2**53
"""Longest time, in ns (104 days). Up to here a double, with which browsers count, holds every whole number."""
_MOST_TEXT = 100_000
"""Characters of one text."""
MOST_REPEATS = 200_000
_DEEPEST = 16
"""How deep JSON values may be nested."""


def is_text(value: object) -> bool:
    """Tell whether a value is text that UTF-8 can express."""
    if not isinstance(value, str) or len(value) > _MOST_TEXT:
        return False
    return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)


def is_tuple_of_texts(value: object) -> bool:
    """Tell whether a value is a tuple in which all is as `is_text` wants it."""
    return isinstance(value, tuple) and all(map(is_text, value))


def listed_texts(stored: Any) -> tuple[str, ...]:
    """Return a list of texts from a file as a tuple; its user checks each."""
    if not isinstance(stored, list):
        raise TypeError(f"{stored!r:.20} is not a list of strings")
    return tuple(stored)


def named_values(stored: Any) -> Mapping[str, Any]:
    """Return names with values from a file."""
    if not isinstance(stored, Mapping):
        raise TypeError(f"{stored!r:.20} is not a mapping of names to values")
    return stored


def is_count(value: object) -> bool:
    """Tell whether a value is a whole number from 0 to 2**63 - 1."""
    return _is_whole(value) and 0 <= value < 2**63


def _is_amount(value: object) -> bool:
    """Tell whether a value is a number from 0 on."""
    return _is_number(value) and value >= 0


def is_time(value: object) -> bool:
    """Tell whether a value is a time in ns: 0, or from 1 to `MOST_NS`, so that no ratio of two is beyond all numbers."""
    return _is_number(value) and (value == 0 or 1 <= value <= MOST_NS)


def _are_repeats(value: object) -> bool:
    """Tell whether a value is a list of times in ns, as many as a comparison may repeat its runs."""
    return isinstance(value, list) and 0 < len(value) <= MOST_REPEATS and all(map(is_time, value))


def _is_json(value: object, depth: int = _DEEPEST) -> bool:
    """Tell whether JSON can express a value: finite numbers of at most 64 bits, no deeper than `_DEEPEST`."""
    if isinstance(value, Mapping):
        return depth > 0 and all(is_text(key) and _is_json(inner, depth - 1) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return depth > 0 and all(_is_json(inner, depth - 1) for inner in value)
    return value is None or isinstance(value, bool | np.bool_) or is_text(value) or _is_number(value)


_AS_IT_IS = {int, str, bool, type(None)}


def plain(value: Any) -> Any:
    """Return a value as JSON has it: dicts, lists, Python's numbers; null for numbers that are not finite."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return list(value) if set(map(type, value)) <= _AS_IT_IS else [plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _is_number(value: object) -> TypeGuard[float]:
    if isinstance(value, float | np.floating):
        return math.isfinite(value)
    return _is_whole(value) and -(2**63) <= value < 2**63


def _mapping_of(fits: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, Mapping) and all(is_text(key) and fits(inner) for key, inner in value.items())


def optional(kind: tuple[Callable[[object], bool], str]) -> tuple[Callable[[object], bool], str]:
    """Return a kind of value that may be missing."""
    fits, wanted = kind
    return lambda value: value is None or fits(value), f"null, or {wanted}"


TEXT = is_text, f"text of at most {_MOST_TEXT:,} characters that UTF-8 can express"
TEXTS = is_tuple_of_texts, "a tuple of texts"
COUNT = is_count, "a whole number from 0 on"
AMOUNT = _is_amount, "a number from 0 on"
REPEATS = _are_repeats, f"a list of 1 to {MOST_REPEATS:,} times in ns"
JSON = _mapping_of(_is_json), f"a mapping of names to finite JSON values, at most {_DEEPEST} deep"
TIMES = _mapping_of(is_time), f"a mapping of names to times in ns: 0, or from 1 to {MOST_NS:,}"
COUNTS = _mapping_of(is_count), "a mapping of names to whole numbers from 0 on"
VERSIONS = _mapping_of(is_text), "a mapping of names to texts"
