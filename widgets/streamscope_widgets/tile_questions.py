"""The browser's queries on a long trace: searches, jumps, totals of an area. Rows are those of the trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from streamscope.analysis.call_tree import TreeBy
from streamscope.arrays import BoolArray, IntArray
from streamscope.errors import TraceError
from streamscope.trace.spans import SpanKind
from streamscope.trace.trace import TimelineGroup
from streamscope_widgets.columns import ColumnBlock
from streamscope_widgets.details import encode_counters, encode_tree, tree_of
from streamscope_widgets.job_timeline import answer_cell, encode_ranks
from streamscope_widgets.levels import StretchLevels
from streamscope_widgets.messages import (
    FindAnswer,
    FindQuestion,
    FrameAnswer,
    FrameQuestion,
    GoAnswer,
    GoQuestion,
    HitCounts,
    StartsAnswer,
    StartsQuestion,
    Sums,
    TileQuestion,
    TotalsAnswer,
    TotalsQuestion,
    TreeQuestion,
)
from streamscope_widgets.payload import SECOND_BUNDLE, Payload, bundle_source, encode_paths
from streamscope_widgets.rows import SLOTS
from streamscope_widgets.tiles import Part, Tiles

MOST_MARKS = 500
"""More hits than this are everywhere: the strip at the foot does not show them."""


def answer(tiles: Tiles | None, groups: Sequence[TimelineGroup], question: Mapping[str, Any]) -> Payload:
    """Answer a query of the browser; the header has ``refused`` where it cannot be.

    ``tiles``: None where the browser has all spans: it then asks nothing about them.
    ``question``: one of `streamscope_widgets.messages.TO_PYTHON` that has an answer there.
    """
    try:
        if question["type"] in _OF_GROUPS:
            return _OF_GROUPS[question["type"]](tiles, groups, question)
        if tiles is None:
            return Payload({"refused": "all spans were sent"}, b"")
        found = _ANSWERS[question["type"]](tiles, question)
        return found if isinstance(found, Payload) else Payload(found, b"")
    except TraceError as error:
        return Payload({"refused": str(error)}, b"")
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        return Payload({"refused": f"the question was not understood ({error!r})"}, b"")


def hits_of(tiles: Tiles, find: Mapping[str, Any] | None) -> list[BoolArray] | None:
    """Return for each group which drawn spans a search finds, by a name's code or by a text in lower case; the same as in ``filter.js``."""
    frame = find and find.get("frame")
    if find is None or (find["code"] is None and not find["text"] and not frame):
        return None
    wanted = (find["code"], find["text"], frame)
    known = tiles.found  # Questions are answered in several threads.
    if known is None or known[0] != wanted:
        found = _launched_by(tiles, **frame) if frame else [_hits(tiles, part, *wanted[:2]) for part in tiles.parts]
        tiles.found = known = (wanted, found)
    return known[1]


def _hits(tiles: Tiles, part: Part, code: int | None, text: str) -> BoolArray:
    spans, origins = part.group.trace.spans, part.group.trace.origins
    names, symbols = tiles.codes.of(spans)
    named = np.array([code == number if code is not None else text in name.lower() for name, number in tiles.codes.names.items()])
    found: BoolArray = named[names[spans.name]]
    launches = np.flatnonzero(part.launched >= 0)
    found[launches] |= named[names[spans.name[part.launched[launches]]]]
    if code is None:
        texts = np.array([text in each.lower() for each in tiles.codes.texts] + [False])
        found |= (spans.symbol >= 0) & (spans.symbol != spans.name) & texts[symbols[spans.symbol]]
        labels = np.array([text in each.lower() for each in origins.texts] + [False])[origins.label]
        known = (spans.operation >= 0) & (spans.operation < len(labels))
        found[known] |= labels[spans.operation[known]]
    return found & part.drawn


def _launched_by(tiles: Tiles, group: int, by: TreeBy, numbers: Sequence[int]) -> list[BoolArray]:
    """Return for each group which drawn spans some frames of one group launched, with their calls; as ``flame_tree.js`` in other groups."""
    spans = tiles.parts[group].group.trace.spans
    rows = tree_of(tiles.parts[group].group.trace, by).under(*numbers)
    calls, operations = (np.unique(ids[ids >= 0]) for ids in (spans.correlation[rows], spans.operation[rows]))
    found = [np.isin(part.group.trace.spans.operation, operations) & part.drawn for part in tiles.parts]
    found[group] = (spans.kind < SpanKind.KERNEL) & np.isin(spans.correlation, calls)
    found[group][rows] = True
    found[group] &= tiles.parts[group].drawn
    return found


def _tile(tiles: Tiles, question: TileQuestion) -> Payload:
    return tiles.tile(question["windows"], hits_of(tiles, question.get("find")), paths=bool(question.get("paths")))


def _counts(tiles: Tiles, question: FindQuestion) -> FindAnswer:
    """Count a search's matches in each group, on the device and on the host, and say where it starts if it is little."""
    answers: list[HitCounts] = []
    for part, hits in zip(tiles.parts, hits_of(tiles, question["find"]) or [], strict=True):
        spans, rows = part.group.trace.spans, _listed(part, hits)
        on_device = int((hits & (spans.kind >= SpanKind.KERNEL)).sum())
        starts = spans.start_ns[rows].tolist() if len(rows) <= MOST_MARKS else []
        answers.append({"onDevice": on_device, "onHost": int(hits.sum()) - on_device, "starts": starts})
    return {"groups": answers}


def _listed(part: Part, hits: BoolArray) -> IntArray:
    """Return the rows of the hits that are counted and stepped through: those on the device, or, where there are none, the host's."""
    on_device = part.group.trace.spans.kind >= SpanKind.KERNEL
    rows = np.flatnonzero(hits & on_device)
    return rows if len(rows) else np.flatnonzero(hits)


def _go(tiles: Tiles, question: GoQuestion) -> GoAnswer | dict[str, Any]:
    """Say where a step leads: to the next hit, from a call to its kernel, to a neighbour. Nothing where it leads nowhere."""
    how, group, span = question["how"], int(question["group"]), int(question["span"])
    position = 0
    if how == "hit":
        group, span, position = _next_hit(tiles, question)
    elif how == "operation":
        span = _first(tiles.parts[group], tiles.parts[group].group.trace.spans.operation == int(question["operation"]))
    elif how != "span":
        span = STEPS[how](tiles.parts[group], span)
    if not 0 <= span < len(tiles.parts[group].group.trace.spans):
        return {}
    spans = tiles.parts[group].group.trace.spans
    start, end = int(spans.start_ns[span]), int(spans.end_ns[span])
    found = GoAnswer(group=group, span=span, start=start, end=end, position=position)
    if not tiles.parts[group].drawn[span]:
        found["hidden"] = spans.lanes[spans.lane[span]]
    return found


def _starts(tiles: Tiles, question: StartsQuestion) -> StartsAnswer:
    """Say when an operation begins on the device in each group; null where it does not."""
    starts: list[int | None] = []
    for part in tiles.parts:
        spans = part.group.trace.spans
        rows = np.flatnonzero(
            (spans.operation == int(question["operation"])) & (spans.kind >= SpanKind.KERNEL) & (spans.kind != SpanKind.GRAPH)
        )
        starts.append(int(spans.start_ns[rows[0]]) if len(rows) else None)
    return {"starts": starts}


def _next_hit(tiles: Tiles, question: GoQuestion) -> tuple[int, int, int]:
    """Return group, row and place of the next hit, or the one before, in the shown groups in turn; after the last comes the first."""
    hits, step = hits_of(tiles, question["find"]) or [], int(question["step"])
    listed = [(number, _listed(tiles.parts[number], hits[number])) for number in question["shown"]] if hits else []
    place = np.concatenate([np.full(len(rows), number) for number, rows in listed] or [np.zeros(0, np.int64)])
    rows = np.concatenate([rows for _, rows in listed] or [np.zeros(0, np.int64)])
    if not len(rows):
        return int(question["group"]), -1, 0
    here = np.flatnonzero(place == question["group"])
    if not len(here) or question["span"] < 0:
        at = 0 if step > 0 else len(rows) - 1
    else:
        at = here[0] + int(np.searchsorted(rows[here], question["span"], "right" if step > 0 else "left")) - (step < 0)
    at %= len(rows)
    return int(place[at]), int(rows[at]), int(at) + 1


def _first(part: Part, chosen: BoolArray) -> int:
    """Return the first of some rows that lies on the device, else the first; -1 for none."""
    rows = np.flatnonzero(chosen)
    on_device = rows[part.group.trace.spans.kind[rows] >= SpanKind.KERNEL]
    return int(on_device[0]) if len(on_device) else int(rows[0]) if len(rows) else -1


def _launch(part: Part, span: int) -> int:
    """From a call to its work on the device, the graph before its kernels; and from there back to the call."""
    spans = part.group.trace.spans
    if spans.correlation[span] < 0:
        return -1
    rows = np.flatnonzero(spans.correlation == spans.correlation[span])
    kinds = spans.kind[rows]
    if spans.kind[span] >= SpanKind.KERNEL:
        wanted = rows[(kinds == SpanKind.LAUNCH) | (kinds == SpanKind.GRAPH_LAUNCH)]
    else:
        graphs = rows[kinds == SpanKind.GRAPH]
        wanted = graphs if len(graphs) else rows[kinds >= SpanKind.KERNEL]
    return int(wanted[0]) if len(wanted) else -1


def _waited_for(part: Part, span: int) -> int:
    earlier, later = part.waits
    rows = earlier[later == span]
    return int(rows[0]) if len(rows) else _in_lane(part, span, -1)


def _dependent(part: Part, span: int) -> int:
    earlier, later = part.waits
    rows = later[earlier == span]
    return int(rows[0]) if len(rows) else _in_lane(part, span, 1)


def _in_lane(part: Part, span: int, step: int) -> int:
    spans = part.group.trace.spans
    return _beside(np.flatnonzero(spans.lane == spans.lane[span]), span, step)


def _beside(rows: IntArray, span: int, step: int) -> int:
    at = int(np.searchsorted(rows, span, "right" if step > 0 else "left")) - (step < 0)
    return int(rows[at]) if 0 <= at < len(rows) else -1


def _on_device(part: Part, span: int, step: int) -> int:
    """To the next operation of the program, or the one before; of other traces, the next kernel or copy."""
    spans = part.group.trace.spans
    if (spans.operation >= 0).any():
        wanted = 0 if span < 0 or spans.operation[span] < 0 else int(spans.operation[span]) + step
        return _first(part, (spans.operation == wanted) & (spans.kind >= SpanKind.KERNEL))
    return _beside(np.flatnonzero((spans.kind >= SpanKind.KERNEL) & (spans.kind != SpanKind.GRAPH)), span, step)


STEPS: dict[str, Callable[[Part, int], int]] = {
    "launch": _launch, "wait": _waited_for, "dependent": _dependent,
    "next": lambda part, span: _on_device(part, span, 1), "previous": lambda part, span: _on_device(part, span, -1),
}  # fmt: skip


def _totals(tiles: Tiles, question: TotalsQuestion) -> TotalsAnswer:
    """Add up areas: how often each name occurs there and how long, how long the device is busy, how many kernels start."""
    return {"groups": [_area(tiles, **area) for area in question["areas"]]}


def _area(tiles: Tiles, group: int, start: float, end: float, rows: list[list[int]]) -> Sums:
    """Add up one group's rows, ``[lane, row]``, in a stretch of its own time; of spans that reach out of it, the part inside counts."""
    part = tiles.parts[group]
    spans, drawn = part.group.trace.spans, part.rows
    place = {int(lane): number for number, lane in enumerate(drawn.places.lanes)}
    wanted = {place[lane] * SLOTS + row for lane, row in rows if lane in place}
    pieces = [np.arange(first, last) for slot, first, last in drawn.window(start, end) if slot in wanted]
    positions = np.concatenate(pieces or [np.zeros(0, np.int64)])
    positions = positions[drawn.end_ns[positions] > start]
    rows_in = drawn.span[positions]
    time_ns = np.minimum(drawn.end_ns[positions], end) - np.maximum(drawn.start_ns[positions], start)
    names, _ = tiles.codes.of(spans)
    kind = spans.kind[rows_in]
    sort = np.where(kind >= SpanKind.KERNEL, 0, np.where(kind == SpanKind.RANGE, 2, 1))
    keys, inverse = np.unique(3 * names[spans.name[rows_in]] + sort, return_inverse=True)
    counts, times = np.bincount(inverse, minlength=len(keys)), np.bincount(inverse, time_ns, minlength=len(keys))
    first, last = np.searchsorted(spans.start_ns, [start, end])
    kernels = spans.gpu[first:last][spans.kind[first:last] == SpanKind.KERNEL]
    gpus = part.group.trace.gpus
    return {
        "names": [(int(key), int(count), float(time)) for key, count, time in zip(keys, counts, times, strict=True)],
        "gpus": [
            (int((kernels == gpu).sum()), *_times_within(levels, start, end)) for gpu, levels in zip(gpus, part.stretches, strict=False)
        ],
    }


def _times_within(levels: StretchLevels, start: float, end: float) -> tuple[float, float]:
    """Return for how many ns of a stretch a kernel runs on a GPU, and for how many a kernel or a copy."""
    found = levels.within(0, start, end).found
    length_ns = np.minimum(found.end_ns, end) - np.maximum(found.start_ns, start)
    busy = found.kernels > 0
    return float(length_ns[busy].sum()), float(length_ns[busy | (found.copies > 0)].sum())


def _tree(tiles: Tiles | None, groups: Sequence[TimelineGroup], question: TreeQuestion) -> Payload:
    """Return the call tree of a group. Of a long trace, frames of spans are asked for one by one."""
    block, trace = ColumnBlock(), groups[question["group"]].trace
    header = encode_tree(trace, _tree_by(question), block, None if tiles else len(trace.spans))
    return Payload({**header}, block.to_bytes())


def _frame(groups: Sequence[TimelineGroup], question: FrameQuestion) -> Payload:
    """Return the frame of a span."""
    trace = groups[question["group"]].trace
    tree = tree_of(trace, _tree_by(question))
    at = np.flatnonzero(tree.span == question["span"])
    return Payload({**FrameAnswer(frame=int(tree.frame[at[0]]) if len(at) else -1)}, b"")


def _counters(groups: Sequence[TimelineGroup]) -> Payload:
    block = ColumnBlock()
    return Payload({**encode_counters(groups, block)}, block.to_bytes())


def _ranks(groups: Sequence[TimelineGroup]) -> Payload:
    block = ColumnBlock()
    return Payload({**encode_ranks(groups, block)}, block.to_bytes())


def _tree_by(question: TreeQuestion) -> TreeBy:
    return "range" if question["by"] == "range" else "code"


_OF_GROUPS: Mapping[str, Callable[[Tiles | None, Sequence[TimelineGroup], Any], Payload]] = {
    "paths": lambda _, groups, __: encode_paths(groups),
    "details": lambda *_: Payload({}, bundle_source(SECOND_BUNDLE).encode()),
    "tree": _tree,
    "frame": lambda _, groups, question: _frame(groups, question),
    "counters": lambda _, groups, __: _counters(groups),
    "job": lambda _, groups, __: _ranks(groups),
    "cell": lambda _, groups, question: Payload({**answer_cell(groups, question["rank"], question["step"])}, b""),
    "show": lambda *_: Payload({"refused": "these are no ranks of a job"}, b""),  # Whoever has the job shows others.
}
_ANSWERS: Mapping[str, Callable[[Tiles, Any], Payload | Mapping[str, Any]]] = {
    "tile": _tile,
    "find": _counts,
    "go": _go,
    "starts": _starts,
    "totals": _totals,
}
QUESTIONS = frozenset({*_OF_GROUPS, *_ANSWERS})
