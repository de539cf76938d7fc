"""How launches run: kernels side by side on the multiprocessors, copies one after the other in each direction of the bus."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
        """Run a part of a collective as soon as its channels find multiprocessors: blocks that were there before go first."""
        ((_, held),) = work.pieces

        def begin() -> None:
            sends = work.launch.collective is not None and work.launch.collective.reads(work.launch.part)
            # A plan without data has no operands.
            operand = work.reads[0].values.copy() if sends and work.reads else None
            kernel = self._multiprocessors.start(held, math.inf, _nothing, beside=joined.kernel_speeds)
            joined.begin(Part(work, finished, stream, stretch, replay, self.core.timeline.now_ns, kernel, operand))

        self._multiprocessors.when_free(held.multiprocessors, begin)

    def put(self, launch: Launch, held: Residency, duration_ns: float, started: Action, finished: Action) -> None:
        """Run a piece: a kernel now, a copy when its engine is free."""
        if launch.kind is LaunchKind.KERNEL:
            started()
            self._multiprocessors.start(held, duration_ns, finished, product=launch.cost.product is not None)
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
    start_ns: float
    kernel: RunningKernel
    """Holds its channels' multiprocessors while it waits, and while it transfers."""
    operand: Array | None
    """What it read at its start."""


def _nothing() -> None:
    """Do nothing at the end."""


@dataclass(slots=True, eq=False)
class RunningKernel:
    """A kernel on the chip."""

    chip: Multiprocessors
    held: Residency
    remaining_ns: float
    """Of its time alone; infinite where something else ends it."""
    finished: Action
    product: bool = False
    """It is a matrix product."""
    beside: Mapping[bool, float] | None = None
    """Of a collective: the speeds of kernels beside it, of matrix products (True) and of others."""
    held_up_ns: float = 0.0
    """Time alone of blocks that wait until others have run, or a collective has ended, which does not slow them in another way."""
    speed: float = 1.0
    """Of its speed alone."""

    def end(self) -> None:
        """Take it off the chip."""
        self.chip.end(self)


class Multiprocessors:
    """The running kernels of the chip.

    Every resident thread gets the same share of a multiprocessor's throughput. Kernels spread over the multiprocessors: while there are
    free ones, none slows another; then each falls to ``efficiency(load together) / efficiency(load alone)`` of its speed. Speeds change
    only when a kernel starts or ends, so only then are they computed anew.
    """

    def __init__(self, timeline: Timeline, model: CostModel) -> None:
        self._timeline = timeline
        self._model = model
        self._running: list[RunningKernel] = []
        self._rated_ns = 0.0
        self._next_end: Appointment | None = None
        self.watching: list[Action] = []
        """Called when a kernel starts or ends, by collectives that transfer: they are slower beside kernels."""
        self._arrivals: list[tuple[set[RunningKernel], Action]] = []
        """Collectives that wait for room, each with the kernels that were there before."""

    def start(
        self, held: Residency, alone_ns: float, finished: Action, *, product: bool = False, beside: Mapping[bool, float] | None = None
    ) -> RunningKernel:
        """Start a kernel now and return it; ``finished`` is called at its end."""
        self._progress()
        held_up_ns = self._held_up_ns(held, alone_ns)
        # A kernel that waits for another is over with that when the collective begins, and is slowed as any other.
        waiting_ns = alone_ns if held_up_ns and any(each.beside is not None for each in self._running) else 0.0
        kernel = RunningKernel(self, held, alone_ns + held_up_ns, finished, product, beside, waiting_ns)
        self._running.append(kernel)
        self._rate()
        return kernel

    def _held_up_ns(self, held: Residency, alone_ns: float) -> float:
        """Return how long some blocks wait for multiprocessors that running kernels have and cannot share with them.

        They begin when those end, or after blocks of their own, whichever is first. A collective shares its multiprocessors with no block
        that takes one whole: a kernel whose blocks would run all at once needs a second round beside it.
        """
        if not self._running or not (held.whole or held.half):
            return 0.0
        at_once = held.whole and held.multiprocessors < self._model.multiprocessors
        others = [
            kernel
            for kernel in self._running
            if kernel.held.whole or (held.whole and kernel.held.half) or (at_once and kernel.beside is not None)
        ]
        free = self._model.multiprocessors - sum(kernel.held.multiprocessors for kernel in others)
        room = free if held.whole else 2 * free
        if not others or held.multiprocessors <= room:
            return 0.0
        until_ns = max((kernel.remaining_ns / kernel.speed for kernel in others if kernel.beside is None), default=math.inf)
        rounds = math.ceil(held.multiprocessors / room) if room >= 1 else math.inf
        wait_ns = min(until_ns, (rounds - 1) * alone_ns)
        if wait_ns == math.inf:  # Collectives have all multiprocessors, and nobody knows until when.
            wait_ns = alone_ns
        return max(0.0, wait_ns - self._model.working_kernel_ns)

    def when_free(self, multiprocessors: float, begin: Action) -> None:
        """Begin a collective that arrives now: at once if there is room, else when the kernels that fill the chip have ended."""
        ahead = {kernel for kernel in self._running if kernel.beside is None}
        free = self._model.multiprocessors - sum(kernel.held.multiprocessors for kernel in self._running)
        if free < multiprocessors and ahead:
            self._arrivals.append((ahead, begin))
        else:
            begin()

    @property
    def neighbours(self) -> set[bool]:
        """The kinds of kernels that run besides collectives: matrix products (True), and others."""
        return {kernel.product for kernel in self._running if kernel.beside is None}

    def _progress(self) -> None:
        elapsed_ns = self._timeline.now_ns - self._rated_ns
        for kernel in self._running:
            kernel.remaining_ns -= elapsed_ns * kernel.speed
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
            first = min(self._running, key=lambda kernel: kernel.remaining_ns / kernel.speed)
        if first.remaining_ns < math.inf:
            end_ns = self._rated_ns + first.remaining_ns / first.speed
            self._next_end = self._timeline.at(end_ns, lambda: self.end(first))

    def _share_out(self) -> None:
        """Set the speed of each running kernel, by those that can have blocks on the same multiprocessors."""
        running = [kernel.held for kernel in self._running]
        collectives = [kernel.beside for kernel in self._running if kernel.beside is not None]
        sharing = [held for held in running if not held.whole]
        small = [held for held in sharing if not held.half]
        everyone, beside = self._crowded_efficiency(running), self._crowded_efficiency(sharing)
        for kernel in self._running:
            held = kernel.held
            crowded = self._crowded_efficiency([*small, held]) if held.whole else beside if held.half else everyone
            kernel.speed = 1.0 if crowded is None else min(1.0, crowded / self._model.efficiency(held.load))
            if collectives and kernel.beside is None and not kernel.held_up_ns:
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
        if kernel.beside is not None and all(each.beside is None for each in self._running):
            for each in self._running:
                if each.held_up_ns:  # Its other blocks begin now, if they have not.
                    each.remaining_ns, each.held_up_ns = min(each.remaining_ns, each.held_up_ns), 0.0
        self._rate()
        kernel.finished()
        for ahead, begin in (arrivals := self._arrivals):
            ahead.discard(kernel)
            if not ahead:
                begin()
        self._arrivals = [each for each in arrivals if each[0]]


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
