"""What several GPUs cost a program of one: two trees of the library in turns, on a GPU.

python benchmarks/one_gpu_costs.py BASE_TOOLKIT RESULT.json [TURNS]

A turn is a process for each tree: launches of the stream engines and pushes, in µs an operation, and the launch and the replay of graphs.
BASE_TOOLKIT is the folder ``toolkit`` of another commit, as ``git archive COMMIT toolkit | tar x`` writes it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import streamscope as ss

LENGTH, PUSHES, SIZE, ROUNDS = 500, 300, 4096, 40
"""A stream's queue holds about 1,024 launches, and nothing may wait for room."""


@ss.program
def chain(x: Any, y: Any) -> Any:
    """Add in place, again and again."""
    for _ in range(LENGTH):
        x = ss.ops.add(x, y, out=x)
    return x


@ss.program
def branches(x: Any, y: Any) -> Any:
    """Four chains, of which the dual engines run some beside each other."""
    ends = [x, x, x, x]
    for _ in range(LENGTH // 4):
        ends = [ss.ops.add(end, y) for end in ends]
    return ends[0], ends[1], ends[2], ends[3]


def prepared(program: Any, engine: str, device: Any) -> Callable[[], None]:
    """Return the run of a prepared program."""
    inputs = [np.zeros(SIZE, np.float32), np.ones(SIZE, np.float32)]
    made = ss.prepare(program.trace(*inputs), engine=engine, device=device)
    made.load(inputs)
    return made.run


def pushes(engine: str, device: Any) -> Callable[[], None]:
    """Return a function that pushes an addition again and again."""
    pushed = ss.Engine(engine, device=device)
    x, y = pushed.variable(np.zeros(SIZE, np.float32)), pushed.variable(np.ones(SIZE, np.float32))
    add = ss.ops.add

    def push_all() -> None:
        for _ in range(PUSHES):
            pushed.push(add, reads=(x, y), writes=(x,))

    return push_all


def measured() -> dict[str, float]:
    """Return the least time of each of this tree, in µs: other processes of a host only add to it."""
    device: Any = ss.open_device("cuda")
    programs = {"sync": chain, "async": chain, "dual": branches, "graph": chain, "graph-dual": branches}
    calls = {engine: (prepared(program, engine, device), 1 if "graph" in engine else LENGTH) for engine, program in programs.items()}
    calls |= {f"push, {engine}": (pushes(engine, device), PUSHES) for engine in ("async", "dual")}
    samples: dict[str, list[float]] = {}
    for turn in range(ROUNDS + 3):
        for name, (call, count) in calls.items():
            start = time.perf_counter_ns()
            call()
            launched = time.perf_counter_ns()
            device.synchronize()
            done = time.perf_counter_ns()
            if turn >= 3:
                samples.setdefault(name, []).append((launched - start) / count / 1e3)
                if count == 1:
                    samples.setdefault(f"{name}, until it is done", []).append((done - start) / 1e3)
    return {name: min(values) for name, values in samples.items()}


def main(base: str, result: Path, turns: int = 7) -> None:
    from provenance import provenance  # Not above: the base may lack what it imports.

    here = str(Path(__file__).parents[1] / "toolkit")
    found: dict[str, list[dict[str, float]]] = {"base": [], "here": []}
    for turn in range(turns):
        trees = (("base", base), ("here", here))
        for name, tree in trees if turn % 2 == 0 else trees[::-1]:
            path = os.pathsep.join([tree, *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
            command, environment = [sys.executable, __file__, "measured"], os.environ | {"PYTHONPATH": path}
            ran = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
            found[name].append(json.loads(ran.stdout.splitlines()[-1]))
    cases = {}
    for name in found["base"][0]:
        base_us, here_us = (np.array([one[name] for one in found[tree]]) for tree in ("base", "here"))
        ratios = here_us / base_us
        row = {"base_us": np.median(base_us), "here_us": np.median(here_us), "ratio": np.median(ratios)}
        row |= {"least": ratios.min(), "most": ratios.max()}
        cases[name] = {key: round(float(value), 3) for key, value in row.items()}
        print(f"{name:40}", *cases[name].values())
    what = f"the least of {ROUNDS} rounds, in µs: its median, and the median ratio of neighbouring processes ({turns} pairs)"
    content = {"what": what, "cases": cases}
    result.write_text(json.dumps(content | provenance(ss.open_device("cuda")), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1] == "measured":
        print(json.dumps(measured()))
    else:
        main(sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:]))
