"""How one launch runs: it reads at its start, takes its time on the chip or the bus, and commits at its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from streamscope.devices.cost_model import CostModel, Residency
from streamscope.devices.log import DeviceLog, LogRecord
from streamscope.devices.simulated.copy_engine import CopyEngine
from streamscope.devices.simulated.memory import SimulatedBuffer, outcome
from streamscope.devices.simulated.multiprocessors import Multiprocessors
from streamscope.devices.simulated.recall import Recall
from streamscope.devices.simulated.timeline import Action, Timeline
from streamscope.errors import DeviceError, StreamscopeError, described
from streamscope.program.launch import RESULTS_HINT, Launch, LaunchKind, Reference

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Work:
    """A launch bound to its buffers, with what it takes of the device."""

    launch: Launch
    reference: Reference
    reads: tuple[SimulatedBuffer, ...]
    writes: tuple[SimulatedBuffer, ...]
    alone_ns: float
    held: Residency

    def compute(self, recall: Recall) -> list[Array]:
        """Return what the launch writes, from what is in memory now."""
        arrays = [buffer.values for buffer in self.reads]
        results = recall.results(self.launch, self.reference, arrays)
        try:
            return outcome("its reference", results, arrays, self.writes)
        except DeviceError as error:
            raise DeviceError(error.message, hint=RESULTS_HINT) from None

    def commit(self, results: Sequence[Array]) -> None:
        """Put the results into memory."""
        for buffer, result in zip(self.writes, results, strict=True):
            buffer.store(result)


@dataclass(frozen=True, slots=True)
class Placement:
    """Where and under which circumstances a launch runs."""

    stream: str
    replay: int = -1
    stretch: float = 1.0


class Execution:
    """Runs launches on the multiprocessors and the copy engines, and keeps what went wrong until somebody asks."""

    def __init__(self, timeline: Timeline, model: CostModel) -> None:
        self.log = DeviceLog()
        self.timeline = timeline
        self._multiprocessors = Multiprocessors(timeline, model)
        self._copy_engines = {kind: CopyEngine(timeline) for kind in (LaunchKind.COPY_IN, LaunchKind.COPY_OUT)}
        self.recall = Recall()
        self._fault: BaseException | None = None

    def run(self, work: Work, placement: Placement, finished: Action) -> None:
        """Run a launch from now on; ``finished`` is called at its end, when its results are in memory."""
        run = _Run(self, work, placement, finished)
        duration_ns = work.alone_ns * placement.stretch
        if work.launch.kind is LaunchKind.KERNEL:
            run.start()
            self._multiprocessors.start(work.held, duration_ns, run.end)
        else:
            self._copy_engines[work.launch.kind].put(duration_ns, run.start, run.end)

    def fail(self, launch: Launch, error: BaseException) -> None:
        """Keep the first failure until `raise_fault`; like the values of what failed, the later ones are lost."""
        if self._fault is not None:
            return
        if not isinstance(error, Exception):  # somebody wants to stop, which is not the launch's failure
            self._fault = error
            return
        ours = error if isinstance(error, StreamscopeError) else StreamscopeError(described(error))
        self._fault = DeviceError(f"{launch} failed: {ours.message}", hint=ours.hint)
        self._fault.__cause__ = error

    def raise_fault(self) -> None:
        """Raise, once, what went wrong since the last call."""
        fault, self._fault = self._fault, None
        if fault is not None:
            raise fault


class _Run:
    """One launch on its way from start to end."""

    __slots__ = ("_execution", "_finished", "_placement", "_results", "_start_ns", "_work")

    def __init__(self, execution: Execution, work: Work, placement: Placement, finished: Action) -> None:
        self._execution = execution
        self._work = work
        self._placement = placement
        self._finished = finished
        self._results: list[Array] | None = None
        self._start_ns = 0.0

    def start(self) -> None:
        """Read, and compute what `end` will commit."""
        self._start_ns = self._execution.timeline.now_ns
        try:
            self._results = self._work.compute(self._execution.recall)
        except BaseException as error:  # noqa: BLE001 — a reference is the user's code: what it raises is a failed launch
            self._execution.fail(self._work.launch, error)

    def end(self) -> None:
        """Commit, note the times and go on."""
        launch, placement, execution = self._work.launch, self._placement, self._execution
        if self._results is not None:
            self._work.commit(self._results)
        if execution.log.wanted:
            what = (launch.name, launch.operation, launch.part, launch.kind, placement.stream)
            times = (self._start_ns, execution.timeline.now_ns)
            execution.log.note(LogRecord(*what, *times, placement.replay, self._work.writes))
        self._finished()
