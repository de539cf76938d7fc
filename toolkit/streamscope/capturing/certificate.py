"""The certificate of captured code: which nodes must keep their order and why, and the check that every schedule passes before it runs.

Of each cause that orders nodes, it knows the order that would be without it: the cause is taken away in thought.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.arguments import whole_number
from streamscope.capturing.memory import Access, AddressRange, Evidence, NodeMemory
from streamscope.capturing.true_order import true_order
from streamscope.devices.graph_node import GraphNode
from streamscope.errors import ProgramError, RaceError
from streamscope.order.ancestors import Bits, CircleError, count_of, has, known_before, packed, pairs_of
from streamscope.order.graph import path_lengths
from streamscope.program.captured_graph import Edges, OrderCause
from streamscope.results.result import Result
from streamscope.words import counted, listed

_NAMED = 3
"""Pairs that an error names, and nodes that a text lists of each kind; the rest is counted."""


@dataclass(frozen=True)
class SharedMemory:
    """A piece of memory that two nodes touch, one of them writing.

    Attributes
    ----------
    start, end : int
        Addresses of device memory; the end is the first that does not belong to it.
    earlier, later : Access
        How each of the two nodes touches it.
    """

    start: int
    end: int
    earlier: Access
    later: Access

    def __str__(self) -> str:
        uses = (f"{_use(one)} by the {name} ({one.evidence.value})" for name, one in (("first", self.earlier), ("second", self.later)))
        return f"{self.end - self.start:,} bytes at {self.start:#x}, {listed(list(uses))}"


@dataclass(frozen=True)
class OrderedPair:
    """Two nodes that must keep the order of the capture.

    Attributes
    ----------
    earlier, later : int
        Numbers of the nodes.
    shared : tuple of SharedMemory
        Memory that they share; empty where one of them is not understood and they share nothing that is known.
    path : tuple of int
        The nodes of a path of the true order from the earlier to the later one; empty where there is none.
    """

    earlier: int
    later: int
    shared: tuple[SharedMemory, ...]
    path: tuple[int, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Certificate(Result):
    """Why the true order of captured code is right: each pair of nodes that must keep its order, with the path that keeps it.

    A pair must keep its order if the capture orders it, and both touch the same memory, one of them writing; or if one of the two is not
    understood. The pairs are found by themselves, by another way than the order was.

    Attributes
    ----------
    name : str
    nodes : sequence of GraphNode
        With the edges of the capture.
    memories : sequence of NodeMemory
        Accesses of each node.
    order : tuple of tuple of int
        The true order: for each node those that it comes directly after.
    notes : sequence of str
        Further notes, a sentence each.

    Examples
    --------
    Two nodes write their own memory, and a third one reads both:

    >>> from streamscope.capturing.certificate import Certificate
    >>> from streamscope.capturing.memory import Access, Evidence, NodeMemory
    from streamscope.capturing.certificate import order_causes
    >>> from streamscope.devices.graph_node import GraphNode, NodeKind
    >>> one, two = (Access(start, start + 512, False, True, Evidence.SCHEMA) for start in (0, 512))
    >>> both = Access(0, 1024, True, False, Evidence.SCHEMA)
    >>> memories = [NodeMemory((one,)), NodeMemory((two,)), NodeMemory((both,))]
    >>> nodes = [GraphNode(NodeKind.KERNEL, name, after) for name, after in (("a", ()), ("b", (0,)), ("c", (1,)))]
    >>> certificate = Certificate("three kernels", nodes, memories, order=((), (), (0, 1)))
    >>> certificate.pairs, certificate.unordered()
    (2, [])
    >>> certificate.check([[], [], [1]])
    Traceback (most recent call last):
    ...
    streamscope.errors.RaceError: a schedule of three kernels does not order 1 of 2 pairs of nodes that share memory: ...
    """

    view = "certificate"

    name: str
    nodes: Sequence[GraphNode]
    memories: Sequence[NodeMemory]
    order: Edges
    notes: Sequence[str] = ()

    @cached_property
    def _needed(self) -> Bits:
        return conflicts(self.memories) & known_before([node.after for node in self.nodes])

    @cached_property
    def _reached(self) -> Bits:
        return known_before(self.order)

    @cached_property
    def pairs(self) -> int:
        """Number of pairs that must keep their order."""
        return count_of(self._needed)

    @cached_property
    def capture_pairs(self) -> int:
        """Number of pairs that the capture orders, most of them for no reason."""
        return count_of(known_before([node.after for node in self.nodes]))

    @property
    def edges(self) -> int:
        """Number of edges of the true order."""
        return sum(map(len, self.order))

    @property
    def evidence(self) -> dict[Evidence, int]:
        """Number of accesses by evidence, the most frequent first."""
        return dict(Counter(one.evidence for memory in self.memories for one in memory.accesses).most_common())

    @property
    def unknown(self) -> dict[int, str]:
        """The nodes that are not understood, and so ordered against all, each with the reason."""
        return {number: memory.why_unknown for number, memory in enumerate(self.memories) if not memory.understood}

    def ordered(self, most: int | None = None) -> Iterator[OrderedPair]:
        """Yield the pairs that must keep their order, the first ``most`` or all."""
        for earlier, later in pairs_of(self._needed, len(self.nodes) ** 2 if most is None else most):
            yield self.pair(earlier, later)

    def pair(self, earlier: int, later: int) -> OrderedPair:
        """Return the memory that two nodes share, and the path of the true order between them."""
        return OrderedPair(earlier, later, tuple(self._shared(earlier, later)), self._path(earlier, later))

    def unordered(self, after: Sequence[Sequence[int]] | None = None, most: int = _NAMED) -> list[OrderedPair]:
        """Return the first pairs that a schedule leaves unordered, or puts into another order.

        Parameters
        ----------
        after : sequence of sequence of int, optional
            For each node those that it waits for, in whatever way: they are before it on its stream, or it waits for an event behind them.
            The true order, if nothing is given.
        most : int
        """
        return [self.pair(*pair) for pair in pairs_of(self._missing(self.order if after is None else after), most)]

    def check(self, after: Sequence[Sequence[int]], schedule: str = "a schedule") -> None:
        """Refuse a schedule that does not order each pair that must keep its order.

        Parameters
        ----------
        after : sequence of sequence of int
            As for `unordered`.
        schedule : str
            Its name in the error.

        Raises
        ------
        RaceError
            Pairs are not ordered, or nodes wait for each other. The message names the first.
        """
        hint = "nothing was launched; this is a defect of the schedule and not of your code, so please report it"
        try:
            missing = self._missing(after)
        except CircleError as error:
            names = listed([self.named(number) for number in error.nodes[:_NAMED]])
            raise RaceError(f"{schedule} of {self.name} never ends: {names} wait for each other", hint=hint) from None
        if not missing.any():
            return
        first = "; ".join(map(self._why, (self.pair(*pair) for pair in pairs_of(missing, _NAMED))))
        count = f"{count_of(missing):,} of {counted(self.pairs, 'pair')}"
        raise RaceError(f"{schedule} of {self.name} does not order {count} of nodes that share memory: {first}", hint=hint)

    def _missing(self, after: Sequence[Sequence[int]]) -> Bits:
        if len(after) != len(self.nodes):
            raise RaceError(f"a schedule of {self.name} has {counted(len(after), 'node')}, and the capture {len(self.nodes):,}")
        for number, direct in enumerate(after):
            if any(not 0 <= earlier < len(after) for earlier in direct):
                raise RaceError(f"a schedule of {self.name} lets node {number} wait for nodes that do not exist: {list(direct)}")
        return self._needed & ~(self._reached if after is self.order else known_before(after))

    def named(self, number: int) -> str:
        """Name a node: number, name, operator, collective, module and line, as far as they are known.

        Raises
        ------
        ProgramError
            There is no such node.
        """
        node = self.nodes[whole_number("node", number, 0, len(self.nodes) - 1, error=ProgramError)]
        told = (node.operator, str(getattr(node, "communication", None) or ""), getattr(node, "module", ""), node.where)
        parts = dict.fromkeys(part for part in told if part and part != node.name)
        return f"node {number}, {node.name}" + (f" ({', '.join(parts)})" if parts else "")

    def symbol(self, number: int) -> str:
        """Return the whole name of a node's kernel; empty for a copy or a set."""
        return self.nodes[number].symbol

    def causes(self) -> Iterator[OrderCause]:
        """Yield each cause that orders nodes, with the order that would be without it."""
        return order_causes(self.nodes, self.memories, self.reasons)

    def _why(self, pair: OrderedPair) -> str:
        """Say that one node must come before another, and why."""
        unknown = [(number, self.memories[number].why_unknown) for number in (pair.earlier, pair.later)]
        whys = [f"node {number} is not understood: {why}" for number, why in unknown if why]
        why = str(pair.shared[0]) if pair.shared else whys[0] if whys else "they share nothing"
        return f"{self.named(pair.earlier)} must come before {self.named(pair.later)}: {why}"

    def _shared(self, earlier: int, later: int) -> Iterator[SharedMemory]:
        for one in self.memories[earlier].accesses:
            for other in self.memories[later].accesses:
                start, end = max(one.start, other.start), min(one.end, other.end)
                if start < end and (one.writes or other.writes):
                    yield SharedMemory(start, end, one, other)

    def _path(self, earlier: int, later: int) -> tuple[int, ...]:
        if not has(self._reached, later, earlier):
            return ()
        path = [later]
        while path[-1] != earlier:
            direct = self.order[path[-1]]
            path.append(next(one for one in direct if one == earlier or has(self._reached, one, earlier)))
        return tuple(reversed(path))

    @cached_property
    def longest_path(self) -> int:
        """Number of nodes of the longest path of the true order."""
        return int(max(path_lengths([1] * len(self.order), self.order), default=0))

    def to_dict(self) -> dict[str, Any]:
        """Return the counts, the edges of the true order and the nodes that are not understood, as JSON holds them."""
        return {
            "name": self.name,
            "nodes": len(self.nodes),
            "pairs": self.pairs,
            "capture_pairs": self.capture_pairs,
            "edges": [[earlier, later] for later, direct in enumerate(self.order) for earlier in direct],
            "longest_path": self.longest_path,
            "evidence": {evidence.name.lower(): count for evidence, count in self.evidence.items()},
            "unknown": {str(number): why for number, why in self.unknown.items()},
        }

    @property
    def headline(self) -> str:
        """The claim, in one sentence."""
        left = len(self.unordered(most=1))
        pairs = f"{counted(self.pairs, 'pair')} of nodes must keep {'its' if self.pairs == 1 else 'their'} order"
        return f"{pairs}, and {'not each' if left else 'each'} has a path in the true order"

    @property
    def sentences(self) -> list[str]:
        """The evidence, a sentence each."""
        size = f"{counted(len(self.nodes), 'node')}, {counted(self.edges, 'edge')}, {self.longest_path:,} nodes on the longest path"
        found = [f"{size}; the capture orders {counted(self.capture_pairs, 'pair')}."]
        if self.evidence:
            counts = [f"{count:,} by {evidence.value}" for evidence, count in self.evidence.items()]
            found.append(f"{counted(sum(self.evidence.values()), 'access', 'accesses')} of memory: {listed(counts)}.")
        for why, numbers in self.reasons.items():
            some = ", ".join(self.named(number) for number in numbers[:_NAMED]) + (" …" if len(numbers) > _NAMED else "")
            found.append(f"{counted(len(numbers), 'node')} not understood, so ordered against all, because {why}: {some}.")
        return [*found, *self.notes]

    @property
    def reasons(self) -> Mapping[str, list[int]]:
        """Why nodes are not understood, each reason with the nodes, the most frequent first."""
        grouped: dict[str, list[int]] = {}
        for number, why in self.unknown.items():
            grouped.setdefault(why, []).append(number)
        return dict(sorted(grouped.items(), key=lambda one: -len(one[1])))

    def __str__(self) -> str:
        return "\n".join([f"Certificate of {self.name}: {self.headline}", *self.sentences])

    __repr__ = __str__


def _use(access: Access) -> str:
    """Return how a node uses memory, as a participle."""
    return "read and written" if access.reads and access.writes else "written" if access.writes else "read"


_Numbers = npt.NDArray[np.int64]

_MOST_PAIRS = 2**21
"""Pairs of accesses that are looked at together, so that the memory for them has a bound."""


def conflicts(memories: Sequence[NodeMemory]) -> Bits:
    """Return which pairs of nodes may not change places: they touch the same memory and one of them writes, or one is not understood.

    `true_order` has its own way, so that one cannot be wrong because the other is.
    """
    count = len(memories)
    table = np.zeros((count, count), np.bool_)
    for one, other in _meeting(memories):
        table[one, other] = table[other, one] = True
    unknown = [number for number, memory in enumerate(memories) if not memory.understood]
    table[unknown, :] = table[:, unknown] = True
    np.fill_diagonal(table, val=False)
    return packed(table)


def _meeting(memories: Sequence[NodeMemory]) -> Iterator[tuple[_Numbers, _Numbers]]:
    """Yield pairs of nodes whose accesses meet, one of them a write; a pair may come several times.

    Two pieces of memory meet where the one that starts later starts before the other one's end. So, by start, each access meets a row of
    those behind it: a write all of them, a read those among them that write.
    """
    rows = sorted({
        (one.start, one.end, one.writes, number)
        for number, memory in enumerate(memories)
        for one in memory.accesses
        if one.start < one.end and (one.reads or one.writes)
    })  # fmt: skip
    start, end = (np.array([row[which] for row in rows], np.uint64) for which in (0, 1))
    writes = np.array([row[2] for row in rows], np.bool_)
    node = np.array([row[3] for row in rows], np.int64)
    everywhere = np.arange(len(rows))
    behind = np.searchsorted(start, end, "left")  # the first access that starts at the end or later
    yield from _pairs(node, everywhere[writes], everywhere[writes] + 1, behind[writes], everywhere)
    writers = everywhere[writes]
    first, last = (np.searchsorted(writers, places, "left") for places in (everywhere[~writes] + 1, behind[~writes]))
    yield from _pairs(node, everywhere[~writes], first, last, writers)


def _pairs(node: _Numbers, rows: _Numbers, first: _Numbers, last: _Numbers, others: _Numbers) -> Iterator[tuple[_Numbers, _Numbers]]:
    """Yield the nodes of each row, and of those that stand from its first place to its last one among others."""
    lengths = np.maximum(last - first, 0)
    ends = np.cumsum(lengths)
    at = 0
    while at < len(rows):
        done = ends[at - 1] if at else 0
        until = max(at + 1, int(np.searchsorted(ends, done + _MOST_PAIRS, "right")))
        many = lengths[at:until]
        within = np.arange(int(many.sum())) - np.repeat(ends[at:until] - many - done, many)
        yield np.repeat(node[rows[at:until]], many), node[others[np.repeat(first[at:until], many) + within]]
        at = until


_VAGUE = frozenset({Evidence.POINTER})
"""Evidence of memory that a node may use, or may not: an address led there, and nothing says more."""
_FAR = 2**49
"""Bytes, further than any two addresses are apart."""
MOST_REASONS = 8
"""Reasons that are a cause of their own; the order is worked out anew for each."""


def order_causes(nodes: Sequence[GraphNode], memories: Sequence[NodeMemory], reasons: Mapping[str, Sequence[int]]) -> Iterator[OrderCause]:
    """Yield each cause that orders nodes, with the order that would be without it.

    ``reasons``: why nodes are not understood, each with the nodes, the most frequent first.
    """
    capture = tuple(node.after for node in nodes)
    for why, numbers in _grouped(reasons).items():
        understood = [replace(memory, why_unknown="") if number in numbers else memory for number, memory in enumerate(memories)]
        subject = f"{counted(len(numbers), 'node')} {'is' if len(numbers) == 1 else 'are'} ordered against all others, because {why}"
        advice = "look at .certificate() of the captured code for each node; what is called through PyTorch's operators is understood best."
        yield OrderCause("not understood", subject, numbers, true_order(understood, capture), advice)
    vague = [number for number, memory in enumerate(memories) if any(one.evidence in _VAGUE for one in memory.accesses)]
    if vague:
        leads = "leads" if len(vague) == 1 else "lead"
        subject = f"{counted(len(vague), 'node')} {leads} to memory whose use is not known, as of workspaces"
        advice = "give libraries a workspace for each call, where they take one."
        yield OrderCause("shared workspace", subject, vague, true_order(list(map(_certain, memories)), capture), advice)
    apart, again = used_once(nodes, memories)
    if again:
        handed = "is handed memory" if len(again) == 1 else "are handed memory"
        subject = f"{counted(len(again), 'node')} {handed} that was used before"
        advice = "give ss.capture a higher memory_limit=, so that it uses no memory twice."
        yield OrderCause("memory used twice", subject, again, true_order(apart, capture), advice)


def _grouped(reasons: Mapping[str, Sequence[int]]) -> dict[str, Sequence[int]]:
    """Return the most frequent reasons why nodes are not understood, and all others as one."""
    found = list(reasons.items())
    rest = found[MOST_REASONS:]
    if not rest:
        return dict(found)
    return dict(
        [*found[:MOST_REASONS], (f"of {counted(len(rest), 'other reason')}", sorted(number for _, some in rest for number in some))]
    )


def _certain(memory: NodeMemory) -> NodeMemory:
    return replace(memory, accesses=tuple(one for one in memory.accesses if one.evidence not in _VAGUE))


def used_once(nodes: Sequence[GraphNode], memories: Sequence[NodeMemory]) -> tuple[list[NodeMemory], list[int]]:
    """Return the accesses of nodes if no memory were handed out twice, and the nodes that got reused memory.

    Memory that an operator allocates holds nothing yet. If it was touched before, only the allocator makes the operator wait.
    """
    rows = [(one.start, one.end, number) for number, memory in enumerate(memories) for one in memory.accesses]
    start, end, node = np.array(rows, np.uint64).reshape(-1, 3).T
    elsewhere: list[tuple[AddressRange, int]] = []  # The latest first: memory that was handed out again, and how far it is moved.
    found, again, before = list[NodeMemory](), list[int](), None
    for number, memory in enumerate(memories):
        allocated = tuple((one.start, one.end) for one in memory.accesses if one.evidence is Evidence.ALLOCATED)
        operator = (nodes[number].operator, nodes[number].module, nodes[number].where)
        if operator != before:
            used = [(low, high) for low, high in allocated if ((start < high) & (end > low) & (node < number)).any()]
            elsewhere[:0] = [(region, (len(again) + 1) * _FAR) for region in used]
            again += [number] if used else []
        before = operator
        found.append(replace(memory, accesses=tuple(_moved(one, elsewhere) for one in memory.accesses)))
    return found, again


def _moved(access: Access, elsewhere: Sequence[tuple[AddressRange, int]]) -> Access:
    by = next((by for (start, end), by in elsewhere if start <= access.start and access.end <= end), 0)
    return replace(access, start=access.start + by, end=access.end + by) if by else access
