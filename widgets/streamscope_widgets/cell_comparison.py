"""Run ``%%streamscope`` on a cell or a workload: see `streamscope_widgets.magics`. Loaded when it is first used."""

from __future__ import annotations

import ast
import re
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from types import FrameType
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.display import display

from streamscope.arguments import given_path
from streamscope.comparing.compare import compare
from streamscope.comparing.comparison import Comparison
from streamscope.engines import engine_names
from streamscope.errors import EngineError, OutputError, ProgramError, StreamscopeError, WorkloadError
from streamscope.files import writable_file
from streamscope.options import SET, gpus_of, hint_on_a_line, setting_values
from streamscope.results.result import report_suffix
from streamscope.tracing import ProgramFunction, program
from streamscope.workloads import workload
from streamscope_widgets.cell_program import CellProgram, cell_program
from streamscope_widgets.comparison_view import show_with_timeline
from streamscope_widgets.magic_options import parsed, parser

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

PROGRAM_NAME = "cell"
Subject = tuple[ProgramFunction, Sequence[Any], dict[str, int] | None]
"""One comparison's subject: the program, its inputs, and the settings that it was made with."""


class CellSyntaxError(ProgramError):
    """The cell is not Python. IPython would show a SyntaxError of a magic with all frames; this one is shown as one of an ordinary cell."""

    def __init__(self, shell: InteractiveShell, cause: SyntaxError) -> None:
        super().__init__(f"line {cause.lineno} of the cell is not Python: {cause.msg}")
        self._shell, self._cause = shell, cause

    def _render_traceback_(self) -> list[str]:
        shown: list[str] = self._shell.SyntaxTB.structured_traceback(type(self._cause), self._cause, [])  # type: ignore[arg-type]
        return shown


def run(shell: InteractiveShell, line: str, cell: str | None) -> Comparison | None:
    """Compare the engines on a cell or on a workload, show the comparison, and below it the live timelines; return it.

    Where only help was asked for, there is none.
    """
    chosen = parsed(line)
    if chosen.help:
        print(parser().format_help())  # noqa: T201 — as every magic's help
        return None
    _check_engines(chosen.engines)
    if chosen.report is not None:  # Before the work that it is to hold.
        report_suffix(writable_file(given_path(chosen.report, error=OutputError)))
    function, inputs, settings = _subject(shell, chosen, line, cell)
    try:
        comparison = compare(
            program(function, fuse=True) if chosen.fuse else function,
            *inputs,
            engines=chosen.engines,
            device=chosen.device,
            gpus=gpus_of(chosen.gpus, UsageError),
            streams=chosen.streams,
            repeats=chosen.repeats,
            recorder=chosen.recorder,
            ledger=chosen.ledger,
            name=chosen.name or chosen.workload,
            settings=settings,
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
    if chosen.save is not None:
        print(f"Saved in {comparison.save_folder(chosen.save)}")  # noqa: T201 — where the user looks for it
    if chosen.report is not None:
        print(f"Report: {comparison.report(chosen.report)}")  # noqa: T201
    return comparison


def _subject(shell: InteractiveShell, chosen: Namespace, line: str, cell: str | None) -> Subject:
    """Return the comparison's subject: a workload, or the cell with the arrays that it reads."""
    written = cell is not None and bool(cell.strip())
    if chosen.workload is None:
        if cell is None:
            raise UsageError(
                "streamscope needs a cell: write %%streamscope on its first line, and operations below it (%streamscope --help says more)"
            )
        if chosen.set:
            raise UsageError("a setting needs a workload (--workload NAME)")
        made = _program(shell, line, cell)
        return ProgramFunction(made.function), [shell.user_ns[name] for name in made.inputs], None
    if written:
        raise UsageError("--workload brings its program: write %streamscope on one line")
    given = setting_values(chosen.set, lambda problem: UsageError(f"{SET.flag} {problem}"))
    try:
        found = workload(chosen.workload)
        values = found.on_gpus(given, gpus_of(chosen.gpus, UsageError))
        function, inputs = found.build(**values)
    except WorkloadError as error:
        raise UsageError(str(error)) from None
    return function, inputs, {name: int(values.get(name, setting.default)) for name, setting in found.settings.items()}


def _program(shell: InteractiveShell, line: str, cell: str) -> CellProgram:
    """Make a program of the cell."""
    with parsed_cell(shell, line, cell) as (tree, filename):
        return cell_program(tree, shell.user_ns, name=PROGRAM_NAME, filename=filename)


@contextmanager
def parsed_cell(shell: InteractiveShell, line: str, cell: str) -> Iterator[tuple[ast.Module, str]]:
    """Parse a magic's cell under its own file name and line numbers; syntax errors are shown as in an ordinary cell."""
    lines = cell.splitlines(keepends=True)
    empty = "".join(takewhile(str.isspace, lines))  # IPython would take these lines away, and the numbers of the others with them
    source = f"{empty}{shell.transform_cell(cell)}"  # type: ignore[no-untyped-call]
    filename = shell.compile.cache(f"%%streamscope {line}\n{source}", _cell_number(shell))
    try:
        # The magic's own line is the cell's first one.
        yield ast.parse(f"\n{source}", filename), filename
    except SyntaxError as error:
        raise CellSyntaxError(shell, error) from error


def _cell_number(shell: InteractiveShell) -> int:
    """Return the number of the cell that runs; IPython counts on before a cell runs, or after, by its version."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 — as in `user_line`
    while frame is not None:
        named = shell.compile.format_code_name(frame.f_code.co_filename)
        if named is not None and (number := re.search(r"\[(\d+)\]", named[1])):
            return int(number[1])
        frame = frame.f_back
    return int(shell.execution_count)


def _check_engines(names: str | None) -> None:
    try:
        engine_names(names)
    except EngineError as error:
        raise UsageError(str(error)) from None
