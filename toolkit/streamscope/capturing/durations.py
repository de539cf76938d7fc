"""How long each node of captured code takes alone: launched one after the other behind a gate, in the order of the capture."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import cast

import numpy as np

from streamscope.capturing.nodes import LaunchableNode
from streamscope.devices.cuda.device import CudaDevice
from streamscope.devices.cuda.streams import CudaStream
from streamscope.devices.gates import held, reference_call
from streamscope.devices.graph_node import NodeKind
from streamscope.devices.protocol import Call, Device
from streamscope.devices.reference import reference_kernel
from streamscope.interrupts import deferred
from streamscope.kernels.library.libraries import libraries

_BUDGET_S = 0.4
"""Passes are repeated for about so long; the median of each node counts."""
_MOST_PASSES = 9
_CHUNK = 100
"""Nodes that are queued behind one gate, each with two events: a stream holds about 1,024 pending launches, and blocks the host then.
They are read in a thirtieth of the time that a gate for each takes."""
_LEAST_NS = 100.0
"""Readings differ by more than this from pass to pass."""


def timed(
    nodes: Sequence[LaunchableNode], keeping: Callable[[], AbstractContextManager[object]], put_back: Callable[[], object]
) -> list[LaunchableNode]:
    """Return nodes with how long each takes alone; ``with keeping(): ...`` undoes their changes in the block, ``put_back`` in a pass."""
    # Its methods take its own streams and events only, which the protocol cannot say.
    device = cast("Device", CudaDevice([libraries().runtime.getDevice()]))
    with keeping():
        found_ns = _durations_ns(nodes, device, put_back)
    return [replace(node, alone_ns=alone_ns) for node, alone_ns in zip(nodes, found_ns, strict=True)]


def _durations_ns(nodes: Sequence[LaunchableNode], device: Device, put_back: Callable[[], object] = int) -> list[float]:
    """Return how long each node takes alone, in ns.

    The nodes run in order, so that each reads the same values as in a run. ``put_back`` undoes their changes before each pass.

    A pair of events around a kernel reads its duration and an excess that does not depend on it. The reading around a kernel whose
    duration is known tells the excess. An event does not wait for a set or a copy as it does for a kernel, so there the known kernel comes
    behind, within the pair.
    """
    timer = _Timer(device)
    twice = partial(_both, timer.reference, timer.reference)
    kernels = np.array([one.node.kind is NodeKind.KERNEL for one in nodes])
    calls = [one.bind(timer.address) for one in nodes]
    works = [call if kernel else partial(_both, call, timer.reference) for call, kernel in zip(calls, kernels, strict=True)]
    try:
        timer.reference()
        timer.stream.synchronize()  # Ungated first, so that nothing is loaded behind a gate.
        timer.readings_ns([timer.reference] * _CHUNK)  # Clocks go up.
        one_ns, two_ns = (float(np.median(timer.readings_ns([known] * _CHUNK))) for known in (timer.reference, twice))
        passes: list[list[float]] = []
        start = time.perf_counter()
        while len(passes) < _MOST_PASSES and (not passes or time.perf_counter() - start < _BUDGET_S):
            put_back()
            passes.append(timer.readings_ns(works))
    finally:
        with deferred():
            timer.stream.synchronize()
    excess_ns = np.where(kernels, one_ns, two_ns) - reference_kernel(device).queued_ns
    found: list[float] = np.maximum(np.median(passes, axis=0) - excess_ns, _LEAST_NS).tolist()
    return found


class _Timer:
    """Reads pairs of events around calls on a stream of its own, where they are queued behind gates."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.stream = device.stream("durations")
        self.address = cast("CudaStream", self.stream).pointer
        self.reference = reference_call(device, self.stream)
        self._events = [(device.event(timing=True), device.event(timing=True)) for _ in range(_CHUNK)]

    def readings_ns(self, calls: Sequence[Call]) -> list[float]:
        """Return the reading of a pair of events around each call, in ns."""
        readings: list[float] = []
        for first in range(0, len(calls), _CHUNK):
            pairs = list(zip(calls[first : first + _CHUNK], self._events, strict=False))
            with held(self.device, [self.stream], "captured code"):
                self.reference()
                for call, (start, end) in pairs:
                    self.stream.record(start)
                    call()
                    self.stream.record(end)
            self.stream.synchronize()
            readings += [self.device.elapsed_ns(start, end) for _, (start, end) in pairs]
        return readings


def _both(first: Call, second: Call) -> None:
    first()
    second()
