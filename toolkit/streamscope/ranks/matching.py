"""Which parts of collectives, in the traces of several ranks, are one operation.

A communicator counts its operations, so its name and a number say which parts belong together. Where a file has no numbers, kind, size and
order decide: files may begin at different moments, so one may lack the first operations of another. What fits in two ways is left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamscope.arrays import Array, BoolArray, IntArray
from streamscope.ranks.rank import Rank
from streamscope.trace.spans import SpanKind
from streamscope.words import counted

TOGETHER = frozenset({"all_reduce", "all_gather", "reduce_scatter", "barrier"})
"""Kinds that end on no rank before the last one has begun: each rank needs data of all others."""
BOTH_WAYS = frozenset({"send_recv"})
"""Messages that do not say which way they went: in CUDA graphs, and of several calls in one kernel."""
MESSAGES = frozenset({"send", "recv"}) | BOTH_WAYS
"""Kinds between two ranks, which libraries count apart from the others."""
_UNEVEN = frozenset({"all_to_all", "gather", "scatter", *MESSAGES, ""})
"""Kinds whose sizes may differ between ranks."""
_MOST_SHIFT = 2_000
"""By how many operations the begins of two files may differ."""
_FASTEST_DRIFT = 2e-4
"""Two clocks drift apart by no more: quartz is off by 50 ppm, and seldom by 100."""
_CLEARLY = 8.0
"""A shift is taken if the ends of its operations scatter less than those of any other, by a share of this over the root of their number:
five times what the scatter of so many is off by chance."""
_CHANCE_NS = 12_000
"""By so much, over the number of operations: the ends of few lie near each other by chance."""
_LAG = 0.04
"""And by so much of the transfer: the last rank to begin ends later, so ends of the right shift scatter where that is either of the two."""
_SAME_END_NS = 100_000
"""Parts of unknown communicators are one operation only if their ends scatter by less."""
_MOST_NAMED = 6


@dataclass(frozen=True)
class Parts:
    """Parts of collectives of all ranks as equally long columns, rank by rank in the order of their starts.

    Attributes
    ----------
    rank : int64 array
        Index into the ranks of the job.
    span : int64 array
        Row in the trace of that rank.
    start_ns, end_ns : int64 arrays
        On the rank's own clock, since ``Job.base_ns``.
    kind, communicator : int64 arrays
        Indices into ``texts``.
    sequence, nbytes, size : int64 arrays
        Number in the communicator, -1 where unknown; bytes, and how many ranks take part, 0 where unknown.
    kernel : bool array
        Whether it is a kernel: copy engines do not wait for other ranks.
    texts : tuple of str
    """

    rank: IntArray
    span: IntArray
    start_ns: IntArray
    end_ns: IntArray
    kind: IntArray
    communicator: IntArray
    sequence: IntArray
    nbytes: IntArray
    size: IntArray
    kernel: BoolArray
    texts: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.rank)

    def is_kind(self, kinds: frozenset[str]) -> BoolArray:
        """Tell of each part whether its kind is one of these."""
        return np.isin(self.kind, [code for code, text in enumerate(self.texts) if text in kinds])


@dataclass(frozen=True)
class Matched:
    """Result of `matched`.

    Attributes
    ----------
    parts : Parts
    operation : int64 array
        Of each part, the number of its operation; -1 where it was left out.
    by : tuple of str
        How each operation was matched: ``"sequence"`` or ``"order"``.
    whole : bool array
        Of each operation, whether it has a part on each rank that takes part in any of its communicator.
    left_out : tuple of str
        What was not matched, in words.
    unmatched : int
        How many operations lack parts, or are left out: each once, as the rank with the most of them counts them.
    """

    parts: Parts
    operation: IntArray
    by: tuple[str, ...]
    whole: BoolArray
    left_out: tuple[str, ...] = ()
    unmatched: int = 0

    def __len__(self) -> int:
        return len(self.by)

    def describe(self, operation: int) -> str:
        """Name an operation for an error: ``"all_reduce 17 of communicator '0 [0, 1]'"``."""
        at = int(np.flatnonzero(self.operation == operation)[0])
        parts = self.parts
        number = int(parts.sequence[at])
        which = f"number {number:,}" if number >= 0 else f"from {parts.start_ns[at] / 1e6:,.3f} ms on"
        communicator = parts.texts[parts.communicator[at]]
        of = f" of communicator {communicator!r:.60}" if communicator else ""
        return f"{parts.texts[parts.kind[at]] or 'the collective'} {which}{of}"


def parts_of(ranks: Sequence[Rank], base_ns: int) -> Parts:
    """Return the parts of collectives of all ranks."""
    numbered = len({(rank.trace.info.engine, rank.trace.info.program, rank.trace.info.recorder) for rank in ranks}) == 1
    codes: dict[str, int] = {"": 0}
    columns: list[dict[str, Array]] = []
    members = _members(ranks)
    for at, rank in enumerate(ranks):
        found, spans = rank.trace.collectives, rank.trace.spans
        rows = found.span
        shift_ns = rank.zero_ns - base_ns
        # Traces of one recording, or of one program of ours, number operations alike.
        sequence = np.where((found.sequence < 0) & numbered, found.instance, found.sequence)
        # A process group counts messages on each rank alone: of more than two ranks, both ends have different numbers.
        sequence = np.where((found.peer >= 0) & (found.ranks > 2), -1, sequence)
        own: dict[str, Array] = {
            "rank": np.full(len(rows), at),
            "span": rows.astype(np.int64),
            "start_ns": spans.start_ns[rows] + shift_ns,
            "end_ns": spans.end_ns[rows] + shift_ns,
            "kind": np.array([codes.setdefault(text, len(codes)) for text in found.words("kind")], np.int64),
            "communicator": np.array([codes.setdefault(text, len(codes)) for text in _channels(rank, members)], np.int64),
            "sequence": sequence.astype(np.int64),
            "nbytes": found.nbytes,
            "size": found.ranks.astype(np.int64),
            "kernel": spans.kind[rows] == SpanKind.KERNEL,
        }
        columns.append(own)
    whole = {name: np.concatenate([each[name] for each in columns]) for name in columns[0]}
    return Parts(**whole, texts=tuple(codes))


def _members(ranks: Sequence[Rank]) -> dict[str, list[int]]:
    """Return the ranks of each communicator, in their order; none where ranks are missing from the job, which may be members, too."""
    numbers = [rank.number for rank in ranks]
    if numbers != list(range(ranks[0].trace.info.world_size or len(ranks))):
        return {}
    found: dict[str, list[int]] = {}
    for rank in ranks:
        for name in {*rank.trace.collectives.words("communicator")}:
            found.setdefault(name, []).append(rank.number)
    return found


def _channels(rank: Rank, members: Mapping[str, list[int]]) -> list[str]:
    """Return the communicator of each collective; of a message whose ends are known, also these: in one direction, order is kept.

    PyTorch's profiler has the peer's number in the job. NCCL, as `ss.record` notes it, has that in the communicator.
    """
    found = rank.trace.collectives
    names = found.words("communicator")
    for at in np.flatnonzero(found.peer >= 0).tolist():
        peer = int(found.peer[at])
        if rank.trace.info.engine != "kineto":
            peers = members.get(names[at], [])
            if peer >= len(peers):
                continue
            peer = peers[peer]
        ends = (rank.number, peer)
        source, target = ends if found.texts[found.kind[at]] == "send" else ends[::-1]
        names[at] = f"{names[at]}, from {source} to {target}".removeprefix(", ")
    return names


def matched(ranks: Sequence[Rank], base_ns: int) -> Matched:
    """Match the parts of collectives of several ranks: by communicator and number, else by kind, size and order.

    Parameters
    ----------
    ranks : sequence of Rank
    base_ns : int
        Zero of the columns of times, on the clocks of the ranks.
    """
    parts = parts_of(ranks, base_ns)
    operation = np.full(len(parts), -1)
    together = [0] * _by_sequence(parts, operation)
    numbered = len(together)
    pair = parts.is_kind(MESSAGES)
    rest = np.flatnonzero(operation < 0)
    rest = rest[~_numbered(parts)[rest] | pair[rest]]  # A number that no other rank has is not matched by order.
    for pool in _groups(parts.communicator[rest], pair[rest]):
        _by_order(parts, rest[pool], operation, together)
    by = ["sequence"] * numbered + ["order"] * (len(together) - numbered)
    return _finished(parts, operation, by, np.array(together, np.int64), ranks)


def _numbered(parts: Parts) -> BoolArray:
    return parts.sequence >= 0


def _groups(*columns: Array) -> list[IntArray]:
    """Return the rows that are alike in some columns, group by group."""
    if not len(columns[0]):
        return []
    order = np.lexsort(columns)
    changes = np.zeros(len(order) - 1, bool)
    for column in columns:
        changes |= np.diff(column[order].astype(np.int64)) != 0
    return np.split(order, np.flatnonzero(changes) + 1)


def _by_sequence(parts: Parts, operation: IntArray) -> int:
    """Give a number to each operation whose parts have one number in one communicator; return how many there are.

    A number that a rank has several times is of one operation in several kernels: then all ranks have it as often.
    """
    rows = np.flatnonzero(_numbered(parts))
    if not len(rows):
        return 0
    pair = parts.is_kind(MESSAGES)
    keys = np.stack([parts.communicator[rows], pair[rows], parts.sequence[rows]])
    order = rows[np.lexsort((parts.start_ns[rows], parts.rank[rows], keys[2], keys[1], keys[0]))]
    same = [column[order] for column in (parts.communicator, pair, parts.sequence)]
    begins = np.concatenate([[True], np.any([np.diff(column.astype(np.int64)) != 0 for column in same], axis=0)])
    group = np.cumsum(begins) - 1
    of_rank = begins | np.concatenate([[True], np.diff(parts.rank[order]) != 0])
    run = np.cumsum(of_rank) - 1
    place = np.arange(len(order)) - np.flatnonzero(of_rank)[run]  # Which of the parts of one number on its rank.
    most = np.maximum.reduceat(place, np.flatnonzero(begins)) + 1
    there = np.bincount(group[of_rank])
    even = np.bincount(group) == most * there
    fits = even & (there > 1) & _is_one(parts, order, group, pair)
    key = np.where(fits[group], group * (int(most.max()) + 1) + place, -1)
    used, number = np.unique(key, return_inverse=True)
    first = int(used[0] == -1)
    operation[order] = np.where(key >= 0, number - first, -1)
    return len(used) - first


def _is_one(parts: Parts, order: IntArray, group: IntArray, pair: BoolArray) -> BoolArray:
    """Tell of each group of parts whether they can be of one operation: of one kind and size, on as many ranks as it has."""
    starts = np.concatenate([[0], np.flatnonzero(np.diff(group)) + 1])

    def alike(column: Array) -> BoolArray:
        values = column[order]
        found: BoolArray = np.minimum.reduceat(values, starts) == np.maximum.reduceat(values, starts)
        return found

    uneven = parts.is_kind(_UNEVEN)[order][starts]
    size = np.maximum.reduceat(parts.size[order], starts)
    there = np.add.reduceat(np.concatenate([[True], (np.diff(group) != 0) | (np.diff(parts.rank[order]) != 0)]).astype(np.int64), starts)
    is_pair = pair[order][starts]
    two = (there == 2) & (np.diff(np.append(starts, len(order))) == 2)
    kinds = np.where(is_pair, two & (alike(parts.kind) == parts.is_kind(BOTH_WAYS)[order][starts]), alike(parts.kind))
    found: BoolArray = kinds & (uneven | alike(parts.nbytes)) & ((size == 0) | (there <= size) | is_pair)
    return found


@dataclass(frozen=True)
class _Fit:
    """One rank's parts beside another's: how far they are shifted, and how the ends of those that may be one operation scatter."""

    shift: int
    scatter_ns: float
    transfer_ns: float
    """Of the shorter parts, their median."""
    count: int
    """Of ends that are compared."""

    @property
    def clearly_ns(self) -> float:
        """The scatter that another shift must have, so that this one is clearly the right one."""
        count = max(1, self.count)
        return self.scatter_ns * (1 + _CLEARLY / math.sqrt(count)) + _CHANCE_NS / count + _LAG * self.transfer_ns


def _by_order(parts: Parts, pool: IntArray, operation: IntArray, together: list[int]) -> None:
    """Match the parts of one communicator by kind, size and order, against the rank that has most of them.

    ``together`` gets the number of ranks for each operation that is found.
    """
    own = {int(parts.rank[pool[rows[0]]]): pool[rows] for rows in _groups(parts.rank[pool])}
    own = {rank: rows[np.argsort(parts.start_ns[rows], kind="stable")] for rank, rows in own.items()}
    is_pair = bool(parts.is_kind(MESSAGES)[pool[0]])
    named = bool(parts.communicator[pool[0]])
    if is_pair and len(own) != 2:
        return  # Which two ranks of several meet is not known.
    while len(own) > 1:
        reference = max(own, key=lambda rank: (len(own[rank]), -rank))
        first = own.pop(reference)
        fits = {rank: fit for rank, rows in own.items() if (fit := _fit(parts, first, rows, named=named))}
        for rank, fit in fits.items():
            rows = own.pop(rank)
            at = np.arange(len(rows)) + fit.shift
            inside = (at >= 0) & (at < len(first))
            operation[rows[inside]] = len(together) + at[inside]
        if fits:
            operation[first] = len(together) + np.arange(len(first))
            together += [1 + len(fits)] * len(first)


def _fit(parts: Parts, first: IntArray, rows: IntArray, *, named: bool) -> _Fit | None:
    """Return how parts of one rank stand beside those of another; None where that is not known for sure."""
    tokens, others = _tokens(parts, first, rows)
    together = parts.kernel[first] & parts.is_kind(TOGETHER)[first]
    low, high = max(-len(rows) + 1, -_MOST_SHIFT), min(len(first), _MOST_SHIFT + 1)
    found = []
    for shift in range(low, high):
        begin, end = max(0, shift), min(len(first), len(rows) + shift)
        if 2 * (end - begin) < min(len(first), len(rows)) or not np.array_equal(tokens[begin:end], others[begin - shift : end - shift]):
            continue
        chosen = np.flatnonzero(together[begin:end]) + begin
        fit = _ends(parts, first[chosen], rows[chosen - shift], shift)
        if fit is not None:
            found.append(fit)
    found.sort(key=lambda fit: fit.scatter_ns)
    if not named:
        found = [fit for fit in found if fit.scatter_ns <= _SAME_END_NS]
    clearly_ns = found[0].clearly_ns if found else 0.0
    if len(found) < 2 or found[1].scatter_ns > clearly_ns:
        return found[0] if found else None
    even = [fit for fit in found if fit.shift == 0 and fit.scatter_ns <= clearly_ns]
    return even[0] if even and len(first) == len(rows) else None


def _tokens(parts: Parts, *several: IntArray) -> list[IntArray]:
    """Return numbers for kind and size; a send and its receive have one."""
    pair = parts.is_kind(MESSAGES)
    kind = np.where(pair, -1, parts.kind)
    nbytes = np.where(parts.is_kind(_UNEVEN) & ~pair, 0, parts.nbytes)
    rows = np.concatenate(several)
    _, token = np.unique(np.stack([kind[rows], nbytes[rows]]), axis=1, return_inverse=True)
    return np.split(token.reshape(-1), np.cumsum([len(each) for each in several])[:-1])


def _ends(parts: Parts, first: IntArray, rows: IntArray, shift: int) -> _Fit | None:
    """Return how the ends of operations on two ranks scatter; None where no two clocks could show these times."""
    if not len(first):
        return _Fit(shift, 0.0, 0.0, 0)
    span_ns = int(parts.end_ns[first].max() - parts.start_ns[first].min())
    low_ns = (parts.start_ns[first] - parts.end_ns[rows]).max()
    high_ns = (parts.end_ns[first] - parts.start_ns[rows]).min()
    if low_ns > high_ns + _FASTEST_DRIFT * span_ns:
        return None
    apart_ns = (parts.end_ns[first] - parts.end_ns[rows]).astype(np.float64)
    apart_ns -= slope_of(parts.end_ns[first].astype(np.float64), apart_ns) * (parts.end_ns[first] - parts.end_ns[first].mean())
    transfer_ns = float(np.median(np.minimum(*(parts.end_ns[each] - parts.start_ns[each] for each in (first, rows)))))
    return _Fit(shift, float(np.median(np.abs(apart_ns - np.median(apart_ns)))), transfer_ns, len(apart_ns))


def slope_of(times_ns: Any, values_ns: Any) -> float:
    """Return by how much values grow with time: the median of slopes between halves, which outliers do not move; within 200 ppm."""
    half = len(times_ns) // 2
    if half < 2:
        return 0.0
    width = times_ns[-half:] - times_ns[:half]
    steep = (values_ns[-half:] - values_ns[:half])[width > 0] / width[width > 0]
    return float(np.clip(np.median(steep), -_FASTEST_DRIFT, _FASTEST_DRIFT)) if len(steep) else 0.0


def _finished(parts: Parts, operation: IntArray, by: Sequence[str], together: IntArray, ranks: Sequence[Rank]) -> Matched:
    """Return the operations that have two parts at least, numbered anew, and name what is left out."""
    there = np.bincount(operation[operation >= 0], minlength=len(by))
    kept = there > 1
    operation = np.where(operation >= 0, np.where(kept, np.cumsum(kept) - 1, -1)[operation], -1) if len(by) else operation
    there, together = there[kept], together[kept]
    rows = np.flatnonzero(operation >= 0)
    # A rank none of whose parts is matched is like one whose file is missing: the others are compared without it.
    pairs = np.unique(np.stack([parts.communicator[rows], parts.rank[rows]]), axis=1)
    members = np.bincount(pairs[0], minlength=len(parts.texts))[parts.communicator[rows]]
    size = np.where(parts.size[rows] > 0, np.minimum(parts.size[rows], members), members)
    together[operation[rows]] = np.where(
        parts.is_kind(MESSAGES)[rows], 2, np.maximum(together[operation[rows]], size * (parts.communicator[rows] > 0))
    )
    whole = there >= together
    said = _left_out(parts, operation, ranks)
    told = tuple(how for how, keep in zip(by, kept.tolist(), strict=True) if keep)
    return Matched(parts, operation, told, whole, tuple(said), _unmatched(parts, operation) + int((~whole).sum()))


def _unmatched(parts: Parts, operation: IntArray) -> int:
    """Return how many operations have no match: of each kind in each communicator, as many as the rank with the most of them has."""
    rows = np.flatnonzero(operation < 0)
    most: dict[tuple[int, int], int] = {}
    for group in _groups(parts.communicator[rows], parts.kind[rows], parts.rank[rows]):
        at = rows[group[0]]
        key = int(parts.communicator[at]), int(parts.kind[at])
        most[key] = max(most.get(key, 0), len(group))
    return sum(most.values())


def _left_out(parts: Parts, operation: IntArray, ranks: Sequence[Rank]) -> list[str]:
    """Name what was not matched: by kind and communicator, with its ranks."""
    rows = np.flatnonzero(operation < 0)
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for group in _groups(parts.communicator[rows], parts.kind[rows], parts.rank[rows]):
        at = rows[group[0]]
        found.setdefault((int(parts.communicator[at]), int(parts.kind[at])), []).append((ranks[int(parts.rank[at])].number, len(group)))
    said = []
    for (communicator, kind), counts in sorted(found.items())[:_MOST_NAMED]:
        what = parts.texts[kind] or "collective"
        of = f" of communicator {parts.texts[communicator]!r:.60}" if communicator else " of an unknown communicator"
        on = ", ".join(f"{count:,} of rank {rank}" for rank, count in counts[:_MOST_NAMED])
        more = f" and {counted(len(counts) - _MOST_NAMED, 'more rank')}" if len(counts) > _MOST_NAMED else ""
        why = ", since the file does not say who exchanges messages, as inside CUDA graphs" if what in BOTH_WAYS else ""
        said.append(f"not matched: {what}{of}: {on}{more}{why}")
    if len(found) > _MOST_NAMED:
        said.append(f"not matched: {counted(len(found) - _MOST_NAMED, 'more kind')} of collectives")
    return said
