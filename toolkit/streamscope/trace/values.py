"""What the fields of a trace's and a comparison's metadata may hold: the same where they are made and where they are read."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

import numpy as np

MOST_NS = 2**53
"""Longest time, in ns (104 days). Up to here a double, with which browsers count, holds every whole number."""
MOST_TEXT = 100_000
"""Characters of one text."""
MOST_REPEATS = 200_000
DEEPEST = 16
"""How deep JSON values may be nested."""


def is_text(value: object) -> bool:
    """Tell whether a value is text that UTF-8 can express."""
    if not isinstance(value, str) or len(value) > MOST_TEXT:
        return False
    return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)


def is_tuple_of_texts(value: object) -> bool:
    """Tell whether a value is a tuple in which all is as `is_text` wants it."""
    return isinstance(value, tuple) and all(map(is_text, value))


def is_count(value: object) -> bool:
    """Tell whether a value is a whole number from 0 to 2**63 - 1."""
    return _is_whole(value) and 0 <= value < 2**63


def is_amount(value: object) -> bool:
    """Tell whether a value is a number from 0 on."""
    return _is_number(value) and value >= 0


def is_time(value: object) -> bool:
    """Tell whether a value is a time in ns: 0, or from 1 to `MOST_NS`, so that no ratio of two is beyond all numbers."""
    return _is_number(value) and (value == 0 or 1 <= value <= MOST_NS)


def are_repeats(value: object) -> bool:
    """Tell whether a value is a list of times in ns, as many as a comparison may repeat its runs."""
    return isinstance(value, list) and 0 < len(value) <= MOST_REPEATS and all(map(is_time, value))


def is_json(value: object, depth: int = DEEPEST) -> bool:
    """Tell whether JSON can express a value: finite numbers of at most 64 bits, no deeper than `DEEPEST`."""
    if isinstance(value, Mapping):
        return depth > 0 and all(is_text(key) and is_json(inner, depth - 1) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return depth > 0 and all(is_json(inner, depth - 1) for inner in value)
    return value is None or isinstance(value, bool | np.bool_) or is_text(value) or _is_number(value)


def plain(value: Any) -> Any:
    """Return a value as JSON has it: dicts, lists, Python's numbers; null for what is not finite."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
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


TEXT = is_text, f"text of at most {MOST_TEXT:,} characters that UTF-8 can express"
TEXTS = is_tuple_of_texts, "a tuple of texts"
COUNT = is_count, "a whole number from 0 on"
AMOUNT = is_amount, "a number from 0 on"
REPEATS = are_repeats, f"a list of 1 to {MOST_REPEATS:,} times in ns"
JSON = _mapping_of(is_json), f"a mapping of names to finite JSON values, at most {DEEPEST} deep"
TIMES = _mapping_of(is_time), f"a mapping of names to times in ns: 0, or from 1 to {MOST_NS:,}"
COUNTS = _mapping_of(is_count), "a mapping of names to whole numbers from 0 on"
VERSIONS = _mapping_of(is_text), "a mapping of names to texts"
