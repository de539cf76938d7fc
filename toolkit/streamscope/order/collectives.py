"""Orders of the collectives of captured code: in which one after the other they use the links.

Collectives may change places, as long as every rank has the same order of all of them. Each order here comes from a simulation in which
one kernel runs at a time, and one collective beside it: the rule says which of the collectives that could begin does so.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streamscope.order.graph import path_lengths, successors
from streamscope.program.captured_graph import Edges

AS_CAPTURED, READY_FIRST, IN_TURNS, NEXT_USE = "as captured", "ready first", "in turns", "by next use"
_Turn = tuple[int, int]
"""The place of a collective in its branch, and the branch."""
_Rule = Callable[[int, float], object]
"""``rule(collective, ready)`` returns a key: the collective with the least one begins. ``ready``: when it could have begun."""


def collective_orders(units: Sequence[int], order: Edges, durations: Sequence[float]) -> dict[str, list[int]]:
    """Return orders of nodes by the rule for their collectives, each other order once; the first is that of the capture.

    ``units``: the number of the collective that each node belongs to, in the order of the capture; -1 of other nodes.
    ``order``: for each node those that must come before it, but for the orders of collectives among each other. All come earlier.
    ``durations``: of each node alone.

    Examples
    --------
    Two kernels make one gradient each, and the one that is made last is reduced first:

    >>> from streamscope.order.collectives import collective_orders
    >>> found = collective_orders([-1, -1, 0, 1], ((), (0,), (1,), (0,)), [1.0, 1.0, 1.0, 1.0])
    >>> found["ready first"]
    [0, 1, 3, 2]
    """
    after = successors(order)
    left = path_lengths(durations, after, reversed(range(len(order))))
    turns = _turns(units, order)
    behind = {unit: max(left[node] for node, one in enumerate(units) if one == unit) for unit in {*units}}
    as_captured, longest_first = [*range(len(order))], [-one for one in left]
    rules: dict[str, tuple[Sequence[Any], _Rule]] = {
        IN_TURNS: (_kernels_in_turns(units, turns, after), lambda unit, _: turns[unit]),
        READY_FIRST: (as_captured, lambda unit, ready: (ready, unit)),
        NEXT_USE: (longest_first, lambda unit, _: (-behind[unit], unit)),
    }
    if len({branch for _, branch in turns.values()}) < 2:
        del rules[IN_TURNS]
    found: dict[str, list[int]] = {AS_CAPTURED: as_captured}
    for name, (kernels, rule) in rules.items():
        nodes = _simulated(units, order, durations, kernels, rule)
        sequence = _sequence(units, nodes)
        if len(nodes) == len(order) and all(sequence != _sequence(units, other) for other in found.values()):
            found[name] = nodes
    return found


def _sequence(units: Sequence[int], nodes: Sequence[int]) -> list[int]:
    """Return the collectives in the order of nodes."""
    return list(dict.fromkeys(units[node] for node in nodes if units[node] >= 0))


def _turns(units: Sequence[int], order: Edges) -> dict[int, _Turn]:
    """Return for each collective its place in its branch, and the branch: nodes that no order connects to others."""
    branch = list(range(len(order)))

    def root(node: int) -> int:
        while branch[node] != node:
            branch[node] = node = branch[branch[node]]
        return node

    for node, direct in enumerate(order):
        for earlier in direct:
            branch[root(node)] = root(earlier)
    places: dict[int, int] = {}
    found: dict[int, _Turn] = {}
    for node, unit in enumerate(units):
        if unit >= 0 and unit not in found:
            at = root(node)
            found[unit] = places.get(at, 0), at
            places[at] = places.get(at, 0) + 1
    return found


def _kernels_in_turns(units: Sequence[int], turns: Mapping[int, _Turn], after: Sequence[Sequence[int]]) -> list[tuple[_Turn, int]]:
    """Return keys by which each branch runs up to its next collective, beside which the other branches then run up to theirs."""
    last = len(units), 0
    found: list[_Turn] = [last] * len(units)
    for node in reversed(range(len(units))):
        found[node] = min((turns[units[later]] if units[later] >= 0 else found[later] for later in after[node]), default=last)
    return [(turn, node) for node, turn in enumerate(found)]


def _simulated(units: Sequence[int], order: Edges, durations: Sequence[float], keys: Sequence[Any], rule: _Rule) -> list[int]:
    """Return all nodes by when they begin: of the kernels that could, the one with the least key, and of the collectives by the rule.

    Fewer, where a kernel stands between two nodes of one collective: these begin together here.
    """
    after, missing = successors(order), [len(direct) for direct in order]
    members: dict[int, list[int]] = {}
    for node, unit in enumerate(units):
        members.setdefault(unit, []).append(node)
    waits = {unit: sum(one not in nodes for node in nodes for one in order[node]) for unit, nodes in members.items() if unit >= 0}
    kernels: list[tuple[Any, int]] = []
    collectives: list[tuple[object, int]] = []
    running: list[tuple[float, list[int]]] = []
    begun: list[int] = []
    now, compute_free, link_free = 0.0, 0.0, 0.0

    def ready(node: int) -> None:
        if units[node] < 0:
            heapq.heappush(kernels, (keys[node], node))

    def unit_ready(unit: int) -> None:
        heapq.heappush(collectives, (rule(unit, now), unit))

    for node in range(len(order)):
        if not missing[node]:
            ready(node)
    for unit, count in waits.items():
        if not count:
            unit_ready(unit)
    while len(begun) < len(order):
        if kernels and compute_free <= now:
            _, node = heapq.heappop(kernels)
            compute_free = now + durations[node]
            begun.append(node)
            heapq.heappush(running, (compute_free, [node]))
            continue
        if collectives and link_free <= now:
            _, unit = heapq.heappop(collectives)
            link_free = now + sum(durations[node] for node in members[unit])
            begun += members[unit]
            heapq.heappush(running, (link_free, members[unit]))
            continue
        if not running:
            break
        now, ended = heapq.heappop(running)
        for node in ended:
            for later in after[node]:
                missing[later] -= 1
                if units[later] >= 0:
                    if units[later] != units[node]:
                        waits[units[later]] -= 1
                        if not waits[units[later]]:
                            unit_ready(units[later])
                elif not missing[later]:
                    ready(later)
    return begun
