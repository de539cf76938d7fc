"""How far predictions from the sync trace alone are from what was measured: offline, on recordings of `record_for_what_if.py`.

    python benchmarks/what_if_accuracy.py FOLDER [RESULT.json [RESNET50]]

Measured is the median makespan of each engine's runs. In a comparison engines take turns, so each run finds the caches full of what the
others used. Runs right after a run of the same engine do not, and neither do those of a trace: ``warm`` is their median.
RESNET50 is what `record_resnet50.py` wrote. Constants of the cost model were chosen on half of the programs, `CHOSEN_ON`; both halves
are reported.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from further_programs import FURTHER_PROGRAMS

import streamscope as ss
from streamscope.comparing.comparison import Comparison
from streamscope.devices.cost_model import CostModel
from streamscope.engines import PLANNERS
from streamscope.engines.case import Case
from streamscope.files import written_whole
from streamscope.recording.origins import origins_of
from streamscope.trace.trace import Trace
from streamscope.workloads import WORKLOADS

CHOSEN_ON = {"attention", "branches", "elementwise-chain", "pipeline", "experts", "streaming", "convolution-training"}
"""The programs, at all sizes, on which constants were chosen; the others are `held out`."""


def kind_of(case: str) -> str:
    """Return a program's name without the number of its size."""
    return case.rstrip("0123456789").rstrip("-")


def with_dependencies(name: str, settings: dict[str, int], trace: Trace) -> Trace:
    """Return a trace with what depends on what, read from the program where the recording is older than that."""
    if len(trace.origins.launches):
        return trace
    function, inputs = FURTHER_PROGRAMS[name]() if name in FURTHER_PROGRAMS else WORKLOADS[kind_of(name)].build(**settings)
    program = Case.of(function, inputs, "ss.verify", checked=False).program
    estimate = CostModel.load().estimate_ns
    made = origins_of(PLANNERS["sync"](program, estimate), estimate)
    return replace(trace, origins=replace(trace.origins, launches=made.launches, dependencies=made.dependencies))


def warm_ns(runs: Comparison) -> dict[str, float]:
    """Return the median makespan of the runs that followed one of their own engine, in ns; `Case.round_ns` says in which order they ran."""
    random, last = np.random.default_rng(0), ""
    found: dict[str, list[float]] = {engine: [] for engine in runs}
    for index in range(min(len(runs[engine].makespans_ns) for engine in runs)):
        for engine in map(str, random.permutation(list(runs))):
            if engine == last:
                found[engine].append(float(runs[engine].makespans_ns[index]))
            last = engine
    return {engine: float(np.median(times)) if times else float("nan") for engine, times in found.items()}


def row_of(case: Path) -> dict[str, Any]:
    """Return what is predicted and what was measured of one program, by engine, in µs."""
    runs = ss.load_comparison(case)
    trace = with_dependencies(case.name, dict(runs.settings), runs["sync"].trace)
    warm = warm_ns(runs)
    engines = {}
    for engine in PLANNERS:
        measured_ns, predicted_ns = float(np.median(runs[engine].makespans_ns)), trace.what_if(engine=engine).predicted_ns
        engines[engine] = {
            "measured_us": round(measured_ns / 1e3, 1),
            "warm_us": round(warm[engine] / 1e3, 1),
            "predicted_us": round(predicted_ns / 1e3, 1),
            "error": round(predicted_ns / measured_ns - 1, 4),
            "error_warm": round(predicted_ns / warm[engine] - 1, 4),
        }
    return {"program": case.name, "chosen_on": kind_of(case.name) in CHOSEN_ON, "settings": dict(runs.settings), "engines": engines}


def summary(rows: Sequence[dict[str, Any]], key: str) -> dict[str, float]:
    """Return the median and the worst of absolute errors, over engines other than sync, which the trace shows."""
    errors = np.abs([each[key] for row in rows for engine, each in row["engines"].items() if engine != "sync"])
    return {"median": round(float(np.median(errors)), 4), "worst": round(float(errors.max()), 4), "predictions": len(errors)}


def resnet50(folder: Path) -> dict[str, Any]:
    """Return the step of ResNet-50 under a CUDA graph, predicted from Kineto's trace of the eager step, and measured."""
    measured = json.loads((folder / "measured.json").read_text(encoding="utf-8"))
    rows = {}
    for batch, times in measured["batches"].items():
        predicted_us = ss.read(folder / f"eager_{batch}.json.gz").what_if(engine="graph").predicted_ns / 1e3
        error = predicted_us / times["graph_us"] - 1
        rows[batch] = {name: round(value, 1) for name, value in times.items()} | {
            "predicted_us": round(predicted_us, 1),
            "error": round(error, 4),
        }
    return {"torch": measured["torch"], "batches": rows}


def main(folder: Path, result: Path | None, resnet: Path | None) -> None:
    """Print the table, and write it."""
    rows = [row_of(case) for case in sorted(folder.iterdir()) if (case / "comparison.json").exists()]
    for row in rows:
        cells = [f"{engine} {v['measured_us']:8.1f} {v['predicted_us']:8.1f} {v['error']:+7.1%}" for engine, v in row["engines"].items()]
        print(f"{row['program']:22s}", " | ".join(cells))
    halves = {"all": rows, "chosen on": [r for r in rows if r["chosen_on"]], "held out": [r for r in rows if not r["chosen_on"]]}
    summaries = {name: {key: summary(half, key) for key in ("error", "error_warm")} for name, half in halves.items() if half}
    for name, each in summaries.items():
        print(f"{name:10s}", *(f"{key}: median {v['median']:.1%}, worst {v['worst']:.1%}" for key, v in each.items()), sep="  ")
    for engine in PLANNERS:
        errors = np.array([row["engines"][engine]["error"] for row in rows])
        print(f"{engine:10s} median {np.median(np.abs(errors)):.1%} bias {np.median(errors):+.1%} worst {np.abs(errors).max():.1%}")
    if result is not None:
        info = ss.load_comparison(folder / rows[0]["program"])["sync"].trace.info
        where = {"device": info.device.name, "details": dict(info.device.details), "versions": dict(info.versions), "date": info.created}
        found = {"summary": summaries, "rows": rows} | ({"resnet50": resnet50(resnet)} if resnet is not None else {})
        with written_whole(result) as temporary:
            temporary.write_text(json.dumps(where | found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *(Path(name) if name else None for name in (*sys.argv[2:4], "", "")[:2]))
