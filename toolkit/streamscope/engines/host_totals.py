"""Running totals of the host's time by operation, without a trace: count, total, least, most and mean of the calls that issue it.

The device is not asked: no event is recorded for this. So the times are those of the host alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.results.result import Result
from streamscope.words import aligned, counted, format_us, time_text

OPERATION, HOST_FUNCTION, GRAPH, WAIT, EVENT = "operation", "host function", "graph", "wait", "event"
"""Kinds of calls. Waits are the host's; events are their records, and waits of streams for them."""
MOST_NAMES = 10_000
"""Rows that are kept; calls of further names count as `OTHERS`. So names that are different each time do not fill the memory."""
OTHERS = "(other names)"
_MOST_STAMPS = 1 << 14
"""Times of calls that are kept before they are added up."""

Key = tuple[str, str]
"""Kind and name."""


@dataclass(frozen=True)
class HostTotal:
    """Host time of the calls of one name.

    Attributes
    ----------
    kind : str
        ``"operation"``, ``"host function"``, ``"graph"`` (a launch of a whole graph), ``"wait"`` (of the host) or ``"event"``.
    name : str
    count : int
    total_ns, min_ns, max_ns : int
        Of the host's clock.
    """

    kind: str
    name: str
    count: int
    total_ns: int
    min_ns: int
    max_ns: int

    @property
    def mean_ns(self) -> float:
        """Total over count."""
        return self.total_ns / self.count


@dataclass(frozen=True, eq=False)
class CallLayout:
    """The calls of one run: each belongs to a slot, which is one operation, and each slot has a name; None is not counted."""

    slots: tuple[int, ...]
    """Of each call, the number of its slot."""
    keys: tuple[Key | None, ...]
    """Of each slot."""

    def sums(self, stamps: Sequence[Sequence[int]]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Return the time of each slot in each run, in ns, and which slots came to their end.

        ``stamps``: of each run, its start and the end of each call; of a run that broke off, of the calls that returned.
        """
        took = np.diff(np.array(stamps, np.int64), axis=1)
        done = took.shape[1]
        slots = np.array(self.slots, np.int64)
        times = np.zeros((len(took), len(self.keys)), np.int64)
        np.add.at(times.T, slots[:done], took.T)
        whole = np.ones(len(self.keys), bool)
        whole[slots[done:]] = False
        return times, whole


class HostSums:
    """The sums behind `HostTotals`, which threads add to."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.counting = False
        self._rows: dict[Key, tuple[int, int, int, int]] = {}
        """Count, total, least and most: tuples, since one is made for each call, and a row is never half changed."""
        self._runs: dict[CallLayout, list[Sequence[int]]] = {}
        self._stamps = 0
        self._lock = Lock()

    def add(self, key: Key, took_ns: int) -> None:
        """Count one call."""
        with self._lock:
            self._put(key, 1, took_ns, took_ns, took_ns)

    def add_run(self, layout: CallLayout, stamps: Sequence[int]) -> None:
        """Count the calls of a run, one behind the other: the start of the first, and the end of each that returned."""
        with self._lock:
            if len(stamps) <= len(layout.slots):
                self._sum(layout, [stamps])
                return
            self._runs.setdefault(layout, []).append(stamps)
            self._stamps += len(stamps)
            if self._stamps >= _MOST_STAMPS:
                self._sum_all()

    def reset(self) -> None:
        """Forget all that was counted."""
        with self._lock:
            self._rows, self._runs, self._stamps = {}, {}, 0

    def rows(self) -> tuple[HostTotal, ...]:
        """Return the totals, the largest first."""
        with self._lock:
            self._sum_all()
            rows = [HostTotal(*key, *sums) for key, sums in self._rows.items()]
            return tuple(sorted(rows, key=lambda row: (-row.total_ns, row.kind, row.name)))

    def _sum_all(self) -> None:
        runs, self._runs, self._stamps = self._runs, {}, 0
        for layout, stamps in runs.items():
            self._sum(layout, stamps)

    def _sum(self, layout: CallLayout, stamps: Sequence[Sequence[int]]) -> None:
        times, whole = layout.sums(stamps)
        of_key: dict[Key, list[int]] = {}
        for slot, key in enumerate(layout.keys):
            if key is not None and whole[slot]:
                of_key.setdefault(key, []).append(slot)
        for key, slots in of_key.items():
            own = times[:, slots]
            self._put(key, own.size, int(own.sum()), int(own.min()), int(own.max()))

    def _put(self, key: Key, count: int, total_ns: int, min_ns: int, max_ns: int) -> None:
        before = self._rows.get(key)
        if before is None and len(self._rows) >= MOST_NAMES:
            key = (key[0], OTHERS)
            before = self._rows.get(key)
        if before is not None:
            count += before[0]
            total_ns += before[1]
            min_ns, max_ns = min(before[2], min_ns), max(before[3], max_ns)
        self._rows[key] = (count, total_ns, min_ns, max_ns)


class HostTotals(Result):
    """Running totals of the host's time by name, while they are on: ``engine.host_totals``, ``prepared.host_totals``.

    They are off until `start`. A call counts when it has returned; one that fails does not count. An operation of a prepared program has
    the time of all its launches. In the pushed engine it has the waits and the event around them as well, and a bulk has one row, named
    after its operations. Host functions have the time of the function; those that call back, until they return. On the simulated device,
    the times are what the simulation takes on this host.

    Examples
    --------
    >>> prepared = ss.prepare(lambda x: np.tanh(x * x + x), np.ones(4), engine="async", device="simulated", progress=False)
    >>> prepared.host_totals.start()
    >>> for _ in range(10):
    ...     prepared.run()
    >>> prepared.host_totals.pause()
    >>> sorted((row.name, row.count) for row in prepared.host_totals.rows)
    [('add', 10), ('multiply', 10), ('tanh', 10)]
    >>> prepared.host_totals.reset()
    >>> prepared.host_totals
    <host time of <lambda>, async: nothing counted, off>
    """

    view = "host-totals"

    def __init__(self, sums: HostSums, changed: Callable[[], object] | None = None) -> None:
        self._sums = sums
        self._changed = changed

    @property
    def title(self) -> str:
        """Whose they are."""
        return f"host time of {self._sums.title}"

    @property
    def counting(self) -> bool:
        """Whether they are on."""
        return self._sums.counting

    @property
    def rows(self) -> tuple[HostTotal, ...]:
        """One for each kind and name, the largest total first."""
        return self._sums.rows()

    def start(self) -> None:
        """Count from now on, or go on after `pause`."""
        self._switch(on=True)

    def pause(self) -> None:
        """Stop counting; the totals stay."""
        self._switch(on=False)

    def reset(self) -> None:
        """Forget the totals; if they are on, they stay on."""
        self._sums.reset()

    def to_dict(self) -> dict[str, Any]:
        """Return the rows as JSON values, the largest total first; times of the host in µs."""
        return {
            "of": self._sums.title,
            "counting": self.counting,
            "rows": [
                {
                    "kind": row.kind,
                    "name": row.name,
                    "count": row.count,
                    "host_total_us": row.total_ns / 1e3,
                    "host_min_us": row.min_ns / 1e3,
                    "host_max_us": row.max_ns / 1e3,
                    "host_mean_us": row.mean_ns / 1e3,
                }
                for row in self.rows
            ],
        }

    def cells(self) -> list[tuple[str, ...]]:
        """Return the rows as text: name, kind, count, and total, mean, least and most host time in µs."""
        return [
            (row.name, row.kind, f"{row.count:,}", *(format_us(ns / 1e3) for ns in (row.total_ns, row.mean_ns, row.min_ns, row.max_ns)))
            for row in self.rows
        ]

    @property
    def headline(self) -> str:
        """The sum in one sentence."""
        rows = self.rows
        if not rows:
            return "nothing counted" if self.counting else "nothing counted; host_totals.start() turns them on"
        calls, total_ns = sum(row.count for row in rows), sum(row.total_ns for row in rows)
        return f"{counted(calls, 'call')} in {time_text(total_ns)} of the host{'' if self.counting else ', paused'}"

    def __repr__(self) -> str:
        rows = self.rows
        said = counted(len(rows), "name") if rows else "nothing counted"
        return f"<{self.title}: {said}, {'on' if self.counting else 'off'}>"

    def __str__(self) -> str:
        head = f"{self.title}: {self.headline}"
        cells = self.cells()
        if not cells:
            return head
        named = [(f"{name} ({kind})" if kind != OPERATION else name, *numbers) for name, kind, *numbers in cells]
        heads = ("name", "count", "host total µs", "host mean µs", "host min µs", "host max µs")
        return "\n".join([head, *aligned([heads, *named], numbers=True)])

    def _switch(self, *, on: bool) -> None:
        self._sums.counting = on
        if self._changed is not None:
            self._changed()
