"""Arguments of the kinds that many functions take, checked where users give them: whole numbers, sizes, names and paths."""

from __future__ import annotations

import os
import re
import reprlib
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from fractions import Fraction
from operator import index
from pathlib import Path
from typing import Any

from streamscope.errors import EngineError, ProgramError, StreamscopeError
from streamscope.words import a_kind

Kinds = Mapping[str, tuple[Callable[[Any], object], str]]
"""Kinds of arguments by name: a check of a value, and the requirement in words."""

UNITS = {
    "": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40,
}  # fmt: skip
_SIZE = re.compile(r"\s*([0-9]{1,20}(?:\.[0-9]{1,20})?)\s*([A-Za-z]*)\s*")  # Longer ones are not sizes of any memory.


def shown(value: object) -> str:
    """Return a value as an error names it: on one line, and short, even if it is an array."""
    try:
        return " ".join(reprlib.repr(value).splitlines())
    except ValueError:  # Python prints no whole number of more than 4,300 digits.
        return f"<{type(value).__name__} too long to print>"


def check_kinds(function: str, kinds: Kinds, *values: object, error: type[StreamscopeError] = ProgramError) -> None:
    """Check the arguments of a function, in the order of their ``kinds``; raise ``error`` for a wrong one."""
    for value, (argument, (fits, wanted)) in zip(values, kinds.items(), strict=True):
        if not fits(value):
            raise error(f"{function}: {argument}={shown(value)} is not {wanted}", hint=f"see help({function})")


def are_strings(value: object) -> bool:
    """Tell whether a value is a collection of strings; one string is not, though Python sees it as its letters."""
    return isinstance(value, Collection) and not isinstance(value, str) and all(isinstance(each, str) for each in value)


def whole_number(
    name: str, value: Any, least: int | None = None, most: int | None = None, *, error: type[StreamscopeError] = EngineError
) -> int:
    """Return a whole number, of Python's or of NumPy's.

    ``least`` and ``most``: the range of the argument; ``most`` only with ``least``.
    ``error``: class to raise.

    Raises
    ------
    StreamscopeError
        It is something else, a truth value for example, or out of the range.
    """
    hint = None if least is None else f"{least} or more" if most is None else f"{least} to {most}"
    try:
        number = index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise error(f"{name}={shown(value)} is not a whole number", hint=hint)
    if (least is not None and number < least) or (most is not None and number > most):
        raise error(f"{name}={number} is out of range", hint=hint)
    return number


def size_in_bytes(name: str, size: Any, *, error: type[StreamscopeError] = EngineError) -> int:
    """Return a size of memory in bytes: ``"25 MB"`` are 25,000,000, ``"25 MiB"`` 26,214,400.

    ``name``: what it is the size of, for the error.
    ``size``: bytes, or a number with a unit: B, kB, MB, GB, TB (powers of 1,000) or KiB, MiB, GiB, TiB (powers of 1,024); case does not
        matter.
    ``error``: class to raise.

    Raises
    ------
    StreamscopeError
        It is something else, or less than one byte.
    """
    nbytes = None
    if isinstance(size, str):
        match = _SIZE.fullmatch(size)
        unit = UNITS.get(match[2].upper()) if match else None
        nbytes = int(Fraction(match[1]) * unit) if match and unit else None
    else:
        with suppress(EngineError):
            nbytes = whole_number(name, size)
    if nbytes is None or nbytes < 1:
        least = "" if nbytes is None else ": it has at least one byte"
        raise error(f"{shown(size)} is not a size for {name}{least}", hint='give bytes, or for example "512 MiB"')
    return nbytes


def given_path(value: Any, *, error: type[StreamscopeError]) -> Path:
    """Return a path, the home folder in the place of ``~``; raise ``error`` where it cannot be one.

    Empty text is refused: it would stand for the current folder, and files would be there that nobody wanted.

    Raises
    ------
    StreamscopeError
        It is neither text nor a path object, is empty, has a character that no path can have, or has no home folder.
    """
    try:
        text = os.fspath(value)
    except TypeError:
        text = None
    if not isinstance(text, str):
        raise error(f"{a_kind(value)} cannot be a path", hint="give it as text or as a pathlib.Path")
    if not text or "\0" in text:
        raise error(f"{shown(text)} cannot be a path", hint="name a file or a folder")
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise error(f"there is no home folder for {text}", hint="set HOME, or write the whole path") from None
