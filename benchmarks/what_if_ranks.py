"""Predictions of jobs beside runs: a straggler repaired, links of another speed, nothing hidden, kernels left out; on the simulated host.

    python benchmarks/what_if_ranks.py [RESULT.json]

Each case is a step on 2 to 4 simulated GPUs, cut into the traces of its ranks. The change is predicted from these, and the same change of
the program is run. Nothing is measured: it shows how well a replay knows what a change does, not how well the model knows a GPU.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import Any

import numpy as np
from provenance import keep, provenance

from streamscope.devices.simulated import SimulatedDevice
from streamscope.ranks.what_if import JobPrediction

sys.path.insert(0, str(Path(__file__).parents[1]))
Step: Any = importlib.import_module("tests.ranks.simulated_jobs").Step

SHAPES = (
    Step(columns=(1024, 512, 2048, 1024), late_layers=(0, 1, 2, 3), extra=4),
    Step(gpus=3, rows=4096, columns=(2048, 256, 1024), late_layers=(1,), extra=20),
    Step(gpus=4, rows=1024, columns=(512, 4096, 1024, 512, 2048), late=2, late_layers=(0, 3), extra=10),
)
ENGINES = ("async", "dual", "graph", "graph-dual")


@dataclass(frozen=True)
class Case:
    """A change: what it is called, how it is predicted, and the step that has it."""

    change: str
    step: Any
    truth: Any
    predict: Callable[[JobPrediction], JobPrediction]


def cases() -> Iterator[Case]:
    """Return all cases."""
    for shape in SHAPES:
        for engine in ENGINES:
            step = replace(shape, engine=engine)
            yield Case("like", step, step.repaired, partial(_like_the_first, late=step.late))
            yield Case("without", step, step.repaired, methodcaller("without", "tanh"))
            for speed in (0.5, 2.0):
                yield Case(f"link × {speed:g}", step, replace(step, link_speed=speed), methodcaller("link", scale=speed))
        # With one compute stream, only communication runs beside kernels.
        yield Case("serial", replace(shape, engine="dual"), replace(shape, engine="async"), JobPrediction.serial)


def _like_the_first(found: JobPrediction, late: int) -> JobPrediction:
    return found.what_if(late).like(0)


def main() -> None:
    """Predict and run each case, and keep the table."""
    rows, every = [], list[float]()
    for case in cases():
        job = case.step.run()
        predicted, anew = case.predict(job.what_if()), case.truth.run()
        run = case.truth.run(case.step if case.truth.engine == case.step.engine else None)  # "dual" and "async" are two plans.
        waiting = [float(np.mean([each.waiting_us for each in one.times])) for one in (predicted.job, run)]
        error = predicted.job.length_ns / run.length_ns - 1
        every.append(abs(error))
        rows.append(
            {
                "change": case.change,
                "gpus": case.step.gpus,
                "engine": case.step.engine,
                "recorded_us": round(job.length_ns / 1e3, 1),
                "replay_error": round(predicted.replay_error, 5),
                "predicted_us": round(predicted.job.length_ns / 1e3, 1),
                "run_us": round(run.length_ns / 1e3, 1),
                "error": round(error, 4),
                "planned_anew_us": round(anew.length_ns / 1e3, 1),
                "predicted_waiting_us": round(waiting[0], 1),
                "run_waiting_us": round(waiting[1], 1),
            }
        )
        print(*rows[-1].values(), sep="\t", flush=True)
    found = {"cases": len(rows), "median_error": round(float(np.median(every)), 4), "worst_error": round(max(every), 4)}
    print(found)
    keep("what_if_ranks.json", {**provenance(SimulatedDevice()), **found, "rows": rows})


if __name__ == "__main__":
    main()
