"""Damages the folders of jobs at random, or mixes two runs in one, and reads them: ``python -m tests.mutating_ranks 5000 0``.

Each case prints one line of JSON. ``"read"``: as it was. ``"marked"``: read, with a warning. ``"refused"``: an error of ours. All else is a
fault: ``"silent"`` is a folder that lacks something, or has files of two runs, and says nothing of it.
"""

from __future__ import annotations

import gzip
import json
import resource
import signal
import sys
import tempfile
from pathlib import Path
from random import Random

import numpy as np
from tests.formats.kineto_files import call, content, dumps, event, kernel
from tests.mutating import LONGEST_S, MOST_BYTES, mutated_bytes, mutated_json

import streamscope as ss
from streamscope.errors import StreamscopeError

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
RANKS, STEPS = 3, 40
KINDS = ("damage", "damage several", "damage, skipped", "mixture", "missing", "twice", "renamed", "beside", "saved")


def run_files(seed: int, *, late_s: float = 0.0) -> dict[str, bytes]:
    """Return the Kineto files of a run: kernels of about 100 µs, each with an all-reduce behind it, on clocks that are off."""
    rng = np.random.default_rng(seed)
    offset_ns = rng.uniform(-1e9, 1e9, RANKS) + late_s * 1e9
    events: list[list[dict]] = [[] for _ in range(RANKS)]
    now = 1_000_000.0
    for step in range(STEPS):
        ends = now + rng.uniform(60_000, 140_000) + rng.uniform(0, 20_000, RANKS)
        done = ends.max() + 40_000
        for rank in range(RANKS):
            at = round(now + offset_ns[rank])
            end, last = (round(time + offset_ns[rank]) for time in (ends[rank], done + rng.uniform(0, 500)))
            said = {"Collective name": "allreduce", "In msg nelems": 1024, "Out msg nelems": 1024, "dtype": "Float", "Group size": RANKS}
            said |= {"Process Group Name": "0", "Process Group Ranks": "[0, 1, 2]", "Seq": step}
            events[rank] += [
                event("user_annotation", f"ProfilerStep#{step}", at, last, tid=4242, pid=4242),
                call("cudaLaunchKernel", at, at + 3000, 2 * step + 1),
                call("cudaLaunchKernel", at + 4000, at + 6000, 2 * step + 2),
                kernel("gemm", at + 10_000, end, 2 * step + 1),
                kernel(NCCL, end + 1000, last, 2 * step + 2, stream=20, **said),
            ]
        now = done + rng.uniform(10_000, 30_000)
    return {
        f"rank{rank}.json": dumps(content(each, distributedInfo={"rank": rank, "world_size": RANKS})).encode()
        for rank, each in enumerate(events)
    }


def damaged(random: Random, data: bytes) -> bytes:
    """Return a file after damage to its bytes, or to what it says."""
    if random.random() < 0.5:
        return mutated_bytes(random, data)
    text = mutated_json(random, json.loads(data), sealed=False).encode(errors="surrogatepass")
    return gzip.compress(text, 1) if random.random() < 0.1 else text


def case(kind: str, random: Random, folder: Path) -> tuple[object, dict, dict | bool]:
    """Write a folder; return what to read, how, and whether it must say something; or the job from which it must not silently differ."""
    # Two runs: one run whose clock is 1 ms off is no mixture, and nothing could tell it.
    seeds, late_s = random.sample(range(50), 2), random.choice([0.0, 1e-3, 60.0, 7200.0])
    runs = [run_files(seed, late_s=late_s) for seed, late_s in zip(seeds, (0.0, late_s), strict=True)]
    files, options, must = dict(runs[0]), {}, False
    name = random.choice(list(files))
    if kind.startswith("damage"):
        for each in random.sample(list(files), 1 if kind != "damage several" else random.randint(1, RANKS)):
            files[each] = damaged(random, files[each])
        options = {"damaged": "skip"} if "skipped" in kind else {}
    elif kind == "mixture":
        must = True
        files[name] = runs[1][name]
    elif kind == "missing":
        must = True
        del files[name]
    elif kind == "twice":
        must = True
        files[random.choice(["rank7.json", "copy.json", "a.json"])] = files[name]
    elif kind == "renamed":
        files[random.choice(["x", "Rank 1", "ränk", "worker_9", "1"]) + ".json"] = files.pop(name)
    elif kind == "beside":
        files[random.choice(["notes.txt", "a.json", "b.gz", "c.parquet", "d.db", "e.pb"])] = random.choice(
            [b"", b"{}", b"[]", b"PAR1", b"\x1f\x8b", b"SQLite format 3\0", random.randbytes(200), b'{"traceEvents": []}']
        )
    elif kind == "saved":
        for each, data in files.items():
            (folder / each).write_bytes(data)
        job = ss.read_ranks(folder, progress=False)
        saved = job.save(folder / "saved")
        path = random.choice(sorted(saved.iterdir()))
        path.write_bytes(mutated_bytes(random, path.read_bytes()))
        return saved, {}, job.to_dict()
    for each, data in files.items():
        (folder / each).write_bytes(data)
    return folder, options, must


def outcome(given: object, options: dict, must: dict | bool) -> str:
    """Read a folder, and all that a job tells of it."""
    try:
        job = ss.read_ranks(given, progress=False, **options)
        found = job.to_dict()
        json.dumps(found, allow_nan=False)
        assert str(job)
    except StreamscopeError:
        return "refused"
    differs = must if isinstance(must, bool) else must != found
    return "marked" if job.warnings else "silent" if differs else "read"


def main(count: int, seed: int) -> None:
    """Try so many folders, and print what came of each."""
    resource.setrlimit(resource.RLIMIT_AS, (2 * MOST_BYTES, 2 * MOST_BYTES))
    for number in range(seed, seed + count):
        print(json.dumps(tried(number)), flush=True)  # noqa: T201


def tried(number: int) -> dict[str, object]:
    """Try one folder, within a time limit: a hang ends by an alarm."""
    random, kind = Random(number), KINDS[number % len(KINDS)]
    with tempfile.TemporaryDirectory() as folder:
        before = signal.signal(signal.SIGALRM, _hung)
        signal.alarm(LONGEST_S)
        try:
            given, options, must = case(kind, random, Path(folder))
            told = outcome(given, options, must)
        except Exception as error:  # noqa: BLE001 — each of them is a fault to be told.
            told = f"{type(error).__name__}: {error}"[:300]
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)
    return {"number": number, "kind": kind, "outcome": told}


def _hung(number: int, frame: object) -> None:
    raise TimeoutError(f"it took more than {LONGEST_S} s")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
