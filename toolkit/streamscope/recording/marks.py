"""Marks: kernels of one thread that do nothing but stamp, to tell when a library's kernels or copies ended inside a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np

from streamscope.devices.cuda.bench import CudaBench
from streamscope.devices.cuda.device import CudaDevice
from streamscope.devices.cuda.stamps import StampMemory
from streamscope.devices.cuda.streams import CudaStream
from streamscope.devices.protocol import Call
from streamscope.engines.binding import BoundStep, capturing
from streamscope.engines.prepared import Prepared
from streamscope.kernels.source import KernelSource
from streamscope.recording.passes import MOST_VARIANTS, gated_replay

_MARK = KernelSource("mark", 'extern "C" __global__ void mark() {}\n')
MARKS_OWNER = (-1, 0)
_CHAIN = 20


@dataclass(frozen=True)
class Mark:
    """A mark that is bound to a stream: ``call`` puts it there, ``slot`` is its place among the stamps."""

    call: Call
    slot: int


@dataclass(frozen=True)
class Replayed:
    """When things happened in replays of a graph, on the device's timer, in ns since a mark before the replay.

    ``begun_ns`` has the first stamp of each stamped kernel, by its slot. The others have the marks right ahead of a launch, which run when
    it could have begun, and those right behind it, by its index in the graph's steps.
    """

    begun_ns: dict[int, float]
    ahead_ns: dict[int, float]
    behind_ns: dict[int, float]


class Marker:
    """Makes marks on the streams of a prepared program with stamped kernels."""

    def __init__(self, device: CudaDevice, memory: StampMemory, prepared: Prepared) -> None:
        self.device = device
        self.memory = memory
        self.prepared = prepared

    def mark(self, stream: CudaStream) -> Mark:
        """Make a mark; it has been launched once, so that nothing is loaded behind a gate or in a capture."""
        with self.device.stamping(self.memory):
            call = CudaBench(self.device, stream, "a mark", MARKS_OWNER).kernel(_MARK, 1, 1, [])
        call()
        return Mark(call, len(self.memory.slots) - 1)

    @cached_property
    def gap_ns(self) -> float:
        """Time from one mark to the next in a graph: from the end of the predecessor to the start of a kernel, and unseen parts of both."""
        stream = self._stream
        marks = [self.mark(stream) for _ in range(_CHAIN)]
        with capturing(self.prepared.device, self.prepared.streams[0]) as graphs:
            for mark in marks:
                mark.call()
        gaps = []
        for _ in range(5):
            gated_replay(self.prepared, graphs[0])
            stamps = self.memory.read()
            gaps.append(np.median(np.diff([int(stamps[mark.slot][0, 0]) for mark in marks])))
        return float(np.median(gaps[1:]))

    def replays(self, replay: BoundStep, ahead: Sequence[int], behind: Sequence[int], stamped: Sequence[int], repeats: int) -> Replayed:
        """Replay a graph, and variants of it with marks ``ahead`` of and ``behind`` launches, and return the medians.

        A mark delays its successors, so each launch has a variant of its own, as far as `MOST_VARIANTS` go. With more launches,
        several share one, and the delay that earlier marks cause is taken off. ``stamped`` are the slots of the graph's stamped kernels.
        """
        begin, end = self.mark(self._stream), self.mark(self._stream)
        begun, whole = self._variant(replay, (begin, end), {}, {}, stamped, repeats)
        found: list[dict[int, float]] = []
        for launches in (ahead, behind):
            marks = {index: self.mark(cast("CudaStream", replay.inner[index].stream)) for index in launches}
            variants, times = min(len(launches), MOST_VARIANTS), dict[int, float]()
            for variant in range(variants):
                own = {index: marks[index] for index in launches[variant::variants]}
                before, after = (own, {}) if launches is ahead else ({}, own)
                stamps, last = self._variant(replay, (begin, end), before, after, [mark.slot for mark in own.values()], repeats)
                delay = max(0.0, last - whole) / len(own)
                times |= {index: stamps[mark.slot] - position * delay for position, (index, mark) in enumerate(own.items())}
            found.append(times)
        return Replayed(begun, *found)

    def _variant(
        self,
        replay: BoundStep,
        around: tuple[Mark, Mark],
        ahead: Mapping[int, Mark],
        behind: Mapping[int, Mark],
        slots: Sequence[int],
        repeats: int,
    ) -> tuple[dict[int, float], float]:
        """Return when each of ``slots``, and then the mark after the replay, was stamped first, since the mark before it."""
        with self.prepared.capturing() as graphs:
            for index, bound in enumerate(replay.inner):
                if index in ahead:
                    ahead[index].call()
                bound.call()
                if index in behind:
                    behind[index].call()
        begin, end = around
        readings = []
        for _ in range(repeats + 1):
            gated_replay(self.prepared, graphs[0], begin.call, end.call)
            stamps = self.memory.read()
            first = [int(stamps[slot][:, 0].min()) for slot in (*slots, end.slot)]
            readings.append(np.array(first) - int(stamps[begin.slot][0, 0]))
        # Without the first replay, which is there to warm up.
        *found, last = map(float, np.median(readings[1:], axis=0))
        return dict(zip(slots, found, strict=True)), last

    @property
    def _stream(self) -> CudaStream:
        return cast("CudaStream", self.prepared.streams[0])
