"""Holistic Trace Analysis on the same Kineto files: are its numbers ours, and how long does each take?

    python -m venv /tmp/hta && /tmp/hta/bin/pip install HolisticTraceAnalysis==0.5.0 'pandas<3'
    python benchmarks/peers_hta.py --hta /tmp/hta/bin/python [FILE...]

Without files: those in tests/data/kineto, which PyTorch's profiler recorded on an H200, a generated one with communication, and a recorded
trace of ours that `Trace.to_kineto` wrote. Each side runs in a process of its own, one after the other. Results: results/peers_hta.json.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
ROOT = HERE.parents[1]
ROUNDING_US = 0.011
"""HTA rounds idle times to 0.01 µs, and each time is a double of a µs since the start of the machine."""
LAUNCHES = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cudaMemcpyAsync", "cudaMemsetAsync")
"""The calls that HTA's launch statistics accept."""
QUEUED = (*LAUNCHES, "cuLaunchKernel")
"""Those that its queue length accepts."""


# ---- Holistic Trace Analysis, in its own interpreter ----------------------------------------------------------------------------------


def measured_by_hta(path: str) -> dict[str, Any]:
    import logging
    import warnings

    os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    from hta.trace_analysis import TraceAnalysis

    begun = time.perf_counter()
    analysis = TraceAnalysis(trace_files={0: path}, trace_dir="/")
    loaded = time.perf_counter()
    idle = analysis.get_idle_time_breakdown(ranks=[0], visualize=False)[0]
    temporal = analysis.get_temporal_breakdown(visualize=False)
    launches = analysis.get_cuda_kernel_launch_stats(ranks=[0], visualize=False)[0]
    queue = analysis.get_queue_length_time_series(ranks=[0]).get(0)
    overlap = analysis.get_comm_comp_overlap(visualize=False)
    done = time.perf_counter()
    return {
        "idle": {f"{row.stream} {row.idle_category}": row.idle_time for row in idle.itertuples()},
        "busy": float((temporal["kernel_time(us)"] - temporal["idle_time(us)"])[0]),
        "compute": float(temporal["compute_time(us)"][0]),
        "launch count": len(launches),
        "launch delay median": _or_none(launches["launch_delay"].median()),
        "launch delay p95": _or_none(launches["launch_delay"].quantile(0.95)),
        "queue": {} if queue is None else {str(stream): int(rows.queue_length.max()) for stream, rows in queue.groupby("stream")},
        "communication overlap": _or_none(overlap["comp_comm_overlap_pctg"][0]),
        **_cost(begun, loaded, done),
    }


def _or_none(value: float) -> float | None:
    return None if value != value else float(value)  # noqa: PLR0124 — NaN


def _cost(begun: float, loaded: float, done: float) -> dict[str, float]:
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"load_s": loaded - begun, "metrics_s": done - loaded, "peak_mib": peak_mib}


# ---- ours ------------------------------------------------------------------------------------------------------------------------------


def measured_by_us(path: str) -> dict[str, Any]:
    """Measure a file with everything that we have, and again by HTA's definitions, outside the time that is taken."""
    import streamscope as ss
    from streamscope.analysis import (
        activity, average_concurrency, critical_path, late_kernels, launch_overhead_ns, queue_full_ns, queue_length, short_kernels,
        stream_overlap, summary, work_split,
    )  # fmt: skip

    begun = time.perf_counter()
    trace = ss.read(path)
    loaded = time.perf_counter()
    spans = trace.spans
    found = summary(trace).to_dict()
    for metric in (activity, average_concurrency, late_kernels, launch_overhead_ns, queue_full_ns, short_kernels, stream_overlap, work_split):
        metric(spans)
    critical_path(trace)
    for lane in {spans.lanes[lane] for lane in spans.lane[spans.kind >= ss.trace.SpanKind.KERNEL]}:
        queue_length(spans, lane)
    done = time.perf_counter()
    return {"ours": _ours(found), "by its definitions": _by_its_definitions(trace), **_cost(begun, loaded, done)}


def _ours(found: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers of our summary that stand for HTA's."""
    idle = {
        f"{stream['name'].removeprefix('stream ')} {cause}": stream["idle_us"][cause]
        for stream in found["streams"]
        for cause in ("host_wait", "kernel_wait", "other")
    }
    return {"idle": idle, "busy": found["gpu_busy_us"], "launch delay median": found["queue_time_us"]["median"], "overlap": found["overlap"]}


def _by_its_definitions(trace: Any) -> dict[str, Any]:
    import numpy as np

    from streamscope.analysis import idle_by_stream, queue_length, work_split
    from streamscope.analysis.intervals import union
    from streamscope.analysis.launches import call_rows
    from streamscope.analysis.work import Work, work_of
    from streamscope.trace.spans import DEVICE_KINDS, SpanKind

    spans = trace.spans
    device = np.flatnonzero(spans.is_kind(DEVICE_KINDS))
    idle = {
        f"{lane.removeprefix('stream ')} {cause}": getattr(split, f"{cause}_ns") / 1e3
        for lane, split in idle_by_stream(spans, launch_ns=0).items()
        for cause in ("host_wait", "kernel_wait", "other")
    }
    call = call_rows(spans, device)
    accepted = (call >= 0) & np.isin([spans.names[spans.name[row]] for row in call], LAUNCHES)
    delay_us = np.maximum(spans.start_ns[device[accepted]] - spans.end_ns[call[accepted]], 0) / 1e3
    compute = device[work_of(spans)[device] == Work.COMPUTE]
    known = spans.select(~spans.is_kind((SpanKind.LAUNCH, SpanKind.GRAPH_LAUNCH)) | np.isin(np.array(spans.names)[spans.name], QUEUED))
    queue = {spans.lanes[lane]: queue_length(known, spans.lanes[lane]).value for lane in np.unique(spans.lane[device])}
    shared = work_split(spans).communication_overlap
    return {
        "idle": idle,
        "busy": union(spans.start_ns[device], spans.end_ns[device]).length_ns / 1e3,
        "compute": union(spans.start_ns[compute], spans.end_ns[compute]).length_ns / 1e3,
        "launch count": int(accepted.sum()),
        "launch delay median": float(np.median(delay_us)) if len(delay_us) else None,
        "launch delay p95": float(np.quantile(delay_us, 0.95)) if len(delay_us) else None,
        "queue": {lane.removeprefix("stream "): int(value.max()) for lane, value in queue.items() if len(value)},
        "communication overlap": None if shared is None else round(shared * 100, 2),
    }


# ---- files and tables ------------------------------------------------------------------------------------------------------------------


def generated(path: Path, kernels: int, streams: int = 4) -> Path:
    """Write a file as PyTorch's profiler would: kernels, copies and sets on several streams, the last one's kernels communicate."""
    import numpy as np

    rng = np.random.default_rng(0)
    stream = rng.integers(streams, size=kernels)
    kind = rng.choice(3, size=kernels, p=(0.9, 0.07, 0.03))
    call_ns, gap_ns, device_ns = (rng.lognormal(mean, 0.5, kernels).astype(int) for mean in (8.3, 6.5, 9.0))
    call_start = np.cumsum(call_ns + gap_ns) - call_ns
    free = [0] * streams
    rows = ['{"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "python"}}']
    for index, (one, what, begun, took, length) in enumerate(
        zip(stream.tolist(), kind.tolist(), call_start.tolist(), call_ns.tolist(), device_ns.tolist(), strict=True), 1
    ):
        start = max(free[one] + 900, begun + took + 1_500)
        free[one] = start + length
        call = ("cudaLaunchKernel", "cudaMemcpyAsync", "cudaMemsetAsync")[what]
        category = ("kernel", "gpu_memcpy", "gpu_memset")[what]
        name = ("ncclDevKernel_AllReduce_Sum_f16_RING_LL" if one == streams - 1 else f"gemm_{index % 40}", "Memcpy DtoD", "Memset (Device)")[what]
        size = '"grid": [132, 1, 1], "block": [256, 1, 1], "registers per thread": 32, "shared memory": 0' if what == 0 else '"bytes": 4096'
        rows.append(
            f'{{"ph": "X", "cat": "cuda_runtime", "name": "{call}", "pid": 77, "tid": 77, "ts": {begun / 1e3:.3f}, "dur": {took / 1e3:.3f}, '
            f'"args": {{"External id": {index}, "cbid": 211, "correlation": {index}}}}}'
        )
        rows.append(
            f'{{"ph": "X", "cat": "{category}", "name": "{name}", "pid": 0, "tid": {one + 7}, "ts": {start / 1e3:.3f}, "dur": {length / 1e3:.3f}, '
            f'"args": {{"External id": {index}, "device": 0, "context": 1, "stream": {one + 7}, "correlation": {index}, {size}}}}}'
        )
        flow = f'"id": {index}, "cat": "ac2g", "name": "ac2g"'
        rows.append(f'{{"ph": "s", {flow}, "pid": 77, "tid": 77, "ts": {begun / 1e3:.3f}}}')
        rows.append(f'{{"ph": "f", "bp": "e", {flow}, "pid": 0, "tid": {one + 7}, "ts": {start / 1e3:.3f}}}')
    head = '{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "generated", "numSms": 132}], "baseTimeNanoseconds": 0, "traceEvents": [\n'
    path.write_text(head + ",\n".join(rows) + "\n]}\n", encoding="utf-8")
    return path


def exported(folder: Path) -> list[Path]:
    """Write traces of ours as Kineto files: copies beside kernels under every engine, on the simulated device."""
    import streamscope as ss

    function, inputs = ss.workload("pipeline").build()
    runs = ss.compare(function, *inputs, device="simulated", progress=False)
    return [runs[engine].trace.to_kineto(folder / f"exported-{engine}.json") for engine in runs]


def without_waits(path: Path, folder: Path) -> Path:
    """Write a file without its rows of ``cuda_sync``: waits, which HTA takes for kernels of their streams."""
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    content = json.loads(text)
    content["traceEvents"] = [row for row in content["traceEvents"] if row.get("cat") != "cuda_sync"]
    target = folder / f"without-waits-{path.name.removesuffix('.gz')}"
    target.write_text(json.dumps(content), encoding="utf-8")
    return target


def side(interpreter: str, which: str, path: Path) -> dict[str, Any]:
    """Measure a file in a process of its own."""
    command = [interpreter, str(HERE), "--side", which, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{which} failed on {path.name}: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def differences(theirs: dict[str, Any], same: dict[str, Any]) -> list[str]:
    """Name the numbers of HTA that ours by its definitions are not, where it has one."""
    wrong = []
    for name in ("busy", "compute", "launch count", "launch delay median", "launch delay p95", "communication overlap"):
        if not _equal(theirs[name], same[name]):
            wrong.append(f"{name}: {theirs[name]} here {same[name]}")
    for name in ("idle", "queue"):
        wrong += [
            f"{name} {key}: {value} here {same[name].get(key)}" for key, value in theirs[name].items() if not _equal(value, same[name].get(key))
        ]
    return wrong


def _equal(one: float | None, other: float | None) -> bool:
    return one is other or (one is not None and other is not None and abs(one - other) <= ROUNDING_US + 1e-6 * abs(one))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--hta", default="/tmp/hta/bin/python")
    parser.add_argument("--kernels", type=int, default=100_000)
    parser.add_argument("--many", type=int, default=1_000_000)
    parser.add_argument("--side", choices=("hta", "ours"))
    options = parser.parse_args()
    if options.side:
        measured = {"hta": measured_by_hta, "ours": measured_by_us}[options.side]
        print(json.dumps(measured(str(options.files[0]))))
        return
    compare(options)


def compare(options: argparse.Namespace) -> None:
    from streamscope.trace.trace import library_versions

    with tempfile.TemporaryDirectory() as folder:
        files = options.files or sorted((ROOT / "tests" / "data" / "kineto").glob("*.json.gz"))
        files += [generated(Path(folder, "generated.json"), 5_000), *exported(Path(folder))]
        same: dict[str, Any] = {}
        for path in files:
            theirs, ours = side(options.hta, "hta", path), side(sys.executable, "ours", path)
            wrong = differences(theirs, ours["by its definitions"])
            same[path.name] = {"hta": theirs, **ours, "differs": wrong}
            if wrong:
                again = side(options.hta, "hta", without_waits(path, Path(folder)))
                same[path.name]["differs without cuda_sync"] = differences(again, ours["by its definitions"])
            print(f"{path.name}: {'equal' if not wrong else '; '.join(wrong)} {same[path.name].get('differs without cuda_sync', '')}")
        large = generated(Path(folder, "large.json"), options.kernels)
        theirs, ours = side(options.hta, "hta", large), side(sys.executable, "ours", large)
        times = {"kernels": options.kernels, "mib": large.stat().st_size / 2**20}
        times |= {name: {key: side[key] for key in ("load_s", "metrics_s", "peak_mib")} for name, side in (("hta", theirs), ("ours", ours))}
        both = [sum(times[name][key] for key in ("load_s", "metrics_s")) for name in ("hta", "ours")]
        times["times_faster"] = both[0] / both[1]
        times["differs"] = differences(theirs, ours["by its definitions"])
        print(json.dumps(times, indent=2))
        large.unlink()
        many = generated(Path(folder, "many.json"), options.many)
        found = side(sys.executable, "ours", many)
        million = {"kernels": options.many, "mib": many.stat().st_size / 2**20} | {k: found[k] for k in ("load_s", "metrics_s", "peak_mib")}
        print(json.dumps(million, indent=2))
    content = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": library_versions() | {"HolisticTraceAnalysis": "0.5.0"},
        "machine": {"platform": sys.platform, "processor": platform.machine(), "cores": os.cpu_count()},
        "files": same,
        "speed": times,
        "many": million,
    }
    (HERE.parent / "results" / "peers_hta.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
