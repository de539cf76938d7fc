"""What fills the memory of a GPU: its curve and peak, what held the peak, and what would have to go to lower it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from streamscope.analysis.code import (
    NEARLY_ALL,
    UNKNOWN,
    Key,
    Placed,
    by_class,
    class_of,
    in_modules,
    most_telling,
    numbered,
    operation_keys,
    site_key,
)
from streamscope.analysis.table import LONGEST_NAME, device_words, page_markdown, page_text
from streamscope.arguments import shown
from streamscope.arrays import IntArray
from streamscope.errors import TraceError
from streamscope.results.result import Result
from streamscope.trace.memory import BEFORE, BEFORE_THE_RECORDING, HELD, Allocations, Level
from streamscope.trace.trace import Trace
from streamscope.words import a_kind, binary_size, capitalised, counted, format_mib, listed, percent, shortened_inside, time_text

if TYPE_CHECKING:
    import pandas as pd

By = Literal["line", "module", "operation", "kind"]
MOST_ROWS = 20
"""Rows of a table in text; `MemoryUse.to_dict` has all."""
MOST_TO_GO = 300
"""Allocations that are looked at for that: where more would have to go, the memory is in too many pieces to name."""
_MOST_NAMED = 3
_LEAST_NAMED = 1e-3
"""Other GPUs, or the host, with a smaller part of the peak are not named."""
_KINDS = {"input": "inputs"}
"""Names of rows of memory that no operation takes."""
_BY_OF_TIME: dict[str, By] = {"line": "line", "module": "module", "range": "operation"}
HINT = "torch.profiler.profile(profile_memory=True) writes it; traces of programs, captures and ss.record have it, too"


class Curve(NamedTuple):
    """Bytes that are held from each time on, until the next one."""

    time_ns: IntArray
    bytes: IntArray


@dataclass(frozen=True)
class MemoryRow(Placed):
    """Allocations of one line, module, operation or kind.

    Attributes
    ----------
    name : str
        Name of the function, text of the line, name of the module, operation or kind; `UNKNOWN` where the trace does not tell, and
        ``"before the recording"``.
    file : str
        Empty where unknown.
    line : int or None
    allocations, bytes : int
    share : float
        Of the peak, 0 to 1.
    defined : bool
        Whether ``line`` is where the function is defined, and not the line that ran.
    """

    allocations: int
    bytes: int
    share: float
    defined: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "name": self.name, "file": self.file or None, "line": self.line, "allocations": self.allocations, "bytes": self.bytes,
            "share": self.share,
        }  # fmt: skip


@dataclass(frozen=True)
class MemoryClass(MemoryRow):
    """Allocations of all modules of one class, as `ModuleClass` has their times.

    Attributes
    ----------
    name : str
        The class, or the name of its only module.
    modules : int
        0 for what is of no known module.
    """

    modules: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        found = super().to_dict() | {"modules": self.modules}
        return {name: found[name] for name in found if name not in ("file", "line")}


class Peak(NamedTuple):
    """The peak of one GPU, or of the host, whose number is -1."""

    gpu: int
    level: Level
    bytes: int
    at_ns: int

    @property
    def of(self) -> str:
        """``"GPU 0"``, or ``"the host"``."""
        return f"GPU {self.gpu}" if self.gpu >= 0 else "the host"

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values, the time in µs."""
        return {"gpu": self.gpu, "level": self.level.name.lower(), "peak_bytes": self.bytes, "at_us": self.at_ns / 1000}


class Fragmentation(NamedTuple):
    """Bytes that were taken from the driver and that no pool had lent, at the peak, and at most."""

    at_peak_bytes: int
    most_bytes: int
    most_at_ns: int


class Savings(NamedTuple):
    """Allocations without which the whole curve would stay below nine tenths of its peak."""

    allocations: int
    rows: tuple[MemoryRow, ...]
    """By line, module, operation or kind. Bytes are the most that are held at one time."""
    below_bytes: int


@dataclass(frozen=True, repr=False)
class MemoryUse(Result):
    """Result of `memory`. It is shown as the table of what held the peak, the largest row first.

    Attributes
    ----------
    trace : Trace
    peak : Peak
        Of the GPU that it is about: the bytes, and the first time at which they were held.
    peaks : tuple of Peak
        Of all GPUs and the host, the largest first.
    by : str
        ``"line"``, ``"module"``, ``"operation"`` or ``"kind"``.
    """

    view = "memory"

    trace: Trace
    peak: Peak
    peaks: tuple[Peak, ...]
    by: str
    _begin_ns: int = field(repr=False)
    _single: bool = field(default=False, repr=False)

    @property
    def gpu(self) -> int:
        """The GPU that it is about; -1 for the host."""
        return self.peak.gpu

    @property
    def level(self) -> Level:
        """What the peak is of: memory that is lent where the trace tells it, else memory that was taken from the driver."""
        return self.peak.level

    def curve(self, level: Level | None = None) -> Curve:
        """Return the memory over time, int64; its first time is the begin of the trace. What is given back at a time is gone then.

        Parameters
        ----------
        level : Level, optional
            Lent, or taken from the driver; by default that of the peak.

        Examples
        --------
        >>> from streamscope.trace import Allocation, Allocations, DeviceInfo, SpanTable, Trace, TraceInfo
        >>> spans = SpanTable.of(("launch", "a", "host", 0, 3_000, 0), ("kernel", "a", "main", 5_000, 25_000, 0))
        >>> held = Allocations.of([Allocation(1000), Allocation(24, 10, 30)])
        >>> trace = Trace(spans, TraceInfo("async", "step", DeviceInfo("cuda", "NVIDIA H200")), memory=held)
        >>> found = ss.analysis.memory(trace).curve()
        >>> found.time_ns.tolist(), found.bytes.tolist()
        ([0, 10, 30], [1000, 1024, 1000])
        """
        return curve_of(self._rows(self.level if level is None else level), self._begin_ns)

    def _rows(self, level: Level) -> Allocations:
        held = self.trace.memory
        return held.rows((held.gpu == self.gpu) & (held.level == level))

    @cached_property
    def _held(self) -> Allocations:
        """Allocations of the GPU and the level of the peak."""
        return self._rows(self.level)

    @cached_property
    def _at_peak(self) -> Allocations:
        """Allocations that held the peak."""
        return self._held.rows((self._held.start_ns <= self.peak.at_ns) & (self._held.end_ns > self.peak.at_ns))

    def held_by(self, by: By | None = None) -> tuple[MemoryRow, ...]:
        """Return what held the peak, the largest row first. The rows add up to the peak, to the byte.

        Parameters
        ----------
        by : {"line", "module", "operation", "kind"}, optional
            By default that of the result.

        Raises
        ------
        TraceError
            ``by`` is something else.

        Examples
        --------
        >>> from streamscope.trace import Allocation, Allocations, DeviceInfo, SpanTable, Trace, TraceInfo
        >>> spans = SpanTable.of(("launch", "a", "host", 0, 3_000, 0), ("kernel", "a", "main", 5_000, 25_000, 0))
        >>> held = Allocations.of([Allocation(1000, kind="parameter"), Allocation(24, 10, 30, name="aten::relu")])
        >>> trace = Trace(spans, TraceInfo("async", "step", DeviceInfo("cuda", "NVIDIA H200")), memory=held)
        >>> [(row.name, row.bytes) for row in ss.analysis.memory(trace).held_by("operation")]
        [('unknown', 1000), ('aten::relu', 24)]
        """
        return _rows_of(self.trace, self._at_peak, self.by if by is None else checked_by(by), self.peak.bytes)

    @cached_property
    def rows(self) -> tuple[MemoryRow, ...]:
        """What held the peak: `held_by` of the result's own ``by``."""
        return self.held_by()

    @cached_property
    def classes(self) -> tuple[MemoryClass, ...]:
        """By module, the rows in sum by class, the largest first. Tables show them; ``rows`` are the single modules."""
        return _classes(self.rows, self._at_peak) if self.by == "module" and not self._single else ()

    @property
    def shown_rows(self) -> Sequence[MemoryRow]:
        """Rows of the table: `classes` where there are some."""
        return self.classes or self.rows

    @property
    def singles(self) -> MemoryUse:
        """The same, whose table has the single modules."""
        return replace(self, _single=True)

    @property
    def known(self) -> Sequence[MemoryRow]:
        """Rows but for `UNKNOWN` and what was held before the recording."""
        return [*filter(_is_known, self.rows)]

    @cached_property
    def to_save(self) -> Savings | None:
        """What would have to go to save a tenth: at the highest place of the curve, the allocation that lowers it most, again and again.

        Without them the whole curve stays below nine tenths of the peak, and with any of them it would not. None where what was held
        before the recording alone is more, or where more than 300 would have to go.
        """
        below_bytes = -(-9 * self.peak.bytes // 10)
        gone = _without(self._held, self.curve(), below_bytes) if self.peak.bytes else None
        if gone is None:
            return None
        return Savings(len(gone), _most_of(self.trace, self._held.rows(gone), self.by, self.peak.bytes), below_bytes)

    @cached_property
    def fragmentation(self) -> Fragmentation | None:
        """What was taken from the driver and no pool lent; None where the trace does not tell both."""
        lent, taken = (self.curve(level) for level in (Level.ALLOCATED, Level.RESERVED))
        if not (len(self._rows(Level.ALLOCATED)) and len(self._rows(Level.RESERVED))):
            return None
        time_ns = np.union1d(lent.time_ns, taken.time_ns)
        free = _at(taken, time_ns) - _at(lent, time_ns)
        if free.min() < 0:  # They are of different allocators.
            return None
        most = int(free.argmax())
        at_peak = int(_at(taken, np.array([self.peak.at_ns]))[0]) - int(_at(lent, np.array([self.peak.at_ns]))[0])
        return Fragmentation(at_peak, int(free[most]), int(time_ns[most]))

    @property
    def title(self) -> str:
        """Program, device, and which GPU."""
        info = self.trace.info
        gpu = "" if len(self.trace.gpus) < 2 and self.gpu >= 0 else f" · {self.peak.of}"
        return f"{info.program} · {device_words(info.device)}{gpu}"

    @property
    def answer(self) -> str:
        """The peak, and what holds most of it, in a sentence."""
        if not self.rows:
            return "No memory is held at any time of the trace."
        most = self.shown_rows[0]
        said = "held" if most.name == BEFORE_THE_RECORDING else "of"
        whose = "The GPU" if self.gpu >= 0 and sum(each.gpu >= 0 for each in self.peaks) == 1 else capitalised(self.peak.of)
        peak = f"{whose} holds at most {binary_size(self.peak.bytes)}, first at {time_text(self.peak.at_ns)}"
        return f"{peak}; {percent(most.share)} of it is {said} {self._called(most)}{in_modules(most)}.{self._beside}"

    @property
    def _beside(self) -> str:
        """The largest module in a sentence, where nearly all is of one line: a model of a package is of the line that calls it."""
        attributed = 1 - sum(row.share for row in self.rows if row.name == BEFORE_THE_RECORDING)
        if self.by != "line" or not _is_known(self.rows[0]) or self.rows[0].share <= NEARLY_ALL * attributed:
            return ""
        most = next(filter(_is_known, _classes(self.held_by("module"), self._at_peak)), None)
        called = "" if most is None else f"{shortened_inside(most.name, 2 * LONGEST_NAME)}{in_modules(most)}"
        return "" if most is None else f" By module, {percent(most.share)} is of {called}."

    def _called(self, row: MemoryRow) -> str:
        """Name a row in a sentence."""
        return f"an {UNKNOWN} {self.by}" if row.name == UNKNOWN and not row.place else shortened_inside(row.called, 2 * LONGEST_NAME)

    @property
    def saving(self) -> str:
        """The way to save a tenth, in a sentence."""
        found = self.to_save
        if found is None:
            before = sum(row.bytes for row in self.held_by("kind") if row.name == BEFORE_THE_RECORDING)
            pieces = 10 * before < 9 * self.peak.bytes
            why = f"these are more than {MOST_TO_GO} allocations" if pieces else "too much was held before the recording"
            return f"What would have to go to lower the peak by a tenth cannot be named: {why}."
        again = found.allocations > sum(row.allocations for row in found.rows)
        alike = by_class(found.rows).values() if self.by == "module" else [[row] for row in found.rows]
        named = [self._to_go(rows, again=again) for rows in alike]
        named[_MOST_NAMED:] = [f"{len(named) - _MOST_NAMED} more"] if len(named) > _MOST_NAMED else []
        times = " at different times" if again else ""
        return f"To lower the peak by a tenth, {counted(found.allocations, 'allocation')}{times} would have to go: {listed(named)}."

    def _to_go(self, rows: Sequence[MemoryRow], *, again: bool) -> str:
        """Name what would have to go of rows that are alike; ``again`` where a row may take its memory several times."""
        size = f"{'up to ' if again or len(rows) > 1 else ''}{binary_size(rows[0].bytes)}{' at once' if again else ''}"
        if len(rows) == 1:
            return f"{size} of {self._called(rows[0])}"
        return f"{size} in each of {len(rows)} {shortened_inside(class_of(rows[0].name), 2 * LONGEST_NAME)} modules"

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes below the rows."""
        said = [self.saving] if self.peak.bytes else []
        if found := self.fragmentation:
            most = f", and at most {binary_size(found.most_bytes)}, at {time_text(found.most_at_ns).replace('-', '−')}"
            more = found.most_bytes > found.at_peak_bytes
            said.append(f"Reserved but unused: {binary_size(found.at_peak_bytes)} at the peak{most if more else ''}.")
        if self.level is Level.RESERVED:
            said.append("Memory that was taken from the driver: the trace does not tell what a pool lent of it.")
        if kinds := self._unknown_kinds():
            said.append(f"Of the {UNKNOWN} {self.by}: {listed(kinds)}.")
        if self.by == "line" and any(row.defined for row in self.rows):
            said.append("A file and line is where the function is defined: the profiler does not write the line that ran.")
        large = [each for each in self.peaks if each.gpu != self.gpu and each.bytes >= _LEAST_NAMED * self.peak.bytes]
        if others := [f"{each.of} {binary_size(each.bytes)}" for each in large]:
            said.append(f"Others hold at most: {listed(others[:MOST_ROWS])}.")
        return tuple(said)

    def _unknown_kinds(self) -> list[str]:
        """Say of which kinds that memory is whose line, module or operation is not known, where there are several kinds."""
        held = self._at_peak
        if self.by == "kind" or _has_kinds_for_rows(self.trace, held) or len({*held.kinds} - {"", BEFORE_THE_RECORDING}) < 2:
            return []
        of = _rows_of(self.trace, held.rows(_codes(self.trace, held, self.by, {}) < 0), "kind", self.peak.bytes)
        return [f"{binary_size(row.bytes)} {row.name}" for row in of if row.name not in (UNKNOWN, BEFORE_THE_RECORDING)]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values: the peak, all rows, what would have to go. The bytes of the rows add up to the peak.

        Examples
        --------
        >>> from streamscope.trace import Allocation, Allocations, DeviceInfo, SpanTable, Trace, TraceInfo
        >>> spans = SpanTable.of(("launch", "a", "host", 0, 3_000, 0), ("kernel", "a", "main", 5_000, 25_000, 0))
        >>> held = Allocations.of([Allocation(1000, kind="parameter"), Allocation(24, 10, 30, name="aten::relu")])
        >>> trace = Trace(spans, TraceInfo("async", "step", DeviceInfo("cuda", "NVIDIA H200")), memory=held)
        >>> found = ss.analysis.memory(trace, "kind").to_dict()
        >>> found["peak_bytes"], found["at_us"], [row["name"] for row in found["held_by"]]
        (1024, 0.01, ['parameter', 'unknown'])
        """
        saved, unused = self.to_save, self.fragmentation
        return {
            **self.peak.to_dict(),
            "by": self.by,
            "held_by": [row.to_dict() for row in self.rows],
            **({"classes": [row.to_dict() for row in self.classes]} if self.classes else {}),
            "to_save_a_tenth": saved
            and {"allocations": saved.allocations, "rows": [row.to_dict() for row in saved.rows]},
            "fragmentation": unused
            and {
                "at_peak_bytes": unused.at_peak_bytes, "most_bytes": unused.most_bytes, "most_at_us": unused.most_at_ns / 1000,
            },
            "peaks": [each.to_dict() for each in self.peaks],
            **({"lines_are": "definitions" if any(row.defined for row in self.rows) else "lines"} if self.by == "line" else {}),
            "notes": list(self.notes),
        }  # fmt: skip

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows of the peak as a DataFrame."""
        import pandas as pd

        return pd.DataFrame([row.to_dict() for row in self.rows])

    def heads(self) -> tuple[str, ...]:
        """Return the headings of the table."""
        defined = any(row.defined for row in self.rows)
        place = ("defined at" if defined else "file:line",) if self.by == "line" else ()
        of_class = ("modules",) if self.classes else ()
        return ("function" if defined and self.by == "line" else self.by, *place, *of_class, "allocations", "MiB", "share")

    def table_rows(self, most: int | None = None) -> Iterator[tuple[str, ...]]:
        """Yield the rows as text, under `heads`; all, or at most so many. The rest comes last, if there is any."""
        for row in self.shown_rows[:most]:
            yield self._cells(row)
        if most is not None and (others := self.shown_rows[most:]):
            yield self._cells(_summed(counted(len(others), f"more {'class' if self.classes else self.by}"), others))

    def _cells(self, row: MemoryRow) -> tuple[str, ...]:
        place = (row.place,) if self.by == "line" else ()
        modules = getattr(row, "modules", 0)
        count = (f"{modules:,}" if modules else "",) if self.classes else ()
        return (" ".join(row.name.split()), *place, *count, f"{row.allocations:,}", format_mib(row.bytes), percent(row.share))

    @property
    def _shown(self) -> Iterable[tuple[str, ...]]:
        return self.table_rows(MOST_ROWS) if self.rows else ()

    def _markdown(self) -> str:
        return page_markdown(self.title, self.answer, self.heads(), self._shown, self.notes)

    def _repr_markdown_(self) -> str:
        return self.to_markdown()

    def __repr__(self) -> str:
        return page_text(self.title, self.answer, self.heads(), self._shown, self.notes)


def memory(trace: Trace, by: By | None = None, gpu: int | None = None) -> MemoryUse:
    """Return what fills the memory of a GPU: the curve, its peak, what held that, and what would have to go to save a tenth.

    Formula: the memory at a time is the sum of the bytes of all allocations that began at it or before and end after it. The peak is its
    largest value. An allocation belongs to the operation of the program or, where there is none, to the line, module and operator around
    it, as in `by_code`. What was held before the recording, and is known as a sum only, is a row. So is *unknown*. Unit: bytes.

    Parameters
    ----------
    trace : Trace
    by : {"line", "module", "operation", "kind"}, optional
        What the rows are; by default as `streamscope read` divides the time, ranges being operations. Where the trace does not tell that
        of the peak, it is the first of these that it tells.
    gpu : int, optional
        Number of a GPU, -1 for the host; by default the one with the largest peak, and the host only where there is no other.

    Raises
    ------
    TraceError
        ``by`` is something else, ``trace`` is not a trace, or it tells nothing of memory, or nothing of that GPU.

    Examples
    --------
    >>> from streamscope.trace import Allocation, Allocations, DeviceInfo, Site, SpanTable, Trace, TraceInfo
    >>> spans = SpanTable.of(("launch", "a", "host", 0, 3_000, 0), ("kernel", "a", "main", 5_000, 25_000, 0))
    >>> site = Site("forward", "model.py", 12)
    >>> held = Allocations.of([Allocation(3 << 20), Allocation(1 << 20, 10, 30, site=site)])
    >>> trace = Trace(spans, TraceInfo("async", "step", DeviceInfo("cuda", "NVIDIA H200")), memory=held)
    >>> found = ss.analysis.memory(trace)
    >>> print(found.answer)
    The GPU holds at most 4.0 MiB, first at 0.010 µs; 75 % of it is of an unknown line.
    >>> print(found.saving)
    To lower the peak by a tenth, 1 allocation would have to go: 3.0 MiB of an unknown line.
    """
    if not isinstance(trace, Trace):
        raise TraceError(f"memory is that of a trace, not of {a_kind(trace)}", hint='a run has one: runs["graph"].trace')
    if not len(trace.memory):
        raise TraceError("the trace tells nothing of memory", hint=HINT)
    several = memories(trace)
    found = next((each for each in several if gpu is None or each.gpu == gpu), None)
    if found is None:
        known = listed([each.peak.of for each in several])
        raise TraceError(f"the trace tells nothing of the memory of GPU {shown(gpu)}", hint=f"it knows {known}")
    return replace(found, by=_told(found) if by is None else checked_by(by))


def memories(trace: Trace) -> list[MemoryUse]:
    """Return `memory` by kind of each GPU, the largest peak first, and of the host; nothing where the trace tells nothing of memory."""
    held, begin_ns = trace.memory, _begin_of(trace)
    peaks = [_peak(held, gpu, begin_ns) for gpu in np.unique(held.gpu).tolist()]
    peaks.sort(key=lambda each: (each.gpu < 0, -each.bytes, each.gpu))
    return [MemoryUse(trace, peak, tuple(peaks), "kind", begin_ns) for peak in peaks]


def checked_by(by: str) -> str:
    """Check the name of a division of memory."""
    if by not in get_args(By):
        raise TraceError(f"memory is divided by line, module, operation or kind, not by {shown(by)}", hint='by="line"')
    return by


def curve_of(held: Allocations, begin_ns: int) -> Curve:
    """Return the memory of allocations over time; what was held before is held at the begin."""
    ends = held.end_ns < HELD
    time_ns = np.concatenate([[begin_ns], np.maximum(held.start_ns, begin_ns), np.maximum(held.end_ns[ends], begin_ns)])
    change = np.concatenate([[0], held.bytes, -held.bytes[ends]])
    order = np.argsort(time_ns, kind="stable")
    time_ns, total = time_ns[order], np.cumsum(change[order])
    last = np.append(np.flatnonzero(np.diff(time_ns)), len(time_ns) - 1)
    return Curve(time_ns[last], total[last])


def _begin_of(trace: Trace) -> int:
    """Return when the first span begins, or memory is taken or given back before it."""
    held = trace.memory
    times_ns = (trace.spans.start_ns, held.start_ns[held.start_ns > BEFORE], held.end_ns[held.end_ns < HELD])
    return min((int(each.min()) for each in times_ns if len(each)), default=0)


def _peak(held: Allocations, gpu: int, begin_ns: int) -> Peak:
    ours = held.gpu == gpu
    level = Level.ALLOCATED if (ours & (held.level == Level.ALLOCATED)).any() else Level.RESERVED
    curve = curve_of(held.rows(ours & (held.level == level)), begin_ns)
    at = int(curve.bytes.argmax())
    return Peak(gpu, level, int(curve.bytes[at]), int(curve.time_ns[at]))


def _at(curve: Curve, time_ns: IntArray) -> IntArray:
    """Return the memory at each time from the curve's begin on."""
    found: IntArray = curve.bytes[np.maximum(np.searchsorted(curve.time_ns, time_ns, side="right") - 1, 0)]
    return found


def _told(found: MemoryUse) -> str:
    """Return the way to divide the peak that tells most of the time, else the first that the trace tells anything of."""
    times = most_telling(found.trace)
    # What took memory is the operator or range around it.
    preferred = [_BY_OF_TIME[times.by]] if times.known else []
    return next((str(by) for by in (*preferred, *get_args(By)) if any(map(_is_known, found.held_by(by)))), "kind")


def _is_known(row: MemoryRow) -> bool:
    return row.name not in (UNKNOWN, BEFORE_THE_RECORDING)


def _classes(rows: Iterable[MemoryRow], held: Allocations) -> tuple[MemoryClass, ...]:
    """Return the rows of modules in sum by class, the largest first; memory that no operation takes has its kind in place of a module."""
    found, kinds = [], {_KINDS.get(held.texts[kind], held.texts[kind]) for kind in np.unique(held.kind[held.kind >= 0]).tolist()}
    for name, alike in by_class(rows).items():
        summed = _summed(name if len(alike) > 1 else alike[0].name, alike)
        found.append(MemoryClass(**vars(summed), modules=len(alike) if _is_known(summed) and summed.name not in kinds else 0))
    return tuple(sorted(found, key=lambda row: (-row.bytes, row.name == UNKNOWN, row.name)))


def _summed(name: str, rows: Sequence[MemoryRow]) -> MemoryRow:
    return MemoryRow(name, "", None, **{each: sum(getattr(row, each) for row in rows) for each in ("allocations", "bytes", "share")})


def _rows_of(trace: Trace, held: Allocations, by: str, whole_bytes: int) -> tuple[MemoryRow, ...]:
    """Divide allocations that are held at one time; the largest row comes first."""
    code, keys = _divided(trace, held, by)
    sums = np.zeros(len(keys), np.int64)
    np.add.at(sums, code, held.bytes)
    return _sorted(keys, np.bincount(code, minlength=len(keys)), sums, whole_bytes)


def _most_of(trace: Trace, held: Allocations, by: str, whole_bytes: int) -> tuple[MemoryRow, ...]:
    """Divide allocations of any times; bytes and number are of the time at which most of a row are held."""
    code, keys = _divided(trace, held, by)
    used, code = np.unique(code, return_inverse=True)
    peaks = [_most_at_once(held.rows(code == number)) for number in range(len(used))]
    counts, sums = np.array(peaks, np.int64).reshape(-1, 2).T
    return _sorted([keys[one] for one in used.tolist()], counts, sums, whole_bytes)


def _most_at_once(held: Allocations) -> tuple[int, int]:
    """Return how many allocations, and bytes, are held at the time of most bytes."""
    curve = curve_of(held, int(held.start_ns[0]))
    at_ns = curve.time_ns[curve.bytes.argmax()]
    return int(((held.start_ns <= at_ns) & (held.end_ns > at_ns)).sum()), int(curve.bytes.max())


def _sorted(keys: Sequence[Key], counts: IntArray, sums: IntArray, whole_bytes: int) -> tuple[MemoryRow, ...]:
    rows = [
        MemoryRow(key.name, key.file, key.line or None, count, nbytes, nbytes / whole_bytes if whole_bytes else 0.0, key.defined)
        for key, count, nbytes in zip(keys, counts.tolist(), sums.tolist(), strict=True)
        if count
    ]
    return tuple(sorted(rows, key=lambda row: (-row.bytes, row.name == UNKNOWN, row.file, row.line or 0, row.name)))


def _divided(trace: Trace, held: Allocations, by: str) -> tuple[npt.NDArray[np.int64], list[Key]]:
    """Return an index into the keys for each allocation, and the keys: what is not known has one, and what was held before."""
    numbers: dict[Key, int] = {}
    code = _codes(trace, held, by, numbers)
    before = np.array([text == BEFORE_THE_RECORDING for text in held.texts] + [False], bool)[held.kind]
    code[before] = numbered(Key(BEFORE_THE_RECORDING), numbers)
    if _has_kinds_for_rows(trace, held):
        for kind in np.unique(held.kind[(code < 0) & (held.kind >= 0)]).tolist():
            code[(code < 0) & (held.kind == kind)] = numbered(Key(_KINDS.get(held.texts[kind], held.texts[kind])), numbers)
    code[code < 0] = numbered(Key(UNKNOWN), numbers)
    return code, list(numbers)


def _has_kinds_for_rows(trace: Trace, held: Allocations) -> bool:
    """Whether what no operation of a program takes has its kind, as inputs. Files of other formats keep the kinds, and no origins."""
    return bool(len(trace.origins.label)) or not _KINDS.keys().isdisjoint(held.texts)


def _codes(trace: Trace, held: Allocations, by: str, numbers: dict[Key, int]) -> npt.NDArray[np.int64]:
    """Return the number of each allocation's key, -1 where it is not known."""
    if by in ("operation", "kind"):
        column = held.name if by == "operation" else held.kind
        used = np.unique(column[column >= 0]).tolist()
        of_text = np.full(len(held.texts) + 1, -1, np.int64)
        of_text[used] = [numbered(Key(held.texts[one]), numbers) for one in used]
        return of_text[column]
    of_site = np.array([*(numbered(site_key(site, by), numbers) for site in held.sites), -1], np.int64)
    of_operation = np.array([*(numbered(key, numbers) for key in operation_keys(trace, by)), -1], np.int64)
    own = of_operation[np.where(held.operation < len(of_operation), held.operation, -1)]
    return np.where(own >= 0, own, of_site[held.site])


def _without(held: Allocations, curve: Curve, below_bytes: int) -> IntArray | None:
    """Return few rows without which the curve stays below so many bytes, in rising order; None where these are too many, or cannot be.

    Of those that are held at the highest place, that one goes which takes most of what is too much there; of equals, the one that is held
    at most of the places that are too high. In small cases these are the fewest. None of those that went could stay.
    """
    before = [code for code, text in enumerate(held.texts) if text == BEFORE_THE_RECORDING]
    rows = np.flatnonzero(~np.isin(held.kind, before))
    nbytes, there = held.bytes[rows], np.ones(len(rows), bool)
    too_high = curve.bytes >= below_bytes
    first, behind = (np.searchsorted(curve.time_ns[too_high], column[rows]) for column in (held.start_ns, held.end_ns))
    left = curve.bytes[too_high]
    gone = list[int]()
    while (excess := left[at := int(left.argmax())] - below_bytes + 1) > 0:
        around = np.flatnonzero(there & (first <= at) & (behind > at))
        if len(gone) == 2 * MOST_TO_GO or not len(around):
            return None
        high = np.concatenate([[0], np.cumsum(left >= below_bytes)])
        places = high[behind[around]] - high[first[around]]  # How often it is held where the curve is still too high.
        chosen = around[np.lexsort((nbytes[around], places, np.minimum(nbytes[around], excess)))[-1]]
        there[chosen] = False
        gone.append(int(chosen))
        left[first[chosen] : behind[chosen]] -= nbytes[chosen]
    for one in sorted(gone, key=lambda one: nbytes[one]):
        if left[first[one] : behind[one]].max() + nbytes[one] < below_bytes:
            left[first[one] : behind[one]] += nbytes[one]
            gone.remove(one)
    return rows[sorted(gone)] if len(gone) <= MOST_TO_GO else None
