"""Which kernel of one trace is which of another: by operation where both ran one program, else by name and order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from streamscope.analysis.gpus import several_gpus
from streamscope.arrays import IntArray
from streamscope.trace.spans import DEVICE_KINDS, SpanKind, SpanTable
from streamscope.trace.symbols import readable_name
from streamscope.trace.trace import Trace

_OF_GPU = re.compile(r"^GPU \d+ ")
SAME_PROGRAM_FROM = 0.5
"""From this share of equal names on, two traces are of the same operations."""


@dataclass(frozen=True)
class Joined:
    """The kernels, copies and sets of two traces, those of the first in front of those of the second, each in the order of starts."""

    by: Literal["operation", "name"]
    cut: int
    """How many are of the first trace."""
    row: IntArray
    """int64: of each, in its trace's table."""
    text: IntArray
    """int64: name of each, as an index into ``texts``; where they are joined by name and both have symbols, its symbol."""
    called: IntArray
    """int64: equal where both are called the same: by ``text`` or, of symbols that only one trace has, by their readable names."""
    symbol: IntArray
    """int64: the kernel's own name, as an index into ``texts``; -1 where it is unknown."""
    group: IntArray
    """int64: key of the pair: the same number in both traces, from 0."""
    pairs: IntArray
    """Int64 array, shape (n, 2): which of the first stands for which of the second, as indices of these columns."""
    texts: tuple[str, ...]


@dataclass(frozen=True)
class _Columns:
    """Columns of two traces, one after the other."""

    row: IntArray
    second: IntArray
    kind: IntArray
    lane: IntArray
    operation: IntArray
    part: IntArray
    name: IntArray
    symbol: IntArray

    @property
    def text(self) -> IntArray:
        """The symbol where both traces have some, else the name."""
        with_symbols = all((self.symbol[self.second == side] >= 0).any() for side in (0, 1))
        return np.where(self.symbol >= 0, self.symbol, self.name) if with_symbols else self.name

    def called(self, texts: Sequence[str]) -> IntArray:
        """Return `text` as numbers; symbols that only one trace has share a number where they read alike.

        A library's parameters change from version to version: ``ncclDevKernel_Generic`` takes others in NCCL 2.19 and 2.23.
        """
        text, symbols = self.text, {*self.symbol.tolist()}
        kernels = self.kind == SpanKind.KERNEL
        first, second = (text[kernels & (self.second == side)] for side in (0, 1))
        number, readable = np.arange(len(texts)), dict[str, int]()
        for alone in np.setxor1d(first, second).tolist():
            name = readable_name(texts[alone]) if alone in symbols else texts[alone]
            number[alone] = readable.setdefault(name, len(texts) + len(readable))
        found: IntArray = number[text]
        return found

    @property
    def cut(self) -> int:
        return int(len(self.second) - self.second.sum())


def join(first: Trace, second: Trace) -> Joined:
    """Join two traces by operation, part and n-th kernel if both ran one program, else by name and order.

    Names are symbols where both traces have some; a symbol that only one trace has stands for its readable name.
    By name, the n-th occurrence in one trace stands for the n-th in the other, on streams of the same name where each has as many of it.
    Where one trace has more of a name, kernels that occur equally often in both divide the traces into stretches, and the n-th of a
    stretch stands for the n-th of that stretch. So one more kernel does not shift all that follow. What then has no counterpart, but stands
    where something of another name has none either, was renamed, if that holds for all of that name.
    """
    texts = tuple(dict.fromkeys((*first.spans.names, *second.spans.names)))
    columns = _columns(first, second, texts)
    found = _by_operation(columns) if first.info.program == second.info.program else None
    if found is None:
        by: Literal["operation", "name"] = "name"
        text, called = columns.text, columns.called(texts)
        group, pairs = _by_name(called, columns)
    else:
        by, text, called = "operation", columns.name, columns.name
        group, pairs = found
    return Joined(by, columns.cut, columns.row, text, called, columns.symbol, np.unique(group, return_inverse=True)[1], pairs, texts)


def _columns(first: Trace, second: Trace, texts: tuple[str, ...]) -> _Columns:
    traces = first, second
    rows = [np.flatnonzero(trace.spans.is_kind(DEVICE_KINDS)) for trace in traces]
    named = [_lane_names(trace.spans) for trace in traces]
    lanes = tuple(dict.fromkeys((*named[0], *named[1])))
    columns = []
    for trace, row, own in zip(traces, rows, named, strict=True):
        spans = trace.spans
        text_of, lane_of = _numbers(spans.names, texts), _numbers(own, lanes)
        columns.append(
            (
                row, spans.kind[row], lane_of[spans.lane[row]], spans.operation[row], spans.part[row],
                text_of[spans.name[row]], text_of[spans.symbol[row]],
            )
        )  # fmt: skip
    row, *others = (np.concatenate(pair).astype(np.int64) for pair in zip(*columns, strict=True))
    return _Columns(row, np.repeat([0, 1], [len(one) for one in rows]), *others)


def _lane_names(spans: SpanTable) -> tuple[str, ...]:
    """Return the names of lanes, by which streams are joined; of one GPU, without its number, so that two GPUs can be compared."""
    return spans.lanes if several_gpus(spans) else tuple(_OF_GPU.sub("", lane) for lane in spans.lanes)


def _numbers(some: tuple[str, ...], every: tuple[str, ...]) -> IntArray:
    """Return where each of some texts stands among all."""
    at = {text: index for index, text in enumerate(every)}
    return np.array([*(at[text] for text in some), -1], np.int64)


def _by_operation(columns: _Columns) -> tuple[IntArray, IntArray] | None:
    """Group by operation, part and n-th kernel; None where the two traces are not of the same operations."""
    if not len(columns.row) or columns.operation.min() < 0:
        return None
    turn = _turn(packed(columns.second, columns.operation, columns.part))
    group = packed(columns.operation, columns.part, turn)
    pairs = _pairs(group, columns.cut)
    alike = columns.name[pairs[:, 0]] == columns.name[pairs[:, 1]]
    return (group, pairs) if len(pairs) and alike.mean() >= SAME_PROGRAM_FROM else None


def _by_name(called: IntArray, columns: _Columns) -> tuple[IntArray, IntArray]:
    name = np.unique(packed(called, columns.kind), return_inverse=True)[1]
    even = _even(name, columns.second)[name]
    lane = np.where(_even_everywhere(name, columns)[name], columns.lane, -1)
    stretch = _stretches(name, even, columns)
    within = np.where(even, -1, stretch) if stretch is not None else np.full(len(name), -1)
    lane = np.where(even, lane, -1)
    key = (name, lane, within)
    pairs = _pairs(packed(*key, _turn(packed(columns.second, *key))), columns.cut)
    return (name, pairs) if stretch is None else _renamed(name, pairs, stretch, columns)


def _even(name: IntArray, second: IntArray) -> npt.NDArray[np.bool_]:
    """Tell of each name whether both traces have as many of it."""
    count = int(name.max(initial=-1)) + 1
    first, other = (np.bincount(name[second == side], minlength=count) for side in (0, 1))
    found: npt.NDArray[np.bool_] = first == other
    return found


def _even_everywhere(name: IntArray, columns: _Columns) -> npt.NDArray[np.bool_]:
    """Tell of each name whether both traces have as many of it on each stream."""
    names, at = np.unique(packed(name, columns.lane), return_inverse=True)
    uneven = ~_even(at, columns.second)
    of = np.zeros(len(names), np.int64)
    of[at] = name
    found: npt.NDArray[np.bool_] = np.bincount(of[uneven], minlength=int(name.max(initial=-1)) + 1) == 0
    return found


def _stretches(name: IntArray, even: npt.NDArray[np.bool_], columns: _Columns) -> IntArray | None:
    """Return which stretch each span lies in, between spans of names that both traces have equally often; None if their orders differ.

    Their order stream by stream is tried first, then that of their starts.
    """
    for lane in (columns.lane, np.zeros_like(columns.lane)):
        order = np.lexsort((lane, columns.second))  # Stable: starts stay in order.
        sides = [order[: columns.cut], order[columns.cut :]]
        anchors = [name[side][even[side]] for side in sides]
        if np.array_equal(anchors[0], anchors[1]):
            found = np.zeros(len(name), np.int64)
            for side in sides:
                found[side] = np.cumsum(even[side])
            return found
    return None


def _renamed(name: IntArray, pairs: IntArray, stretch: IntArray, columns: _Columns) -> tuple[IntArray, IntArray]:
    """Give renamed kernels their name in the second trace, and add their pairs."""
    alone = np.setdiff1d(np.arange(len(name)), pairs)
    alone = alone[_even(stretch[alone], columns.second[alone])[stretch[alone]]]
    kind, second = columns.kind[alone], columns.second[alone]
    turn = _turn(packed(second, stretch[alone], kind))
    others = alone[_pairs(packed(stretch[alone], kind, turn), int(len(alone) - second.sum()))]
    old, new = name[others].T
    was, count = np.unique(packed(old, new), return_counts=True)
    # A name that is gone, all of it for one name that is new.
    _, example = np.unique(packed(old, new), return_index=True)
    old, new = old[example], new[example]
    length = int(name.max(initial=-1)) + 1
    in_first, in_second = (np.bincount(name[columns.second == side], minlength=length) for side in (0, 1))
    whole = (count == in_first[old]) & (count == in_second[new]) & (in_second[old] == 0) & (in_first[new] == 0)
    becomes = np.arange(length)
    becomes[old[whole]] = new[whole]
    chosen = np.isin(packed(*name[others].T), was[whole])
    return becomes[name], np.concatenate([pairs, others[chosen]])


def _turn(key: IntArray) -> IntArray:
    """Return of each how many of its key stand before it."""
    order = np.argsort(key, kind="stable")
    opens = np.flatnonzero(np.diff(key[order], prepend=key[order][:1] - 1))
    found = np.empty(len(key), np.int64)
    found[order] = np.arange(len(key)) - np.repeat(opens, np.diff(opens, append=len(key)))
    return found


def _pairs(key: IntArray, cut: int) -> IntArray:
    """Return the indices of equal keys in front of a cut and behind it, where no key occurs twice on one side."""
    _, first, second = np.intersect1d(key[:cut], key[cut:], assume_unique=True, return_indices=True)
    found = np.stack([first, second + cut], axis=1)
    return found[np.argsort(first, kind="stable")]


def packed(*columns: IntArray) -> IntArray:
    """Return one number for each row, equal where all columns are; columns hold whole numbers from -1."""
    key = np.zeros(len(columns[0]), np.int64)
    most = 0
    for column in columns:
        width = int(column.max(initial=-1)) + 2
        if (most + 1) * width >= 1 << 62:
            key = np.unique(key, return_inverse=True)[1]
            most = int(key.max(initial=0))
        key = key * width + (column + 1)
        most = (most + 1) * width
    return key
