"""Device functions that CUDA does not have, or has with another meaning: ``cuda/functions.cuh``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from streamscope.kernels.cuda import pieces

FUNCTIONS = pieces("functions")
"""Source by name; each stands behind those that it calls."""


def functions_source(texts: Iterable[str]) -> str:
    """Return the functions that some pieces of source name, and those that these call, in order."""
    return "".join(reversed(list(_needed(" ".join(texts)))))


def _needed(text: str) -> Iterator[str]:
    for name, source in reversed(FUNCTIONS.items()):
        if re.search(rf"\b{name}\b", text):
            text += source
            yield source
