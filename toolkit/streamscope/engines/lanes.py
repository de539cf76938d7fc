"""Lanes: the streams that a plan uses, with a number and a name each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from streamscope.arguments import whole_number
from streamscope.engines.plan import AUXILIARY, COPY_IN, COPY_OUT, MAIN
from streamscope.program.launch import Launch, LaunchKind
from streamscope.program.operation import Operation, Program

COPY_LANES = {LaunchKind.COPY_IN: COPY_IN, LaunchKind.COPY_OUT: COPY_OUT}
MOST_STREAMS = 128

Estimate = Callable[[Launch], float]
"""How long a launch is expected to run, in ns."""

StreamOf = Callable[[Launch], int]
"""The compute stream of a kernel; 0 is the main one."""


@dataclass(frozen=True)
class Lanes:
    """The lanes in use.

    Attributes
    ----------
    names : tuple of str
        The main stream's first, then those of auxiliary streams, then those of copy streams.
    numbers : mapping of (operation, part) to int
        The lane of each launch.
    """

    names: tuple[str, ...]
    numbers: Mapping[tuple[int, int], int]

    def of(self, launch: Launch) -> int:
        """Return the lane of a launch."""
        return self.numbers[launch.operation, launch.part]


def lanes_in_use(operations: Sequence[Operation], stream_of: StreamOf) -> Lanes:
    """Give a lane to each compute stream that carries something, and to each direction of copies; the main stream has one always."""
    launches = [launch for operation in operations for launch in operation.launches]
    streams = sorted({0} | {stream_of(launch) for launch in launches if launch.kind is LaunchKind.KERNEL})
    copies = {launch.kind for launch in launches} - {LaunchKind.KERNEL}
    keys: list[int | LaunchKind] = [*streams, *(kind for kind in COPY_LANES if kind in copies)]
    number = {key: lane for lane, key in enumerate(keys)}
    names = (MAIN, *_auxiliary_names(len(streams) - 1), *(name for kind, name in COPY_LANES.items() if kind in copies))
    keyed = ((launch, stream_of(launch) if launch.kind is LaunchKind.KERNEL else launch.kind) for launch in launches)
    return Lanes(names, {(launch.operation, launch.part): number[key] for launch, key in keyed})


def main_stream(launch: Launch) -> int:
    """Put every kernel on the main stream."""
    return 0


def own_branches(program: Program) -> StreamOf:
    """Put the kernels of captured code on as many streams as it takes to order nothing that the capture does not order.

    A kernel goes on the stream that ends with one of its predecessors, else on one that ends with something it comes after anyway, else on
    a new one. Beyond `MOST_STREAMS`, which is how many kernels a GPU runs at a time, it goes on the first.
    """
    ancestors: dict[int, int] = {}  # A bit for each operation.
    ends: list[int] = []
    streams: dict[int, int] = {}
    for operation in program.operations:
        before = 0
        for earlier in operation.reads:
            before |= ancestors[earlier] | 1 << earlier
        ancestors[operation.id] = before
        if all(launch.kind is LaunchKind.KERNEL for launch in operation.launches):
            follows = (stream for stream, end in enumerate(ends) if end in operation.reads)
            implied = (stream for stream, end in enumerate(ends) if before >> end & 1)
            stream = next(follows, next(implied, len(ends) if len(ends) < MOST_STREAMS else 0))
            ends[stream : stream + 1] = [operation.id]
            streams[operation.id] = stream
    return lambda launch: streams.get(launch.operation, 0)


def checked_streams(streams: int) -> int:
    """Return a number of compute streams.

    Raises
    ------
    EngineError
        It is no whole number from 1 to `MOST_STREAMS`.
    """
    return whole_number("streams", streams, 1, MOST_STREAMS)


def _auxiliary_names(count: int) -> list[str]:
    return [AUXILIARY] if count == 1 else [f"{AUXILIARY} {number}" for number in range(1, count + 1)]
