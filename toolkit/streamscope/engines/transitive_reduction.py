"""Fewer waits between streams: where it takes no time, a stream waits once for the last of several operations of another stream.

A wait between the branches of a graph takes time: with 17 waits less, a training step of ResNet-18 was 25 µs faster on an H200. A schedule
has many. Say a stream prepares ten small buffers, and another one uses one after the other. Then ten waits can be one, if the tenth is
there in time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from streamscope.order.graph import without_implied
from streamscope.program.captured_graph import Edges

_Merge = tuple[int, int]
"""An operation, and the one of another stream that it waits for now."""


@dataclass(frozen=True)
class Spread:
    """Operations on streams."""

    order: tuple[int, ...]
    """All operations, so that each comes behind those that it waits for."""
    edges: Edges
    """For each operation those that it comes directly after, on its own stream too."""


def with_fewer_waits(
    order: Sequence[int], stream_of: Sequence[int], needed: Edges, duration_ns: Sequence[float], gap_ns: float, wait_ns: float
) -> Spread:
    """Return operations on streams that wait for each other as rarely as the time allows; no order that is needed gets lost.

    Waits are merged that then cost nothing, first if all starts as early as possible, and again if all starts as late as possible without
    a later end. So no operation on the longest path starts later.

    ``order``: in which operations are issued; on each stream they run in this order.
    ``stream_of``: the stream of each operation.
    ``needed``: for each operation those that it must come after.
    ``gap_ns``, ``wait_ns``: from the end of an operation to the start of the next one on its stream, and of one that waits for it on
        another.

    Examples
    --------
    Two short operations on stream 1, each of which one on stream 0 needs; after the first of them, both are there:

    >>> from streamscope.engines.transitive_reduction import with_fewer_waits
    >>> needed = ((), (0, 3), (1, 4), (), ())
    >>> with_fewer_waits([0, 3, 4, 1, 2], [0, 0, 0, 1, 1], needed, [5e3, 5e3, 5e3, 1e3, 1e3], 0.0, 1e3).edges
    ((), (0, 4), (1,), (), (3,))
    """
    on_streams: dict[int, list[int]] = defaultdict(list)
    for number in order:
        on_streams[stream_of[number]].append(number)
    after = [set(earlier) for earlier in needed]
    for each in on_streams.values():
        for earlier, later in pairwise(each):
            after[later].add(earlier)
    place = {number: at for at, number in enumerate(order)}
    made = _reduced(tuple(order), after)
    for times in (_earliest_ns, _latest_ns):
        start_ns = times(made, stream_of, duration_ns, gap_ns, wait_ns)
        merged = _merged(made.edges, stream_of, place, start_ns, [one + wait_ns for one in duration_ns])
        after = [set(earlier) for earlier in made.edges]
        for later, earlier in merged:
            after[later].add(earlier)
        # Whatever waits starts later than what it waits for, by these times.
        made = _reduced(tuple(sorted(made.order, key=start_ns.__getitem__)), after)
    return made


def _reduced(order: tuple[int, ...], after: Sequence[set[int]]) -> Spread:
    """Return the fewest edges that order the same."""
    place = {number: at for at, number in enumerate(order)}
    direct = without_implied([sorted(place[one] for one in after[number]) for number in order])
    edges: list[tuple[int, ...]] = [()] * len(order)
    for number, earlier in zip(order, direct, strict=True):
        edges[number] = tuple(sorted(order[one] for one in earlier))
    return Spread(order, tuple(edges))


def _merged(
    edges: Edges, stream_of: Sequence[int], place: dict[int, int], start_ns: Sequence[float], until_free_ns: Sequence[float]
) -> list[_Merge]:
    """Return waits that stand for several of one stream for another, and that none of them has to be longer for."""
    between: dict[tuple[int, int], list[_Merge]] = defaultdict(list)
    for later, before in enumerate(edges):
        for earlier in before:
            if stream_of[earlier] != stream_of[later]:
                between[stream_of[earlier], stream_of[later]].append((later, earlier))
    found = []
    for waits in between.values():
        waits.sort(key=lambda wait: place[wait[0]])
        first = waits[0]
        for wait in waits[1:]:
            begins_ns, wanted_ns = start_ns[wait[1]], start_ns[first[0]]
            # What takes no time may begin just when it is wanted: then nothing says which of the two comes first.
            if begins_ns + until_free_ns[wait[1]] > wanted_ns or begins_ns >= wanted_ns:
                found.append(first)
                first = wait
            else:
                first = first[0], wait[1]
        found.append(first)
    return found


def _earliest_ns(made: Spread, stream_of: Sequence[int], duration_ns: Sequence[float], gap_ns: float, wait_ns: float) -> list[float]:
    """Return when each operation starts at the earliest: the longest path to it, on which each edge has a pause of its own."""
    start_ns = [0.0] * len(made.order)
    for number in made.order:
        for earlier in made.edges[number]:
            pause_ns = gap_ns if stream_of[earlier] == stream_of[number] else wait_ns
            start_ns[number] = max(start_ns[number], start_ns[earlier] + duration_ns[earlier] + pause_ns)
    return start_ns


def _latest_ns(made: Spread, stream_of: Sequence[int], duration_ns: Sequence[float], gap_ns: float, wait_ns: float) -> list[float]:
    early_ns = _earliest_ns(made, stream_of, duration_ns, gap_ns, wait_ns)
    end_ns = [max(start + duration for start, duration in zip(early_ns, duration_ns, strict=True))] * len(early_ns)
    for number in reversed(made.order):
        for earlier in made.edges[number]:
            pause_ns = gap_ns if stream_of[earlier] == stream_of[number] else wait_ns
            end_ns[earlier] = min(end_ns[earlier], end_ns[number] - duration_ns[number] - pause_ns)
    return [end - duration for end, duration in zip(end_ns, duration_ns, strict=True)]
