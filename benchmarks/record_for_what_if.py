"""Verifies predictions for the workloads at several sizes and the further programs, for `what_if_accuracy.py`: GPU, half a minute.

    python benchmarks/record_for_what_if.py FOLDER [SECONDS]

Of each it keeps what `ss.verify` had: the sync trace, and the makespans of all engines.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from further_programs import FURTHER_PROGRAMS

import streamscope as ss
from streamscope.predicting.verify import verify

REPEATS = 120
SIZES: dict[str, list[dict[str, int]]] = {
    "elementwise-chain": [{}, {"length": 100, "size": 1 << 20}, {"length": 40, "size": 1 << 24}],
    "conv-backward": [{}, {"batch": 8}, {"channels": 256, "size": 14, "batch": 32}],
    "branches": [{}, {"branches": 8, "size": 1 << 20}, {"branches": 4, "size": 1 << 22}, {"size": 1 << 18, "copies": 1}],
    "pipeline": [{}, {"chunks": 8, "size": 1 << 16}],
    "cnn": [{}, {"size": 64, "batch": 8}, {"size": 64, "channels": 256, "batch": 16}],
    "attention": [{}, {"length": 512, "batch": 4}, {"length": 1024, "heads": 16, "batch": 2}],
    "lstm": [{}, {"width": 1024, "batch": 64}],
    "resnet-block": [{}, {"size": 28, "batch": 16}, {"size": 56, "batch": 32}],
}
"""The settings of each workload; the first are the defaults."""


def cases() -> list[tuple[str, Any, dict[str, int]]]:
    """Return name, how it is built, and settings of everything that is recorded; the defaults and the further programs first."""
    listed: list[tuple[int, str, Any, dict[str, int]]] = []
    for name, sizes in SIZES.items():
        for rank, settings in enumerate(sizes):
            listed.append((rank, name if not rank else f"{name}-{rank}", lambda n=name, s=settings: ss.workload(n).build(**s), settings))
    listed += [(0, name, make, {}) for name, make in FURTHER_PROGRAMS.items()]
    return [(name, make, settings) for _, name, make, settings in sorted(listed, key=lambda one: one[0])]


def main(folder: Path, seconds: float) -> None:
    """Record what the time allows."""
    folder.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    for name, make, settings in cases():
        if time.monotonic() - begin > seconds:
            print("out of time before", name)
            return
        function, inputs = make()
        device = "cuda" if "--simulated" not in sys.argv else "simulated"
        found = verify(function, *inputs, device=device, repeats=REPEATS, progress=False)
        found.source.to_parquet(folder / f"{name}.parquet")
        makespans = {engine: {"second": each.makespans_ns.tolist(), "first": each.first_ns.tolist()} for engine, each in found.items()}
        (folder / f"{name}.json").write_text(json.dumps({"settings": settings, "makespans_ns": makespans}), encoding="utf-8")
        print(f"{time.monotonic() - begin:6.1f} s {name:24s} {found!r}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 110.0)
