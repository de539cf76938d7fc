"""Break-even points: from which kernel length and count on a graph, or a second stream, pays on a device.

All of it is read off runs on the simulated device with that device's cost model. Kernels are taken to leave room for each other on the
multiprocessors; those that fill them gain nothing from a second stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from math import inf, isnan, nan

import numpy as np
import numpy.typing as npt

from streamscope.arrays import FloatArray
from streamscope.devices.cost_model import CostModel
from streamscope.devices.measured_models import model_of
from streamscope.devices.protocol import Device
from streamscope.engine_entry import GRAPH, STREAM, engine_with
from streamscope.engines.plan import Plan, plan_for
from streamscope.measuring.simulation import simulated_ns, without_data
from streamscope.ops import add
from streamscope.ops.softmaxes import softmax
from streamscope.program.symbol import Symbol
from streamscope.program.tracer import empty
from streamscope.trace.info import DeviceInfo
from streamscope.tracing import ProgramFunction, program

_Inputs = tuple[npt.NDArray[np.float32], ...]

WORTH = 0.05
"""A gain below this share of the makespan does not count as one that pays."""
_MANY = 1000
"""Kernels of a chain that is as good as endless."""
_SHORTEST_NS, _LONGEST_NS = 100.0, 1e6
"""Kernel lengths among which break-even points are looked for."""
BRANCHED = PLAIN, STREAMS, CAPTURED, BOTH = (engine_with(), engine_with(STREAM), engine_with(GRAPH), engine_with(STREAM, GRAPH))
"""Engines that compete for branches."""
SHORTEST_US, LONGEST_US = 0.5, 100.0
_LENGTHS = 72
"""Kernel lengths from the shortest to the longest, evenly spaced in their logarithm."""
_CHAINS = tuple(sorted({round(10 ** (step / 18)) for step in range(3 * 18 + 1)}))
"""Numbers of kernels, 1 to 1,000."""
_BRANCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Kernels in each of two branches."""

_FEW, _MORE = 2, 12
"""Kernels in the chains that are simulated; in a longer one, each kernel more takes as long as between these."""
_STEP_NS = 20.0
"""Between two kernel lengths whose makespans tell on how many kernels they depend."""
_ROUNDING_NS = 5.0


_ROWS = 2
"""Rows of a branch's arrays: a softmax has one block for each, so that two of them have room side by side on any GPU."""


@dataclass(frozen=True)
class DeviceCosts:
    """Costs of calls, kernels and graphs on a device."""

    device: DeviceInfo
    model: CostModel
    """That of a simulated device itself; of a GPU, the one that ``streamscope calibrate`` measured here, else the built-in one."""

    @classmethod
    def of(cls, device: Device) -> DeviceCosts:
        """Return the costs of a device."""
        info = device.info
        model = getattr(device, "model", None) or model_of(info.name)
        return cls(info, replace(model, multiprocessors=int(info.details.get("multiprocessors", model.multiprocessors))))

    @cached_property
    def corners(self) -> dict[tuple[str, str, int], tuple[FloatArray, FloatArray]]:
        """Corners of makespans over kernel length that were simulated already, by shape, engine and kernels."""
        return {}

    def capture_ns(self, nodes: float) -> float:
        """Return the host's time for capturing and instantiating a graph of so many nodes, in ns."""
        return nodes * self.model.launch_ns + self.model.graph_instantiate_ns(round(nodes))


@dataclass(frozen=True)
class BreakEven:
    """Up to, or from, which kernel length something pays."""

    low_ns: float
    high_ns: float
    """It pays for kernels of at least ``low_ns`` and at most ``high_ns``: 0 and infinite where there is no such limit between
    `_SHORTEST_NS` and `_LONGEST_NS`; both are NaN where it never pays."""

    @property
    def never(self) -> bool:
        """Whether it pays at no length."""
        return isnan(self.low_ns)


@dataclass(frozen=True)
class Regions:
    """Which engine wins where."""

    engines: tuple[str, ...]
    """The engines that compete, the simplest first; the first is the base."""
    lengths_us: npt.NDArray[np.float64]
    """Kernel lengths, in µs: columns."""
    counts: npt.NDArray[np.int64]
    """Numbers of kernels: rows."""
    winner: npt.NDArray[np.int64]
    """Of shape (counts, lengths): index of the simplest engine that is within `WORTH` of the fastest."""
    speedup: npt.NDArray[np.float64]
    """Of the same shape: makespan under the first engine over that under the winner."""
    dual_from_us: npt.NDArray[np.float64]
    """For each count, from which length on a second stream pays with launches one by one, in µs; NaN where it never does. Empty where
    there is none."""


def chain_ns(costs: DeviceCosts, engine: str, count: float, length_ns: float | FloatArray) -> FloatArray:
    """Return the makespan of a chain of kernels under async or graph, in ns, for one kernel length or several; capture is not counted."""
    few, more = (_makespans_ns(costs, ("chain", engine, number), length_ns) for number in (_FEW, _MORE))
    return few + (count - _FEW) * (more - few) / (_MORE - _FEW)


def branched_ns(costs: DeviceCosts, engine: str, kernels: int, length_ns: float | FloatArray) -> FloatArray:
    """Return the makespan of two independent branches of so many kernels each, that meet in one more, in ns."""
    return _makespans_ns(costs, ("branches", engine, kernels), length_ns)


def graph_speedup(costs: DeviceCosts, count: int, length_ns: float) -> float:
    """Return how many times as fast a chain runs in a graph as under async; capture is not counted."""
    return float(chain_ns(costs, PLAIN, count, length_ns) / chain_ns(costs, CAPTURED, count, length_ns))


def launch_bound_below_ns(costs: DeviceCosts) -> float:
    """Return below which length kernels wait for the host under async, in ns; 0 where none does."""
    lengths_ns, _ = _corners(costs, ("chain", PLAIN, _MORE))
    return float(lengths_ns[-2]) if len(lengths_ns) > 2 else 0.0


def graph_pays(costs: DeviceCosts, count: int = _MANY) -> BreakEven:
    """Return for which kernel lengths a chain is faster in a graph by `WORTH` or more, once it is captured."""
    return _range(lambda length_ns: graph_speedup(costs, count, length_ns))


def fewest_kernels(costs: DeviceCosts, length_ns: float) -> int | None:
    """Return from how many kernels of a length on a graph is faster by `WORTH`; None if it is not for a chain of `_MANY` either."""
    return next((count for count in (*range(1, 100), _MANY) if graph_speedup(costs, count, length_ns) >= 1 + WORTH), None)


def replays_to_pay(costs: DeviceCosts, nodes: float, saved_ns: float) -> float:
    """Return after how many replays a graph has paid for its capture; infinite if it saves nothing.

    Formula: capture and instantiation / (makespan under async - makespan in the graph).
    """
    return costs.capture_ns(nodes) / saved_ns if saved_ns > 0 else inf


def second_stream_pays(costs: DeviceCosts, kernels: int, *, in_graph: bool) -> BreakEven:
    """Return for which kernel lengths a second stream gains `WORTH`, for two branches of so many kernels each, that meet in one more."""
    one, two = (CAPTURED, BOTH) if in_graph else (PLAIN, STREAMS)
    return _range(lambda length_ns: float(branched_ns(costs, one, kernels, length_ns) / branched_ns(costs, two, kernels, length_ns)))


def chain_regions(costs: DeviceCosts) -> Regions:
    """Return where a graph beats launches one by one, for kernels that each depend on the one before."""
    return _regions((PLAIN, CAPTURED), _CHAINS, _LENGTHS, partial(chain_ns, costs), ())


def branch_regions(costs: DeviceCosts) -> Regions:
    """Return where a second stream, a graph, or both win, for two independent branches that leave each other room."""
    dual_from_us = [second_stream_pays(costs, count, in_graph=False).low_ns / 1e3 for count in _BRANCHES]
    return _regions(BRANCHED, _BRANCHES, _LENGTHS // 2, partial(branched_ns, costs), dual_from_us)


def _regions(
    engines: tuple[str, ...],
    counts: tuple[int, ...],
    columns: int,
    makespans_ns: Callable[[str, int, FloatArray], FloatArray],
    dual_from_us: Sequence[float],
) -> Regions:
    lengths_us = np.geomspace(SHORTEST_US, LONGEST_US, columns)
    times = np.array([[makespans_ns(engine, count, lengths_us * 1e3) for count in counts] for engine in engines])
    winner = (times <= times.min(axis=0) * (1 + WORTH)).argmax(axis=0)
    speedup = times[0] / np.take_along_axis(times, winner[None], axis=0)[0]
    return Regions(engines, lengths_us, np.asarray(counts, np.int64), winner, speedup, np.asarray(dual_from_us, np.float64))


def chain(length: int, size: int) -> tuple[ProgramFunction, _Inputs]:
    """Return additions of ``size`` float32 values, each on the result of the one before, and their inputs."""

    @program
    def chain(x: Symbol, step: Symbol) -> Symbol:
        total = empty(size)
        add(x, step, out=total)
        for _ in range(length - 1):
            add(total, step, out=total)
        return total

    return chain, (np.zeros(size, np.float32), np.full(size, 1e-3, np.float32))


def forked(blocks: int, length: int, columns: int) -> tuple[ProgramFunction, _Inputs]:
    """Return blocks of two independent branches that meet in an addition, and their input.

    A branch has ``length`` softmax kernels on a few long rows: they run as long as one wishes and leave most of a GPU free.
    """

    @program
    def forked(x: Symbol) -> Symbol:
        for _ in range(blocks):
            left, right = x, x
            for _ in range(length):
                left, right = softmax(left), softmax(right)
            x = add(left, right)
        return x

    return forked, (np.ones((_ROWS, columns), np.float32),)


@cache
def _plan(shape: str, engine: str, kernels: int) -> Plan:
    """Return an engine's plan of a small program; it depends on the program's shape, not on the length of its kernels."""
    function, inputs = chain(kernels, 1) if shape == "chain" else forked(1, kernels, 1)
    return without_data(plan_for(function.trace(*inputs), engine, lambda launch: 1e4, 2))


def _makespans_ns(costs: DeviceCosts, program: tuple[str, str, int], length_ns: float | FloatArray) -> FloatArray:
    return np.asarray(np.interp(length_ns, *_corners(costs, program)), np.float64)


def _corners(costs: DeviceCosts, program: tuple[str, str, int]) -> tuple[FloatArray, FloatArray]:
    """Return the corners of a small program's makespan over the length of its kernels; they are kept with the costs."""
    if program not in costs.corners:
        plan = _plan(*program)
        costs.corners[program] = corners(lambda length_ns: simulated_ns(plan, lambda launch: length_ns, costs.model)[1])
    return costs.corners[program]


@dataclass(frozen=True)
class _Line:
    """A makespan at a kernel length, and on how many kernels, one after the other, it depends there."""

    length_ns: float
    makespan_ns: float
    kernels: int

    def at(self, length_ns: float) -> float:
        return self.makespan_ns + self.kernels * (length_ns - self.length_ns)

    def meets(self, other: _Line) -> float:
        return self.length_ns + (other.at(self.length_ns) - self.makespan_ns) / (self.kernels - other.kernels)


def corners(makespan_ns: Callable[[float], float]) -> tuple[FloatArray, FloatArray]:
    """Return the corners of a makespan over kernel length, the ends among them: lengths and makespans, between which it is straight.

    A makespan is that of the longest of many paths, and the length of a path grows by the number of its kernels. So lines with ever more
    kernels follow each other, and where no third one is above the corner of two, there is none between them.
    """

    def line(length_ns: float, step_ns: float = _STEP_NS) -> _Line:
        here_ns, there_ns = makespan_ns(length_ns), makespan_ns(length_ns + step_ns)
        return _Line(length_ns, here_ns, round((there_ns - here_ns) / step_ns))

    def between(left: _Line, right: _Line, depth: int = 12) -> list[_Line]:
        if left.kernels >= right.kernels or not depth:
            return []
        middle = line(left.meets(right))
        if middle.makespan_ns <= left.at(middle.length_ns) + _ROUNDING_NS:
            return [middle]
        return [*between(left, middle, depth - 1), middle, *between(middle, right, depth - 1)]

    first, last = line(1.0), line(10 * _LONGEST_NS, -_STEP_NS)
    found = [first, *between(first, last), last]
    return np.array([one.length_ns for one in found]), np.array([one.makespan_ns for one in found])


def _range(speedup: Callable[[float], float]) -> BreakEven:
    """Return where a speed-up over kernel length is at least 1 + `WORTH`: one stretch, by the roots at its two ends."""
    from scipy.optimize import brentq  # takes long to import

    def gain(length_ns: float) -> float:
        return speedup(length_ns) - 1 - WORTH

    lengths_ns = np.geomspace(_SHORTEST_NS, _LONGEST_NS, 43).tolist()
    pays = [gain(length_ns) >= 0 for length_ns in lengths_ns]
    if not any(pays):
        return BreakEven(nan, nan)
    first, last = pays.index(True), len(pays) - 1 - pays[::-1].index(True)
    low_ns = 0.0 if first == 0 else brentq(gain, lengths_ns[first - 1], lengths_ns[first], rtol=1e-4)
    high_ns = inf if last == len(pays) - 1 else brentq(gain, lengths_ns[last], lengths_ns[last + 1], rtol=1e-4)
    return BreakEven(low_ns, high_ns)
