"""Costs of launches, for a device and its host, from a cost model or a measurement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from streamscope.program.launch import Cost, Launch


@dataclass(frozen=True)
class Residency:
    """A kernel's share of the chip, averaged over its run."""

    multiprocessors: float
    """Multiprocessors with a block of the kernel on them."""
    threads: float
    """Resident threads, summed over those multiprocessors."""
    whole: bool = False
    """Its blocks take multiprocessors whole, for all their time: another such kernel gets those that are left, or waits."""
    half: bool = False
    """A multiprocessor holds two of its blocks and no third: none of them fits beside a block that takes it whole."""

    @property
    def load(self) -> float:
        """Resident threads on each multiprocessor that is held; 0 where none is."""
        return self.threads / self.multiprocessors if self.multiprocessors else 0.0


@dataclass(frozen=True)
class KernelCost:
    """One kernel or copy of a launch, which may have several."""

    alone_ns: float
    """How long it takes alone."""
    cost: Cost
    """Time on the device."""
    held: Residency | None = None
    """Share of the chip; by the cost, where unknown."""


class Prices(Protocol):
    """Costs of launches: by a cost model, or measured."""

    def call_ns(self, launch: Launch) -> float:
        """Return the host's time for launching it, in ns."""

    def tail_ns(self, launch: Launch) -> float:
        """Return how much of that is left when the launch is on the stream, in ns: a library's call goes on after it."""

    def pieces(self, launch: Launch) -> Sequence[KernelCost]:
        """Return its kernels, or its copy, in order; at least one."""
