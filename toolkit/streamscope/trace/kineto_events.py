"""The events of a Kineto file, decoded piece by piece, so that a long file needs little more memory than its spans."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import cache
from typing import IO, Any, Generic, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from streamscope.errors import TraceError
from streamscope.trace.activities import FAR_NS
from streamscope.trace.stored import without_doubles

PIECE_BYTES = 1 << 23
MOST_TEXT_BYTES = 1 << 33
"""Of JSON, once it is decompressed: 8 GiB."""
MOST_PIECE_BYTES = 1 << 25
"""Of the longest single event, or of all that stands in front of the events, or behind them."""
MOST_DECODED_BYTES = 4 * MOST_PIECE_BYTES
"""That a piece may take as Python's objects."""
_OBJECT_BYTES = {b",": 32, b'"': 16, b"[": 64, b"{": 96}
"""About what each of these characters stands for: a number, half of a text, a list, an event or a dictionary."""
_STRIDE = 1 << 17
"""Bytes that are counted at once: they stay in the processor's cache."""
MOST_EVENTS = 50_000_000
EXACT_BELOW_US = 2.0**43
"""A double in µs below this (101 days) is within half a nanosecond of the number in the file."""
_BEGIN = re.compile(rb'"traceEvents"\s*:\s*\[')
_BETWEEN = re.compile(rb"\}\s*(,)\s*(?=\{)")
_SPACES = b" \t\r\n"


class Sizes(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Of a grid or a block. No list, since the garbage collector would look at each again and again."""

    x: int
    y: int
    z: int


class Arguments(msgspec.Struct, gc=False, rename=lambda name: name.replace("_", " ")):
    """What an event says of itself. Other kinds of events use some of the names for other things, so any value may be there."""

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


class OwnArguments(Arguments, gc=False, rename=lambda name: name.replace("_", " ")):
    """What an event of a file that Streamscope wrote says besides."""

    streamscope_kind: Any = None
    streamscope_name: Any = None
    streamscope_symbol: Any = None
    streamscope_operation: Any = None
    streamscope_part: Any = None
    streamscope_basis: Any = None
    streamscope_flops: Any = None
    streamscope_replay: Any = None


Time = TypeVar("Time", float, Decimal)
Said = TypeVar("Said", bound=Arguments)


class Event(msgspec.Struct, Generic[Time, Said], gc=False):
    """One event; flows and metadata are events too. Times are in µs: doubles where these hold all digits."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str | None = None
    tid: int | str | None = None
    ts: Time | None = None
    dur: Time | None = None
    args: Said | None = None


class Beside(msgspec.Struct):
    """What stands beside the events."""

    deviceProperties: Any = None  # noqa: N815 — Kineto's own names
    baseTimeNanoseconds: Any = None  # noqa: N815
    cuda_runtime_version: Any = None
    cuda_driver_version: Any = None
    cupti_version: Any = None
    hip_runtime_version: Any = None
    versions: Any = None
    streamscope: Any = None


_BESIDE = msgspec.json.Decoder(Beside)
AnyEvent = Event[float, Arguments] | Event[Decimal, Arguments]


class Rest(msgspec.Struct, Generic[Time, Said], gc=False):
    """The end of a file."""

    traceEvents: list[Event[Time, Said]]  # noqa: N815 — Kineto's own name


class EventsReader:
    """Reads the events of a Kineto file from a binary file of JSON that is at its start."""

    def __init__(self, file: IO[bytes]) -> None:
        self.beside = Beside()
        """Complete once all events were read."""
        self._file = file
        self._text = bytearray()
        self._bytes_read = 0
        self._ended = False
        self._arguments: type[Arguments] = Arguments

    def pieces(self) -> Iterator[list[AnyEvent]]:
        """Yield the events, some thousand at a time."""
        in_object = self._open()
        if self.beside.streamscope is not None:
            self._arguments = OwnArguments
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
        try:
            if in_object:
                self._text[:0] = b'{"traceEvents":'
                yield self._decoded(self._text, Rest)
                self._look_beside(self._text)
            else:
                yield self._decoded(self._text)
        except msgspec.DecodeError as error:
            raise ValueError(_reason(error, self._text)) from error

    def _open(self) -> bool:
        """Go to the first event; tell whether the events stand in an object, and not alone."""
        self._fill()
        self._text = self._text.removeprefix(b"\xef\xbb\xbf").lstrip(_SPACES)
        if not self._bytes_read:
            raise ValueError("it is empty")
        if self._text.startswith(b"["):
            return False
        if self._text and not self._text.startswith(b"{"):
            raise TraceError("it is not JSON")
        while (found := _BEGIN.search(self._text)) is None:
            if self._ended:
                self._look_beside(self._text)
                raise TraceError("it is JSON without 'traceEvents', and so no file of PyTorch's profiler (Kineto)")
            self._fill()
        self._look_beside(self._text[: found.end()] + b"]}")
        del self._text[: found.end() - 1]
        return True

    def _look_beside(self, text: bytearray) -> None:
        _check_decoded_size(text, len(text))
        try:
            found = _BESIDE.decode(text)
        except msgspec.DecodeError as error:
            raise ValueError(_reason(error, text)) from error
        for name in Beside.__struct_fields__:
            value = getattr(found, name)
            if value is not None:
                setattr(self.beside, name, value)

    def _fill(self) -> None:
        """Read more: as much as there is already, so that what cannot be decoded yet is not tried again and again."""
        data = self._file.read(max(PIECE_BYTES, len(self._text)))
        self._bytes_read += len(data)
        self._ended = not data
        self._text += data
        if self._bytes_read > MOST_TEXT_BYTES or len(self._text) > MOST_PIECE_BYTES:
            raise ValueError(f"it has more than {MOST_TEXT_BYTES:,} bytes of JSON, or {MOST_PIECE_BYTES:,} without an event's end")

    def _whole_events(self) -> list[AnyEvent]:
        """Decode the events that are there whole and are followed by another one; none if the last such place is inside of an event."""
        cut = self._cut()
        if not cut:
            return []
        self._text[cut] = ord("]")  # in the place of the comma, so that nothing has to be copied
        try:
            with memoryview(self._text) as text:
                events = self._decoded(text[: cut + 1])
        except msgspec.ValidationError as error:
            raise ValueError(_reason(error, self._text)) from error
        except msgspec.DecodeError:
            self._text[cut] = ord(",")
            return []
        self._text[cut] = ord("[")
        del self._text[:cut]
        return events

    def _decoded(self, text: bytearray | memoryview, shape: Any = None) -> list[AnyEvent]:
        """Decode events, and once more with all digits of their times if a double does not hold them."""
        _check_decoded_size(self._text, len(text))
        found = _decoder(float, self._arguments, shape).decode(text)
        events: list[AnyEvent] = found if shape is None else found.traceEvents
        us = np.array([event.ts for event in events], np.float64)  # NaN, which JSON does not have, where there is none
        self._check_single_names(events, int(np.count_nonzero(us == us)), len(text))  # noqa: PLR0124 — NaN
        if (np.abs(us) >= EXACT_BELOW_US).any():
            del events, found  # Before they are there once more.
            found = _decoder(Decimal, self._arguments, shape).decode(text)
            events = found if shape is None else found.traceEvents
        return events

    def _check_single_names(self, events: Sequence[AnyEvent], starts: int, end: int) -> None:
        """Refuse an event that has a number twice: which of the two is right, nobody can say.

        Names are counted in the text, which is quick. Where there are more than there should be, all is looked through.
        """
        said = [event.args for event in events if event.args is not None]
        lengths = len([1 for event in events if event.dur is not None])
        joins = len([1 for each in said if each.correlation is not None])
        for name, known in ((b'"ts"', starts), (b'"dur"', lengths), (b'"correlation"', joins)):
            if _most(self._text, name, end) > known and self._text.count(name, 0, end) > known:
                json.loads(self._text[:end], object_pairs_hook=_checked)
                return

    def _cut(self) -> int:
        """Return where the comma is behind the last event that another one follows, as it looks: between two braces."""
        width = 1 << 12
        while True:
            start = max(0, len(self._text) - width)
            found = [match.start(1) for match in _BETWEEN.finditer(self._text, start)]
            if found or start == 0:
                return found[-1] if found else 0
            width *= 16


def _checked(pairs: list[tuple[str, Any]]) -> None:
    """Refuse an object that has one name twice; nothing is kept of it, since all of them take much more memory than their text."""
    without_doubles(pairs)


def _check_decoded_size(text: bytearray, end: int) -> None:
    """Refuse JSON that would take much more memory than it takes room: ``[[],[],[]...`` takes thirty times as much."""
    count = dict.fromkeys(_OBJECT_BYTES, 0)
    for start in range(0, end, _STRIDE):
        some = np.frombuffer(text, np.uint8, min(_STRIDE, end - start), start)
        for character in count:
            count[character] += int(np.count_nonzero(some == ord(character)))
    if sum(nbytes * count[character] for character, nbytes in _OBJECT_BYTES.items()) > MOST_DECODED_BYTES:
        raise ValueError(f"it has too many lists, events or values in {end:,} bytes of JSON, more than any profiler writes")


def _most(text: bytearray, name: bytes, end: int) -> int:
    """Return how often the first four bytes of a name stand in a text: four bytes are compared at once, five times as fast as `count`."""
    first = np.frombuffer(name, np.uint32, 1)
    return sum(int(np.count_nonzero(np.frombuffer(text, np.uint32, (end - at) // 4, at) == first)) for at in range(4) if end >= at + 4)


@cache
def _decoder(time: type, arguments: type, shape: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(list[Event[time, arguments]] if shape is None else shape[time, arguments])  # type: ignore[valid-type]


def _reason(error: msgspec.DecodeError, text: bytearray) -> str:
    at = re.search(r"\(byte (\d+)\)", str(error))
    if at and (number := re.match(rb"-?(NaN|Infinity)", text[int(at[1]) :].removeprefix(b"-")[:9])):
        return f"it has {number[1].decode()} in the place of a number, which JSON does not know"
    return f"its JSON is not as PyTorch's profiler writes it: {error}"


def times_ns(values: Sequence[Any]) -> npt.NDArray[np.int64]:
    """Return times in µs, doubles or decimal numbers, as whole ns; those beyond `FAR_NS`, which are left out and noted, as that."""
    if values and not isinstance(values[0], float):
        return np.array([int(min(max((value * 1000).to_integral_value(), -FAR_NS), FAR_NS)) for value in values], np.int64)
    us = np.clip(np.array(values, np.float64), -FAR_NS / 1000, FAR_NS / 1000)
    whole = np.floor(us)
    return whole.astype(np.int64) * 1000 + np.rint((us - whole) * 1000).astype(np.int64)


def whole_numbers(values: Sequence[Any], missing: int) -> npt.NDArray[np.int64]:
    """Return whole numbers, which some versions write as texts."""
    numbers = [missing if value is None else value for value in values]
    found = np.array(numbers or np.zeros(0, np.int64))
    if found.dtype != np.int64 or found.ndim != 1:
        found = np.array([_parsed(number) for number in numbers], np.int64)
    return found


def _parsed(value: Any) -> int:
    if type(value) is int and abs(value) < 2**63:
        return value
    if not isinstance(value, str) or len(value) > 20:
        raise ValueError(f"{value!r:.20} is not a whole number of 64 bits")
    return int(value)


def products(values: Sequence[Sizes | str | int | None]) -> npt.NDArray[np.int64]:
    """Return the product of each three sizes; 0 where there are none, -1 where it cannot be."""
    known: dict[Sizes | str | int | None, int] = {None: 0}  # few different ones stand in many events
    found = []
    for value in values:
        product = known.get(value)
        if product is None:
            product = known[value] = _product(value)
        found.append(product)
    return np.array(found, np.int64)


def _product(sizes: Sizes | str | int | None) -> int:
    if not isinstance(sizes, Sizes):
        raise TypeError(f"{sizes!r:.20} is not the size of a grid or a block")
    product = sizes.x * sizes.y * sizes.z
    return product if min(sizes.x, sizes.y, sizes.z) >= 0 and product < 2**63 else -1
