"""The CUPTI recorder of prepared programs: the device's own record of every kernel, copy and set, also side by side and inside graphs.

It needs the package ``cupti-python``, the permission to profile, and that no other profiler holds CUPTI. It makes each launch dearer while
it records, and launches of graphs also afterwards, so it is used when all times have been taken.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from statistics import median_low
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from streamscope.devices.cuda import CudaDevice
from streamscope.devices.cuda.graph_nodes import demangled
from streamscope.devices.cuda.timer import TimerClock
from streamscope.devices.gates import held
from streamscope.devices.graph_node import NodeKind
from streamscope.engines.binding import NO_STEP, BoundStep, settled
from streamscope.engines.plan import Issue, Replay
from streamscope.engines.prepared import Prepared
from streamscope.errors import RecordingError
from streamscope.kernels.library.libraries import libraries
from streamscope.recording.activity_records import ActivityRecords, Rows
from streamscope.recording.communication import call_of, communication_of
from streamscope.recording.counting import Heard, heard
from streamscope.recording.launch_kernels import LaunchKernel, add_host_span, add_pieces, builder_of, node_id
from streamscope.recording.origins import info_of, memory_of, origins_of
from streamscope.recording.passes import gated_replay_ns
from streamscope.recording.recorded_trace import CallName
from streamscope.recording.subscription import CALLS, WORK, subscription
from streamscope.recording.timed_run import AroundReplay, HostInterval, makespan_ns, steps_of, timed_run
from streamscope.trace.joins import looked_up
from streamscope.trace.spans import Basis, SpanBuilder, SpanKind, SpanTable
from streamscope.trace.symbols import call_kinds
from streamscope.trace.trace import Trace
from streamscope.words import counted, listed, time_text

_CLOCK_SAMPLES = 50
_NODE_MASK = 0xFFFFFFFF
"""Of CUPTI's id of a graph's node: its place among the graph's nodes, in the order of capture. Above are bits of the graph's own id."""
STRETCHED = 0.03
"""Graphs that take that much longer under CUPTI than a whole run without it do not run as they do otherwise; a note says so."""

_DEVICE_NODES = {NodeKind.KERNEL: SpanKind.KERNEL, NodeKind.COPY: SpanKind.COPY, NodeKind.SET: SpanKind.SET}


@dataclass(frozen=True)
class CuptiRecorder:
    """Records runs of prepared programs by CUPTI; of so many ``passes``, the one with the median makespan is shown."""

    device: CudaDevice
    passes: int = 5

    @classmethod
    def on(cls, device: Any) -> CuptiRecorder:
        """Return a recorder for a device."""
        if not isinstance(device, CudaDevice):
            raise RecordingError(f"CUPTI does not record {device.info.name}", hint='recorder="auto" takes what the device has')
        subscription()
        return cls(device)

    def record(self, prepared: Prepared, reload: Callable[[], None] = lambda: None) -> Trace:
        """Record a prepared program whose inputs are loaded and which has run twice, so that its graphs exist.

        Each kernel, copy and set becomes a span. Work outside of graphs is joined with its launch by the correlation of the call,
        work inside a graph by the node. A note counts launches without a record. ``reload`` fills the inputs before each run; of a
        program over several GPUs, before one more run ahead of it.
        """
        unrecorded_ns, runs = self.runs(prepared, reload)
        makespans = [makespan_ns(run.host) for run in runs]
        shown = runs[makespans.index(median_low(makespans))]
        ledger = {"recorded_ns": float(makespan_ns(shown.host)), "unrecorded_ns": unrecorded_ns}
        return shown.trace(ledger, {"passes": self.passes})

    def runs(
        self, prepared: Prepared, reload: Callable[[], None] = lambda: None, *, beside_others: bool = True, gated: bool = False
    ) -> tuple[float, list[RecordedRun]]:
        """Return the median makespan of runs without CUPTI, in ns, and then as many runs that it recorded.

        ``gated``: each graph is on the device whole before it begins there, and graphs alone are timed without CUPTI, too.
        """
        cupti = subscription()
        around: AroundReplay = partial(held, prepared.device, [prepared.streams[0]]) if gated else nullcontext
        with prepared.lock, settled(prepared.streams.values()):
            # Before CUPTI is on: launches of graphs stay dearer after it has left.
            if gated:
                unrecorded_ns = sum(gated_replay_ns(prepared, one.graph, self.passes) for one in prepared.bound if one.graph is not None)
            else:
                unrecorded_ns = median_low(makespan_ns(_run(prepared, reload)) for _ in range(self.passes))
            with cupti.recording((*WORK, *CALLS), beside_others=beside_others) as found:
                clock = cupti_clock(self.device)
                _run(prepared, reload, around)  # The first run after CUPTI was switched on takes longer.
                with heard(self.device.now_ns) as said:
                    hosts = [_run(prepared, reload, around) for _ in range(self.passes)]
        (records,) = found
        thread = threading.get_native_id()
        return float(unrecorded_ns), [RecordedRun(prepared, host, records, clock, cupti.call_name, thread, said) for host in hosts]


def cupti_clock(device: CudaDevice) -> TimerClock:
    """Compare CUPTI's clock and the host's, by the tightest of some samples."""
    samples = []
    for _ in range(_CLOCK_SAMPLES):
        before = device.now_ns()
        stamp = subscription().now_ns()
        after = device.now_ns()
        # Whole numbers: as a float, nanoseconds since 1970 are rounded to 256 of them.
        samples.append((after - before, (before + after) // 2 - stamp))
    # The shortest sample bounds the offset best: its three readings lie closest together.
    width, offset = min(samples)
    return TimerClock(offset, width / 2)


def _run(prepared: Prepared, reload: Callable[[], None], around_replay: AroundReplay = nullcontext) -> list[HostInterval]:
    reload()
    if prepared.program.gpus > 1:
        # Behind a load of large inputs, the first collective took 0.1 ms longer: links that have rested, it seems.
        prepared.run()
        prepared.wait()
    return timed_run(prepared, around_replay)


def steps_of_calls(calls: Rows, host: Sequence[HostInterval], clock: TimerClock, thread: int) -> npt.NDArray[np.int64]:
    """Return of each call into CUDA the index of the host's step that made it, -1 for none: calls of other threads are not the program's.

    The middle of a call is looked up, since the two clocks agree within a fraction of a call.
    """
    starts, ends = (np.array(times) for times in zip(*((one.start_ns, one.end_ns) for one in host), strict=True))
    middle = (calls["start_ns"] + calls["end_ns"]) // 2 + clock.offset_ns
    step = np.searchsorted(starts, middle, side="right") - 1
    return np.where((calls["thread"] == thread) & (step >= 0) & (middle <= ends[step]), step, -1)


def _steps_of_work(work: Rows, calls: Rows, steps: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return of each kernel, copy and set the step whose call put it on the device, -1 for none."""
    return looked_up(calls["correlation"], steps, work["correlation"], -1)


class RecordedRun:
    """One recorded run: its host calls, and the work that they put on the device; ``thread`` is the system's id of its thread.

    ``said``: counters and markers of this and other runs.
    """

    def __init__(
        self,
        prepared: Prepared,
        host: Sequence[HostInterval],
        records: ActivityRecords,
        clock: TimerClock,
        call_name: CallName,
        thread: int,
        said: Heard | None = None,
    ) -> None:
        self.prepared = prepared
        self.host = host
        self.zero = host[0].start_ns
        self.clock = clock
        self.said = said
        self.dropped = records.dropped
        self.texts = {address: demangled(text) for address, text in records.texts.items()}
        steps = steps_of_calls(records.calls, host, clock, thread)
        names = [call_name(int(call["code"]), int(call["name"])) for call in records.calls[steps >= 0]]
        launches = np.isin(call_kinds(names), [SpanKind.LAUNCH, SpanKind.GRAPH_LAUNCH])
        self.launching = set(steps[steps >= 0][launches].tolist())
        """Steps that called for work on the device."""
        self.owners = _steps_of_work(records.work, records.calls, steps)
        self.work = records.work
        self.missing: list[str] = []
        self.early = 0
        self.replays_ns = 0
        self._ended: dict[str, float] = {}

    def spans(self) -> SpanTable:
        """Return the spans of the run, and note launches without a record."""
        prepared = self.prepared
        builder = builder_of(prepared)
        for index, interval in enumerate(self.host):
            add_host_span(builder, interval, index, self.zero)
        for index, bound in enumerate(steps_of(prepared)):
            rows = self.work[self.owners == index]
            rows = rows[np.argsort(rows["start_ns"], kind="stable")]
            if isinstance(bound.step, Replay):
                self._add_replay(builder, bound, index, rows)
            elif isinstance(bound.step, Issue) and bound.step.launch.collective is not None:
                self._add_parts(builder, bound.step, index, rows)
            elif isinstance(bound.step, Issue):
                self._add(builder, bound.step, index, [self._piece(row) for row in rows])
                if not len(rows) and index in self.launching:
                    self.missing.append(bound.step.launch.name)
        return builder.build()

    @property
    def lost(self) -> int:
        """How many records are missing, as far as is known once the spans were made."""
        return self.dropped + len(self.missing)

    def trace(self, ledger: Mapping[str, float], found: Mapping[str, float]) -> Trace:
        """Return the trace of the run."""
        prepared, spans, lost = self.prepared, self.spans(), self.lost
        info = info_of(
            prepared,
            "cupti",
            {**ledger, **({"lost_records": float(lost)} if lost else {})},
            (*prepared.notes, *self._notes(ledger.get("unrecorded_ns", np.inf))),
            {**found, "clock_uncertainty_ns": round(self.clock.uncertainty_ns, 1)},
        )
        collectives, peers = communication_of(prepared.program, spans)
        origins = origins_of(prepared.plan, prepared.device.estimate_ns)
        trace = Trace(spans, info, origins, collectives=collectives, peers=peers, memory=memory_of(prepared))
        return trace if self.said is None else self.said.onto(trace, self.zero, self.host[-1].end_ns)

    def _add_replay(self, builder: SpanBuilder, replay: BoundStep, index: int, rows: Rows) -> None:
        """Add the nodes of one replay of a graph, each under the launch that it was captured from."""
        nodes = replay.graph.nodes if replay.graph is not None else ()
        pieces: dict[int, list[LaunchKernel]] = {}
        for row, node in zip(rows, (rows["graph_node"] & _NODE_MASK).tolist(), strict=True):
            if node < len(replay.owners):
                # CUDA makes kernels of short copies and of sets in a graph: the node says what they are.
                kind = _DEVICE_NODES.get(nodes[node].kind)
                owner = self._part_of(replay, replay.owners[node], int(row["gpu"]))
                pieces.setdefault(owner, []).append(self._piece(row, kind, node_id(index, node)))
        for owner, inner in enumerate(replay.inner):
            if isinstance(inner.step, Issue):
                expected = sum(one == owner and node.kind in _DEVICE_NODES for one, node in zip(replay.owners, nodes, strict=True))
                expected = 1 if inner.step.launch.collective is not None else expected
                self._add(builder, inner.step, index, sorted(pieces.get(owner, []), key=lambda piece: piece.start_ns))
                self.missing += [inner.step.launch.name] * (expected - len(pieces.get(owner, ())))
        if len(rows):
            first, last = self._on_host(rows["start_ns"].min()), self._on_host(rows["end_ns"].max())
            builder.add(SpanKind.GRAPH, "graph", self.prepared.plan.lanes[0], first, last, correlation=index)
            self.replays_ns += last - first

    def _part_of(self, replay: BoundStep, owner: int, gpu: int) -> int:
        """Return which step made a node: of a collective, whose nodes all count for its last part, the part on the node's GPU."""
        step = replay.inner[owner].step if owner != NO_STEP else None
        if not isinstance(step, Issue) or step.launch.collective is None:
            return owner
        numbers = [cast("CudaDevice", self.prepared.device).indices[each] for each in step.launch.collective.gpus]
        return owner - step.launch.part + numbers.index(gpu) if gpu in numbers else owner

    def _add_parts(self, builder: SpanBuilder, step: Issue, index: int, rows: Rows) -> None:
        """Add the parts of a collective, which the call of the last part issued: each is on a GPU of its own."""
        if call_of(step, index) != index:
            return
        steps, count = steps_of(self.prepared), len(step.launch.collective.gpus) if step.launch.collective is not None else 0
        for bound in steps[index + 1 - count : index + 1]:
            part = bound.step
            assert isinstance(part, Issue)
            own = rows[rows["gpu"] == cast("CudaDevice", self.prepared.device).indices[part.launch.gpu]]
            self._add(builder, part, index, [self._piece(row) for row in own])
            if not len(own):
                self.missing.append(part.launch.name)

    def _add(self, builder: SpanBuilder, step: Issue, index: int, pieces: Sequence[LaunchKernel]) -> None:
        lane, overlap = self.prepared.plan.lanes[step.lane], 0
        for piece in pieces:
            # A kernel may be allowed to start before the one ahead of it on the stream has ended (programmatic dependent launch), and a
            # library may run some side by side on streams of its own.
            overlap += piece.start_ns < self._ended.get(lane, piece.start_ns)
            self._ended[lane] = max(piece.end_ns, self._ended.get(lane, piece.end_ns))
        self.early += overlap
        add_pieces(builder, step.launch, lane, index, pieces, Basis.PLACED if overlap else Basis.MEASURED)

    def _on_host(self, time_ns: Any) -> int:
        """Return a time on CUPTI's clock since the trace's zero."""
        return int(time_ns) + self.clock.offset_ns - self.zero

    def _piece(self, row: Any, kind: SpanKind | None = None, node: int = -1) -> LaunchKernel:
        blocks, threads = (int(row[f"{what}_x"] * row[f"{what}_y"] * row[f"{what}_z"]) for what in ("grid", "block"))
        times = self._on_host(row["start_ns"]), self._on_host(row["end_ns"])
        return LaunchKernel(kind or SpanKind(row["code"]), *times, self.texts.get(int(row["name"]), ""), blocks, threads, node)

    def _notes(self, unrecorded_ns: float) -> Iterable[str]:
        if self.replays_ns > (1 + STRETCHED) * unrecorded_ns:
            yield (
                f"its graphs take {time_text(self.replays_ns)} under CUPTI, and a run without it {time_text(unrecorded_ns)}: "
                'CUPTI changes gaps and overlap here; recorder="stamps" does not'
            )
        if self.missing:
            names = listed(list(dict.fromkeys(self.missing))[:5])
            launches = counted(len(self.missing), "launch", "launches")
            yield f"{launches} without a record of CUPTI ({names}): busy time and overlap are lower bounds"
        if self.dropped:
            yield f"CUPTI dropped {counted(self.dropped, 'record')}: busy time and overlap are lower bounds"
        if self.early:
            yield f"{counted(self.early, 'kernel')} began before those ahead of them on their stream ended"


def kernel_durations_ns(work: Callable[[], object]) -> list[int]:
    """Return the durations, by CUPTI, of all kernels, copies and sets that a function launches, in the order of launch, in ns."""
    with subscription().recording(WORK) as found:
        work()
        libraries().runtime.deviceSynchronize()
    rows = found[0].work
    rows = rows[np.lexsort((rows["graph_node"], rows["correlation"]))]
    return [int(length) for length in rows["end_ns"] - rows["start_ns"]]
