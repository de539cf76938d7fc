"""The dependency graph of a program's operations, with critical paths and chains; the longest path through any graph of work."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from streamscope.order.hazards import Accesses, hazards, note
from streamscope.program.launch import HostCall, Launch
from streamscope.program.operation import Operation

WINDOW = 4096
"""How many operations back an implied dependency is noticed; one from further back stays, which costs a scheduler a little insight."""


@dataclass
class DependencyGraph:
    """Operations, by their position, with their predecessors and successors."""

    operations: Sequence[Operation]
    duration_ns: list[float]
    """Duration of each, on the device or, of a host function, on the host."""
    before: list[list[int]] = field(init=False)
    after: list[list[int]] = field(init=False)
    """Direct predecessors and successors, in program order; none that another one implies."""

    def __post_init__(self) -> None:
        self.before = without_implied(dependencies(self.operations))
        self.after = successors(self.before)

    def upward_ranks_ns(self) -> list[float]:
        """Return for each operation the longest path from its start to the end of the program, in ns."""
        return path_lengths(self.duration_ns, self.after, reversed(range(len(self.operations))))

    def by_rank(self) -> list[int]:
        """Return a topological order: of the ready operations the highest rank first, and host functions, which hold up the rest, last."""
        ranks = self.upward_ranks_ns()
        missing = [len(earlier) for earlier in self.before]

        def key(position: int) -> tuple[bool, float, int]:
            return isinstance(self.operations[position].work, HostCall), -ranks[position], position

        ready = [key(position) for position, count in enumerate(missing) if not count]
        heapify(ready)
        order: list[int] = []
        while ready:
            order.append(heappop(ready)[-1])
            for other in self.after[order[-1]]:
                missing[other] -= 1
                if not missing[other]:
                    heappush(ready, key(other))
        return order

    def chain(self, head: int, link: Callable[[Operation], bool]) -> list[int]:
        """Return the chain that begins with ``head``: operations that each follow on the one before and on nothing else.

        It ends where something else follows too, or at an operation that ``link`` does not accept.
        """
        chain = [head]
        while len(self.after[chain[-1]]) == 1:
            (following,) = self.after[chain[-1]]
            if len(self.before[following]) != 1 or not link(self.operations[following]):
                break
            chain.append(following)
        return chain


def successors(before: Sequence[Iterable[int]]) -> list[list[int]]:
    """Return each node's successors, ascending; ``before`` has each node's predecessors."""
    after: list[list[int]] = [[] for _ in before]
    for node, earlier in enumerate(before):
        for other in earlier:
            after[other].append(node)
    return after


def dependencies(operations: Sequence[Operation]) -> list[list[int]]:
    """Return, for each operation, the positions of its `hazards`; some may imply others.

    Host functions come one after the other in program order, since they may have effects that no variable shows.
    """
    return _dependencies((operation.reads, operation.writes, isinstance(operation.work, HostCall)) for operation in operations)


def dependencies_of_work(works: Iterable[Launch | HostCall]) -> list[list[int]]:
    """Return the same of launches and host functions, by their positions."""
    return _dependencies((work.reads, work.writes, isinstance(work, HostCall)) for work in works)


def _dependencies(items: Iterable[tuple[Collection[int], Collection[int], bool]]) -> list[list[int]]:
    """Return each item's predecessors, by position."""
    accesses: defaultdict[int, Accesses[int]] = defaultdict(Accesses)
    last_host: int | None = None
    before: list[list[int]] = []
    for position, (read, written, on_host) in enumerate(items):
        reads = [accesses[variable] for variable in read if variable not in written]
        writes = [accesses[variable] for variable in written]
        earlier = set(hazards(reads, writes))
        if on_host:
            earlier.update([] if last_host is None else [last_host])
            last_host = position
        before.append(sorted(earlier))
        note(position, position, reads, writes)  # Each item is a lane of its own: no order is given but by variables.
    return before


def without_implied(before: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return predecessors without those that are predecessors of another one already (the transitive reduction of a DAG)."""
    reduced: list[list[int]] = []
    # For each operation a bit for each one before it that it follows on: the lowest bit is its neighbour's.
    ancestors: list[int] = []
    for position, earlier in enumerate(before):
        implied = direct = 0
        for other in earlier:
            implied |= ancestors[other] << (position - other)
            direct |= 1 << (position - other - 1)
        reduced.append([other for other in earlier if not implied >> (position - other - 1) & 1])
        ancestors.append((implied | direct) & ((1 << WINDOW) - 1))
    return reduced


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

    >>> from streamscope.order.graph import path_lengths
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
