"""CUDA code of the generated kernels: pieces that stand in this folder's ``.cuh`` files, with places that Python fills in.

A line ``//@ name: remark`` begins a piece, which ends at the next such line; other lines that begin with ``//@`` are remarks. Neither is
part of a kernel, nor is what stands before the first piece. ``$name`` is a place. Alone on its line, it stands for whole lines, which are
indented as it is, or for none.
"""

from __future__ import annotations

import pkgutil
import re
from functools import cache

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
    """Return a piece with its places filled in, each with the value of its name."""
    filled = []
    for text, place, indent in _places(piece):
        value = str(values[place]) if place else ""
        if indent is not None and value:
            value = indent + value.rstrip("\n").replace("\n", f"\n{indent}") + "\n"
        filled += [text, value]
    return "".join(filled)


@cache
def _places(piece: str) -> list[tuple[str, str, str | None]]:
    """Return the texts of a piece, each with the name of the place behind it, and the indentation of one for whole lines."""
    found, end = list[tuple[str, str, str | None]](), 0
    for match in _PLACE.finditer(piece):
        found.append((piece[end : match.start()], match["lines"] or match["word"] or match["part"], match["indent"]))
        end = match.end()
    return [*found, (piece[end:], "", None)]
