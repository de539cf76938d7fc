"""CUDA code of the generated kernels: pieces that stand in this folder's ``.cuh`` files, with places that Python fills in.

A line ``//@ name: remark`` begins a piece, which ends at the next such line; other lines that begin with ``//@`` are remarks. Neither is
part of a kernel, nor is what stands before the first piece. ``$name`` is a place. Alone on its line, it stands for whole lines, or for
none. What is filled in is indented as the line of its place.
"""

from __future__ import annotations

import pkgutil
import re
from functools import cache

_BEGINNING = re.compile(r"^//@ (\w+):.*\n", re.MULTILINE)
_REMARK = re.compile(r"^//@.*\n", re.MULTILINE)
_PLACE = re.compile(r"^(?P<indent> *)\$(?P<lines>\w+)\n|\$(?P<word>\w+)|\$\{(?P<part>\w+)\}", re.MULTILINE)
_INDENT = re.compile(r" *")


@cache
def pieces(file: str) -> dict[str, str]:
    """Return the pieces of ``file.cuh`` by name, in order; each ends with one line's end."""
    text = (pkgutil.get_data(__name__, f"{file}.cuh") or b"").decode()  # also where the package lies in a zip
    _, *parts = _BEGINNING.split(text)
    return {name: _REMARK.sub("", part).strip("\n") + "\n" for name, part in zip(parts[::2], parts[1::2], strict=True)}


def fill(piece: str, /, **values: object) -> str:
    """Return a piece with its places filled in, each with the value of its name; one line's end alone leaves an empty line."""
    filled = []
    for text, place, indent, whole_lines in _places(piece):
        value = str(values[place]) if place else ""
        lines = value.rstrip("\n").replace("\n", f"\n{indent}")
        if whole_lines and value:
            lines = f"{indent if lines else ''}{lines}\n"
        filled += [text, lines]
    return "".join(filled)


@cache
def _places(piece: str) -> list[tuple[str, str, str, bool]]:
    """Return the texts of a piece, each with the place behind it: its name, its line's indentation, whether it is the whole line."""
    found, end = list[tuple[str, str, str, bool]](), 0
    for match in _PLACE.finditer(piece):
        line = _INDENT.match(piece, piece.rfind("\n", 0, match.start()) + 1)
        found.append((piece[end : match.start()], match[match.lastgroup or 0], line[0] if line else "", match["lines"] is not None))
        end = match.end()
    return [*found, (piece[end:], "", "", False)]
