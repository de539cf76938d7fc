"""The command line: ``streamscope compare``, ``advise``, ``workloads``, ``doctor``, ``calibrate`` and ``cache``.

What is asked for goes to standard output, everything else (progress, notes, errors) to standard error. Exit codes: 0 done, 1 failed,
2 wrong usage (an unknown workload, setting or engine too), 3 the results of an engine are wrong, 130 interrupted.

A command is a function in a file of its own in `streamscope.commands`, listed in `COMMANDS`.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

import streamscope
from streamscope import options
from streamscope.commands.advise import advise
from streamscope.commands.cache import cache
from streamscope.commands.calibrate import calibrate
from streamscope.commands.compare import compare
from streamscope.commands.doctor import doctor
from streamscope.commands.terminal import complain
from streamscope.commands.workloads import workloads
from streamscope.commands.wrong_usage import WrongUsageError
from streamscope.errors import StreamscopeError

COMMANDS = (compare, advise, workloads, doctor, calibrate, cache)

FAILED, WRONG_USAGE, INTERRUPTED = 1, 2, 130
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What the system says when standard output cannot take more."""

# Newer versions of Typer carry a Click of their own, older ones import it: this is how to reach its class in both.
UsageError: Any = typer.BadParameter.__mro__[1]


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
app.callback()(_streamscope)
for command in COMMANDS:
    app.command()(command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Parameters
    ----------
    arguments : sequence of str, optional
        ``sys.argv[1:]`` by default; none at all shows the help.
    """
    try:
        code = _run(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()  # Whoever read it has gone (``| head``).
        return FAILED
    except OSError as error:
        if error.errno not in UNWRITABLE or error.filename is not None:
            raise
        _drop_output()
        complain(f"cannot write the output: {error.strerror}", "free space, or send it elsewhere")
        return FAILED
    return code


def _drop_output() -> None:
    """Send what is still to be written nowhere; Python would complain once more when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(arguments: Sequence[str]) -> int:
    try:
        code = app(args=list(arguments) or ["--help"], prog_name="streamscope", standalone_mode=False) or 0
    except UsageError as error:
        complain(error.format_message(), f"see {error.ctx.command_path if error.ctx else 'streamscope'} --help")
        return WRONG_USAGE
    except WrongUsageError as error:
        complain(error.message, error.hint)
        return WRONG_USAGE
    except StreamscopeError as error:
        complain(error.message, options.hint_on_a_line(error.hint))
        return FAILED
    except MemoryError as error:
        complain(f"this machine has too little memory: {error}", "use smaller settings")
        return FAILED
    except typer.Abort:  # What older versions of Typer make of an interrupt; newer ones return its code.
        code = INTERRUPTED
    if code == INTERRUPTED:
        complain("interrupted")
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
