"""CUDA code of the generated kernels: pieces that stand in this folder's ``.cuh`` files, with places that Python fills in.

A line ``//@ name: remark`` begins a piece, which ends at the next such line; other lines that begin with ``//@`` are remarks. Neither is
part of a kernel, nor is the text before the first piece. ``$name`` is a place. Alone on its line, it stands for whole lines, which
are indented as it is, or for none.
"""

from __future__ import annotations

import pkgutil
import re
from functools import cache

PLACE_OF_NAME = "@name@"
"""Stands in a generated source where the kernel's name will be."""
_BEGINNING = re.compile(r"^//@ (\w+):.*\n", re.MULTILINE)
_REMARK = re.compile(r"^//@.*\n", re.MULTILINE)
_PLACE = re.compile(r"^(?P<indent> *)\$(?P<lines>\w+)\n|\$(?P<word>\w+)|\$\{(?P<part>\w+)\}", re.MULTILINE)


@cache
def pieces(file: str) -> dict[str, str]:
    """Return the pieces of ``file.cuh`` by name, in order; each ends with one line's end."""
    text = (pkgutil.get_data(__name__, f"{file}.cuh") or b"").decode()  # also where the package lies in a zip
    _, *parts = _BEGINNING.split(text)
    return {name: _REMARK.sub("", part).strip("\n") + "\n" for name, part in zip(parts[::2], parts[1::2], strict=True)}


def fill(piece: str, /, **values: object) -> str:
    """Return a piece with its places filled in, each with the value of its name; one line's end alone leaves an empty line.

    ``$name`` is the kernel's, which is known last: `PLACE_OF_NAME` stands there, unless you give another.
    """
    text, lines = _parsed(piece)
    values.setdefault("name", PLACE_OF_NAME)
    for place, name, indent in lines:
        value = str(values[name]).rstrip("\n")
        values[place] = f"{indent}{value}\n".replace("\n", f"\n{indent}", value.count("\n")) if value else values[name]
    return text % values


@cache
def _parsed(piece: str) -> tuple[str, list[tuple[str, str, str]]]:
    """Return a piece as a format string, and each place for whole lines: key, name, indentation."""
    parts, lines, end = list[str](), list[tuple[str, str, str]](), 0
    for match in _PLACE.finditer(piece):
        place = match[match.lastgroup or 0]
        if match["lines"]:
            lines.append((f"line {len(lines)}", place, match["indent"]))
            place = lines[-1][0]
        parts += [piece[end : match.start()].replace("%", "%%"), f"%({place})s"]
        end = match.end()
    return "".join([*parts, piece[end:].replace("%", "%%")]), lines
