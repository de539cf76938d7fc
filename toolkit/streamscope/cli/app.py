"""The commands, and their errors as a line and an exit code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

import streamscope
from streamscope import options
from streamscope.cli.advise import advise
from streamscope.cli.cache import cache
from streamscope.cli.calibrate import calibrate
from streamscope.cli.compare import compare
from streamscope.cli.convert import convert
from streamscope.cli.diff import diff
from streamscope.cli.doctor import doctor
from streamscope.cli.export import export
from streamscope.cli.main import FAILED
from streamscope.cli.note import note
from streamscope.cli.parameters import Command, WrongUsageError
from streamscope.cli.ranks import ranks
from streamscope.cli.read import read
from streamscope.cli.sweep import sweep
from streamscope.cli.terminal import complain
from streamscope.cli.what_if import what_if
from streamscope.cli.workloads import workloads
from streamscope.docstrings import docstring
from streamscope.errors import StreamscopeError

COMMANDS = (compare, sweep, export, read, ranks, note, convert, diff, what_if, advise, workloads, doctor, calibrate, cache)

_WRONG_USAGE = 2
_WRITTEN_BY_OUT = (options.REPORT.flag, options.SAVE.flag)
"""Options of the cell magic in whose place `compare` has ``--out``."""

# Typer carries a Click of its own; this is how to reach its class.
_UsageError: Any = typer.BadParameter.__mro__[1]


def _show_version(wanted: bool) -> None:  # noqa: FBT001 — Typer calls it so.
    if wanted:
        typer.echo(f"streamscope {streamscope.__version__}")
        raise typer.Exit


def _streamscope(
    *, version: Annotated[bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")] = False
) -> None:
    """Run the same GPU operations under several engines and see their timelines side by side."""


app = typer.Typer(
    name="streamscope", add_completion=False, pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]}
)
app.callback(help=docstring(_streamscope))(_streamscope)
for command in COMMANDS:
    app.command(cls=Command, help=docstring(command))(command)


def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code; other errors than ours are raised."""
    try:
        return int(app(args=list(arguments) or ["--help"], prog_name="streamscope", standalone_mode=False) or 0)
    except _UsageError as error:
        see = f"see {error.ctx.command_path if error.ctx else 'streamscope'} --help"
        if getattr(error, "option_name", "") in _WRITTEN_BY_OUT and error.ctx and error.ctx.info_name == compare.__name__:
            complain(error.message, f"--out DIR writes comparison.json, the report and the traces; {see}")
        else:
            complain(error.format_message(), see)
        return _WRONG_USAGE
    except WrongUsageError as error:
        complain(error.message, error.hint)
        return _WRONG_USAGE
    except StreamscopeError as error:
        complain(error.message, options.hint_on_a_line(error.hint))
        return FAILED
    except MemoryError as error:
        complain(f"this machine has too little memory: {error}", "use smaller settings")
        return FAILED
    except typer.Abort as error:  # What Typer makes of an EOFError.
        raise error.__cause__ or error from None
