"""Tables and warnings in a terminal, and where none says how much room there is."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import typer

from streamscope.cli.terminal import output, print_sentences
from streamscope.errors import printable
from streamscope.words import shortened_inside

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


_ANY_WIDTH = 4000
"""Width in columns where there is no terminal."""
_GPU_ARGUMENT = re.compile(r"(?:ss\.read\(path, gpu=\.\.\.\)|gpu=) chooses\b")
_HOSTS_ARGUMENT = re.compile(r"\bhosts= names\b")
"""How notes name options in Python."""
_BETWEEN = 2
"""Blanks behind each column."""
_LEAST_NAME = 8
"""Names are cut to no fewer characters."""


class _Shown(Protocol):
    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""


_Result = TypeVar("_Result", bound=_Shown)


def show(result: _Result, write: Callable[[Console, _Result], None], *, as_json: bool) -> None:
    """Print a result in words, with ``write``, or as one JSON object."""
    if as_json:
        print_json(result.to_dict())
    else:
        write(output(), result)


def print_json(values: Mapping[str, Any]) -> None:
    """Print one JSON object."""
    typer.echo(json.dumps(values, allow_nan=False))


def print_warnings(console: Console, warnings: Sequence[str]) -> None:
    """Print the warnings, numbered."""
    for number, warning in enumerate(warnings, 1):
        if number == 1:
            console.print()
        told = _HOSTS_ARGUMENT.sub("--host names", _GPU_ARGUMENT.sub("--gpu chooses", warning))
        print_sentences(console, f"[{number}] {told}", "yellow", whole=True)


def print_table(console: Console, table: Table) -> None:
    """Print a table; names are whole where no terminal says how much room there is, or too little: Rich would leave columns out."""
    if console.is_terminal and sum((column.min_width or 0) + _BETWEEN for column in table.columns) <= console.width:
        console.print(table)
        return
    room, console.width = console.width, _ANY_WIDTH
    with console.capture() as printed:
        console.print(table)
    console.width = room
    typer.echo("\n".join(line.rstrip() for line in printed.get().splitlines()))


def named_table(console: Console, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Return a table of kernels. In a terminal, its function gets a line of its own, since kernels of PyTorch share a few long names.

    Elsewhere names are whole and stand last: the longest would move all numbers to the right.
    """
    if console.is_terminal:
        return table(heads, ((re.sub(r"^(\w{12,}) (?=\w)", "\\1\n  ", name), *cells) for name, *cells in rows))
    return table((*heads[1:], heads[0]), ((*cells, name) for name, *cells in rows), names=-1)


def fitted_table(
    console: Console, heads: Sequence[str], rows: Sequence[Sequence[str]], names: Sequence[int], title: str | None = None
) -> Table:
    """Return a table whose names, in some columns, are cut in their middle where a terminal has no room for them. Numbers stay whole."""
    columns = list(zip(heads, *(map(printable, row) for row in rows), strict=True))
    widths = [max(map(len, column)) for column in columns]
    if not console.is_terminal or sum(widths) + _BETWEEN * len(widths) <= console.width:
        return table(heads, rows, title)
    widths = [max(map(len, (*head.split(" "), *cells))) for head, *cells in columns]
    too_long = sum(widths) + _BETWEEN * len(widths) - console.width
    while too_long > 0 and max(widths[at] for at in names) > _LEAST_NAME:
        widths[max(names, key=widths.__getitem__)] -= 1
        too_long -= 1
    made = table(heads, [[shortened_inside(cell, width) for cell, width in zip(row, widths, strict=True)] for row in rows], title)
    for column, width in zip(made.columns, widths, strict=True):
        column.width = column.min_width = width
    return made


def table(heads: Sequence[str] | None, rows: Iterable[Sequence[str]], title: str | None = None, names: int = 0) -> Table:
    """Return a table: the column of names to the left, the others, if they have heads, to the right.

    Names that a terminal has no room for are cut, numbers never.
    """
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, show_header=heads is not None, padding=(0, _BETWEEN, 0, 0), title=title, title_justify="left", title_style="dim")
    texts = [[Text(printable(cell)) for cell in row] for row in rows]
    for number, head in enumerate(heads or ()):
        named = number == names % len(heads or ())
        longest = max(len(word) for text in (head, *(row[number].plain for row in texts)) for word in text.split(" "))
        made.add_column(head, justify="left" if named else "right", min_width=None if named else longest)
    for row in texts:
        row[names].no_wrap, row[names].overflow = True, "ellipsis"
        made.add_row(*row)
    return made
