"""Stamped kernels: generated kernels that also write when each of their blocks began and ended, and on which multiprocessor."""

from __future__ import annotations

import re
from functools import lru_cache

from streamscope.kernels.cuda import pieces
from streamscope.kernels.source import KernelSource

STAMPS = pieces("stamps")["stamps"]
WORDS = 3
"""Words of 64 bits that a block writes: start and end on the device's timer in ns, and the multiprocessor."""


@lru_cache(maxsize=4096)
def stamped(source: KernelSource) -> KernelSource:
    """Return a kernel that computes the same, and stamps its blocks; the stamps' address is one more argument, the last.

    Blocks and grid have one extent, as those of all generated kernels.
    """
    name = f"{source.name}_stamped"

    def declared(match: re.Match[str]) -> str:
        parameters = [match["parameters"], "unsigned long long* stamps_of_blocks"]
        return f"{name}({', '.join(filter(None, parameters))})\n{{\n    const stamped_block stamped(stamps_of_blocks);"

    code, found = re.subn(rf"\b{source.name}\((?P<parameters>[^{{}}]*)\)\s*\{{", declared, source.code)
    if found != 1:
        raise ValueError(f"kernel {source.name!r} is declared {found} times")
    return KernelSource(name, f"{STAMPS}\n{code}")
