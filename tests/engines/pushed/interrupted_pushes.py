"""A program that is interrupted at random by Ctrl-C, hundreds of times; run by `test_interrupts` in a process of its own.

python interrupted_pushes.py ENGINE DEVICE SEED
"""

from __future__ import annotations

import faulthandler
import random
import signal
import sys
from collections.abc import Callable

import numpy as np

import streamscope as ss

TURNS, SIGNALS = 5, 60


def one_more(values):
    """Run on a worker."""
    return values + 1


@ss.program
def double(x):
    """Add x to itself."""
    return ss.ops.add(x, x)


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
                    engine.push(ss.ops.add, reads=(a, b), writes=(a,))
                case 2:
                    engine.push(ss.ops.to_host, reads=(a,), writes=(h,))
                case 3:
                    engine.push(one_more, reads=(h,), writes=(g,))
                case 4:
                    engine.push(ss.ops.to_device, reads=(g,), writes=(b,))
                case 5:
                    engine.wait_to_read(self.chance.choice([*self.devices, *self.hosts]))
                case 6:
                    with engine.bulk(3):
                        for _ in range(4):
                            engine.push(ss.ops.add, reads=(a, b), writes=(a,))

    def check(self) -> None:
        """Use everything once more."""
        engine, (a, b, c), (h, g) = self.engine, self.devices, self.hosts
        for variable in (*self.devices, *self.hosts):
            engine.write(variable, np.full(4, 7, np.int64))
        engine.push(ss.ops.add, reads=(a, b), writes=(c,))
        engine.push(ss.ops.to_host, reads=(c,), writes=(h,))
        engine.push(one_more, reads=(h,), writes=(g,))
        np.testing.assert_array_equal(engine.read(g), np.full(4, 15))
        np.testing.assert_array_equal(engine.run(double, np.ones(3)), np.full(3, 2.0))


class Interrupter:
    """Sends Ctrl-C at random times, by the system's timer.

    A thread that sends it would get its turn only when Python's lock is free for it to take. It waits for ever so long where the main
    thread gives the lock away and takes it back all the time, as calls of CuPy and NumPy do.
    """

    def __init__(self, chance: random.Random) -> None:
        self.sent = 0
        self._on = False
        self._chance = chance
        signal.signal(signal.SIGALRM, self._send)

    def again_and_again(self, call: Callable[[], object]) -> int:
        """Call until a call ends without Ctrl-C; return how often it came. It comes in the calls and nowhere else."""
        interruptions = 0
        while True:
            try:
                self._on = True
                self._start()
                call()
            except KeyboardInterrupt:
                self._on = False
                interruptions += 1
            else:
                return interruptions
            finally:
                self._on = False
                signal.setitimer(signal.ITIMER_REAL, 0)

    def _start(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, self._chance.uniform(0.0002, 0.004))

    def _send(self, number: int, frame: object) -> None:
        if self._on:
            self.sent += 1
            self._start()  # Another one may come while the first is dealt with.
            signal.raise_signal(signal.SIGINT)


def interrupted(workload: Workload, interrupter: Interrupter) -> int:
    """Run a workload until Ctrl-C was sent so many times; return how often it came as an exception."""
    last = interrupter.sent + SIGNALS

    def work() -> None:
        while interrupter.sent < last:
            try:
                workload.some()
            except ss.StreamscopeError:
                continue  # That of an operation that was interrupted before.

    return interrupter.again_and_again(work)


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
    interrupter = Interrupter(random.Random(seed + 1))
    opened = ss.open_device(device)
    for _ in range(TURNS):
        with ss.Engine(name, device=opened, streams=3) as engine:
            workload = Workload(engine, chance)
            workload.check()  # A module that is imported when Ctrl-C comes is another matter.
            workload.some()
            engine.wait_all()
            turn = interrupted(workload, interrupter)
            print(f"{turn} interruptions, {interrupter.sent} sent until now; {engine.statistics}", file=sys.stderr)  # noqa: T201
            faults_taken(engine)
            workload.check()
            count += turn
    print(count)  # noqa: T201 — the test reads it


if __name__ == "__main__":
    main()
