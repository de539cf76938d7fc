"""Names of generated kernels: readable, and unique by construction."""

from __future__ import annotations

import hashlib

from streamscope.kernels.elementwise.wrapping_source import WRAPPING
from streamscope.kernels.source import KernelSource

PLACE_OF_NAME = "@name@"
"""Stands in a generated source where the kernel's name will be."""


def named_source(readable: str, code: str) -> KernelSource:
    """Return a kernel called ``readable`` and 8 hexadecimal digits of the SHA-256 of its whole source.

    So two kernels of one name are the same kernel, also where many are compiled together.
    """
    if "wrapping::" in code:
        code = f"{WRAPPING}\n{code}"
    digest = hashlib.sha256(f"{readable}\n{code}".encode()).hexdigest()[:8]
    name = f"{readable}_{digest}"
    return KernelSource(name, code.replace(PLACE_OF_NAME, name))
