"""The longest path through a graph of work: the time that it takes with room for everything at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def path_lengths(
    durations: Sequence[float], neighbours: Sequence[Iterable[int]], order: Iterable[int] | None = None, gap: float = 0.0
) -> list[float]:
    """Return for each node the longest path that ends with it or, over successors, that begins with it.

    Parameters
    ----------
    durations : sequence of float
        Of each node, in any unit.
    neighbours : sequence of iterable of int
        Of each node the ones before it on a path.
    order : iterable of int, optional
        The nodes, each behind its neighbours; ascending by default.
    gap : float
        Between two nodes of a path.

    Examples
    --------
    A diamond: its ends, and what is left from each node on:

    >>> from streamscope.order.longest_path import path_lengths
    >>> durations = [1.0, 5.0, 20.0, 1.0]
    >>> path_lengths(durations, [(), (0,), (0,), (1, 2)])
    [1.0, 6.0, 21.0, 22.0]
    >>> path_lengths(durations, [(1, 2), (3,), (3,), ()], order=reversed(range(4)))
    [22.0, 6.0, 21.0, 1.0]
    """
    lengths = [0.0] * len(durations)
    for node in range(len(lengths)) if order is None else order:
        lengths[node] = durations[node] + max((lengths[other] + gap for other in neighbours[node]), default=0.0)
    return lengths
