"""Small jobs on 2 or 4 GPUs, recorded by PyTorch's profiler and by `ss.record`, and what `ss.read_ranks` says of them.

    python benchmarks/recorded_jobs.py GPUS FOLDER [PASS …]     # FOLDER/kineto/JOB/rank0.json.gz, FOLDER/ours/JOB/0.parquet, result.json
    python benchmarks/recorded_jobs.py --read FOLDER            # reads and judges the recordings; needs no GPU
    python benchmarks/recorded_jobs.py --keep FOLDER TARGET JOB ...     # copies jobs, as small as tests/data/ranks has them

Jobs are data-, tensor- and pipeline-parallel, as plain streams and as CUDA graphs. In some of them, rank 1 is late on purpose. All ranks
are on one host, so the true offset of each clock is 0.

Each pass is one job of torchrun: ``measured`` (no recorder is loaded: CUPTI leaves graph launches dearer), ``kineto``, ``ours``. In it, a
job and what it is predicted as take turns, a step each, in one recording, which is cut into those of the jobs: hosts that do the same
differ by up to twice between processes, and by a third from one second to the next. Collectives can hang: a pass in which no family of
jobs ends for `PATIENCE_S` is killed, and goes on behind the one that hung.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from streamscope.arrays import FloatArray
from streamscope.ranks.job import Job
from streamscope.ranks.matching import TOGETHER
from streamscope.ranks.rank import of_rows
from streamscope.trace.spans import SpanKind

PASSES = ("measured", "kineto", "ours")
WARM, STEPS = 3, 24
HALVES = (slice(None), slice(0, None, 2), slice(1, None, 2))
"""All steps, the even ones, and the odd ones. Drift is the same in both halves, so what differs is noise."""
PATIENCE_S, LIMIT_S = 30.0, float(os.environ.get("JOBS_LIMIT_S", "150"))
MOST_FAILURES = 3
"""A pass with so many failures is given up."""
LAYERS, WIDTH = 5, 4096
ROWS = tuple(map(int, os.environ.get("JOBS_ROWS", "2048").split(",")))
"""Of a batch. With 2048, PyTorch's profiler makes eager steps wait for the host; with 8192, the GPUs have enough to do."""
CORES = int(os.environ.get("JOBS_CORES", "4"))
"""Of each rank's host, its own, as launchers bind them; 0 leaves that to the system. There, a backward pass took up to 1.5 times as long on
one rank as on the other, in one job on this rank and in the next on that."""
ONLY = os.environ.get("JOBS_ONLY", ".*")
"""Pattern for the names of jobs: ``(?!.*graph).*`` leaves out CUDA graphs, which wait for no host."""
ONCE = 7
"""The step in which a rank that is late once is late."""
LATE_S = 0.002
PLANTED: dict[str, tuple[frozenset[str], str]] = {
    "augment": (frozenset({"more work"}), "augment|sin"),
    "sleep": (frozenset({"host call", "host late"}), ""),
    "once": (frozenset({"host call", "host late"}), ""),
    "shapes": (frozenset({"kernel", "more work", "slow GPU", "other shapes"}), ""),
}
"""What makes rank 1 late: the causes that are right, and what has to be in the place that is named."""


@dataclass(frozen=True)
class JobCase:
    """One job: its kind, how it is issued, and the cause that makes rank 1 late. ``whole`` is the same job without that, or with overlap.

    Without overlap, ``serial`` says whether its host makes the same ``calls`` for one stream, or those of a ``plain`` program.
    """

    name: str
    kind: str
    late: str = ""
    graph: bool = False
    serial: str = ""
    whole: str = ""
    rows: int = 0

    @property
    def label(self) -> str:
        """Its name, and the rows of its batch."""
        return f"{self.name}-{self.rows}"

    def step(self, number: int) -> str:
        """Return the name of one of its steps; before 0, those that are not looked at."""
        return f"{self.label} {'warm' if number < 0 else 'step'} {abs(number)}"


CASES = (
    JobCase("ddp", "ddp"),
    JobCase("ddp-augment", "ddp", "augment", whole="ddp"),
    JobCase("ddp-sleep", "ddp", "sleep", whole="ddp"),
    JobCase("ddp-shapes", "ddp", "shapes", whole="ddp"),
    JobCase("ddp-once", "ddp", "once", whole="ddp"),
    JobCase("dp", "dp"),
    JobCase("dp-serial", "dp", serial="calls", whole="dp"),
    JobCase("dp-plain", "dp", serial="plain", whole="dp"),
    JobCase("dp-graph", "dp", graph=True),
    JobCase("dp-graph-serial", "dp", graph=True, serial="calls", whole="dp-graph"),
    JobCase("dp-graph-augment", "dp", "augment", graph=True, whole="dp-graph"),
    JobCase("dp-graph-sleep", "dp", "sleep", graph=True, whole="dp-graph"),
    JobCase("tp", "tp"),
    JobCase("tp-augment", "tp", "augment", whole="tp"),
    JobCase("tp-graph", "tp", graph=True),
    JobCase("tp-graph-shapes", "tp", "shapes", graph=True, whole="tp-graph"),
    JobCase("pp", "pp"),
    JobCase("pp-augment", "pp", "augment", whole="pp"),
    JobCase("pp-graph", "pp", graph=True),
    JobCase("dp-tp", "dp-tp"),
)
"""The last one has sub-groups, and needs four GPUs."""


def families_on(gpus: int, batches: Sequence[int] = ROWS) -> list[list[JobCase]]:
    """Return the jobs of a host that take turns: one, and all that have it as their whole."""
    families: dict[tuple[int, str], list[JobCase]] = {}
    for rows, case in product(batches, CASES):
        if (case.kind != "dp-tp" or gpus == 4) and re.fullmatch(ONLY, case.name):
            families.setdefault((rows, case.whole or case.name), []).append(replace(case, rows=rows))
    return list(families.values())


Body = Callable[[], object]
Cycle = Callable[[int], None]
"""A step of each job of a family, by its number."""


class Worker:
    """One rank of the jobs, under torchrun."""

    def __init__(self, folder: Path) -> None:
        self.rank, self.gpus = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        if CORES:  # Before libraries start threads.
            cores = sorted(os.sched_getaffinity(0), reverse=True)
            os.sched_setaffinity(0, cores[CORES * self.rank :][:CORES] or cores)
        import torch
        import torch.distributed as dist

        self.torch, self.dist, self.folder = torch, dist, folder
        torch.cuda.set_device(self.rank)
        self.device = torch.device("cuda", self.rank)
        with self.first_ranges(), torch.cuda.nvtx.range("start"):  # PyTorch and NCCL each have their own first range.
            dist.init_process_group("nccl", device_id=self.device)
        self.hosts = dist.new_group(backend="gloo")
        self.groups: dict[str, Any] = {}
        self.kept: list[Body] = []
        if self.gpus == 4:  # All ranks make all groups, in one order.
            made = [[dist.new_group(ranks) for ranks in some] for some in (((0, 1), (2, 3)), ((0, 2), (1, 3)))]
            self.groups = {"tp": made[0][self.rank // 2], "dp": made[1][self.rank % 2]}

    def first_ranges(self) -> AbstractContextManager[object]:
        """NVTX decides at the first range of a process, which is NCCL's, where ranges go."""
        if os.environ["JOBS_PASS"] != "ours":
            return nullcontext()
        import streamscope as ss

        return ss.record("start")

    @contextmanager
    def marked(self, name: str) -> Iterator[None]:
        """Name a stretch for both recorders."""
        with self.torch.profiler.record_function(name), self.torch.cuda.nvtx.range(name):
            yield

    def random(self, rows: int, columns: int) -> Any:
        """Return a matrix, scaled so that products of it stay in range."""
        return self.torch.randn(rows, columns, dtype=self.torch.float16, device=self.device) / columns**0.5

    def step_of(self, case: JobCase) -> Callable[[int], None]:
        """Return a job's step, warm; captured where the case says so."""
        self.torch.manual_seed(0)
        late = case.late if self.rank == 1 else ""
        rows = case.rows * 3 // 2 if late == "shapes" and case.kind != "tp" else case.rows
        body: Body = {"ddp": self.ddp, "dp": self.dp, "tp": self.tp, "pp": self.pp, "dp-tp": self.dp_tp}[case.kind](case, rows)
        more: Body = getattr(body, "alone", lambda: None)  # Shapes of a tensor-parallel rank are those of the others: it does more.
        noise = self.torch.randn(2**26, dtype=self.torch.float16, device=self.device) if late == "augment" else None

        def on_gpu() -> None:
            if noise is not None:
                with self.marked("augment"):
                    for _ in range(8):
                        self.torch.sin(noise, out=noise)
            if late == "shapes":
                more()
            body()

        issue = self.captured(on_gpu) if case.graph else on_gpu

        def step(number: int) -> None:
            if late == "sleep" or (late == "once" and number == ONCE):
                with self.marked("load batch"):
                    time.sleep(LATE_S * (3 if late == "once" else 1))
            issue()
            self.torch.cuda.synchronize()  # As reading the loss does.

        for _ in range(WARM):
            step(-1)
        self.dist.barrier()
        return step

    def captured(self, body: Body) -> Body:
        """Return the replay of a CUDA graph."""
        torch = self.torch
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM):
                body()
        torch.cuda.synchronize()
        self.dist.barrier()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # NCCL's watchdog asks for events on a thread of its own.
            body()
        self.kept.append(body)  # A graph does not hold the arrays that it reads.
        replay: Body = graph.replay
        return replay

    def ddp(self, case: JobCase, rows: int) -> Body:
        """Return a step of `DistributedDataParallel`: a bucket for each layer."""
        nn = self.torch.nn
        layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH, bias=False), nn.ReLU())]
        model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers).half().to(self.device), device_ids=[self.rank])
        optimizer = self.torch.optim.SGD(model.parameters(), lr=1e-3)
        x = self.random(rows, WIDTH)

        def step() -> None:
            with self.marked("forward"):
                loss = model(x).float().mean()
            with self.marked("backward"):
                loss.backward()
            with self.marked("update"):
                optimizer.step()
                optimizer.zero_grad()

        return step

    def dp(self, case: JobCase, rows: int) -> Body:
        """Return a data-parallel step by hand: gradients are reduced beside the backward pass, or behind each product."""
        torch, dist = self.torch, self.dist
        weights = [self.random(WIDTH, WIDTH) for _ in range(LAYERS)]
        x, second = self.random(rows, WIDTH), torch.cuda.Stream()

        def step() -> None:
            main = torch.cuda.current_stream()
            beside = main if case.serial else second
            hidden = [x]
            for weight in weights:
                hidden.append(torch.relu(hidden[-1] @ weight))
            flow, gradients = hidden[-1], []
            for layer in reversed(range(LAYERS)):
                flow = torch.ops.aten.threshold_backward(flow, hidden[layer + 1], 0)
                gradients.append(hidden[layer].T @ flow)
                if case.serial == "plain":
                    dist.all_reduce(gradients[-1])
                else:
                    beside.wait_stream(main)
                    with torch.cuda.stream(beside):
                        dist.all_reduce(gradients[-1])
                if layer:
                    flow = flow @ weights[layer].T
            if case.serial != "plain":
                main.wait_stream(beside)
            for weight, gradient in zip(weights, reversed(gradients), strict=True):
                weight.add_(gradient, alpha=-(2.0**-14))

        return step

    def tp(self, case: JobCase, rows: int) -> Body:
        """Return a tensor-parallel forward pass: two products and an all-reduce in each block."""
        blocks = [(self.random(WIDTH, 2 * WIDTH // self.gpus), self.random(2 * WIDTH // self.gpus, WIDTH)) for _ in range(LAYERS)]
        x = self.random(rows, WIDTH)

        def step() -> None:
            hidden = x
            for up, down in blocks:
                hidden = self.torch.nn.functional.gelu(hidden @ up) @ down
                self.dist.all_reduce(hidden)

        def alone() -> None:
            for up, down in blocks[:3]:
                self.torch.nn.functional.gelu(x @ up) @ down

        step.alone = alone  # type: ignore[attr-defined]
        return step

    def pp(self, case: JobCase, rows: int) -> Body:
        """Return a pipeline's step: all forward passes of four parts of the batch, then all backward passes."""
        torch, dist, rank, last = self.torch, self.dist, self.rank, self.gpus - 1
        first, second = self.random(WIDTH, WIDTH), self.random(WIDTH, WIDTH)
        parts = [self.random(rows // 2, WIDTH) for _ in range(4)]
        flows = [self.random(rows // 2, WIDTH) for _ in range(4)]

        def step() -> None:
            kept = []
            for x in parts:
                if rank:
                    dist.recv(x, rank - 1)
                middle = torch.relu(x @ first)
                kept.append((middle, middle @ second))
                if rank < last:
                    dist.send(kept[-1][1], rank + 1)
            for x, flow, (middle, out) in zip(parts, flows, kept, strict=True):
                if rank < last:
                    dist.recv(flow, rank + 1)
                back = flow if rank < last else out
                middle.T @ back
                inner = torch.ops.aten.threshold_backward(back @ second.T, middle, 0)
                x.T @ inner
                if rank:
                    dist.send(inner @ first.T, rank - 1)

        return step

    def dp_tp(self, case: JobCase, rows: int) -> Body:
        """Return a step with two groups a rank: activations are reduced in pairs, gradients in the other pairs."""
        blocks = [(self.random(WIDTH, WIDTH), self.random(WIDTH, WIDTH)) for _ in range(LAYERS)]
        x = self.random(rows, WIDTH)

        def step() -> None:
            hidden, between = x, []
            for up, down in blocks:
                between.append(self.torch.nn.functional.gelu(hidden @ up))
                hidden = between[-1] @ down
                self.dist.all_reduce(hidden, group=self.groups["tp"])
            for middle in reversed(between):
                self.dist.all_reduce(middle.T @ hidden, group=self.groups["dp"])

        return step

    def measured(self, family: str, cycle: Cycle) -> None:
        """Run steps that nobody records."""
        for number in range(-WARM, STEPS):
            cycle(number)

    def kineto(self, family: str, cycle: Cycle) -> None:
        """Record steps by PyTorch's profiler."""
        from torch.profiler import ProfilerActivity, profile, schedule

        target = self.folder / "kineto" / family / f"rank{self.rank}.json.gz"
        with profile(
            activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
            record_shapes=True,
            schedule=schedule(wait=0, warmup=WARM, active=STEPS, repeat=1),
            on_trace_ready=lambda found: found.export_chrome_trace(str(target)),
        ) as profiler:
            for number in range(-WARM, STEPS):
                cycle(number)
                profiler.step()

    def ours(self, family: str, cycle: Cycle) -> None:
        """Record steps by `ss.record`."""
        import streamscope as ss

        with ss.record(family, path=self.folder / "ours" / family / "{rank}.parquet"):
            for number in range(-1, STEPS):
                cycle(number)

    def together(self) -> None:
        """Wait for all ranks on the host: recorders begin at different moments, and the first step is not to be late by that."""
        self.dist.barrier(group=self.hosts)

    def take_turns(self, which: str, family: Sequence[JobCase]) -> None:
        """Let jobs take turns, a step each; add this rank's step times to its file, which `step_times` reads."""
        jobs = [(case, self.step_of(case), list[float]()) for case in family]

        def cycle(number: int) -> None:
            if not number:
                self.together()
            for case, step, times_us in jobs:
                begin = time.perf_counter_ns()
                with self.marked(case.step(number)):
                    step(number % STEPS)
                times_us.append((time.perf_counter_ns() - begin) / 1e3)

        if which != "measured":
            (self.folder / which / family[0].label).mkdir(parents=True, exist_ok=True)
        getattr(self, which)(family[0].label, cycle)
        with (self.folder / f"times-{self.rank}.jsonl").open("a", encoding="utf-8") as file:
            for case, _, times_us in jobs:
                file.write(json.dumps({"job": case.label, "pass": which, "us": np.round(times_us[-STEPS:], 1).tolist()}) + "\n")

    def work(self, which: str, first: int) -> None:
        """Do the families of a pass from one on, and tell after each."""
        for number, family in enumerate(families_on(self.gpus)):
            if number < first:
                continue
            self.take_turns(which, family)
            self.dist.barrier()
            self.torch.cuda.synchronize()
            if not self.rank:
                (self.folder / "reached").write_text(str(number + 1), encoding="utf-8")
                print(which, family[0].label, flush=True)


@dataclass(frozen=True)
class Launcher:
    """Starts the passes under torchrun, each with a time limit."""

    gpus: int
    folder: Path
    until: float

    def ran(self, which: str) -> list[dict[str, Any]]:
        """Run a pass to its end, or to that of the time; return the jobs that failed, and how."""
        failed, first, total = list[dict[str, Any]](), 0, len(families_on(self.gpus))
        while first < total and time.monotonic() < self.until:
            reached = self.folder / "reached"
            reached.write_text(str(first), encoding="utf-8")
            log = self.folder / f"{which}.log"
            with log.open("w", encoding="utf-8") as out:
                code = self._watched(self._started(which, first, out), reached)
            first = int(reached.read_text(encoding="utf-8"))
            if code == 0 or first >= total:
                break
            job = families_on(self.gpus)[first][0].label
            failed.append({"pass": which, "job": job, "code": code, "error": _first_error(log.read_text(encoding="utf-8"))})
            print("FAILED", which, job, code, failed[-1]["error"], flush=True)
            if len(failed) == MOST_FAILURES:
                break  # Of all jobs alike: a recorder that is not there, say.
            first += 1
        return failed

    def _started(self, which: str, first: int, out: Any) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={self.gpus}", __file__]
        environment = os.environ | {"JOBS_PASS": which, "OMP_NUM_THREADS": "4"}
        return subprocess.Popen(
            [*command, "--worker", which, str(first), str(self.folder)],
            stdout=out, stderr=subprocess.STDOUT, env=environment, start_new_session=True,
        )  # fmt: skip

    def _watched(self, process: subprocess.Popen[bytes], reached: Path) -> int | str:
        """Wait while jobs end; else end all processes. Return the exit status, or why it was ended."""
        try:
            while True:
                try:
                    return process.wait(timeout=0.2)
                except subprocess.TimeoutExpired:
                    if time.time() - reached.stat().st_mtime > PATIENCE_S:
                        return "hung"
                    if time.monotonic() > self.until:
                        return "out of time"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)  # torchrun ends its workers.
                try:
                    process.wait(timeout=10)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)


def _first_error(log: str) -> str:
    """Return the first traceback, which is of the rank that failed first: torchrun's own come behind."""
    at = log.find("Traceback")
    return log[at : at + 3000] if at >= 0 else log[-3000:]


def step_times(folder: Path) -> dict[str, dict[str, list[float]]]:
    """Return the `medians_us` of each job in each pass; a step takes as long as on its slowest rank."""
    ranks: dict[tuple[str, str], list[list[float]]] = {}
    for path in sorted(folder.glob("times-*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            ranks.setdefault((row["job"], row["pass"]), []).append(row["us"])
    found: dict[str, dict[str, list[float]]] = {}
    for (job, which), times in ranks.items():
        found.setdefault(job, {})[which] = medians_us(np.max(times, axis=0))
    return found


def medians_us(steps_us: FloatArray) -> list[float]:
    """Return the median of all steps, of the even and of the odd ones."""
    return [round(float(np.median(steps_us[half])), 1) for half in HALVES]


def cut(job: Job, case: JobCase) -> Job:
    """Return the steps of a case out of those of all: the time between them is taken out, on all ranks alike."""
    windows = []
    for rank in job.ranks:
        spans = rank.trace.spans
        names = [code for code, text in enumerate(spans.names) if text.startswith(f"{case.label} step ")]
        rows = np.flatnonzero(np.isin(spans.name, names) & (spans.kind == SpanKind.RANGE))
        windows.append(np.stack([spans.start_ns[rows], spans.end_ns[rows]]) + rank.zero_ns)
    begin_ns, end_ns = np.moveaxis(np.stack(windows), 1, 0)
    between_ns = (begin_ns[:, 1:] - end_ns[:, :-1]).min(axis=0)  # A host that was late stays as late.
    earlier_ns = np.append(0, np.cumsum(between_ns))
    ranks = []
    for rank, begins_ns, ends_ns in zip(job.ranks, begin_ns - np.array([[each.zero_ns] for each in job.ranks]), end_ns, strict=True):
        spans = rank.trace.spans
        step = np.searchsorted(begins_ns, spans.start_ns, side="right") - 1
        rows = np.flatnonzero((step >= 0) & (spans.start_ns + rank.zero_ns < ends_ns[step]))
        trace = of_rows(rank.trace, rows)
        moved = {name: getattr(trace.spans, name) - earlier_ns[step[rows]] for name in ("start_ns", "end_ns")}
        ranks.append(replace(rank, trace=replace(trace, spans=replace(trace.spans, **moved))))
    return Job.of(ranks)


def last_rank(job: Job) -> dict[str, Any] | None:
    """Return by how much later the last rank to begin a collective ends than the others in their median; they share a clock.

    Of collectives that it began later by a fifth of the transfer; None where there are fewer than ten. Transfers are the shortest part.
    """
    parts, operation = job.matched.parts, job.matched.operation
    rows = np.flatnonzero((operation >= 0) & parts.kernel & parts.is_kind(TOGETHER))
    begin_us, end_us = np.full((2, len(job.ranks), len(job.matched)), np.nan)
    begin_us[parts.rank[rows], operation[rows]] = parts.start_ns[rows] / 1e3
    end_us[parts.rank[rows], operation[rows]] = parts.end_ns[rows] / 1e3
    whole = ~np.isnan(begin_us).any(axis=0)
    begin_us, end_us = begin_us[:, whole], end_us[:, whole]
    order, column = np.argsort(begin_us, axis=0), np.arange(begin_us.shape[1])
    last, second = order[-1], order[-2]
    transfer_us = (end_us - begin_us).min(axis=0)
    late = begin_us[last, column] - begin_us[second, column] >= 0.2 * transfer_us
    others_us = np.where(np.arange(len(job.ranks))[:, None] == last, np.nan, end_us)
    if late.sum() < 10:
        return None
    lag_us = (end_us[last, column] - np.nanmedian(others_us, axis=0))[late]
    return {"times": int(late.sum()), "transfer_us": float(np.median(transfer_us[late])), "lag_us": float(np.median(lag_us))}


def judged(job: Job, case: JobCase) -> dict[str, Any]:
    """Return the findings about a job, and whether they are right."""
    found = job.to_dict()
    clocks = [(each["offset_us"], each["offset_error_us"]) for each in found["ranks"][1:]]
    known = [(offset, error) for offset, error in clocks if offset is not None and error is not None]
    on_host = Job.of([replace(rank, host="one") for rank in job.ranks]).clocks
    late = job.late[0] if job.late else None
    if case.late:
        causes, where = PLANTED[case.late]
        right = late is not None and late.rank == 1 and late.cause in causes and bool(re.search(where, f"{late.where} {late.under}"))
    else:  # Hosts do stumble now and then while they are recorded.
        right = all(each.pattern != "persistent" for each in job.late)
    return {
        "offsets_us": [offset for offset, _ in clocks],
        "errors_us": [error for _, error in clocks],
        "drifts_ppm": [each["drift_ppm"] for each in found["ranks"][1:]],
        "inside": len(known) == len(clocks) and all(abs(offset) <= error for offset, error in known),
        "within_10_us": len(known) == len(clocks) and all(abs(offset) <= 10 for offset, _ in known),
        "host_known_within_10_us": bool((abs(on_host.offset_ns) <= 10_000).all()),  # Kineto's files do not name it.
        "collectives": found["collectives"],
        "last rank": last_rank(job),
        "planted": case.late or None,
        "late": found["late"],
        "right": right,
        "step_us": found["step_us"],
        "steps_by": job.steps.by,
        "ranks": [{name: each[name] for name in ("busy_us", "waiting_us", "transfer_us", "exposed_us")} for each in found["ranks"]],
        "warnings": found["warnings"],
    }


def changed(job: Job, case: JobCase) -> Any:
    """Predict a job without overlap or without the cause that makes rank 1 late; where its kernels are longer, like rank 0."""
    if not case.late:
        return job.what_if().serial()
    late = job.what_if(rank=1)
    return late.like(rank=0) if case.late == "shapes" else late.without("*sin*" if case.late == "augment" else "load batch")


def predicted(job: Job, case: JobCase) -> dict[str, Any]:
    """Predict a job without its straggler, or without overlap: the median step in µs, and its error bar."""
    import streamscope as ss

    try:
        found = changed(job, case)
    except ss.StreamscopeError as error:
        return {"refused": error.message}
    return {"predicted_us": medians_us(found.job.steps.length_ns / 1e3)[0], "range": found.error_bar}


def turns_of(jobs: Mapping[str, Job], family: Sequence[JobCase]) -> list[dict[str, Any]]:
    """Return the prediction for each job, and the `medians_us` of its steps and of those of its runs."""
    rows, us = [], {name: medians_us(job.steps.length_ns / 1e3) for name, job in jobs.items()}
    for case in family:
        # Jobs without overlap are predicted from the one with it.
        runs = [case.whole] if case.late else [each.name for each in family if each.serial and not case.serial]
        found = {"rows": case.rows, "recorded_us": us[case.name]} | predicted(jobs[case.name], case) if runs else {}
        rows += [{"job": case.name, "run": run, "run_us": us[run]} | found for run in runs]
    return rows


def read(folder: Path) -> None:
    """Read all recordings of a folder, print a line for each, and keep the result."""
    import streamscope as ss

    path = folder / "result.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    times = step_times(folder)
    content |= {"jobs": {}, "turns": []}
    for family in families_on(content["gpus"], content["rows"]):
        content["jobs"] |= {case.label: {"whole": case.whole or None, "step_us": times.get(case.label, {})} for case in family}
        for recorder in (each for each in PASSES[1:] if any((folder / each / family[0].label).glob("*"))):
            recorded = ss.read_ranks(folder / recorder / family[0].label, progress=False)
            jobs = {case.name: cut(recorded, case) for case in family}
            for case in family:
                found = content["jobs"][case.label][recorder] = judged(jobs[case.name], case)
                print(f"{case.label:24}{recorder:8}{_line(found)}", flush=True)
            content["turns"] += [{"recorder": recorder} | row for row in turns_of(jobs, family)]
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    judgements = [row[recorder] for row in content["jobs"].values() for recorder in PASSES[1:] if recorder in row]
    counts = {name: sum(each[name] for each in judgements) for name in ("inside", "within_10_us", "host_known_within_10_us", "right")}
    print({**counts, "of": len(judgements), "failed": len(content["failed"])})


def _line(found: dict[str, Any]) -> str:
    if "error" in found:
        return str(found["error"])
    clocks = " ".join(
        f"{'?' if offset is None else format(offset, '+.1f')}±{'?' if error is None else format(error, '.1f')}"
        for offset, error in zip(found["offsets_us"], found["errors_us"], strict=True)
    )
    counts = found["collectives"]
    late = "; ".join(
        f"{each['rank']} {each['pattern']} {each['cause']} {each['where'][:60]} {each['under']} {each['times']}/{each['of']}"
        for each in found["late"]
    )
    step = found["step_us"]["median"]
    marks = " ".join(("" if found[name] else "NOT ") + name for name in ("inside", "within_10_us", "right"))
    return (
        f"{marks} | clocks {clocks} | {counts['matched']}+{counts['unmatched']} {counts['by']} | step {step and round(step)} | "
        f"planted {found['planted']}, named {late or None}" + "".join(f"\n    {warning[:160]}" for warning in found["warnings"][:4])
    )


KEPT_KINDS = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cuda_driver", "user_annotation"})
KEPT_ARGUMENTS = frozenset({
    "correlation", "device", "stream", "context", "Collective name", "In msg nelems", "Out msg nelems", "dtype", "Group size",
    "Process Group Name", "Process Group Ranks", "Seq", "Src Rank", "Dst Rank", "bytes",
})  # fmt: skip
KEPT_STEPS = 6


def keep(folder: Path, target: Path, jobs: list[str]) -> None:
    """Copy jobs of PyTorch's profiler without operators and other arguments; of those that are large still, the first steps."""
    for path in (path for job in jobs for path in sorted((folder / "kineto" / job).glob("*.json.gz"))):
        content = json.loads(gzip.decompress(path.read_bytes()))
        events = [each for each in content["traceEvents"] if each["ph"] == "M" or each.get("cat") in KEPT_KINDS]
        if path.stat().st_size > 100_000:
            steps = sorted(each["ts"] for each in events if each["name"].startswith("ProfilerStep#"))
            events = [each for each in events if each["ph"] == "M" or each["ts"] < steps[KEPT_STEPS]]
        for each in events:
            if each["ph"] != "M":
                each["args"] = {name: value for name, value in each.get("args", {}).items() if name in KEPT_ARGUMENTS}
        content |= {"traceEvents": events}
        into = target / path.parent.name / path.name
        into.parent.mkdir(parents=True, exist_ok=True)
        into.write_bytes(gzip.compress(json.dumps(content, separators=(",", ":")).encode(), mtime=0))


def main() -> None:
    """Record all jobs."""
    gpus, folder = int(sys.argv[1]), Path(sys.argv[2]).absolute()
    import torch

    from streamscope.trace.info import library_versions

    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("times-*.jsonl"):  # They are appended to.
        path.unlink()
    launcher = Launcher(gpus, folder, time.monotonic() + LIMIT_S)
    failed = [failure for which in sys.argv[3:] or PASSES for failure in launcher.ran(which)]
    nccl = ".".join(map(str, torch.cuda.nccl.version()))
    content = {
        "what": f"{STEPS} steps of each job, one step each after the other, and the medians of them in µs",
        "device": torch.cuda.get_device_name(),
        "gpus": gpus,
        "rows": ROWS,
        "versions": library_versions() | {"torch": torch.__version__, "cuda": torch.version.cuda or "", "nccl": nccl},
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "failed": failed,
    }
    (folder / "result.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1] == "--worker":
        worker = Worker(Path(sys.argv[4]))
        worker.work(sys.argv[2], int(sys.argv[3]))
        sys.stdout.flush()
        os._exit(0)  # Communicators are not taken down: that can hang, too.
    elif sys.argv[1] == "--read":
        read(Path(sys.argv[2]).absolute())
    elif sys.argv[1] == "--keep":
        keep(Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])
    else:
        main()
