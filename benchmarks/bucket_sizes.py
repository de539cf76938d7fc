"""Sizes of buckets and priorities of a data-parallel step under ``graph-dual``: measured in turns, beside the simulated host's times.

    python benchmarks/bucket_sizes.py GPUS FILE

Steps follow each other without a pause. The simulated host has the cost model that this machine would take for its GPU.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

CASES = ((6, 2048, 1024), (4, 4096, 1024))
BUCKETS_KIB, PRIORITIES = (0, 1024, 4096, 8192), (0, 1)
TURNS, RUNS = 15, 5


def main() -> None:
    from several_gpus import simulated

    import streamscope as ss
    from streamscope.engines.prepared import Prepared, prepare_traced
    from streamscope.workloads import WORKLOADS

    gpus, file = int(sys.argv[1]), Path(sys.argv[2])
    device = ss.open_device("cuda", gpus=gpus)
    rows = []
    for layers, width, length in CASES:
        prepared: dict[tuple[int, int], Prepared] = {}
        for bucket, priority in product(BUCKETS_KIB, PRIORITIES):
            settings = {"gpus": gpus, "layers": layers, "width": width, "rows": length, "bucket": bucket, "priority": priority}
            function, inputs = WORKLOADS["data-parallel"].build(**settings)
            each = prepared[bucket, priority] = prepare_traced(function.trace(*inputs), "graph-dual", device)
            each.load(inputs)
            for _ in range(3):
                each.run()
        times: dict[tuple[int, int], list[float]] = {key: [] for key in prepared}
        for _ in range(TURNS):
            for key, each in prepared.items():
                each.run()
                each.wait()
                begin = time.perf_counter_ns()
                for _ in range(RUNS):
                    each.run()
                each.wait()
                times[key].append((time.perf_counter_ns() - begin) / RUNS / 1e3)
        for (bucket, priority), found in times.items():
            program = prepared[bucket, priority].program
            modelled_us = simulated(program, "graph-dual", device.info.name).info.ledger["recorded_ns"] / 1e3
            rows.append(
                {"layers": layers, "width": width, "rows": length, "bucket_kib": bucket, "priority": priority}
                | {"measured_us": statistics.median(found), "simulated_us": modelled_us}
            )
            print(rows[-1], flush=True)
    content = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "device": device.info.name, "gpus": gpus, "rows": rows}
    file.write_text(json.dumps(content, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
