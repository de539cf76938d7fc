"""Counters, markers and notes: numbers and moments that a program names, and notes of readers, on the time axis of its spans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from streamscope.arguments import shown, whole_number
from streamscope.arrays import Array, IntArray
from streamscope.errors import TraceError
from streamscope.trace.columns import Columns, columns_of, holds, indexed, none
from streamscope.trace.file_checks import MOST_NS, is_text, is_tuple_of_texts
from streamscope.trace.spans import SpanTable
from streamscope.words import counted, exact_time_text, listed

if TYPE_CHECKING:
    import pandas as pd

LONGEST_COUNTER = 1_000
"""Most characters of a name; those of files are cut."""
MOST_NOTES, LONGEST_NOTE = 1_000, 2_000
"""Notes of a trace, and characters of one."""
NOTE_HEADS = ("note", "at", "lane", "text")
ENGINE_NOTE_HEADS = ("note", "engine", "at", "lane", "text")


@dataclass(frozen=True)
class Series:
    """The values of one counter.

    Attributes
    ----------
    name : str
    unit : str
        Empty where it is not known.
    process : str
        Process that counted; empty where it is not known, or does not tell two series apart.
    gpu : int
        GPU that the values are of; -1 for the host, or where it is not known.

    Raises
    ------
    TraceError
        A field is wrong.
    """

    name: str
    unit: str = ""
    process: str = ""
    gpu: int = -1

    def __post_init__(self) -> None:
        if not is_tuple_of_texts((self.name, self.unit, self.process)) or not self.name or type(self.gpu) is not int or self.gpu < -1:
            raise TraceError(f"a counter has a name, a unit, a process and a GPU's number, not {shown(self)}")

    @property
    def label(self) -> str:
        """Name with GPU, process and unit, where they are known: ``"GPU 1 power, W"``."""
        gpu = f"GPU {self.gpu} " if self.gpu >= 0 and not self.name.startswith("GPU ") else ""
        process = f" ({self.process})" if self.process else ""
        return f"{gpu}{self.name}{process}" + (f", {self.unit}" if self.unit else "")


def _are_series(given: object) -> bool:
    return isinstance(given, tuple) and all(isinstance(each, Series) for each in given)


@dataclass(frozen=True, eq=False)
class Counters(Columns):
    """Values of counters as equally long columns, sorted by ``time_ns``. A value holds until the next one of its series.

    Attributes
    ----------
    time_ns : int64 array
        Since the trace's zero, as the times of its spans.
    series : int32 array
        Index into ``described``.
    value : float64 array
    described : tuple of Series

    Raises
    ------
    TraceError
        A column is not as said here, or there are more than 100,000 values.

    Examples
    --------
    >>> from streamscope.trace import Counters, Series
    >>> counters = Counters([10, 20, 30], [0, 0, 1], [2.5, 1.5, 70.0], (Series("loss"), Series("power", "W", gpu=0)))
    >>> counters.summary()[0]
    {'name': 'loss', 'count': 2, 'min': 1.5, 'max': 2.5, 'last': 1.5}
    """

    time_ns: IntArray = field(default_factory=none, repr=False, metadata=holds(np.int64))
    series: IntArray = field(default_factory=none, repr=False, metadata=holds(np.int32, of="described"))
    value: Array = field(default_factory=none, repr=False, metadata=holds(np.float64))
    described: tuple[Series, ...] = field(default=(), metadata=indexed(_are_series, "Series"))

    NOUN: ClassVar = "counters"
    MOST: ClassVar = 100_000

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_sorted(self)

    def of_gpu(self, gpu: int) -> Self:
        """Return the series of one GPU, and those of the host."""
        kept = [number for number, each in enumerate(self.described) if each.gpu in (-1, gpu)]
        code = np.full(len(self.described), -1)
        code[kept] = np.arange(len(kept))
        series = code[self.series] if len(self) else self.series
        chosen = series >= 0
        return replace(
            self,
            time_ns=self.time_ns[chosen],
            series=series[chosen],
            value=self.value[chosen],
            described=tuple(self.described[number] for number in kept),
        )

    def rows_of(self, number: int) -> IntArray:
        """Return the rows of a series, by its place in ``described``."""
        return np.flatnonzero(self.series == number)

    def summary(self) -> list[dict[str, Any]]:
        """Return name, count, least, largest and last value of each series as JSON values; unit, process and GPU where they are known."""
        found = []
        for number, each in enumerate(self.described):
            values = self.value[self.rows_of(number)]
            if len(values):
                told = {"unit": each.unit, "process": each.process} | ({"gpu": each.gpu} if each.gpu >= 0 else {})
                numbers = {"min": float(values.min()), "max": float(values.max()), "last": float(values[-1])}
                found.append({"name": each.name, "count": len(values), **numbers, **{key: one for key, one in told.items() if one != ""}})
        return found

    def to_pandas(self) -> pd.DataFrame:
        """Return one row for each value: ``time_ns``, ``name``, ``unit``, ``process``, ``gpu``, ``value``."""
        import pandas as pd

        of_row = [self.described[number] for number in self.series.tolist()]
        told = {key: [getattr(each, key) for each in of_row] for key in ("name", "unit", "process", "gpu")}
        return pd.DataFrame({"time_ns": self.time_ns, **told, "value": self.value})

    def to_dict(self) -> dict[str, Any]:
        """Return the columns as JSON values."""
        return super().to_dict() | {"described": [[each.name, each.unit, each.process, each.gpu] for each in self.described]}

    @classmethod
    def _stored(cls, stored: Mapping[str, Any]) -> dict[str, Any]:
        return super()._stored(stored) | {"described": tuple(Series(*each) for each in stored["described"])}


@dataclass(frozen=True, eq=False)
class Markers(Columns):
    """Moments that a program named, as equally long columns, sorted by ``time_ns``.

    Attributes
    ----------
    time_ns : int64 array
        Since the trace's zero, as the times of its spans.
    name, thread : int32 arrays
        Index into ``texts`` of the name, and of the thread's lane; -1 for a thread that is not known.
    texts : tuple of str

    Raises
    ------
    TraceError
        A column is not as said here, or there are more than 20,000 markers.

    Examples
    --------
    >>> from streamscope.trace import Markers
    >>> Markers.of([(500, "epoch 3", "host"), (10, "epoch 2", "host")]).names
    ['epoch 2', 'epoch 3']
    """

    time_ns: IntArray = field(default_factory=none, repr=False, metadata=holds(np.int64))
    name: IntArray = field(default_factory=none, repr=False, metadata=holds(np.int32, of="texts"))
    thread: IntArray = field(default_factory=none, repr=False, metadata=holds(np.int32, -1, of="texts"))
    texts: tuple[str, ...] = field(default=(), metadata=indexed())

    NOUN: ClassVar = "markers"
    MOST: ClassVar = 20_000

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_sorted(self)

    @classmethod
    def of(cls, rows: Sequence[tuple[int, str, str]]) -> Self:
        """Make them of rows in any order: time, name, and the thread's lane, empty where it is not known."""
        codes: dict[str, int] = {}
        ordered = sorted(rows, key=lambda row: row[0])
        names = [codes.setdefault(name, len(codes)) for _, name, _ in ordered]
        threads = [codes.setdefault(thread, len(codes)) if thread else -1 for _, _, thread in ordered]
        times = [time_ns for time_ns, _, _ in ordered]
        return cls(np.array(times, np.int64), np.array(names, np.int64), np.array(threads, np.int64), tuple(codes))

    @property
    def names(self) -> list[str]:
        """Name of each marker."""
        return self.words("name")

    @property
    def threads(self) -> list[str]:
        """Lane of each marker's thread; empty where it is not known."""
        return self.words("thread")


def _check_sorted(found: Columns) -> None:
    if (np.diff(getattr(found, next(iter(columns_of(type(found)))))) < 0).any():
        raise TraceError(f"{found.NOUN} must be sorted by their times")


@dataclass(frozen=True)
class Note:
    """A note of yours: on a moment or a stretch of a trace's time axis, or on the trace as a whole. `Trace.with_note` makes it.

    Attributes
    ----------
    text : str
        One line of at most 2,000 characters.
    start_ns, end_ns : int, optional
        Since the trace's zero, as the times of its spans; equal for a moment. None for a note on the whole.
    lane : str
        Name of the lane that is meant; empty for none.

    Raises
    ------
    TraceError
        A field is wrong, or it ends before it starts.

    Examples
    --------
    >>> from streamscope.trace import Note
    >>> Note("the optimiser starts late", 1_250_000, 2_000_000).when
    '1.25 ms to 2 ms'
    """

    text: str
    start_ns: int | None = None
    end_ns: int | None = None
    lane: str = ""

    def __post_init__(self) -> None:
        if not is_text(self.text) or not 0 < len(self.text) <= LONGEST_NOTE or self.text != _on_a_line(self.text):
            raise TraceError(f"a note is a text of 1 to {LONGEST_NOTE:,} characters on one line, not {shown(self.text)}")
        if not is_text(self.lane):
            raise TraceError(f"the lane of a note is its name, not {shown(self.lane)}")
        if self.start_ns is None and self.end_ns is None:
            return
        start_ns, end_ns = self.start_ns, self.end_ns
        if type(start_ns) is not int or type(end_ns) is not int or not -MOST_NS <= start_ns <= end_ns <= MOST_NS:
            raise TraceError(f"a note is on times in whole ns, in their order, not on {shown(start_ns)} to {shown(end_ns)}")

    @classmethod
    def of(cls, text: Any, start_ns: int | None = None, end_ns: int | None = None, lane: str = "") -> Self:
        """Make a note of a text with line breaks."""
        return cls(_on_a_line(text) if isinstance(text, str) else text, start_ns, end_ns, lane)

    @property
    def when(self) -> str:
        """Its time in words, exact to the ns: ``"1.25 ms"``, ``"1.25 ms to 2 ms"``; empty for a note on the whole."""
        times_ns = dict.fromkeys(time_ns for time_ns in (self.start_ns, self.end_ns) if time_ns is not None)
        return " to ".join(map(_short_time, times_ns))

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values, times in µs; ``until_us`` is None for a moment, both times for a note on the whole."""
        at_us = None if self.start_ns is None else self.start_ns / 1000
        until_us = None if self.end_ns is None or self.end_ns == self.start_ns else self.end_ns / 1000
        return {"text": self.text, "at_us": at_us, "until_us": until_us, "lane": self.lane or None}


def sorted_notes(notes: Iterable[Note]) -> tuple[Note, ...]:
    """Return notes in the order of their numbers: those on the whole first, then by time.

    Raises
    ------
    TraceError
        There are more than 1,000.
    """
    found = tuple(sorted(notes, key=lambda note: (-MOST_NS - 1, 0) if note.start_ns is None else (note.start_ns, note.end_ns)))
    if len(found) > MOST_NOTES:
        raise TraceError(f"{len(found):,} notes are too many: a trace keeps {MOST_NOTES:,}")
    return found


def without_note(notes: Sequence[Note], number: int) -> tuple[Note, ...]:
    """Return notes without the one of this number, which tables and pictures show.

    Raises
    ------
    TraceError
        There is no such note.
    """
    if not notes:
        raise TraceError("there is no note to remove", hint="with_note() adds one")
    number = whole_number("number", number, 1, len(notes), error=TraceError)
    return (*notes[: number - 1], *notes[number:])


def note_rows(notes: Sequence[Note], whole: str = "whole trace") -> list[tuple[str, ...]]:
    """Return notes as text, in the order of `NOTE_HEADS`; ``whole`` is the time of those on the whole."""
    return [(str(number), note.when or whole, note.lane, note.text) for number, note in enumerate(notes, 1)]


def note_on(
    spans: SpanTable, extent_ns: tuple[int, int], text: Any, at_us: float | None, until_us: float | None, lane: str, span: int | None
) -> Note:
    """Make a note on a trace of these spans, which lasts from and to ``extent_ns``; `Trace.with_note` describes the rest."""
    if span is not None:
        if at_us is not None or until_us is not None or lane:
            raise TraceError("a note on a span has its times and its lane", hint="leave out at_us, until_us and lane")
        row = whole_number("span", span, 0, len(spans) - 1, error=TraceError)
        return Note.of(text, int(spans.start_ns[row]), int(spans.end_ns[row]), spans.lanes[spans.lane[row]])
    if lane and lane not in spans.lanes:
        raise TraceError(f"the trace has no lane {shown(lane)}", hint=f"its lanes are {listed([*spans.lanes[:10]])}")
    if at_us is None:
        if until_us is not None:
            raise TraceError(f"until_us={shown(until_us)} needs a start", hint="give at_us, too")
        return Note.of(text, lane=lane)
    start_ns = _time_ns("at_us", at_us, extent_ns)
    end_ns = start_ns if until_us is None else _time_ns("until_us", until_us, extent_ns)
    if end_ns < start_ns:
        raise TraceError(f"until_us={shown(until_us)} is before at_us={shown(at_us)}", hint="swap them")
    return Note.of(text, start_ns, end_ns, lane)


def _time_ns(name: str, time_us: Any, extent_ns: tuple[int, int]) -> int:
    low_us, high_us = (time_ns / 1000 for time_ns in extent_ns)
    number = isinstance(time_us, int | float | np.integer | np.floating) and not isinstance(time_us, bool)
    if not number or not low_us <= time_us <= high_us:  # NaN lies nowhere.
        raise TraceError(f"{name}={shown(time_us)} is not a time of the trace", hint=f"in µs, from {low_us:,.3f} to {high_us:,.3f}")
    return round(float(time_us) * 1000)


def _short_time(time_ns: int) -> str:
    number, _, unit = exact_time_text(time_ns).partition(" ")
    return f"{number.rstrip('0').rstrip('.')} {unit}"


def _on_a_line(text: str) -> str:
    return " ".join(text.split())


class Noted:
    """Values, markers and notes as a reader or a recorder collects them, on its clock and in any order."""

    def __init__(self) -> None:
        self._series: dict[Series, int] = {}
        self._values: list[tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]] = []
        self._markers: list[tuple[int, str, str]] = []
        self._notes: list[tuple[int, int, str, str]] = []

    def __bool__(self) -> bool:
        return bool(self._values or self._markers or self._notes)

    def number(self, series: Series) -> int:
        """Return the number of a series, a new one where it is seen for the first time."""
        return self._series.setdefault(series, len(self._series))

    def add_values(self, series: npt.ArrayLike, times_ns: npt.ArrayLike, values: npt.ArrayLike) -> None:
        """Add values: numbers of their series, their times, and they themselves."""
        self._values.append((np.asarray(series, np.int64), np.asarray(times_ns, np.int64), np.asarray(values, np.float64)))

    def add_markers(self, rows: Sequence[tuple[int, str, str]]) -> None:
        """Add markers: time, name and thread."""
        self._markers += rows

    def add_notes(self, rows: Sequence[tuple[int, int, str, str]]) -> None:
        """Add notes of the user: start, end, text and lane."""
        self._notes += rows

    def notes(self, zero_ns: int, said: list[str]) -> tuple[Note, ...]:
        """Return the notes of the user on a clock with this zero, and note what cannot be one."""
        found, wrong = [], 0
        for start_ns, end_ns, text, lane in self._notes:
            try:
                found.append(Note(text, start_ns - zero_ns, end_ns - zero_ns, lane))
            except TraceError:
                wrong += 1
        if wrong:
            said.append(f"left out: {counted(wrong, 'note')} with a text, a time or a lane that none can have")
        return tuple(found)

    def tables(self, zero_ns: int, said: list[str]) -> tuple[Counters, Markers]:
        """Return both tables on a clock with this zero, and note what a trace cannot hold."""
        return self._counters(zero_ns, said), self._marked(zero_ns, said)

    def _counters(self, zero_ns: int, said: list[str]) -> Counters:
        if not self._values:
            return Counters()
        series, times_ns, value = (np.concatenate(columns) for columns in zip(*self._values, strict=True))
        finite = np.isfinite(value)
        near = np.abs(times_ns.astype(np.float64) - zero_ns) < MOST_NS
        for what, wrong in (("NaN or infinite", ~finite), ("at impossible times", finite & ~near)):
            if wrong.any():
                said.append(f"left out: {counted(int(wrong.sum()), 'value')} of counters that are {what}")
        chosen = np.flatnonzero(finite & near)
        chosen = chosen[np.argsort(times_ns[chosen], kind="stable")]
        if len(chosen) > Counters.MOST:
            kept = chosen[_thinned(series[chosen], Counters.MOST)][: Counters.MOST]
            left = counted(len(chosen) - len(kept), "value")
            said.append(f"left out: {left} of counters, evenly, since a trace keeps {Counters.MOST:,}")
            chosen = kept
        used, code = np.unique(series[chosen], return_inverse=True)
        described = list(self._series)
        return Counters(times_ns[chosen] - zero_ns, code.reshape(-1), value[chosen], tuple(described[number] for number in used.tolist()))

    def _marked(self, zero_ns: int, said: list[str]) -> Markers:
        near = [(time_ns - zero_ns, name, thread) for time_ns, name, thread in self._markers if abs(time_ns - zero_ns) < MOST_NS]
        if len(near) < len(self._markers):
            said.append(f"left out: {counted(len(self._markers) - len(near), 'marker')} at impossible times")
        if len(near) > Markers.MOST:
            said.append(f"left out: {counted(len(near) - Markers.MOST, 'marker')}, the latest; a trace keeps {Markers.MOST:,}")
            near = sorted(near, key=lambda row: row[0])[: Markers.MOST]
        return Markers.of(near)


def _thinned(series: IntArray, most: int) -> npt.NDArray[np.bool_]:
    """Tell which values stay where there are more than ``most``: every n-th of each series, and its last one."""
    order = np.argsort(series, kind="stable")
    counts = np.bincount(series)
    first = np.cumsum(counts) - counts
    place = np.empty(len(series), np.int64)
    place[order] = np.arange(len(series)) - first[series[order]]
    every = -(-len(series) // max(1, most - 2 * int(np.count_nonzero(counts))))
    kept: npt.NDArray[np.bool_] = (place % every == 0) | (place == counts[series] - 1)
    return kept
