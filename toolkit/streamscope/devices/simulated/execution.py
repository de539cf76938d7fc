"""How launches run: kernels side by side on the multiprocessors, copies one after the other in each direction of the bus."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from streamscope.arrays import Array
from streamscope.devices.cost_model import CostModel, Residency
from streamscope.devices.log import DeviceLog, LogRecord
from streamscope.devices.simulated.core import Action, Appointment, Core, Timeline
from streamscope.devices.simulated.memory import SimulatedBuffer, outcome
from streamscope.devices.simulated.result_cache import ResultCache
from streamscope.errors import DeviceError, OutOfMemoryError
from streamscope.program.launch import RESULTS_HINT, Launch, LaunchKind, Reference


class Joined(Protocol):
    """A collective that launches on several GPUs are the parts of (`host.BoundCollective`)."""

    def begin(self, part: Part) -> None:
        """Let a part begin; the parts end together."""

    @property
    def kernel_speeds(self) -> Mapping[bool, float]:
        """Speeds of kernels beside it as shares of their speeds alone: of matrix products (True), and of others."""


class Links(Protocol):
    """Ways between GPUs (`host.PeerLinks`)."""

    def put(self, source: int, target: int, duration_ns: float, started: Action, finished: Action) -> None:
        """Queue a copy; ``started`` is called when it is taken up."""


@dataclass(frozen=True, slots=True)
class BoundLaunch:
    """A launch bound to its buffers, with duration and share of the chip of each of its kernels alone."""

    execution: Execution
    launch: Launch
    reference: Reference
    reads: tuple[SimulatedBuffer, ...]
    writes: tuple[SimulatedBuffer, ...]
    pieces: tuple[tuple[float, Residency], ...]
    collective: Joined | None = None
    """The collective that it is a part of."""

    def compute(self) -> list[Array]:
        """Compute the launch's outputs from the values in memory now."""
        if not self.reads and not self.writes:
            return []
        arrays = [buffer.values for buffer in self.reads]
        results = self.execution.cache.results(self.launch, self.reference, arrays)
        try:
            return outcome("its reference", results, arrays, self.writes)
        except DeviceError as error:
            raise DeviceError(error.message, hint=RESULTS_HINT) from None

    def commit(self, results: Sequence[Array]) -> None:
        """Put the results into memory.

        Raises
        ------
        OutOfMemoryError
            This machine has too little memory.
        """
        for buffer, result in zip(self.writes, results, strict=True):
            buffer.store(result)

    def let_go(self) -> None:
        """Let the values go that nobody uses any more in this run."""
        for buffer in {*self.reads, *self.writes}:
            buffer.used(self.launch)


class Execution:
    """Runs the launches of one GPU: each reads at its start, takes its time on the chip or the bus, and commits at its end."""

    def __init__(self, core: Core, log: DeviceLog, links: Links) -> None:
        self.log = log
        self.cache = ResultCache()
        self.core = core
        self._links = links
        self._multiprocessors = Multiprocessors(core.timeline, core.model)
        self._bus = _Bus(core.timeline, core.model.bus_both_share)

    def run(self, work: BoundLaunch, finished: Action, stream: str, stretch: float, gap_ns: float, replay: int = -1) -> None:
        """Run a launch from now on; ``finished`` is called at its end, when its results are in memory.

        ``stream``: where it was put, for the log.
        ``stretch``: factor on its duration.
        ``gap_ns``: between its pieces, if there are several.
        ``replay``: which graph launch it belongs to; -1 outside graphs.
        """
        if work.collective is not None:
            self._join(work, work.collective, finished, stream, stretch, replay)
            return
        _Running(self, work, finished, stream, stretch, gap_ns, replay).go_on()

    def _join(self, work: BoundLaunch, joined: Joined, finished: Action, stream: str, stretch: float, replay: int) -> None:
        """Run a part of a collective, whose channels all need multiprocessors; blocks that were there before go first."""
        ((_, held),) = work.pieces

        part = Part(work, finished, stream, stretch, replay)

        def joins(kernel: RunningKernel) -> None:
            part.kernel = kernel
            joined.begin(part)

        self._multiprocessors.start(held, math.inf, _nothing, beside=joined.kernel_speeds, begun=part.read, resident=joins)

    def put(self, launch: Launch, held: Residency, duration_ns: float, started: Action, finished: Action) -> None:
        """Run a piece: a kernel now, a copy when its engine is free."""
        if launch.kind is LaunchKind.KERNEL:
            started()
            # A trace tells no products: there, libraries' kernels that take multiprocessors whole are taken for some.
            product = launch.cost.product is not None or (launch.library and held.whole)
            self._multiprocessors.start(held, duration_ns, finished, product=product)
        elif launch.kind is LaunchKind.COPY_PEER:
            self._links.put(launch.gpu, launch.to_gpu, duration_ns, started, finished)
        else:
            self._bus.put(launch.kind, duration_ns, started, finished)


class _Running:
    """A launch under way: it reads when its first piece starts, and commits when its last one ends."""

    __slots__ = ("_execution", "_finished", "_gap_ns", "_piece", "_replay", "_results", "_start_ns", "_stream", "_stretch", "_work")

    def __init__(
        self, execution: Execution, work: BoundLaunch, finished: Action, stream: str, stretch: float, gap_ns: float, replay: int
    ) -> None:
        self._execution, self._work, self._finished = execution, work, finished
        self._stream, self._stretch, self._gap_ns, self._replay = stream, stretch, gap_ns, replay
        self._piece = 0
        self._start_ns = 0.0
        self._results: list[Array] | None = None

    def go_on(self) -> None:
        """Run the next piece."""
        alone_ns, held = self._work.pieces[self._piece]
        self._execution.put(self._work.launch, held, alone_ns * self._stretch, self._start, self._end)

    def _start(self) -> None:
        core, launch = self._execution.core, self._work.launch
        self._start_ns = core.timeline.now_ns
        if self._piece:
            return
        core.note(launch)
        try:
            self._results = self._work.compute()
        except BaseException as error:  # noqa: BLE001 — a reference is the user's code: what it raises is a failed launch
            core.fail(launch, error)

    def _end(self) -> None:
        core, work, log = self._execution.core, self._work, self._execution.log
        last = self._piece == len(work.pieces) - 1
        if last:
            try:
                if self._results is not None:
                    work.commit(self._results)
            except OutOfMemoryError as error:
                core.fail(work.launch, error)
            work.let_go()
        if log.wanted:
            what = (work.launch.name, work.launch.operation, work.launch.part, work.launch.kind, self._stream)
            log.note(LogRecord(*what, self._start_ns, core.timeline.now_ns, self._replay, work.writes, self._piece))
        if last:
            self._finished()
        else:
            self._piece += 1
            core.timeline.at(core.timeline.now_ns + self._gap_ns, self.go_on)


@dataclass(slots=True, eq=False)
class Part:
    """One GPU's part of a collective under way."""

    work: BoundLaunch
    finished: Action
    stream: str
    stretch: float
    replay: int
    start_ns: float = math.inf
    """When its first channel began."""
    operand: Array | None = None
    """Its values at that moment."""
    kernel: RunningKernel = field(init=False)
    """Holds its channels' multiprocessors while it waits, and while it transfers."""

    def read(self, kernel: RunningKernel) -> None:
        """Read the operand, and poison the results: the first channel begins."""
        launch, self.start_ns = self.work.launch, kernel.start_ns
        # A plan without data has no operands.
        if launch.collective is not None and launch.collective.reads(launch.part) and self.work.reads:
            self.operand = self.work.reads[0].values.copy()
        for (_, view), target in zip(launch.results, self.work.writes, strict=True):
            target.poison(view)


_ROUNDING = 1e-6
"""Of sums of multiprocessors."""


_TWO_CLUSTERS = 8.0
"""Channels of a collective begin beside matrix products where so many multiprocessors are free, or as many as they need.

NCCL launches its blocks in clusters of four, which need multiprocessors of one part of the chip. A product of 128 blocks leaves four, and
these lie apart: by CUPTI on two and four H100, collectives of 20 and 24 channels waited until such a product's blocks ended. It is assumed
that eight hold a cluster, and that fewer channels find room.
"""


def _nothing(*_: object) -> None:
    """Do nothing."""


@dataclass(slots=True, eq=False)
class RunningKernel:
    """A kernel on the chip. Some of its blocks, or all, may wait for multiprocessors."""

    chip: Multiprocessors
    held: Residency
    alone_ns: float
    """Of each block; infinite where something else ends it."""
    finished: Action
    product: bool
    """It is a matrix product."""
    beside: Mapping[bool, float] | None
    """Of a collective: the speeds of kernels beside it, of matrix products (True) and of others."""
    begun: Callable[[RunningKernel], None]
    """Called when its first blocks have begun."""
    resident: Callable[[RunningKernel], None]
    """Called when none of its blocks waits any more."""
    arrived_ns: float
    waiting: float
    """Multiprocessors that its other blocks wait for."""
    blocks: deque[tuple[float, float]] = field(default_factory=deque)
    """Those on the chip, in lots that began together: when they end in the kernel's own time, and how many multiprocessors they have."""
    start_ns: float = math.inf
    """When its first blocks began."""
    own_ns: float = 0.0
    """How far the kernel is, in its time alone."""
    late: bool = False
    """Some blocks had to wait beside a collective. If they take multiprocessors whole, that is how collectives slow the kernel."""
    speed: float = 1.0
    """Of its speed alone."""

    @property
    def left_ns(self) -> float:
        """Time until its next blocks end, if nothing changes."""
        return (self.blocks[0][0] - self.own_ns) / self.speed if self.blocks else math.inf

    @property
    def taken(self) -> float:
        """Multiprocessors that its blocks have."""
        return sum(taken for _, taken in self.blocks)

    def put_on(self, multiprocessors: float, now_ns: float, starting_ns: float) -> None:
        """Let blocks begin on so many multiprocessors. While they waited, the kernel has started."""
        self.start_ns = min(self.start_ns, now_ns)
        self.waiting -= multiprocessors
        saved_ns = min(starting_ns, now_ns - self.arrived_ns)
        self.blocks.append((self.own_ns + max(0.0, self.alone_ns - saved_ns), multiprocessors))

    def end(self) -> None:
        """Take it off the chip."""
        self.chip.end(self)


class Multiprocessors:
    """The running kernels of the chip.

    Every resident thread gets the same share of a multiprocessor's throughput. Kernels spread over the multiprocessors: while there are
    free ones, none slows another; then each falls to ``efficiency(load together) / efficiency(load alone)`` of its speed. Speeds change
    only when blocks begin or end, so only then are they computed anew.

    Blocks of matrix products take multiprocessors whole, so they share with no others. Blocks wait for room in the order in which their
    kernels came. By CUPTI on two H200, a gradient of 2.6 µs took 16 behind a product, and so did collectives.
    """

    def __init__(self, timeline: Timeline, model: CostModel) -> None:
        self._timeline = timeline
        self._model = model
        self._running: list[RunningKernel] = []
        self._queue: deque[RunningKernel] = deque()
        """Those with blocks that wait."""
        self._rated_ns = 0.0
        self._next_end: Appointment | None = None
        self.watching: list[Action] = []
        """Called when blocks begin or end, by collectives that transfer: they are slower beside kernels."""

    def start(
        self,
        held: Residency,
        alone_ns: float,
        finished: Action,
        *,
        product: bool = False,
        beside: Mapping[bool, float] | None = None,
        begun: Callable[[RunningKernel], None] = _nothing,
        resident: Callable[[RunningKernel], None] = _nothing,
    ) -> None:
        """Start a kernel now, or as soon as there is room; ``finished`` is called at its end."""
        self._progress()
        kernel = RunningKernel(self, held, alone_ns, finished, product, beside, begun, resident, self._rated_ns, held.multiprocessors)
        self._running.append(kernel)
        self._queue.append(kernel)
        self._go_on()

    def _go_on(self) -> None:
        """Let blocks begin where there is room; then set speeds and the next end."""
        first, complete = [], []
        while self._queue:
            kernel = self._queue[0]
            room = min(self._room(kernel), kernel.waiting)
            if room > 0 or not kernel.waiting:
                first += [kernel] if kernel.start_ns == math.inf else []
                kernel.put_on(room, self._rated_ns, self._model.working_kernel_ns)
            if kernel.waiting:
                break
            complete.append(self._queue.popleft())
        if any(kernel.beside is not None for kernel in self._running):
            for kernel in self._queue:
                kernel.late = True
        self._rate()
        for kernel in first:
            kernel.begun(kernel)
        for kernel in complete:
            kernel.resident(kernel)

    def _room(self, kernel: RunningKernel) -> float:
        """Return how many multiprocessors a kernel's blocks find now.

        A collective shares its multiprocessors with no block that takes one whole: a kernel whose blocks would run all at once needs a
        second round beside it. Several collectives leave one, since they may wait for each other.
        """
        held, others = kernel.held, [each for each in self._running if each.blocks]
        if kernel.beside is not None:
            kernels = [each for each in others if each.beside is None]
            # A channel is a block: it begins on a whole multiprocessor.
            free = math.floor(self._model.multiprocessors - sum(each.taken for each in others) + _ROUNDING) if kernels else math.inf
            return 0.0 if any(each.held.whole for each in kernels) and free < min(_TWO_CLUSTERS, kernel.waiting) else free
        room: float = self._model.multiprocessors
        if held.whole and held.multiprocessors < room:
            room = max(1.0, room - sum(each.taken for each in others if each.beside is not None))
        room -= sum(each.taken for each in others if each.beside is None and (held.whole or each.held.whole))
        return room if held.whole else (2 if held.half else 1) * room - kernel.taken

    @property
    def neighbours(self) -> set[bool]:
        """The kinds of kernels that run besides collectives: matrix products (True), and others."""
        return {kernel.product for kernel in self._running if kernel.beside is None and kernel.blocks}

    def _progress(self) -> None:
        elapsed_ns = self._timeline.now_ns - self._rated_ns
        for kernel in self._running:
            kernel.own_ns += elapsed_ns * kernel.speed
        self._rated_ns = self._timeline.now_ns

    def _rate(self) -> None:
        if self._next_end is not None:
            self._next_end.cancel()
            self._next_end = None
        if self.watching:
            for look in tuple(self.watching):
                look()
        if not self._running:
            return
        first = self._running[0]
        if len(self._running) == 1 and first.held.multiprocessors <= self._model.multiprocessors:
            first.speed = 1.0
        else:
            self._share_out()
            first = min(self._running, key=lambda kernel: kernel.left_ns)
        if first.left_ns < math.inf:
            self._next_end = self._timeline.at(self._rated_ns + first.left_ns, lambda: self._end_blocks(first))

    def _end_blocks(self, kernel: RunningKernel) -> None:
        """End those blocks of a kernel now that began first."""
        if len(kernel.blocks) == 1 and not kernel.waiting:
            self.end(kernel)
            return
        self._progress()
        kernel.blocks.popleft()
        self._go_on()

    def _share_out(self) -> None:
        """Set the speed of each running kernel, by those that can have blocks on the same multiprocessors."""
        on_chip = [kernel for kernel in self._running if kernel.blocks]
        collectives = [kernel.beside for kernel in on_chip if kernel.beside is not None and not kernel.waiting]
        crowded = self._crowded_efficiency([kernel.held for kernel in on_chip if not kernel.held.whole])
        for kernel in on_chip:
            held = kernel.held
            kernel.speed = 1.0 if crowded is None or held.whole else min(1.0, crowded / self._model.efficiency(held.load))
            if collectives and kernel.beside is None and not (kernel.late and held.whole):
                kernel.speed = min(kernel.speed, *(each[kernel.product] for each in collectives))

    def _crowded_efficiency(self, held: Sequence[Residency]) -> float | None:
        """Return the throughput of each resident thread, or None while every kernel has multiprocessors of its own."""
        if sum(each.multiprocessors for each in held) <= self._model.multiprocessors:
            return None
        return self._model.efficiency(sum(each.threads for each in held) / self._model.multiprocessors)

    def end(self, kernel: RunningKernel) -> None:
        """End a kernel now."""
        self._progress()
        # Taken off the chip before `finished`, which may start the next kernel at once.
        self._running.remove(kernel)
        self._go_on()
        kernel.finished()


class _Bus:
    """The bus to the device and back: in each direction one copy at a time, in the order of arrival, beside kernels.

    While copies go in both directions, each is slower. Speeds change only when a copy starts or ends, so only then are ends computed anew.
    """

    def __init__(self, timeline: Timeline, both_share: float) -> None:
        self._timeline = timeline
        self._both_share = both_share
        self._copies: dict[LaunchKind, deque[_Copy]] = {kind: deque() for kind in (LaunchKind.COPY_IN, LaunchKind.COPY_OUT)}
        self._rated_ns = 0.0
        self._speed = 1.0
        self._ends: list[Appointment] = []

    def put(self, direction: LaunchKind, duration_ns: float, started: Action, finished: Action) -> None:
        """Queue a copy; ``started`` is called when it is taken up."""
        copies = self._copies[direction]
        copies.append(_Copy(duration_ns, started, finished))
        if len(copies) == 1:
            self._take_up(direction)

    def _take_up(self, direction: LaunchKind) -> None:
        self._progress()
        self._copies[direction][0].started()
        self._rate()

    def _running(self) -> list[tuple[LaunchKind, _Copy]]:
        return [(direction, copies[0]) for direction, copies in self._copies.items() if copies and not copies[0].over]

    def _progress(self) -> None:
        elapsed_ns = self._timeline.now_ns - self._rated_ns
        for _, copy in self._running():
            copy.remaining_ns -= elapsed_ns * self._speed if copy.under_way else 0.0
        self._rated_ns = self._timeline.now_ns

    def _rate(self) -> None:
        for end in self._ends:
            end.cancel()
        running = self._running()
        self._speed = self._both_share if len(running) > 1 else 1.0
        self._ends = []
        for direction, copy in running:
            copy.under_way = True
            end_ns = self._rated_ns + copy.remaining_ns / self._speed
            self._ends.append(self._timeline.at(end_ns, partial(self._end, direction)))

    def _end(self, direction: LaunchKind) -> None:
        self._progress()
        # The next copy is taken up after this one's values have been committed.
        copy = self._copies[direction][0]
        copy.over = True
        copy.finished()
        self._copies[direction].popleft()
        if self._copies[direction]:
            self._take_up(direction)
        else:
            self._rate()


@dataclass(slots=True)
class _Copy:
    remaining_ns: float
    """Of its time alone."""
    started: Action
    finished: Action
    under_way: bool = False
    over: bool = False
