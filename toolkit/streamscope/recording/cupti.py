"""The CUPTI recorder: the device's own record of every kernel and copy; the reference that the event recorder is measured against.

It needs the package ``cupti-python``, the permission to profile, and that no other profiler holds CUPTI. It costs about 1.5 µs a launch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from streamscope.devices.cuda import CudaDevice
from streamscope.devices.cuda.streams import CudaStream
from streamscope.engines.binding import Bound, capturing
from streamscope.engines.plan import Issue, Replay
from streamscope.engines.prepared import Prepared
from streamscope.errors import RecordingError
from streamscope.interrupts import deferred
from streamscope.kernels.library.libraries import libraries
from streamscope.recording.events import add_device_span, add_host_span, device_lanes
from streamscope.recording.origins import origins_of
from streamscope.recording.passes import steps_of, timed_run
from streamscope.trace.spans import Basis, SpanBuilder, SpanKind
from streamscope.trace.trace import Trace, TraceInfo

CLOCK_SAMPLES = 50
_BUFFER_BYTES = 8 << 20


@dataclass(frozen=True)
class ActivityRecord:
    """One kernel, copy or set on the device, on CUPTI's clock.

    ``order`` is what puts the records of one run into the order of the launches: the correlation id of the call, and within a graph the
    id of the node, which counts up in the order of capture.
    """

    start_ns: int
    end_ns: int
    order: tuple[int, int]


@dataclass
class _Activities:
    """The process's one subscription to CUPTI's activity records."""

    cupti: Any
    records: list[ActivityRecord] = field(default_factory=list)

    def completed(self, activities: Sequence[Any]) -> None:
        for activity in activities:
            node = getattr(activity, "graph_node_id", 0)
            self.records.append(ActivityRecord(activity.start, activity.end, (activity.correlation_id, node)))

    @contextmanager
    def enabled(self) -> Iterator[list[ActivityRecord]]:
        """Collect records of what runs in the block; the list is complete when the block has ended."""
        kinds = self.cupti.ActivityKind
        chosen = (kinds.CONCURRENT_KERNEL, kinds.MEMCPY, kinds.MEMSET)
        self.records.clear()
        try:
            for kind in chosen:
                self.cupti.activity_enable(kind)
            yield self.records
        except self.cupti.cuptiError as error:
            raise RecordingError(f"CUPTI cannot record: {error}", hint="run as root, or allow profiling; see streamscope doctor") from error
        finally:
            with deferred():
                libraries().runtime.deviceSynchronize()
                self.cupti.activity_flush_all(1)
                for kind in chosen:
                    self.cupti.activity_disable(kind)


@cache
def _activities() -> _Activities:
    try:
        from cupti import cupti
    except ImportError as error:
        raise RecordingError(f"CUPTI cannot be loaded: {error}", hint="pip install cupti-python") from None
    activities = _Activities(cupti)
    try:
        cupti.activity_register_callbacks(lambda: (_BUFFER_BYTES, 0), activities.completed)
    except Exception as error:
        raise RecordingError(f"CUPTI refused: {error}", hint="another profiler may hold it, or profiling is not permitted") from error
    return activities


@dataclass(frozen=True)
class CuptiRecorder:
    """Records runs of prepared programs by CUPTI.

    Attributes
    ----------
    device : CudaDevice
    """

    device: CudaDevice

    def record(self, prepared: Prepared, runs: int = 1) -> list[Trace]:
        """Record several runs of a prepared program that has run twice, so that its graphs exist.

        Raises
        ------
        RecordingError
            CUPTI is missing or not permitted, or the records do not match the launches.
        """
        nodes = {id(bound): self._nodes(bound) for bound in _issues(steps_of(prepared))}
        activities = _activities()
        with activities.enabled():
            timed_run(prepared)
        return [self._one(prepared, activities, nodes) for _ in range(runs)]

    def _one(self, prepared: Prepared, activities: _Activities, nodes: dict[int, int]) -> Trace:
        with activities.enabled() as records:
            offset = self._clock_offset_ns(activities.cupti)
            host = timed_run(prepared)
        zero = host[0].start_ns
        builder = SpanBuilder(["host", *device_lanes(prepared)])
        for index, interval in enumerate(host):
            add_host_span(builder, interval, index, zero)
        ordered = iter(sorted(records, key=lambda record: record.order))
        ended: dict[str, float] = {}
        early = 0
        for index, bound in enumerate(steps_of(prepared)):
            extents = []
            for issue in _issues([bound]):
                if not nodes[id(issue)]:
                    continue  # An empty array launches nothing.
                taken = [record for _, record in zip(range(nodes[id(issue)]), ordered, strict=False)]
                if len(taken) < nodes[id(issue)] or not isinstance(issue.step, Issue):
                    raise RecordingError(f"CUPTI has {len(records)} records, but {sum(nodes.values())} were launched", hint="try again")
                start = min(record.start_ns for record in taken) + offset - zero
                end = max(record.end_ns for record in taken) + offset - zero
                extents.append((start, end))
                lane = prepared.plan.lanes[issue.step.lane]
                # A kernel may be allowed to start before the one ahead of it on the stream has ended (programmatic dependent launch).
                overlaps = start < ended.get(lane, start)
                early += overlaps
                ended[lane] = max(end, ended.get(lane, end))
                add_device_span(builder, issue.step.launch, lane, index, start, end, Basis.PLACED if overlaps else Basis.MEASURED)
            if isinstance(bound.step, Replay) and extents:
                first, last = min(start for start, _ in extents), max(end for _, end in extents)
                builder.add(SpanKind.GRAPH, "graph", prepared.streams[0].name, first, last, correlation=index)
        plan = prepared.plan
        if next(ordered, None) is not None:
            raise RecordingError(f"CUPTI has {len(records)} records, more than were launched", hint="another library launches beside")
        info = TraceInfo(
            plan.engine,
            prepared.program.name,
            self.device.info,
            "cupti",
            notes=(*prepared.notes, *([f"{early} launches start before those ahead of them on their stream end"] if early else [])),
            plan=plan.counts,
            memory=prepared.memory,
        )
        return Trace(builder.build(), info, origins_of(plan, self.device.estimate_ns))

    def _clock_offset_ns(self, cupti: Any) -> float:
        """Return what to add to CUPTI's time to get the host's, by the tightest of some samples."""
        samples = []
        for _ in range(CLOCK_SAMPLES):
            before = self.device.now_ns()
            stamp = cupti.get_timestamp()
            after = self.device.now_ns()
            samples.append((after - before, (before + after) / 2 - stamp))
        return float(min(samples)[1])

    def _nodes(self, bound: Bound) -> int:
        """Return how many kernels, copies and sets a launch consists of, by capturing it alone."""
        if not isinstance(bound.stream, CudaStream):
            return 0
        try:
            with capturing(self.device, bound.stream) as graphs:
                bound.call()
        except Exception as error:
            raise RecordingError(f"{bound.step} cannot be captured, so its records cannot be told apart", hint="use events") from error
        return graphs[0].node_count


def kernel_durations_ns(work: Callable[[], object]) -> list[int]:
    """Return the durations, by CUPTI, of all kernels and copies that a function launches, in the order of launch, in ns."""
    with _activities().enabled() as records:
        work()
    return [record.end_ns - record.start_ns for record in sorted(records, key=lambda record: record.order)]


def _issues(steps: Sequence[Bound]) -> list[Bound]:
    """Return the launches among steps, those inside graphs in the order of capture."""
    issues: list[Bound] = []
    for bound in steps:
        inner: Sequence[Bound] = bound.inner if isinstance(bound.step, Replay) else (bound,)
        issues += [one for one in inner if isinstance(one.step, Issue)]
    return issues
