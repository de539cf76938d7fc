"""How much work something is, as a count that is the same on every machine, idle or busy."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def calls_of(function: Callable[..., object], *arguments: Any, **options: Any) -> int:
    """Call a function and return how many Python functions ran for that on the calling thread."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        function(*arguments, **options)
    finally:
        sys.setprofile(before)
    return calls
