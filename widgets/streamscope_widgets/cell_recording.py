"""Run a cell of ``%%streamscope record`` as an ordinary cell, and record its CUDA work."""

from __future__ import annotations

import ast
from argparse import Namespace
from types import CodeType
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.display import display

from streamscope.errors import RecordingError, StreamscopeError
from streamscope.options import hint_on_a_line
from streamscope.recording.record import Recording, record
from streamscope.tracebacks import users_lines_shown
from streamscope_widgets.cell_comparison import parsed_cell
from streamscope_widgets.magic_options import parsed_record, record_parser
from streamscope_widgets.trace_view import show_with_timeline

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

UNNAMED = "cell"


def run(shell: InteractiveShell, line: str, cell: str | None) -> Any:
    """Run a cell while it is recorded, show the trace, and return the value of the cell's last expression.

    It runs in the user's namespace, compiled before the recording begins. If it fails, the trace up to there is shown all the same.
    """
    chosen = parsed_record(line)
    if chosen.help:
        print(record_parser().format_help())  # noqa: T201 — as every magic's help
        return None
    if cell is None:
        raise UsageError("streamscope record needs a cell: write %%streamscope record on its first line, and code below it")
    code, last = _compiled(shell, f"record {line}", cell)
    try:
        recording = record(chosen.name or UNNAMED, gpu=chosen.gpu, last=chosen.last, stacks=chosen.stacks, memory=chosen.memory)
    except StreamscopeError as error:
        error.hint = hint_on_a_line(error.hint)
        raise
    try:
        with recording, users_lines_shown():
            exec(code, shell.user_ns)  # noqa: S102 — it is the user's own cell
            return eval(last, shell.user_ns) if last is not None else None  # noqa: S307
    except StreamscopeError as error:
        error.hint = hint_on_a_line(error.hint)
        raise
    finally:
        _show(shell, chosen, recording)


def _compiled(shell: InteractiveShell, line: str, cell: str) -> tuple[CodeType, CodeType | None]:
    """Return the code of a cell without its last expression, and that of the expression; None where it ends otherwise."""
    with parsed_cell(shell, line, cell) as (tree, filename):
        last = tree.body[-1] if tree.body else None
        if not isinstance(last, ast.Expr):
            return compile(tree, filename, "exec", dont_inherit=True), None
        before = ast.Module(tree.body[:-1], type_ignores=[])
        value = ast.Expression(last.value)
        return compile(before, filename, "exec", dont_inherit=True), compile(value, filename, "eval", dont_inherit=True)


def _show(shell: InteractiveShell, chosen: Namespace, recording: Recording) -> None:
    try:
        trace = recording.trace
    except RecordingError:
        return  # It never began, and that is what is raised.
    if chosen.name:
        shell.user_ns[chosen.name] = trace
    if chosen.timeline:
        show_with_timeline(trace)
    else:
        display(trace)  # type: ignore[no-untyped-call]
