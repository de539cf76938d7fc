"""The events of a Kineto file, decoded piece by piece, so that a long file needs little more memory than its spans."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from decimal import Decimal
from functools import cache
from typing import Any, BinaryIO, Generic, TypeVar

import msgspec
import numpy as np

from streamscope.errors import TraceError
from streamscope.formats.kineto.damage import BETWEEN, CUT, EventScanner, LeftOut, Text, mended
from streamscope.trace.file_checks import DamagedError, without_doubles
from streamscope.words import counted

PIECE_BYTES = 1 << 20
"""That are decoded at once: their events stay in the processor's cache while they are looked at several times."""
_MOST_TEXT_BYTES = 1 << 33
"""Of JSON, once it is decompressed: 8 GiB."""
MOST_PIECE_BYTES = 1 << 25
"""Of the longest single event, or of all that stands in front of the events, or behind them."""
MOST_DECODED_BYTES = 4 * MOST_PIECE_BYTES
"""That a piece may take as Python's objects."""
_OBJECT_BYTES = {b",": 32, b'"': 16, b"[": 64, b"{": 96}
"""Estimated size of the object that each character begins or ends: a number, half a string, a list, an event or a dictionary."""
_STRIDE = 1 << 17
"""Bytes that are counted at once: they stay in the processor's cache."""
MOST_EVENTS = 50_000_000
_EXACT_BELOW_US = 2.0**43
"""A double in µs below this (101 days) is within half a nanosecond of the number in the file."""
COUNTER = "C"
"""Phase of events that are counters."""
_BEGIN = re.compile(rb'"traceEvents"\s*:\s*\[')
_SPACES = b" \t\r\n"
_PAUSE = _SPACES + b","
_BYTE = re.compile(r" \(byte (\d+)\)$")
_DAMAGE = (msgspec.DecodeError, UnicodeDecodeError, DamagedError)


class Sizes(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Of a grid or a block. No list, since the garbage collector would look at each again and again."""

    x: int
    y: int
    z: int


class Arguments(msgspec.Struct, gc=False, rename=lambda name: name.replace("_", " ")):
    """An event's arguments. Other kinds of events use some of the names for other things, so any value may be there."""

    correlation: Any = None
    device: Any = None
    stream: Any = None
    context: Any = None
    grid: Sizes | str | int | None = None  # Triton's operators have a text there
    block: Sizes | str | int | None = None
    bytes: Any = None
    graph_node_id: Any = None
    wait_on_stream: Any = msgspec.field(default=None, name="wait_on_stream")
    recorded_by: Any = msgspec.field(default=None, name="wait_on_cuda_event_record_corr_id")
    collective: Any = msgspec.field(default=None, name="Collective name")
    elements_in: Any = msgspec.field(default=None, name="In msg nelems")
    elements_out: Any = msgspec.field(default=None, name="Out msg nelems")
    dtype: Any = None
    group_size: Any = msgspec.field(default=None, name="Group size")
    group: Any = msgspec.field(default=None, name="Process Group Name")
    group_ranks: Any = msgspec.field(default=None, name="Process Group Ranks")
    sequence: Any = msgspec.field(default=None, name="Seq")
    sender: Any = msgspec.field(default=None, name="Src Rank")
    receiver: Any = msgspec.field(default=None, name="Dst Rank")
    reduction: Any = None
    instance: Any = None
    lane: Any = None
    from_gpu: Any = msgspec.field(default=None, name="fromDevice")
    to_gpu: Any = msgspec.field(default=None, name="toDevice")
    copy_context: Any = msgspec.field(default=None, name="inContext")
    """Of a copy between GPUs, which has no ``context``."""
    site: Any = msgspec.field(default=None, name="launch site")
    sequence_number: Any = msgspec.field(default=None, name="Sequence number")
    forward_thread: Any = msgspec.field(default=None, name="Fwd thread id")
    memory_bytes: Any = msgspec.field(default=None, name="Bytes")
    address: Any = msgspec.field(default=None, name="Addr")
    memory_device: Any = msgspec.field(default=None, name="Device Id")
    memory_device_type: Any = msgspec.field(default=None, name="Device Type")
    total_allocated: Any = msgspec.field(default=None, name="Total Allocated")
    total_reserved: Any = msgspec.field(default=None, name="Total Reserved")


Time = TypeVar("Time", float, Decimal)


class Event(msgspec.Struct, Generic[Time], gc=False):
    """One event; flows and metadata are events too. Times are in µs: doubles where these hold all digits."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str | None = None
    tid: int | str | None = None
    ts: Time | None = None
    dur: Time | None = None
    args: Arguments | None = None


class Beside(msgspec.Struct):
    """The file's fields beside ``traceEvents``."""

    deviceProperties: Any = None  # noqa: N815 — Kineto's own names
    distributedInfo: Any = None  # noqa: N815
    baseTimeNanoseconds: Any = None  # noqa: N815
    cuda_runtime_version: Any = None
    cuda_driver_version: Any = None
    cupti_version: Any = None
    hip_runtime_version: Any = None
    versions: Any = None
    streamscope: Any = None


_BESIDE = msgspec.json.Decoder(Beside)


class CounterEvent(msgspec.Struct, gc=False):
    """The part of an event that has other names in each file: what a counter counts."""

    ph: str = ""
    args: msgspec.Raw = msgspec.Raw(b"null")


AnyEvent = Event[float] | Event[Decimal]


class Rest(msgspec.Struct, Generic[Time], gc=False):
    """The end of a file."""

    traceEvents: list[Event[Time]]  # noqa: N815 — Kineto's own name


class _CounterRest(msgspec.Struct, gc=False):
    traceEvents: list[CounterEvent]  # noqa: N815 — Kineto's own name


class EventsReader:
    """Reads the events of a Kineto file from a binary file of JSON that is at its start.

    With ``skip``, events that are damaged are left out, and counted.
    """

    def __init__(self, file: BinaryIO | io.BufferedIOBase, *, skip: bool = False) -> None:
        self.beside = Beside()
        """Complete once all events were read."""
        self._file, self._skip = file, skip
        self._text = bytearray()
        self._at = 0
        """Where in the file the text begins."""
        self._bytes_read = 0
        self._ended = False
        self._scanner = EventScanner(_wrong_event)
        self._mended = Counter[str]()
        self._left_out = LeftOut()
        self._endless = self._headless = False

    def notes(self) -> list[str]:
        """Return notes on repaired and skipped text; complete once all events were read."""
        said = [f"{what}: {counted(count, 'place')}" for what, count in self._mended.items()]
        said += self._left_out.notes()
        if self._headless:
            said.append("left out: what stands before the events, which is damaged: the GPU's name and versions may be missing")
        if self._endless:
            said.append(f"the file ends at byte {self._bytes_read:,} before its events do: what came behind that, if anything, is missing")
        return said

    @property
    def lost(self) -> int:
        """How many events are missing, at least."""
        return len(self._left_out) or int(self._endless and self._skip)

    def pieces(self) -> Iterator[list[AnyEvent]]:
        """Yield the events, some thousand at a time."""
        in_object = self._open()
        count = 0
        while not self._ended:
            events = self._whole_events()
            if events:
                count += len(events)
                if count > MOST_EVENTS:
                    raise ValueError(f"it has more than {MOST_EVENTS:,} events")
                yield events
            del events  # Before the next ones are made.
            self._fill()
        if in_object and _BEGIN.search(self._text):
            raise ValueError("it has 'traceEvents' twice")
        yield self._last_events(in_object=in_object)

    def _open(self) -> bool:
        """Go to the first event; tell whether the events stand in an object, and not alone."""
        self._fill()
        self._drop(3 if self._text.startswith(b"\xef\xbb\xbf") else 0)
        self._drop(len(self._text) - len(self._text.lstrip(_SPACES)))
        if not self._bytes_read:
            raise ValueError("it is empty")
        if self._text.startswith(b"["):
            return False
        if self._text and not self._text.startswith(b"{"):
            raise TraceError("it is not JSON")
        while (found := _BEGIN.search(self._text)) is None:
            if self._ended:
                self._look_beside(self._text, self._at)
                raise TraceError("it is JSON without 'traceEvents', and so no file of PyTorch's profiler (Kineto)")
            # `_fill` doubles the text, and would refuse it without saying why.
            if 2 * len(self._text) > MOST_PIECE_BYTES:
                raise TraceError(f"it is JSON, but has no 'traceEvents' in its first {len(self._text):,} bytes")
            self._fill()
        try:
            # With its brackets closed, the head alone is JSON.
            self._mended += self._look_beside(self._text[: found.end()] + b"]}", self._at)
        except DamagedError:
            if not self._skip or b"streamscope" in self._text[: found.end()]:  # It may say that times are simulated.
                raise
            self._headless = True
        self._drop(found.end() - 1)
        return True

    def _drop(self, nbytes: int) -> None:
        del self._text[:nbytes]
        self._at += nbytes

    def _look_beside(self, text: Text, at: int) -> Counter[str]:
        """Decode the fields before the events, and return the repaired text; ``at`` is the text's offset in the file."""
        _check_decoded_size(text, len(text))
        said = Counter[str]()
        try:
            try:
                found = _BESIDE.decode(text)
            except _DAMAGE:
                mended_text, said = mended(text)
                found = _BESIDE.decode(mended_text)
        except _DAMAGE as error:
            raise _damage(str(error), at) from error
        for name in Beside.__struct_fields__:
            value = getattr(found, name)
            if value is not None:
                setattr(self.beside, name, value)
        return said

    def _fill(self) -> None:
        """Double the text that is read: an unfinished event is then decoded anew only a logarithmic number of times."""
        data = self._file.read(max(PIECE_BYTES, len(self._text)))
        self._bytes_read += len(data)
        self._ended = not data
        self._text += data
        if self._bytes_read > _MOST_TEXT_BYTES or len(self._text) > MOST_PIECE_BYTES:
            raise ValueError(f"it has more than {_MOST_TEXT_BYTES:,} bytes of JSON, or {MOST_PIECE_BYTES:,} without an event's end")

    def _whole_events(self) -> list[AnyEvent]:
        """Decode the events that are there whole and are followed by another one; none if the last such place is inside of an event."""
        cut = self._cut()
        if not cut:
            return []
        self._text[cut] = ord("]")  # in the place of the comma, so that nothing has to be copied
        try:
            events = self._decoded(self._text, cut + 1)
        except _DAMAGE as error:
            self._text[cut] = ord(",")
            return self._salvaged(error)
        # The same place now opens the list of the events that follow.
        self._text[cut] = ord("[")
        self._drop(cut)
        return events

    def _last_events(self, *, in_object: bool) -> list[AnyEvent]:
        """Decode the rest once the file has ended, with the fields behind the events."""
        earlier, self._mended = self._mended, Counter()
        head = b'{"traceEvents":' if in_object else b""
        text = bytearray(head) + self._text
        if not in_object and text.rstrip(_PAUSE).endswith(b"}"):
            text, self._endless = text.rstrip(_PAUSE) + b"]", True  # Chrome lets a list of events go without its end.
        try:
            events = self._decoded(text, len(text), Rest if in_object else None)
        except _DAMAGE as error:
            events = self._salvaged(error, len(head))
            self._endless = len(self._text) < 2
            text = bytearray(head) + self._text
        if in_object and not self._endless:
            try:
                self._mended |= self._look_beside(text, self._at - len(head))  # The text holds the events, too.
            except DamagedError:
                if not self._skip:
                    raise
                self._endless = True
        self._mended += earlier
        return events

    def _salvaged(self, error: Exception, before: int = 0) -> list[AnyEvent]:
        """Decode the events that are whole and leave out the others, or refuse the file for them.

        Where more is to come, a text that ends in an event is not damaged, nor one that ends behind the list of events.
        ``before``: bytes in front of the text where the error was found.
        """
        if not (self._skip or self._ended) and (_is_cut(error) or "trailing characters" in str(error)):
            return []
        _check_decoded_size(self._text, len(self._text))
        if not self._skip:
            raise self._refusal(error, before) from error
        whole, end = bytearray(b"["), 1
        for start, end, wrong in self._scanner.parts(self._text, ended=self._ended):
            if wrong is None:
                whole += self._text[start:end] + b","
            else:
                self._left_out.add(self._at + start, self._at + end, wrong)
        # In the place of the last comma; without any event, behind the bracket.
        whole[len(whole) - (len(whole) > 1) :] = b"]"
        while end < len(self._text) and self._text[end] in _PAUSE:
            end += 1
        self._drop(end - 1)
        self._text[:1] = b"["
        return self._decoded(whole, len(whole))

    def _refusal(self, error: Exception, before: int) -> DamagedError:
        """Return the error for the first damaged event, or for the file as a whole."""
        found = (part for part in self._scanner.parts(self._text, ended=True) if part.error)
        try:
            start, _, wrong = next(found, (-before, 0, None))
        except ValueError:  # It would take too long.
            wrong = None
        if wrong is None or (wrong == CUT and not self._ended):
            start, wrong = -before, str(error)
        return _damage(wrong, self._at + start)

    def _decoded(self, text: bytearray, end: int, shape: Any = None) -> list[AnyEvent]:
        """Decode events, with other tools' near-JSON and times written as strings."""
        _check_decoded_size(text, end)
        try:
            return self._exact(text, end, shape)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            found, said = mended(text[:end])
            if not said and not _is_text_time(error):
                raise
        try:
            events = self._exact(found, len(found), shape)
        except msgspec.ValidationError as error:
            if not _is_text_time(error):
                raise
            events = self._exact(found, len(found), shape, Decimal)
            _check_finite(events)
        self._mended += said
        return events

    def _exact(self, text: Text, end: int, shape: Any, time: type = float) -> list[AnyEvent]:
        """Decode events, and once more with all digits of their times if a double does not hold them."""
        with memoryview(text) as view, view[:end] as some:
            found = _decoder(time, shape).decode(some)
            events: list[AnyEvent] = found if shape is None else found.traceEvents
            us = np.array([event.ts for event in events], np.float64)  # NaN, which JSON does not have, where there is none
            _check_single_names(text, end, events, int(np.count_nonzero(us == us)))  # noqa: PLR0124 — NaN
            if time is float and (np.abs(us) >= _EXACT_BELOW_US).any():
                del events, found  # Before they are there once more.
                found = _decoder(Decimal, shape).decode(some)
                events = found if shape is None else found.traceEvents
            if COUNTER in {event.ph for event in events}:
                _add_counts(events, some, in_object=shape is not None)
        return events

    def _cut(self) -> int:
        """Return where the comma is behind the last event that another one follows, as it looks: between two braces."""
        # From the end backwards, in windows that grow: the last boundary is most often near.
        width = 1 << 12
        while True:
            start = max(0, len(self._text) - width)
            found = [match.start(1) for match in BETWEEN.finditer(self._text, start)]
            if found or start == 0:
                return found[-1] if found else 0
            width *= 16


def _add_counts(events: Sequence[AnyEvent], text: memoryview, *, in_object: bool) -> None:
    """Give events that are counters all of their arguments, as a dictionary; any other event has those that are known by name."""
    found: Any = msgspec.json.decode(text, type=_CounterRest if in_object else list[CounterEvent])
    for event, more in zip(events, found.traceEvents if in_object else found, strict=True):
        if event.ph == COUNTER:
            event.args = msgspec.json.decode(more.args)


def _wrong_event(event: bytes) -> str | None:
    """Return the fault in the text of one event; None where it is whole."""
    text, said = mended(event)
    try:
        try:
            found = _decoder(float, Event).decode(text)
        except msgspec.ValidationError as error:
            if not _is_text_time(error):
                raise
            found = _decoder(Decimal, Event).decode(text)
            _check_finite([found])
        _check_single_names(text, len(text), [found], int(found.ts is not None))
    except (*_DAMAGE, RecursionError) as error:
        if _is_cut(error):
            return CUT
        return _BYTE.sub("", str(error)) if said else str(error)
    return None


def _damage(wrong: str, at: int) -> DamagedError:
    """Return the error for a text that begins at a byte of the file; those of msgspec count from the beginning of the text."""
    byte = _BYTE.search(wrong)
    at += int(byte[1]) if byte else 0
    return DamagedError(f"its JSON is not as PyTorch's profiler writes it, at byte {max(at, 0):,}: {_BYTE.sub('', wrong)}")


def _is_cut(error: Exception) -> bool:
    """Tell whether JSON is not wrong as far as it goes."""
    return str(error) == "Input data was truncated"


def _is_text_time(error: Exception) -> bool:
    return re.search(r"got `str` - at `\$.*\b(?:ts|dur)`$", str(error)) is not None


def _check_finite(events: Sequence[AnyEvent]) -> None:
    """Refuse times that are strings: a mended inf or nan has become one."""
    for event in events:
        for time in (event.ts, event.dur):
            if isinstance(time, Decimal) and not time.is_finite():
                raise DamagedError(f"it has {time} in the place of a number")


def _check_single_names(text: Text, end: int, events: Sequence[AnyEvent], starts: int) -> None:
    """Refuse an event that has a number twice: which of the two is right, nobody can say.

    Names are counted in the text, which is quick. Where there are more than there should be, all is looked through.
    """
    said = [event.args for event in events if event.args is not None]
    lengths = len(events) - [event.dur for event in events].count(None)
    joins = len(said) - [each.correlation for each in said].count(None)
    names = {b'"ts"': starts, b'"dur"': lengths, b'"correlation"': joins}
    for (name, known), most in zip(names.items(), _most(text, names, end), strict=True):
        if most > known and text.count(name, 0, end) > known:
            try:
                json.loads(text[:end], object_pairs_hook=_checked)
            except ValueError as error:
                raise DamagedError(str(error)) from error
            return


def _checked(pairs: list[tuple[str, Any]]) -> None:
    """Refuse an object that has one name twice; nothing is kept of it, since all of them take much more memory than their text."""
    without_doubles(pairs)


def _check_decoded_size(text: Text, end: int) -> None:
    """Refuse JSON that would take much more memory than it takes room: ``[[],[],[]...`` takes thirty times as much."""
    if end * max(_OBJECT_BYTES.values()) <= MOST_DECODED_BYTES:
        return
    count = dict.fromkeys(_OBJECT_BYTES, 0)
    for start in range(0, end, _STRIDE):
        some = np.frombuffer(text, np.uint8, min(_STRIDE, end - start), start)
        for character in count:
            count[character] += int(np.count_nonzero(some == ord(character)))
    if sum(nbytes * count[character] for character, nbytes in _OBJECT_BYTES.items()) > MOST_DECODED_BYTES:
        raise ValueError(f"it has too many lists, events or values in {end:,} bytes of JSON, more than any profiler writes")


def _most(text: Text, names: Collection[bytes], end: int) -> list[int]:
    """Return how often bytes 0, 1 and 3 of each name stand in a text, a quote and two letters: that is six times as quick as `count`."""
    found = [0] * len(names)
    for start in range(0, end - 3, _STRIDE):
        some = np.frombuffer(text, np.uint8, min(_STRIDE + 3, end - start), start)
        quote = some[:-3] == ord('"')
        for place, name in enumerate(names):
            found[place] += int(np.count_nonzero(quote & (some[1:-2] == name[1]) & (some[3:] == name[3])))
    return found


@cache
def _decoder(time: type, shape: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(list[Event[time]] if shape is None else shape[time])  # type: ignore[valid-type]
