"""Steps of a job: by the ranges of a profiler or of the user, else found by repetition."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from streamscope.arrays import FloatArray, IntArray
from streamscope.ranks.clocks import Clocks
from streamscope.ranks.matching import Matched, Parts
from streamscope.ranks.rank import Rank
from streamscope.ranks.waiting import Waits
from streamscope.trace.joins import call_rows
from streamscope.trace.spans import SpanKind, SpanTable

_NUMBERED = re.compile(r"(.*?)[\s#_:.-]*(\d{1,12})\s*$")
_PROFILER = "ProfilerStep"
_LIKE_STEPS = re.compile(r"step|iter|batch", re.IGNORECASE)
_LEAST = 3
"""Steps that are found by repetition, at least."""
_ALIKE = 0.98
_MOST_TRIED = 4
"""Ranks on which a repetition is looked for: a kernel that one of them has once hides it there."""


@dataclass(frozen=True)
class JobSteps:
    """Steps of a job: equally long columns.

    Attributes
    ----------
    begin_ns, end_ns : float arrays
        On the job's clock: from the first work of the step on any rank to that of the next one; of the last step, to the end of its work.
    by : str
        How they were found: the name of the ranges, ``"repetition"``, or empty where there are none.
    """

    begin_ns: FloatArray
    end_ns: FloatArray
    by: str = ""

    def __len__(self) -> int:
        return len(self.begin_ns)

    @property
    def length_ns(self) -> FloatArray:
        """End minus begin of each."""
        return self.end_ns - self.begin_ns

    def at(self, times_ns: FloatArray) -> IntArray:
        """Return the step in which each moment lies; -1 for none."""
        found = np.searchsorted(self.begin_ns, times_ns, side="right") - 1
        inside = (found >= 0) & (times_ns < self.end_ns[found]) if len(self) else np.zeros(len(times_ns), bool)
        return np.where(inside, found, -1)


def is_step(name: str) -> bool:
    """Tell whether a range of this name is one of the numbered steps of a job."""
    match = _NUMBERED.fullmatch(name)
    return bool(match and (match[1].strip() == _PROFILER or _LIKE_STEPS.search(match[1])))


def steps_of(ranks: Sequence[Rank], matched: Matched, clocks: Clocks, waits: Waits, base_ns: int) -> JobSteps:
    """Find the steps of a job.

    ``ProfilerStep#3`` of PyTorch's profiler comes first, then ranges named like ``step 3``, then the shortest sequence of collectives that
    repeats three times at least, with the kernels and the host's waits between them.

    A step begins with the first work on a GPU that was launched in its range.
    """
    for wanted in (lambda name: name == _PROFILER, lambda name: bool(_LIKE_STEPS.search(name))):
        found: dict[int, list[float]] = {}
        label, end_ns = "", -np.inf
        for at, rank in enumerate(ranks):
            name, begins, last_ns = _ranged(rank.trace.spans, wanted)
            shift_ns = rank.zero_ns - base_ns
            label = label or name
            if begins and name == label and clocks.group[at] == clocks.group[0]:
                for number, begin_ns in begins.items():
                    found.setdefault(number, []).append(float(clocks.job_ns(at, np.float64(begin_ns + shift_ns))))
                end_ns = max(end_ns, float(clocks.job_ns(at, np.float64(last_ns + shift_ns))))
        if found:
            begin = np.array([min(times) for _, times in sorted(found.items())])
            begin = np.maximum.accumulate(begin)
            return JobSteps(begin, np.append(begin[1:], max(end_ns, begin[-1])), label)
    return _repeated(ranks, matched, waits)


def _ranged(spans: SpanTable, wanted: Callable[[str], bool]) -> tuple[str, dict[int, int], int]:
    """Return the name of the ranges of steps, when the work of each step begins, by its number, and when that of the last one ends."""
    rows = np.flatnonzero(spans.kind == SpanKind.RANGE)
    numbers: dict[int, tuple[str, int]] = {}
    for code in np.unique(spans.name[rows]).tolist():
        match = _NUMBERED.fullmatch(spans.names[code])
        if match and wanted(match[1].strip()):
            numbers[code] = match[1].strip(), int(match[2])
    if not numbers:
        return "", {}, 0
    counts = Counter(name for name, _ in numbers.values())
    label = max(counts, key=lambda name: (counts[name], name))
    number_of = np.full(len(spans.names), -1)
    for code, (name, number) in numbers.items():
        number_of[code] = number if name == label else -1
    rows = rows[number_of[spans.name[rows]] >= 0]
    device = np.flatnonzero(spans.kind >= SpanKind.KERNEL)
    device = device[spans.kind[device] != SpanKind.GRAPH]
    call = call_rows(spans, device)
    launched_ns = np.where(call >= 0, spans.start_ns[call], spans.start_ns[device])
    order = np.argsort(launched_ns, kind="stable")
    low, high = (np.searchsorted(launched_ns[order], column[rows]) for column in (spans.start_ns, spans.end_ns))
    some = low < high
    if not some.any():
        return label, {}, 0
    ends = np.stack([low[some], high[some]], axis=1).reshape(-1)  # Of every second stretch, nothing is asked.
    padded = np.append(device[order], device[order[-1]])
    begin_ns, end_ns = np.minimum.reduceat(spans.start_ns[padded], ends)[::2], np.maximum.reduceat(spans.end_ns[padded], ends)[::2]
    begins = dict[int, int]()
    for number, at_ns in zip(number_of[spans.name[rows[some]]].tolist(), begin_ns.tolist(), strict=True):
        begins[number] = min(begins.get(number, at_ns), at_ns)
    return label, begins, int(end_ns.max())


def _launched(spans: SpanTable) -> tuple[IntArray, IntArray]:
    """Return the rows of all work on the GPU in the order in which the host launched it, and when: work without a call, when it began."""
    device = np.flatnonzero(spans.kind >= SpanKind.KERNEL)
    device = device[spans.kind[device] != SpanKind.GRAPH]
    call = call_rows(spans, device)
    launched_ns = np.where(call >= 0, spans.start_ns[call], spans.start_ns[device])
    order = np.argsort(launched_ns, kind="stable")  # Rows are in the order of their starts.
    return device[order], launched_ns[order]


def _repeated(ranks: Sequence[Rank], matched: Matched, waits: Waits) -> JobSteps:
    """Return steps as the shortest period of collectives, with the kernels and the host's waits before each, on one of the busiest ranks.

    The order is that of their launches: streams run beside each other, so the order of starts differs from step to step. A step begins
    where the one before ends its last collective. If only the collectives repeat, a period of one is none: all sequences of equal
    collectives have it.
    """
    parts = matched.parts
    rows = np.flatnonzero(waits.known)
    count = np.bincount(parts.rank[rows], minlength=1)
    busiest = np.flatnonzero(count == count.max())[:_MOST_TRIED].tolist() if len(rows) >= _LEAST else []
    sequences = [_Sequence.of(ranks[at], parts, rows[parts.rank[rows] == at]) for at in busiest]
    for attempt in ("waits", "kernels", "collectives"):
        for each in sequences:
            period = _period(each.tokens(attempt))
            if period is not None and (period > 1 or attempt != "collectives"):
                whole = len(each.part) // period * period
                ends = np.maximum.accumulate(waits.end_ns[each.part[:whole]].reshape(-1, period).max(axis=1))
                return JobSteps(ends[:-1], ends[1:], "repetition")
    return JobSteps(np.zeros(0), np.zeros(0))


@dataclass(frozen=True)
class _Sequence:
    """Collectives of one rank in the order of their launches: equally long columns.

    Attributes
    ----------
    part : int64 array
        Row in the parts of collectives.
    kinds : int64 array
        Of each, communicator, kind and size: three rows.
    kernels, waits : int64 arrays
        Numbers for the kernels launched, and for the calls that wait for the GPU, since the one before; the same for the same names.
    """

    part: IntArray
    kinds: IntArray
    kernels: IntArray
    waits: IntArray

    @classmethod
    def of(cls, rank: Rank, parts: Parts, rows: IntArray) -> _Sequence:
        spans = rank.trace.spans
        device, launched_ns = _launched(spans)
        place = np.zeros(len(spans), np.int64)
        place[device] = np.arange(len(device))
        rows = rows[np.argsort(place[parts.span[rows]])]
        at = place[parts.span[rows]]
        kernels = device[spans.kind[device] == SpanKind.KERNEL]
        waits = np.flatnonzero(spans.kind == SpanKind.SYNC)
        return cls(
            rows,
            np.stack([parts.communicator[rows], parts.kind[rows], parts.nbytes[rows]]),
            _signature(spans.name[kernels], np.searchsorted(at, place[kernels]), len(rows)),
            _signature(spans.name[waits], np.searchsorted(launched_ns[at], spans.start_ns[waits]), len(rows)),
        )

    def tokens(self, attempt: str) -> IntArray:
        """Return a number for each collective: the same for those that are alike, with what is before them."""
        beside = {"waits": (self.kernels, self.waits), "kernels": (self.kernels,), "collectives": ()}[attempt]
        found: IntArray = np.unique(np.vstack((self.kinds, *beside)), axis=1, return_inverse=True)[1].reshape(-1)
        return found


def _signature(name: IntArray, before: IntArray, count: int) -> IntArray:
    """Return a number for the spans before each collective: the same for the same names and counts."""
    mixed = (name.astype(np.int64) * 2654435761) % 1_000_003
    return np.bincount(before, weights=mixed, minlength=count + 1)[:count].astype(np.int64)


def _period(token: IntArray) -> int | None:
    """Return the shortest period of a sequence that holds for nearly all of it, three times at least.

    The first token is not compared: part of what came before that collective may lie before the recording.
    """
    count = np.bincount(token)
    often = np.flatnonzero(count >= _LEAST)
    if not len(often):
        return None
    places = np.flatnonzero(token == often[count[often].argmin()])
    for period in np.unique(places[1:] - places[0]).tolist():
        if _LEAST * period <= len(token) and np.mean(token[period + 1 :] == token[1:-period]) >= _ALIKE:
            return int(period)
    return None
