"""What GPUs do by name, and which name explains that one of them has more to do than others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streamscope.analysis.intervals import union
from streamscope.analysis.work import Work, work_of
from streamscope.arrays import IntArray
from streamscope.ranks.places import places_of
from streamscope.ranks.rank import Rank
from streamscope.ranks.waiting import Coverage
from streamscope.trace.spans import DEVICE_KINDS, MEMORY_KINDS, SpanTable
from streamscope.trace.symbols import readable_name

EXPLAINS = 0.4
"""A name is the cause where it explains this part of a difference."""
_OF_QUARTILES = 1.253 / 1.349
"""Standard error of a median by the distance of the quartiles, times the root of how many."""
_MORE_OFTEN = 1.5
_MOST_OF_IT = 0.6
"""A GPU is slow where no kernel explains this part of it alone."""


@dataclass(frozen=True)
class NamedWork:
    """Time in ns, and number, of the kernels, copies and memory sets of each name on one GPU; communication is left out."""

    ns: dict[str, float]
    counts: dict[str, float]
    copies: frozenset[str]
    noise_ns: float = 0.0
    """How far off the time of all may be, as kernels of one name scatter."""

    @classmethod
    def of(cls, rank: Rank, rows: IntArray, inside_ns: Any) -> NamedWork:
        """Sum up some spans by name: of each, the time inside that counts."""
        ns, counts = by_name(rank, rows, inside_ns)
        spans = rank.trace.spans
        copies = rows[spans.is_kind(MEMORY_KINDS)[rows]]
        return cls(ns, counts, frozenset(spans.names[code] for code in np.unique(spans.name[copies]).tolist()))

    @property
    def all_ns(self) -> float:
        """Time of all names."""
        return sum(self.ns.values())

    def excess(self, others: Sequence[NamedWork]) -> dict[str, float]:
        """Return by name how much more time it takes than on the other GPUs, in their median."""
        names = {name for each in (self, *others) for name in each.ns}
        return {name: self.ns.get(name, 0.0) - float(np.median([each.ns.get(name, 0.0) for each in others])) for name in names}

    def cause(self, others: Sequence[NamedWork], least_ns: float, elsewhere: frozenset[str]) -> tuple[str, str]:
        """Return the cause of more work than on other GPUs, and its name.

        What is not among the names ``elsewhere`` comes first, where it takes ``least_ns``.
        """
        work = self.excess(others)
        new = {name: time_ns for name, time_ns in work.items() if name not in elsewhere and time_ns >= least_ns}
        name = max(new or work, key=lambda one: work[one])
        if self.counts.get(name, 0.0) > _MORE_OFTEN * np.median([each.counts.get(name, 0.0) for each in others]):
            return "more work", name
        if work[name] < _MOST_OF_IT * sum(work.values()) and self._slower_everywhere(others):
            return "slow GPU", ""
        return ("copy" if name in self.copies else "kernel"), name

    def _slower_everywhere(self, others: Sequence[NamedWork]) -> bool:
        """Tell whether most names take longer, by half as much at least as all of them together."""
        usual = {name: float(np.median([each.ns.get(name, 0.0) for each in others])) for name in self.ns}
        ratios = [self.ns[name] / time_ns for name, time_ns in usual.items() if time_ns > 0]
        whole = self.all_ns / max(1.0, sum(usual.values()))
        return len(ratios) > 2 and float(np.quantile(ratios, 0.5, method="lower")) >= 1 + 0.5 * (whole - 1)


def alone(ranks: Sequence[Rank], between: Sequence[IntArray]) -> list[NamedWork]:
    """Return what each GPU has to do between two moments of its trace, as long as it takes where no communication runs beside it.

    A rank that waits has slower kernels meanwhile, so the time of each is the median of those that run alone: on this rank, else on the
    others. What runs alone nowhere takes the same time everywhere.
    """
    there = list[tuple[NamedWork, dict[str, tuple[float, float]]]]()
    alone_ns, any_ns = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    for rank, (begin_ns, end_ns) in zip(ranks, between, strict=True):
        spans, beside = rank.trace.spans, work_of(rank.trace) == Work.COMMUNICATION
        rows = np.flatnonzero(spans.is_kind(DEVICE_KINDS) & ~beside & (spans.start_ns >= begin_ns) & (spans.start_ns < end_ns))
        communicating = Coverage(union(spans.start_ns[beside], spans.end_ns[beside]))
        by_itself = _typical_ns(rank, rows[communicating.within(spans.start_ns[rows], spans.end_ns[rows]) == 0])
        there.append((NamedWork.of(rank, rows, spans.duration_ns[rows]), by_itself))
        for known_ns, times_ns in ((alone_ns, by_itself), (any_ns, _typical_ns(rank, rows))):
            for name, (time_ns, _) in times_ns.items():
                known_ns[name].append(time_ns)
    usual = {name: (float(np.median(alone_ns.get(name, times_ns))), 0.0) for name, times_ns in any_ns.items()}
    found = list[NamedWork]()
    for work, by_itself in there:
        each = {name: (number, *by_itself.get(name, usual[name])) for name, number in work.counts.items()}
        noise_ns = float(np.sqrt(sum((number * off_ns) ** 2 for number, _, off_ns in each.values())))
        found.append(replace(work, ns={name: number * time_ns for name, (number, time_ns, _) in each.items()}, noise_ns=noise_ns))
    return found


def _typical_ns(rank: Rank, rows: IntArray) -> dict[str, tuple[float, float]]:
    """Return the median duration of some spans by name, and how far off it is by their scatter; of names that are alike, of one."""
    spans = rank.trace.spans
    code, duration_ns = codes(spans)[rows], spans.duration_ns[rows]
    order = np.lexsort((duration_ns, code))
    used, first, number = np.unique(code[order], return_index=True, return_counts=True)
    low_ns, middle_ns, high_ns = (duration_ns[order][first + number * quarter // 4] for quarter in (1, 2, 3))
    off_ns = _OF_QUARTILES * (high_ns - low_ns) / np.sqrt(number)
    label = labels(rank, rows)
    return {label[one]: (time, off) for one, time, off in zip(used.tolist(), middle_ns.tolist(), off_ns.tolist(), strict=True)}


def range_of(rank: Rank, name: str) -> str:
    """Return the module or range that launches most of the time of a name."""
    spans = rank.trace.spans
    code, texts = places_of(rank.trace)
    rows = np.flatnonzero(code >= 0)
    label = labels(rank, rows)
    rows = rows[np.isin(codes(spans)[rows], [one for one, text in label.items() if text == name])]
    return texts[int(np.bincount(code[rows], weights=spans.duration_ns[rows]).argmax())] if len(rows) else ""


def codes(spans: SpanTable) -> IntArray:
    """Return an index into the names for each span: of its symbol, since kernels of one template share a short name."""
    return np.where(spans.symbol >= 0, spans.symbol, spans.name)


def labels(rank: Rank, rows: IntArray) -> dict[int, str]:
    """Return the names of some spans, with their functions where they are kernels of a template, by code."""
    spans = rank.trace.spans
    symbols, used = (np.flatnonzero(np.bincount(column[column >= 0])).tolist() for column in (spans.symbol[rows], codes(spans)[rows]))
    readable = set(symbols)
    return {code: readable_name(spans.names[code]) if code in readable else spans.names[code] for code in used}


def by_name(rank: Rank, rows: IntArray, inside_ns: Any) -> tuple[dict[str, float], dict[str, float]]:
    """Return the time and the number of spans of each name, of those of which some time counts."""
    there = inside_ns > 0
    code = codes(rank.trace.spans)[rows[there]]
    time_ns = np.bincount(code, weights=inside_ns[there], minlength=1)
    number = np.bincount(code, minlength=1)
    times, counts = defaultdict[str, float](float), defaultdict[str, float](float)
    for one, label in labels(rank, rows[there]).items():
        times[label] += float(time_ns[one])
        counts[label] += float(number[one])
    return dict(times), dict(counts)
