"""A sweep: comparisons at the points of a grid, as data; shown, saved, and kept in a file of JSON lines while it runs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamscope.analysis.statistics import Ranking
from streamscope.analysis.table import device_words, in_markdown, markdown_rows
from streamscope.analysis.verdict import WRONG_RESULTS
from streamscope.arguments import Kinds, check_kinds
from streamscope.comparing.comparison import Comparison
from streamscope.errors import OutputError, StreamscopeError, TraceError, WorkloadError, described, printable, readable
from streamscope.files import written_whole
from streamscope.program.user_line import line_of_error
from streamscope.results.result import Result, save_table
from streamscope.trace.file_checks import JSON, TEXT, VERSIONS, is_text, is_time, opened, optional, parsed, plain
from streamscope.trace.info import DeviceInfo
from streamscope.words import aligned, capitalised, counted, format_us, listed, times_text

if TYPE_CHECKING:
    import pandas as pd

UNKNOWN = "–"
"""Cell of a setting or an engine that a point does not have."""
_MOST_ROWS = 100
"""Points that a text shows; `Sweep.to_pandas` has all."""
_MOST_BYTES = 1 << 30
"""Of a file of points."""
_UNSAVED = 100
"""The file is written anew when one in so many of its points is new, so that the work grows with the points and not with their square."""


@dataclass(frozen=True)
class Failure:
    """Why a point has no comparison.

    Attributes
    ----------
    kind : str
        Class of the error: ``"ProgramError"``.
    message, hint : str
        Its message, and what to do about it, where it says so.
    where, source : str
        The last of your lines that it came through, ``"step.py:12"``, and its text; empty where it came through none.
    """

    kind: str
    message: str
    hint: str = ""
    where: str = ""
    source: str = ""

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Describe an error."""
        kind = type(error).__name__
        if isinstance(error, StreamscopeError):
            message, hint = error.message, error.hint or ""
        else:
            message, hint = readable(described(error)).removeprefix(f"{kind}: "), ""
        # A ready workload counts as the user's code, but not where it checks its settings.
        line = None if isinstance(error, WorkloadError) else line_of_error(error)
        return cls(kind, message, hint, *(line or ()))

    def __str__(self) -> str:
        hint = f" ({self.hint})" if self.hint else ""
        where = f" at {self.where}{f': {self.source}' if self.source else ''}" if self.where and self.where not in self.message else ""
        return printable(f"{self.kind}: {self.message}{hint}{where}")


@dataclass(frozen=True)
class Point:
    """One point of a sweep: what `compare` found there, or why it found nothing.

    Attributes
    ----------
    settings : mapping
        Value of each setting of the grid.
    version : str
        SHA-256 of what was compared: operations, shapes, options, device, versions of libraries. Empty where it failed before that.
    comparison : mapping, optional
        `Comparison.to_dict` of the runs; None where the point failed.
    fastest : tuple of str
        The fastest engine, with those that cannot be told apart from it; empty where too few repeats were measured to tell.
    wrong : tuple of str
        Engines with wrong results.
    failure : Failure, optional
        Why it failed.
    """

    settings: Mapping[str, Any]
    version: str = ""
    comparison: Mapping[str, Any] | None = None
    fastest: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    failure: Failure | None = None

    @classmethod
    def of(cls, settings: Mapping[str, Any], version: str, runs: Comparison) -> Point:
        """Return a point with its comparison as data, without traces."""
        found, wrong = runs.assessment, runs.metrics.wrong
        told = len(found.best) == 1 or found.gain.ranking is not Ranking.UNKNOWN
        best = tuple(engine for engine in found.best if engine not in wrong) if told else ()
        return cls(settings, version, runs.to_dict(), best, wrong)

    @property
    def engines(self) -> Mapping[str, Any]:
        """Numbers of each engine, as `Comparison.to_dict` has them; empty where the point failed."""
        found: Mapping[str, Any] = {} if self.comparison is None else self.comparison["engines"]
        return found

    @cached_property
    def device(self) -> DeviceInfo | None:
        """The device that it ran on; None where it failed."""
        return None if self.comparison is None else DeviceInfo(self.comparison["device"]["kind"], self.comparison["device"]["name"])

    @cached_property
    def label(self) -> str:
        """Settings in words: ``"size=4096, branches=2"``."""
        return ", ".join(f"{name}={setting_text(value)}" for name, value in self.settings.items())

    def makespan_us(self, engine: str) -> float | None:
        """Return the median makespan under an engine, in µs; None where there is none, or where the results are wrong."""
        return self.engines[engine]["makespan_us"]["median"] if engine in self.engines and engine not in self.wrong else None

    def to_dict(self) -> dict[str, Any]:
        """Return the point as JSON values."""
        found: dict[str, Any] = plain(
            {
                "settings": self.settings,
                "version": self.version,
                "fastest": self.fastest,
                "wrong": self.wrong,
                "failure": None if self.failure is None else asdict(self.failure),
                "comparison": self.comparison,
            }
        )
        return found

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Point:
        """Read the values of `to_dict`.

        Raises
        ------
        LookupError, TypeError, ValueError, TraceError
            It is something else.
        """
        texts = {name: tuple(stored[name]) for name in ("fastest", "wrong")}
        check_kinds("point", _POINT, *(stored[name] for name in _POINT), error=TraceError)
        check_kinds("point", _NAMES, *texts.values(), error=TraceError)
        failure = None if stored["failure"] is None else Failure(**stored["failure"])
        found = cls(stored["settings"], stored["version"], stored["comparison"], **texts, failure=failure)
        for engine, numbers in found.engines.items():
            ends = {end: numbers["makespan_us"][end] for end in ("median", "low", "high")}
            if not is_text(engine) or not all(is_time(1e3 * value) for value in ends.values()):
                raise ValueError(f"makespan_us of {engine!r:.20} is {ends!r:.40}")
        if (found.comparison is None) is (found.failure is None) or (found.device is None and found.engines):
            raise ValueError("it has neither a comparison nor a failure, or both")
        return found


_NAMES: Kinds = {name: (lambda value: all(map(is_text, value)), "a list of texts") for name in ("fastest", "wrong")}
_POINT: Kinds = {
    "settings": JSON,
    "version": TEXT,
    "comparison": optional(JSON),
    "failure": optional(VERSIONS),
}


def setting_text(value: object) -> str:
    """Return the value of a setting as tables show it: ``"4096"``, ``"async,graph"``."""
    return ",".join(map(setting_text, value)) if isinstance(value, list | tuple) else str(value)


@dataclass(frozen=True, repr=False)
class Sweep(Result):
    """Result of `sweep`: a `Point` for each point of the grid, in the grid's order.

    Attributes
    ----------
    name : str
        Name of the workload or program.
    points : tuple of Point

    Examples
    --------
    >>> found = ss.sweep("branches", {"size": [256, 4096]}, engines="async,graph", device="simulated", progress=False)
    >>> found.headline
    'graph is the fastest at 2 of 2 points.'
    >>> found.points[0].engines["graph"]["kernel_count"]
    35
    """

    view = "sweep"

    name: str
    points: tuple[Point, ...]

    @cached_property
    def settings(self) -> tuple[str, ...]:
        """Names of the grid's settings, in order."""
        return tuple(dict.fromkeys(name for point in self.points for name in point.settings))

    @cached_property
    def engines(self) -> tuple[str, ...]:
        """All engines that were compared at some point."""
        return tuple(dict.fromkeys(engine for point in self.points for engine in point.engines))

    @property
    def failed(self) -> tuple[Point, ...]:
        """The points that failed."""
        return tuple(point for point in self.points if point.failure is not None)

    @property
    def title(self) -> str:
        """The name and the devices; that of a simulated device says that its times are."""
        devices = {point.device.name: device_words(point.device) for point in self.points if point.device is not None}
        return " · ".join([self.name, *([listed(list(devices.values()))] if devices else [])])

    @property
    def headline(self) -> str:
        """Which engines are the fastest, at how many points, or how long the only one takes; wrong results and failures."""
        return " ".join(filter(None, [self._fastest, self._wrong, self._failed]))

    @property
    def _fastest(self) -> str:
        if len(self.engines) == 1:
            (engine,) = self.engines
            times_ns = [1e3 * time_us for point in self.points if (time_us := point.makespan_us(engine)) is not None]
            return f"{engine} takes {times_text(min(times_ns), ' to ', max(times_ns))}." if times_ns else ""
        ranked = [point.fastest for point in self.points if point.fastest and len(point.engines) > 1]
        if not ranked:
            return "" if not self.engines else f"{capitalised(Ranking.UNKNOWN.value)} which engine is the fastest."
        count = Counter(engine for fastest in ranked for engine in fastest)
        (first, most), *others = sorted(count.items(), key=lambda item: -item[1])
        place = "among the fastest" if any(len(fastest) > 1 for fastest in ranked) else "the fastest"
        told = [f"{first} is {place} at {most:,} of {counted(len(ranked), 'point')}"]
        return f"{', '.join([*told, *(f'{engine} at {times:,}' for engine, times in others)])}."

    @property
    def _wrong(self) -> str:
        count = Counter(engine for point in self.points for engine in point.wrong)
        told = [f"under {engine} at {counted(times, 'point')}" for engine, times in count.items()]
        return f"Results are wrong {listed(told)}." if told else ""

    @property
    def _failed(self) -> str:
        return f"{counted(len(self.failed), 'point')} failed." if self.failed else ""

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Why points failed, each reason once; `rows` numbers them."""
        return tuple(self._note_numbers)

    @cached_property
    def _note_numbers(self) -> dict[str, int]:
        """Number of each reason, from 1 on; there may be as many as points."""
        return {said: number for number, said in enumerate(dict.fromkeys(str(point.failure) for point in self.failed), 1)}

    @cached_property
    def headings(self) -> tuple[str, ...]:
        """Headings of `rows`."""
        return (*self.settings, *(f"{engine}, µs" for engine in self.engines), "fastest", *(["device"] * self._several_devices))

    @cached_property
    def _several_devices(self) -> bool:
        return len({point.device.name for point in self.points if point.device is not None}) > 1

    def rows(self, points: Iterable[Point] | None = None) -> list[tuple[str, ...]]:
        """Return points as text: settings, median makespan of each engine in µs, the fastest ones or the number of the note."""
        return [self._row(point) for point in (self.points if points is None else points)]

    def _row(self, point: Point) -> tuple[str, ...]:
        settings = [setting_text(point.settings[name]) if name in point.settings else UNKNOWN for name in self.settings]
        times = []
        for engine in self.engines:
            time_us = point.makespan_us(engine)
            times.append(WRONG_RESULTS if engine in point.wrong else UNKNOWN if time_us is None else format_us(time_us))
        end = listed(point.fastest) or Ranking.UNKNOWN.value
        if point.failure is not None:
            end = f"failed [{self._note_numbers[str(point.failure)]}]"
        elif len(point.wrong) == len(point.engines):
            end = UNKNOWN
        device = [point.device.name if point.device else UNKNOWN] if self._several_devices else []
        return (*settings, *times, end, *device)

    def to_dict(self) -> dict[str, Any]:
        """Return the sweep as JSON values; of each point its settings, and `Comparison.to_dict` or the failure."""
        return {"name": self.name, "headline": self.headline, "points": [point.to_dict() for point in self.points]}

    def to_pandas(self) -> pd.DataFrame:
        """Return a DataFrame with one row for each point and engine, and one for each point that failed.

        Its columns are the settings, as text where not all values are numbers; the engine, and its metrics as `Comparison.to_dict` names
        them; ``fastest``, ``wrong``, ``device``, ``simulated`` and, where a point failed, ``failure``. One that has the name of a setting
        is called ``engine_NAME``.
        """
        import pandas as pd

        rows = []
        for point in self.points:
            device = point.device
            about = {name: value if name in self._numbers else setting_text(value) for name, value in point.settings.items()}
            every: list[dict[str, Any]] = [
                {"engine": engine, **_columns(numbers), "fastest": engine in point.fastest, "wrong": engine in point.wrong}
                for engine, numbers in point.engines.items()
            ]
            for told in every or [{"failure": str(point.failure)}]:
                place = {} if device is None else {"device": device.name, "simulated": device.simulated}
                rows.append(about | {f"engine_{name}" if name in self.settings else name: value for name, value in (told | place).items()})
        return pd.DataFrame(rows)

    @cached_property
    def _numbers(self) -> frozenset[str]:
        """Settings all of whose values are numbers; a file takes a column of one kind only."""
        others = {name for point in self.points for name, value in point.settings.items() if isinstance(value, str | bool | list | None)}
        return frozenset(self.settings) - others

    def writers(self) -> dict[str, Callable[[Path], Path]]:
        """Return the functions that write the sweep, each by the suffix of its files."""
        return (
            super().writers()
            | dict.fromkeys((".csv", ".parquet"), lambda path: save_table(self.to_pandas(), path))
            | {".jsonl": self._save_lines}
        )

    def _save_lines(self, path: Path) -> Path:
        kept = PointFile(path, self.name)
        for point in self.points:
            kept.add(point)
        kept.save()
        return path

    def _markdown(self) -> str:
        notes = [f"\\[{number}\\] {in_markdown(note)}  " for number, note in enumerate(self.notes, 1)]
        table = markdown_rows(self.headings, self.rows(), words=2 + self._several_devices)
        return printable("\n".join([f"# {in_markdown(self.title)}", "", in_markdown(self.headline), "", *table, "", *notes, ""]))

    def __str__(self) -> str:
        shown = self.points[:_MOST_ROWS]
        left_out = len(self.points) - len(shown)
        more = [f"… and {counted(left_out, 'more point')}: to_pandas() has all"] if left_out else []
        notes = [f"[{number}] {note}" for number, note in enumerate(self.notes, 1)]
        table = aligned([self.headings, *self.rows(shown)], numbers=True)
        return printable("\n".join([self.title, self.headline, "", *table, *more, *notes]))

    __repr__ = __str__


def _columns(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers of an engine as columns; of the makespan its median and its interval."""
    makespan = numbers["makespan_us"]
    first = {"makespan_us": makespan["median"], "makespan_low_us": makespan["low"], "makespan_high_us": makespan["high"]}
    return first | {name: value for name, value in numbers.items() if not isinstance(value, dict | list)}


@dataclass
class PointFile:
    """Points of sweeps in a file of JSON lines, one a line, which is always whole: it is written anew and renamed.

    Points of other sweeps in it stay, behind those of this one. Without a path, nothing is kept.
    """

    path: Path | None
    name: str
    """Name of the sweep whose points are added."""
    _lines: dict[str, str] = field(default_factory=dict)
    """By the key of their point."""
    _order: dict[str, int] = field(default_factory=dict)
    _unsaved: int = 0
    _known: tuple[int, int] | None = None
    """Number and time of the file as this sweep left it."""

    def read(self) -> dict[str, Point]:
        """Read the file, if it is there, and return its points of this sweep by `key`.

        Raises
        ------
        OutputError
            It is not a file of points, so nothing will be written over it.
        """
        if self.path is None or not self.path.exists():
            return {}
        found: dict[str, Point] = {}
        number = 0
        try:
            with opened(self.path, _MOST_BYTES) as file:
                for line in file:
                    number += 1
                    stored = parsed(line)
                    name, point = stored["sweep"], Point.from_dict(stored)
                    self._lines[_key(name, point.settings)] = line.decode("utf-8").rstrip("\n")
                    if name == self.name:
                        found[self.key(point.settings)] = point
        except (OSError, StreamscopeError, LookupError, TypeError, ValueError, AttributeError) as error:
            reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            raise OutputError(
                f"cannot keep points in {self.path}: line {max(number, 1)} is not a point of a sweep: {reason}",
                hint="move the file away, or choose another name",
            ) from error
        return found

    def key(self, settings: Mapping[str, Any]) -> str:
        """Return the name of a point of this sweep in the file."""
        return _key(self.name, settings)

    def in_order(self, points: Iterable[Mapping[str, Any]]) -> None:
        """Let the file have this order of points, whatever the order in which they are done."""
        self._order = {self.key(settings): number for number, settings in enumerate(points)}

    def add(self, point: Point) -> None:
        """Add a point, and write the file unless it was written not long ago."""
        self._lines[self.key(point.settings)] = json.dumps({"sweep": self.name, **point.to_dict()}, allow_nan=False, ensure_ascii=False)
        self._unsaved += 1
        if self._unsaved * _UNSAVED >= len(self._lines):
            self.save()

    def save(self) -> None:
        """Write the points that are not in the file yet.

        Raises
        ------
        OutputError
            The file cannot be written: the disk is full, for example.
        """
        if self.path is None or not self._unsaved:
            return
        if self._version() != self._known:  # Another sweep may have added points since.
            theirs = PointFile(self.path, self.name)
            theirs.read()
            self._lines = theirs._lines | self._lines
        ordered = sorted(self._lines, key=lambda key: self._order.get(key, len(self._order)))
        with written_whole(self.path) as unfinished:
            unfinished.write_text("".join(f"{self._lines[key]}\n" for key in ordered), encoding="utf-8")
        self._unsaved, self._known = 0, self._version()

    def _version(self) -> tuple[int, int] | None:
        try:
            found = self.path.stat() if self.path is not None else None
        except OSError:
            return None
        return None if found is None else (found.st_ino, found.st_mtime_ns)


def _key(name: str, settings: Mapping[str, Any]) -> str:
    return json.dumps([name, settings], sort_keys=True)
