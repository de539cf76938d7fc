"""Whether the times of lines and modules are right, and what it costs to know them: `ss.analysis.by_code` and `ss.record(stacks=True)`.

1. ``lines``: five networks whose lines each stand in an NVTX range that names the line. Counted are the kernels that were
   launched in a range, and those of them that have its line.
2. ``cost``: a step of 300 kernels, and one of a network, plain, under `ss.record()` and under `ss.record(stacks=True)`, in turns. How
   much dearer is the median over the rounds, each of which compares the medians of its own steps; the spread is from quartile to quartile.
3. ``times``: 20 steps under PyTorch's profiler, with stacks and modules. Its file is read, and `by_code` is held against the sums that
   PyTorch's own events give: kernels of each operator, by the stack of that operator. Operators of the backward pass have the stack of
   their forward operator. ``pytorch`` does that as PyTorch does, for work inside of a node. ``tree`` does so for work of the engine
   around a node, too. ``off`` is the share of the GPU's time that stands in another row.

    python benchmarks/code_times.py [RESULT.json] [lines cost times]
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import code_networks
import numpy as np
import torch
from code_networks import STEPS, lines
from provenance import keep, provenance
from torch.profiler import ProfilerActivity, profile

import streamscope as ss
from streamscope.trace import SpanKind, Trace
from streamscope.trace.joins import call_rows

ROUNDS, REPEATS = 40, 6
_COUNTED_TWICE = ("Activity Buffer Request", "cudaDeviceSynchronize")
"""Events of the profiler that have the number of another operator: PyTorch 2.11 gives them the kernel of that one, too."""
FILE = Path(code_networks.__file__).name
ALLOWED = 0.01
Sums = Mapping[str, float]


def _line() -> Iterator[None]:
    # Two frames up, since `contextmanager` calls this one, stands the `with`: the line in it is the next.
    torch.cuda.nvtx.range_push(str(sys._getframe(2).f_lineno + 1))  # noqa: SLF001
    try:
        yield
    finally:
        torch.cuda.nvtx.range_pop()


# Its lines are no lines of the user's.
_line.__code__ = _line.__code__.replace(co_filename="<ranges>")
line = contextmanager(_line)


def right_lines(trace: Trace) -> tuple[int, int, int]:
    """Return how many kernels have the line of the range in which they were launched, how many were in a range, and all."""
    spans = trace.spans
    kernels = np.flatnonzero(spans.kind == SpanKind.KERNEL)
    ranges = np.flatnonzero(spans.kind == SpanKind.RANGE)  # Sorted by start: the last one around is the innermost.
    site = dict(zip(trace.sites.span.tolist(), trace.sites.site.tolist(), strict=True))
    right = known = 0
    for kernel, call in zip(kernels.tolist(), call_rows(spans, kernels).tolist(), strict=True):
        around = ranges[(spans.start_ns[ranges] <= spans.start_ns[call]) & (spans.start_ns[call] < spans.end_ns[ranges])]
        if call < 0 or not len(around):
            continue
        known += 1
        found = trace.sites.sites[site[kernel]] if kernel in site else None
        right += found is not None and Path(found.file).name == FILE and str(found.line) == spans.names[spans.name[around[-1]]]
    return right, known, len(kernels)


def measured_lines() -> dict[str, Any]:
    """Return for each network how many lines are right."""
    results = {}
    with ss.record(stacks=True) as recording:  # NVTX decides at the first range of a process where ranges go.
        steps = lines(line)
        for step in steps.values():
            step()
    for name, step in steps.items():
        with ss.record(name, stacks=True) as recording:
            step()
        right, known, kernels = right_lines(recording.trace)
        rows = ss.analysis.by_code(recording.trace, "line").rows
        results[name] = {
            "right": right,
            "in_ranges": known,
            "kernels": kernels,
            "rows": [[f"{Path(row.file).name}:{row.line}", row.kernels] for row in rows[:20]],
        }
        print(f"{name}: {right} of {known} lines right, {kernels} kernels", flush=True)
    return results


def steps_of_cost() -> dict[str, Callable[[], object]]:
    """Return the steps, warm."""
    a, b = torch.ones(2, 1024, device="cuda")

    def additions() -> None:
        for _ in range(300):
            torch.add(a, b, out=b)

    def layered(x: torch.Tensor) -> torch.Tensor:
        x = x + 1
        x = x * 2
        return torch.relu(x)

    def by_lines() -> None:
        x = a
        for _ in range(100):
            x = layered(x)

    found = {"300 additions": additions, "300 kernels, a function of three lines": by_lines, "ResNet-50": STEPS["ResNet-50, inference"]()}
    for step in found.values():
        step()
        step()
    return found


def measured_cost() -> dict[str, Any]:
    """Return how long each step takes plain and recorded, in turns."""
    ways: dict[str, Callable[[], AbstractContextManager[Any]]] = {
        "plain": nullcontext,
        "ss.record": ss.record,
        "stacks": lambda: ss.record(stacks=True),
    }
    shuffled, results = random.Random(0), {}
    for name, step in steps_of_cost().items():
        taken: dict[str, list[float]] = {way: [] for way in ways}
        ledger, dearer = [], []
        for index in range(ROUNDS + 1):
            order = list(ways.items())
            shuffled.shuffle(order)
            of_round = {}
            for way, block in order:
                with block() as recording:
                    times = step_us(step)
                of_round[way] = statistics.median(times)
                if index:  # The first round loads.
                    taken[way] += times
                if index and way == "stacks":
                    ledger.append(recording.trace.info.ledger["lines_ns"] / 1000 / REPEATS)
            dearer.append(of_round["stacks"] / of_round["ss.record"] - 1)
        us = {way: statistics.median(each) for way, each in taken.items()}
        low, more, high = statistics.quantiles(dearer[1:], n=4)
        results[name] = {
            "step_us": us,
            "best_step_us": {way: min(each) for way, each in taken.items()},
            "dearer": more,
            "spread": [low, high],
            "ledger_us": statistics.median(ledger),
        }
        rounded = {way: round(each, 1) for way, each in us.items()}
        print(f"{name}: {more:+.1%} ({low:+.1%} to {high:+.1%}) against ss.record", rounded, flush=True)
    return results


def step_us(step: Callable[[], object]) -> list[float]:
    """Return how long each of some steps takes, from its first call until the GPU is done."""
    taken = []
    for _ in range(REPEATS):
        torch.cuda.synchronize()
        begin = time.perf_counter_ns()
        step()
        torch.cuda.synchronize()
        taken.append((time.perf_counter_ns() - begin) / 1e3)
    return taken


def key_of(stack: list[str], by: str) -> str:
    """Return the user's function, or the module, of a stack of PyTorch's, which begins with the innermost frame; empty for none."""
    if by == "module":
        return next((entry.removeprefix("nn.Module: ") for entry in stack if entry.startswith("nn.Module: ")), "")
    return next((f"{entry.rpartition(': ')[2]}:{_line_of(entry)}" for entry in stack if f"{FILE}(" in entry), "")


def _line_of(entry: str) -> str:
    return entry.rpartition("): ")[0].rpartition("(")[2]


def stacks_of_nodes(events: Any) -> dict[tuple[int, int], list[str]]:
    """Return the stack of each forward operator that made a node, by its number and thread.

    Operators that make none, such as a dropout that does nothing, have the number of the next node. PyTorch takes the first of them.
    """
    return {(event.sequence_nr, event.thread): event.stack for event in events if event.scope != 1 and not _evaluated(event)}


def _evaluated(event: Any) -> Any:
    """Return the event of the engine that runs a node around an event, None where there is none."""
    while event is not None and not event.name.startswith("autograd::engine::evaluate_function"):
        event = event.cpu_parent
    return event


def sums_of_pytorch(events: Any, by: str, *, tree: bool) -> dict[str, float]:
    """Return the GPU's time by key, in us, from PyTorch's events."""
    sums: dict[str, float] = defaultdict(float)
    forward = stacks_of_nodes(events) if tree else {}
    for event in events:
        took = sum(kernel.duration for kernel in event.kernels if kernel.name != event.name)  # Not the range of an annotation on the GPU.
        if not took or event.is_user_annotation or event.name.startswith(_COUNTED_TWICE):
            continue
        engine = _evaluated(event) if tree else None
        stack = event.stack if engine is None else forward.get((engine.sequence_nr, engine.fwd_thread), [])
        sums[key_of(stack, by)] += took
    return dict(sums)


def sums_of_ours(trace: Trace, by: Any) -> dict[str, float]:
    """Return the same from the file."""
    sums: dict[str, float] = defaultdict(float)
    found = ss.analysis.by_code(trace, by)
    for row in found.rows:
        unknown = row.name == "unknown" and not row.file
        sums["" if unknown else row.name if by == "module" else f"{row.name}:{row.line}"] += row.gpu_ns / 1000
    # Where no call has a module, nothing is divided.
    sums["not attributed" if found.rows else ""] += found.unattributed.gpu_ns / 1000
    return dict(sums)


def off(ours: Sums, theirs: Sums) -> float:
    """Return the share of the time that stands in another row."""
    keys = ours.keys() | theirs.keys()
    apart = sum(abs(ours.get(key, 0.0) - theirs.get(key, 0.0)) for key in keys)
    return apart / 2 / max(1e-9, sum(theirs.values()))


def measured_times() -> dict[str, Any]:
    """Return for each step how far rows by line and by module are off from PyTorch's events."""
    results: dict[str, Any] = {}
    for name, make in STEPS.items():
        try:
            results[name] = _compared(name, make())
        except Exception as error:  # noqa: BLE001 — one that cannot be made here is told, and the others go on
            results[name] = {"error": f"{type(error).__name__}: {error}"[:300]}
            print(name, results[name], flush=True)
        torch.cuda.empty_cache()
    return results


def _compared(name: str, step: Callable[[], object]) -> dict[str, Any]:
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    verbose = torch._C._profiler._ExperimentalConfig(verbose=True)  # noqa: SLF001 — else operators have no stacks
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], with_stack=True, with_modules=True, experimental_config=verbose
    ) as prof:
        for _ in range(2):
            step()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "step.json")
        prof.export_chrome_trace(file)
        began = time.perf_counter()
        trace = ss.read(file)
        read_s = time.perf_counter() - began
    events = prof.events()
    found: dict[str, Any] = {"gpu_us": round(ss.analysis.by_code(trace).gpu_ns / 1000, 1), "read_s": round(read_s, 2)}
    for by in ("line", "module"):
        ours = sums_of_ours(trace, by)
        found[by] = {}
        for rule in ("pytorch", "tree"):
            theirs = sums_of_pytorch(events, by, tree=rule == "tree")
            apart = sorted(ours.keys() | theirs.keys(), key=lambda key: -abs(ours.get(key, 0.0) - theirs.get(key, 0.0)))
            found[by][rule] = {
                "off": off(ours, theirs),
                "sum_us": sum(theirs.values()),
                "worst": [[key, round(ours.get(key, 0.0), 1), round(theirs.get(key, 0.0), 1)] for key in apart[:6]],
            }
    print(f"{name}: {found['gpu_us']:,.0f} us;", {by: f"{found[by]['tree']['off']:.2%}" for by in ("line", "module")}, flush=True)
    return found


def within(times: Mapping[str, Any]) -> dict[str, int]:
    """Return of how many steps rows are right within one percent."""
    return {by: sum(by in found and found[by]["tree"]["off"] <= ALLOWED for found in times.values()) for by in ("line", "module")}


PARTS: dict[str, Callable[[], dict[str, Any]]] = {"lines": measured_lines, "cost": measured_cost, "times": measured_times}


def main() -> None:
    """Measure, print and write the result."""
    warnings.filterwarnings("ignore", module="torch")
    chosen = [each for each in sys.argv[1:] if each in PARTS] or list(PARTS)
    sys.argv = [each for each in sys.argv if each not in PARTS]
    device = ss.open_device("cuda")
    torch.manual_seed(0)
    content = {"what": (__doc__ or "").partition("\n")[0], **provenance(device, torch=torch.__version__)}
    content |= {part: PARTS[part]() for part in PARTS if part in chosen}
    if found := content.get("lines"):
        content["right_lines"] = [sum(one[key] for one in found.values()) for key in ("right", "in_ranges")]
        print("lines right:", content["right_lines"])
    if found := content.get("times"):
        content["within_1_percent"] = within(found)
        print("within 1 %:", content["within_1_percent"], "of", len(found))
    keep("code_times.json", content)


if __name__ == "__main__":
    main()
