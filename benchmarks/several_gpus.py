"""Programs over several GPUs: every engine measured, predicted from the sync trace, and simulated from the cost model alone.

    python benchmarks/several_gpus.py measure GPUS FILE FOLDER [SECONDS [RECORDINGS [REPLAYS [CASE...]]]]
    python benchmarks/several_gpus.py predict FILE FOLDER

The traces go to FOLDER; from there, `predict` needs no GPU. CASE is the number of a case, all by default. Where communication is hidden,
so many RECORDINGS follow the first one, and those by CUPTI. It takes all GPUs of a host of that many, and writes after each case, so that a
cut loses nothing. Each case is a process with a time limit, since collectives can hang.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

CASES: list[tuple[str, dict[str, int]]] = [
    ("data-parallel", {"layers": 4, "width": 1024, "rows": 1024}),
    ("data-parallel", {"layers": 8, "width": 2048, "rows": 1024}),
    ("data-parallel", {"layers": 8, "width": 2048, "rows": 1024, "overlap": 0}),
    ("tensor-parallel", {"blocks": 2, "width": 1024, "tokens": 256}),
    ("tensor-parallel", {"blocks": 4, "width": 2048, "tokens": 1024}),
    ("pipeline-parallel", {"layers": 2, "width": 1024, "rows": 512, "batches": 4}),
    ("expert-parallel", {"blocks": 2, "width": 1024, "tokens": 128}),
    ("expert-parallel", {"blocks": 2, "width": 2048, "tokens": 512}),
    ("data-parallel", {"layers": 6, "width": 1536, "rows": 2048}),
    ("tensor-parallel", {"blocks": 3, "width": 1536, "tokens": 512}),
    ("pipeline-parallel", {"layers": 3, "width": 2048, "rows": 512, "batches": 4}),
    ("expert-parallel", {"blocks": 2, "width": 1536, "tokens": 256}),
]
HELD_OUT = CASES[8:]
"""No run of these was known until 2026-11-27; what was measured then led to changes of the model."""
ENGINES = ("sync", "async", "dual", "graph", "graph-dual")
REPEATS, RECORDINGS, REPLAYS = 20, 2, 10_000


def measured(
    name: str, settings: dict[str, int], gpus: int, folder: Path, recordings: int = RECORDINGS, replayed: int = REPLAYS
) -> dict[str, Any]:
    """Measure one case in this process; keep its traces in a folder."""
    import numpy as np

    import streamscope as ss
    from streamscope.engines.prepared import prepare_traced
    from streamscope.recording.recorders import recorder_of
    from streamscope.workloads import WORKLOADS

    function, inputs = WORKLOADS[name].build(gpus=gpus, **settings)
    program = function.trace(*inputs)
    device = ss.open_device("cuda", gpus=gpus)
    prepared = {engine: prepare_traced(program, engine, device) for engine in ENGINES}
    results: dict[str, list[Any]] = {}
    for engine, each in prepared.items():
        each.load(inputs)
        for _ in range(3):
            each.run()
        results[engine] = each.outputs()
    times: dict[str, list[float]] = {engine: [] for engine in ENGINES}
    issued: dict[str, list[float]] = {engine: [] for engine in ENGINES}
    costs, probed = host_costs(device), []
    for _ in range(REPEATS):
        probed.append(costs())
        for engine, each in prepared.items():
            each.run()  # Of this engine's calls, none is the first of a turn: the recorded run begins like that, too.
            each.wait()
            begin = time.perf_counter_ns()
            each.run()
            issued[engine].append(time.perf_counter_ns() - begin)
            each.wait()
            times[engine].append(time.perf_counter_ns() - begin)
    replays = {}
    for engine in ("graph", "graph-dual"):
        begin = time.perf_counter_ns()
        for _ in range(replayed):
            prepared[engine].run()
        prepared[engine].wait()
        replays[engine] = (time.perf_counter_ns() - begin) / replayed / 1e3
        results[engine] += prepared[engine].outputs()  # Those of the last replay, too.
    recorder = recorder_of(device)

    def recorded(engine: str) -> Any:
        return recorder.record(prepared[engine], partial(prepared[engine].load, inputs))

    traces = {engine: [recorded(engine)] for engine in ENGINES}
    # Where nothing hides it, each recording says so. In turns, as a host may be twice as slow in another minute.
    hidden = [engine for engine, (trace,) in traces.items() if min(exposed(trace).values()) < 1]
    for engine in recordings * ["sync", *hidden] if hidden else []:
        traces[engine].append(recorded(engine))
    by_cupti = {engine: _by_cupti(device, prepared[engine], partial(prepared[engine].load, inputs)) for engine in hidden if recordings}
    for engine, found in traces.items():
        for number, trace in enumerate(found + by_cupti.get(engine, [])[:1]):
            trace.save(folder / _file(name, settings, gpus, engine, "cupti" if number == len(found) else number))
    rows = {}
    for engine in ENGINES:
        # Of a graph, either all of it is CUPTI's, or events alone tell.
        told = "graph" in engine and all(trace.info.calibration.get("by_cupti") for trace in traces[engine])
        equal = [bool(np.array_equal(one, other)) for one, other in zip(results[engine], cycle(results["sync"]), strict=False)]
        rows[engine] = {
            "measured_us": statistics.median(times[engine]) / 1e3,
            "least_us": min(times[engine]) / 1e3,
            "issued_us": statistics.median(issued[engine]) / 1e3,
            "replay_us": replays.get(engine),
            "equal_to_sync": all(equal),
            "exposed": {
                "measured": [exposed(trace) for trace in traces[engine]],
                "by": "CUPTI" if told else "events",
                "cupti": [exposed(trace) for trace in by_cupti.get(engine, [])],
            },
            "overlap": {"measured": [overlap(trace) for trace in traces[engine]]},
        }
    return {
        "workload": name,
        "settings": settings,
        "gpus": gpus,
        "held out": (name, settings) in HELD_OUT,
        "replays": replayed,
        "engines": rows,
        "host_ns": {name: statistics.median(one[name] for one in probed) for name in probed[0]},
        "device": device.info.name,
        "details": dict(device.info.details),
    }


def _file(name: str, settings: dict[str, int], gpus: int, engine: str, label: object) -> str:
    return f"{name} {' '.join(map(str, settings.values()))} {gpus} {engine} {label}.parquet"


def predict(case: dict[str, Any], folder: Path) -> None:
    """Add to a measured case what its sync traces and the cost model say of each engine."""
    import streamscope as ss
    from streamscope.workloads import WORKLOADS

    key, gpus, rows = (case["workload"], case["settings"], case["gpus"]), case["gpus"], case["engines"]
    function, inputs = WORKLOADS[key[0]].build(gpus=gpus, **key[1])
    program = function.trace(*inputs)
    files = [folder / _file(*key, "sync", number) for number in range(len(rows["sync"]["exposed"]["measured"]))]
    traces = [ss.read(str(file)) for file in files]
    for engine, row in rows.items():
        # Of the same turns as the others.
        predicted = ss.what_if(traces[0], engine=engine, measured_us=rows["sync"]["measured_us"])
        # What is exposed is known of recorded runs, in which the host also records events.
        as_run = [ss.what_if(sync, engine=engine, measured_us=sync.info.ledger["recorded_ns"] / 1e3) for sync in traces]
        dearer = statistics.median(one.scenario.host.pace for one in as_run) / predicted.scenario.host.pace
        preview, paced, slower = (
            simulated(program, engine, case["device"], costs)
            for costs in (None, case["host_ns"], {name: dearer * ns for name, ns in case["host_ns"].items()})
        )
        row |= {
            "predicted_us": predicted.info.ledger["recorded_ns"] / 1e3,
            "predicted_of_trace_alone_us": ss.what_if(traces[0], engine=engine).predicted_ns / 1e3,
            "simulated_us": preview.info.ledger["recorded_ns"] / 1e3,
            "simulated_at_pace_us": paced.info.ledger["recorded_ns"] / 1e3,
        }
        row["exposed"] |= {
            "predicted": [exposed(one) for one in as_run],
            "simulated": [exposed(slower)],
        }
        row["overlap"] |= {"predicted": [overlap(one) for one in as_run], "simulated": [overlap(slower)]}


def collective_share(cases: Sequence[dict[str, Any]], folder: Path) -> float | None:
    """Return the speed of collectives beside products, as a share of that alone, by CUPTI's recordings of graphs behind a gate.

    A transfer under ``graph-dual`` is as long as under ``graph``: its time alone, that beside element-wise kernels times their share, and
    that beside products times theirs. The shares are fitted to all transfers, by least squares of relative errors.
    """
    import numpy as np

    import streamscope as ss

    rows = []
    for case in cases:
        if case["engines"]["graph-dual"]["exposed"]["by"] == "CUPTI":
            key = case["workload"], case["settings"], case["gpus"]
            alone = {one: window[1] - window[0] for one, window in _transfers(ss.read(str(folder / _file(*key, "graph", 0)))).items()}
            for number in range(len(case["engines"]["graph-dual"]["exposed"]["measured"])):
                trace = ss.read(str(folder / _file(*key, "graph-dual", number)))
                rows += [_beside(trace, *window) / alone[one] for one, window in _transfers(trace).items() if window[0] < window[1]]
    return float(np.linalg.lstsq(np.array(rows), np.ones(len(rows)))[0][2]) if rows else None


def _transfers(trace: Any) -> dict[int, tuple[int, int]]:
    """Return of each collective, by its operation, when its last part began and its first one ended."""
    found: dict[int, list[tuple[int, int]]] = {}
    spans = trace.spans.select(trace.collectives.span)
    for one, start_ns, end_ns in zip(spans.operation.tolist(), spans.start_ns.tolist(), spans.end_ns.tolist(), strict=True):
        found.setdefault(one, []).append((start_ns, end_ns))
    return {one: (max(start for start, _ in parts), min(end for _, end in parts)) for one, parts in found.items()}


def _beside(trace: Any, start_ns: int, end_ns: int) -> Any:
    """Return how much of a time all GPUs run nothing else, how much one runs element-wise kernels, and how much products, in ns."""
    import numpy as np

    from streamscope.analysis.intervals import intersection_ns, union
    from streamscope.trace.spans import SpanKind

    window, products, both = union(np.array([start_ns]), np.array([end_ns])), 0, 0
    for gpu in trace.gpus:
        kernels = trace.of_gpu(gpu).spans.of_kind([SpanKind.KERNEL])
        names = np.array(kernels.names)[kernels.name]
        chosen = (kernels.select(which) for which in (names == "matmul", ~np.isin(names, ["all_reduce", "all_to_all"])))
        times = [intersection_ns(window, union(own.start_ns, own.end_ns)) for own in chosen]
        products, both = max(products, times[0]), max(both, times[1])
    return np.array([end_ns - start_ns - both, both - products, products], float)


Costs = dict[str, float]
"""What calls cost the host now, in ns: of a cost model by the names of its fields; ``collective`` and ``graph`` over all GPUs."""


def host_costs(device: Any) -> Any:
    """Return a function that measures what calls cost this host now."""
    import numpy as np

    import streamscope as ss
    from streamscope.engines.prepared import prepare_traced

    @ss.program
    def calls(*values: Any) -> Any:
        parts = []
        for number, value in enumerate(values):
            with ss.gpu(number):
                parts.append(ss.ops.relu(value @ value))
        return tuple(ss.ops.all_reduce(parts))

    inputs = [np.zeros((64, 64), np.float16) for _ in range(device.gpus)]
    prepared, graph = (prepare_traced(calls.trace(*inputs), engine, device) for engine in ("async", "graph"))
    for each in (prepared, graph):
        each.load(inputs)
        each.run()
        each.wait()
    launches = [(bound.call, bound.step.launch) for bound in prepared.bound if hasattr(bound.step, "launch")]
    named: list[tuple[str, Any]] = [
        ("collective" if launch.collective else "matmul_launch_ns" if launch.library else "launch_ns", call) for call, launch in launches
    ]
    stream, other, event = prepared.streams[0], device.stream("other"), device.event()
    named += [("event_record_ns", lambda: stream.record(event)), ("stream_wait_ns", lambda: other.wait(event))]

    def costs() -> Costs:
        taken: dict[str, list[int]] = {}

        def timed(name: str, call: Any) -> None:
            begin = time.perf_counter_ns()
            call()
            # The call of a collective's last part launches all of them.
            taken.setdefault(name, []).append(time.perf_counter_ns() - begin)

        for _ in range(30):
            for name, call in named:
                timed(name, call)
            prepared.wait()
            timed("synchronize_return_ns", stream.synchronize)
            timed("graph", graph.run)
            graph.wait()
        taken["collective"] = taken["collective"][device.gpus - 1 :: device.gpus]
        return {name: statistics.median(found) for name, found in taken.items()}

    return costs


def with_costs(model: Any, links: Any, costs: Costs, gpus: int) -> tuple[Any, Any]:
    """Return the models with the calls of this host: all collectives, and all launches of graphs, are as much dearer as those measured."""
    calls = {name: ns for name, ns in costs.items() if name.endswith("_ns")}
    calls |= dict.fromkeys(("convolution_launch_ns", "library_launch_ns"), costs["matmul_launch_ns"])
    collective = costs["collective"] / links.call_ns(gpus)
    graph = costs["graph"] / (model.graph_launch_ns(3 * gpus) + links.graph_launch_ns(gpus, gpus))
    points = tuple((nodes, graph * ns) for nodes, ns in model.graph_launch_points)
    of_graphs = {name: graph * getattr(links, name) for name in ("graph_call_ns", "graph_gpu_ns", "graph_part_ns")}
    links = replace(links, call_points=tuple((number, collective * ns) for number, ns in links.call_points), **of_graphs)
    return replace(model, graph_launch_points=points, **calls), links


def simulated(program: Any, engine: str, card: str, costs: Costs | None = None) -> Any:
    """Return the trace of an engine on the simulated host, with the cost model of this card; nothing is computed."""
    from streamscope.devices.link_model import LinkModel
    from streamscope.devices.measured_models import model_of
    from streamscope.devices.simulated import SimulatedDevice
    from streamscope.engines.prepared import Prepared, planned
    from streamscope.measuring.simulation import without_data
    from streamscope.recording.recorders import recorder_of

    model, links = model_of(card), LinkModel.load()
    if costs is not None:
        model, links = with_costs(model, links, costs, program.gpus)
    host = SimulatedDevice(model, gpus=program.gpus, links=links)
    prepared = Prepared(without_data(planned(program, engine, host, None)), host)
    prepared.capture()
    return recorder_of(host).record(prepared)


def _by_cupti(device: Any, prepared: Any, reload: Any) -> list[Any]:
    """Return runs that CUPTI recorded: it makes calls dearer, and the launch of a graph four times as long."""
    from streamscope.recording.cupti import CuptiRecorder

    return [run.trace({}, {}) for run in CuptiRecorder.on(device).runs(prepared, reload)[1]]


def exposed(trace: Any) -> dict[str, float]:
    """Return on each GPU the share of communication with no other kernel beside it."""
    import streamscope as ss

    splits = {str(gpu): ss.analysis.work_split(trace.of_gpu(gpu)) for gpu in trace.gpus}
    return {gpu: one.exposed_communication_ns / max(1, one.communication_ns) for gpu, one in splits.items()}


def overlap(trace: Any) -> dict[str, float]:
    """Return on each GPU the share of the time with a kernel in which two or more run, collectives among them."""
    import streamscope as ss

    return {str(gpu): ss.analysis.overlap_fraction(trace.of_gpu(gpu)) for gpu in trace.gpus}


def main(
    gpus: int, file: Path, folder: Path, limit_s: float = 600.0, recordings: int = RECORDINGS, replayed: int = REPLAYS, *cases: int
) -> None:
    begin, rows = time.monotonic(), []
    for number in cases or range(len(CASES)):
        if time.monotonic() - begin > limit_s:
            break
        command = [sys.executable, __file__, "case", str(number), str(gpus), str(folder), str(recordings), str(replayed)]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
        last = ran.stdout.strip().splitlines()[-1:] or ["null"]
        rows.append(json.loads(last[0]) if ran.returncode == 0 else {"case": CASES[number], "failed": ran.stderr[-1500:]})
        print(CASES[number], ran.returncode, f"{time.monotonic() - begin:.0f} s", flush=True)
        content = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "gpus": gpus, "repeats": REPEATS, "cases": rows}
        file.write_text(json.dumps(content, indent=1), encoding="utf-8")


if __name__ == "__main__":
    word, *values = sys.argv[1:]
    if word == "case":
        print(json.dumps(measured(*CASES[int(values[0])], int(values[1]), Path(values[2]), int(values[3]), int(values[4]))))
    elif word == "measure":
        limit_s = float(values[3]) if values[3:] else 600.0
        main(int(values[0]), Path(values[1]), Path(values[2]), limit_s, *map(int, values[4:]))
    else:
        content = json.loads(Path(values[0]).read_text(encoding="utf-8"))
        for case in content["cases"]:
            predict(case, Path(values[1]))
        content["collective_share"] = collective_share(content["cases"], Path(values[1]))
        Path(values[0]).write_text(json.dumps(content, indent=1), encoding="utf-8")
