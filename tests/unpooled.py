"""A plugin for pytest (``-p tests.unpooled``): every array on a GPU lies in memory of its own.

CuPy's pool deals out memory in pieces of 512 bytes and more, so that what is just beyond an array is valid memory, too, and
compute-sanitizer finds nothing wrong with touching it.
"""

from __future__ import annotations

import importlib.util


def pytest_configure() -> None:
    """Let CuPy take each array from the driver."""
    if importlib.util.find_spec("cupy") is not None:
        import cupy

        cupy.cuda.set_allocator(None)
