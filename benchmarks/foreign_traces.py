"""What a foreign trace costs: predicting it under a CUDA graph, and refusing a small file that would become large.

    python benchmarks/foreign_traces.py [--before TOOLKIT]

Each in a process of its own: seconds of processor time, and MiB of memory at most. ``--before`` names the ``toolkit`` folder of another
version, which takes turns with this one. Results: results/foreign_traces.json.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from peers_hta import generated

from streamscope.trace.info import library_versions

PEAK = """
def peak_mib():  # What getrusage says is at least what the parent had.
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))
"""
PREDICT = (
    PEAK
    + """
import json, sys, time
import streamscope as ss
begun = time.process_time()
trace = ss.read(sys.argv[1])
read = time.process_time()
predicted = ss.what_if(trace, engine="graph").predicted_ns
done = time.process_time()
print(json.dumps({"read_s": read - begun, "predict_s": done - read, "peak_mib": peak_mib(), "predicted_ns": predicted}))
"""
)
REFUSE = (
    PEAK
    + """
import json, sys, time
import streamscope as ss
from streamscope.errors import TraceError
from streamscope.formats.kineto import reader
base, begun = peak_mib(), time.process_time()
try:
    ss.read(sys.argv[1])
    raise SystemExit("it was read")
except TraceError as error:
    said = error.message
print(json.dumps({"refuse_s": time.process_time() - begun, "more_mib": peak_mib() - base}))
"""
)
BOMBS = {
    "empty events": (b"[", b"{},", 80_000_000, b"{}]"),
    "lists in one event": (b'{"traceEvents":[{"ph":"X","args":{"correlation":[', b"[],", 10_900_000, b"[]]}}]}"),
    "dictionaries beside the events": (b'{"deviceProperties":[', b"{},", 10_900_000, b'{}],"traceEvents":[]}'),
    "one name": (b'[{"name":"', b"a", 240_000_000, b'"}]'),
}
"""JSON that compresses a thousand times: what it begins with, what is repeated how often, what it ends with."""


def bomb(path: Path, head: bytes, unit: bytes, count: int, tail: bytes) -> Path:
    """Write a compressed file; return its path."""
    with gzip.open(path, "wb", compresslevel=9) as file:
        file.write(head)
        for _ in range(count // 4096):
            file.write(unit * 4096)
        file.write(tail)
    return path


def measured(code: str, toolkit: Path, path: Path) -> dict[str, Any]:
    """Run code on a file in a process of its own, and return what it prints."""
    environment = os.environ | {"PYTHONPATH": str(toolkit)}
    made = subprocess.run([sys.executable, "-c", code, str(path)], env=environment, check=True, capture_output=True)
    found: dict[str, Any] = json.loads(made.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", type=int, default=100_000)
    parser.add_argument("--before", type=Path)
    options = parser.parse_args()
    toolkits = {"now": Path(__file__).resolve().parents[1] / "toolkit"} | ({"before": options.before} if options.before else {})
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = generated(Path(folder, "foreign.json"), options.kernels)
        for turn in range(2):
            for name, toolkit in toolkits.items():
                row = measured(PREDICT, toolkit, path)
                print(name, turn, row, flush=True)
                kept = found.setdefault("predicted", {}).setdefault(name, row)
                found["predicted"][name] = min(kept, row, key=lambda one: one["predict_s"])
        for what, parts in BOMBS.items():
            path = bomb(Path(folder, "bomb.json.gz"), *parts)
            rows = {name: measured(REFUSE, toolkit, path) for name, toolkit in toolkits.items()}
            found.setdefault("refused", {})[what] = {"file_bytes": path.stat().st_size} | rows
            print(what, found["refused"][what], flush=True)
    content = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": library_versions(),
        "machine": {"platform": sys.platform, "processor": platform.machine(), "cores": os.cpu_count()},
        "kernels": options.kernels,
        **found,
    }
    (Path(__file__).parent / "results" / "foreign_traces.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
