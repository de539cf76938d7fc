"""Event waits that files do not tell, inferred from all steps and ranks of a job at once.

One step shows many orders that are chance: a kernel ended before another one began, so it may have been awaited. The next step, or another
rank, often shows the two the other way round. So a wait is taken to be there where the same place in the program agrees each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from streamscope.analysis.critical_path import predecessors
from streamscope.arrays import BoolArray, IntArray
from streamscope.predicting.tasks import launch_order
from streamscope.ranks.critical_path import last_ended
from streamscope.trace.joins import distinct, looked_up
from streamscope.trace.trace import Trace

Hashes = npt.NDArray[np.uint64]
_AROUND = 6
"""So many launches before and after one tell where in the program it stands."""


def inferred_waits(traces: Sequence[Trace]) -> list[tuple[IntArray, IntArray]]:
    """Return the waits between streams of the ranks of a job, as rows of each trace: awaited work, and work that waits for it.

    A collective waits for the work that was launched last before it on each other stream, as frameworks have it; in a CUDA graph, whose
    file does not tell the order of its nodes, for the last one that has ended before it in each replay. Other work waits where it begins
    within 20 µs after the end of work of another stream and nothing else explains its start, most times that this can be seen. No wait is
    there that is violated once, on any rank, in the same place of the program.
    """
    numbers: dict[object, int] = {}
    ranks = [_Launches.of(trace, numbers) for trace in traces]
    seen = _Waits.joined([each for rank in ranks for each in (rank.before_collectives(), rank.right_behind())])
    waits, times = seen.counted()
    puzzles, often = np.unique(np.concatenate([waits.place[:0], *(rank.place[rank.unexplained] for rank in ranks)]), return_counts=True)
    unexplained = looked_up(puzzles, often, waits.place, 0)
    waits = waits.chosen(waits.always | (2 * times > unexplained))
    pairs = [rank.pairs(waits) for rank in ranks]
    violated = np.zeros(len(waits.place), bool)
    for rank, (number, earlier, later) in zip(ranks, pairs, strict=True):
        violated[number[rank.end_ns[earlier] > rank.start_ns[later]]] = True
    return [
        (rank.rows[earlier[~violated[number]]], rank.rows[later[~violated[number]]])
        for rank, (number, earlier, later) in zip(ranks, pairs, strict=True)
    ]


@dataclass(frozen=True)
class _Waits:
    """Waits of places in the program, as equally long columns.

    Attributes
    ----------
    place, on : uint64 arrays
        The place that waits, and that which it waits for: within a graph, a place; else a stream and how many were launched on it since.
    stream, since : int64 arrays
        The awaited stream, and how many were launched on it between the two; ``since`` is -1 within a graph.
    always : bool array
        Whether it holds by what frameworks do: of collectives. Else it has to be seen.
    """

    place: Hashes
    on: Hashes
    stream: IntArray
    since: IntArray
    always: BoolArray

    @classmethod
    def joined(cls, several: Sequence[_Waits]) -> _Waits:
        """Return all of them."""
        columns = zip(*((each.place, each.on, each.stream, each.since, each.always) for each in several), strict=True)
        return cls(*(np.concatenate(each) for each in columns)) if several else cls(*(np.zeros(0, kind) for kind in "QQqq?"))

    def chosen(self, which: BoolArray | IntArray) -> _Waits:
        """Return some of them."""
        return _Waits(self.place[which], self.on[which], self.stream[which], self.since[which], self.always[which])

    def counted(self) -> tuple[_Waits, IntArray]:
        """Return each wait once, and how often it is there."""
        _, first, times = np.unique(_mixed(self.place, self.on), return_index=True, return_counts=True)
        found = self.chosen(first)
        order = np.argsort(found.place, kind="stable")
        return found.chosen(order), times[order]


@dataclass(frozen=True)
class _Launches:
    """Work of one rank in the order of its launches; that of one graph launch stream by stream, in the order of its starts.

    Attributes
    ----------
    rows : int64 array
        Rows of the trace.
    stream, launch : int64 arrays
        Number of the stream, and of the launch, which grows.
    start_ns, end_ns : int64 arrays
    in_graph, collective, unexplained : bool arrays
        Whether its launch has several nodes, whether it is a part of a collective, and whether its start is explained by nothing but other
        streams.
    behind : int64 array
        Which of them ended last before it began, where it is unexplained; -1 where that is longer ago than 20 µs.
    place : uint64 array
        A number for where in the program it stands: the same on all ranks and in all steps. Nodes of a graph are told apart by stream,
        name and how many of this name come before; other work by the names that were launched around it.
    """

    rows: IntArray
    stream: IntArray
    launch: IntArray
    start_ns: IntArray
    end_ns: IntArray
    in_graph: BoolArray
    collective: BoolArray
    unexplained: BoolArray
    behind: IntArray
    place: Hashes

    @classmethod
    def of(cls, trace: Trace, numbers: dict[object, int]) -> _Launches:
        """Take them from a trace; ``numbers`` has a number for each name, the same on all ranks."""
        spans = trace.spans
        rows, calls = launch_order(spans)
        stream = distinct(spans.stream_lanes[spans.lane[rows]])[1]
        called_ns = np.where(calls >= 0, spans.start_ns[calls], spans.start_ns[rows])
        order = np.lexsort((spans.start_ns[rows], np.where(calls >= 0, stream, 0), calls, called_ns))
        rows, calls, stream = rows[order], calls[order], stream[order]
        launch = np.cumsum((np.diff(calls, prepend=-2) != 0) | (calls < 0)) - 1
        in_graph = np.bincount(launch, minlength=1)[launch] > 1
        collective = np.isin(rows, trace.collectives.span)
        name = np.array([numbers.setdefault(text, len(numbers)) for text in spans.names], np.int64)[spans.name[rows]]
        at = np.full(len(spans) + 1, -1)
        at[rows] = np.arange(len(rows))
        _, kept, before = found = predecessors(trace)
        puzzled, ended, right_behind = last_ended(found[0], before)
        behind, unexplained = np.full(len(rows), -1), np.zeros(len(rows), bool)
        unexplained[at[kept[puzzled]]] = True
        behind[at[kept[puzzled[right_behind]]]] = at[kept[ended[right_behind]]]
        token = _mixed(stream, name)
        place = np.where(in_graph, _node_places(launch, token, collective), _around(token))
        return cls(rows, stream, launch, spans.start_ns[rows], spans.end_ns[rows], in_graph, collective, unexplained, behind, place)

    @cached_property
    def on_stream(self) -> list[IntArray]:
        """Positions on each stream."""
        return [np.flatnonzero(self.stream == one) for one in range(int(self.stream.max(initial=-1)) + 1)]

    @cached_property
    def first(self) -> IntArray:
        """Position of the first work of the launch of each."""
        return np.searchsorted(self.launch, self.launch)

    def waits(self, later: IntArray, earlier: IntArray, *, always: bool) -> _Waits:
        """Name waits by their places."""
        within = self.launch[earlier] == self.launch[later]
        since = np.full(len(later), -1)
        stream = self.stream[earlier]
        for one, own in enumerate(self.on_stream):
            here = np.flatnonzero(~within & (stream == one))
            since[here] = np.searchsorted(own, self.first[later[here]]) - 1 - np.searchsorted(own, earlier[here])
        on = np.where(within, self.place[earlier], _mixed(stream, since))
        return _Waits(self.place[later], on, stream, since, np.full(len(later), always))

    def before_collectives(self) -> _Waits:
        """Return what collectives wait for: on each other stream the last launched before; of a graph, the last node that had ended."""
        later, earlier = list[IntArray](), list[IntArray]()
        for one, own in enumerate(self.on_stream):
            if self.collective[own].all():
                continue
            others = np.flatnonzero(self.collective & (self.stream != one))
            launched = np.searchsorted(own, self.first[others]) - 1
            # Stream by stream, ends grow. So nodes of one launch are looked up by their launch, then by their ends.
            key = self.launch[own] * self._span_ns + self.end_ns[own] - self._begin_ns
            ended = np.searchsorted(key, self.launch[others] * self._span_ns + self.start_ns[others] - self._begin_ns, side="right") - 1
            ended = np.where(self.launch[own[ended]] == self.launch[others], ended, -1)
            at = np.where(self.in_graph[others], ended, launched)
            later.append(others[at >= 0])
            earlier.append(own[at[at >= 0]])
        none = np.zeros(0, np.int64)
        return self.waits(np.concatenate([none, *later]), np.concatenate([none, *earlier]), always=True)

    @cached_property
    def _begin_ns(self) -> int:
        return int(self.start_ns.min(initial=0))

    @cached_property
    def _span_ns(self) -> int:
        return int(self.end_ns.max(initial=0)) - self._begin_ns + 1

    def right_behind(self) -> _Waits:
        """Return where other work begins right behind work of another stream that was launched before, or in the same graph."""
        later = np.flatnonzero((self.behind >= 0) & ~self.collective)
        earlier = self.behind[later]
        possible = (self.stream[earlier] != self.stream[later]) & ((earlier < later) | (self.launch[earlier] == self.launch[later]))
        return self.waits(later[possible], earlier[possible], always=False)

    def pairs(self, waits: _Waits) -> tuple[IntArray, IntArray, IntArray]:
        """Return where waits are in this rank's work: their numbers, and the positions of awaited and waiting work."""
        begin, end = (np.searchsorted(waits.place, self.place, side=side) for side in ("left", "right"))
        later = np.repeat(np.arange(len(self.place)), end - begin)
        number = np.arange(len(later)) - np.repeat(np.cumsum(end - begin) - (end - begin), end - begin) + begin[later]
        earlier = np.full(len(later), -1)
        for one, own in enumerate(self.on_stream):
            here = np.flatnonzero((waits.since[number] >= 0) & (waits.stream[number] == one))
            at = np.searchsorted(own, self.first[later[here]]) - 1 - waits.since[number[here]]
            earlier[here[at >= 0]] = own[at[at >= 0]]
        here = np.flatnonzero(waits.since[number] < 0)
        nodes = np.flatnonzero(self.in_graph)
        key = _mixed(self.launch[nodes], self.place[nodes])
        earlier[here] = looked_up(key, nodes, _mixed(self.launch[later[here]], waits.on[number[here]]), -1)
        known = (earlier >= 0) & (self.stream[earlier] != self.stream[later])
        return number[known], earlier[known], later[known]


def _mixed(*columns: npt.NDArray[np.generic]) -> Hashes:
    """Return a number for each row of whole numbers: hardly ever the same for two that differ."""
    found = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        found = (found ^ column.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        found ^= found >> np.uint64(29)
    return found


def _around(token: Hashes) -> Hashes:
    """Return a number for the tokens around each."""
    padded = np.pad(token, _AROUND)
    return _mixed(*(padded[shift : len(token) + shift] for shift in range(2 * _AROUND + 1)))


def _node_places(launch: IntArray, token: Hashes, collective: BoolArray) -> Hashes:
    """Return a number for each node of a graph: its token, how many alike come before it and are there, and which graph it is."""
    which, count = np.unique(_mixed(launch, token), return_inverse=True, return_counts=True)[1:]
    order = np.argsort(which, kind="stable")
    before = np.empty(len(launch), np.int64)
    before[order] = np.arange(len(launch)) - np.repeat(np.cumsum(count) - count, count)
    meetings = np.bincount(launch, collective, minlength=1).astype(np.int64)
    graph = np.where(meetings > 0, meetings, -np.bincount(launch, minlength=1))[launch] if len(launch) else launch
    return _mixed(token, before, count[which.reshape(-1)], graph)
