"""What is handed to the compiler."""

from __future__ import annotations

from dataclasses import dataclass


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
