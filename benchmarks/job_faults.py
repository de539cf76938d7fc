"""Random programs with collectives and random faults, two processes each: every process has to end, with the reason.

A rank refuses before a step, raises or is slow inside the function, gets Ctrl-C, or dies. PyTorch's gloo takes the place of NCCL, so no GPU
is needed. ``python benchmarks/job_faults.py --programs 200 --timeout 2``

With ``--nccl``, two GPUs capture a function that calls the collectives of one step, and the fault is in one of its calls. ``--into`` keeps
what was found as data.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from streamscope.errors import EngineError
from streamscope.job import gathered, joined

Ready = Callable[[], object]
FAULTS = ("none", "refuses", "raises", "slow", "ctrl-c", "dies")
STEPS, COLLECTIVES = 4, 3
GRACE_S = 10.0
"""The timeouts of the issue: 20 s, and an end within 30 s."""


@dataclass(frozen=True)
class Case:
    """One program: collectives of each step, and the rank, step and place of the fault."""

    seed: int
    fault: str
    rank: int
    step: int
    at: int
    steps: tuple[tuple[str, ...], ...]
    timeout_s: float

    @classmethod
    def of(cls, seed: int, timeout_s: float) -> Case:
        """Draw one."""
        drawn = random.Random(seed)
        kinds = ("all_reduce", "broadcast", "all_gather", "barrier")
        steps = tuple(tuple(drawn.choice(kinds) for _ in range(drawn.randint(1, COLLECTIVES))) for _ in range(drawn.randint(1, STEPS)))
        step = drawn.randrange(len(steps))
        return cls(seed, FAULTS[seed % len(FAULTS)], drawn.randrange(2), step, drawn.randrange(len(steps[step])), steps, timeout_s)


def happen(case: Case) -> None:
    """Let the fault happen that belongs inside a function."""
    if case.fault == "raises":
        raise ValueError("no such layer")
    if case.fault == "slow":
        time.sleep(1.2 * case.timeout_s)
    if case.fault == "ctrl-c":
        os.kill(os.getpid(), signal.SIGINT)
    if case.fault == "dies":
        os.kill(os.getpid(), signal.SIGKILL)


def ranks_work(case: Case, rank: int, path: str, ready: Ready) -> None:
    """Run one rank of a program."""
    import torch
    import torch.distributed as dist

    signal.signal(signal.SIGINT, signal.default_int_handler)  # A process in the background would ignore it.
    dist.init_process_group("gloo", store=dist.TCPStore("127.0.0.1", int(path), 2, rank == 0), rank=rank, world_size=2)
    ready()
    values, both = torch.ones(64), [torch.ones(64), torch.ones(64)]
    calls = {
        "all_reduce": lambda: dist.all_reduce(values),
        "broadcast": lambda: dist.broadcast(values, 0),
        "all_gather": lambda: dist.all_gather(both, values),
        "barrier": dist.barrier,
    }
    with joined("warming up", case.timeout_s):
        for number, step in enumerate(case.steps):
            here = (number, rank) == (case.step, case.rank)
            if here and case.fault == "refuses":
                raise EngineError("it copies from host memory")
            gathered(f"step {number}", None)
            for at, kind in enumerate(step):
                if here and at == case.at:
                    happen(case)
                calls[kind]()


def ranks_capture(case: Case, rank: int, path: str, ready: Ready) -> None:
    """Run one rank of a program on GPUs: `ss.capture` calls a function three times, captures it, and calls it once more."""
    import torch
    import torch.distributed as dist

    import streamscope as ss

    signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.cuda.set_device(rank)
    here = {"device_id": torch.device("cuda", rank), "rank": rank, "world_size": 2}
    dist.init_process_group("nccl", store=dist.TCPStore("127.0.0.1", int(path), 2, rank == 0), **here)
    dist.barrier()
    ready()
    values, all_values = torch.ones(64, device="cuda"), torch.ones(128, device="cuda")
    calls = {
        "all_reduce": lambda: dist.all_reduce(values),
        "broadcast": lambda: dist.broadcast(values, 0),
        "all_gather": lambda: dist.all_gather_into_tensor(all_values, values),
        "barrier": lambda: dist.reduce_scatter_tensor(values, all_values),  # A barrier waits on the host.
    }
    called = 0

    def function(x: torch.Tensor) -> torch.Tensor:
        nonlocal called
        values.copy_(x)
        for at, kind in enumerate(case.steps[case.step]):
            if rank == case.rank and at == case.at:
                if case.fault == "refuses":
                    values.sum().item()
                elif called == case.step:
                    happen(case)
            calls[kind]()
        called += 1
        return values * 2

    ss.capture(function, torch.ones(64, device="cuda"), timeout=case.timeout_s)


def run(case: Case, port: int, ranks_part: Callable[[Case, int, str, Ready], None]) -> list[tuple[str, float]]:
    """Run both ranks; return how each ended, and how many seconds after they were ready."""
    pipes, processes = [], []
    for rank in range(2):
        read, write = os.pipe()
        process = os.fork()
        if process == 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            try:
                ranks_part(case, rank, str(port), partial(os.write, write, b"."))
                said = "done"
            except KeyboardInterrupt:
                said = "KeyboardInterrupt"
            except BaseException as error:  # noqa: BLE001 — each end is told
                said = f"{type(error).__name__}: {error}"
            os.write(write, said.encode())
            os._exit(0)
        os.close(write)
        pipes.append(read)
        processes.append(process)
    for read in pipes:
        os.read(read, 1)
    start, ends = time.monotonic(), list[tuple[str, float]]()
    for read, process in zip(pipes, processes, strict=True):
        ready, _, _ = select.select([read], [], [], max(0.0, case.timeout_s + GRACE_S + 20 - (time.monotonic() - start)))
        said = os.read(read, 65536).decode() if ready else "HANGS"
        ends.append((said, time.monotonic() - start))
        os.close(read)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    return ends


def wrong(case: Case, ends: list[tuple[str, float]], refusing_s: float = 1.0) -> str:
    """Say how a program ended otherwise than it has to; empty where it did not. A refusal may take ``refusing_s``."""
    own = {"refuses": "EngineError", "raises": "ValueError", "ctrl-c": "KeyboardInterrupt", "dies": "", "none": "done"}
    for rank, (said, seconds) in enumerate(ends):
        if said == "HANGS" or seconds > case.timeout_s + GRACE_S:
            return f"rank {rank} took {seconds:.1f} s: {said}"
        if case.fault == "refuses" and seconds > refusing_s:
            return f"rank {rank} refused after {seconds:.1f} s"
        if case.fault == "slow":
            fits = said == "done" or said.startswith("PeerError")
        elif rank == case.rank or case.fault == "none":
            fits = said.startswith(own[case.fault]) or (case.fault == "raises" and "no such layer" in said)
        else:  # Of a rank that dies, gloo says that it has closed its connection.
            fits = (said.startswith("PeerError") and f"rank {case.rank}" in said) or (case.fault == "dies" and "peer" in said)
        if not fits:
            return f"rank {rank} ended by {said!r}"
    return ""


def main() -> None:
    """Run programs, and print what went wrong and how long they took."""
    options = argparse.ArgumentParser()
    options.add_argument("--programs", type=int, default=200)
    options.add_argument("--first", type=int, default=0)
    options.add_argument("--timeout", type=float, default=20.0)
    options.add_argument("--nccl", action="store_true", help="capture on two GPUs")
    options.add_argument("--port", type=int, default=29600)
    options.add_argument("--into", type=Path, help="a file for the results")
    given = options.parse_args()
    import torch.distributed  # Before the fork, so that no rank has to.

    found = {fault: {"programs": 0, "wrong": 0, "slowest_s": 0.0} for fault in FAULTS}
    for number in range(given.first, given.first + given.programs):
        case = Case.of(number, given.timeout)
        ends = run(case, given.port + number % 300, ranks_capture if given.nccl else ranks_work)
        why = wrong(case, ends, GRACE_S if given.nccl else 1.0)
        row = found[case.fault]
        slowest_s = max(row["slowest_s"], *(seconds for _, seconds in ends))
        found[case.fault] = {"programs": row["programs"] + 1, "wrong": row["wrong"] + bool(why), "slowest_s": slowest_s}
        print(f"program {number}, rank {case.rank} {case.fault} in step {case.step}: {why or 'right'}; {ends}", flush=True)
    print(json.dumps(found))
    if given.into:
        how = {"collectives": "NCCL" if given.nccl else "gloo", "timeout_s": given.timeout, "torch": torch.__version__}
        content = {"date": datetime.now(UTC).isoformat(timespec="seconds"), **how, "faults": found}
        given.into.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    sys.exit(any(row["wrong"] for row in found.values()))


if __name__ == "__main__":
    main()
