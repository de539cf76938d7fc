"""Marks: kernels of one thread that do nothing but stamp, to tell when a library's kernels or copies ended inside a graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np

from streamscope.devices.cuda.bench import CudaBench
from streamscope.devices.cuda.device import CudaDevice
from streamscope.devices.cuda.stamps import StampMemory
from streamscope.devices.cuda.streams import CudaStream
from streamscope.devices.protocol import Call, Graph
from streamscope.engines.binding import Bound, capturing
from streamscope.engines.prepared import Prepared
from streamscope.kernels.source import KernelSource
from streamscope.recording.calibration import held
from streamscope.recording.passes import MOST_VARIANTS

MARK = KernelSource("mark", 'extern "C" __global__ void mark() {}\n')
MARKS_OWNER = (-1, 0)
CHAIN = 20


@dataclass(frozen=True)
class Mark:
    """A mark that is bound to a stream: ``call`` puts it there, ``slot`` is its place among the stamps."""

    call: Call
    slot: int


@dataclass(frozen=True)
class Replayed:
    """When things happened in replays of a graph, on the device's timer, in ns since a mark at the beginning of the graph.

    Attributes
    ----------
    begun_ns : dict of int to float
        First stamp of each stamped kernel, by its slot.
    marked_ns : dict of int to float
        The mark behind each launch without stamps, by the launch's index in the graph's steps.
    end_ns : float
        A mark at the end of the graph.
    """

    begun_ns: dict[int, float]
    marked_ns: dict[int, float]
    end_ns: float


class Marker:
    """Makes marks on the streams of a prepared program, while its device's `stamping` is open.

    Parameters
    ----------
    device : CudaDevice
    memory : StampMemory
    prepared : Prepared
        With stamped kernels.
    """

    def __init__(self, device: CudaDevice, memory: StampMemory, prepared: Prepared) -> None:
        self.device = device
        self.memory = memory
        self.prepared = prepared

    def mark(self, stream: CudaStream) -> Mark:
        """Make a mark; it has been launched once, so that nothing is loaded behind a gate or in a capture."""
        call = CudaBench(self.device, stream, "a mark", MARKS_OWNER).kernel(MARK, 1, 1, [])
        call()
        return Mark(call, len(self.memory.slots) - 1)

    @cached_property
    def gap_ns(self) -> float:
        """From one mark to the next in a graph: to the start of a kernel from the end of what it waits for, and what both do not see."""
        stream = self._stream
        marks = [self.mark(stream) for _ in range(CHAIN)]
        with capturing(self.prepared.device, self.prepared.streams[0]) as graphs:
            for mark in marks:
                mark.call()
        gaps = []
        for _ in range(5):
            self._replay(graphs[0])
            stamps = self.memory.read()
            gaps.append(np.median(np.diff([int(stamps[mark.slot][0, 0]) for mark in marks])))
        return float(np.median(gaps[1:]))

    def replays(self, replay: Bound, launches: Sequence[int], stamped: Sequence[int], repeats: int) -> Replayed:
        """Replay variants of a graph, each with a mark behind some of ``launches``, and return the medians.

        Parameters
        ----------
        replay : Bound
            Whose graph it is.
        launches : sequence of int
            Launches without stamps, by index among its steps.
        stamped : sequence of int
            Slots of its stamped kernels.
        repeats : int
        """
        begin, end = self.mark(self._stream), self.mark(self._stream)
        marks = {index: self.mark(cast("CudaStream", replay.inner[index].stream)) for index in launches}
        begun, whole = self._variant(replay, begin, end, {}, stamped, repeats)
        variants = min(len(launches), MOST_VARIANTS)
        marked: dict[int, float] = {}
        for variant in range(variants):
            own = {index: marks[index] for index in launches[variant::variants]}
            found, last = self._variant(replay, begin, end, own, [mark.slot for mark in own.values()], repeats)
            delay = max(0.0, last - whole) / len(own)
            marked |= {index: found[mark.slot] - position * delay for position, (index, mark) in enumerate(own.items())}
        return Replayed(begun, marked, whole)

    def _variant(
        self, replay: Bound, begin: Mark, end: Mark, marks: dict[int, Mark], slots: Sequence[int], repeats: int
    ) -> tuple[dict[int, float], float]:
        """Return when each of ``slots``, and then the end, was stamped first, since the beginning."""
        with self.prepared.capturing() as graphs:
            begin.call()
            for index, bound in enumerate(replay.inner):
                bound.call()
                if index in marks:
                    marks[index].call()
            end.call()
        readings = []
        for _ in range(repeats + 1):
            self._replay(graphs[0])
            stamps = self.memory.read()
            first = [int(stamps[slot][:, 0].min()) for slot in (*slots, end.slot)]
            readings.append(np.array(first) - int(stamps[begin.slot][0, 0]))
        *found, last = map(float, np.median(readings[1:], axis=0))
        return dict(zip(slots, found, strict=True)), last

    @property
    def _stream(self) -> CudaStream:
        return cast("CudaStream", self.prepared.streams[0])

    def _replay(self, graph: Graph) -> None:
        """Replay a graph that is on the device whole before it begins, so that its first nodes do not wait for the host."""
        stream = self.prepared.streams[0]
        with held(self.prepared.device, [stream]):
            graph.launch(stream)
        self.device.synchronize()
