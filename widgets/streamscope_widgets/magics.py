"""``%%streamscope``: the operations of a notebook cell under every engine.

::

    %%streamscope --engines async,graph -o runs
    h = ss.ops.relu(ss.ops.matmul(x, w1))
    ss.ops.softmax(ss.ops.matmul(h, w2))

The cell is a program (see `streamscope_widgets.cell_program`): the arrays that it reads are the inputs, its last expression is the
result, and what it assigns stays inside. It is compiled once, outside the timing. Its errors are raised, so that a notebook that fails
stops.
"""

from __future__ import annotations

import argparse
import ast
import keyword
import re
import shlex
import sys
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING

from IPython.core.error import UsageError
from IPython.core.magic_arguments import MagicArgumentParser
from IPython.display import display

from streamscope.comparing.compare import compare, compared_engines
from streamscope.errors import EngineError, StreamscopeError
from streamscope.options import COMPARE_OPTIONS, Option, hint_on_a_line
from streamscope.tracing import program
from streamscope_widgets.cell_program import CellProgram, cell_program
from streamscope_widgets.comparison_view import show_with_timeline

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

PROGRAM_NAME = "cell"
DESCRIPTION = (
    "Run the operations of this cell under several engines and compare them. The arrays that the cell reads are the inputs, its last "
    "expression is the result; what it assigns stays inside."
)


def register(shell: InteractiveShell) -> None:
    """Add ``%%streamscope``, and ``%streamscope --help``, to a shell."""
    magic = partial(run_magic, shell)
    magic.__doc__ = _parser().format_help()
    shell.magics_manager.register_function(magic, "line_cell", "streamscope")


def run_magic(shell: InteractiveShell, line: str, cell: str | None = None) -> None:
    """Compare the engines on a cell, show the comparison, and below it the live timelines.

    Raises
    ------
    UsageError
        The options are wrong, or there is no cell.
    StreamscopeError
        The cell is not a program, or cannot run.
    """
    parser = _parser()
    chosen = parser.parse_args(_split(line))
    if chosen.help:
        print(parser.format_help())  # noqa: T201 — as every magic's help
        return
    if cell is None:
        raise UsageError("streamscope needs a cell: write %%streamscope on its first line (%streamscope --help says more)")
    _check_engines(chosen.engines, chosen.memory_limit)
    made = _program(shell, line, cell)
    inputs = [shell.user_ns[name] for name in made.inputs]
    try:
        comparison = compare(
            program(made.function),
            *inputs,
            engines=chosen.engines,
            device=chosen.device,
            streams=chosen.streams,
            repeats=chosen.repeats,
            memory_limit=chosen.memory_limit,
        )
    except StreamscopeError as error:
        error.hint = hint_on_a_line(error.hint)
        raise
    if chosen.output:
        shell.user_ns[chosen.output] = comparison
    if chosen.timeline:
        show_with_timeline(comparison)
    else:
        display(comparison)  # type: ignore[no-untyped-call]


def _program(shell: InteractiveShell, line: str, cell: str) -> CellProgram:
    """Parse the cell and make a program of it, under the cell's own file name and line numbers."""
    source = shell.transform_cell(cell)  # type: ignore[no-untyped-call]
    filename = shell.compile.cache(f"%%streamscope {line}\n{source}", _cell_number(shell))
    # The magic's own line is the cell's first one.
    return cell_program(ast.parse(f"\n{source}", filename), shell.user_ns, name=PROGRAM_NAME, filename=filename)


def _cell_number(shell: InteractiveShell) -> int:
    """Return the number of the cell that runs; IPython counts on before a cell runs, or after, by its version."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 — as in `user_line`
    while frame is not None:
        named = shell.compile.format_code_name(frame.f_code.co_filename)
        if named is not None and (number := re.search(r"\[(\d+)\]", named[1])):
            return int(number[1])
        frame = frame.f_back
    return int(shell.execution_count)


def _split(line: str) -> list[str]:
    """Split a line as a shell does; IPython would leave the quotes in ``--memory-limit '2 GiB'``."""
    try:
        return shlex.split(line)
    except ValueError as error:
        raise UsageError(f"the options {line!r} cannot be split: {error} (close the quotes)") from None


def _check_engines(names: str | None, memory_limit: str | None) -> None:
    try:
        compared_engines(names, memory_limit, Option.on_a_line)
    except EngineError as error:
        raise UsageError(str(error)) from None


def _parser() -> MagicArgumentParser:
    parser = MagicArgumentParser(  # type: ignore[no-untyped-call]
        "%%streamscope",
        description=DESCRIPTION,
        formatter_class=argparse.HelpFormatter,
    )
    for option in COMPARE_OPTIONS:
        _add(parser, option)
    parser.add_argument("-o", "--output", metavar="NAME", type=_identifier, help="Assign the comparison to this variable.")
    parser.add_argument(
        "--timeline", action=argparse.BooleanOptionalAction, default=True, help="Show the live timelines below the comparison."
    )
    parser.add_argument("-h", "--help", action="store_true", help="Show this message.")
    return parser


def _add(parser: MagicArgumentParser, option: Option) -> None:
    kind = partial(_whole, least=option.least, most=option.most) if option.least is not None and option.most is not None else str
    choices = option.choices or None
    default = "" if option.default is None else f" [default: {option.default}]"
    parser.add_argument(
        option.flag,
        default=option.default,
        type=kind,
        choices=choices,
        metavar=None if choices else option.metavar,
        help=option.help + default,
    )


def _whole(text: str, least: int, most: int) -> int:
    if not text.isdecimal() or not least <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} to {most}")
    return int(text)


def _identifier(text: str) -> str:
    if not text.isidentifier() or keyword.iskeyword(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not the name of a variable")
    return text
