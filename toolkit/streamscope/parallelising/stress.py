"""Disturbance of captured code's runs: kernels around each node, which mark progress and hold nodes back; neighbours; a time limit.

A kernel that hangs cannot be stopped from within its process: CUDA has no call for that, and whoever waits for the GPU then waits for ever.
So nobody waits without a limit while an order is new.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.devices.cuda.bench import CudaBench
from streamscope.devices.hang import hung
from streamscope.engines.issuing import captured_plan
from streamscope.engines.plan import Plan, own_branches
from streamscope.engines.prepared import Prepared
from streamscope.errors import HungError
from streamscope.kernels.cuda import pieces
from streamscope.kernels.library.libraries import libraries
from streamscope.kernels.source import KernelSource
from streamscope.program.launch import CudaCall
from streamscope.program.operation import Operation, Program

_LONGEST_DELAY_NS = 100_000
_HELD_BACK = 0.15
"""The share of the nodes that are held back in a disturbed run."""
_PRIORITIES = 6
"""Of streams, from 0 on; CUDA takes those that it does not have for its highest."""
_NEIGHBOUR_NS = 300_000
_COPY_BYTES = 1 << 24

_PIECES = pieces("disturbing")
_BEGINS, _ENDED, _NEIGHBOUR = (KernelSource(name, _PIECES["now"] + _PIECES[name]) for name in ("node_begins", "node_ended", "neighbour"))


class Disturbed:
    """The order of captured code as a graph with kernels of ours around each node.

    ``program``: captured; the order is the one that its operations ask for.
    ``random``: draws the priorities of streams.
    """

    def __init__(self, program: Program, device: Any, random: np.random.Generator) -> None:
        self._count = len(program.operations)
        self._memory: Any = libraries().cupy.cuda.alloc_pinned_memory(4 * (1 + 3 * self._count))
        self._words: npt.NDArray[np.uint32] = np.frombuffer(self._memory, np.uint32, 1 + 3 * self._count)
        self._words[:] = 0
        plan = self._plan(program)
        streams = {lane: device.stream(name, priority=int(random.integers(_PRIORITIES))) for lane, name in enumerate(plan.lanes)}
        self.prepared = Prepared(plan, device, streams=streams)
        """Its runs are disturbed as `hold_back` said last."""
        # Never issued one by one: if something hangs, the host would wait for room to launch the rest.
        self.prepared.capture()

    def _plan(self, program: Program) -> Plan:
        operations = tuple(map(self._marked, program.operations))
        needed = tuple(operation.reads for operation in operations)
        # A stream for each branch adds no order of its own. The raw graph has no kernels of ours in it.
        marked = replace(program, operations=operations, raw=None)
        return captured_plan("disturbed", marked, operations, own_branches(operations, needed), edges=needed)

    def _marked(self, operation: Operation) -> Operation:
        (launch,) = operation.launches
        assert launch.cuda is not None
        return replace(operation, work=(replace(launch, cuda=partial(self._bind, launch.cuda, operation.id)),))

    def _bind(self, build: Callable[..., CudaCall], number: int, bench: CudaBench, reads: Sequence[Any], writes: Sequence[Any]) -> CudaCall:
        # `kept` is a default of `launch`, so the words live as long as the graph does.
        words, count, kept = ctypes.c_void_p(self._memory.ptr), self._count, self._memory
        begins = bench.kernel(_BEGINS, 1, 1, [words, ctypes.c_int(1 + number), ctypes.c_int(1 + 2 * count + number)])
        call = build(bench, reads, writes)
        ended = bench.kernel(_ENDED, 1, 1, [words, ctypes.c_int(1 + count + number)])

        def launch(kept: object = kept) -> None:
            begins()
            call()
            ended()

        return launch

    def hold_back(self, random: np.random.Generator | None) -> None:
        """Draw how long each node is held back in the next runs; nothing is without a generator. The device must be idle."""
        self._words[:] = 0
        if random is not None:
            held = random.random(self._count) < _HELD_BACK
            self._words[1 + 2 * self._count :] = held * random.integers(0, _LONGEST_DELAY_NS, self._count)

    def let_go(self) -> None:
        """Hold nothing back any more, and release held nodes."""
        self._words[0] = 1

    @property
    def under_way(self) -> list[int]:
        """The numbers of nodes that have begun and not ended, at this moment."""
        begun, ended = (self._words[1 + first : 1 + first + self._count] != 0 for first in (0, self._count))
        return [int(number) for number in np.flatnonzero(begun & ~ended)]

    @property
    def ended(self) -> int:
        """How many nodes have ended."""
        return int((self._words[1 + self._count : 1 + 2 * self._count] != 0).sum())


class Neighbours:
    """Work of nobody's that fills the GPU for a while, and copies, on streams of their own."""

    def __init__(self, device: Any) -> None:
        self._streams = device.stream("neighbour", priority=_PRIORITIES), device.stream("neighbouring copies")
        self._blocks = device.properties["multiProcessorCount"]
        self._bench = CudaBench(device, self._streams[0], "a neighbour")
        self._memory = [device.empty_bytes(_COPY_BYTES) for _ in range(2)]

    def begin(self, random: np.random.Generator) -> None:
        """Put a kernel and copies beside the next launch; they end by themselves."""
        blocks = int(random.integers(1, 2 * self._blocks))
        duration = ctypes.c_uint(int(random.integers(1000, _NEIGHBOUR_NS)))
        self._bench.kernel(_NEIGHBOUR, blocks, 1024, [duration])()
        runtime, (one, other) = libraries().runtime, self._memory
        for _ in range(int(random.integers(1, 5))):
            runtime.memcpyAsync(one.data.ptr, other.data.ptr, _COPY_BYTES, runtime.memcpyDeviceToDevice, self._streams[1].pointer)


_LEAST_S = 10.0
_TIMES = 100
"""How many times as long as the sequential order a new one may take before it counts as hung."""
_BETWEEN_LOOKS_S = 0.0005

_GIVEN_UP: list[object] = []
"""Work that never ends on the GPU, and all that it uses, which nobody may free."""


def time_limit_s(sequential_us: float) -> float:
    """Return after how long a run of a new order counts as hung, in s."""
    return _LEAST_S + _TIMES * sequential_us / 1e6


def run_watched(prepared: Prepared, limit_s: float, under_way: Callable[[], Sequence[str]] | None = None, *kept: object) -> None:
    """Run once and wait until all issued work is done, or give it up.

    ``limit_s``: after so long, the run counts as hung; see `time_limit_s`.
    ``under_way``: tells the names of the nodes that have begun and not ended, for the error.
    ``*kept``: what the run uses besides, which must stay if it hangs.

    Raises
    ------
    HungError
        It is not done in time.
    DeviceError
        What was issued failed.
    """
    prepared.run()
    events: list[Any] = []
    for stream in prepared.streams.values():
        # Events are asked, not streams synchronized: a wait for a stream that hangs has no end.
        events.append(prepared.device.event())
        stream.record(events[-1])
    deadline = time.monotonic() + limit_s
    while not all(event.done() for event in events):
        if time.monotonic() > deadline:
            raise _given_up(prepared, limit_s, under_way, events, kept)
        time.sleep(_BETWEEN_LOOKS_S)


def _given_up(
    prepared: Prepared, limit_s: float, under_way: Callable[[], Sequence[str]] | None, events: Sequence[Any], kept: Sequence[object]
) -> HungError:
    names = list(under_way()) if under_way is not None else []
    # Never freed: to free memory or graphs is to wait for the work that uses them.
    prepared.abandon()
    _GIVEN_UP.append((prepared, events, kept))
    return hung(f"{prepared.program.name} under {prepared.plan.engine!r}", limit_s, names)
