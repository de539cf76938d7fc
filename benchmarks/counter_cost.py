"""What a call of a counter or a marker costs, while something records and while nothing does: the median of rounds in turns.

Each way is a loop of its own, and the time of an empty loop is taken off. It is processor time, since others
may use the machine. Values are heard on the host's clock, as by `ss.record`, and by the virtual clock of a simulated device.

    python benchmarks/counter_cost.py [RESULT.json]
"""

from __future__ import annotations

import platform
import statistics
import time
import timeit
from collections.abc import Callable

import numpy as np
from provenance import keep, provenance

import streamscope as ss
from streamscope.devices.simulated import SimulatedDevice
from streamscope.recording.counting import heard

ROUNDS, CALLS = 15, 50_000


def ways() -> dict[str, Callable[[], object]]:
    """Return the calls, by their names."""
    loss, number = ss.counter("loss"), np.float32(1.5)
    return {
        "counter.set(1.5)": lambda: loss.set(1.5),
        "counter.add(1)": lambda: loss.add(1),
        'ss.counter("loss").set(1.5)': lambda: ss.counter("loss").set(1.5),
        "counter.set(np.float32)": lambda: loss.set(number),
        'ss.marker("step")': lambda: ss.marker("step"),
    }


def round_ns() -> dict[str, float]:
    """Return the time of one call of each kind, in one round."""
    empty = timeit.timeit(lambda: None, timer=time.process_time, number=CALLS)
    return {name: (timeit.timeit(call, timer=time.process_time, number=CALLS) - empty) / CALLS * 1e9 for name, call in ways().items()}


def medians_ns(clock: Callable[[], int] | None) -> dict[str, float]:
    """Return the medians of all rounds; with a clock, while somebody listens at it."""
    rounds = []
    for _ in range(ROUNDS):
        if clock is None:
            rounds.append(round_ns())
        else:
            with heard(clock):
                rounds.append(round_ns())
    return {name: round(statistics.median(one[name] for one in rounds), 1) for name in rounds[0]}


def main() -> None:
    """Measure, print and keep the result."""
    device = SimulatedDevice()
    found = {
        "nothing_records_ns": medians_ns(None),
        "recorded_ns": medians_ns(time.perf_counter_ns),
        "simulated_ns": medians_ns(device.now_ns),
    }
    for what, each in found.items():
        print(what, each)
    keep("counter_cost.json", {**provenance(device), "processor": platform.processor() or platform.machine(), **found})


if __name__ == "__main__":
    main()
