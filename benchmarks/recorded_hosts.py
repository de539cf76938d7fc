"""How well several GPUs are recorded: engines by events against PyTorch's profiler, GPU by GPU; their clocks against CUPTI's; `ss.record`.

*Busy, in the same runs*: events and CUPTI watch the same run of an engine without a graph; what the default recorder makes of the events
is held against CUPTI's records.
*Graphs, in turns*: under CUPTI, nodes of a graph arrive one by one, and branches run in another order. Behind a gate, the graph is on the
GPUs before it begins. So the same graph runs under the default recorder and, behind a gate, under PyTorch's profiler, in turns, and the
medians count: how long each GPU is busy, and how much of the communication is exposed. The profiler without a gate tells how much that
changes.
*Starts*: in the same runs, each tells when every launch ended. By how much they disagree on one GPU, and on another, is how far apart the
two GPUs are in our traces.
*Record*: a function of PyTorch on all GPUs, with products, copies between GPUs and collectives, in turns by `ss.record` and the profiler.

    python benchmarks/recorded_hosts.py GPUS RESULT.json
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from provenance import provenance

import streamscope as ss
from streamscope.devices.gates import held
from streamscope.engine_entry import ENGINES
from streamscope.engines.binding import settled
from streamscope.engines.prepared import Prepared, prepare_traced
from streamscope.files import written_whole
from streamscope.recording.auto import AutoRecorder
from streamscope.recording.calibration import calibrate
from streamscope.recording.cupti import CuptiRecorder, cupti_clock
from streamscope.recording.events import EventRecorder
from streamscope.recording.kernel_times import kernel_times
from streamscope.recording.launch_kernels import stretched
from streamscope.recording.passes import NaturalPass, is_part, natural_pass
from streamscope.recording.placing import Placed
from streamscope.recording.subscription import WORK, subscription
from streamscope.recording.timed_run import AroundReplay, steps_of, timed_run
from streamscope.trace.spans import DEVICE_KINDS
from streamscope.trace.trace import Trace
from streamscope.workloads import WORKLOADS

CASES: list[tuple[str, dict[str, int]]] = [
    ("data-parallel", {"layers": 4, "width": 2048, "rows": 1024}),
    ("tensor-parallel", {"blocks": 2, "width": 2048, "tokens": 1024}),
    ("pipeline-parallel", {"layers": 2, "width": 2048, "rows": 1024, "batches": 4}),
    ("expert-parallel", {"blocks": 2, "width": 2048, "tokens": 512}),
]
TURNS, _RUNS = 7, 3
Times = list[tuple[int, float, float, bool]]
"""GPU, start and end in ns, and whether it is a part of a collective."""
Measures = dict[str, dict[str, float]]
"""By name and GPU."""


def busy_us(times: Times) -> dict[str, float]:
    """Return for each GPU the time in which anything runs there."""
    found: dict[str, float] = {}
    reached: dict[int, float] = {}
    for gpu, start, end, _ in sorted(times):
        begin = max(start, reached.get(gpu, -np.inf))
        found[str(gpu)] = found.get(str(gpu), 0.0) + max(0.0, end - begin) / 1e3
        reached[gpu] = max(end, reached.get(gpu, -np.inf))
    return found


def exposed_shares(times: Times) -> dict[str, float]:
    """Return for each GPU the share of its collectives beside which nothing else runs, NaN where they take no time."""
    both, work = busy_us(times), busy_us([one for one in times if not one[3]])
    talks = busy_us([one for one in times if one[3]])
    return {gpu: (both[gpu] - work.get(gpu, 0.0)) / talk if talk else math.nan for gpu, talk in talks.items()}


def measures(times: Times) -> Measures:
    """Return busy time and exposed share of a run."""
    return {"busy": busy_us(times), "exposed": exposed_shares(times)}


def times_of(trace: Trace, keep: Callable[[str], bool] = lambda _: True) -> Times:
    """Return the work of a trace on its GPUs, of the names that are to be kept."""
    spans = trace.spans.of_kind(DEVICE_KINDS)
    gpus = [spans.gpus[lane] if spans.gpus else 0 for lane in spans.lane.tolist()]
    names = [spans.names[name] for name in spans.name.tolist()]
    rows = zip(gpus, spans.start_ns.tolist(), spans.end_ns.tolist(), names, strict=True)
    return [(gpu, start, end, _kind(name) == "collective") for gpu, start, end, name in rows if keep(name)]


def median_of(runs: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the median for each GPU."""
    return {gpu: statistics.median(run.get(gpu, 0.0) for run in runs) for gpu in runs[0]}


def profiled(call: Callable[[], object]) -> list[Any]:
    """Return PyTorch's events of a call on GPUs."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        call()
    return [event for event in profiler.profiler.kineto_results.events() if event.device_type().name == "CUDA"]


def _times(events: Iterable[Any]) -> Times:
    return [(one.device_index(), one.start_ns(), one.start_ns() + one.duration_ns(), _kind(one.name()) == "collective") for one in events]


def by_profiler(prepared: Prepared, reload: Callable[[], None], around_replay: AroundReplay = nullcontext) -> list[Measures]:
    """Return the measures of some runs of a program; the first of a session is left out, since it takes longer."""

    def runs() -> None:
        for _ in range(1 + _RUNS):
            reload()
            timed_run(prepared, around_replay)

    events = sorted(profiled(runs), key=lambda event: event.start_ns())
    each, rest = divmod(len(events), 1 + _RUNS)
    assert not rest, "the runs differ"
    return [measures(_times(events[each * run : each * (run + 1)])) for run in range(1, 1 + _RUNS)]


def times_placed(placed: Sequence[Placed]) -> Times:
    """Return a run's work as events record it."""
    return [
        (one.step.launch.gpu, piece.start_ns, piece.end_ns, is_part(one.step))
        for one in placed
        for piece in stretched(one.pieces, one.start_ns, one.end_ns)
    ]


def by_recorder(prepared: Prepared, reload: Callable[[], None], recorder: EventRecorder, runs: int = _RUNS) -> list[Measures]:
    """Return the measures of some runs as the default recorder shows them; nobody else watches."""
    calibration, found = calibrate(recorder.device), []
    for _ in range(runs):
        reload()
        with prepared.lock, settled(prepared.streams.values()):
            natural = natural_pass(prepared)
        found.append(measures(times_placed(recorder.placed(prepared, natural, calibration))))
    return found


@dataclass
class Watched:
    """What events and CUPTI say of the same runs of a program, by GPU: how long each is busy in us, and how late events are in ns."""

    events_us: list[dict[str, float]] = field(default_factory=list)
    cupti_us: list[dict[str, float]] = field(default_factory=list)
    late_ns: list[dict[str, float]] = field(default_factory=list)

    @classmethod
    def of(cls, prepared: Prepared, reload: Callable[[], None], recorder: EventRecorder) -> Watched:
        """Let both watch some runs; the first of a session is left out, since it takes longer."""
        found, calibration = cls(), calibrate(recorder.device)
        for _ in range(1 + TURNS):
            reload()
            with prepared.lock, settled(prepared.streams.values()), subscription().recording(WORK) as records:
                natural = natural_pass(prepared)
                clock = cupti_clock(cast("Any", prepared.device))
            placed = recorder.placed(prepared, natural, calibration)
            work = records[0].work
            for time in ("start_ns", "end_ns"):
                work[time] += clock.offset_ns
            found._add(prepared, natural, placed, work)
        return cls(found.events_us[1:], found.cupti_us[1:], found.late_ns[1:])

    def _add(self, prepared: Prepared, natural: NaturalPass, placed: Sequence[Placed], work: Any) -> None:
        indices = cast("Any", prepared.device).indices
        number = {gpu: place for place, gpu in enumerate(indices)}
        work = work[work["start_ns"] >= natural.host[0].start_ns]
        theirs = work[["gpu", "start_ns", "end_ns"]].tolist()
        self.cupti_us.append(busy_us([(number[gpu], start, end, False) for gpu, start, end in theirs]))
        self.events_us.append(busy_us(times_placed(placed)))
        steps = steps_of(prepared)
        late = {}
        for gpu in range(prepared.program.gpus):
            theirs = np.sort(work["end_ns"][work["gpu"] == indices[gpu]])
            ends = [end for index, end in natural.ends_ns.items() if getattr(steps[index].stream, "gpu", 0) == gpu]
            late[str(gpu)] = float(np.median([end - theirs[np.abs(theirs - end).argmin()] for end in ends])) if ends else math.nan
        self.late_ns.append(late)

    def off(self) -> dict[str, float]:
        """Return by which share each GPU is busy longer as events say, the median of the runs."""
        return {
            gpu: statistics.median(own[gpu] / their[gpu] - 1 for own, their in zip(self.events_us, self.cupti_us, strict=True))
            for gpu in self.cupti_us[0]
        }

    def apart_us(self) -> dict[str, float]:
        """Return by how much later than CUPTI our events say that the work of each GPU ended, less the same of GPU 0: median and worst."""
        apart = {gpu: [(one[gpu] - one["0"]) / 1e3 for one in self.late_ns] for gpu in self.late_ns[0]}
        return {gpu: statistics.median(values) for gpu, values in apart.items()} | {
            f"{gpu} worst": max(values, key=abs) for gpu, values in apart.items()
        }


def _medians(runs: Sequence[Measures]) -> Measures:
    return {what: median_of([run[what] for run in runs]) for what in runs[0]}


def _off(ours: Measures, theirs: Measures) -> Measures:
    """Return by which share each GPU is busy longer as we say, and by how much its exposed share is higher."""
    return {
        what: {gpu: ours[what][gpu] / their - 1 if what == "busy" else ours[what][gpu] - their for gpu, their in of_gpus.items()}
        for what, of_gpus in theirs.items()
    }


def engines(gpus: int) -> list[dict[str, Any]]:
    """Return the rows of the workloads under each engine."""
    device: Any = ss.open_device("cuda", gpus=gpus)
    rows: list[dict[str, Any]] = []
    graphs: list[tuple[dict[str, Any], Prepared, Callable[[], None], EventRecorder]] = []
    for name, settings in CASES:
        function, inputs = WORKLOADS[name].build(gpus=gpus, **settings)
        program = function.trace(*inputs)
        for engine in ENGINES:
            prepared = prepare_traced(program, engine, device)
            reload = partial(prepared.load, inputs) if program.changes_inputs else lambda: None
            prepared.load(inputs)
            for _ in range(3):
                prepared.run()
            prepared.wait()
            row: dict[str, Any] = {"workload": name, "settings": settings, "engine": engine}
            rows.append(row)
            if "graph" in engine:
                recorder = cast("EventRecorder", AutoRecorder.on(device).checked(prepared, reload))
                # Without CUPTI, a recording rests on many replays: one run has their medians.
                events = by_recorder(prepared, reload, EventRecorder.on(device), runs=1)
                row |= {"told_by_cupti": recorder.seen is not None, "ours": [], "events": events, "theirs": [], "ungated": []}
                graphs.append((row, prepared, reload, recorder))
                continue
            _, runs = CuptiRecorder.on(device).runs(prepared, reload, beside_others=False)
            watched = Watched.of(prepared, reload, replace(EventRecorder.on(device), seen=kernel_times([run.spans() for run in runs])))
            row |= {"apart_us": watched.apart_us(), "together": asdict(watched), "off": watched.off()}
            print(name, engine, {gpu: round(100 * off, 1) for gpu, off in watched.off().items()}, row["apart_us"], flush=True)
    for _ in range(TURNS):
        # The recorder first: when the profiler has been there, launches of graphs stay dearer.
        for row, prepared, reload, recorder in graphs:
            row["ours"] += by_recorder(prepared, reload, recorder)
        for row, prepared, reload, _ in graphs:
            row["theirs"] += by_profiler(prepared, reload, partial(held, prepared.device, [prepared.streams[0]]))
            row["ungated"] += by_profiler(prepared, reload)
    for row, *_ in graphs:
        theirs = _medians(row["theirs"])
        for key, name in (("ours", "off"), ("events", "events_off"), ("ungated", "ungated_off")):
            row[name] = _off(_medians(row[key]), theirs)
            shown = {what: [round(100 * off, 1) for off in offs.values()] for what, offs in row[name].items()}
            print(row["workload"], row["engine"], "told by CUPTI" if row["told_by_cupti"] else "", key, shown, flush=True)
    return rows


def torch_step(gpus: int) -> Callable[[], None]:
    """Return a step of PyTorch: products on each GPU, a ring of copies, an all-reduce and a broadcast."""
    import torch
    from torch.cuda import nccl

    xs = [torch.randn(4096, 4096, device=f"cuda:{gpu}") for gpu in range(gpus)]
    ws = [torch.randn(4096, 4096, device=f"cuda:{gpu}") / 64 for gpu in range(gpus)]
    halos = [torch.empty_like(x) for x in xs]

    def step() -> None:
        for _ in range(4):
            ys = [torch.relu(x @ w) for x, w in zip(xs, ws, strict=True)]
            for gpu, y in enumerate(ys):
                halos[(gpu + 1) % gpus].copy_(y, non_blocking=True)
            nccl.all_reduce(ys)
            nccl.broadcast([ws[0].clone(), *ws[1:]])
        for gpu in range(gpus):
            torch.cuda.synchronize(gpu)

    for _ in range(3):
        step()
    return step


def _kind(name: str) -> str:
    lower = name.lower()
    return "collective" if "nccl" in lower else "copy" if lower.startswith(("memcpy", "copy")) else "set" if "memset" in lower else "kernel"


def recorded(gpus: int) -> dict[str, Any]:
    """Return counts and busy times of one step by `ss.record` and by PyTorch's profiler, in turns."""
    step = torch_step(gpus)
    ours, theirs, counts = [], [], []
    for turn in range(TURNS):
        with ss.record("step") as recording:
            step()
        trace = recording.trace
        events = profiled(step)
        if turn:
            spans = trace.spans.of_kind(DEVICE_KINDS)
            mine = Counter(_kind(spans.names[name]) for name in spans.name.tolist())
            counts.append((dict(mine), dict(Counter(_kind(event.name()) for event in events)), len(trace.collectives), len(trace.peers)))

            def computed(name: str) -> bool:
                return _kind(name) != "collective"

            ours.append({"all": busy_us(times_of(trace)), "without collectives": busy_us(times_of(trace, computed))})
            own = [event for event in events if computed(event.name())]
            theirs.append({"all": busy_us(_times(events)), "without collectives": busy_us(_times(own))})
    result: dict[str, Any] = {"counts": counts, "notes": list(trace.info.notes)}
    for what in ("all", "without collectives"):
        mine_us, their_us = (median_of([one[what] for one in each]) for each in (ours, theirs))
        result[what] = {
            "busy_us": mine_us,
            "profiler_busy_us": their_us,
            "off": {gpu: mine_us[gpu] / value - 1 for gpu, value in their_us.items()},
            "spread": {gpu: [one[what][gpu] for one in theirs] for gpu in their_us},
        }
    return result


def main() -> None:
    """Measure, and write the result."""
    warnings.filterwarnings("ignore", module="torch")
    gpus, target = int(sys.argv[1]), Path(sys.argv[2])
    rows = engines(gpus)
    import torch

    content = {**provenance(ss.open_device("cuda", gpus=gpus), torch=torch.__version__), "gpus": gpus, "engines": rows}
    content["record"] = recorded(gpus)
    print(json.dumps(content["record"], indent=1))
    with written_whole(target) as path:
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
