"""After a fault, what is skipped depends on when it was pushed, never on when it runs."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field

import numpy as np
import pytest
from tests.engines.pushed.conftest import SPEC

import streamscope as ss
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engines.pushed.engine import Engine
from streamscope.errors import EngineError, StreamscopeError


def ones():
    return np.ones(4, np.int64)


def fails(*values):
    raise ValueError("as planned")


def joined(first, second):
    return first * 100 + second


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    """Functions are held by the thread that waits, so the simulated device's order of them does not count."""
    monkeypatch.setattr("streamscope.engines.pushed.host_operations.PATIENCE_S", 0.01)


@pytest.fixture(params=["async", "dual"])
def concurrent(request, device):
    with Engine(request.param, device=device) as engine:
        yield engine


def held(engine):
    """Return a host variable whose writer waits, and what lets it go on."""
    go, late = threading.Event(), engine.variable(ones(), place="host")
    engine.push(lambda values: go.wait(60) and values + 1, reads=(late,), writes=(late,), name="held")
    return late, go


def broken(engine):
    x = engine.variable(ones() * 7, place="host")
    engine.push(fails, reads=(x,), writes=(x,))
    return x


class TestAReaderThatRunsAfterTheWaitThatRaises:
    def test_is_skipped_on_the_host(self, concurrent):
        x, y = broken(concurrent), concurrent.variable(ones() * 5, place="host")
        late, go = held(concurrent)
        concurrent.push(joined, reads=(x, late), writes=(y,))
        with pytest.raises(EngineError, match="as planned"):
            concurrent.wait_to_read(x)
        go.set()
        np.testing.assert_array_equal(concurrent.read(y), ones() * 5)
        assert (y.version, late.version) == (0, 1)
        concurrent.wait_all()  # Raised once.

    def test_is_skipped_on_the_device(self, concurrent):
        bad, x, y, z = broken(concurrent), concurrent.variable(ones() * 7), concurrent.variable(ones() * 5), concurrent.variable(SPEC)
        concurrent.push(ss.ops.to_device, reads=(bad,), writes=(x,))
        late, go = held(concurrent)
        concurrent.push(ss.ops.to_device, reads=(late,), writes=(z,))
        concurrent.push(ss.ops.add, reads=(x, z), writes=(y,))
        with pytest.raises(EngineError, match="as planned"):
            concurrent.wait_to_read(x)
        go.set()
        np.testing.assert_array_equal(concurrent.read(y), ones() * 5)
        np.testing.assert_array_equal(concurrent.read(z), ones() * 2)

    def test_is_skipped_where_its_function_fails_in_tracing(self, concurrent):
        x, y = broken(concurrent), concurrent.variable(ones() * 5)
        late, go = held(concurrent)
        z = concurrent.variable(SPEC)
        concurrent.push(ss.ops.to_device, reads=(late,), writes=(z,))
        concurrent.push(ss.ops.to_device, reads=(x,), writes=(y,))
        concurrent.push(fails, reads=(y, z), writes=(y,))
        with pytest.raises(EngineError, match="as planned"):
            concurrent.wait_to_read(x)
        go.set()
        concurrent.wait_all()  # Skipped, so there is nothing of its own to raise.

    def test_and_what_is_pushed_after_the_wait_reads_the_values_that_are_there(self, concurrent):
        x, y = broken(concurrent), concurrent.variable(ones() * 5, place="host")
        late, go = held(concurrent)
        concurrent.push(joined, reads=(x, late), writes=(y,))
        with pytest.raises(EngineError, match="as planned"):
            concurrent.wait_to_read(x)
        z = concurrent.variable(SPEC, place="host")
        concurrent.push(joined, reads=(x, y), writes=(z,))
        go.set()
        np.testing.assert_array_equal(concurrent.read(z), ones() * 705)


def test_the_first_that_was_pushed_is_raised_whichever_failed_first():
    with Engine("async", device=SimulatedDevice()) as engine:
        go = threading.Event()
        engine.push(lambda: go.wait(60) and fails(), name="pushed first")
        x = engine.variable(ones(), place="host")
        engine.push(lambda values: (go.set(), fails()), reads=(x,), writes=(x,), name="failed first")
        with pytest.raises(EngineError, match="pushed first") as raised:
            engine.wait_all()
        assert "failed first" in raised.value.__notes__[0]


HOSTS, DEVICES = 4, 2


@dataclass
class Pushes:
    """Operations on one engine, whose host functions wait to be released, each when a wait needs it or at the end."""

    engine: Engine
    held: bool
    seen: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        spec = [(ones() * number, "host") for number in range(HOSTS)] + [(ones() * number, "device") for number in range(DEVICES)]
        self.variables = [self.engine.variable(values, place=place) for values, place in spec]
        self.pushed: list[tuple[set[int], set[int], threading.Event]] = []

    def push(self, kind: str, a: int, b: int, c: int, wait: bool) -> None:
        h, d = (a % HOSTS, b % HOSTS, c % HOSTS), tuple(HOSTS + each % DEVICES for each in (a, b, c))
        go = threading.Event()
        if not (wait and self.held):
            go.set()

        def on_host(*values):
            assert go.wait(60)
            return fails() if kind == "fail" else joined(*values) % 1009

        function, reads, writes = {
            "in": (ss.ops.to_device, (h[0],), (d[1],)),
            "out": (ss.ops.to_host, (d[0],), (h[1],)),
            "add": (ss.ops.add, (d[0], d[1]), (d[2],)),
        }.get(kind, (on_host, (h[0], h[1]), (h[2],)))
        name = f"{kind} {len(self.pushed)}"
        self.engine.push(
            function, reads=tuple(self.variables[n] for n in reads), writes=tuple(self.variables[n] for n in writes), name=name
        )
        self.pushed.append((set(reads) - set(writes), set(writes), go))

    def release(self, read: int | None = None) -> None:
        """Release what a read of a variable needs, or everything."""
        reads, writes = ({read}, set()) if read is not None else (set(), set())
        for earlier, written, go in reversed(self.pushed):
            if read is None or written & (reads | writes) or earlier & writes:
                go.set()
                reads, writes = reads | earlier, writes | written

    def wait(self, variable: int | None) -> None:
        self.release(variable)
        try:
            self.engine.wait_all() if variable is None else self.engine.wait_to_read(self.variables[variable])
            self.seen.append("nothing")
        except StreamscopeError as error:
            self.seen += [str(error).split(" (pushed")[0], *(note.split(" (pushed")[0] for note in getattr(error, "__notes__", ()))]


def some_steps(seed: int) -> list[int | tuple[str, int, int, int, bool]]:
    """Return operations, and waits for variables between them."""
    chance, kinds = random.Random(seed), ["host", "host", "host", "fail", "in", "out", "add"]
    steps: list[int | tuple[str, int, int, int, bool]] = []
    for _ in range(chance.randrange(10, 40)):
        a, b, c = (chance.randrange(HOSTS) for _ in range(3))
        operation = (chance.choice(kinds), a, b, c, chance.random() < 0.7)
        steps.append(chance.randrange(HOSTS + DEVICES) if chance.random() < 0.2 else operation)
    return steps


@pytest.mark.parametrize("seed", range(0, 60, 15))
def test_outcomes_are_those_of_the_synchronous_engine_in_whichever_order_workers_get_on(seed):
    """Host functions are held back until a wait needs them, or not, at will."""
    for number in range(seed, seed + 15):
        outcomes = []
        for name in ("sync", "async"):
            with Engine(name, device=SimulatedDevice(), workers=40) as engine:
                pushes = Pushes(engine, held=name == "async")
                for step in some_steps(number):
                    pushes.push(*step) if isinstance(step, tuple) else pushes.wait(step)
                pushes.wait(None)
                values = [engine.read(variable).tolist() for variable in pushes.variables]
                outcomes.append((pushes.seen, values, [variable.version for variable in pushes.variables]))
        assert outcomes[0] == outcomes[1]
