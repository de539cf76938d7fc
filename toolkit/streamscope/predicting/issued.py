"""Tasks of foreign code as it was issued: its recorded run, to the nanosecond.

A prediction under the trace's own engine has to come out as the recording, if nothing is changed. So each call of the host begins when it
did, each kernel has its launch latency and waits as long as it did after what it comes after, and its time is that beside its neighbours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from streamscope.analysis.idle import KERNEL_WAIT_BELOW_NS
from streamscope.analysis.launches import launch_overhead_ns, shortest_launch_ns
from streamscope.analysis.overlap import run_of
from streamscope.arrays import IntArray
from streamscope.devices.cost_model import CostModel
from streamscope.predicting.tasks import (
    Task,
    breaks_of,
    launch_order,
    newest,
    orders_of,
    pieces_of,
    task_traits,
    usual_launch_ns,
)
from streamscope.trace.joins import blocking_copies, call_rows
from streamscope.trace.origins import Trait
from streamscope.trace.spans import DEVICE_KINDS, SpanKind, SpanTable
from streamscope.trace.trace import Trace

_LONGEST_GAP_NS = 1_000
"""The device's own delay between two kernels of a stream is no longer, whatever the gaps of a trace are: they may wait for the host."""
_NOTHING = 1e-6
"""Costs of a model are above 0."""


@dataclass(frozen=True)
class Calls:
    """Kernels, copies and sets in the order of their launches, with the host's time of each, in ns from the start of the run.

    Attributes
    ----------
    rows, calls : integer arrays
        Rows of the trace; -1 where a call is unknown.
    begin_ns, end_ns : int64 arrays
        On the device.
    called_ns, back_ns : int64 arrays
        When the call began, and when the host went on; of an unknown call, the start on the device.
    breaks : dict
        Where the host waited: the first task launched after that.
    """

    rows: IntArray
    calls: IntArray
    begin_ns: IntArray
    end_ns: IntArray
    called_ns: IntArray
    back_ns: IntArray
    breaks: dict[int, float]

    @classmethod
    def of(cls, spans: SpanTable) -> Calls:
        """Read them from a trace's spans."""
        rows, calls = launch_order(spans)
        blocking = blocking_copies(spans, rows, calls)
        known, zero_ns = calls >= 0, run_start_ns(spans)
        begin_ns, end_ns = spans.start_ns[rows] - zero_ns, spans.end_ns[rows] - zero_ns
        called_ns = np.where(known, spans.start_ns[calls] - zero_ns, begin_ns)
        back_ns = np.where(known, spans.end_ns[calls] - zero_ns, begin_ns)
        usual_ns = usual_launch_ns(spans, calls, blocking)
        at_once_ns = called_ns + int(usual_ns) if math.isfinite(usual_ns) else called_ns
        back_ns = np.where(blocking, np.minimum(back_ns, at_once_ns), back_ns)
        # Threads that call at a time are one host here: it goes on when the next call begins.
        back_ns[:-1] = np.minimum(back_ns[:-1], called_ns[1:])
        return cls(rows, calls, begin_ns, end_ns, called_ns, back_ns, breaks_of(spans, rows, calls, blocking))


def run_start_ns(spans: SpanTable) -> int:
    """Return when a run begins: with its first call, or on the device where no call is known."""
    return int(run_of(spans).start_ns.min(initial=np.iinfo(np.int64).max)) if len(spans) else 0


def recorded_ns(trace: Trace) -> int:
    """Return the length of a recorded run, until the host noticed the end of its last work; later waits are no part of it.

    A profiler that stops waits for the device once more. Without a wait of the host, the run ends with its last call or work.
    """
    spans = trace.spans
    device, calls = spans.end_ns[spans.is_kind(DEVICE_KINDS)], spans.end_ns[spans.is_kind([SpanKind.LAUNCH, SpanKind.GRAPH_LAUNCH])]
    last_ns = int(device.max(initial=0))
    waits_ns = spans.end_ns[spans.kind == SpanKind.SYNC]
    noticed_ns = waits_ns[waits_ns >= last_ns]
    end_ns = int(noticed_ns.min()) if len(noticed_ns) else max(last_ns, int(calls.max(initial=last_ns)))
    return end_ns - run_start_ns(spans)


def last_wait_ns(trace: Trace) -> int:
    """Return how long the host took to notice the end, in ns."""
    calls = Calls.of(trace.spans)
    return max(0, recorded_ns(trace) - max(int(calls.end_ns.max(initial=0)), int(calls.back_ns.max(initial=0))))


def own_gap_ns(spans: SpanTable) -> int:
    """Return the device's own delay between two kernels of a stream: the shortest of the trace, at most `_LONGEST_GAP_NS`.

    No launch takes less than that. Streams begin as if there were one more kernel on them that ended with the start of the run: of several,
    each begins behind an event.
    """
    device = np.flatnonzero(spans.is_kind(DEVICE_KINDS))
    device = device[np.argsort(spans.stream_lanes[spans.lane[device]], kind="stable")]
    opens = np.diff(spans.stream_lanes[spans.lane[device]], prepend=-1) != 0
    before_ns = np.where(opens, run_start_ns(spans), np.append(0, spans.end_ns[device[:-1]])[: len(device)])
    gaps_ns = spans.start_ns[device] - before_ns
    calls = call_rows(spans, device)
    latency_ns = (spans.start_ns[device] - spans.start_ns[calls])[calls >= 0]
    delays_ns = np.concatenate([gaps_ns[~opens] if _one_stream(spans) else gaps_ns, latency_ns])
    return int(delays_ns[delays_ns >= 0].min(initial=_LONGEST_GAP_NS))


def _one_stream(spans: SpanTable) -> bool:
    """Tell whether all is issued on one stream. Copies have streams of their own."""
    device = spans.is_kind(DEVICE_KINDS)
    return len(np.unique(spans.stream_lanes[spans.lane[device]])) < 2 and not (spans.kind == SpanKind.COPY).any()


def as_issued(model: CostModel, spans: SpanTable) -> CostModel:
    """Return a cost model in which all times of the host and between kernels are those of the tasks."""
    gap_ns = max(own_gap_ns(spans), _NOTHING)
    return replace(
        model,
        launch_latency_ns=_NOTHING,
        synchronize_return_ns=_NOTHING,
        event_record_ns=_NOTHING,
        stream_wait_ns=_NOTHING,
        event_create_ns=_NOTHING,
        kernel_gap_ns=gap_ns,
        event_pair_gated_excess_ns=model.event_pair_empty_ns + gap_ns + _NOTHING,  # Events are recorded with the end of what they follow.
        bus_both_share=1.0,
        queue_depth=1 << 40,
    )


def issued_tasks(trace: Trace, *, waits: bool = True) -> list[Task]:
    """Return the tasks of a trace as they were issued; without ``waits``, long waits that the trace does not explain are left out."""
    spans, calls = trace.spans, Calls.of(trace.spans)
    gap_ns = own_gap_ns(spans)
    before, traits = _awaited(trace, calls, gap_ns)
    latency_ns = max(gap_ns, shortest_launch_ns(launch_overhead_ns(spans)))
    begin_ns, end_ns, called_ns, back_ns, known = (
        column.tolist() for column in (calls.begin_ns, calls.end_ns, calls.called_ns, calls.back_ns, calls.calls >= 0)
    )
    alone = _one_stream(spans)
    tasks: list[Task] = []
    number: dict[int, int] = {}
    ended_ns: dict[int, int] = {}  # By the number of the task.
    host_ns = 0
    names = (spans.names[code] for code in spans.name[calls.rows].tolist())
    for index, (row, name, piece) in enumerate(zip(calls.rows.tolist(), names, pieces_of(spans, calls.rows), strict=True)):
        if index in calls.breaks:
            noticed = tuple(one for one in newest(tasks) if ended_ns.get(one, 0) <= called_ns[index])
            free_ns = max([host_ns, *(ended_ns.get(one, 0) for one in noticed)])
            tasks.append(Task((-1, 0), "host", Trait.HOST | Trait.CAPTURED, noticed, call_ns=float(max(0, called_ns[index] - free_ns))))
            host_ns = max(free_ns, called_ns[index])
        after_ns = host_ns
        if known[index]:
            after_ns = max(host_ns, back_ns[index])
        # What has no call is there when its stream can begin.
        there_ns = called_ns[index] + latency_ns if known[index] else host_ns + (0 if alone else gap_ns)
        arrived_ns = min(there_ns, begin_ns[index])
        awaited_ns = max((end_ns[earlier] + gap_ns for earlier in before[index]), default=0)
        waits_ns = begin_ns[index] - max(arrived_ns, awaited_ns)
        kept_ns = waits_ns if waits or not known[index] or waits_ns < KERNEL_WAIT_BELOW_NS else 0
        if known[index] and arrived_ns >= awaited_ns and waits_ns < KERNEL_WAIT_BELOW_NS:
            arrived_ns, kept_ns = begin_ns[index], 0  # A launch that took longer than others: it is no wait once it is there.
        number[index] = len(tasks)
        ended_ns[number[index]] = end_ns[index]
        tasks.append(
            Task(
                (-1, 0), name, traits[index], tuple(sorted(number[earlier] for earlier in before[index])), (row,), (piece,),
                call_ns=float(after_ns - host_ns), gap_ns=float(max(0, kept_ns)), tail_ns=float(after_ns - arrived_ns),
            )
        )  # fmt: skip
        host_ns = after_ns
    return tasks


def _awaited(trace: Trace, calls: Calls, gap_ns: int) -> tuple[list[set[int]], list[Trait]]:
    """Return each task's true predecessors (work that had ended a kernel's gap before it began), and its traits.

    Programmatic launches begin before the end of what is before them on their stream. They come after what that one came after. A copy
    that began before another one of its direction had ended did not wait for the bus, and is none on it here.
    """
    begin_ns, end_ns = calls.begin_ns.tolist(), calls.end_ns.tolist()
    traits = task_traits(trace.spans, calls.rows)
    before: list[set[int]] = []
    on_bus: dict[Trait, int] = {}
    for index, earlier in enumerate(orders_of(trace, calls.rows)):
        wanted = set(earlier)
        if traits[index] is not Trait.CAPTURED:
            last = on_bus.get(traits[index])
            if last is not None and end_ns[last] + gap_ns > begin_ns[index]:
                traits[index] = Trait.CAPTURED
            else:
                wanted |= set() if last is None else {last}
                on_bus[traits[index]] = index
        found: set[int] = set()
        while wanted:
            one = wanted.pop()
            if end_ns[one] + gap_ns <= begin_ns[index]:
                found.add(one)
            else:
                wanted |= before[one] - found
        before.append(found)
    return before, traits
