"""Profilers that stay in the process after a recording, so that launches are dearer."""

from __future__ import annotations

from collections.abc import Callable

STAYS: list[Callable[[], bool]] = []
"""Of each profiler that was loaded, a function that tells whether it is still there."""


def cupti_stayed() -> bool:
    """Tell whether CUPTI stayed in this process after a recording."""
    return any(stays() for stays in STAYS)
