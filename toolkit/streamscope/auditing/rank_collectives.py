"""Collectives of captured code over all ranks of a job: whether they could wait for each other for ever.

A collective ends nowhere before it has begun on each of its ranks. So each rank has to run the same collectives of a communicator in the
same order, over several communicators no rank may begin with one that another rank has behind another one, and those that run side by
side hold multiprocessors while they wait. All three are read from the captures, and nothing is launched.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Protocol

from streamscope.auditing.findings import Finding, Kind, Severity
from streamscope.devices.graph_node import Communication, GraphNode, NodeKind, crowds
from streamscope.order.ancestors import Bits, CircleError, has, known_before
from streamscope.program.captured_graph import Edges
from streamscope.program.operation import Operation, Program
from streamscope.words import counted, listed

_Key = tuple[str, int]
"""A collective of the job: communicator, and its place among those of the communicator."""
_ADVICE = "launch the collectives of all groups in one order, the same on each rank: on one stream, or with events between streams."
_ALL_RANKS = "give the capture of every rank, in the order of ranks."
_BY_PLACE = "The place in the list is taken as the rank, since captures do not hold theirs."
_SAME_STEP = "let each rank run the same step, with its collectives in the same order. These captures may be of different steps."
_OWN_SIZES = ("send", "recv", "all_to_all", "collective")
"""Kinds whose tensors may have another size on each rank, or a size that is not known."""
_NAMED = 4
"""Collectives of a circle that are named, and groups of ranks that were compared."""


class CapturedRank(Protocol):
    """Captured code of one rank, live or from a file."""

    @property
    def nodes(self) -> Sequence[GraphNode]:
        """Its kernels, copies, sets and the rest."""

    @property
    def regions(self) -> Sequence[Sequence[tuple[int, int]]]:
        """Where the memory lies that each of them touches."""

    def trace(self) -> Program:
        """Return its program."""

    def measured_on(self) -> str:
        """Return the name of its GPU."""


@dataclass(frozen=True)
class RankGraph:
    """The captured graph of one rank."""

    nodes: Sequence[GraphNode]
    order: Edges
    """For each node those that it comes after."""
    operations: Sequence[Operation]
    regions: Sequence[Sequence[tuple[int, int]]]

    @classmethod
    def of(cls, captured: CapturedRank) -> RankGraph:
        """Return the graph in the order of its capture."""
        program = captured.trace()
        return cls(captured.nodes, program.captured, program.operations, captured.regions)

    def collectives(self) -> list[int]:
        """Return the kernels that are collectives, in the order of the capture."""
        return [at for at, node in enumerate(self.nodes) if node.communication is not None and node.kind is NodeKind.KERNEL]


def collective_findings(ranks: Sequence[RankGraph], multiprocessors: int) -> list[Finding]:
    """Return what could make collectives wait for ever.

    ``ranks``: the graph of each rank, by rank.
    ``multiprocessors``: of each GPU.
    """
    known = [known_before(rank.order) for rank in ranks]
    sequences = [_sequences(rank) for rank in ranks]
    found = [*_unmatched(ranks, sequences)]
    absent = [*_absent(ranks, sequences), *_strangers(ranks, sequences), *_given_twice(ranks, sequences)]
    if not found:
        found += [*_unordered(ranks, known, sequences)]
    if not found:
        found += [*_circles(ranks, known, sequences)]
    return [*found, *_crowded(ranks, known, multiprocessors), *absent]


def agreement(ranks: Sequence[RankGraph]) -> str:
    """Say in one sentence which collectives were compared, of ranks without findings."""
    numbers = {name: len(nodes) for rank in ranks for name, nodes in _sequences(rank).items()}
    groups = [f"{counted(number, 'collective')} of group {name!r}" for name, number in numbers.items()]
    if not groups:
        return f"{counted(len(ranks), 'rank')}, without collectives."
    more = [counted(len(groups) - _NAMED, "other group")] if len(groups) > _NAMED else []
    same = "the same in the same order on each rank of a group. None waits for ever."
    return f"{counted(len(ranks), 'rank')}: {listed([*groups[:_NAMED], *more])}, {same}"


def _sequences(rank: RankGraph) -> dict[str, list[int]]:
    """Return the collectives of each communicator, in the order of the capture."""
    found: dict[str, list[int]] = defaultdict(list)
    for at in rank.collectives():
        communication = rank.nodes[at].communication
        assert communication is not None
        found[communication.communicator].append(at)
    return dict(found)


def _said(rank: RankGraph, at: int) -> str:
    node = rank.nodes[at]
    return f"{node.communication or node.name}" + (f" ({node.where})" if node.where else "")


def _error(message: str, rank: RankGraph, nodes: Sequence[int], advice: str = _ADVICE) -> Finding:
    return Finding(Kind.DEADLOCK, Severity.ERROR, tuple(rank.operations[at] for at in nodes), (), message, advice)


def _communication(rank: RankGraph, at: int) -> Communication:
    found = rank.nodes[at].communication
    assert found is not None
    return found


def _unmatched(ranks: Sequence[RankGraph], sequences: Sequence[Mapping[str, Sequence[int]]]) -> Iterator[Finding]:
    """Yield collectives that some rank of their communicator does not have, or has as another one."""
    members: dict[str, set[int]] = defaultdict(set)
    for rank, each in enumerate(sequences):
        for name, nodes in each.items():
            members[name] |= {one for one in _communication(ranks[rank], nodes[0]).ranks if one < len(ranks)} | {rank}
    for name, those in members.items():
        first, *others = sorted(those, key=lambda rank: -len(sequences[rank].get(name, ())))
        mine = sequences[first][name]
        for other in others:
            theirs = sequences[other].get(name, ())
            for place, at in enumerate(mine):
                here = _said(ranks[first], at)
                if place >= len(theirs):
                    message = f"Rank {first} has {here} as number {place + 1} of its group, and rank {other} has none there"
                    yield _error(f"{message}: rank {first} waits for ever.", ranks[first], [at], "let each rank of a group call it.")
                    return
                one, two = _communication(ranks[first], at), _communication(ranks[other], theirs[place])
                if one.kind != two.kind or (one.nbytes != two.nbytes and one.kind not in _OWN_SIZES):
                    there = _said(ranks[other], theirs[place])
                    message = f"Number {place + 1} of group {name!r} is {here} on rank {first}, and {there} on rank {other}."
                    yield _error(message, ranks[first], [at], _SAME_STEP)
                    return


def _absent(ranks: Sequence[RankGraph], sequences: Sequence[Mapping[str, Sequence[int]]]) -> Iterator[Finding]:
    """Yield a warning for the first communicator that has ranks beyond those given."""
    for rank, each in enumerate(sequences):
        for name, nodes in each.items():
            if absent := [one for one in _communication(ranks[rank], nodes[0]).ranks if one >= len(ranks)]:
                who = f"{counted(len(absent), 'rank')} of group {name!r} from rank {absent[0]} on"
                message = f"The captures are of {counted(len(ranks), 'rank')}, by rank. Nothing is known of {who}. {_BY_PLACE}"
                operation = ranks[rank].operations[nodes[0]]
                yield Finding(Kind.DEADLOCK, Severity.WARNING, (operation,), (), message, _ALL_RANKS)
                return


def _strangers(ranks: Sequence[RankGraph], sequences: Sequence[Mapping[str, Sequence[int]]]) -> Iterator[Finding]:
    """Yield a warning for the first capture with a group that its rank is not in: the list has another order, or one too many."""
    for rank, each in enumerate(sequences):
        for name, nodes in each.items():
            members = _communication(ranks[rank], nodes[0]).ranks
            if members and rank not in members:
                who = f"Capture {rank + 1} of the list is taken as rank {rank}'s"
                message = f"{who}, which is not in its group {name!r} of {counted(len(members), 'rank')}. {_BY_PLACE}"
                operation = ranks[rank].operations[nodes[0]]
                yield Finding(Kind.DEADLOCK, Severity.WARNING, (operation,), (), message, _ALL_RANKS)
                return


def _given_twice(ranks: Sequence[RankGraph], sequences: Sequence[Mapping[str, Sequence[int]]]) -> Iterator[Finding]:
    """Yield a warning for the first two captures whose nodes touch the same memory: another process has other addresses."""
    for one, other in itertools.combinations(range(len(ranks)), 2):
        if sequences[one] and any(ranks[one].regions) and ranks[one].regions == ranks[other].regions:
            message = f"The captures of ranks {one} and {other} touch memory at the same addresses. Was one given twice?"
            operation = ranks[one].operations[ranks[one].collectives()[0]]
            yield Finding(Kind.DEADLOCK, Severity.WARNING, (operation,), (), message, _ALL_RANKS)
            return


def _unordered(ranks: Sequence[RankGraph], known: Sequence[Bits], sequences: Sequence[Mapping[str, Sequence[int]]]) -> Iterator[Finding]:
    """Yield collectives of one communicator that a rank may run in either order."""
    for rank, each in enumerate(sequences):
        for nodes in each.values():
            for earlier, later in itertools.pairwise(nodes):
                if not has(known[rank], later, earlier):
                    message = f"Rank {rank} has no order between {_said(ranks[rank], earlier)} and {_said(ranks[rank], later)} of one group"
                    yield _error(f"{message}, so it may begin with one, and another rank with the other.", ranks[rank], [earlier, later])
                    return


def _circles(ranks: Sequence[RankGraph], known: Sequence[Bits], sequences: Sequence[Mapping[str, Sequence[int]]]) -> Iterator[Finding]:
    """Yield collectives of several communicators that wait for each other in a circle over ranks."""
    number: dict[_Key, int] = {}
    where: list[tuple[int, int]] = []
    edges: list[set[int]] = []
    for rank, each in enumerate(sequences):
        keys = {at: (name, place) for name, nodes in each.items() for place, at in enumerate(nodes)}
        for at, key in keys.items():
            if number.setdefault(key, len(where)) == len(where):
                where.append((rank, at))
                edges.append(set())
        for later, key in keys.items():
            edges[number[key]].update(number[other] for earlier, other in keys.items() if has(known[rank], later, earlier))
    try:
        known_before([tuple(direct) for direct in edges])
    except CircleError as error:
        circle = [where[one] for one in error.nodes]
        names = listed([f"{_said(ranks[rank], at)} on rank {rank}" for rank, at in circle[:_NAMED]])
        message = f"Ranks run collectives of several groups in different orders: {names} wait for each other."
        yield _error(message, ranks[circle[0][0]], [circle[0][1]])


def _crowded(ranks: Sequence[RankGraph], known: Sequence[Bits], multiprocessors: int) -> Iterator[Finding]:
    """Yield collectives of several communicators that may run side by side and hold more multiprocessors than there are."""
    for rank, each in enumerate(ranks):
        for together in crowds(each.nodes, partial(has, known[rank]), multiprocessors):
            who = f"{counted(len(together), 'collective')}, {_said(each, together[0])} among them, side by side"
            held = f"They hold {sum(prod(each.nodes[one].grid) for one in together)} multiprocessors, and there are {multiprocessors}"
            message = f"Rank {rank} may run {who}. {held}: one may find no room, and another rank wait for it."
            yield _error(message, each, together, "let one of them wait for another, or give each group fewer channels.")
            return
