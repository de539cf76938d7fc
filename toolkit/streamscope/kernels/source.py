"""What is handed to the compiler, and when it is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class KernelSource:
    """CUDA C++ source of one kernel.

    Attributes
    ----------
    name : str
        Name of the ``extern "C"`` function.
    code : str
        The whole source; it needs no header files.
    """

    name: str
    code: str


@dataclass(frozen=True)
class PlannedKernel:
    """A kernel that is launched over a known grid; its source is made when it is first asked for, which tracing does not.

    Attributes
    ----------
    make : callable
        Returns the source.
    blocks, threads : int
        Of the grid, and of each block.
    numbers : tuple of int
        Its arguments behind the pointers.
    """

    make: Callable[[], KernelSource]
    blocks: int
    threads: int
    numbers: tuple[int, ...]

    @cached_property
    def source(self) -> KernelSource:
        """The kernel's source."""
        return self.make()
