"""How long each node of captured code takes alone: launched by itself behind a gate, in the order of the capture."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import cast

import numpy as np

from streamscope.capturing.nodes import LaunchableNode
from streamscope.devices.cuda.device import CudaDevice
from streamscope.devices.cuda.streams import CudaStream
from streamscope.devices.gates import held, reference_call
from streamscope.devices.protocol import Device, Stream
from streamscope.interrupts import deferred
from streamscope.kernels.library.libraries import libraries
from streamscope.program.launch import LaunchKind

BUDGET_S = 0.4
"""Passes are repeated for about so long; the median of each node counts."""
MOST_PASSES = 7
REFERENCES = 40
"""Readings around the reference kernel, whose duration is known."""

Work = tuple[str, Callable[[], object], bool]
"""A name, what launches it, and whether the reference kernel comes right before it."""


def timed(nodes: Sequence[LaunchableNode], keeping: Callable[[], AbstractContextManager[object]]) -> list[LaunchableNode]:
    """Return nodes with how long each takes alone; ``with keeping(): ...`` undoes what they change when they run."""
    # Its methods take its own streams and events only, which the protocol cannot say.
    device = cast("Device", CudaDevice(libraries().runtime.getDevice()))
    with keeping():
        found_ns = durations_ns(nodes, device)
    return [replace(node, alone_ns=alone_ns) for node, alone_ns in zip(nodes, found_ns, strict=True)]


def durations_ns(nodes: Sequence[LaunchableNode], device: Device) -> list[float]:
    """Return how long each node takes alone, in ns.

    The nodes run in order, so that each reads what it would read in a run. What they change, the caller puts back.

    A pair of events around a kernel reads its duration and an excess that does not depend on it. What the pair reads around a kernel whose
    duration is known tells the excess.
    """
    stream = device.stream("durations")
    reference = reference_call(device, stream)
    # A kernel that follows a copy begins late, so a kernel is ahead of each; ahead of a copy it would be waited for.
    address = cast("CudaStream", stream).pointer
    works = [(one.node.name, one.bind(address), one.kind is LaunchKind.KERNEL) for one in nodes]
    try:
        reference()
        stream.synchronize()  # Ungated first, so that nothing is loaded behind a gate.
        known: list[Work] = [("the reference kernel", reference, True)] * REFERENCES
        _readings_ns(known, reference, device, stream)  # Clocks go up.
        excess = float(np.median(_readings_ns(known, reference, device, stream))) - device.working_kernel_ns
        start = time.perf_counter()
        passes = [_readings_ns(works, reference, device, stream)]
        taken_s = time.perf_counter() - start
        more = min(MOST_PASSES, int(BUDGET_S / max(taken_s, 1e-6))) - 1
        passes += [_readings_ns(works, reference, device, stream) for _ in range(more)]
    finally:
        with deferred():
            stream.synchronize()
    return [max(0.0, float(reading) - excess) for reading in np.median(passes, axis=0)]


def _readings_ns(works: Sequence[Work], reference: Callable[[], object], device: Device, stream: Stream) -> list[float]:
    """Return what a pair of events around each piece of work reads, in ns, each alone behind a gate."""
    start, end = device.event(timing=True), device.event(timing=True)
    readings = []
    for name, call, behind_kernel in works:
        with held(device, [stream], name):
            if behind_kernel:
                reference()
            stream.record(start)
            call()
            stream.record(end)
        stream.synchronize()
        readings.append(device.elapsed_ns(start, end))
    return readings
