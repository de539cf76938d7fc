"""Jobs of 2 to 64 ranks with clocks and stragglers that are known: bounds, estimates and causes of `ss.read_ranks` beside the truth.

    python benchmarks/rank_truth.py [RESULT.json]

A model makes the jobs: data-parallel steps that wait for each all-reduce, or that hide it; tensor-parallel pairs with data-parallel groups
across; shards that are gathered; and those of ``tests/ranks/jobs.py``. Clocks are off by up to 1 s and 50 ppm. A straggler is a kernel that
takes longer, more kernels, a host that is late, or a slow link; in each step, in some, in all kernels, or once. The last rank to begin a
collective ends later, by up to a fifth of the transfer, as on H100 and H200; how much is a number of the job. Files may lack numbers or
their first collectives. The rules were made with the first set of seeds. The second one changed a limit of the solver alone; the third one
was first run when the rules stood. Real recordings changed two of them afterwards: how clocks are told by ends was tried on 500 seeds of
the first set. One job of the third set changed how files without numbers are matched.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from provenance import keep

from streamscope.errors import TraceError
from streamscope.ranks.clocks import FASTEST_DRIFT
from streamscope.ranks.job import Job
from streamscope.ranks.matching import TOGETHER
from streamscope.ranks.rank import Rank
from streamscope.trace import Collectives, DeviceInfo, SpanTable, Trace, TraceInfo
from streamscope.trace.info import library_versions

sys.path.insert(0, str(Path(__file__).parents[1]))
planted: Any = importlib.import_module("tests.ranks.jobs").planted

SETS: dict[str, Sequence[int]] = {
    "design": [*range(300), *range(10_000, 10_600), *range(30_000, 30_600)],
    "held out": range(20_000, 20_600),
    "new": range(40_000, 40_600),
}
SIZES = (2, 3, 4, 8, 16, 32, 64)
MOST_BUFFERED = 0.2
"""As on H100 and H200."""
LAYERS = 4
SHAPES = ("all-reduces waited for", "all-reduces hidden", "tensor-parallel pairs", "shards gathered", "of the tests")
BRUTE = 11
"""Of so many jobs, the bounds of one are compared with those of brute force. Shapes have a period of five seeds."""
BRUTE_RANKS = 3
"""Ranks of each whose bounds are compared."""
WORTH_SAYING = 0.01
"""Part of a job's time that a straggler costs; less is not told."""
NEAR_NS = 5.0
"""Both solvers' tolerance."""


@dataclass(frozen=True)
class Straggler:
    """The straggler's difference: ``us`` more each time."""

    kind: str
    rank: int
    when: str
    us: float
    at: tuple[int, int]
    """The step and the layer, where it is once; else the layer."""

    def now(self, step: int, layer: int) -> bool:
        """Tell whether it happens before this layer's collective."""
        here = layer == self.at[1]
        return {"always": here, "all": True, "some": here and step % 3 == 0, "once": self.at == (step, layer)}[self.when]

    def is_named(self, late: Any, shape: str) -> bool:
        """Tell whether the first late rank that a job names is this one, with this cause."""
        fits = {"kernel": ("kernel", "slow GPU"), "host": ("host late", "host call"), "more": ("more work",), "link": ("link",)}[self.kind]
        pair = self.kind == "link" and shape == "tensor-parallel pairs"  # A link has two ends.
        same = late.rank // 2 == self.rank // 2 if pair else late.rank == self.rank
        return bool(same) and late.cause in fits


@dataclass
class Model:
    """Runs a job's steps: each rank has a stream that computes, and one for each communicator."""

    count: int
    rng: np.random.Generator
    jitter: float
    straggler: Straggler | None
    calls: bool
    buffered: float
    """By which part of a transfer the last rank to begin ends later, if it began so much later."""
    rows: list[list[tuple[str, str, str, float, float]]] = field(init=False)
    collectives: list[list[tuple[float, str, int, int, str, int]]] = field(init=False)

    def __post_init__(self) -> None:
        self.rows, self.collectives = [[] for _ in range(self.count)], [[] for _ in range(self.count)]
        self.now_ns = np.zeros(self.count)
        self.busy_ns = defaultdict[str, Any](lambda: np.zeros(self.count))
        self.numbers = Counter[str]()

    def _late(self, step: int, layer: int, kind: str) -> Straggler | None:
        found = self.straggler
        return found if found and layer >= 0 and found.kind == kind and found.now(step, layer) else None

    def kernel(self, name: str, us: float, step: int, layer: int = -1) -> None:
        """Run a kernel on each rank; its layer's straggler may be late with it."""
        took_ns, gap_ns = us * 1e3 * np.exp(self.rng.normal(0, self.jitter, self.count)), np.full(self.count, 500.0)
        if slow := self._late(step, layer, "kernel"):
            took_ns[slow.rank] += slow.us * 1e3
        if host := self._late(step, layer, "host"):
            gap_ns[host.rank] += host.us * 1e3
            if self.calls:
                begin_ns = self.now_ns[host.rank]
                self.rows[host.rank].append(("HOST", "load_batch", "host", begin_ns + 200, begin_ns + gap_ns[host.rank] - 200))
        begin_ns, self.now_ns = self.now_ns + gap_ns, self.now_ns + gap_ns + took_ns
        for rank in range(self.count):
            self.rows[rank].append(("KERNEL", name, "main", begin_ns[rank], self.now_ns[rank]))
        if more := self._late(step, layer, "more"):
            begin = self.now_ns[more.rank] + 500
            self.now_ns[more.rank] = begin + more.us * 1e3
            self.rows[more.rank].append(("KERNEL", "augment", "main", begin, self.now_ns[more.rank]))

    def collective(self, group: Sequence[int], kind: str, nbytes: int, us: float, step: int, layer: int, tag: str, *, waits: bool) -> None:
        """Communicate, on a stream of its own for each kind of group; ``waits``: the stream that computes waits for it."""
        members, busy_ns = list(group), self.busy_ns[tag]
        start_ns = np.maximum(self.now_ns[members] + 1000 + self.rng.uniform(0, 300, len(members)), busy_ns[members] + 300)
        link = self._late(step, layer, "link")
        slower_us = link.us if link and link.rank in members and tag == "tp" else 0.0
        end_ns = start_ns.max() + (us + slower_us) * 1e3 + self.rng.normal(0, 400, len(members))
        end_ns[start_ns.argmax()] += min(self.buffered * us * 1e3, start_ns.max() - np.sort(start_ns)[-2:][0])
        name = f"{tag} {members}"
        for rank, begin, end in zip(members, start_ns.tolist(), end_ns.tolist(), strict=True):
            self.collectives[rank].append((begin, kind, nbytes, len(members), name, self.numbers[name]))
            self.rows[rank].append(("KERNEL", f"nccl_{kind}", f"comm {tag}", begin, end))
        busy_ns[members] = end_ns
        self.numbers[name] += 1
        if waits:
            self.now_ns[members] = np.maximum(self.now_ns[members], end_ns)

    def step(self, shape: str, step: int) -> None:
        """Run one step."""
        everyone = range(self.count)
        for layer in range(LAYERS):
            if shape == "tensor-parallel pairs":
                self.kernel(f"mm{layer}", 200, step, layer)
                for first in range(0, self.count, 2):
                    self.collective((first, first + 1), "all_reduce", 1 << 20, 50, step, layer, "tp", waits=True)
                continue
            if shape == "shards gathered":
                self.collective(everyone, "all_gather", 1 << 22, 100, step, -1, "dp", waits=True)
            self.kernel(f"forward{layer}", 150 + 20 * layer, step, layer if shape == "shards gathered" else -1)
        for layer in range(LAYERS if shape != "tensor-parallel pairs" else 0):
            gathered = shape == "shards gathered"
            self.kernel(f"backward{layer}", 300 + 30 * layer, step, -1 if gathered else layer)
            kind, waited = "reduce_scatter" if gathered else "all_reduce", shape == "all-reduces waited for"
            self.collective(everyone, kind, (1 << 20) + layer, 60 if waited else 200, step, layer, "dp", waits=waited)
        if shape == "tensor-parallel pairs":
            for first in (0, 1):
                self.collective(range(first, self.count, 2), "all_reduce", 1 << 24, 150, step, -1, "dp", waits=True)
        self.now_ns = np.maximum(self.now_ns, self.busy_ns["dp"])
        self.kernel("optimizer", 80, step)

    def ranks(self, *, numbered: bool, missing: dict[int, int], offset_ns: Any, drift: Any) -> list[Rank]:
        """Return the files of all ranks, on their own clocks."""
        half_ns = self.length_ns / 2
        found = []
        for rank in range(self.count):
            parts, lacking = sorted(self.collectives[rank]), missing.get(rank, 0)
            from_ns = parts[lacking - 1][0] + 1 if lacking else -1.0

            def own(time_ns: float, rank: int = rank) -> int:
                return round(float((time_ns - half_ns) / (1 + drift[rank]) + half_ns - offset_ns[rank]))

            kept = sorted((row for row in self.rows[rank] if row[3] > from_ns), key=lambda row: row[3])
            table = SpanTable.of(*((kind, name, lane, own(begin), own(end)) for kind, name, lane, begin, end in kept))
            rows = [at for at, row in enumerate(kept) if row[1].startswith("nccl")]
            parts = parts[lacking:]
            collectives = Collectives.from_columns(
                rows, [part[1] for part in parts], nbytes=[part[2] for part in parts], ranks=[part[3] for part in parts],
                communicator=[part[4] for part in parts], sequence=[part[5] for part in parts] if numbered else -1,
            )  # fmt: skip
            info = TraceInfo("kineto", f"rank {rank}", DeviceInfo("cuda", "a model's GPU"), "kineto", rank=rank, zero_ns=0)
            found.append(Rank(rank, f"rank{rank}.json", Trace(table, info, collectives=collectives)))
        return found

    @property
    def length_ns(self) -> float:
        """How long all steps took."""
        return float(self.now_ns.max())


@dataclass(frozen=True)
class Case:
    """A job, and its truth."""

    shape: str
    ranks: list[Rank]
    straggler: Straggler | None
    offset_ns: Any
    drift: Any
    length_ns: float

    def off_by_ns(self, middle_ns: Any) -> Any:
        """Return each rank's offset: its time plus that is the first rank's time."""
        half_ns = self.length_ns / 2
        true_ns = (middle_ns + self.offset_ns - half_ns) * (1 + self.drift) + half_ns - middle_ns
        return true_ns - true_ns[0]

    @classmethod
    def of(cls, seed: int, *, repaired: bool = False) -> Case:
        """Make the job of a seed; ``repaired``: without its straggler, and otherwise the same."""
        rng = np.random.default_rng(seed)
        shape, count = SHAPES[seed % len(SHAPES)], int(rng.choice(SIZES))
        count += count % 2 if shape == "tensor-parallel pairs" else 0
        count = max(count, 4) if shape == "tensor-parallel pairs" else count
        steps = int(rng.integers(6, 20)) if count < 32 else 6
        kinds = ["kernel", "host", *(["more"] if shape != "of the tests" else []), *(["link"] if shape == "tensor-parallel pairs" else [])]
        kind, when = str(rng.choice([*kinds, "none"])), str(rng.choice(["always", "some", "once", "all"]))
        us = float(rng.uniform(2000, 6000) if when == "once" else rng.uniform(50, 400))
        at = (int(rng.integers(1, steps)) if when == "once" else 0, int(rng.integers(0, 3)))
        made_late = Straggler(kind, int(rng.integers(0, count)), when, us, at)
        straggler = None if kind == "none" or repaired else made_late
        numbered, jitter, calls = bool(rng.random() < 0.7), float(rng.choice([0.003, 0.01, 0.03])), bool(rng.random() < 0.5)
        missing = {int(rng.integers(0, count)): int(rng.integers(1, 5))} if rng.random() < 0.3 else {}
        if shape == "of the tests":

            def late(wanted: str) -> Any:
                one = straggler if straggler is not None and straggler.kind == wanted else None
                return lambda step, at: (one.rank, one.us) if one is not None and one.now(step, at) else None

            made = planted(
                count, steps, seed=seed, jitter_us=float(rng.choice([1, 3, 10])), pause_us=float(rng.choice([0, 3000])),
                slow=late("kernel"), idle=late("host"), missing=missing, numbered=numbered, buffered_us=float(rng.choice([0, 11])),
            )  # fmt: skip
            return cls(shape, made.ranks, straggler, made.offset_ns, made.drift, made.length_ns)
        offset_ns, drift = rng.uniform(-1, 1, count) * 1e9, rng.uniform(-50, 50, count) * 1e-6
        offset_ns[0] = drift[0] = 0
        buffered = float(np.random.default_rng([seed, 1]).uniform(0, MOST_BUFFERED))  # The rest of the job stays as it was without it.
        model = Model(count, rng, jitter, straggler, calls, buffered)
        for step in range(steps):
            model.step(shape, step)
        ranks = model.ranks(numbered=numbered, missing=missing, offset_ns=offset_ns, drift=drift)
        return cls(shape, ranks, straggler, offset_ns, drift, model.length_ns)


def brute_force(job: Job, ranks: Sequence[int]) -> Any:
    """Return the lowest and highest offset of some ranks, in ns: one linear program over all pairs of parts of each matched collective."""
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    clocks, parts, operation = job.clocks, job.matched.parts, job.matched.operation
    count, reach_ns = len(job.ranks), clocks.reach_ns
    begins, ends = list[int](), list[int]()
    for one in range(len(job.matched)):
        rows = np.flatnonzero((operation == one) & parts.is_kind(TOGETHER) & parts.kernel).tolist()
        pairs = [pair for pair in product(rows, rows) if pair[0] != pair[1]]
        begins += [begin for begin, _ in pairs]
        ends += [end for _, end in pairs]
    first, second = (parts.rank[each] for each in (begins, ends))
    start_ns, stop_ns = parts.start_ns[begins].astype(float), parts.end_ns[ends].astype(float)
    most = (clocks.job_ns(second, stop_ns) - clocks.job_ns(first, start_ns)) / 1e3
    place = np.tile(np.arange(len(begins)), 4)
    column = np.concatenate([first, second, first + count, second + count])
    at = [(times_ns - clocks.middle_ns[rank]) / reach_ns for times_ns, rank in ((start_ns, first), (stop_ns, second))]
    value = np.concatenate([np.ones(len(begins)), -np.ones(len(begins)), at[0], -at[1]])
    matrix = coo_array((value, (place, column)), (len(begins), 2 * count)).tocsr()
    steep, own = FASTEST_DRIFT * reach_ns / 1e3, clocks.drift * reach_ns / 1e3
    box = [(0, 0), *[(None, None)] * (count - 1), (0, 0), *[(-steep - each, steep - each) for each in own[1:].tolist()]]
    found = []
    for rank in ranks:
        goal = np.zeros(2 * count)
        goal[rank] = 1
        both = [sign * linprog(sign * goal, A_ub=matrix, b_ub=most, bounds=box).fun * 1e3 for sign in (1, -1)]
        found.append([each + clocks.offset_ns[rank] for each in both])
    return np.array(found)


def row_of(seed: int) -> dict[str, Any]:
    """Return the finding on a job."""
    case = Case.of(seed)
    try:
        job = Job.of(case.ranks)
    except TraceError as error:  # Files without numbers, and collectives that are not matched rightly: no clocks fit.
        return {"seed": seed, "shape": case.shape, "ranks": len(case.ranks), "refused": str(error)}
    clocks, late = job.clocks, job.late
    true_ns, joined = case.off_by_ns(clocks.middle_ns), clocks.group == clocks.group[0]
    others = joined & (np.arange(len(joined)) > 0)
    off_ns = np.abs(clocks.offset_ns - true_ns)
    straggler = case.straggler
    row: dict[str, Any] = {
        "seed": seed, "shape": case.shape, "ranks": len(case.ranks),
        "planted": None if straggler is None else f"{straggler.kind}, {straggler.when}",
        "named": f"{late[0].cause} of rank {late[0].rank}" if late else None,
        "cost": 1 - Case.of(seed, repaired=True).length_ns / case.length_ns,
        "left out": job.matched.unmatched,
        "right": not late if straggler is None else bool(late) and straggler.is_named(late[0], case.shape),
        "inside": bool(((clocks.low_ns - 2 <= true_ns) & (true_ns <= clocks.high_ns + 2))[joined].all()),
        "estimates": int(others.sum()), "within error": int((off_ns <= clocks.error_ns + 2)[others].sum()),
        "off_us": float(off_ns[others].max(initial=0)) / 1e3,
    }  # fmt: skip
    if seed % BRUTE == 0 and joined.all() and len(job.matched):
        some = np.unique(np.linspace(1, len(joined) - 1, BRUTE_RANKS).astype(int)).tolist()
        bounds = brute_force(job, some)
        wider_ns = np.stack([bounds[:, 0] - clocks.low_ns[some], clocks.high_ns[some] - bounds[:, 1]])
        row |= {"compared with brute force": len(some), "wider_ns": float(wider_ns.max()), "narrower_ns": float(-wider_ns.min())}
    return row


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Count right answers."""
    refused = [row for row in rows if "refused" in row]
    rows = [row for row in rows if "refused" not in row]
    of_sort: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for row in rows:
        for sort in (row["planted"], row["shape"], f"{row['ranks']} ranks") if row["planted"] else ("none",):
            of_sort[sort][0] += row["right"]
            of_sort[sort][1] += 1
    planted_rows = [row for row in rows if row["planted"]]
    costly = [row for row in planted_rows if row["cost"] >= WORTH_SAYING]
    brute = [row for row in rows if "wider_ns" in row]
    return {
        "jobs": len(rows), "refused": refused, "bounds hold": sum(row["inside"] for row in rows),
        "estimates": sum(row["estimates"] for row in rows), "within their error": sum(row["within error"] for row in rows),
        "off_us, median and most": [float(np.median([row["off_us"] for row in rows])), max(row["off_us"] for row in rows)],
        "planted": len(planted_rows), "named first": sum(row["right"] for row in planted_rows),
        "planted, and costs 1 %": len(costly), "of these, named first": sum(row["right"] for row in costly),
        "and not named, since collectives are not matched": sum(not row["right"] and row["left out"] > 0 for row in costly),
        "not planted": len(rows) - len(planted_rows), "none named": sum(row["right"] for row in rows if not row["planted"]),
        "right and of, by sort": dict(sorted(of_sort.items())),
        "bounds compared with brute force": sum(row["compared with brute force"] for row in brute),
        "wider by more than 5 ns": sum(row["wider_ns"] > NEAR_NS for row in brute),
        "wider_ns, most": max((row["wider_ns"] for row in brute), default=None),
    }  # fmt: skip


def main() -> None:
    """Judge all sets of seeds."""
    found = {}
    for name, seeds in SETS.items():
        with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            rows = list(pool.map(row_of, seeds, chunksize=4))
        wrong = [row for row in rows if not row.get("right", True)]
        found[name] = {"first and last seed": [seeds[0], seeds[-1]], **summary(rows), "wrong": wrong}
        print(name, found[name], flush=True)
    keep("rank_truth.json", {"date": datetime.now(UTC).isoformat(timespec="seconds"), "versions": library_versions(), "sets": found})


if __name__ == "__main__":
    main()
