"""What the live timeline's second bundle shows: the flame chart of time by code. ``second.js`` draws it."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from streamscope.analysis import call_tree
from streamscope.analysis.call_tree import CallTree, TreeBy
from streamscope.trace import Trace
from streamscope.trace.spans import SpanKind
from streamscope.trace.trace import TimelineGroup
from streamscope.words import shortened
from streamscope_widgets.columns import ColumnBlock
from streamscope_widgets.messages import TreeAnswer

FRAME_KINDS = ("module", "function", "line", "range", "kernel", "unknown")
"""Kinds of `Frame`; their codes are their places."""
LONGEST_NAME = 1000
"""Letters, as of the names of spans."""


def tells_code(trace: Trace) -> dict[TreeBy, bool]:
    """Tell which trees of a trace have more than one row of kernels."""
    origins = trace.origins
    lines, labels = (bool((column >= 0).any()) for column in (origins.line, origins.label))
    return {"code": bool(len(trace.sites)) or lines, "range": labels or bool((trace.spans.kind == SpanKind.RANGE).any())}


def details_of(groups: Sequence[TimelineGroup]) -> list[str]:
    """Return what the second bundle has to show of some groups."""
    code = any(any(tells_code(group.trace).values()) for group in groups)
    return ["code"] if code else []


def _known(trace: Trace, by: TreeBy) -> TreeBy:
    """Return which tree is shown: the other one, where the trace tells only that."""
    told = tells_code(trace)
    return by if told[by] or not any(told.values()) else next(each for each, known in told.items() if known)


_trees: deque[tuple[weakref.ref[Trace], CallTree]] = deque(maxlen=8)
"""The last trees, since a long trace is asked again with each view."""


def tree_of(trace: Trace, by: TreeBy) -> CallTree:
    """Return the call tree of a trace, as a flame chart shows it."""
    by = _known(trace, by)
    for known, tree in _trees:
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
