"""The recorder of devices that keep a log of their runs, which costs nothing and is exact."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from streamscope.devices.log import DeviceLog, LogRecord
from streamscope.devices.protocol import Device
from streamscope.engines.binding import settled
from streamscope.engines.plan import Issue, Replay
from streamscope.engines.prepared import Prepared
from streamscope.recording.communication import call_of, communication_of
from streamscope.recording.counting import Heard, heard
from streamscope.recording.launch_kernels import add_host_span, add_pieces, builder_of, whole_piece
from streamscope.recording.origins import info_of, memory_of, memory_of_program, origins_of_program, with_waits
from streamscope.recording.timed_run import HostInterval, makespan_ns, steps_of, timed_run
from streamscope.trace.info import TraceInfo
from streamscope.trace.memory import Allocation
from streamscope.trace.origins import Origins
from streamscope.trace.spans import Basis, SpanBuilder, SpanKind, SpanTable
from streamscope.trace.trace import Trace
from streamscope.words import counted

_ROUGH = "times of {} are rough: of shapes that nobody has timed, the model has half within 15 %, and some at half or twice their time"
"""Of 305 convolutions that took no part in the cost model, 12 are not within 40 % of it; one took four times its estimate, one half."""


@dataclass(frozen=True)
class LoggedRun:
    """One run, as the host and the device's log saw it."""

    host: list[HostInterval]
    records: Sequence[LogRecord]
    said: Heard
    """Counters and markers meanwhile."""

    @property
    def makespan_ns(self) -> int:
        """From the first call to the end of the last."""
        return makespan_ns(self.host)


def logged_run(prepared: Prepared, log: DeviceLog) -> LoggedRun:
    """Run a prepared program whose inputs are loaded once, while its device's log is kept."""
    with prepared.lock, log.kept() as records, settled(prepared.streams.values()), heard(prepared.device.now_ns) as said:
        return LoggedRun(timed_run(prepared), records, said)


@dataclass(frozen=True)
class DeviceLogRecorder:
    """Records runs of prepared programs on a device that keeps a log.

    Events would slow the simulated run, and could not tell running from waiting for room; the device knows both. Where the user ``asked``
    for another recorder, a note says so.
    """

    device: Device
    log: DeviceLog
    asked: str = "auto"

    def record(self, prepared: Prepared, reload: Callable[[], None] = lambda: None) -> Trace:
        """Record a prepared program whose inputs are loaded and whose graphs are captured."""
        with prepared.lock:
            reload()
            run = logged_run(prepared, self.log)
        program = prepared.program
        return self.trace(prepared, run, origins_of_program(program, self.device.estimate_ns), memory_of_program(program))

    def trace(self, prepared: Prepared, run: LoggedRun, origins: Origins, memory: Sequence[Allocation]) -> Trace:
        """Make the trace of a run; ``origins`` and ``memory`` are those of its program."""
        spans, info = self.spans(prepared, run)
        collectives, peers = communication_of(prepared.program, spans)
        held = memory_of(prepared, memory)
        trace = Trace(spans, info, with_waits(origins, prepared.plan), collectives=collectives, peers=peers, memory=held)
        return run.said.onto(trace, run.host[0].start_ns, run.host[-1].end_ns)

    def spans(self, prepared: Prepared, run: LoggedRun) -> tuple[SpanTable, TraceInfo]:
        """Return the spans of a run, and the facts of its trace."""
        spans = self._spans(prepared, run.host, run.records).build()
        ledger = dict.fromkeys(("recorded_ns", "unrecorded_ns"), float(run.makespan_ns))
        return spans, info_of(prepared, "device log", ledger, (*prepared.notes, *self._notes(prepared)))

    def _notes(self, prepared: Prepared) -> list[str]:
        launches = [step.launch for step in prepared.plan.flat() if isinstance(step, Issue)]
        rough = sum(launch.cost.product is not None and launch.cost.product.kind != "matmul" for launch in launches)
        notes = [_ROUGH.format(counted(rough, "convolution"))] if rough else []
        if self.asked not in ("auto", "events"):
            notes.append(f'recorder="{self.asked}" is for GPUs: {self.device.info.name} was recorded by its own log, which is exact')
        return notes

    def _spans(self, prepared: Prepared, host: list[HostInterval], records: Sequence[LogRecord]) -> SpanBuilder:
        zero, lanes = host[0].start_ns, prepared.plan.lanes
        builder = builder_of(prepared)
        for index, interval in enumerate(host):
            add_host_span(builder, interval, index, zero)
        own = {id(buffer) for buffer in prepared.buffers}
        # Other threads may have used the device meanwhile; a preview has neither memory nor others on its device.
        ours = (record for record in records if not own or not record.writes or any(id(buffer) in own for buffer in record.writes))
        times: dict[tuple[int, int], list[tuple[float, float]]] = {}
        for record in ours:
            times.setdefault((record.operation, record.part), []).append((record.start_ns - zero, record.end_ns - zero))
        certificate = prepared.program.certificate  # Captured code knows the whole names of its kernels.
        for index, bound in enumerate(steps_of(prepared)):
            inner = [one.step for one in bound.inner] if isinstance(bound.step, Replay) else [bound.step]
            issues = [step for step in inner if isinstance(step, Issue)]
            for step in issues:
                ran = times[step.launch.operation, step.launch.part]
                symbol = "" if certificate is None else certificate.symbol(step.launch.operation)
                pieces = [replace(whole_piece(step.launch, end, start), symbol=symbol) for start, end in ran]
                call = index if isinstance(bound.step, Replay) else call_of(step, index)
                add_pieces(builder, step.launch, lanes[step.lane], call, pieces, Basis.MEASURED)
            if isinstance(bound.step, Replay) and issues:
                extents = [extent for step in issues for extent in times[step.launch.operation, step.launch.part]]
                first, last = min(start for start, _ in extents), max(end for _, end in extents)
                builder.add(SpanKind.GRAPH, "graph", lanes[0], first, last, correlation=index)
        return builder
