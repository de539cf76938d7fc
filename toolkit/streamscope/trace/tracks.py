"""Lanes as other programs draw them: on a track of theirs, two spans nest or keep apart.

A span that overlaps another one goes to a further track of its lane. So no program takes one for the child of the other, or drops it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count, repeat
from typing import TYPE_CHECKING

import numpy as np

from streamscope.arrays import IntArray
from streamscope.trace.joins import call_rows
from streamscope.trace.spans import DEVICE_KINDS, HOST_KINDS, SpanTable

if TYPE_CHECKING:
    from streamscope.trace.counters import Note
    from streamscope.trace.trace import Trace


@dataclass(frozen=True)
class Track:
    """Where a writer puts some spans of one lane."""

    lane: str
    gpu: int
    """GPU of its stream; -1 where it is the host's."""
    level: int
    """0 for the first track of its lane."""

    @property
    def device(self) -> bool:
        """Whether it is a stream's."""
        return self.gpu >= 0

    @property
    def label(self) -> str:
        """Name of the lane, with the number of the track from the second on."""
        return f"{self.lane} · {self.level + 1}" if self.level else self.lane


def tracks_of(spans: SpanTable) -> tuple[list[Track], IntArray]:
    """Return tracks, in the order of the lanes, and the track of each span.

    Each lane has one at least. Kernels, copies and sets share a track only where they keep apart; all others may nest, too.
    """
    tracks, track = list[Track](), np.zeros(len(spans), np.int64)
    host = spans.is_kind(HOST_KINDS)
    order = np.lexsort((-spans.end_ns, spans.start_ns, host, spans.lane))
    bounds = np.searchsorted(spans.lane[order], np.arange(len(spans.lanes) + 1))
    for code, lane in enumerate(spans.lanes):
        rows = order[bounds[code] : bounds[code + 1]]
        for device in (False, True):
            side = rows[host[rows] != device]
            if not len(side) and (len(rows) or device != (spans.gpus[code] >= 0)):
                continue
            level = _levels(spans, side)
            track[side] = len(tracks) + level
            tracks += [Track(lane, spans.gpus[code] if device else -1, number) for number in range(int(level.max(initial=0)) + 1)]
    return tracks, track


def _levels(spans: SpanTable, rows: IntArray) -> IntArray:
    """Return the level of each of some spans of one lane, which are in the order of their starts, the longer one first."""
    start_ns, end_ns = spans.start_ns[rows], spans.end_ns[rows]
    if (start_ns[1:] >= np.maximum.accumulate(end_ns)[:-1]).all():
        return np.zeros(len(rows), np.int64)
    work = spans.is_kind(DEVICE_KINDS)[rows]
    return np.fromiter(placed(start_ns.tolist(), end_ns.tolist(), work.tolist()), np.int64, len(rows))


def placed(starts: list[int], ends: list[int], work: Iterable[bool]) -> Iterator[int]:
    """Yield the first level on which each span keeps apart from the others or lies inside them."""
    levels: list[list[tuple[int, bool]]] = []
    for start, end, works in zip(starts, ends, work, strict=False):
        level = 0
        for around in levels:
            while around and around[-1][0] <= start:
                around.pop()
            if not around or (end <= around[-1][0] and not (works and around[-1][1])):
                break
            level += 1
        else:
            around = []
            levels.append(around)
        around.append((end, works or (bool(around) and around[-1][1])))
        yield level


def numbered(tracks: list[Track]) -> list[int]:
    """Return a number of each track: the one in the name of its lane (``"stream 7"``), where it is free, else the next free one from 1.

    Each GPU has numbers of its own, and so has the host.
    """
    taken: dict[int, set[int]] = {track.gpu: set() for track in tracks}
    numbers = [0] * len(tracks)
    for own in (True, False):
        for at, track in enumerate(tracks):
            named = re.fullmatch(r"(?:GPU \d+ )?(?:thread|stream) ([0-9]{1,18})", track.lane) if track.level == 0 else None
            wanted = int(named[1]) if named else 0
            if own and wanted > 0 and wanted not in taken[track.gpu]:
                numbers[at] = wanted
            elif not own and not numbers[at]:
                numbers[at] = next(number for number in count(1) if number not in taken[track.gpu])
            taken[track.gpu].add(numbers[at])
    return numbers


def time_before_zero_ns(trace: Trace) -> int:
    """Return how long before the trace's zero it begins, in ns. Writers add that to all times: Perfetto drops spans that begin before 0."""
    moments = (trace.spans.start_ns, trace.counters.time_ns, trace.markers.time_ns)
    return max(0, *(-int(times_ns.min(initial=0)) for times_ns in moments), *(-(note.start_ns or 0) for note in trace.user_notes))


def levels_of(notes: Iterable[Note]) -> list[tuple[int, Note]]:
    """Return the notes that are on times, in their order, each with the level of notes on which it keeps apart from the others."""
    timed = sorted((note for note in notes if note.start_ns is not None), key=lambda note: (note.start_ns, -(note.end_ns or 0)))
    starts, ends = ([getattr(note, name) for note in timed] for name in ("start_ns", "end_ns"))
    return list(zip(placed(starts, ends, repeat(True)), timed, strict=True))


def launched_by(spans: SpanTable) -> tuple[IntArray, IntArray]:
    """Return rows of launch calls, and of their work on the device, in the order of calls and then of starts."""
    work = np.flatnonzero(spans.is_kind(DEVICE_KINDS))
    calls = call_rows(spans, work)
    call, device = calls[calls >= 0], work[calls >= 0]
    order = np.lexsort((device, call))
    return call[order], device[order]
