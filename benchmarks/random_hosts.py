"""Random programs over 1 to 4 simulated GPUs under every engine and hostile schedules, beside NumPy; and each wait taken out in turn.

    python benchmarks/random_hosts.py [RESULT.json] [PROGRAMS] [TORN] [PROCESSES]

One in ``TORN`` programs loses each of its waits under each engine: a schedule has to show that, or the wait is proven needless.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from provenance import keep, provenance
from tests.engines.hostile_schedules import RUNS, adversary, expected_of, right, without_wait
from tests.engines.random_host_programs import random_host_program

from streamscope.devices.simulated import SimulatedDevice
from streamscope.engine_entry import ENGINES
from streamscope.errors import StreamscopeError

MOST_GPUS = 4


def tried(seed: int, torn: int) -> Counter[str]:
    """Run one program under each engine, return counts, and print faults."""
    made = random_host_program(seed, 1 + seed % MOST_GPUS, 3 + seed % 9)
    expected, found = expected_of(made), Counter[str]()
    collectives = [operation.collective for operation in made.program.operations if operation.collective is not None]
    found.update(f"{collective.kind} {collective.op}".strip() for collective in collectives)
    found.update({"operations": len(made.program.operations), f"programs, GPUs: {made.gpus}": 1, str(made.inputs[0].dtype): 1})
    for engine in ENGINES:
        plan = ENGINES[engine].plan(made.program, lambda launch: 1e5, 2 + seed % 2)
        found.update({f"waits of {engine}": plan.waits, "plans": 1})
        try:
            verdict = "right" if right(plan, made, expected, adversary(seed)) else "wrong"
        except StreamscopeError as error:
            verdict = f"failed: {error.message.partition(':')[0]}"
        found[verdict] += 1
        if verdict != "right":
            print(f"program {seed} under {engine}: {verdict}", flush=True)
        if seed // MOST_GPUS % torn:
            continue
        for index in range(plan.waits):
            shown = without_wait(plan, index, made, expected)
            if shown == "hidden":
                twin = random_host_program(seed, made.gpus, 3 + seed % 9, other=True)
                other = ENGINES[engine].plan(twin.program, lambda launch: 1e5, 2 + seed % 2)
                shown = without_wait(other, index, twin, expected_of(twin))
            found[f"without a wait of {engine}: {shown}"] += 1
            if shown == "hidden":
                print(f"program {seed} under {engine}: nothing shows that wait {index} is gone", flush=True)
    return found


def main() -> None:
    """Try the programs, and keep the counts."""
    given = sys.argv[2:]
    programs, torn, processes = map(int, [*given, *("10000", "25", "2")[len(given) :]])
    start_s, found = time.monotonic(), Counter[str]()
    with ProcessPoolExecutor(processes) as pool:
        for number, each in enumerate(pool.map(partial(tried, torn=torn), range(programs), chunksize=20), 1):
            found.update(each)
            if number % 500 == 0:
                print(number, round(time.monotonic() - start_s), flush=True)
    counts = {"programs": programs, "runs_each": RUNS, "counts": dict(sorted(found.items()))}
    keep("random_hosts.json", provenance(SimulatedDevice(gpus=MOST_GPUS)) | counts)


if __name__ == "__main__":
    main()
