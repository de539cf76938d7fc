"""What the live timeline's second bundle shows: time by code, counters, markers, memory and notes. ``second.js`` draws it."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.analysis import call_tree
from streamscope.analysis.call_tree import CallTree, TreeBy
from streamscope.analysis.memory import MemoryUse, memories
from streamscope.trace import Trace
from streamscope.trace.memory import HELD, Level
from streamscope.trace.spans import SpanKind
from streamscope.trace.trace import TimelineGroup
from streamscope.words import shortened
from streamscope_widgets.columns import ColumnBlock
from streamscope_widgets.job_timeline import job_of
from streamscope_widgets.messages import CounterLane, CountersAnswer, CountersOfGroup, LineHeader, Marked, NoteHeader, TreeAnswer
from streamscope_widgets.notes_view import timed

FRAME_KINDS = ("module", "function", "line", "range", "kernel", "unknown")
"""Kinds of `Frame`; their codes are their places."""
MOST_COUNTERS, MOST_MEMORIES = 24, 8
"""Lanes of counters, those with most values, and of the memory of GPUs, of one trace."""
MOST_POINTS = 100_000
"""Values of a line of memory. A browser draws as many within a frame."""
LONGEST_NAME = 1000
"""Letters, as of the names of spans."""


def tells_code(trace: Trace) -> dict[TreeBy, bool]:
    """Tell which trees of a trace have frames around its kernels."""
    origins = trace.origins
    lines, labels = (bool((column >= 0).any()) for column in (origins.line, origins.label))
    return {"code": bool(len(trace.sites)) or lines, "range": labels or bool((trace.spans.kind == SpanKind.RANGE).any())}


def details_of(groups: Sequence[TimelineGroup]) -> list[str]:
    """Return the content of the second bundle for some groups."""
    code = any(any(tells_code(group.trace).values()) for group in groups)
    traces = [group.trace for group in groups]
    counted = any(len(trace.counters) or len(trace.markers) or timed(trace.user_notes) or changing_memories(trace) for trace in traces)
    return ["code"] * code + ["counters"] * counted + ["ranks"] * (job_of(groups) is not None)


def _known(trace: Trace, by: TreeBy) -> TreeBy:
    """Return which tree is shown: the other one, where the trace tells only that."""
    told = tells_code(trace)
    return by if told[by] or not any(told.values()) else next(each for each, known in told.items() if known)


_trees: deque[tuple[weakref.ref[Trace], CallTree]] = deque(maxlen=8)
"""The last trees, since a long trace is asked again with each view."""


def tree_of(trace: Trace, by: TreeBy) -> CallTree:
    """Return the call tree of a trace, as a flame chart shows it."""
    by = _known(trace, by)
    for known, tree in tuple(_trees):  # JupyterLab's files are answered in threads.
        if known() is trace and tree.by == by:
            return tree
    tree = call_tree(trace, by)
    _trees.append((weakref.ref(trace), tree))
    return tree


def frames_of(trace: Trace, tree: CallTree) -> npt.NDArray[np.int32]:
    """Return the frame of each span; -1 for spans without one."""
    found = np.full(len(trace.spans), -1, np.int32)
    found[tree.span] = tree.frame
    return found


def encode_tree(trace: Trace, by: TreeBy, block: ColumnBlock, rows: int | None) -> TreeAnswer:
    """Encode a call tree.

    ``rows``: so many of the trace's spans the browser has; None where it has others of them from time to time.
    """
    tree = tree_of(trace, by)
    texts: dict[str, int] = {}
    words = [[texts.setdefault(shortened(text, LONGEST_NAME), len(texts)) for text in (frame.name, frame.file)] for frame in tree.frames]
    name, file = np.array(words, np.int64).T
    columns = {
        "parent": block.add_codes(tree.parent),
        "name": block.add(name),
        "file": block.add(file),
        "line": block.add(np.array([frame.line for frame in tree.frames])),
        "kind": block.add(np.array([FRAME_KINDS.index(frame.kind) for frame in tree.frames])),
        **{name: block.add(column) for name, column in zip(("kernels", "gpu", "exposed", "idle"), tree.costs, strict=True)},
    }
    return {
        "by": tree.by,
        "other": all(tells_code(trace).values()),
        "gpu": tree.gpu,
        "defined": tree.defined,
        "texts": list(texts),
        "count": len(tree.frames),
        "columns": columns,
        "rows": rows or 0,
        "frame": None if rows is None else block.add_codes(frames_of(trace, tree)[:rows]),
    }


def encode_counters(groups: Sequence[TimelineGroup], block: ColumnBlock, most: int = MOST_POINTS) -> CountersAnswer:
    """Encode the counters, markers and memory of each group, of a line of memory so many values at most. All memory has one scale."""
    found = [_counters_of(group.trace, block, most) for group in groups]
    memories = [lane for group in found for lane in group["lanes"] if lane["peak"] is not None]
    for lane in memories:
        lane["high"] = max(each["high"] for each in memories)
    return {"groups": found}


def changing_memories(trace: Trace) -> list[int]:
    """Return the GPUs whose memory changes during the trace."""
    held, begin_ns = trace.memory, int(trace.spans.start_ns.min(initial=0))
    changing = (held.gpu >= 0) & ((held.start_ns > begin_ns) | (held.end_ns < HELD))
    found: list[int] = np.unique(held.gpu[changing]).tolist()
    return found[:MOST_MEMORIES]


def _counters_of(trace: Trace, block: ColumnBlock, most: int) -> CountersOfGroup:
    counters, markers = trace.counters, trace.markers
    sizes = np.bincount(counters.series, minlength=len(counters.described))
    chosen = np.sort(np.argsort(-sizes, kind="stable")[:MOST_COUNTERS])
    changing = changing_memories(trace)
    of_gpu = {found.gpu: found for found in memories(trace)} if changing else {}
    lanes = [_memory_lane(of_gpu[gpu], block, most) for gpu in changing]
    lanes += [_counter_lane(trace, number, block) for number in chosen.tolist()]
    texts = [shortened(text, LONGEST_NAME) for text in markers.texts]
    marked: Marked = {"count": len(markers), "time": block.add_rising(markers.time_ns), "name": block.add(markers.name), "texts": texts}
    return {"lanes": lanes, "left_out": len(sizes) - len(chosen), "markers": marked, "notes": [*_notes_of(trace)]}


def _notes_of(trace: Trace) -> Iterator[NoteHeader]:
    for number, note in enumerate(trace.user_notes, 1):
        if note.start_ns is not None and note.end_ns is not None:
            text = shortened(note.text, LONGEST_NAME)
            yield {"number": number, "start": note.start_ns, "end": note.end_ns, "text": text, "lane": shortened(note.lane, LONGEST_NAME)}


def _counter_lane(trace: Trace, number: int, block: ColumnBlock) -> CounterLane:
    found, rows = trace.counters.described[number], trace.counters.rows_of(number)
    value = trace.counters.value[rows]
    return {
        "label": shortened(found.label, LONGEST_NAME),
        "unit": found.unit,
        "low": float(value.min()) if len(value) else 0.0,
        "high": float(value.max()) if len(value) else 0.0,
        "peak": None,
        "lines": [_line("", trace.counters.time_ns[rows], value, block)],
    }


def _memory_lane(found: MemoryUse, block: ColumnBlock, most: int) -> CounterLane:
    """Return the memory of a GPU that was lent, and that was taken from the driver, as far as the trace tells each."""
    trace, gpu = found.trace, found.gpu
    levels = np.unique(trace.memory.level[trace.memory.gpu == gpu]).tolist()
    curves = {Level(level).name.lower(): found.curve(Level(level)) for level in levels}
    return {
        "label": f"GPU {gpu} memory" if len(trace.gpus) > 1 else "memory",
        "unit": "B",
        "low": 0.0,
        "high": float(max(curve.bytes.max() for curve in curves.values())),
        "peak": float(found.peak.at_ns),
        "lines": [_line(name, *thinned(*curve, most), block) for name, curve in curves.items()],
    }


def _line(name: str, time_ns: npt.NDArray[Any], value: npt.NDArray[Any], block: ColumnBlock) -> LineHeader:
    return {"name": name, "count": len(value), "time": block.add_rising(time_ns), "value": block.add_floats(value)}


def thinned(time_ns: npt.NDArray[Any], value: npt.NDArray[Any], most: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return a stepped line with so many values at most: of values that lie close together the first, least, largest and last one."""
    if len(value) <= most:
        return time_ns, value
    pieces = most // 4
    at = np.minimum((time_ns - time_ns[0]) * (pieces / max(1, int(time_ns[-1] - time_ns[0]))), pieces - 1).astype(np.int64)
    opens = np.flatnonzero(np.diff(at, prepend=-1))
    order = np.lexsort((value, at))  # Of each piece the least first, and the largest last.
    closes = np.append(opens[1:], len(at)) - 1
    kept = np.unique(np.concatenate([opens, closes, order[opens], order[closes]]))
    return time_ns[kept], value[kept]
