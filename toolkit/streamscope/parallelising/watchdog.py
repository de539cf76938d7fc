"""Runs with a time limit: one that hangs is given up with an error, which names the nodes under way where that is known.

A kernel that hangs cannot be stopped from within its process: CUDA has no call for that, and whoever waits for the GPU then waits for ever.
So nobody waits without a limit while an order is new.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from streamscope.devices.hang import hung
from streamscope.engines.prepared import Prepared
from streamscope.errors import HungError

_LEAST_S = 10.0
_TIMES = 100
"""How many times as long as the sequential order a new one may take before it counts as hung."""
_BETWEEN_LOOKS_S = 0.0005

_GIVEN_UP: list[object] = []
"""Work that never ends on the GPU, and all that it uses, which nobody may free."""


def time_limit_s(sequential_us: float) -> float:
    """Return after how long a run of a new order counts as hung, in s."""
    return _LEAST_S + _TIMES * sequential_us / 1e6


def run_watched(prepared: Prepared, limit_s: float, under_way: Callable[[], Sequence[str]] | None = None, *kept: object) -> None:
    """Run once and wait until all issued work is done, or give it up.

    ``limit_s``: after so long, the run counts as hung; see `time_limit_s`.
    ``under_way``: tells the names of the nodes that have begun and not ended, for the error.
    ``*kept``: what the run uses besides, which must stay if it hangs.

    Raises
    ------
    HungError
        It is not done in time.
    DeviceError
        What was issued failed.
    """
    prepared.run()
    events: list[Any] = []
    for stream in prepared.streams.values():
        # Events are asked, not streams synchronized: a wait for a stream that hangs has no end.
        events.append(prepared.device.event())
        stream.record(events[-1])
    deadline = time.monotonic() + limit_s
    while not all(event.done() for event in events):
        if time.monotonic() > deadline:
            raise _given_up(prepared, limit_s, under_way, events, kept)
        time.sleep(_BETWEEN_LOOKS_S)


def _given_up(
    prepared: Prepared, limit_s: float, under_way: Callable[[], Sequence[str]] | None, events: Sequence[Any], kept: Sequence[object]
) -> HungError:
    names = list(under_way()) if under_way is not None else []
    # Never freed: to free memory or graphs is to wait for the work that uses them.
    prepared.abandon()
    _GIVEN_UP.append((prepared, events, kept))
    return hung(f"{prepared.program.name} under {prepared.plan.engine!r}", limit_s, names)
