"""How long `ss.read_ranks` takes, and how much memory: generated jobs of 8 ranks with 100,000 kernels each, and of 1,000 with 2,000.

    python benchmarks/many_ranks.py [RESULT.json]
    python benchmarks/many_ranks.py --make RANKS KERNELS FOLDER    # Kineto files of such a job, as PyTorch's profiler writes them
    python benchmarks/many_ranks.py --read FOLDER                  # read, matched, on one clock, and all that `to_dict` has

Each job is read in a process of its own, with two beside it. Memory is the sum over all three (PSS), at its highest. The wall clock counts
from the first line of the program, ``import streamscope`` included, until all that `to_dict` has is there; of three runs, the quickest.
Modules are compiled in the first run, as they are where a package is installed; `processor_s` is of the process and all below it.
"""

from __future__ import annotations

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

import numpy as np
from provenance import keep

from streamscope.trace.info import library_versions

JOBS = ((8, 100_000, 6.0, 1.5), (1_000, 2_000, 60.0, 2.0))
"""Ranks, kernels of each, and the seconds and GiB that they may take."""
KERNELS_A_REDUCE = 20
"""Kernels between two all-reduces."""
REDUCES_A_STEP = 10
NAMES = tuple(f"void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_128x{32 * at}_32x{at}_nn_align8>(Params)" for at in range(1, 9))
NCCL = "ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
BASE_NS = 1_763_000_000_000_000_000


def make(ranks: int, kernels: int, folder: Path) -> None:
    """Write the Kineto files of a job. Rank 1 is late by 100 µs in each step; its clock, like all, is off by up to a second."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    rounds = kernels // KERNELS_A_REDUCE
    work_us = rng.uniform(4, 12, (rounds, KERNELS_A_REDUCE - 1))
    jitter_us = rng.normal(0, 1.0, (ranks, rounds))
    late_us = np.zeros((ranks, rounds))
    late_us[1 % ranks, ::REDUCES_A_STEP] = 100
    begin_us = np.zeros((ranks, rounds))
    end_us = np.zeros(rounds)
    now = 50.0
    for at in range(rounds):
        begin_us[:, at] = now
        end_us[at] = (now + work_us[at].sum() + np.abs(jitter_us[:, at]) + late_us[:, at]).max() + 60
        now = end_us[at] + 5
    for rank in range(ranks):
        shift_us = 0.0 if rank == 0 else float(rng.uniform(-1e6, 1e6))
        _write(folder / f"rank{rank}.json", rank, ranks, begin_us[rank], work_us, np.abs(jitter_us[rank]) + late_us[rank], end_us, shift_us)


def _write(
    path: Path, rank: int, ranks: int, begin_us: Any, work_us: Any, late_us: Any, end_us: Any, shift_us: float
) -> None:  # fmt: skip
    events, correlation = [], 0
    group = f'"[{", ".join(map(str, range(min(ranks, 8))))}{", ..." if ranks > 8 else ""}]"'
    steps: list[tuple[float, float]] = []
    for number in range(len(begin_us)):
        now = begin_us[number] + shift_us
        if number % REDUCES_A_STEP == 0:
            steps.append((now - 20, end_us[min(number + REDUCES_A_STEP, len(end_us)) - 1] + shift_us - 20))
        for place, length in enumerate([*work_us[number], 0.0]):
            correlation += 1
            called = now - 15
            last = place == KERNELS_A_REDUCE - 1
            if place == 0:
                length += late_us[number]  # noqa: PLW2901 — one more argument would say less.
            if last:
                length = end_us[number] + shift_us - now  # noqa: PLW2901
            op = f'"name": "{"nccl:all_reduce" if last else "aten::mm"}", "pid": {4000 + rank}, "tid": {4000 + rank}'
            events.append(
                f'  {{"ph": "X", "cat": "cpu_op", {op}, "ts": {called - 2:.3f}, "dur": 6.000, '
                f'"args": {{"External id": {correlation}, "Ev Idx": {correlation}}}}}'
            )
            events.append(
                f'  {{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": {4000 + rank}, "tid": {4000 + rank}, '
                f'"ts": {called:.3f}, "dur": 2.500, "args": {{"External id": {correlation}, "cbid": 211, "correlation": {correlation}}}}}'
            )
            name, stream = (NCCL, 20) if last else (NAMES[(number + place) % len(NAMES)], 7)
            collective = (
                f', "Collective name": "allreduce", "In msg nelems": 1048576, "Out msg nelems": 1048576, "Group size": {ranks}, '
                f'"dtype": "Half", "Process Group Name": "0", "Process Group Ranks": {group}, "Seq": {number}'
                if last
                else ""
            )
            events.append(
                f'  {{"ph": "X", "cat": "kernel", "name": "{name}", "pid": 0, "tid": {stream}, "ts": {now:.3f}, "dur": {length:.3f}, '
                f'"args": {{"External id": {correlation}, "queued": 0, "device": 0, "context": 1, "stream": {stream}, '
                f'"correlation": {correlation}, "registers per thread": 90, "shared memory": 49152, "blocks per SM": 1.939394, '
                f'"warps per SM": 15.515152, "grid": [256, 1, 1], "block": [256, 1, 1], "est. achieved occupancy %": 24{collective}}}}}'
            )
            now += length + 0.5
    for number, (begin, end) in enumerate(steps):
        events.append(
            f'  {{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#{number}", "pid": {4000 + rank}, "tid": {4000 + rank}, '
            f'"ts": {begin:.3f}, "dur": {end - begin:.3f}, "args": {{"External id": 0}}}}'
        )
    head = (
        f'{{"schemaVersion": 1, "deviceProperties": [{{"id": 0, "name": "NVIDIA H100", "numSms": 132}}], "baseTimeNanoseconds": {BASE_NS}, '
        f'"distributedInfo": {{"backend": "nccl", "rank": {rank}, "world_size": {ranks}}}, "displayTimeUnit": "ms", "traceEvents": [\n'
    )
    path.write_text(head + ",\n".join(events) + "\n]}\n", encoding="utf-8")


def read(folder: Path) -> None:
    """Read a job, and print its duration and its findings."""
    begin = time.perf_counter()
    import streamscope as ss

    loaded = time.perf_counter()
    job = ss.read_ranks(folder, executor="processes", progress=False)
    there = time.perf_counter()
    found = job.to_dict()
    done = time.perf_counter()
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(
        json.dumps(
            {
                "import_s": loaded - begin,
                "read_s": there - loaded,
                "told_s": done - there,
                "processor_s": sum(each.ru_utime + each.ru_stime for each in (own, children)),
                "ranks": len(found["ranks"]),
                "collectives": found["collectives"],
                "late": found["late"],
                "widest_error_us": max(each["offset_error_us"] or 0.0 for each in found["ranks"]),
            }
        )
    )


def measured(folder: Path, compiled: str) -> dict[str, Any]:
    """Read a job in a process of its own, and return its output, wall clock and memory."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    begin = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, __file__, "--read", str(folder)], stdout=subprocess.PIPE, text=True,
        env={**environment, "PYTHONPYCACHEPREFIX": compiled},
    )  # fmt: skip
    most = 0
    while process.poll() is None:
        most = max(most, sum(map(_pss, _family(process.pid))))
        time.sleep(0.05)
    taken = time.perf_counter() - begin
    assert process.stdout is not None
    return {**json.loads(process.stdout.read()), "wall_s": taken, "gib": most / 2**30}


def _family(pid: int) -> list[int]:
    """Return a process and all below it."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    except OSError:
        return [pid]
    return [pid, *(each for child in children for each in _family(int(child)))]


def _pss(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def main() -> None:
    """Make, read and keep the numbers of both jobs."""
    rows = []
    for ranks, kernels, most_s, most_gib in JOBS:
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as compiled:
            make(ranks, kernels, Path(folder))
            size = sum(path.stat().st_size for path in Path(folder).iterdir())
            runs = [measured(Path(folder), compiled) for _ in range(3)]
        best = min(runs, key=lambda run: float(run["wall_s"]))
        rows.append(
            {"kernels": kernels, "bytes": size, **best, "most_s": most_s, "most_gib": most_gib, "walls_s": [run["wall_s"] for run in runs]}
            | {"load": os.getloadavg()[0]}
        )
        print(rows[-1], flush=True)
    content = {
        "what": "generated Kineto files: a call, an operator and a kernel for each kernel, and a collective for every 20",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": library_versions(),
        "machine": {"processor": platform.machine(), "cores": os.cpu_count()},
        "jobs": rows,
    }
    keep("many_ranks.json", content)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--make"]:
        make(int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
    elif sys.argv[1:2] == ["--read"]:
        read(Path(sys.argv[2]))
    else:
        main()
