"""The rows of a comparison of two traces: one for each operation, or for each name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from streamscope.analysis.matching import Joined
from streamscope.analysis.statistics import FEWEST_FOR_INTERVAL, interval_basis, median_intervals
from streamscope.arrays import IntArray
from streamscope.trace.spans import SpanKind
from streamscope.trace.symbols import readable_name
from streamscope.trace.trace import Trace
from streamscope.words import format_us

HEADINGS = ("name", "count", "total, µs", "difference, µs", "each, µs")


@dataclass(frozen=True)
class DiffRow:
    """One operation, or all kernels, copies or sets of one name, in both traces.

    Attributes
    ----------
    name : str
        In the second trace, where both have it.
    was : str
        Name in the first trace, where it differs; else empty.
    symbols : tuple of str
        The kernel's own name in both; empty where it is unknown.
    kind : {"kernel", "copy", "set"}
    operation, part : int
        -1 where the traces are joined by name.
    count : tuple of int
        How often it runs in the first and in the second trace.
    total_us : tuple of float
        Sum of its durations in both.
    each_us, low_us, high_us : float or None
        How much longer one run takes in the second trace: the median with its interval; None where one trace has none of it.
    basis : str
        Kind of the interval.
    """

    name: str
    was: str
    symbols: tuple[str, str]
    kind: str
    operation: int
    part: int
    count: tuple[int, int]
    total_us: tuple[float, float]
    each_us: float | None
    low_us: float | None
    high_us: float | None
    basis: str

    @property
    def difference_us(self) -> float:
        """Total of the second trace less that of the first, in µs."""
        return self.total_us[1] - self.total_us[0]

    @property
    def status(self) -> Literal["both", "added", "gone", "renamed"]:
        """Whether both traces have it, only the second, only the first, or both by another name."""
        if not all(self.count):
            return "gone" if self.count[0] else "added"
        another = self.operation >= 0 and all(self.symbols) and self.symbols[0] != self.symbols[1]
        return "renamed" if self.was or another else "both"

    @property
    def told(self) -> bool:
        """Whether one run of it is faster or slower: there are enough for an interval, and 0 lies outside it."""
        return (
            self.low_us is not None and self.high_us is not None and self.basis.startswith("95 %") and not self.low_us <= 0 <= self.high_us
        )

    @property
    def called(self) -> str:
        """Its name, short where it is a kernel's own, and operation, with its former name or its fate."""
        name, was = (readable_name(text) if text in self.symbols else text for text in (self.name, self.was))
        if was == name:
            name, was = self.name, self.was
        if self.operation >= 0:
            name = f"{name} · {self.operation}"
        renamed = f"{name} (was {was})" if was else f"{name} ({' → '.join(self.symbols)})"
        return {"added": f"{name} (added)", "gone": f"{name} (gone)", "renamed": renamed}.get(self.status, name)

    def cells(self) -> tuple[str, ...]:
        """Return it as text, under `HEADINGS`."""
        count = f"{self.count[0]:,}" if self.count[0] == self.count[1] else f"{self.count[0]:,} → {self.count[1]:,}"
        each = "–" if self.each_us is None else signed(self.each_us)
        if self.told and self.low_us is not None and self.high_us is not None:
            each += f" ({signed(self.low_us)} to {signed(self.high_us)})"
        elif self.each_us is not None and max(self.count) > 1:
            each += " (within the noise)" if self.basis.startswith("95 %") else ""
        return self.called, count, f"{format_us(self.total_us[0])} → {format_us(self.total_us[1])}", signed(self.difference_us), each

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values, times in µs."""
        operation = {"operation": self.operation, "part": self.part} if self.operation >= 0 else {}
        return {
            "name": self.name, "was": self.was, "symbols": list(self.symbols), "kind": self.kind, **operation, "status": self.status,
            "count": list(self.count), "total_us": list(self.total_us), "difference_us": self.difference_us,
            "each_us": self.each_us, "low_us": self.low_us, "high_us": self.high_us, "basis": self.basis, "told": self.told,
        }  # fmt: skip


def diff_rows(first: Trace, second: Trace, joined: Joined) -> Iterator[DiffRow]:
    """Yield a row for each group; all that is counted and sorted is in columns."""
    spans, sides = (first.spans, second.spans), (slice(None, joined.cut), slice(joined.cut, None))
    groups = int(joined.group.max(initial=-1)) + 1
    duration_ns, kind, operation, part = (
        np.concatenate([getattr(table, name)[joined.row[side]] for table, side in zip(spans, sides, strict=True)])
        for name in ("duration_ns", "kind", "operation", "part")
    )
    count = np.stack([np.bincount(joined.group[side], minlength=groups) for side in sides], axis=1)
    total_us = np.stack([np.bincount(joined.group[side], duration_ns[side], groups) / 1000 for side in sides], axis=1)
    example = np.full((groups, 2), -1)
    for at, side in enumerate(sides):
        example[joined.group[side], at] = np.arange(len(joined.group))[side]
    each_us, paired = _each_us(joined, duration_ns, count)
    texts = (*joined.texts, "")
    for row, (counts, totals, examples) in enumerate(zip(count.tolist(), total_us.tolist(), example.tolist(), strict=True)):
        names, symbols = ([texts[column[at]] if at >= 0 else "" for at in examples] for column in (joined.text, joined.symbol))
        at, both = max(examples), all(counts)
        if both and names[0] != names[1] and joined.called[examples[0]] == joined.called[examples[1]]:
            names = [readable_name(names[1]) if symbols[1] else names[1]] * 2
        median, low, high = each_us[:, row].tolist() if both else (None, None, None)
        yield DiffRow(
            name=names[1] or names[0],
            was=names[0] if both and names[0] != names[1] else "",
            symbols=(symbols[0], symbols[1]),
            kind=SpanKind(kind[at]).name.lower(),
            operation=int(operation[at]) if joined.by == "operation" else -1,
            part=int(part[at]) if joined.by == "operation" else -1,
            count=(counts[0], counts[1]),
            total_us=(totals[0], totals[1]),
            each_us=median,
            low_us=low,
            high_us=high,
            basis=_basis(counts, paired=bool(paired[row])),
        )


def _each_us(joined: Joined, duration_ns: IntArray, count: IntArray) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Return how much longer one run of each group takes (median, low, high), and whether that rests on pairs."""
    groups, (of_first, of_second) = len(count), joined.pairs.T
    group = joined.group[of_first]
    in_pairs = median_intervals(duration_ns[of_second] - duration_ns[of_first], group, groups)
    first, second = (
        median_intervals(duration_ns[side], joined.group[side], groups) for side in (slice(joined.cut), slice(joined.cut, None))
    )
    apart = np.stack([second[0] - first[0], second[1] - first[2], second[2] - first[1]])
    paired = (count == np.bincount(group, minlength=groups)[:, None]).all(axis=1)
    return np.where(paired, in_pairs, apart) / 1000, paired


def _basis(counts: Sequence[int], *, paired: bool) -> str:
    if not all(counts):
        return "in one trace only"
    if max(counts) == 1:
        return "one each, no interval"
    of = "of the differences of pairs" if paired else "of both, one's low to the other's high"
    return f"{interval_basis(min(counts))} {of}" if min(counts) >= FEWEST_FOR_INTERVAL else f"minimum and maximum {of}"


def signed(value_us: float) -> str:
    """Return a difference in µs with its sign."""
    text = format_us(value_us)
    return f"+{text}" if value_us > 0 and text.strip("0.") else text.replace("-", "−") if text.strip("-0.") else "0"
