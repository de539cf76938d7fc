"""``streamscope note``: your notes on a trace or a comparison."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamscope.cli.compare import write_folder
from streamscope.cli.parameters import AsJson, WrongUsageError, given_path
from streamscope.cli.tables import print_json, print_table, print_warnings, table
from streamscope.cli.terminal import notes as messages
from streamscope.cli.terminal import output
from streamscope.cli.trace_files import Damaged, read_trace, reading_progress
from streamscope.errors import OutputError, TraceError
from streamscope.words import listed

if TYPE_CHECKING:
    from streamscope.comparing.comparison import Comparison
    from streamscope.trace.trace import Trace

_IN_US = {"ns": Fraction(1, 1000), "us": Fraction(1), "µs": Fraction(1), "μs": Fraction(1), "ms": Fraction(1000), "s": Fraction(10**6)}
_TIME = re.compile(rf"\s*(-?\d{{1,20}}(?:\.\d{{1,20}})?)\s*({'|'.join(_IN_US)})\s*")


_OPTIONS = {
    "at_us=": "--at ",
    "until_us=": "--until ",
    "number=": "--remove ",
    "with_note() adds one": "streamscope note FILE TEXT adds one",
}
"""What errors say, and what was typed."""
_OPTION = re.compile("|".join(map(re.escape, _OPTIONS)))


class _Typed(float):
    """A time in µs, which errors name as it was typed."""

    text: str

    def __repr__(self) -> str:
        return self.text


def _time_us(text: str) -> float:
    """Return a time with its unit in µs."""
    found = _TIME.fullmatch(text)
    if not found:
        raise typer.BadParameter(f"{text!r:.40} is not a time with a unit, such as 20us, 1.25ms or 2s")
    time_us = _Typed(Fraction(found[1]) * _IN_US[found[2]])
    time_us.text = text.strip()
    return time_us


def note(
    file: Annotated[Path, typer.Argument(metavar="FILE", parser=given_path, help="A trace, or the folder of a comparison.")],
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="The note to add; without one, the notes are listed.", show_default=False)
    ] = None,
    at: Annotated[
        float | None,
        typer.Option("--at", metavar="TIME", parser=_time_us, help="When: 20us, 1.25ms; by default the whole.", show_default=False),
    ] = None,
    until: Annotated[
        float | None, typer.Option("--until", metavar="TIME", parser=_time_us, help="End of a stretch.", show_default=False)
    ] = None,
    lane: Annotated[str, typer.Option("--lane", metavar="NAME", help="The lane that is meant.", show_default=False)] = "",
    engine: Annotated[
        str | None,
        typer.Option(
            "--engine", metavar="NAME", help="Engine of a comparison whose time axis is meant; all for its whole.", show_default=False
        ),
    ] = None,
    remove: Annotated[
        int | None, typer.Option("--remove", metavar="N", min=1, help="Remove the note of this number.", show_default=False)
    ] = None,
    damaged: Damaged = "refuse",
    *,
    as_json: AsJson = False,
) -> None:
    """Add, list or remove your notes on a trace or a comparison.

    Parquet of ours and the folder of a comparison hold them; beside any other file, FILE.notes.json does.
    """
    placed = at is not None or until is not None or bool(lane)
    if text is None and placed:
        raise WrongUsageError("--at, --until and --lane are of a note to add", hint="give its text, too")
    if until is not None and at is None:
        raise WrongUsageError("--until needs a start", hint="give --at, too")
    if text is not None and remove is not None:
        raise WrongUsageError("--remove takes no text", hint="remove the note first, then add another")
    change: Callable[..., Any] | None = None
    if text is not None:
        change = lambda found, **of: found.with_note(text, at_us=at, until_us=until, lane=lane, **of)  # noqa: E731
    elif remove is not None:
        change = lambda found, **of: found.without_note(remove, **of)  # noqa: E731
    if file.is_dir() or file.name == "comparison.json":
        _on_comparison(file if file.is_dir() else file.parent, change, engine, remove, placed=placed, as_json=as_json)
    elif engine is not None:
        raise WrongUsageError(f"{file} is one trace, not a comparison", hint="leave --engine out, or name the folder of a comparison")
    else:
        _on_trace(file, change, damaged, as_json=as_json)


def _owner(found: Comparison, number: int) -> str:
    """Return the engine whose note has this number, or that of notes on the whole."""
    from streamscope.comparing.comparison import ALL

    owners = [engine for each, engine, *_ in found.note_rows() if each == str(number)]
    if len(owners) > 1:
        raise WrongUsageError(f"{listed(owners)} have a note {number} each", hint=f"--engine NAME: {', '.join(owners)}")
    return owners[0] if owners else ALL


def _changed(found: Any, change: Callable[..., Any], **of: str | None) -> Any:
    """Change the notes; errors name the options as they are typed."""
    try:
        return change(found, **of)
    except TraceError as error:
        message, hint = (_OPTION.sub(lambda one: _OPTIONS[one[0]], said or "") for said in (error.message, error.hint))
        raise type(error)(message, hint=hint) from error


def _on_comparison(
    folder: Path, change: Callable[..., Any] | None, engine: str | None, remove: int | None, *, placed: bool, as_json: bool
) -> None:
    """Change the notes of a comparison in a folder, and its report where there is one."""
    from streamscope.comparing.comparison import ALL, load_comparison
    from streamscope.comparing.comparison_folder import REPORT_NAME
    from streamscope.trace.counters import ENGINE_NOTE_HEADS

    found = load_comparison(folder)
    if remove is not None and engine is None:
        engine = _owner(found, remove)
    engine = None if engine == ALL else engine
    if placed and engine is None:
        raise WrongUsageError("a note on a time or a lane needs an engine", hint=f"--engine NAME: {', '.join(found)}")
    if change is not None:
        found = _changed(found, change, engine=engine)
        if (folder / REPORT_NAME).exists():
            write_folder(folder, lambda: found)
        else:
            found.save_folder(folder)
        _say_written(folder)
    _show(ENGINE_NOTE_HEADS, found.note_rows(), found.to_dict().get("user_notes", []), as_json=as_json)


def _on_trace(file: Path, change: Callable[[Any], Any] | None, damaged: str, *, as_json: bool) -> None:
    """Change the notes of a trace, in its own file or beside it."""
    from streamscope.trace.counters import NOTE_HEADS, note_rows

    with reading_progress() as progress:
        trace = read_trace(file, None, damaged, progress)
    if change is not None:
        trace = _changed(trace, change)
        _say_written(_save(trace, file))
    print_warnings(messages(), [said for said in trace.info.notes if "your notes" in said or " of yours " in said])
    _show(NOTE_HEADS, note_rows(trace.user_notes), [note.to_dict() for note in trace.user_notes], as_json=as_json)


def _save(trace: Trace, file: Path) -> Path:
    from streamscope.comparing.comparison_folder import older_traces
    from streamscope.formats.notes_file import holds_notes

    if not holds_notes(file):
        return trace.save_notes(file)
    with suppress(OutputError):  # There is no comparison beside it.
        if file.name in older_traces(file.parent):
            raise WrongUsageError(f"{file} belongs to a comparison", hint=f"streamscope note {file.parent} --engine {trace.info.engine}")
    return trace.to_parquet(file)


def _say_written(path: Path) -> None:
    messages().print(f"wrote {path}", soft_wrap=True, markup=False)


def _show(heads: Sequence[str], rows: Sequence[Sequence[str]], values: list[dict[str, Any]], *, as_json: bool) -> None:
    """Print notes as a table, or as one JSON object."""
    if as_json:
        print_json({"user_notes": values})
    elif rows:
        print_table(output(), table(heads, rows, names=-1))
    else:
        output().print("no notes")
