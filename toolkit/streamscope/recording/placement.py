"""Placement: from measured durations and ends to spans that respect the order in which things must have happened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from streamscope.engines.plan import Issue, RecordEvent, Step, WaitEvent


def back_to_back_ns(steps: Sequence[Step], durations_ns: Mapping[int, float]) -> dict[int, float]:
    """Return how long before the end each launch would end if it began when the last one it depends on ended, in ns."""
    ends: dict[int, float] = {}
    for index, earlier in _dependencies(steps).items():
        ends[index] = max((ends[other] for other in earlier), default=0.0) + durations_ns[index]
    last = max(ends.values(), default=0.0)
    return {index: last - end for index, end in ends.items()}


def fitted_to_ends(steps: Sequence[Step], durations_ns: Mapping[int, float], ends_ns: Mapping[int, float]) -> dict[int, float]:
    """Return durations of a graph's launches, shortened alike where they do not fit between the ends that were measured.

    A launch cannot have run longer than since the last end of what it depends on. Durations measured alone carry a common error of
    some tenths of a microsecond, that of the calibration, and along a chain of short kernels such errors add up. So where launches are
    longer than that in the median, the median excess is taken off all.
    """
    excess = [
        durations_ns[index] - (ends_ns[index] - max(ends_ns[other] for other in earlier))
        for index, earlier in _dependencies(steps).items()
        if earlier
    ]
    too_long = max(0.0, float(np.median(excess))) if excess else 0.0
    return {index: max(0.0, duration - too_long) for index, duration in durations_ns.items()}


def place_in_graph(steps: Sequence[Step], durations_ns: Mapping[int, float], ends_ns: Mapping[int, float]) -> dict[int, float]:
    """Return the start of each launch of a graph, in ns, by index in ``steps``.

    Ends are uncertain by about half a microsecond, often more than the gap between two kernels, so taken as they are,
    launches that depend on each other would seem to overlap. Two placements respect all dependencies: the earliest that ends nothing
    before its measured end, and the latest that ends nothing after it. Every mean of placements that respect the dependencies respects
    them too, and so does the middle of these two, which is returned.
    """
    before = _dependencies(steps)
    after: dict[int, list[int]] = {index: [] for index in before}
    for index, earlier in before.items():
        for other in earlier:
            after[other].append(index)
    pushed: dict[int, float] = {}
    for index in before:
        ready = max((pushed[other] + durations_ns[other] for other in before[index]), default=float("-inf"))
        pushed[index] = max(ends_ns[index] - durations_ns[index], ready)
    pulled: dict[int, float] = {}
    for index in reversed(before):
        end = min((pulled[other] for other in after[index]), default=float("inf"))
        pulled[index] = min(ends_ns[index], end) - durations_ns[index]
    return {index: (pushed[index] + pulled[index]) / 2 for index in before}


def _dependencies(steps: Sequence[Step]) -> dict[int, list[int]]:
    """Return, for each launch, the launches that come right before it: on its lane, and through the events its lane waited for."""
    last: dict[int, int] = {}
    recorded: dict[int, int | None] = {}
    waiting: dict[int, list[int]] = {}
    before: dict[int, list[int]] = {}
    for index, step in enumerate(steps):
        match step:
            case Issue(_, lane):
                before[index] = [*waiting.pop(lane, []), *([last[lane]] if lane in last else [])]
                last[lane] = index
            case RecordEvent(event, lane):
                recorded[event] = last.get(lane)
            case WaitEvent(event, lane):
                if (earlier := recorded.get(event)) is not None:
                    waiting.setdefault(lane, []).append(earlier)
            case _:
                continue
    return before
