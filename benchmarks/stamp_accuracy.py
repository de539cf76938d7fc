"""Stamps of blocks against CUPTI, in the same runs, and what stamps cost, on the GPU of this machine.

CUPTI delays the branches of a graph by some microseconds, so two runs cannot be compared where kernels are short. Here CUPTI records runs
of the stamped kernels, and both say when the same kernels ran. Programs of generated kernels only. CUPTI counts a kernel as running from
when the device has taken it up, also while it waits for room, so starts of kernels that fill the device differ.

    python benchmarks/stamp_accuracy.py [RESULT.json]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from provenance import provenance
from recorder_accuracy import compile_together

import streamscope as ss
from streamscope.devices.protocol import Call
from streamscope.engines.binding import BoundStep
from streamscope.engines.plan import Issue, Replay
from streamscope.engines.prepared import Prepared, prepare_traced
from streamscope.files import written_whole
from streamscope.program.operation import Program
from streamscope.recording.events import EventRecorder
from streamscope.recording.stamps import Recording, StampRecorder, stamping_ns
from streamscope.recording.subscription import WORK, subscription
from streamscope.recording.timed_run import steps_of, timed_run
from streamscope.trace.spans import SpanKind
from streamscope.tracing import ProgramFunction, program
from streamscope.workloads import WORKLOADS

RUNS, WARM = 12, 2
ENGINES = ("async", "dual", "graph", "graph-dual")
FILLING = 1056
"""Blocks of a kernel that fills the device."""
Times = npt.NDArray[np.float64]


def branches(width: int, blocks: int) -> tuple[ProgramFunction, list[Any]]:
    """Chains of four kernels side by side, each kernel of so many blocks."""

    @program
    def side_by_side(x: Any, *scales: Any) -> tuple[Any, ...]:
        ends = list(scales)
        for step in range(4):
            ends = [ss.ops.multiply(end, x) if step % 2 == 0 else ss.ops.relu(end) for end in ends]
        return tuple(ends)

    random = np.random.default_rng(0)
    return side_by_side, [random.random(1024 * blocks, dtype=np.float32) for _ in range(width + 1)]


def rows(*shape: int) -> tuple[ProgramFunction, list[Any]]:
    """Softmax, sums and cumulative sums of rows: kernels of 5 to 20 µs where rows are long and many, one of them two kernels."""

    @program
    def of_rows(x: Any, y: Any) -> tuple[Any, ...]:
        return ss.ops.softmax(x), ss.ops.sum(y, axis=1), ss.ops.cumsum(y, axis=1)

    random = np.random.default_rng(0)
    return of_rows, [random.random(shape, dtype=np.float32) for _ in range(2)]


def cases() -> dict[str, tuple[ProgramFunction, list[Any]]]:
    widths = {4: [2], 16: [2, 4], 66: [2, 4], 132: [2, 4], 264: [2], FILLING: [2, 4], 4 * FILLING: [2]}
    found = {f"{width} branches of {blocks} blocks": branches(width, blocks) for blocks, each in widths.items() for width in each}
    function, inputs = WORKLOADS["elementwise-chain"].build()
    return {**found, "rows": rows(2048, 1024), "short rows": rows(128, 256), "elementwise-chain": (function, list(inputs))}


def launches(steps: Sequence[BoundStep]) -> list[BoundStep]:
    return [one for bound in steps for one in (bound.inner if isinstance(bound.step, Replay) else [bound]) if isinstance(one.step, Issue)]


def overlap(starts: Times, ends: Times) -> tuple[float, float]:
    """Return the busy time, and the share of it in which two or more ran."""
    times = np.concatenate([starts, ends])
    order = np.argsort(times, kind="stable")
    depth = np.cumsum(np.repeat([1, -1], len(starts))[order])[:-1]
    lengths = np.diff(times[order])
    busy = float(lengths[depth >= 1].sum())
    return busy, float(lengths[depth >= 2].sum()) / busy


class Case:
    """One program under one engine: prepared, stamped, and what its stamps leave out."""

    def __init__(self, device: Any, traced: Program, inputs: list[Any], engine: str) -> None:
        self.device = device
        self.prepared = prepare_traced(traced, engine, device)
        self.prepared.load(inputs)
        warm(self.prepared)
        self.recording = one = Recording(StampRecorder.on(device), self.prepared)
        # Of kernels with stamps, as CUPTI sees them here.
        one.excess_ns = [excess + stamping_ns(slots.blocks) for excess, slots in zip(one.excess_ns, one.slots, strict=True)]
        self.twin, self.memory = self.recording.twin, self.recording.memory
        warm(self.twin)
        alone = self.recording.alone_ns(launches(steps_of(self.twin)))
        plain = EventRecorder.on(device).durations_ns(self.prepared, launches(steps_of(self.prepared)))
        self.longer = float(np.median([alone[index] / plain[index] - 1 for index in alone]))

    def ledger(self) -> dict[str, float]:
        """Return what stamps cost: kernels alone, and the makespan, by 30 runs of each in turns."""
        makespans: dict[str, list[float]] = {"plain": [], "stamped": []}
        for _ in range(30):
            for name, one in (("plain", self.prepared), ("stamped", self.twin)):
                start = self.device.now_ns()
                one.run()
                one.wait()
                makespans[name].append(self.device.now_ns() - start)
        plain, stamped = (float(np.median(times)) for times in makespans.values())
        return {"kernels_longer": round(self.longer, 4), "makespan_longer": round(stamped / plain - 1, 4), "plain_us": plain / 1e3}

    def both(self) -> dict[str, Any]:
        """Return how far stamps are from CUPTI in the same runs, and what stamps leave out and cost by CUPTI."""
        own, extents = [], []
        keys = [(one.step.launch.operation, one.step.launch.part) for one in launches(steps_of(self.twin)) if isinstance(one.step, Issue)]
        slots = [slot for key in keys for slot in self.recording.own[key]]

        def read() -> None:
            stamps = self.memory.read()
            base = int(stamps[slots[0]][:, 0].min())
            own.append(tuple(np.array([self.recording.extent_ns(slot, stamps[slot] - base) for slot in slots]).T))
            extents.append([int(stamps[slot][:, 1].max() - stamps[slot][:, 0].min()) for slot in slots])

        theirs, plain = by_cupti(self.twin, self.memory.clear, read), by_cupti(self.prepared)
        if len(theirs[0][0]) != len(slots):
            raise SystemExit(f"{len(theirs[0][0])} kernels by CUPTI, {len(slots)} by stamps")
        stamped_ns, plain_ns = (middle_mean(np.array([ends - starts for starts, ends in runs])) for runs in (theirs, plain))
        return compared(own[WARM:], theirs) | {
            "blocks": int(np.median([self.recording.slots[slot].blocks for slot in slots])),
            "left_out_ns": round(float(middle_mean(stamped_ns - middle_mean(np.array(extents[WARM:]))))),
            "stamping_ns": round(float(middle_mean(stamped_ns - plain_ns))),
        }


def middle_mean(values: Times) -> Times:
    """Return the mean of the middle half along the first axis. Both clocks step by 32 ns, and a median of their readings does, too."""
    quarter = len(values) // 4
    mean: Times = np.sort(values, axis=0)[quarter : len(values) - quarter].mean(axis=0)
    return mean


def by_cupti(prepared: Prepared, before: Call = lambda: None, behind: Call = lambda: None) -> list[tuple[Times, Times]]:
    """Return starts and ends of the kernels of some runs, in the order of launch and of capture; the first runs are left out."""
    with subscription().recording(WORK) as found:
        for _ in range(RUNS):
            before()
            timed_run(prepared)
            behind()
    work = found[0].work[found[0].work["code"] == SpanKind.KERNEL]
    runs = np.split(work[np.lexsort((work["graph_node"], work["correlation"]))], RUNS)[WARM:]
    return [tuple((run[time] - run["start_ns"].min()).astype(float) for time in ("start_ns", "end_ns")) for run in runs]


def compared(own: list[tuple[Times, Times]], theirs: list[tuple[Times, Times]]) -> dict[str, Any]:
    """Return how far stamps are from CUPTI: medians over runs, in µs, and shares."""
    starts = [np.median(np.abs((a[0] - b[0]) - np.median(a[0] - b[0]))) for a, b in zip(own, theirs, strict=True)]
    ends = [np.median(np.abs((a[1] - b[1]) - np.median(a[1] - b[1]))) for a, b in zip(own, theirs, strict=True)]
    durations = [np.median((a[1] - a[0]) - (b[1] - b[0])) for a, b in zip(own, theirs, strict=True)]
    extents = [(overlap(*a), overlap(*b)) for a, b in zip(own, theirs, strict=True)]
    lasted = float(np.median([b[1] - b[0] for b in theirs]))
    return {
        "kernels": len(own[0][0]),
        "cupti_kernel_us": round(lasted / 1e3, 3),
        "start_error_us": round(float(np.median(starts)) / 1e3, 3),
        "end_error_us": round(float(np.median(ends)) / 1e3, 3),
        "duration_difference_us": round(float(np.median(durations)) / 1e3, 3),
        "busy_ratio": round(float(np.median([a[0] / b[0] for a, b in extents])), 4),
        "overlap_stamps": round(float(np.median([a[1] for a, _ in extents])), 4),
        "overlap_cupti": round(float(np.median([b[1] for _, b in extents])), 4),
    }


def warm(prepared: Prepared) -> None:
    for _ in range(3):
        prepared.run()
        prepared.wait()


def main() -> None:
    target = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "results" / "stamp_accuracy.json")
    device: Any = ss.open_device("cuda")
    results: dict[str, dict[str, Any]] = {}
    made = {}
    traced = {name: (function.trace(*inputs), inputs) for name, (function, inputs) in cases().items()}
    compile_together(device, (one for one, _ in traced.values()))
    for name, (one_program, inputs) in traced.items():
        for engine in ENGINES:
            made[name, engine] = Case(device, one_program, inputs, engine)
            results.setdefault(name, {})[engine] = made[name, engine].ledger()
            print(name, engine, results[name][engine], flush=True)
    for (name, engine), case in made.items():
        results[name][engine] |= case.both()
        print(name, engine, results[name][engine], flush=True)
    with written_whole(target) as temporary:
        temporary.write_text(json.dumps({**provenance(device), "filling_blocks": FILLING, "programs": results}, indent=1))


if __name__ == "__main__":
    main()
