"""The stamp recorder: when first and last blocks of generated kernels ran, beside neighbours and inside graphs, while no profiler runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import numpy.typing as npt

from streamscope.devices.cuda.device import CudaDevice
from streamscope.devices.cuda.stamps import MOST_BLOCKS as MOST_STAMPED
from streamscope.devices.cuda.stamps import Slots, StampMemory
from streamscope.devices.cuda.streams import CudaStream
from streamscope.devices.cuda.timer import TimerClock, align_timer
from streamscope.devices.gates import held
from streamscope.devices.protocol import Device, Stream
from streamscope.devices.reference import reference_kernel
from streamscope.engines.binding import BoundStep, settled
from streamscope.engines.plan import Issue, Replay, dependencies
from streamscope.engines.prepared import Prepared
from streamscope.errors import RecordingError
from streamscope.program.launch import LaunchKind
from streamscope.recording.calibration import Calibration, calibrate
from streamscope.recording.counting import heard
from streamscope.recording.events import EventRecorder, shift_ns, spans_of_run, unchecked
from streamscope.recording.launch_kernels import LaunchKernel, in_graph
from streamscope.recording.marks import Marker
from streamscope.recording.origins import info_of, memory_of, origins_of
from streamscope.recording.passes import NaturalPass, Readings, alone_ns, gated_pass, natural_pass, run_ungated
from streamscope.recording.placing import Placed, apart, between, meeting
from streamscope.recording.stamp_overhead import Launched, kernel_of, left_out_ns
from streamscope.recording.timed_run import launches_of, steps_of
from streamscope.trace.columns import Blocks
from streamscope.trace.info import TraceInfo
from streamscope.trace.spans import Basis, SpanKind
from streamscope.trace.trace import Trace
from streamscope.words import counted, time_text

_Stamps = npt.NDArray[np.int64]
Owner = tuple[int, int]

_IN_GRAPH_NS = 125.0
"""How much longer a generated kernel takes in a graph of an H200, by CUPTI, than one by one (benchmarks/results/stamp_accuracy.json)."""
STAMPED_ERROR = 0.025
"""Share of its duration by which a kernel may be off, besides `Reference.error_ns`, where CUPTI cannot measure the stamps' overhead."""
REFERENCE_NS, REFERENCE_IN_GRAPH_NS = 857.0, 928.0
"""How long the reference kernel takes on that H200, on a stream and in a graph (devices/h200.json, results/reference_kernel.json)."""


def stamp_excess_ns(blocks: int, *, in_graph: bool = False) -> float:
    """Return how much longer a stamped kernel of so many blocks takes, by CUPTI, than from its first stamp to its last.

    Fitted to an H200 on 2026-11-23, in the same runs, on kernels from 1 to 4,224 blocks, the more the shorter they are
    (benchmarks/stamp_accuracy.py). In another session it was right to 0.2 µs where kernels do not fill the GPU beside each other
    (benchmarks/results/stamp_accuracy.json). Where they do, CUPTI counts a kernel also while it waits for room, up to 3.4 µs more.
    """
    return 635 + 205 * math.log10(max(1.0, blocks / 60)) + _IN_GRAPH_NS * in_graph


def stamping_ns(blocks: int) -> float:
    """Return how much longer stamps make a kernel of so many blocks; fitted as above, beside the plain kernel."""
    return 45 + 45 * math.log10(max(1.0, blocks / 60))


def around_ns(blocks: int, *, in_graph: bool = False) -> float:
    """Return how much longer a kernel of so many blocks takes without stamps, on an H200, than from its first stamp to its last."""
    return stamp_excess_ns(blocks, in_graph=in_graph) - stamping_ns(blocks)


@dataclass(frozen=True)
class StampRecorder:
    """Records runs of prepared programs by stamps of blocks.

    The program is bound a second time, in the same memory, with kernels that stamp their blocks. A kernel starts a little before its first
    stamp and ends a little after its last, half of `around_ns` each. Where CUPTI can be had, it tells how much that is here, when all has
    run; where it cannot, the reference kernel does, which takes longer on some cards. Work without stamps, kernels of libraries
    and copies, ends as an event behind it says or, in a graph, a mark behind it in a replay of its own; outside graphs it is as long as it
    takes alone, and in graphs a kernel begins when it could. Of so many ``passes`` of each sort, the median counts.
    """

    device: CudaDevice
    passes: int = 7

    @classmethod
    def on(cls, device: Device) -> StampRecorder:
        """Return a recorder for a device, whose kernels must be able to stamp."""
        if device.log is not None:
            raise RecordingError(
                f"{device.info.name} has no kernels that could stamp their blocks",
                hint="its own log is exact: leave recorder= out",
            )
        return cls(cast("CudaDevice", device))

    def record(self, prepared: Prepared, reload: Callable[[], None] = lambda: None) -> Trace:
        """Record a prepared program whose inputs are loaded and which has run twice, so that its graphs exist.

        ``reload`` fills the inputs before each pass. The trace is of the natural pass with the median makespan; its zero is the start of
        the first call. Its blocks tell which multiprocessor ran which.

        Raises
        ------
        RecordingError
            The program runs on several GPUs, whose timers are not tied to each other.
        """
        if prepared.program.gpus > 1:
            raise RecordingError(
                f"stamps know the clock of one GPU, and {prepared.program.name!r} runs on several", hint='recorder="events", or "cupti"'
            )
        with prepared.lock, settled(prepared.streams.values()):
            return Recording(self, prepared).trace(reload)


class _Pass:
    """One natural pass, with its stamps on the host's clock."""

    def __init__(self, natural: NaturalPass, stamps: Sequence[_Stamps], clock: TimerClock) -> None:
        self.natural = natural
        self.stamps = [np.where(one[:, :2] > 0, one[:, :2] + clock.offset_ns, 0) for one in stamps]
        self.multiprocessors = [one[:, 2] for one in stamps]
        self.clock = clock


class Recording:
    """One recording on its way.

    ``twin`` is the same as ``prepared``, with stamped kernels, which write to ``memory``. ``own`` has the slots of each launch's kernels,
    by operation and part, where all its kernels have some; ``missing`` names launches, one for each kernel of theirs that left no stamps.
    ``excess_ns`` is how much longer each kernel takes on an H200 than from its first stamp to its last, by its slot. ``corrections_ns`` is
    how much more that is here, by slot, where CUPTI tells. ``correction_ns`` is the same in the median, of kernels on streams, by CUPTI or
    by the reference kernel; ``in_graph_correction_ns`` of kernels in graphs.
    """

    def __init__(self, recorder: StampRecorder, prepared: Prepared) -> None:
        self.recorder = recorder
        self.prepared = prepared
        self.memory: StampMemory = recorder.device.stamp_memory(prepared.program)
        with recorder.device.stamping(self.memory):
            self.twin = prepared.twin()
        self.events = EventRecorder(cast("Device", recorder.device), recorder.passes)
        self.own: dict[Owner, list[int]] = {}
        for number, slots in enumerate(self.memory.slots):
            if slots.owner not in self.memory.too_large:
                self.own.setdefault(slots.owner, []).append(number)
        self.missing: list[str] = []
        self.slots: list[Slots] = list(self.memory.slots)
        self.inside = {self._owner(one) for bound in self.twin.bound for one in bound.inner if isinstance(one.step, Issue)}
        self.excess_ns = [around_ns(slots.blocks, in_graph=slots.owner in self.inside) for slots in self.slots]
        self.corrections_ns: dict[int, float] = {}
        self.correction_ns = self.in_graph_correction_ns = 0.0
        self._differences_ns: dict[Owner, float] = {}
        self.marker = Marker(recorder.device, self.memory, self.twin)
        self.stream = cast("CudaStream", self.twin.streams[0])
        self._shift_ns: float | None = None

    def trace(self, reload: Callable[[], None]) -> Trace:
        """Run all passes and return their results."""
        for _ in range(2):
            reload()
            self.twin.run()
            self.twin.wait()
        with heard(self.recorder.device.now_ns) as said:
            passes = sorted((self._natural(reload) for _ in range(self.recorder.passes)), key=lambda one: one.natural.makespan_ns)
        chosen = passes[len(passes) // 2]
        calibration = calibrate(self.events.device)
        reload()
        steps = steps_of(self.twin)
        alone = {index: self.alone_ns(bound.inner) for index, bound in enumerate(steps) if isinstance(bound.step, Replay)}
        durations = self.alone_ns(steps)
        self._check_excess(steps)
        durations = self._by_stamps_ns(durations, steps)
        placed: list[Placed] = []
        for index, bound in enumerate(steps):
            if isinstance(bound.step, Replay):
                placed += self._in_graph(chosen, bound, index, self._by_stamps_ns(alone[index], bound.inner))
            elif self._stamped(bound):
                placed += self.by_stamps(chosen, bound, index)
        placed = apart([*placed, *self._by_events(chosen, steps, durations)])
        late = shift_ns(placed, chosen.natural, chosen.clock.uncertainty_ns)
        spans = spans_of_run(self.prepared, chosen.natural.host, placed, late)
        blocks, notes = self._blocks(chosen, late - chosen.natural.host[0].start_ns)
        estimate = self.prepared.device.estimate_ns
        info = self._info(chosen, calibration, passes, [*notes, *self._notes(placed)])
        origins, host = origins_of(self.prepared.plan, estimate), chosen.natural.host
        trace = Trace(spans, info, origins, blocks, memory=memory_of(self.prepared))
        return said.onto(trace, host[0].start_ns, host[-1].end_ns)

    def _natural(self, reload: Callable[[], None]) -> _Pass:
        """Run as it is; stamped launches get no event."""
        untimed = [
            index
            for index, bound in enumerate(steps_of(self.twin))
            if any(self._stamped(one) for one in (bound.inner if isinstance(bound.step, Replay) else [bound]))
        ]
        reload()
        self.twin.wait()
        clock = align_timer(self.recorder.device, self.stream)
        self.memory.clear()
        self.prepared.run()  # The device has then just done the same, for the run without stamps as for the one with.
        self.prepared.wait()
        natural = natural_pass(self.twin, self.prepared, untimed)
        return _Pass(natural, self.memory.read()[: len(self.slots)], clock)

    def _stamped(self, bound: BoundStep) -> bool:
        return isinstance(bound.step, Issue) and (bound.step.launch.operation, bound.step.launch.part) in self.own

    def _event_shift_ns(self, chosen: _Pass) -> float:
        """Return the offset from an event's time, on the host's clock by events, to the end of the work before it by stamps."""
        if self._shift_ns is None:
            device, clock, mark = self.events.device, chosen.natural.clock, self.marker.mark(self.stream)
            event, shifts = device.event(timing=True), []
            for _ in range(self.recorder.passes):
                with held(device, [self.twin.streams[0]]):
                    mark.call()
                    self.twin.streams[0].record(event)
                device.synchronize()
                shifts.append(int(self.memory.read()[mark.slot][0, 0]) + chosen.clock.offset_ns - clock.host_ns(event))
            self._shift_ns = float(np.median(shifts)) + self._corrected_ns(around_ns(1)) / 2
        return self._shift_ns

    def _by_events(self, chosen: _Pass, steps: Sequence[BoundStep], durations: Mapping[int, float]) -> list[Placed]:
        """Return the launches outside graphs that have no stamps: as long as they take alone, and ended as the events behind them say."""
        placed: list[Placed] = []
        for index, pieces in self._pieces(steps, durations).items():
            end_ns = chosen.natural.ends_ns[index] + self._event_shift_ns(chosen)
            basis = Basis.DERIVED if len(pieces) == 1 else Basis.PLACED
            placed.append(Placed(cast("Issue", steps[index].step), index, end_ns - durations[index], end_ns, basis, pieces))
        return placed

    def alone_ns(self, steps: Sequence[BoundStep]) -> dict[int, float]:
        """Return how long each launch takes alone, in ns, and keep how much longer that is than its stamps say."""
        passes: list[list[Readings]] = []
        extents: dict[Owner, list[float]] = {}
        owners = {index: self._owner(steps[index]) for index in launches_of(steps) if self._stamped(steps[index])}
        run_ungated(self.twin, steps)
        for _ in range(self.recorder.passes):
            passes.append(gated_pass(self.twin, steps))
            self.events.device.synchronize()
            stamps = self.memory.read()
            for owner in owners.values():
                times = np.concatenate([stamps[slot][:, :2] for slot in self.own[owner]])
                if not times.all():
                    continue  # It did not run.
                extents.setdefault(owner, []).append(float(times[:, 1].max() - times[:, 0].min()))
        durations = alone_ns(passes, reference_kernel(self.events.device).queued_ns)
        for index, owner in owners.items():
            if owner not in extents:
                continue
            own = self.own[owner]
            around = sum(stamp_excess_ns(self.slots[slot].blocks) for slot in (own[0], own[-1])) / 2
            self._differences_ns[owner] = durations[index] - float(np.median(extents[owner])) - around
        return durations

    def _check_excess(self, steps: Sequence[BoundStep]) -> None:
        """Measure the stamps' overhead here: of each kernel by CUPTI, or of all alike by the reference kernel."""
        inner = [one for bound in steps for one in (bound.inner if isinstance(bound.step, Replay) else [bound])]
        launches = [
            Launched(bound.call, self.own[self._owner(bound)], cast("Stream", bound.stream)) for bound in inner if self._stamped(bound)
        ]
        found = left_out_ns(self.recorder.device, self.memory, launches)
        queued, in_graph = [], []
        for slot in (slot for one in launches for slot in one.slots):
            if (left_out := found.get(kernel_of(self.slots[slot]))) is not None:
                blocks, inside = self.slots[slot].blocks, self.slots[slot].owner in self.inside
                queued.append(left_out.queued_ns - stamp_excess_ns(blocks))
                in_graph.append(left_out.in_graph_ns - stamp_excess_ns(blocks, in_graph=True))
                self.corrections_ns[slot] = in_graph[-1] if inside else queued[-1]
        if self.corrections_ns:
            self.correction_ns, self.in_graph_correction_ns = float(np.median(queued)), float(np.median(in_graph))
        else:
            known = reference_kernel(self.events.device)
            self.correction_ns, self.in_graph_correction_ns = known.queued_ns - REFERENCE_NS, known.in_graph_ns - REFERENCE_IN_GRAPH_NS

    def _by_stamps_ns(self, durations: Mapping[int, float], steps: Sequence[BoundStep]) -> dict[int, float]:
        """Return durations by events, corrected by their difference from stamps on stamped kernels."""
        off_ns = self._difference_ns - self.correction_ns if self._differences_ns else 0.0
        kernels = {index for index in durations if cast("Issue", steps[index].step).launch.kind is LaunchKind.KERNEL}
        return {index: max(0.0, each - off_ns) if index in kernels else each for index, each in durations.items()}

    def _corrected_ns(self, excess_ns: float, slot: int | None = None, *, in_graph: bool = False) -> float:
        """Return the stamps' overhead here, from that on an H200: of one kernel, or corrected by the median."""
        inside = in_graph if slot is None else self.slots[slot].owner in self.inside
        median_ns = self.in_graph_correction_ns if inside else self.correction_ns
        return max(0.0, excess_ns + (median_ns if slot is None else self.corrections_ns.get(slot, median_ns)))

    @property
    def _around_ns(self) -> float:
        """Time added around the stamps of a kernel, in the median."""
        return float(np.median([self._corrected_ns(excess, slot) for slot, excess in enumerate(self.excess_ns)])) if self.excess_ns else 0.0

    @property
    def _difference_ns(self) -> float:
        """How much longer kernels take by events than by stamps and the constant around them, in the median."""
        return float(np.median(list(self._differences_ns.values()))) if self._differences_ns else 0.0

    def _owner(self, bound: BoundStep) -> Owner:
        launch = cast("Issue", bound.step).launch
        return launch.operation, launch.part

    def _pieces(self, steps: Sequence[BoundStep], durations: Mapping[int, float]) -> dict[int, tuple[LaunchKernel, ...]]:
        """Return the kernels of each launch without stamps."""
        chosen = [index for index in launches_of(steps) if not self._stamped(steps[index])]
        own = {position: durations[index] for position, index in enumerate(chosen)}
        found = self.events.pieces(self.twin, [steps[index] for index in chosen], own)
        return {index: found[position] for position, index in enumerate(chosen)}

    def extent_ns(self, slot: int, stamps: _Stamps) -> tuple[float, float]:
        """Return start and end of a kernel, by its stamps and their overhead."""
        around = self._corrected_ns(self.excess_ns[slot], slot) / 2
        return float(stamps[:, 0].min()) - around, float(stamps[:, 1].max()) + around

    def by_stamps(self, chosen: _Pass, bound: BoundStep, correlation: int) -> list[Placed]:
        """Return a launch as its kernels' stamps say; nothing where none of them ran, which a note will say."""
        owner = self._owner(bound)
        own = [slot for slot in self.own[owner] if chosen.stamps[slot].all()]
        self.missing += [cast("Issue", bound.step).launch.name] * (len(self.own[owner]) - len(own))
        if not own:
            return []
        times = [self.extent_ns(slot, chosen.stamps[slot]) for slot in own]
        start = times[0][0]
        pieces = tuple(
            LaunchKernel(
                SpanKind.KERNEL, begin - start, end - start, self.slots[slot].symbol, self.slots[slot].blocks, self.slots[slot].threads
            )
            for slot, (begin, end) in zip(own, meeting(times), strict=True)
        )
        return [Placed(cast("Issue", bound.step), correlation, start, times[-1][1], Basis.MEASURED, pieces)]

    def _in_graph(self, chosen: _Pass, replay: BoundStep, correlation: int, alone: Mapping[int, float]) -> list[Placed]:
        """Return the launches of a replay: by their stamps, or placed between those that have some; by events, where none has."""
        issues = launches_of(replay.inner)
        if not any(self._stamped(replay.inner[index]) for index in issues):
            end_ns = chosen.natural.ends_ns[correlation] + self._event_shift_ns(chosen)
            return self.events.placed_in_graph(self.twin, replay, correlation, end_ns)
        stamped = {
            index: self.by_stamps(chosen, replay.inner[index], correlation) for index in issues if self._stamped(replay.inner[index])
        }
        placed = {index: found[0] for index, found in stamped.items() if found}
        pieces = {index: one.pieces for index, one in placed.items()}
        without = [index for index in issues if not self._stamped(replay.inner[index])]
        if without:
            pieces |= self._pieces(replay.inner, alone)
            before = dependencies([bound.step for bound in replay.inner])
            begins, ends, gap = self._marked(chosen, replay, correlation, [i for i in without if not before[i]], without)
            times = {index: (one.start_ns, one.end_ns) for index, one in placed.items()}
            inner = [bound.step for bound in replay.inner]
            lanes = {index: cast("Issue", inner[index]).lane for index in issues}
            forks = {index for index in without if not before[index] or any(lanes[one] != lanes[index] for one in before[index])}
            copies = {index for index in without if cast("Issue", inner[index]).launch.kind is not LaunchKind.KERNEL}
            filling = [
                (float(begun.min()), float(begun.max()))
                for one in placed
                for begun in (chosen.stamps[slot][:, 0] for slot in self.own[self._owner(replay.inner[one])] if chosen.stamps[slot].all())
            ]
            found = between(before, times, begins, ends, alone, gap, forks=forks, copies=copies, filling=filling)
            for index, (start, end) in found.items():
                placed[index] = Placed(cast("Issue", inner[index]), correlation, start, end, Basis.PLACED, pieces[index])
        owned = in_graph({index: pieces[index] for index in placed}, replay.owners, correlation)
        return [replace(placed[index], pieces=owned[index]) for index in issues if index in placed]

    def _marked(
        self, chosen: _Pass, replay: BoundStep, correlation: int, roots: Sequence[int], without: Sequence[int]
    ) -> tuple[dict[int, float], dict[int, float], float]:
        """Return when ``roots`` of a replay began, when its launches ``without`` stamps ended, and the gap between dependent kernels."""
        stamped = [slot for bound in replay.inner if self._stamped(bound) for slot in self.own[self._owner(bound)]]
        ran = [slot for slot in stamped if chosen.stamps[slot].all()]
        replayed = self.marker.replays(replay, roots, without, ran, self.recorder.passes)
        around = self._corrected_ns(around_ns(1, in_graph=True), in_graph=True) / 2
        behind = self.marker.gap_ns - around  # from the end of a launch to the mark behind it
        shifts = [float(chosen.stamps[slot][:, 0].min()) - replayed.begun_ns[slot] for slot in ran]
        if not shifts:
            end_ns = chosen.natural.ends_ns[correlation] + self._event_shift_ns(chosen)
            shifts = [end_ns - (max(replayed.behind_ns.values()) - behind)]
        shift = float(np.median(shifts))
        begins = {index: shift + time - around for index, time in replayed.ahead_ns.items()}
        ends = {index: shift + time - behind for index, time in replayed.behind_ns.items()}
        return begins, ends, max(0.0, self.marker.gap_ns - 2 * around)

    def _blocks(self, chosen: _Pass, shift_by_ns: float) -> tuple[Blocks, list[str]]:
        """Return the blocks of all kernels, with a note where they are too many."""
        rows = [
            (np.full(len(stamps), slots.owner[0]), np.full(len(stamps), slots.owner[1]), multiprocessors, *stamps.T)
            for slots, stamps, multiprocessors in zip(self.slots, chosen.stamps, chosen.multiprocessors, strict=True)
            if stamps.all() and slots.owner in self.own
        ]
        count = sum(len(row[0]) for row in rows)
        if count > Blocks.MOST:
            return Blocks(), [f"the times of {count:,} blocks are left out: a trace keeps {Blocks.MOST:,}"]
        if not rows:
            return Blocks(), []
        columns = [np.concatenate(column) for column in zip(*rows, strict=True)]
        order = np.argsort(columns[3], kind="stable")
        operation, part, multiprocessor, start, end = (column[order] for column in columns)
        shift = round(shift_by_ns)
        return Blocks(operation, part, multiprocessor, start + shift, end + shift), []

    def _notes(self, placed: Sequence[Placed]) -> list[str]:
        notes = [*self.prepared.notes, *self.twin.notes, *self._around_notes()]
        by_events = [one.step.launch for one in placed if one.basis is not Basis.MEASURED]
        large = [one for one in by_events if (one.operation, one.part) in self.memory.too_large]
        others = [one for one in by_events if one not in large]
        for launches, what in ((large, f"with kernels of more than {MOST_STAMPED:,} blocks"), (others, "of libraries and copies")):
            if launches:
                names = ", ".join(dict.fromkeys(one.name for one in launches))
                kinds = f"{counted(len(launches), 'launch', 'launches')} {what} ({names})"
                notes.append(f"{kinds} cannot be stamped: their ends were measured by events or marks, their starts worked out")
        if self.missing:
            kernels = f"{counted(len(self.missing), 'kernel')} without stamps ({', '.join(dict.fromkeys(self.missing))})"
            notes.append(f"{kernels}: busy time and overlap are lower bounds")
        return list(dict.fromkeys(notes))

    def _around_notes(self) -> list[str]:
        """Note where the stamps' overhead differs from an H200's, or was not measured on this GPU."""
        added = f"{time_text(self._around_ns, 2)} are added around the first and last block of a kernel"
        if self.corrections_ns:
            others = len(self.excess_ns) - len(self.corrections_ns)
            unknown = f"; {counted(others, 'kernel')} that it did not measure got the median of the others" if others else ""
            return [f"{added}, as CUPTI measured here{unknown}"]
        return [f"{added}, as the reference kernel tells; CUPTI could not"] if self.excess_ns else []

    def _info(self, chosen: _Pass, calibration: Calibration, passes: Sequence[_Pass], notes: Sequence[str]) -> TraceInfo:
        found: dict[str, float] = calibration.to_dict() | {"passes": self.recorder.passes}
        found["stamp_excess_ns"] = round(self._around_ns, 1)
        found["stamp_correction_ns"] = round(self.correction_ns, 1)
        found["stamp_by_cupti"] = float(bool(self.corrections_ns))
        found["stamp_difference_ns"] = round(self._difference_ns, 1)
        found["clock_uncertainty_ns"] = round(chosen.clock.uncertainty_ns, 1)
        if not self.corrections_ns and not self.events.device.info.exact:
            found |= unchecked(self.events.device, STAMPED_ERROR)
        unrecorded_ns = float(np.median([one.natural.unrecorded_ns for one in passes]))
        ledger = {"recorded_ns": float(chosen.natural.makespan_ns), "unrecorded_ns": unrecorded_ns}
        return info_of(self.prepared, "stamps", ledger, notes, found)
