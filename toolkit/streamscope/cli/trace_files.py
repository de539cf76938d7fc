"""Trace files as arguments of commands: how they are named, read and shown while they are read."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamscope import options
from streamscope.cli.parameters import given_path, shared
from streamscope.cli.terminal import notes
from streamscope.progress import Progress, showing

if TYPE_CHECKING:
    from streamscope.trace.trace import Trace


READABLE = "Parquet of ours, Kineto JSON, an SQLite export of Nsight Systems, rocpd, XPlane, or a format of an installed package."
TraceFile = Annotated[Path, typer.Argument(metavar="FILE", parser=given_path, help=f"A trace: {READABLE}", show_default=False)]
Gpu = Annotated[
    int | None,
    typer.Option("--gpu", metavar="N", min=0, help="Which GPU of a file with several; by default all.", show_default=False),
]
_DAMAGED = options.Option(
    "--damaged",
    "refuse",
    "What to do with Kineto JSON that is damaged: skip reads what is whole, and counts the rest.",
    "refuse|skip",
    first=("refuse", "skip"),
)
Damaged = Annotated[str, shared(_DAMAGED)]


def reading_progress() -> AbstractContextManager[Progress]:
    """Show on standard error how far a command is, where that is a terminal."""
    return showing("reading", progress=notes().is_terminal)


def read_trace(path: Path, gpu: int | None, damaged: str, progress: Progress) -> Trace:
    """Read a trace with the options of a command."""
    from streamscope.formats.read import read

    return read(path, gpu, damaged=damaged, progress=progress)  # type: ignore[arg-type]
