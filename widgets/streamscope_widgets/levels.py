"""The spans of a long trace at every level of detail: rows of spans that do not overlap, and marks that stand for crowds of short ones.

A *mark* is one span, or neighbours of one row that are shorter than a pixel and start in the same one. No span is in two marks, and none in
no mark, so a row's marks add up to its spans. The timeline draws marks as it draws spans.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from streamscope.arrays import IntArray
from streamscope.trace.spans import SpanTable
from streamscope_widgets.gpu_activity import GpuActivity
from streamscope_widgets.rows import SLOTS, places_of

MOST_PIXELS = 16_384
"""Pixels of the widest stretch that is asked for."""
MOST_DIRECT = 400_000
"""Up to so many spans are merged at each request; wider levels are merged for the whole trace, once."""


class Mergeable(Protocol):
    """What is drawn at several levels of detail."""

    def merged(self, pitch_ns: int) -> Self:
        """Return it at a level whose pixels are so long."""


T = TypeVar("T", bound=Mergeable)


def level_of(levels: dict[int, T], level: int, finest: int, whole: Callable[[int], T]) -> T:
    """Return a level of a whole trace, made of the nearest finer one, and keep it.

    ``levels``: those that were made before.
    ``level``: pixels are 2**level ns long.
    ``finest``: from `finest_level`: coarser levels are made of it, quickly.
    ``whole``: ``whole(pitch_ns)`` makes a level of the trace itself.
    """
    if level not in levels:
        if level > finest:
            level_of(levels, finest, finest, whole)
        finer = max((known for known in levels if known < level), default=None)
        levels[level] = whole(1 << level) if finer is None else levels[finer].merged(1 << level)
    return levels[level]


def finest_level(length_ns: int, count: int, most_direct: int) -> int:
    """Return the finest level that is likely to be made for a whole trace: that of a view of so many of its parts."""
    return max(1, math.floor(math.log2(max(2.0, length_ns * most_direct / max(1, count) / MOST_PIXELS))))


@dataclass(frozen=True)
class Marks:
    """Crowds and single spans, as equally long columns, row by row and in each row by start."""

    first: IntArray
    count: IntArray
    """int64: which positions of ``Rows.span`` are in the mark."""
    slot: IntArray
    """int64: place of the lane among those drawn, times `SLOTS`, and the row in it; the last one is the band."""
    start_ns: IntArray
    end_ns: IntArray
    """int64: from the first start to the last end."""
    busy_ns: IntArray
    """int64: of that, the time with any span of the row that no earlier mark covers."""
    longest: IntArray
    """int64: position of the longest span: the mark wears its colour."""
    longest_ns: IntArray
    """int64: its duration."""

    def __len__(self) -> int:
        return len(self.first)

    def select(self, chosen: npt.NDArray[Any] | slice) -> Marks:
        """Return the marks that a mask, an index array or a slice picks."""
        return Marks(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))

    def merged(self, pitch_ns: int) -> Marks:
        """Return the marks of a level whose pixels are ``pitch_ns`` long, a multiple of those that these marks were made for."""
        if not len(self):
            return self
        short, pixel = self.longest_ns < pitch_ns, self.start_ns // pitch_ns
        joins = short[1:] & short[:-1] & (pixel[1:] == pixel[:-1]) & (self.slot[1:] == self.slot[:-1])
        starts = np.append(True, ~joins)
        first = np.flatnonzero(starts)
        if len(first) == len(self):
            return self
        crowd = np.cumsum(starts) - 1
        longest_ns = np.maximum.reduceat(self.longest_ns, first)
        candidates = np.flatnonzero(self.longest_ns == longest_ns[crowd])[::-1]
        longest = np.empty(len(first), np.int64)
        longest[crowd[candidates]] = self.longest[candidates]  # The first of those that are equally long is written last.
        return Marks(
            self.first[first], np.add.reduceat(self.count, first), self.slot[first], self.start_ns[first],
            np.maximum.reduceat(self.end_ns, first), np.add.reduceat(self.busy_ns, first), longest, longest_ns,
        )  # fmt: skip


class Rows:
    """The spans of a trace in the rows in which they are drawn, and their marks at every level."""

    def __init__(self, spans: SpanTable) -> None:
        self.spans = spans
        self.places = places_of(spans)
        """Lanes and rows."""
        slot, count = self.places.slot, len(self.places.lanes) * SLOTS
        self.span = np.argsort(slot.astype(np.int16), kind="stable").astype(np.int32)[: int((slot < count).sum())]
        """int32: rows of the table: those on drawn lanes, slot by slot and in each slot by start."""
        self.offsets = np.append(0, np.cumsum(np.bincount(slot, minlength=count)[:count]))
        """int64: where each slot begins in ``span``; one more at the end."""
        self.start_ns, self.end_ns = spans.start_ns[self.span], spans.end_ns[self.span]
        self.reach_ns = self.end_ns
        """The largest end so far in the slot; it ascends, so it can be searched."""
        if any((np.diff(self.end_ns[self._slice(at)]) < 0).any() for at in range(count)):
            self.reach_ns = np.concatenate([np.maximum.accumulate(self.end_ns[self._slice(at)]) for at in range(count)])
        self._levels: dict[int, Marks] = {}

    def _slice(self, slot: int) -> slice:
        return slice(int(self.offsets[slot]), int(self.offsets[slot + 1]))

    @cached_property
    def _used(self) -> list[int]:
        return [int(slot) for slot in np.flatnonzero(np.diff(self.offsets))]

    def window(self, start_ns: float, end_ns: float) -> list[tuple[int, int, int]]:
        """Return for each slot the positions of the spans that reach into a stretch of time, as (slot, first, last + 1).

        Among them may be some that end before it, where spans of a slot overlap.
        """
        found = []
        for slot in self._used:
            within = self._slice(slot)
            first = within.start + int(np.searchsorted(self.reach_ns[within], start_ns))
            last = within.start + int(np.searchsorted(self.start_ns[within], end_ns))
            if first < last:
                found.append((slot, first, last))
        return found

    def marks(self, level: int, start_ns: float, end_ns: float, most_exact: int = 0) -> tuple[Marks, bool]:
        """Return the marks that reach into a stretch of time, and whether each of them is one span.

        ``level``: pixels are 2**level ns long; at level 0 and below nothing is merged.
        ``start_ns``, ``end_ns``: multiples of the pixel; or infinite.
        ``most_exact``: so many spans are not merged at any level.
        """
        window = self.window(start_ns, end_ns)
        total = sum(last - first for _, first, last in window)
        exact = level <= 0 or total <= most_exact
        if exact or total <= MOST_DIRECT:
            parts = [self._single(slot, first, last) for slot, first, last in window]
            found = _joined(parts)
            found = found if exact else found.merged(1 << level)
        else:
            whole, offsets = self._level(level)
            # A row's marks end in the order in which they begin, but for those of the last row.
            pieces = [(int(offsets[slot]), int(offsets[slot + 1])) for slot in self._used]
            reach = [np.maximum.accumulate(whole.end_ns[first:last]) for first, last in pieces]
            chosen = [
                np.arange(first + np.searchsorted(ends, start_ns), first + np.searchsorted(whole.start_ns[first:last], end_ns))
                for (first, last), ends in zip(pieces, reach, strict=True)
            ]
            found = whole.select(np.concatenate(chosen))
        return found.select(found.end_ns >= start_ns), exact

    def _level(self, level: int) -> tuple[Marks, IntArray]:
        """Return all marks of a level, and where those of each slot begin."""
        length_ns = int(self.spans.end_ns.max(initial=0)) - int(self.spans.start_ns.min(initial=0))
        found = level_of(self._levels, level, finest_level(length_ns, len(self.spans), MOST_DIRECT), self._whole)
        return found, np.searchsorted(found.slot, np.arange(len(self.offsets)))

    def _whole(self, pitch_ns: int) -> Marks:
        """Return the marks of all spans, made slot by slot."""
        slices = [(slot, self._slice(slot)) for slot in self._used]
        return _joined([self._single(slot, within.start, within.stop).merged(pitch_ns) for slot, within in slices])

    def _single(self, slot: int, first: int, last: int) -> Marks:
        """Return a mark for each of the spans of one slot that lie at positions from ``first`` up to ``last``."""
        position = np.arange(first, last)
        start_ns, end_ns = self.start_ns[first:last], self.end_ns[first:last]
        before = self.reach_ns[max(first - 1, 0) : last - 1]
        if first == self.offsets[slot]:
            before = np.append(start_ns[:1], before[-(last - first - 1) :] if last - first > 1 else before[:0])
        busy_ns = np.maximum(0, end_ns - np.maximum(start_ns, before))
        one, here = np.ones(len(position), np.int64), np.full(len(position), slot)
        return Marks(position, one, here, start_ns, end_ns, busy_ns, position, end_ns - start_ns)


def _joined(parts: list[Marks]) -> Marks:
    if not parts:
        return Marks(*(np.zeros(0, np.int64) for _ in Marks.__dataclass_fields__))
    return Marks(*(np.concatenate([getattr(part, name) for part in parts]) for name in Marks.__dataclass_fields__))


SHIFTS = {"peers": 28, "collectives": 20, "kernels": 12, "copies": 4, "occupation": 0}
BITS = 36
"""Bits from which numbers of streams, and the occupation, stand in one number that encodes the activity; and how many it has."""


@dataclass(frozen=True)
class Stretches:
    """An activity, of which some stretches are the time that a crowd of shorter ones takes with one thing, put together."""

    found: GpuActivity
    crowd: npt.NDArray[np.bool_]
    """bool: which stretches stand for a crowd: how long one thing is done is right in sum, when it is done within a pixel."""

    def select(self, chosen: npt.NDArray[Any] | slice) -> Stretches:
        """Return the stretches that a mask or a slice picks."""
        columns = {name: getattr(self.found, name)[chosen] for name in self.found.__dataclass_fields__}
        return Stretches(GpuActivity(**columns), self.crowd[chosen])

    def merged(self, pitch_ns: int) -> Stretches:
        """Return the stretches of a level whose pixels are ``pitch_ns`` long, a multiple of those that these were made for."""
        found = self.found
        length_ns = found.end_ns - found.start_ns
        short, pixel = length_ns < pitch_ns, found.start_ns // pitch_ns
        alone = np.append(True, ~(short[1:] & short[:-1] & (pixel[1:] == pixel[:-1])))[: len(short)]
        crowd = np.cumsum(alone) - 1
        done = sum(getattr(found, name).astype(np.int64) << shift for name, shift in SHIFTS.items())
        _, first, inverse = np.unique(crowd << BITS | done, return_index=True, return_inverse=True)
        if len(first) == len(short):
            return self
        end_ns = found.start_ns[0] + np.cumsum(np.bincount(inverse, length_ns).astype(np.int64))
        several = np.bincount(inverse) > 1
        # Whatever shares its pixel with something else was moved.
        lonely = np.bincount(crowd)[crowd[first]] == 1
        kept = GpuActivity(
            np.append(found.start_ns[:1], end_ns[:-1]), end_ns, found.kernels[first], found.copies[first], found.occupation[first],
            np.where(several, np.nan, found.fullness[first]).astype(found.fullness.dtype), found.collectives[first],
            found.peers[first],
        )  # fmt: skip
        return Stretches(kept, self.crowd[first] | ~lonely)


class StretchLevels:
    """The stretches of a run at every level."""

    def __init__(self, found: GpuActivity, most_direct: int) -> None:
        small = {name: np.minimum(getattr(found, name), 255).astype(np.uint8) for name in SHIFTS}
        found = replace(found, **small, fullness=found.fullness.astype(np.float32))
        self.most_direct = most_direct
        """So many stretches are merged whenever they are asked for."""
        self._whole = Stretches(found, np.zeros(len(found.start_ns), bool))
        self._levels: dict[int, Stretches] = {}

    def within(self, level: int, start_ns: float, end_ns: float, most_exact: int = 0) -> Stretches:
        """Return the stretches that reach into a stretch of time; the parameters are those of `Rows.marks`."""
        part = _within(self._whole, start_ns, end_ns)
        count = len(part.crowd)
        if level <= 0 or count <= most_exact:
            return part
        return part.merged(1 << level) if count <= self.most_direct else _within(self._level(level), start_ns, end_ns)

    def _level(self, level: int) -> Stretches:
        found = self._whole.found
        finest = finest_level(int(found.end_ns[-1] - found.start_ns[0]), len(found.start_ns), self.most_direct)
        return level_of(self._levels, level, finest, self._whole.merged)


def _within(stretches: Stretches, start_ns: float, end_ns: float) -> Stretches:
    found = stretches.found
    return stretches.select(slice(int(np.searchsorted(found.end_ns, start_ns, "right")), int(np.searchsorted(found.start_ns, end_ns))))
