"""A program that is interrupted at random by Ctrl-C, hundreds of times; run by `test_dynamic_interrupts` in a process of its own.

python interrupted_pushes.py ENGINE DEVICE SEED
"""

from __future__ import annotations

import faulthandler
import random
import signal
import sys
import threading
import time
from collections.abc import Callable

import numpy as np

import streamscope as ss

TURNS, SECONDS = 5, 0.2
MAIN = threading.main_thread().ident


def one_more(values):
    """Run on a worker."""
    return values + 1


@ss.program
def double(x):
    """Add x to itself."""
    return ss.add(x, x)


class Workload:
    """Pushes and waits of every kind, at random."""

    def __init__(self, engine: ss.Engine, chance: random.Random) -> None:
        self.engine, self.chance = engine, chance
        self.devices = [engine.variable(np.ones(4, np.int64)) for _ in range(3)]
        self.hosts = [engine.variable(np.ones(4, np.int64), place="host") for _ in range(2)]

    def some(self) -> None:
        engine, (h, g) = self.engine, self.hosts
        for _ in range(60):
            a, b = self.chance.choice(self.devices), self.chance.choice(self.devices)
            match self.chance.randrange(7):
                case 0 | 1:
                    engine.push(ss.add, reads=(a, b), writes=(a,))
                case 2:
                    engine.push(ss.to_host, reads=(a,), writes=(h,))
                case 3:
                    engine.push(one_more, reads=(h,), writes=(g,))
                case 4:
                    engine.push(ss.to_device, reads=(g,), writes=(b,))
                case 5:
                    engine.wait_to_read(self.chance.choice([*self.devices, *self.hosts]))
                case 6:
                    with engine.bulk(3):
                        for _ in range(4):
                            engine.push(ss.add, reads=(a, b), writes=(a,))

    def check(self) -> None:
        """Use everything once more."""
        engine, (a, b, c), (h, g) = self.engine, self.devices, self.hosts
        for variable in (*self.devices, *self.hosts):
            engine.write(variable, np.full(4, 7, np.int64))
        engine.push(ss.add, reads=(a, b), writes=(c,))
        engine.push(ss.to_host, reads=(c,), writes=(h,))
        engine.push(one_more, reads=(h,), writes=(g,))
        np.testing.assert_array_equal(engine.read(g), np.full(4, 15))
        np.testing.assert_array_equal(engine.run(double, np.ones(3)), np.full(3, 2.0))


def again_and_again(call: Callable[[], object]) -> int:
    """Call until a call ends without Ctrl-C; return how often it came."""
    interruptions = 0
    while True:
        try:
            call()
        except KeyboardInterrupt:
            interruptions += 1
        else:
            return interruptions


def interrupted(workload: Workload, chance: random.Random) -> int:
    """Run a workload for a while, interrupted all the time; return how often."""
    go, over = threading.Event(), threading.Event()

    def interrupt() -> None:
        go.wait()
        while not over.wait(chance.uniform(0.0002, 0.004)):
            signal.pthread_kill(MAIN, signal.SIGINT)

    def work() -> None:
        while time.monotonic() < end:
            try:
                workload.some()
            except ss.StreamscopeError:
                continue  # That of an operation that was interrupted before.

    thread = threading.Thread(target=interrupt)
    thread.start()
    end = time.monotonic() + SECONDS
    go.set()
    count = again_and_again(work)
    again_and_again(over.set)
    again_and_again(thread.join)
    return count


def faults_taken(engine: ss.Engine) -> None:
    try:
        engine.wait_all()
    except ss.StreamscopeError:
        engine.wait_all()


def main() -> None:
    name, device, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
    sys.unraisablehook = lambda unraisable: None  # Ctrl-C in a weak reference's callback is told of, and nothing else.
    faulthandler.dump_traceback_later(60, exit=True)
    chance, count = random.Random(seed), 0
    opened = ss.open_device(device)
    for _ in range(TURNS):
        with ss.Engine(name, device=opened, streams=3) as engine:
            workload = Workload(engine, chance)
            engine.wait_all()
            count += interrupted(workload, chance)
            faults_taken(engine)
            workload.check()
    print(count)  # noqa: T201 — the test reads it


if __name__ == "__main__":
    main()
