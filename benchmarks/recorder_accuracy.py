"""How far the event recorder's kernel durations are from CUPTI's, for every engine, on the GPU of this machine.

The same prepared programs are recorded by both recorders, events first, so that CUPTI's subscription does not disturb the events.
Durations are joined by operation and part; CUPTI's is the median of several runs.

    python benchmarks/recorder_accuracy.py [RESULT.json]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from provenance import provenance

import streamscope as ss
from streamscope.analysis import gpu_busy_ns, launch_latency_ns, overlap_fraction
from streamscope.engines import PLANNERS
from streamscope.engines.prepared import Prepared
from streamscope.files import written_whole
from streamscope.recording.cupti import CuptiRecorder
from streamscope.recording.events import EventRecorder
from streamscope.trace.spans import SpanKind
from streamscope.trace.trace import Trace
from streamscope.tracing import ProgramFunction, program
from streamscope.workloads import WORKLOADS

RUNS = 9
ALLOWED_US, ALLOWED_SHARE = 0.3, 0.05


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


def kernel_durations_us(trace: Trace) -> dict[tuple[int, int], float]:
    kernels = trace.spans.of_kind([SpanKind.KERNEL])
    return {(int(o), int(p)): float(d) / 1e3 for o, p, d in zip(kernels.operation, kernels.part, kernels.duration_ns, strict=True)}


def compare_recorders(device: Any, name: str, function: ProgramFunction, inputs: list[Any]) -> dict[str, Any]:
    traced = function.trace(*inputs)
    recorder = EventRecorder.on(device)
    results: dict[str, dict[str, Any]] = {}
    prepared: dict[str, Prepared] = {}
    for engine in PLANNERS:
        prepared[engine] = ss.prepare(traced, engine=engine, device=device)
        prepared[engine].load(inputs)
        for _ in range(3):
            prepared[engine].run()
            prepared[engine].wait()
    events = {engine: recorder.record(one) for engine, one in prepared.items()}
    for engine, one in prepared.items():
        cupti = CuptiRecorder(device).record(one, RUNS)
        by_run = [kernel_durations_us(trace) for trace in cupti]
        reference = {key: float(np.median([run[key] for run in by_run])) for key in by_run[0]}
        measured = kernel_durations_us(events[engine])
        keys = sorted(reference)
        expected, found = np.array([reference[k] for k in keys]), np.array([measured[k] for k in keys])
        error = np.abs(found - expected)
        results[engine] = {
            "calibration": dict(events[engine].info.calibration),
            "kernels": len(keys),
            "cupti_us": [round(v, 3) for v in expected.tolist()],
            "events_us": [round(v, 3) for v in found.tolist()],
            "median_error_us": float(np.median(error)),
            "p90_error_us": float(np.percentile(error, 90)),
            "median_error_share": float(np.median(error / expected)),
            "within": bool(np.median(error - np.maximum(ALLOWED_US, ALLOWED_SHARE * expected)) <= 0),
            "kernels_within_share": float(np.mean(error <= np.maximum(ALLOWED_US, ALLOWED_SHARE * expected))),
            "overlap": {"events": overlap_fraction(events[engine].spans), "cupti": [overlap_fraction(t.spans) for t in cupti]},
            "gpu_busy_us": {"events": gpu_busy_ns(events[engine].spans) / 1e3, "cupti": [gpu_busy_ns(t.spans) / 1e3 for t in cupti]},
            "launch_latency_us": {
                "events": float(np.median(launch_latency_ns(events[engine].spans))) / 1e3,
                "cupti": float(np.median([np.median(launch_latency_ns(t.spans)) for t in cupti])) / 1e3,
            },
        }
        r = results[engine]
        print(
            f"{name:18} {engine:11} n={r['kernels']:4} median error {r['median_error_us']:.3f} us ({100 * r['median_error_share']:.1f} %) "
            f"p90 {r['p90_error_us']:.3f} within {r['kernels_within_share']:.2f} overlap {r['overlap']['events']:.2f} / "
            f"{np.median(r['overlap']['cupti']):.2f} busy {r['gpu_busy_us']['events']:.1f} / {np.median(r['gpu_busy_us']['cupti']):.1f} "
            f"latency {r['launch_latency_us']['events']:.1f} / {r['launch_latency_us']['cupti']:.1f}",
            flush=True,
        )
    return {"engines": results}


def main() -> None:
    device: Any = ss.open_device("cuda")
    target = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "results" / "recorder_accuracy.json")
    programs = {"durations": durations_program()} | {name: WORKLOADS[name].build() for name in WORKLOADS}
    content = {
        "what": "kernel durations, event recorder against CUPTI (median of runs), by engine",
        "allowed": {"us": ALLOWED_US, "share": ALLOWED_SHARE, "rule": "the larger of the two, median over kernels"},
        **provenance(device),
        "cupti_runs": RUNS,
        "programs": {name: compare_recorders(device, name, *made) for name, made in programs.items()},
    }
    with written_whole(target) as path:
        path.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
