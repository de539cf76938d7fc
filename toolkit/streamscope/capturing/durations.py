"""How long each node of captured code takes alone: launched one after the other behind a gate, in the order of the capture."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import cast

import numpy as np

from streamscope.capturing.nodes import LaunchableNode
from streamscope.devices.cuda.device import CudaDevice
from streamscope.devices.cuda.streams import CudaStream
from streamscope.devices.gates import held, reference_call
from streamscope.devices.graph_node import NodeKind
from streamscope.devices.protocol import Call, Device
from streamscope.interrupts import deferred
from streamscope.kernels.library.libraries import libraries

BUDGET_S = 0.4
"""Passes are repeated for about so long; the median of each node counts."""
MOST_PASSES = 9
CHUNK = 100
"""Nodes that are queued behind one gate, each with two events: a stream holds about 1,024 pending launches, and blocks the host then."""


def timed(
    nodes: Sequence[LaunchableNode], keeping: Callable[[], AbstractContextManager[object]], put_back: Callable[[], object]
) -> list[LaunchableNode]:
    """Return nodes with how long each takes alone; ``with keeping(): ...`` undoes what they change in the block, ``put_back`` in a pass."""
    # Its methods take its own streams and events only, which the protocol cannot say.
    device = cast("Device", CudaDevice(libraries().runtime.getDevice()))
    with keeping():
        found_ns = durations_ns(nodes, device, put_back)
    return [replace(node, alone_ns=alone_ns) for node, alone_ns in zip(nodes, found_ns, strict=True)]


def durations_ns(nodes: Sequence[LaunchableNode], device: Device, put_back: Callable[[], object] = int) -> list[float]:
    """Return how long each node takes alone, in ns.

    The nodes run in order, so that each reads what it would read in a run. What they change, ``put_back`` puts back before each pass.

    A pair of events around a kernel reads its duration and an excess that does not depend on it. What the pair reads around a kernel whose
    duration is known tells the excess. Many pairs behind one gate are read in a thirtieth of the time that a gate for each takes.
    """
    stream = device.stream("durations")
    reference = reference_call(device, stream)
    address = cast("CudaStream", stream).pointer
    works = [one.bind(address) for one in nodes]
    # What follows a copy begins late, so there a kernel comes between.
    copies = [one.node.kind is not NodeKind.KERNEL for one in nodes]
    primed = [number for number in range(len(nodes)) if number and copies[number - 1] and not copies[number]]
    events = [(device.event(timing=True), device.event(timing=True)) for _ in range(CHUNK)]

    def readings_ns(calls: Sequence[Call], behind: Collection[int] = ()) -> list[float]:
        """Return what pairs of events around calls read; the reference kernel comes before those that are ``behind`` it."""
        readings: list[float] = []
        for first in range(0, len(calls), CHUNK):
            numbers = range(first, min(first + CHUNK, len(calls)))
            with held(device, [stream], "captured code"):
                reference()
                for number, (start, end) in zip(numbers, events, strict=False):
                    if number in behind:
                        reference()
                    stream.record(start)
                    calls[number]()
                    stream.record(end)
            stream.synchronize()
            readings += [device.elapsed_ns(start, end) for _, (start, end) in zip(numbers, events, strict=False)]
        return readings

    try:
        reference()
        stream.synchronize()  # Ungated first, so that nothing is loaded behind a gate.
        readings_ns([reference] * CHUNK)  # Clocks go up.
        excess = float(np.median(readings_ns([reference] * CHUNK))) - device.working_kernel_ns
        passes: list[list[float]] = []
        start = time.perf_counter()
        while len(passes) < MOST_PASSES and (not passes or time.perf_counter() - start < BUDGET_S):
            put_back()
            passes.append(readings_ns(works, set(primed)))
    finally:
        with deferred():
            stream.synchronize()
    return [max(0.0, float(reading) - excess) for reading in np.median(passes, axis=0)]
