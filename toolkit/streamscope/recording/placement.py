"""Placement: from measured durations and ends to spans that respect the order in which things must have happened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamscope.engines.plan import Issue, RecordEvent, Step, WaitEvent


def overlapping_duration_ns(
    lanes: Mapping[int, int],
    alone_ns: Mapping[int, float],
    together_ns: Mapping[int, float],
    ends_ns: Mapping[int, float],
    issued_ns: Mapping[int, float],
) -> dict[int, float]:
    """Return how long each launch ran in the natural pass of an engine with several streams.

    A launch takes longer beside others than alone. Where the natural pass shows it alone (the interval that ends when it ended and is as
    long as it takes alone touches no launch of another stream), it took as long as alone. Else it took what it took together with others
    in the gated pass, but not less than alone, and not more than fits: it cannot have begun before the launch before it on its stream
    ended, nor before it was issued.

    Parameters
    ----------
    lanes, alone_ns, together_ns, ends_ns, issued_ns : mapping
        Lane, duration alone, duration in the gated pass with neighbours, natural end, and start of the launch call, by launch.
    """
    durations: dict[int, float] = {}
    previous: dict[int, float] = {}
    intervals = {index: (ends_ns[index] - alone_ns[index], ends_ns[index]) for index in lanes}
    for index, lane in lanes.items():
        start, end = intervals[index]
        beside = any(
            other_start < end and start < other_end
            for other, (other_start, other_end) in intervals.items()
            if lanes[other] != lane
        )
        durations[index] = alone_ns[index]
        if beside:
            most = end - max(issued_ns[index], previous.get(lane, issued_ns[index]))
            durations[index] = max(alone_ns[index], min(together_ns[index], most))
        previous[lane] = end
    return durations


def place_in_graph(steps: Sequence[Step], durations_ns: Mapping[int, float], ends_ns: Mapping[int, float]) -> dict[int, float]:
    """Return the start of each launch of a graph, in ns, by index in ``steps``.

    Ends measured aside are uncertain by about half a microsecond, often more than the gap between two kernels, so taken as they are,
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
