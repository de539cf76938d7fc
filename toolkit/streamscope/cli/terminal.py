"""Consoles of commands: results to standard output, everything else to standard error."""

from __future__ import annotations

import io
import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from streamscope.errors import printable, readable
from streamscope.results.screen import console
from streamscope.words import wrapped

if TYPE_CHECKING:
    from rich.console import Console


def output() -> Console:
    """Return the console for results."""
    return console(stderr=False)


def notes() -> Console:
    """Return the console for messages."""
    return console(stderr=True)


def print_sentences(console: Console, text: str, style: str = "", *, whole: bool = False) -> None:
    """Print a text in lines that fit; ``whole``: in one line where no terminal says how much room there is."""
    text = printable(text)
    lines = [text] if whole and not console.is_terminal else wrapped(text, console.width)
    console.print("\n".join(lines), style=style, soft_wrap=True)


def complain(message: str, hint: str | None = None) -> None:
    """Print an error and its hint on standard error."""
    try:
        sys.stderr.write(f"error: {readable(message)}\n" + (f"hint: {readable(hint)}\n" if hint else ""))
        sys.stderr.flush()
    except OSError:
        drop(sys.stderr)  # Nobody reads it.


@contextmanager
def warnings_on_a_line() -> Iterator[None]:
    """Print each warning of ours as a line on standard error, without the place in our code."""
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if category.__module__.partition(".")[0] == "streamscope":
                sys.stderr.write(f"warning: {readable(' '.join(str(message).split()))}\n")
            else:
                usual(message, category, *place, **more)

        warnings.showwarning = show
        yield


def make_ready() -> None:
    """Make standard output and error take every text, and forget a width at which nothing can be read, such as ``COLUMNS=0``."""
    if not re.fullmatch("[4-9][0-9]|[1-9][0-9]{2,3}", os.environ.get("COLUMNS", "80")):
        del os.environ["COLUMNS"]
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 — until the process ends
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def drop(stream: TextIO) -> None:
    """Discard pending output; Python would complain once more when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
