"""Devices and engines for the tests of the pushed engine, and pushed operations with what they mean in NumPy."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamscope as ss
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engines.pushed import lanes
from streamscope.engines.pushed.engine import Engine
from streamscope.program.variable import ArraySpec

LENGTH = 4
SPEC = ArraySpec((LENGTH,), np.dtype(np.int64))
"""Whole numbers, which wrap round: no order of operations is hidden by infinities, and a GPU computes them exactly."""


@pytest.fixture
def environment(repository: Path) -> dict[str, str]:
    """Return the environment of a process of its own that imports this checkout."""
    return {**os.environ, "PYTHONPATH": str(repository / "toolkit")}


@pytest.fixture(params=["simulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Any:
    """Return each device, afresh."""
    return SimulatedDevice() if request.param == "simulated" else ss.open_device("cuda")


@pytest.fixture(params=["sync", "async", "dual"])
def engine(request: pytest.FixtureRequest, device: Any) -> Iterator[Engine]:
    """Return each engine on each device, closed afterwards; faults that a test leaves are its own business."""
    opened = Engine(request.param, device=device, streams=3)
    yield opened
    try:
        opened.close()
    except ss.StreamscopeError:
        opened.close()


def add_then_multiply(x, y):
    """Two operators as one operation, with a temporary between them."""
    return ss.ops.multiply(ss.ops.add(x, y), y)


def on_host(x, y):
    """A plain function, which a worker runs."""
    return x * 3 + y


def two_on_host(x):
    """Two results."""
    return x + 1, x * 5


def number_on_host(seed=0):
    """Nothing is read."""
    return np.full(LENGTH, seed, np.int64)


@dataclass(frozen=True)
class Kind:
    """A kind of operation: the function that is pushed, what it means, and where its operands and results lie."""

    function: Callable[..., Any]
    meaning: Callable[..., Any]
    reads: str
    writes: str
    in_place: bool = False


KINDS = {
    "add": Kind(ss.ops.add, np.add, "dd", "d", in_place=True),
    "multiply": Kind(ss.ops.multiply, np.multiply, "dd", "d", in_place=True),
    "bulk": Kind(add_then_multiply, lambda x, y: (x + y) * y, "dd", "d"),
    "in": Kind(ss.ops.to_device, np.array, "h", "d"),
    "out": Kind(ss.ops.to_host, np.array, "d", "h"),
    "host": Kind(on_host, on_host, "hh", "h", in_place=True),
    "host two": Kind(two_on_host, two_on_host, "h", "hh", in_place=True),
}


class WithoutOneWait:
    """Lets each wait of a stream happen but one, and counts them."""

    def __init__(self, patch: pytest.MonkeyPatch, left_out: int | None) -> None:
        self.waits = 0
        fewest = lanes.fewest

        def some(clock, stamps):
            kept = []
            for stamp in fewest(clock, stamps):
                if self.waits != left_out:
                    kept.append(stamp)
                self.waits += 1
            return kept

        patch.setattr(lanes, "fewest", some)


class Serial:
    """The same operations one after the other in NumPy, and the engine's variables beside them."""

    def __init__(self, engine: Engine, devices: int, hosts: int) -> None:
        self.engine = engine
        initial = [np.arange(LENGTH, dtype=np.int64) + number for number in range(devices + hosts)]
        places = ["device"] * devices + ["host"] * hosts
        self.values = initial
        self.variables = [engine.variable(values, place=place) for values, place in zip(initial, places, strict=True)]
        self.of = {"d": range(devices), "h": range(devices, devices + hosts)}
        self.writes = [0] * len(initial)

    def push(self, name: str, reads: list[int], writes: list[int], priority: int = 0) -> None:
        """Push one operation and do it in NumPy; operands are numbers, taken modulo what there is."""
        kind = KINDS[name]
        sources = [self.of[place][number % len(self.of[place])] for place, number in zip(kind.reads, reads, strict=False)]
        targets = [self.of[place][number % len(self.of[place])] for place, number in zip(kind.writes, writes, strict=False)]
        if len(set(targets)) < len(targets) or (not kind.in_place and set(targets) & set(sources)):
            return
        self.engine.push(
            kind.function,
            reads=tuple(self.variables[source] for source in sources),
            writes=tuple(self.variables[target] for target in targets),
            priority=priority,
        )
        results = kind.meaning(*(self.values[source] for source in sources))
        for target, result in zip(targets, results if isinstance(results, tuple) else (results,), strict=True):
            self.values[target] = result
            self.writes[target] += 1

    def check(self) -> None:
        """Compare every variable with its serial value, and its version with the number of writes."""
        for variable, values, writes in zip(self.variables, self.values, self.writes, strict=True):
            np.testing.assert_array_equal(self.engine.read(variable), values)
            assert variable.version == writes
