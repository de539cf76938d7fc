"""Kernels side by side on the multiprocessors: processor sharing with a throughput that depends on the load."""

from __future__ import annotations

from dataclasses import dataclass

from streamscope.devices.cost_model import CostModel, Residency
from streamscope.devices.simulated.timeline import Action, Appointment, Timeline


@dataclass(slots=True)
class _Kernel:
    held: Residency
    remaining_ns: float
    """Of its time alone."""
    finished: Action
    speed: float = 1.0
    """Of its speed alone."""


class Multiprocessors:
    """The running kernels of the chip.

    Every resident thread gets the same share of a multiprocessor's throughput. Kernels spread over the multiprocessors: while there are
    free ones, none slows another; then each falls to ``efficiency(load together) / efficiency(load alone)`` of its speed. Speeds change
    only when a kernel starts or ends, so only then are they computed anew.
    """

    def __init__(self, timeline: Timeline, model: CostModel) -> None:
        self._timeline = timeline
        self._model = model
        self._running: list[_Kernel] = []
        self._rated_ns = 0.0
        self._next_end: Appointment | None = None

    def start(self, held: Residency, alone_ns: float, finished: Action) -> None:
        """Start a kernel now; ``finished`` is called at its end."""
        self._progress()
        self._running.append(_Kernel(held, alone_ns, finished))
        self._rate()

    def _progress(self) -> None:
        elapsed_ns = self._timeline.now_ns - self._rated_ns
        for kernel in self._running:
            kernel.remaining_ns -= elapsed_ns * kernel.speed
        self._rated_ns = self._timeline.now_ns

    def _rate(self) -> None:
        if self._next_end is not None:
            self._next_end.cancel()
            self._next_end = None
        if not self._running:
            return
        crowded = self._crowded_efficiency()
        for kernel in self._running:
            kernel.speed = 1.0 if crowded is None else min(1.0, crowded / self._model.efficiency(kernel.held.load))
        first = min(self._running, key=lambda kernel: kernel.remaining_ns / kernel.speed)
        end_ns = self._rated_ns + first.remaining_ns / first.speed
        self._next_end = self._timeline.at(end_ns, lambda: self._end(first))

    def _crowded_efficiency(self) -> float | None:
        """Return the throughput of each resident thread, or None while every kernel has multiprocessors of its own."""
        if sum(kernel.held.multiprocessors for kernel in self._running) <= self._model.multiprocessors:
            return None
        threads = sum(kernel.held.threads for kernel in self._running)
        return self._model.efficiency(threads / self._model.multiprocessors)

    def _end(self, kernel: _Kernel) -> None:
        self._progress()
        self._running.remove(kernel)
        self._next_end = None
        self._rate()
        kernel.finished()
