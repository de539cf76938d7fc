"""How far predictions from the sync trace alone are from what was measured: offline, on what `record_for_what_if.py` kept.

    python benchmarks/what_if_accuracy.py RESULT.json FOLDER...

Each folder is of one host, since a host differs from the next more than a program from itself; the result has a group of rows for each.
Where it has a folder `resnet50`, that is what `record_resnet50.py` wrote on the same host.

Measured is what `ss.verify` measures: engines take turns of two runs, and the median of the second runs counts. The first ones find the
caches full of what another engine has used: ``after_others_us`` is their median. Constants of the cost model were chosen on half of the
programs, `CHOSEN_ON`; both halves are reported.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import streamscope as ss
from streamscope.engine_entry import ENGINES
from streamscope.files import written_whole
from streamscope.trace.trace import Trace

CHOSEN_ON = {"attention", "branches", "elementwise-chain", "pipeline", "experts", "streaming", "convolution-training"}
"""The programs, at all sizes, on which constants were chosen; the others are `held out`."""


def kind_of(case: str) -> str:
    """Return a program's name without the number of its size."""
    return case.rstrip("0123456789").rstrip("-")


def row_of(case: Path) -> dict[str, Any]:
    """Return what is predicted and what was measured of one program, by engine, in µs."""
    trace, kept = Trace.from_parquet(case), json.loads(case.with_suffix(".json").read_text(encoding="utf-8"))
    engines, usual_us = {}, float(np.median(kept["makespans_ns"]["sync"]["second"])) / 1e3
    for engine in ENGINES:
        measured_ns, others_ns = (float(np.median(kept["makespans_ns"][engine][run])) for run in ("second", "first"))
        predicted_ns = ss.what_if(trace, engine=engine, measured_us=usual_us).predicted_ns
        engines[engine] = {
            "measured_us": round(measured_ns / 1e3, 1),
            "after_others_us": round(others_ns / 1e3, 1),
            "predicted_us": round(predicted_ns / 1e3, 1),
            "error": round(predicted_ns / measured_ns - 1, 4),
            "error_after_others": round(predicted_ns / others_ns - 1, 4),
        }
    return {"program": case.stem, "chosen_on": kind_of(case.stem) in CHOSEN_ON, "settings": kept["settings"], "engines": engines}


def summary(rows: Sequence[dict[str, Any]], key: str) -> dict[str, float]:
    """Return the median and the worst of absolute errors, over engines other than sync, which the trace shows."""
    errors = np.abs([each[key] for row in rows for engine, each in row["engines"].items() if engine != "sync"])
    return {"median": round(float(np.median(errors)), 4), "worst": round(float(errors.max()), 4), "predictions": len(errors)}


def resnet50(folder: Path) -> dict[str, Any]:
    """Return the step of ResNet-50 under a CUDA graph, predicted from Kineto's trace of the eager step, and measured."""
    measured = json.loads((folder / "measured.json").read_text(encoding="utf-8"))
    rows = {}
    for batch, times in measured["batches"].items():
        predicted_us = ss.what_if(ss.read(folder / f"eager_{batch}.json.gz"), engine="graph").predicted_ns / 1e3
        error = predicted_us / times["graph_us"] - 1
        rows[batch] = {name: round(value, 1) for name, value in times.items()} | {
            "predicted_us": round(predicted_us, 1),
            "error": round(error, 4),
        }
    return {"torch": measured["torch"], "batches": rows}


def host_of(folder: Path) -> dict[str, Any]:
    """Return all that was measured and predicted of one host."""
    cases = sorted(folder.glob("*.parquet"))
    rows, info = [row_of(case) for case in cases], Trace.from_parquet(cases[0]).info
    found = {"date": info.created, "details": dict(info.device.details), "versions": dict(info.versions), "summary": summaries(rows)}
    steps = {"resnet50": resnet50(folder / "resnet50")} if (folder / "resnet50").is_dir() else {}
    return {"device": info.device.name, **found, "rows": rows, **steps}


def summaries(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the summary of all programs, and of both halves."""
    halves = {"all": rows, "chosen on": [r for r in rows if r["chosen_on"]], "held out": [r for r in rows if not r["chosen_on"]]}
    return {name: {key: summary(half, key) for key in ("error", "error_after_others")} for name, half in halves.items() if half}


def shown(rows: Sequence[dict[str, Any]]) -> None:
    """Print the rows of a host, or of all."""
    for name, each in summaries(rows).items():
        print(f"{name:10s}", *(f"{key}: median {v['median']:.1%}, worst {v['worst']:.1%}" for key, v in each.items()), sep="  ")
    for engine in ENGINES:
        errors = np.array([row["engines"][engine]["error"] for row in rows])
        print(f"{engine:10s} median {np.median(np.abs(errors)):.1%} bias {np.median(errors):+.1%} worst {np.abs(errors).max():.1%}")


def main(result: Path, folders: Sequence[Path]) -> None:
    """Print the tables, and write them."""
    hosts = sorted((host_of(folder) for folder in folders), key=lambda host: str(host["date"]))
    for host in hosts:
        print(f"\n{host['device']}, {host['date']}")
        for row in host["rows"]:
            engines = row["engines"].items()
            cells = [f"{engine} {v['measured_us']:8.1f} {v['predicted_us']:8.1f} {v['error']:+7.1%}" for engine, v in engines]
            print(f"{row['program']:22s}", " | ".join(cells))
        shown(host["rows"])
    rows = [row for host in hosts for row in host["rows"]]
    print(f"\n{len(hosts)} hosts")
    shown(rows)
    newest = {key: hosts[-1][key] for key in ("device", "details", "versions", "date")}
    with written_whole(result) as temporary:
        temporary.write_text(json.dumps(newest | {"summary": summaries(rows), "hosts": hosts}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
