"""How long the reference kernel takes on a device: the duration that others are measured against.

It differs from card to card: by CUPTI, 832 to 895 ns on an H200 and 1,056 on an H100 when launched on a stream, and 928 to 992 as a node of
a graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from streamscope.devices.gates import held, reference_call
from streamscope.devices.protocol import Device, Event, Graph, Stream
from streamscope.interrupts import deferred

QUEUED_NS = {"H100": 1_056.0}
"""On a stream, by CUPTI, where no cost model tells it: the same on three hosts with an H100."""
KNOWN_TO_NS, UNKNOWN_TO_NS = 55.0, 120.0
"""How far a duration may be off that rests on the reference kernel: on cards on which CUPTI measured it (832 to 895 on four hosts with an
H200), and on others."""
GRAPH_GAP_NS = 147.0
"""From the start of one kernel of a chain in a graph to that of the next, less the kernel.

With it, kernels of programs take as long as CUPTI says, within 5 % (*unchecked* in benchmarks/results/recorder_accuracy.json). On a stream,
how far apart kernels begin is no property of the card: 1,985 to 2,231 ns on hosts with an H100 (benchmarks/results/reference_kernel.json).
"""
CHAINS = (20, 220)
"""Nodes of the two graphs whose difference tells how far apart the kernels of a chain begin.
Both are new: where others were instantiated since, a node of an H100 takes 0.18 µs longer."""
_REPEATS = 9


@dataclass(frozen=True)
class Reference:
    """Durations of the reference kernel (`gates.reference_call`), in ns."""

    queued_ns: float
    """Launched on a stream."""
    in_graph_ns: float
    """As a node of a graph."""
    error_ns: float = 0.0
    """How far either may be off."""


_KNOWN: WeakKeyDictionary[Device, Reference] = WeakKeyDictionary()


def reference_kernel(device: Device) -> Reference:
    """Return how long the reference kernel takes on this device, without CUPTI; measured once for a device.

    In a graph, how far apart the kernels of a chain begin tells it. On a stream it is CUPTI's time on this kind of GPU; where nobody
    did, it is taken to be as long as in a graph. A device with exact times knows it.
    """
    if device.info.exact:
        return Reference(device.working_kernel_ns, device.working_kernel_ns)
    if device not in _KNOWN:
        in_graph_ns, name = _in_graph_ns(device), device.info.name
        by_cupti = next((time_ns for card, time_ns in QUEUED_NS.items() if card in name), 0.0)
        if device.info.details.get("cost_model_of") == name:
            by_cupti = device.working_kernel_ns
        known = Reference(by_cupti, in_graph_ns, KNOWN_TO_NS) if by_cupti else Reference(in_graph_ns, in_graph_ns, UNKNOWN_TO_NS)
        _KNOWN[device] = known
    return _KNOWN[device]


def _in_graph_ns(device: Device) -> float:
    stream = device.stream("reference")
    pair = device.event(timing=True), device.event(timing=True)
    call = reference_call(device, stream)
    try:
        call()
        stream.synchronize()  # Ungated first, so that nothing is loaded behind a gate.
        short, long = (_chain(device, stream, call, length) for length in CHAINS)
        _reading_ns(device, stream, pair, long)  # Clocks go up.
        readings_ns = [_reading_ns(device, stream, pair, graph) for graph in (short, long)]
    finally:
        stream.synchronize()  # The memory and the events go with this function.
    return (readings_ns[1] - readings_ns[0]) / (CHAINS[1] - CHAINS[0]) - GRAPH_GAP_NS


def _chain(device: Device, stream: Stream, call: Callable[[], None], length: int) -> Graph:
    with deferred():
        try:
            device.begin_capture(stream)
            for _ in range(length):
                call()
        except BaseException:
            device.abandon_capture(stream)
            raise
        return device.end_capture(stream)


def _reading_ns(device: Device, stream: Stream, pair: tuple[Event, Event], graph: Graph) -> float:
    """Return the median reading of a pair of events around a replay, in ns."""
    readings = []
    for _ in range(_REPEATS):
        with held(device, [stream]):
            stream.record(pair[0])
            graph.launch(stream)
            stream.record(pair[1])
        stream.synchronize()
        readings.append(device.elapsed_ns(*pair))
    return float(np.median(readings))
