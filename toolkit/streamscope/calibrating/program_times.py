"""Small programs, run in turns: host costs of calls with other work between them.

A call that is repeated in a loop costs less: its code and data stay in the caches of the processor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamscope.devices.protocol import Device
from streamscope.engines.planners import ASYNC, DUAL, GRAPH_ENGINE, SYNC
from streamscope.engines.prepared import Prepared, prepare_traced
from streamscope.measuring.case import run_ns
from streamscope.ops.activations import relu
from streamscope.ops.binary import add, multiply
from streamscope.ops.convolutions import convolution
from streamscope.ops.linear import matmul
from streamscope.program.operation import Program
from streamscope.program.variable import ArraySpec
from streamscope.tracing import program

COUNTS = (1, 20, 100, 400)
"""Kernels of the programs that run as graphs."""
FEW, MANY = 4, 20
"""Calls of the two programs whose difference is the cost of one."""
_ROUNDS, _WARM = 30, 3

_Apply = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class ProgramTimes:
    """Medians over runs in turns, in ns: of a program of so many calls, until all is issued, and until all is done.

    ``wait_ns`` is the host time of a wait where all is done.
    """

    times_ns: Mapping[tuple[str, int], tuple[float, float]]
    wait_ns: float

    def issue_ns(self, what: str, count: int) -> float:
        """Return how long the host took to issue all."""
        return self.times_ns[what, count][0]

    def makespan_ns(self, what: str, count: int) -> float:
        """Return how long it took until the host knew that all was done."""
        return self.times_ns[what, count][1]

    def each_ns(self, what: str) -> float:
        """Return the host cost of one call more."""
        return max((self.issue_ns(what, MANY) - self.issue_ns(what, FEW)) / (MANY - FEW), 1.0)

    def ordering_ns(self, launch_ns: float) -> float:
        """Return the host cost of recording an event and letting a stream wait for it, together."""
        return max(self.each_ns("crossings") / 2 - launch_ns, 2.0)

    def waiting_ns(self, launch_ns: float, kernel_ns: float) -> float:
        """Return how long it takes from a call's end to the kernel's start, and from its end until the host goes on, together.

        The mean of two: of runs of one kernel, and of kernels with a synchronisation after each.
        """
        alone = self.makespan_ns("kernels", 1) - self.issue_ns("kernels", 1) - kernel_ns
        steps = (self.makespan_ns("synchronous", MANY) - self.makespan_ns("synchronous", FEW)) / (MANY - FEW)
        return max((alone + steps - launch_ns - kernel_ns) / 2, 2.0)

    def host_costs(self, working_ns: float) -> dict[str, Any]:
        """Return the numbers of a cost model that are of the host, as it is now; ``working_ns`` is the model's shortest working kernel.

        Hosts of one GPU differ by a factor of two, and so does one host under other load.
        """
        launch, product, convolution = (round(self.each_ns(what)) for what in ("kernels", "products", "convolutions"))
        one, ordering = self.issue_ns("graph", 1), self.ordering_ns(launch)
        return {
            "launch_ns": launch,
            "matmul_launch_ns": product,
            "convolution_launch_ns": convolution,
            "library_launch_ns": product,  # assumed
            "event_record_ns": round(ordering / 2),
            "stream_wait_ns": round(ordering / 2),
            "graph_launch_points": [[count, round(self.issue_ns("graph", count))] for count in COUNTS],
            "synchronize_return_ns": round(self.wait_ns),
            "launch_latency_ns": round(max(1.0, self.waiting_ns(launch, working_ns) - self.wait_ns)),
            "graph_launch_latency_ns": round(max(1.0, self.makespan_ns("graph", 1) - one - working_ns - self.wait_ns)),
        }


class HostPrograms:
    """The programs, prepared once; `times` runs them as often as one wants to know how fast the host is."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._prepared = {key: _warm(device, *made) for key, made in _programs().items()}

    def times(self, rounds: int = _ROUNDS) -> ProgramTimes:
        """Run all programs in turns."""
        return _in_turns(self._device, self._prepared, 1 if self._device.info.exact else rounds)


def program_times(device: Device) -> ProgramTimes:
    """Run all programs in turns."""
    return HostPrograms(device).times()


def _in_turns(device: Device, prepared: Mapping[tuple[str, int], Prepared], rounds: int) -> ProgramTimes:
    order, random = list(prepared), np.random.default_rng(0)
    times = {key: np.array([(0, 0)] * rounds, np.float64) for key in order}
    waits = []
    for number in range(rounds):
        for key in (order[index] for index in random.permutation(len(order))):
            times[key][number] = run_ns(prepared[key])
            start = device.now_ns()
            prepared[key].wait()
            waits.append(device.now_ns() - start)
    medians = {key: np.median(each, axis=0).tolist() for key, each in times.items()}
    return ProgramTimes({key: (issue_ns, done_ns) for key, (issue_ns, done_ns) in medians.items()}, float(np.median(waits)))


def _programs() -> dict[tuple[str, int], tuple[Program, str]]:
    """Return the programs, each with the engine that runs it."""
    made = {("kernels", count): (_kernels(count), ASYNC.name) for count in (1, FEW, MANY)}
    made |= {("synchronous", count): (_kernels(count), SYNC.name) for count in (FEW, MANY)}
    made |= {("graph", count): (_kernels(count), GRAPH_ENGINE.name) for count in COUNTS}
    made |= {("crossings", count): (_crossings(count), DUAL.name) for count in (FEW, MANY)}
    square, image, filter_ = _half(128, 128), _half(1, 16, 16, 32), _half(32, 3, 3, 32)
    for count in (FEW, MANY):
        made["products", count] = _repeated(count, matmul, square, square), ASYNC.name
        made["convolutions", count] = _repeated(count, lambda x, w: convolution(x, w, padding=1), image, filter_), ASYNC.name
    return made


def _kernels(count: int) -> Program:
    applied: tuple[_Apply, ...] = (multiply, add, lambda x, _: relu(x))
    spec = ArraySpec((4096,), np.dtype(np.float32))

    @program
    def kernels(x: Any, y: Any) -> Any:
        for number in range(count):
            x = applied[number % len(applied)](x, y)
        return x

    return kernels.trace(spec, spec)


def _crossings(count: int) -> Program:
    """Return a ladder: two kernels side by side, so many times, each of which reads the results of both before it."""
    spec = ArraySpec((4096,), np.dtype(np.float32))

    @program
    def crossings(x: Any, y: Any) -> tuple[Any, Any]:
        for _ in range(count):
            x, y = add(x, y), multiply(x, y)
        return x, y

    return crossings.trace(spec, spec)


def _repeated(count: int, apply: _Apply, x: ArraySpec, y: ArraySpec) -> Program:
    @program
    def repeated(x: Any, y: Any) -> Any:
        for _ in range(count):
            x = apply(x, y)
        return x

    return repeated.trace(x, y)


def _half(*shape: int) -> ArraySpec:
    return ArraySpec(shape, np.dtype(np.float16))


def _warm(device: Device, traced: Program, engine: str) -> Prepared:
    prepared = prepare_traced(traced, engine, device)
    prepared.load([np.zeros(traced.variables[one].spec.shape, traced.variables[one].spec.dtype) for one in traced.inputs])
    for _ in range(_WARM):
        prepared.run()
        prepared.wait()
    return prepared
