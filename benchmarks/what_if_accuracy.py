"""How far predictions from the sync trace alone are from what was measured: offline, on recordings of `record_for_what_if.py`.

python benchmarks/what_if_accuracy.py FOLDER... [--details]
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from further_programs import FURTHER_PROGRAMS

import streamscope as ss
from streamscope.engines import PLANNERS
from streamscope.engines.case import Case
from streamscope.predicting.calls import host_of
from streamscope.predicting.simulating import simulated
from streamscope.predicting.tasks import tasks_of_program
from streamscope.devices.cost_model import CostModel
from streamscope.recording.origins import origins_of


def with_dependencies(name, settings, trace):
    function, inputs = FURTHER_PROGRAMS[name]() if name in FURTHER_PROGRAMS else ss.workload(name.rstrip("-0123456789")).build(**settings)
    program = Case.of(function, inputs, "x", checked=False).program
    made = origins_of(PLANNERS["sync"](program, lambda launch: 1.0), CostModel.load().estimate_ns)
    return replace(trace, origins=replace(trace.origins, launches=made.launches, dependencies=made.dependencies))


def warm_ns(runs):
    """Median makespan of the runs of each engine that followed a run of its own, in ns; the order of `Case.round_ns` is the seed's."""
    random, last, found = np.random.default_rng(0), None, {engine: [] for engine in runs}
    for index in range(len(next(iter(runs.values())).makespans_ns)):
        for engine in map(str, random.permutation(list(runs))):
            if engine == last:
                found[engine].append(runs[engine].makespans_ns[index])
            last = engine
    return {engine: float(np.median(times)) for engine, times in found.items()}


def main():
    details = "--details" in sys.argv
    errors = {}
    for folder in [Path(a) for a in sys.argv[1:] if not a.startswith("--")]:
        for case in sorted(folder.iterdir()):
            if not (case / "comparison.json").exists():
                continue
            runs = ss.load_comparison(case)
            trace = with_dependencies(case.name, runs.settings, runs["sync"].trace)
            tasks = tasks_of_program(trace)
            host = host_of(trace, tasks, CostModel.load())
            row = []
            measured = warm_ns(runs) if "--warm" in sys.argv else {e: float(np.median(r.makespans_ns)) for e, r in runs.items()}
            for engine in PLANNERS:
                predicted = simulated(trace, tasks, engine, 2, host)
                p, m = predicted.info.ledger["recorded_ns"] + host.last_wait_ns, measured[engine]
                errors[case.name, engine] = p / m - 1
                row.append(f"{engine} {m / 1e3:7.1f} {p / 1e3:7.1f} {100 * (p / m - 1):+6.1f} %")
            print(f"{case.name:22s}", " | ".join(row))
            if details:
                print("     waits", runs["graph-dual"].trace.info.plan, predicted.info.plan)
    v = np.abs(list(errors.values()))
    print(f"median {100 * np.median(v):.1f} %, worst {100 * v.max():.1f} %")
    for engine in PLANNERS:
        e = np.array([x for (n, g), x in errors.items() if g == engine])
        print(engine, f"median |e| {100 * np.median(np.abs(e)):.1f} bias {100 * np.median(e):+.1f} worst {100 * np.abs(e).max():.1f}")


main()
