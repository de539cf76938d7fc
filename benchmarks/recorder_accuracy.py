"""How far each recorder is from PyTorch's profiler, for every engine and program, on the GPU of this machine.

The same prepared programs are recorded by events, stamps and CUPTI, once each, as a user would. When all that is done, PyTorch's profiler
records several runs of each, in sessions of its own: of these the medians count. Kernels are joined by their names and the order of their
starts.

Busy time is the time in which kernels run, overlap the share of it in which two or more do; both are worked out from the profiler's own
events here, not by Streamscope.

A profiler changes how graphs run. Where its run of a graph is longer than the run that nobody records, by `STRETCHED`, it is no reference
for that run. So the stamp recorder works once more while CUPTI records: then both tell of the same run (``same_run``). In graphs, that
holds for kernels with stamps only: what libraries launch there is placed by marks, in other replays, which CUPTI changes otherwise.

    python benchmarks/recorder_accuracy.py [RESULT.json [SECONDS]]
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
from further_programs import FURTHER_PROGRAMS
from provenance import provenance

import streamscope as ss
from streamscope.analysis import busy_error_ns, gpu_busy_ns, overlap_error, overlap_fraction
from streamscope.devices.cuda.graph_nodes import demangled
from streamscope.engine_entry import ENGINES
from streamscope.engines.binding import settled
from streamscope.engines.prepared import Prepared, prepare_traced
from streamscope.errors import RecordingError, StreamscopeError
from streamscope.files import written_whole
from streamscope.kernels.compile.batch import compile_batch
from streamscope.kernels.compile.program_kernels import program_kernels
from streamscope.kernels.source import stamped
from streamscope.program.operation import Program
from streamscope.recording import cupti, stamp_overhead
from streamscope.recording.events import has_branches
from streamscope.recording.recorders import recorder_of
from streamscope.recording.stamps import Recording, StampRecorder, stamping_ns
from streamscope.recording.subscription import WORK, subscription
from streamscope.trace.spans import DEVICE_KINDS, Basis, SpanKind
from streamscope.trace.trace import Trace
from streamscope.tracing import ProgramFunction, program
from streamscope.workloads import WORKLOADS

SESSIONS, RUNS = 3, 3
"""How often PyTorch's profiler begins, and how many runs count of each session."""
SAME_RUN_PASSES = 3
STAMPED = "_stamped"
RECORDERS = ("auto", "unchecked", "events", "stamps", "cupti")
"""*unchecked*: the default recorder where CUPTI cannot be had."""
ALLOWED = {"duration_us": 0.3, "duration_share": 0.05, "start_us": 1.0, "overlap": 0.02, "busy_share": 0.03}
STRETCHED = 1.1
"""How much longer the kernels of a profiled graph may take, from the first start to the last end, than a run that nobody records."""
NEAR_NS = 5_000
"""How far CUPTI's clock and the host's may be apart."""
Times = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Kernels:
    """The kernels of one run, in the order of their starts, and how many copies and sets there were beside them; times in ns."""

    names: tuple[str, ...]
    start_ns: Times
    end_ns: Times
    others: int

    @property
    def busy_ns(self) -> int:
        """Time in which at least one runs."""
        return self._with_at_least(1)

    @property
    def overlap(self) -> float:
        """Share of that time in which two or more run."""
        return self._with_at_least(2) / self.busy_ns if self.busy_ns else 0.0

    @property
    def extent_ns(self) -> int:
        """From the first start to the last end."""
        return int(self.end_ns.max() - self.start_ns.min())

    def _with_at_least(self, count: int) -> int:
        times = np.concatenate([self.start_ns, self.end_ns])
        steps = np.concatenate([np.ones(len(self.start_ns), int), -np.ones(len(self.end_ns), int)])
        order = np.lexsort((steps, times))  # One ends before another begins at the same time.
        running = np.cumsum(steps[order])[:-1]
        return int(np.diff(times[order])[running >= count].sum())

    def by_name(self) -> list[int]:
        """Return the kernels' places, those of one name together, in the order of their starts."""
        return sorted(range(len(self.names)), key=lambda place: (self.names[place], self.start_ns[place]))


def durations_program() -> tuple[ProgramFunction, list[Any]]:
    """Additions from 1,024 to 33 million elements: kernels of about 0.9 to 100 µs, short and long ones in turn."""
    sizes = [1 << exponent for exponent in range(10, 26)]

    @program
    def durations(*pairs: Any) -> tuple[Any, ...]:
        results: list[Any] = []
        for _ in range(3):
            results += [ss.ops.add(a, b) for a, b in zip(pairs[::2], pairs[1::2], strict=True)]
        return tuple(results)

    random = np.random.default_rng(0)
    return durations, [random.random(size, dtype=np.float32) for size in sizes for _ in range(2)]


def programs() -> Iterator[tuple[str, ProgramFunction, Sequence[Any]]]:
    """Yield each program with its name and inputs."""
    for name, workload in WORKLOADS.items():
        yield name, *workload.build()
    for name, make in FURTHER_PROGRAMS.items():
        yield name, *make()
    yield "durations", *durations_program()


def compile_together(device: Any, traced: Iterable[Program]) -> None:
    """Compile all generated kernels of some programs, with and without stamps, in one batch."""
    sources = list(dict.fromkeys(source for one in traced for source in program_kernels(one, device.tuned)))
    compiled = compile_batch([*sources, *map(stamped, sources)], device.architecture)
    compiled.check()
    device.load(compiled.cubins)


def prepared_for(traced: Program, inputs: Sequence[Any], engine: str, device: Any) -> Prepared:
    """Return a program that is warm, with its graphs."""
    prepared = prepare_traced(traced, engine, device)
    prepared.load(inputs)
    for _ in range(3):
        prepared.run()
        prepared.wait()
    return prepared


def kernels_of(trace: Trace) -> Kernels:
    """Return the kernels of a trace."""
    spans = trace.spans.of_kind(DEVICE_KINDS)
    kernels = spans.of_kind([SpanKind.KERNEL])
    names = tuple(kernels.names[symbol] if symbol >= 0 else "" for symbol in kernels.symbol.tolist())
    return Kernels(names, kernels.start_ns.astype(np.int64), kernels.end_ns.astype(np.int64), len(spans) - len(kernels))


def by_profiler(prepared: Prepared, inputs: Sequence[Any]) -> list[Kernels]:
    """Return what PyTorch's profiler sees of several runs, one after the other; a session's first run is left out: it takes longer."""
    from torch.profiler import ProfilerActivity, profile

    found = []
    for _ in range(SESSIONS):
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            for _ in range(1 + RUNS):
                if prepared.program.changes_inputs:
                    prepared.load(inputs)
                prepared.run()
                prepared.wait()
        events = [event for event in profiler.profiler.kineto_results.events() if event.device_type().name == "CUDA"]
        events.sort(key=lambda event: event.start_ns())
        each, rest = divmod(len(events), 1 + RUNS)
        assert rest == 0, "the runs differ"
        found += [profiled(events[each * run : each * (run + 1)]) for run in range(1, 1 + RUNS)]
    return found


def profiled(events: Sequence[Any]) -> Kernels:
    """Return the kernels among the profiler's events of one run."""
    kernels = [event for event in events if not event.name().startswith(("Memcpy", "Memset"))]
    start_ns = np.array([event.start_ns() for event in kernels], np.int64)
    length_ns = np.array([event.duration_ns() for event in kernels], np.int64)
    return Kernels(tuple(event.name() for event in kernels), start_ns, start_ns + length_ns, len(events) - len(kernels))


class Watched(Recording):
    """A recording by stamps that notes when each pass ran, on CUPTI's clock; its kernels are the stamped ones, as CUPTI sees them."""

    def __init__(self, recorder: StampRecorder, prepared: Prepared) -> None:
        super().__init__(recorder, prepared)
        self.excess_ns = [excess + stamping_ns(slots.blocks) for excess, slots in zip(self.excess_ns, self.slots, strict=True)]
        self.windows: list[tuple[int, int, int]] = []  # makespan, start, end

    def _natural(self, reload: Any) -> Any:
        found = super()._natural(reload)
        host, offset = found.natural.host, subscription().now_ns() - self.recorder.device.now_ns()
        self.windows.append((found.natural.makespan_ns, host[0].start_ns + offset, host[-1].end_ns + offset))
        return found


class Unchecked:
    """The default recorder on a machine where CUPTI cannot be had."""

    def __init__(self, device: Any) -> None:
        self.recorder = recorder_of(device, "auto")

    def record(self, prepared: Prepared, reload: Any) -> Trace:
        """Record without CUPTI, and without its earlier answers in this process."""
        refused = RecordingError("CUPTI is not permitted here")
        with (
            patch.object(cupti, "subscription", side_effect=refused),
            patch.object(stamp_overhead, "subscription", side_effect=refused),
            patch.object(stamp_overhead, "_KNOWN", WeakKeyDictionary()),
        ):
            return self.recorder.record(prepared, reload)


def on_the_same_run(device: Any, prepared: Prepared, reload: Any) -> tuple[Trace, Kernels]:
    """Record a run by stamps and by CUPTI at the same time, and return the kernels that both saw in it."""
    with prepared.lock, settled(prepared.streams.values()), subscription().recording(WORK) as found:
        recording = Watched(StampRecorder(device, SAME_RUN_PASSES), prepared)
        trace = recording.trace(reload)
    windows = sorted(recording.windows, key=lambda window: window[0])
    _, begin, end = windows[len(windows) // 2]  # of the pass that the trace shows
    work = found[0].work
    work = work[(work["start_ns"] > begin - NEAR_NS) & (work["end_ns"] < end + NEAR_NS)]
    work = work[np.argsort(work["start_ns"], kind="stable")][-len(trace.spans.of_kind(DEVICE_KINDS)) :]
    texts = {address: demangled(found[0].texts[address]) for address in set(work["name"][work["code"] == SpanKind.KERNEL].tolist())}
    if len(trace.spans.of_kind([SpanKind.GRAPH])):
        trace = replace(trace, spans=trace.spans.select(trace.spans.basis == Basis.MEASURED))
        work = work[[texts.get(address, "").endswith(STAMPED) for address in work["name"].tolist()]]
    kernels = work[work["code"] == SpanKind.KERNEL]
    names = tuple(texts[address].removesuffix(STAMPED) for address in kernels["name"].tolist())
    return trace, Kernels(names, kernels["start_ns"], kernels["end_ns"], len(work) - len(kernels))


def compared(found: Kernels, trace: Trace, reference: Sequence[Kernels]) -> dict[str, Any]:
    """Return how far one recorder's kernels are from those of the profiler's runs."""
    counts = sorted({(len(one.names), one.others) for one in reference})
    result: dict[str, Any] = {
        "kernels": len(found.names),
        "others": found.others,
        "profiler_counts": counts,
        "counts_equal": {sum(count) for count in counts} == {len(found.names) + found.others},
        "agrees_with_analysis": abs(gpu_busy_ns(trace.spans) - found.busy_ns) <= 1
        and abs(overlap_fraction(trace.spans) - found.overlap) < 1e-6,
        "names_equal": sorted(found.names) == sorted(reference[0].names),
        "unrecorded_us": trace.info.ledger["unrecorded_ns"] / 1e3,
        "extent_us": found.extent_ns / 1e3,
        "profiler_extent_us": [one.extent_ns / 1e3 for one in reference],
        "busy_us": found.busy_ns / 1e3,
        "profiler_busy_us": [one.busy_ns / 1e3 for one in reference],
        "overlap": found.overlap,
        "profiler_overlap": [one.overlap for one in reference],
        "stretched": float(np.median([one.extent_ns for one in reference])) / trace.info.ledger["unrecorded_ns"],
        "notes": list(trace.info.notes),
        "recorder": trace.info.recorder,
        "by_cupti": trace.info.calibration.get("by_cupti", trace.info.calibration.get("stamp_by_cupti")),
        "busy_error_us": busy_error / 1e3 if (busy_error := busy_error_ns(trace)) is not None else None,
        "overlap_may_be_off": overlap_error(trace),
    }
    if {kernels for kernels, _ in counts} != {len(found.names)}:
        return result
    mine = found.by_name()
    theirs = [one.by_name() for one in reference]
    all_lengths = np.array([(one.end_ns - one.start_ns)[order] for one, order in zip(reference, theirs, strict=True)])
    all_starts = np.array([(one.start_ns - one.start_ns.min())[order] for one, order in zip(reference, theirs, strict=True)])
    lengths, starts = np.median(all_lengths, axis=0), np.median(all_starts, axis=0)
    error = np.abs((found.end_ns - found.start_ns)[mine] - lengths)
    late = (found.start_ns - found.start_ns.min())[mine] - starts
    late = np.abs(late - (np.median(late) if len(reference) == 1 else 0))  # Of one run, the clocks are apart by a constant.
    allowed = np.maximum(1e3 * ALLOWED["duration_us"], ALLOWED["duration_share"] * lengths)
    busy, overlap = (float(np.median(result[f"profiler_{what}"])) for what in ("busy_us", "overlap"))
    return result | {
        "profiler_us": (lengths / 1e3).round(3).tolist(),
        "recorded_us": ((found.end_ns - found.start_ns)[mine] / 1e3).round(3).tolist(),
        "duration_error_us": float(np.median(error)) / 1e3,
        "duration_error_share": float(np.median(error / lengths)),
        "duration_within": bool(np.median(error - allowed) <= 0),
        "start_error_us": float(np.median(late)) / 1e3,
        "profiler_start_spread_us": float(np.median(np.abs(all_starts - starts))) / 1e3,
        "profiler_overlap_spread": float(np.median(np.abs(np.array(result["profiler_overlap"]) - overlap))),
        "overlap_error": found.overlap - overlap,
        "busy_error_share": found.busy_ns / 1e3 / busy - 1 if busy else 0.0,
    }


def main() -> None:
    """Measure what the time allows, and write the result."""
    warnings.filterwarnings("ignore", module="torch")
    device: Any = ss.open_device("cuda")
    target = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "results" / "recorder_accuracy.json")
    deadline = time.monotonic() + float(sys.argv[2] if len(sys.argv) > 2 else 3600)
    recorders: dict[str, Any] = {}
    for name in RECORDERS:
        try:
            recorders[name] = Unchecked(device) if name == "unchecked" else recorder_of(device, name)
        except StreamscopeError as error:
            print("without", name, error, flush=True)
    made: list[tuple[str, str, Prepared, Sequence[Any], dict[str, Trace]]] = []
    both: dict[tuple[str, str], tuple[Trace, Kernels]] = {}
    traced = {name: (function.trace(*inputs), inputs) for name, function, inputs in programs()}
    compile_together(device, (one for one, _ in traced.values()))
    print(f"compiled, {deadline - time.monotonic():.0f} s left", flush=True)
    for name, (one_program, inputs) in traced.items():
        for engine in ENGINES:
            if time.monotonic() > deadline:
                print("out of time before", name, engine, flush=True)
                continue
            prepared = prepared_for(one_program, inputs, engine, device)

            def reload(prepared: Prepared = prepared, inputs: Sequence[Any] = inputs) -> None:
                if prepared.program.changes_inputs:
                    prepared.load(inputs)

            traces = {}
            for recorder, one in recorders.items():
                try:
                    traces[recorder] = one.record(prepared, reload)
                except StreamscopeError as error:
                    print("FAILED", name, engine, recorder, error, flush=True)
            made.append((name, engine, prepared, inputs, traces))
            try:
                trace, by_cupti = on_the_same_run(device, prepared, reload)
                if by_cupti.names:
                    both[name, engine] = trace, by_cupti
            except StreamscopeError as error:
                print("FAILED", name, engine, "the same run", error, flush=True)
        print(f"recorded {name}, {deadline - time.monotonic():.0f} s left", flush=True)
    import torch

    results: dict[str, Any] = {}
    for name, engine, prepared, inputs, traces in made:
        reference = by_profiler(prepared, inputs)
        results.setdefault(name, {})[engine] = {
            recorder: compared(kernels_of(trace), trace, reference) for recorder, trace in traces.items()
        }
        stretched = any(one["stretched"] > STRETCHED for one in results[name][engine].values())
        if stretched and has_branches(prepared) and "stamps" in traces:
            for recorder, trace in traces.items():
                against = compared(kernels_of(trace), trace, [kernels_of(traces["stamps"])])
                kept = ("busy_error_share", "overlap_error", "duration_error_us")
                results[name][engine][recorder]["against_stamps"] = {key: against.get(key) for key in kept}
        if (name, engine) in both:
            trace, by_cupti = both[name, engine]
            results[name][engine]["same_run"] = compared(kernels_of(trace), trace, [by_cupti])
        for recorder, r in results[name][engine].items():
            print(
                f"{name:20} {engine:10} {recorder:8} {r['stretched']:.2f} kernels {r['kernels']}+{r['others']} of {r['profiler_counts']} "
                f"duration {r.get('duration_error_us', -1):.3f} us {r.get('duration_within')} "
                f"start {r.get('start_error_us', -1):.2f} +- {r.get('profiler_start_spread_us', -1):.2f} us "
                f"overlap {r['overlap']:.3f} / {np.median(r['profiler_overlap']):.3f} "
                f"busy {r['busy_us']:.1f} / {np.median(r['profiler_busy_us']):.1f} names {r['names_equal']} {r['notes'] or ''}",
                flush=True,
            )
    content = {
        "what": "each recorder against PyTorch's profiler (medians of its runs), by program, engine and recorder",
        "same_run": "stamps against CUPTI, which recorded the same run",
        "allowed": ALLOWED,
        "stretched": STRETCHED,
        **provenance(device, torch=torch.__version__),
        "profiler_runs": SESSIONS * RUNS,
        "programs": results,
    }
    with written_whole(target) as path:
        path.write_text(json.dumps(content, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
