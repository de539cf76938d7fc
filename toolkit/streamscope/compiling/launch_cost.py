"""Host cost of launching a generated kernel, beside a plain launch of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

import numpy as np

from streamscope.devices.cuda import CudaDevice
from streamscope.devices.cuda.bench import CudaBench
from streamscope.devices.cuda.streams import CudaStream
from streamscope.devices.protocol import Stream
from streamscope.engine_entry import DEFAULT_ENGINE
from streamscope.engines.binding import settled
from streamscope.engines.prepared import prepare_traced
from streamscope.engines.pushed.engine import Engine
from streamscope.kernels.compile.compilation_log import LaunchCost
from streamscope.kernels.elementwise.specialization import bind
from streamscope.ops.binary import add
from streamscope.program.variable import ArraySpec
from streamscope.tracing import program

_LAUNCHES, _ROUNDS, _SIZE = 300, 20, 4096
"""So many launches of an addition of so few numbers fit into a stream's queue, where the host never waits for the device."""


@lru_cache(maxsize=8)
def launch_cost(device: CudaDevice) -> LaunchCost:
    """Return the cost of a launch on a device, measured once: all three ways take turns, and the median of the rounds counts."""
    stream = device.stream("plain")
    ways = {"plain": _plain(device, stream), "prepared": _prepared(device), "pushed": _pushed(device)}
    times: dict[str, list[float]] = {name: [] for name in ways}
    with settled([cast("Stream", stream)]):
        for turn in range(_ROUNDS + 2):
            for name, launch_all in ways.items():
                start = time.perf_counter_ns()
                launch_all()
                elapsed_ns = time.perf_counter_ns() - start
                device.synchronize()
                if turn >= 2:  # the first ones warm up
                    times[name].append(elapsed_ns / _LAUNCHES)
    medians = {name: float(np.median(values)) for name, values in times.items()}
    return LaunchCost(device.info.name, medians["plain"], medians["prepared"], medians["pushed"])


def _plain(device: CudaDevice, stream: CudaStream) -> Callable[[], None]:
    """Return the driver's own launch of the kernel, arguments packed, in a loop."""
    spec = ArraySpec((_SIZE,), np.dtype(np.float32))
    arrays: list[Any] = [device.empty_bytes(spec.nbytes).view(np.float32) for _ in range(2)]
    launch = bind(CudaBench(device, stream), add.signature([spec, spec], {}), [*arrays, arrays[0]], {})
    calls = [launch] * _LAUNCHES

    def launch_all() -> None:
        for call in calls:
            call()

    return launch_all


def _prepared(device: Any) -> Callable[[], None]:
    @program
    def additions(x: Any, y: Any) -> Any:
        for _ in range(_LAUNCHES):
            x = add(x, y, out=x)
        return x

    inputs = [np.zeros(_SIZE, np.float32) for _ in range(2)]  # What is written shares memory with no other input.
    prepared = prepare_traced(additions.trace(*inputs), DEFAULT_ENGINE, device)
    prepared.load(inputs)
    return prepared.run


def _pushed(device: Any) -> Callable[[], None]:
    engine = Engine(DEFAULT_ENGINE, device=device)
    x, y = (engine.variable(np.zeros(_SIZE, np.float32)) for _ in range(2))

    def push_all() -> None:
        for _ in range(_LAUNCHES):
            engine.push(add, reads=(x, y), writes=(x,))

    return push_all
