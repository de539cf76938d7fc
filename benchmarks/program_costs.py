"""Host costs of a program in two trees of this repository, side by side: import, trace, plan, prepare, run, push, compare, cached kernels.

A process for each tree measures in turns with the other, in processor time, since other work on the machine makes wall clocks useless.
It gives the least time of each case, and the median ratio of neighbouring turns. The device is simulated; kernels are compiled by NVRTC.

    mkdir base && git archive main toolkit | tar -x -C base
    python benchmarks/program_costs.py base . [CASES] > costs.json     # CASES: a regular expression, for some of them
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

TURNS = {100: 15, 1000: 15, 10_000: 3}
ROUNDS = {100: 12, 1000: 3, 10_000: 1}
"""For programs of so many operations: turns, and how often each case is measured in a turn."""
ENGINES = ("sync", "async", "dual", "graph", "graph-dual")
KERNELS = 128
CODE = 'extern "C" __global__ void k%d(float* x) { x[threadIdx.x] = %d; }'


def cases() -> Iterator[str]:
    """Yield the names of what is measured."""
    yield "import"
    yield "kernels from disk"
    for size in ROUNDS:
        yield f"trace {size}"
        yield f"push {size}"
        for engine in ("async", "graph"):
            yield f"run {engine} {size}"
        for engine in ENGINES:
            yield f"plan {engine} {size}"
            if "dual" not in engine:
                yield f"prepare {engine} {size}"
        yield f"compare {size}"


class Tree:
    """The library of one tree, in a process of its own."""

    def __init__(self, path: str) -> None:
        sys.path[:0] = [f"{path}/toolkit", f"{path}/widgets"]
        self.works: dict[str, tuple[Callable[[], object], int]] = {}
        import numpy as np

        import streamscope as ss

        self.ss, self.path = ss, path
        self.plan = _planner()
        self.inputs = [np.ones((8, 8), np.float32) for _ in range(4)]
        self.prepare = importlib.import_module("streamscope.engines.prepared").prepare_traced
        self.opened = ss.open_device
        self.programs: dict[int, Any] = {}

    def program(self, size: int) -> Any:
        """Return a program of so many operations over four variables: products of matrices, sums, activations."""
        ops = self.ss.ops

        def step(*inputs: Any) -> tuple[Any, ...]:
            values = list(inputs)
            for index in range(size):
                place = index % 4
                if index % 7 == 0:
                    values[place] = ops.add(values[place], values[(place + 1) % 4])
                elif index % 3 == 0:
                    values[place] = values[place] @ values[(place + 2) % 4]
                else:
                    values[place] = ops.relu(values[place])
            return tuple(values)

        return self.programs.setdefault(size, self.ss.program(step))

    def work(self, case: str) -> tuple[Callable[[], object], int]:
        """Return what a case does, and how often it is done in a turn."""
        if case == "kernels from disk":
            return self.from_disk(), 5
        if case == "import":
            return partial(subprocess.run, [sys.executable, "-c", "import streamscope"], cwd=f"{self.path}/toolkit", check=True), 3
        what, *engines, number = case.split()
        size = int(number)
        program, rounds = self.program(size), ROUNDS[size]
        if what == "trace":
            return lambda: program.trace(*self.inputs), rounds
        if what == "push":
            return partial(self.push, size), rounds
        if what == "compare":
            options: dict[str, Any] = {"device": "simulated", "repeats": 2, "progress": False}
            return lambda: self.ss.compare(program, *self.inputs, **options), 1
        traced, (engine,) = program.trace(*self.inputs), engines
        if what == "plan":
            return partial(self.plan(engine), traced, self.opened("simulated").estimate_ns, streams=2), rounds
        if what == "run":
            prepared = self.prepare(traced, engine, self.opened("simulated"))
            prepared.load(self.inputs)
            prepared.run()
            prepared.run()
            return prepared.run, rounds
        return lambda: self.prepare(traced, engine, self.opened("simulated")), rounds

    def push(self, size: int) -> None:
        """Push so many small operations, and wait for them."""
        ops = self.ss.ops
        with self.ss.Engine(device="simulated") as engine:
            x, y = (engine.variable(each) for each in self.inputs[:2])
            for _ in range(size):
                engine.push(ops.relu, reads=[x], writes=[y])
            engine.wait_all()

    def from_disk(self) -> Callable[[], object]:
        """Return what takes kernels from the cache on disk; they are compiled here, once."""
        source = importlib.import_module("streamscope.kernels.source").KernelSource
        batch, cache = (importlib.import_module(f"streamscope.kernels.compile.{part}") for part in ("batch", "kernel_cache"))
        made = [source(f"k{index}", CODE % (index, index)) for index in range(KERNELS)]
        folder = Path(tempfile.mkdtemp(prefix="program_costs"))
        atexit.register(shutil.rmtree, folder)
        folder.chmod(0o700)
        take = partial(batch.compile_batch, made, "sm_90")
        take(cache=cache.KernelCache(folder)).check()
        return lambda: take(cache=cache.KernelCache(folder))

    def measure(self, case: str) -> float:
        """Return the least processor time of a case in one turn, in ms."""
        if case not in self.works:
            self.works[case] = self.work(case)
        work, rounds = self.works[case]
        times_ns = []
        for _ in range(rounds):
            gc.collect()
            start_ns = _processor_ns()
            kept = work()
            times_ns.append(_processor_ns() - start_ns)
            del kept
        return min(times_ns) / 1e6


def _processor_ns() -> int:
    """Processor time of this process and of those that it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time_ns() + round(1e9 * (children.ru_utime + children.ru_stime))


def _planner() -> Callable[[str], Any]:
    """Return a function from the name of an engine to its planner; trees before the door of engines have a table."""
    try:
        entries = importlib.import_module("streamscope.engine_entry").ENGINES
    except ModuleNotFoundError:
        planners: Callable[[str], Any] = importlib.import_module("streamscope.engines").PLANNERS.__getitem__
        return planners
    return lambda engine: entries[engine].plan


def serve(path: str) -> None:
    """Measure what standard input names, a case a line."""
    tree = Tree(path)
    for line in sys.stdin:
        print(tree.measure(line.strip()), flush=True)


def asked(process: subprocess.Popen[str], case: str) -> float:
    """Have a process measure a case."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{case}\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def compared(case: str, processes: Sequence[subprocess.Popen[str]]) -> dict[str, float]:
    """Return what a case costs in both trees, in turns."""
    times: list[list[float]] = [[], []]
    last = case.rsplit(maxsplit=1)[-1]
    for turn in range(TURNS[int(last)] if last.isdigit() else 15):
        for which in (0, 1) if turn % 2 else (1, 0):
            times[which].append(asked(processes[which], case))
    base, here = times
    ratio = statistics.median(after / before for before, after in zip(base, here, strict=True))
    return {"base": round(min(base), 4), "here": round(min(here), 4), "ratio": round(ratio, 3)}


def main() -> None:
    base, here, *rest = sys.argv[1:]
    wanted = re.compile(rest[0] if rest else "")
    command = [sys.executable, __file__, "--serve"]
    processes = [subprocess.Popen([*command, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for path in (base, here)]
    found = {}
    for case in filter(wanted.search, cases()):
        found[case] = compared(case, processes)
        print(f"{case:22}", *(f"{name} {value:10.3f}" for name, value in found[case].items()), file=sys.stderr, flush=True)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        serve(sys.argv[2])
    else:
        main()
