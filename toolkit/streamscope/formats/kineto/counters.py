"""Counters and instants of Chrome's JSON: ``"ph": "C"``, ``"i"`` and ``"I"``.

A counter has a value for each of its parts, by their names: ``"args": {"used": 3, "free": 5}``. Each part is a series. Kineto's marks of
memory, whose names begin with a bracket, are no markers, nor are those of the profiler itself.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from streamscope.errors import printable
from streamscope.formats.kineto.events import COUNTER
from streamscope.formats.kineto.values import times_ns
from streamscope.formats.kineto.writer import VALUE
from streamscope.trace.activities import named_place
from streamscope.trace.counters import LONGEST_COUNTER, MOST_NOTES, Counters, Markers, Noted, Series

_INSTANTS = ("i", "I")
_OF_THE_PROFILER = ("Record Window End", "Iteration Start:")
"""How names of marks of the profiler itself begin."""
_MOST_SERIES = 10_000
_MOST_VALUES, _MOST_MARKERS = 50 * Counters.MOST, 10 * Markers.MOST
"""Kept until the end of a file."""
_Key = tuple[str, str, str]
"""Name of a counter, of its part, and its process."""


class CountersAndMarkers:
    """Collects counters and instants of a file, piece by piece."""

    def __init__(self) -> None:
        self.lost = Counter[str]()
        """Values and markers that cannot be kept, by what they are."""
        self._codes: dict[_Key, int] = {}
        self._values: list[tuple[list[int], Any, list[float]]] = []
        self._markers: list[tuple[int, str, str]] = []
        self._notes: list[tuple[int, int, str, str]] = []
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._values or self._markers or self._notes)

    def add(self, phase: str, events: Sequence[Any]) -> Sequence[Any]:
        """Keep the counters and markers among the events of one phase, and return those that are neither."""
        if phase == COUNTER:
            self._add_counters(events)
            return ()
        if phase not in _INSTANTS:
            return events
        self._add_markers([event for event in events if not event.name.startswith(("[", *_OF_THE_PROFILER))])
        return [event for event in events if event.name.startswith("[")]

    def _add_counters(self, events: Sequence[Any]) -> None:
        codes, times, values = list[int](), list[Any](), list[float]()
        for event in events:
            parts = event.args if isinstance(event.args, Mapping) else {}
            if event.ts is None or not parts:
                self.lost['that are counters ("ph": "C") without a time or a value'] += 1
                continue
            for part, value in parts.items():
                if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
                    self.lost['that are counters ("ph": "C") whose value is not a number'] += 1
                    continue
                key = event.name, part, "" if event.pid is None else str(event.pid)
                if (key not in self._codes and len(self._codes) >= _MOST_SERIES) or self._count >= _MOST_VALUES:
                    self.lost[f'that are counters ("ph": "C"), beyond {_MOST_SERIES:,} names or {_MOST_VALUES:,} values'] += 1
                    continue
                self._count += 1
                codes.append(self._codes.setdefault(key, len(self._codes)))
                times.append(event.ts)
                values.append(float(value))
        if codes:
            self._values.append((codes, times_ns(times), values))

    def _add_markers(self, events: Sequence[Any]) -> None:
        timed = [event for event in events if event.ts is not None and event.name]
        if len(timed) < len(events):
            self.lost["that are instants without a time or a name"] += len(events) - len(timed)
        room = _MOST_MARKERS - len(self._markers)
        if len(timed) > room:
            self.lost[f"that are instants, beyond the first {_MOST_MARKERS:,}"] += len(timed) - room
        for event, time_ns in zip(timed[:room], times_ns([event.ts for event in timed[:room]]).tolist(), strict=True):
            thread = "" if event.tid is None else named_place("thread", printable(str(event.tid))[:200])
            self._markers.append((time_ns, _shown(event.name), thread))

    def add_notes(self, events: Sequence[Any]) -> None:
        """Keep notes of the user, as a file of ours has them."""
        timed = [event for event in events[: MOST_NOTES - len(self._notes)] if event.ts is not None and event.dur is not None]
        start_ns = times_ns([event.ts for event in timed])
        end_ns = start_ns + times_ns([event.dur for event in timed])
        for event, start, end in zip(timed, start_ns.tolist(), end_ns.tolist(), strict=True):
            self._notes.append((start, end, event.name, (event.args and event.args.lane) or ""))
        if len(timed) < len(events):
            self.lost[f"that are notes without a time, or beyond {MOST_NOTES:,}"] += len(events) - len(timed)

    def noted(self, gpu_of: Mapping[str, int], *, ours: bool) -> Noted:
        """Return all of them, on the clock of the file.

        ``gpu_of``: GPU of each process that stands for one.
        ``ours``: whether the file is ours, where the name of a part is the unit.
        """
        found, alone = Noted(), Counter((name, pid) for name, _, pid in self._codes)
        processes = {pid for _, _, pid in self._codes if pid not in gpu_of}
        numbers = []
        for name, part, pid in self._codes:
            gpu = gpu_of.get(pid, -1)
            process = _shown(pid) if gpu < 0 and len(processes) > 1 and pid else ""
            unit = part if ours and part != VALUE else ""
            whole = ours or (alone[name, pid] == 1 and part.lower() in ("", VALUE, name.lower()))
            label = _shown(name) if whole else _shown(f"{name} {part}" if name else part)
            numbers.append(found.number(Series(label or "?", _shown(unit), process, gpu)))
        for codes, times, values in self._values:
            found.add_values([numbers[code] for code in codes], times, values)
        found.add_markers(self._markers)
        found.add_notes(self._notes)
        return found


def _shown(text: str) -> str:
    return printable(text)[:LONGEST_COUNTER]
