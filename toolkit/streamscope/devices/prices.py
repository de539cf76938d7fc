"""What launches cost a device and its host, whoever says so: a cost model, or a measurement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from streamscope.program.launch import Cost, Launch


@dataclass(frozen=True)
class Residency:
    """What a kernel holds of the chip, averaged over the time it runs."""

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
class Piece:
    """One kernel or copy of a launch, which may have several."""

    alone_ns: float
    """How long it takes alone."""
    cost: Cost
    """What it takes from the device."""
    held: Residency | None = None
    """What it holds of the chip; by the cost, where nobody says."""


class Prices(Protocol):
    """What launches cost: by a cost model, or as somebody has measured them."""

    def call_ns(self, launch: Launch) -> float:
        """Return the host's time for launching it, in ns."""

    def tail_ns(self, launch: Launch) -> float:
        """Return how much of that is left when the launch is on the stream, in ns: a library's call goes on after it."""

    def pieces(self, launch: Launch) -> Sequence[Piece]:
        """Return its kernels, or its copy, in order; at least one."""
