"""The users' expressions and their places, so that errors of the compiler quote them and not the generated source."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

_ERROR = re.compile(
    r"^\w+\.cu\((?P<number>\d+)\): (?:catastrophic )?error(?: #[\w-]+)?: (?P<problem>.+)"
    r"(?:(?P<types>(?:\n {12}.*)*?)\n.*\n(?P<before>[ \t]*)\^)?",
    re.MULTILINE,
)
"""An error, NVRTC's notes on types and overloads, and the source line that it quotes with a caret."""
_ASSEMBLER = re.compile(r"^ptxas (?:error|fatal)\s*: (?P<problem>.+)", re.MULTILINE)
"""An assembler's error about a whole kernel, for example about its shared memory."""
_STATEMENT = re.compile(r" *(?:return|const T \w+ =) (.*?);(?:  // (.*))?")
"""The line of a generated source that holds an expression, or a comment with it where something else is compiled."""
_WORD = re.compile(r"wrapping::\w+|\w+")
_INDENT = 2
"""By how much NVRTC indents a line of source that it quotes."""


@dataclass(frozen=True)
class Written:
    """An operator of one line, as its user wrote it."""

    name: str
    """Name of the operator."""
    line: str
    """The whole line."""
    expressions: tuple[str, ...]
    """As they stand in generated sources: of the result, then of gradients."""
    place: str
    """``file:line`` of the user's code."""

    def part_at(self, lines: list[str], number: int) -> _Part | None:
        """Return which part of it is at a line of a source; None where that line is none of it."""
        statement = _STATEMENT.fullmatch(lines[number])
        if statement is not None and (statement[2] or statement[1]) in self.expressions:
            return _Part(self, self.place, statement[2] or statement[1], statement.start(1), statement[1])
        return None


@dataclass(frozen=True)
class _Part:
    """A part of a user's expression: name of its place, text, column in the generated source, and code."""

    written: Written
    place: str
    text: str
    start: int
    code: str

    def shown(self, column: int | None) -> str:
        """Return it with a caret below a column of the generated source."""
        lines = [f"    {self.place} | {self.text}"]
        at = None if column is None else self._column(column - self.start)
        if at is not None and 0 <= at <= len(self.text):
            lines.append(f"    {' ' * len(self.place)} | {' ' * at}^")
        return "\n".join(lines)

    def _column(self, at: int) -> int | None:
        """Return where that which stands at a place in the code stands in the text: of another text, only words are found again."""
        if self.code == self.text:
            return at
        words = [word[0] for word in _WORD.finditer(self.code) if word.start() <= at]
        places = [word.start() for word in _WORD.finditer(self.text) if words and word[0] == words[-1]]
        count = words.count(words[-1]) if places else 0
        return places[count - 1] if 0 < count <= len(places) else None


_MOST_KEPT = 1024
"""Operators that are remembered; the oldest go first."""

_written: dict[tuple[str, str, tuple[str, ...]], Written] = {}


def note(written: Written) -> None:
    """Keep a user's expression; of equal ones, the place of the last counts."""
    key = (written.name, written.line, written.expressions)
    _written.pop(key, None)
    _written[key] = written
    if len(_written) > _MOST_KEPT:
        with suppress(StopIteration, KeyError, RuntimeError):  # where another thread does the same
            del _written[next(iter(_written))]


def explained(name: str, code: str, log: str, architecture: str) -> tuple[str, str] | None:
    """Return message and hint for a kernel rejected because of a user's expression; None for other reasons."""
    # The same text may be in several operators; the one that the kernel is named after comes first, else the latest.
    known = list(_written.values())[::-1]
    known.sort(key=lambda each: not name.startswith(f"{each.name}_"))
    lines = code.split("\n")  # as NVRTC counts them; Python has other ends of lines, too
    found = list(_ERROR.finditer(log))
    # What is wrong with our own functions only follows from what is wrong inside.
    own = [error for error in found if "wrapping::" not in error["problem"]] or found
    errors = [(error, _part(known, lines, int(error["number"]) - 1)) for error in own]
    meant = next((part.written for _, part in errors if part is not None), None)
    shown = [_shown(error, part) for error, part in errors]
    if not errors:
        shown = [f"error: {error['problem']}" for error in _ASSEMBLER.finditer(log)]
    if meant is None:
        # The compiler points into our own functions, or the assembler at no line: the kernel's name, or else its text, has the operator.
        named = [each for each in known if name.startswith(f"{each.name}_")] if errors else known
        meant = next((each for each in named if any(each.part_at(lines, number) for number in range(len(lines)))), None)
    if meant is None or not shown:
        return None
    head = f'ss.elementwise("{meant.line}") at {meant.place}: kernel {name!r} did not compile for {architecture}'
    # Where a kernel is instantiated twice, so are its errors.
    return "\n".join([head, *dict.fromkeys(shown)]), "the program's source(*inputs) returns the whole kernel"


def _part(known: Iterable[Written], lines: list[str], number: int) -> _Part | None:
    parts = (written.part_at(lines, number) for written in known) if 0 <= number < len(lines) else ()
    return next((part for part in parts if part is not None), None)


def _shown(error: re.Match[str], part: _Part | None) -> str:
    if part is None:
        return error[0]
    column = None if error["before"] is None else len(error["before"]) - _INDENT
    return f"error: {error['problem']}{error['types'] or ''}\n{part.shown(column)}"
