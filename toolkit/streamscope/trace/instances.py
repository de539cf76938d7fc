"""Collectives of activities: which parts on several GPUs are one operation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from streamscope.arrays import IntArray
from streamscope.trace.collectives import Collectives
from streamscope.trace.communication import collective_kind, collective_op, communicates
from streamscope.trace.joins import distinct
from streamscope.trace.spans import SpanKind, SpanTable
from streamscope.words import counted

_PAIRS = frozenset({"send", "recv", "send_recv"})
"""Kinds between two ranks, which libraries count apart from the others."""
_TOGETHER = frozenset({"all_reduce", "all_gather", "reduce_scatter", "barrier", ""})
"""Kinds that end on no GPU before the last one began; what NCCL does not name is most likely one of them."""
_CLOCKS_NS = 5_000
"""How far the times of two GPUs may be apart."""


class CollectiveFacts(NamedTuple):
    """What a profiler says of a collective; the fields are those of `Collectives`."""

    kind: str
    op: str = ""
    nbytes: int = 0
    ranks: int = 0
    communicator: str = ""
    sequence: int = -1
    instance: int = -1
    peer: int = -1


class PeerFacts(NamedTuple):
    """From which GPU to which a profiler says that a copy went."""

    from_gpu: int
    to_gpu: int


def collectives_of(spans: SpanTable, known: dict[int, CollectiveFacts], said: list[str]) -> Collectives:
    """Return the collectives of a table: the rows that a profiler ``known``, and kernels that communicate by their names."""
    kernels = np.flatnonzero(spans.kind == SpanKind.KERNEL)
    code = np.where(spans.symbol[kernels] >= 0, spans.symbol[kernels], spans.name[kernels])
    used, which = distinct(code)
    said_by_name = [_facts_of(spans.names[one]) for one in used.tolist()]
    facts = {row: told for row, one in zip(kernels.tolist(), which.tolist(), strict=True) if (told := said_by_name[one])}
    facts |= {row: one._replace(op=one.op or facts[row].op if row in facts else one.op) for row, one in known.items()}
    rows = sorted(facts)
    if len(rows) > Collectives.MOST:
        said.append(f"not told apart: {counted(len(rows), 'collective')}, since a trace keeps {Collectives.MOST:,}")
        return Collectives()
    if not rows:
        return Collectives()
    columns: dict[str, Any] = dict(zip(CollectiveFacts._fields, zip(*(facts[row] for row in rows), strict=True), strict=True))
    found = Collectives.from_columns(rows, **columns)
    if (found.instance >= 0).any() or len({gpu for gpu in spans.gpus if gpu >= 0}) < 2:
        return found
    return replace(found, instance=_instances(spans, np.array(rows), [facts[row] for row in rows]))


def _facts_of(name: str) -> CollectiveFacts | None:
    """Return what the name of a kernel says, where it communicates."""
    return CollectiveFacts(collective_kind(name), collective_op(name)) if communicates(name) else None


def _instances(spans: SpanTable, rows: IntArray, facts: Sequence[CollectiveFacts]) -> IntArray:
    """Return the number of each part's operation; -1 where it has no parts on other GPUs, or which ones is not known.

    Parts are matched by communicator and sequence number, else by communicator and order if that fits on all its GPUs.
    """
    gpu = spans.gpu[rows].tolist()
    operations: dict[object, list[int]] = {}
    orders: dict[tuple[str, bool], dict[int, list[int]]] = {}
    for at, one in enumerate(facts):
        pair = one.kind in _PAIRS
        if one.sequence >= 0 and one.communicator:
            operations.setdefault((one.communicator, pair, one.sequence), []).append(at)
        else:
            orders.setdefault((one.communicator, pair), {}).setdefault(gpu[at], []).append(at)
    groups = [parts for parts in operations.values() if _is_one(parts, gpu, facts)]
    for on_gpus in orders.values():
        turns = list(zip(*on_gpus.values(), strict=False))
        even = len({len(parts) for parts in on_gpus.values()}) == 1
        if even and all(_is_one(parts, gpu, facts) and _meet(spans, rows[list(parts)], facts[parts[0]].kind) for parts in turns):
            groups += map(list, turns)
    found = np.full(len(rows), -1)
    for number, parts in enumerate(sorted(groups)):
        found[parts] = number
    return found


def _is_one(parts: Sequence[int], gpu: Sequence[int], facts: Sequence[CollectiveFacts]) -> bool:
    """Tell whether parts can be of one operation: on several GPUs, one on each, of one kind; or a send with its receive."""
    if len(parts) < 2 or len({gpu[at] for at in parts}) < len(parts):
        return False
    kinds = {facts[at].kind for at in parts}
    if kinds & _PAIRS:
        return len(parts) == 2 and kinds in ({"send", "recv"}, {"send_recv"})
    return len(kinds) == 1


def _meet(spans: SpanTable, rows: IntArray, kind: str) -> bool:
    """Tell whether no part ends before the last one begins, where the kind says so."""
    return kind not in _TOGETHER or int(spans.end_ns[rows].min()) + _CLOCKS_NS >= int(spans.start_ns[rows].max())
