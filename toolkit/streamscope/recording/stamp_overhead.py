"""Stamp overhead, by CUPTI on this host: the time of a kernel ahead of its first stamp and behind its last."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import cast
from weakref import WeakKeyDictionary

import numpy as np

from streamscope.devices.cuda.device import CudaDevice
from streamscope.devices.cuda.stamps import Slots, StampMemory
from streamscope.devices.protocol import Call, Device, Graph, Stream
from streamscope.engines.binding import capturing
from streamscope.errors import RecordingError
from streamscope.recording.subscription import subscription

_ROUNDS, _WARM = 14, 2
_NODES = 20
"""In a graph of three nodes, kernels take as long as on a stream."""

Kernel = tuple[str, int, int]
"""A kernel's symbol, blocks, and threads of a block."""


@dataclass(frozen=True)
class Launched:
    """A bound launch of stamped kernels."""

    call: Call
    slots: Sequence[int]
    """Places of its kernels in the memory's slots, in their order."""
    stream: Stream


@dataclass(frozen=True)
class LeftOut:
    """How much longer a stamped kernel takes, by CUPTI, than from its first stamp to its last, in ns."""

    queued_ns: float
    """Launched on a stream."""
    in_graph_ns: float
    """As a node of a graph."""


_KNOWN: WeakKeyDictionary[CudaDevice, dict[Kernel, LeftOut]] = WeakKeyDictionary()


def kernel_of(slots: Slots) -> Kernel:
    """Return whose stamps these are."""
    return slots.symbol, slots.blocks, slots.threads


def left_out_ns(device: CudaDevice, memory: StampMemory, launches: Sequence[Launched]) -> dict[Kernel, LeftOut]:
    """Return the time that the stamps of each kernel leave out, in the mean of some runs alone.

    Earlier measurements of this process are known. Of other kernels, nothing is returned where CUPTI cannot be had, or where somebody
    else launches kernels meanwhile.
    """
    known = _KNOWN.setdefault(device, {})
    new: dict[Kernel, Launched] = {}
    for one in launches:
        new.update((kernel, one) for slot in one.slots if (kernel := kernel_of(memory.slots[slot])) not in known)
    if new:
        chosen = list({id(one): one for one in new.values()}.values())
        with suppress(RecordingError):  # CUPTI is missing, not permitted, or held by another.
            queued = _measured(device, memory, chosen, lambda: _one_by_one(device, chosen))
            graph, length = _chained(device, chosen)
            in_graph = _measured(device, memory, chosen, partial(graph.launch, chosen[0].stream), length)
            known |= {kernel: LeftOut(queued[kernel], in_graph[kernel]) for kernel in queued.keys() & in_graph.keys()}
    return known


def _one_by_one(device: CudaDevice, launches: Sequence[Launched]) -> None:
    for one in launches:
        one.call()
        device.synchronize()  # Alone: what runs side by side waits for room, which CUPTI counts.


def _chained(device: CudaDevice, launches: Sequence[Launched]) -> tuple[Graph, int]:
    """Return a graph of all launches, one after the other and again until it has `_NODES` of them, and how often each is in it.

    They take turns, as in a program: a kernel that follows itself takes longer.
    """
    times = -(-_NODES // len(launches))
    main = launches[0].stream
    with capturing(cast("Device", device), main) as graphs:
        for one in [*launches] * times:
            _after(device, main, one.stream)
            one.call()
            _after(device, one.stream, main)
    return graphs[0], times


def _after(device: CudaDevice, earlier: Stream, later: Stream) -> None:
    """Let a stream wait for another."""
    if earlier is not later:
        event = cast("Device", device).event()
        earlier.record(event)
        later.wait(event)


def _measured(device: CudaDevice, memory: StampMemory, launches: Sequence[Launched], run: Call, times: int = 1) -> dict[Kernel, float]:
    """Return how much longer kernels take, by CUPTI, than their stamps say; ``run`` launches all of them, so many ``times``."""
    own = [slot for one in launches for slot in one.slots]
    extents = []
    with subscription().recording(["CONCURRENT_KERNEL"], beside_others=False) as found:
        for _ in range(_ROUNDS):
            run()
            device.synchronize()
            stamps = memory.read()
            extents.append([int(stamps[slot][:, 1].max() - stamps[slot][:, 0].min()) for slot in own])
    work = np.sort(found[0].work, order=("correlation", "start_ns"))
    if len(work) != _ROUNDS * times * len(own):
        return {}
    lengths = (work["end_ns"] - work["start_ns"]).reshape(_ROUNDS, times, len(own))[:, -1]  # Stamps are those of the last time.
    left_out = np.sort((lengths - np.array(extents))[_WARM:], axis=0)
    # The mean of the middle half: both clocks step by 32 ns, and a median of their readings does, too.
    quarter = len(left_out) // 4
    means = left_out[quarter : len(left_out) - quarter].mean(axis=0)
    return {kernel_of(memory.slots[slot]): float(mean) for slot, mean in zip(own, means, strict=True)}
