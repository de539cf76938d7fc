"""Kineto files that are damaged, or not quite JSON: which events are whole, and how to read other tools' near-JSON."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from streamscope.words import counted

Text = bytes | bytearray
_Check = Callable[[bytes], str | None]
"""Returns the fault in the text of one event; None where it is whole."""

CUT = "it ends in the middle of an event"
_NO_EVENT = "an object was expected, for an event"
MOST_SEARCHED_BYTES = 1 << 28
"""That are gone through for the ends of events whose braces do not fit, in a whole file."""
MOST_TRIES = 200_000
"""Texts that turn out to be no event, in a whole file."""
BETWEEN = re.compile(rb"\}\s*(,)\s*(?=\{)")
"""The comma between two events, as it looks: in a string or in a list of an event there may be one like it."""
_PAUSE = re.compile(rb"[\s,]*")
_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_BRACES = re.compile(_STRING + rb"|[{}]", re.DOTALL)
_LIST_END = re.compile(rb'\]\s*(?:,\s*"|\}\s*\Z|\Z)')
_LAST = re.compile(rb"\}\s*(" + _LIST_END.pattern + rb")")
_ODD = re.compile(
    rb'"(?:[^"\\\x00-\x1f]++|\\.)*+"|(' + _STRING + rb")"
    rb"|([-+]?(?:nan(?:\(\w*\))?|inf(?:inity)?|1\.#(?:inf|ind|qnan|snan)\d*))(?=\s*[,}\]])",
    re.DOTALL | re.IGNORECASE,
)
"""A string as it has to be; the first group is a string with control characters, the second is inf or nan."""
_CONTROL = re.compile(rb"[\x00-\x1f]")
_ESCAPE = re.compile(rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL)
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")


def mended(text: Text) -> tuple[bytes, Counter[str]]:
    """Return a text as JSON, and how often it held something else: bytes or characters that JSON does not allow, inf and nan.

    Each of the first becomes ``�``, each of the last a text such as ``"nan"``, so that it is not taken for a number where one is read.
    """
    said = Counter[str]()
    try:
        text.decode()
    except UnicodeDecodeError:
        replaced = text.decode(errors="replace")
        said["bytes that are not UTF-8, now �"] += replaced.count("�") - text.count("�".encode())
        text = replaced.encode()
    if _HALF.search(text):
        text, halves = _replaced(_ESCAPE, text, lambda _: rb"\ufffd")
        said["halves of characters, now �"] += halves[1]
    text, odd = _replaced(_ODD, text, lambda found: _CONTROL.sub("�".encode(), found[1]) if found[1] else b'"%b"' % found[2])
    said["texts with control characters, now �"] += odd[1]
    said["inf or nan, which JSON does not know, in values that nobody reads"] += odd[2]
    return bytes(text), +said


def _replaced(pattern: re.Pattern[bytes], text: Text, instead: Callable[[re.Match[bytes]], bytes]) -> tuple[bytearray, Counter[int]]:
    """Replace the matches that have a group, and count them by its number. The others, which are many, cost memory in `re.sub`."""
    found, count, end = bytearray(), Counter[int](), 0
    for match in pattern.finditer(text):
        if match.lastindex:
            count[match.lastindex] += 1
            found += text[end : match.start()] + instead(match)
            end = match.end()
    return found + text[end:], count


class Part(NamedTuple):
    """A stretch of a list of events: one that is whole, or something damaged up to the next one that is."""

    start: int
    end: int
    error: str | None


class LeftOut:
    """How much of a file was left out, and from where on."""

    def __init__(self) -> None:
        self._count, self._bytes, self._first = Counter[bool](), 0, dict[bool, int]()

    def add(self, start: int, end: int, error: str) -> None:
        """Count the damage between two offsets in the file."""
        cut = error == CUT
        self._count[cut] += 1
        self._bytes += 0 if cut else end - start
        self._first.setdefault(cut, start)

    def __len__(self) -> int:
        return self._count.total()

    def notes(self) -> Iterator[str]:
        """Yield a note for each kind of damage."""
        if damaged := self._count[False]:
            yield f"left out: {counted(damaged, 'damaged event')}, {self._bytes:,} bytes in all, from byte {self._first[False]:,} on"
        if cut := self._count[True]:
            yield f"left out: {counted(cut, 'event')} without an end, from byte {self._first[True]:,} on"


class EventScanner:
    """Finds the whole events of a text between damaged ones."""

    def __init__(self, check: _Check) -> None:
        self._checked = check
        self._searched = self._tries = 0

    def parts(self, text: Text, *, ended: bool) -> Iterator[Part]:
        """Yield the events of a JSON list, whose opening bracket is the text's first character.

        Unless the file has ``ended``, a last event that is not whole is left for later.
        """
        at = 1
        while True:
            at = _PAUSE.match(text, at).end()  # type: ignore[union-attr]
            if at == len(text) or _LIST_END.match(text, at):
                return
            end, error = self._event(text, at)
            if error is not None:
                following = self._next(text, at, whole=error in (CUT, _NO_EVENT))
                if following is None and not ended:
                    return
                last = _LAST.search(text, at) if following is None else None
                end = len(text) if following is None else following
                end = last.start(1) if last else end
            yield Part(at, end, error)
            at = end

    def _event(self, text: Text, at: int) -> tuple[int, str | None]:
        """Return the end of an event, and its fault or None."""
        if text[at : at + 1] != b"{":
            return at, _NO_EVENT
        boundary = BETWEEN.search(text, at)
        if boundary is not None:
            end = boundary.start() + 1
            error = self._check(bytes(text[at:end]))
            if error != CUT:
                return end, error
        end = self._closed(text, at)  # The boundary was one inside of the event.
        return end, self._check(bytes(text[at:end])) if end else CUT

    def _next(self, text: Text, at: int, *, whole: bool) -> int | None:
        """Return the start of the next event, with ``whole`` of one that is; objects inside of an event have no ``ph``."""
        boundary = BETWEEN.search(text, at)
        while boundary is not None:
            start, boundary = boundary.end(), BETWEEN.search(text, boundary.end())
            end = boundary.start() + 1 if boundary else self._closed(text, start)
            event = bytes(text[start : end or len(text)])
            if b'"ph"' in event and not (whole and self._check(event)):
                return start
        return None

    def _closed(self, text: Text, at: int) -> int:
        """Return the end of the object that opens at ``at``; 0 if it is never closed."""
        depth = 0
        for found in _BRACES.finditer(text, at):
            depth += {b"{": 1, b"}": -1}.get(found[0], 0)
            if depth == 0:
                self._count(found.end() - at)
                return found.end()
        self._count(len(text) - at)
        return 0

    def _check(self, event: bytes) -> str | None:
        error = self._checked(event)
        self._count(0, error is not None)
        return error

    def _count(self, nbytes: int, tries: int = 0) -> None:
        self._searched += nbytes
        self._tries += tries
        if self._searched > MOST_SEARCHED_BYTES or self._tries > MOST_TRIES:
            raise ValueError("too much of it is damaged to search for whole events")
