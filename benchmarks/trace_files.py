"""What it takes to write and read a trace in each format: seconds and MiB, on this machine's processor.

    python benchmarks/trace_files.py

A trace of 50,000 launches and their kernels on four streams, and 1,000,000 spans as Parquet. Results: results/trace_files.json.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import streamscope as ss
from streamscope.trace import DeviceInfo, SpanKind, SpanTable, Trace, TraceInfo
from streamscope.trace.info import library_versions

STREAMS, NAMES = 4, 40
REPEATS = 3


def trace_of(spans: int) -> Trace:
    """Return a trace of launches, each with a kernel, on several streams that run side by side."""
    launches = spans // 2
    call = np.arange(launches)
    start_ns = np.concatenate([call * 5_000, call * 5_000 + 6_000])
    order = np.argsort(start_ns, kind="stable")
    kernel = np.arange(spans) >= launches
    columns: dict[str, Any] = {
        "kind": np.where(kernel, SpanKind.KERNEL, SpanKind.LAUNCH),
        "name": np.where(kernel, 1 + np.tile(call, 2) % NAMES, 0),
        "lane": np.where(kernel, 1 + np.tile(call, 2) % STREAMS, 0),
        "start_ns": start_ns,
        "end_ns": start_ns + np.where(kernel, 15_000, 3_000),
        "operation": np.tile(call, 2),
        "part": np.zeros(spans, int),
        "correlation": np.tile(call, 2),
        "basis": np.zeros(spans, int),
        "blocks": np.where(kernel, 132, 0),
        "threads": np.where(kernel, 256, 0),
        "bytes": np.where(kernel, 1 << 20, 0),
        "flops": np.where(kernel, 1 << 18, 0),
        "symbol": np.full(spans, -1),
        "graph_node": np.full(spans, -1),
    }
    names = ("launch", *(f"gemm_{index}" for index in range(NAMES)))
    lanes = ("host", *(f"stream {index + 7}" for index in range(STREAMS)))
    table = SpanTable(**{name: values[order] for name, values in columns.items()}, names=names, lanes=lanes)
    return Trace(table, TraceInfo("async", "generated", DeviceInfo("simulated", "generated")))


def least_seconds(work: Any) -> float:
    """Return the least of a few times that a call takes."""
    times = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return min(times)


def formats(trace: Trace, folder: Path) -> dict[str, Any]:
    """Measure each format that is written, and read where it is."""
    writers = {
        "kineto": (trace.to_kineto, "t.json"),
        "kineto, packed": (trace.to_kineto, "t.json.gz"),
        "perfetto": (trace.to_perfetto, "t.pftrace"),
        "parquet": (trace.to_parquet, "t.parquet"),
        "csv": (trace.to_csv, "t.csv"),
    }
    found = {}
    for name, (write, file) in writers.items():
        path = folder / file
        row = {"write_s": least_seconds(lambda write=write, path=path: write(path))}
        content = path.read_bytes()
        row |= {"mib": len(content) / 2**20, "packed_mib": len(gzip.compress(content, 6)) / 2**20}
        if name not in ("perfetto", "csv"):
            row["read_s"] = least_seconds(lambda path=path: ss.read(path))
        found[name] = row
        print(name, row)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spans", type=int, default=100_000)
    parser.add_argument("--many", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        each = formats(trace_of(options.spans), Path(folder))
        many, path = trace_of(options.many), Path(folder, "many.parquet")
        million = {"write_s": least_seconds(lambda: many.to_parquet(path)), "read_s": least_seconds(lambda: ss.read(path))}
        million["mib"] = path.stat().st_size / 2**20
        print(million)
    content = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": library_versions(),
        "machine": {"platform": sys.platform, "processor": platform.machine(), "cores": os.cpu_count()},
        "spans": options.spans,
        "formats": each,
        "parquet": {"spans": options.many} | million,
    }
    (Path(__file__).parent / "results" / "trace_files.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
