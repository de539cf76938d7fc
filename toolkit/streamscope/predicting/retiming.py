"""A predicted run with kernels that take longer or shorter, in the order and with the neighbours that it has without that.

Were it simulated anew, a kernel that ends earlier could let another one start beside a third, which is then slower, or be put on the
device in front of it. A whole run might get longer by faster kernels. Here whatever begins does so as long after what it waits for as
before. So it never begins later where something takes less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from streamscope.arrays import IntArray
from streamscope.predicting.tasks import Task
from streamscope.trace.joins import call_rows, correlated
from streamscope.trace.spans import DEVICE_KINDS, HOST_KINDS, SpanKind, SpanTable


def retimed(spans: SpanTable, position_of: Mapping[int, int], tasks: Sequence[Task]) -> SpanTable:
    """Return a simulated run in which tasks take their factors as long, and those with a factor of 0 are left out.

    ``position_of`` says of rows on the device which task they are.
    """
    run = _Run(spans, position_of, tasks)
    for row, is_end in _moments(spans):
        run.end(row) if is_end else run.start(row)
    start_ns, end_ns = np.array(run.start_ns, np.int64), np.array(run.end_ns, np.int64)
    graphs = np.flatnonzero(spans.kind == SpanKind.GRAPH)
    left = np.array([row not in position_of or tasks[position_of[row]].factor > 0 for row in range(len(spans))], bool)
    start_ns[graphs], end_ns[graphs] = _extent(spans, start_ns, end_ns, left)
    order = np.lexsort((end_ns, start_ns))
    order = order[left[order]]
    return replace(spans.select(order), start_ns=start_ns[order], end_ns=end_ns[order])


def _extent(spans: SpanTable, start_ns: IntArray, end_ns: IntArray, left: npt.NDArray[np.bool_]) -> tuple[IntArray, IntArray]:
    """Return when the replays of graphs begin and end: with their nodes."""
    graphs, nodes = np.flatnonzero(spans.kind == SpanKind.GRAPH), np.flatnonzero(spans.is_kind(DEVICE_KINDS) & left)
    replay = correlated(spans, nodes, graphs)
    nodes, replay = nodes[replay >= 0], replay[replay >= 0]
    first_ns, last_ns = end_ns.copy(), start_ns.copy()  # Of a replay without nodes, nothing.
    first_ns[graphs], last_ns[graphs] = np.iinfo(np.int64).max, 0
    np.minimum.at(first_ns, replay, start_ns[nodes])
    np.maximum.at(last_ns, replay, end_ns[nodes])
    return np.minimum(first_ns, last_ns)[graphs], last_ns[graphs]


def _moments(spans: SpanTable) -> list[tuple[int, bool]]:
    """Return starts of spans, and ends of the host's waits, in the order in which they came, those of causes in front."""
    waits = spans.kind == SpanKind.SYNC
    rows = np.concatenate([np.arange(len(spans)), np.flatnonzero(waits)])
    is_end = np.arange(len(rows)) >= len(spans)
    when_ns = np.where(is_end, spans.end_ns[rows], spans.start_ns[rows])
    # At one time: work on the device, then the wait that notices its end, then the host's next call.
    rank = np.where(is_end, 1, np.where(spans.is_kind(HOST_KINDS)[rows], 2, 0))
    order = np.lexsort((rows, rank, when_ns))
    return list(zip(rows[order].tolist(), is_end[order].tolist(), strict=True))


class _Run:
    """Old and new times of spans; ``start`` and ``end`` are called in the order of the old ones."""

    def __init__(self, spans: SpanTable, position_of: Mapping[int, int], tasks: Sequence[Task]) -> None:
        device = np.flatnonzero(spans.is_kind(DEVICE_KINDS))
        self._old_start_ns, self._old_end_ns = spans.start_ns.tolist(), spans.end_ns.tolist()
        self.start_ns, self.end_ns = list(self._old_start_ns), list(self._old_end_ns)
        self._lane, self._waits = spans.lane.tolist(), (spans.kind == SpanKind.SYNC).tolist()
        self._on_device, self._on_host = spans.is_kind(DEVICE_KINDS).tolist(), spans.is_kind(HOST_KINDS).tolist()
        self._call: Mapping[int, int] = dict(zip(device.tolist(), call_rows(spans, device).tolist(), strict=True))
        self._position_of, self._tasks = position_of, tasks
        self._row_of: dict[int, int] = {}  # The last row of a task up to now.
        self._last_on: dict[int, int] = {}  # The last row on a lane.
        self._by_end: IntArray = device[np.argsort(spans.end_ns[device], kind="stable")]
        self._noticed = 0
        self._old_done_ns, self._done_ns = [], []  # type: tuple[list[int], list[int]]

    def start(self, row: int) -> None:
        """Let a span begin as long after its predecessors as before."""
        if self._on_device[row]:
            position = self._position_of[row]
            task = self._tasks[position]
            earlier = [self._row_of[one] for one in task.after if one in self._row_of]
            self._begin(row, [*earlier, *self._before_on_lane(row)], self._call[row])
            length_ns = round((self._old_end_ns[row] - self._old_start_ns[row]) * task.factor)
            self._row_of[position] = row
            if not task.factor:  # What comes after it comes after what it came after.
                self.start_ns[row] = max((self.end_ns[one] for one in (*earlier, *self._before_on_lane(row))), default=0)
        elif self._on_host[row]:
            self._begin(row, self._before_on_lane(row), -1)
            length_ns = self._old_end_ns[row] - self._old_start_ns[row]
        else:
            return
        self.end_ns[row] = self.start_ns[row] + length_ns
        self._last_on[self._lane[row]] = row

    def end(self, row: int) -> None:
        """Let a wait of the host end as long after the last work before it as before."""
        while self._noticed < len(self._by_end) and self._old_end_ns[self._by_end[self._noticed]] <= self._old_end_ns[row]:
            ended = int(self._by_end[self._noticed])
            self._old_done_ns.append(self._old_end_ns[ended])
            self._done_ns.append(max(self.end_ns[ended], self._done_ns[-1] if self._done_ns else 0))
            self._noticed += 1
        if not self._done_ns:
            return
        returned_ns = self._old_end_ns[row] - max(self._old_start_ns[row], self._old_done_ns[-1])
        self.end_ns[row] = max(self.start_ns[row], self._done_ns[-1]) + returned_ns

    def _before_on_lane(self, row: int) -> list[int]:
        return [self._last_on[self._lane[row]]] if self._lane[row] in self._last_on else []

    def _begin(self, row: int, earlier: Sequence[int], call: int) -> None:
        """Begin after the ends of earlier spans and the start of the call."""
        old_ns, new_ns = [0], [0]
        for one in earlier:
            if self._old_end_ns[one] <= self._old_start_ns[row]:
                old_ns.append(self._old_end_ns[one])
                new_ns.append(self.end_ns[one])
        if call >= 0:
            old_ns.append(self._old_start_ns[call])
            new_ns.append(self.start_ns[call])
        self.start_ns[row] = max(new_ns) + self._old_start_ns[row] - max(old_ns)
