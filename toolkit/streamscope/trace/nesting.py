"""Intervals that nest, as ranges and frames of a thread do: the innermost one at a time."""

from __future__ import annotations

import numpy as np

from streamscope.arrays import IntArray

_MOST_THREADS = 2**15
"""Threads that are looked at: a trace has no lanes for more."""


def innermost(start_ns: IntArray, end_ns: IntArray, at_ns: IntArray) -> IntArray:
    """Return for each time the interval that began last of those around it, int64; -1 where there is none.

    An interval holds its start and not its end. Of those that begin together, the shortest is the innermost.

    Examples
    --------
    >>> import numpy as np
    >>> from streamscope.trace.nesting import innermost
    >>> innermost(np.array([0, 10]), np.array([100, 20]), np.array([5, 10, 20, 100])).tolist()
    [0, 1, 0, -1]
    """
    found = np.full(len(at_ns), -1, np.int64)
    if not len(start_ns) or not len(at_ns):
        return found
    queries = np.argsort(at_ns, kind="stable")
    # Most frames are around no launch call: only those that are around a question are gone through.
    first, behind = (np.searchsorted(at_ns[queries], times_ns) for times_ns in (start_ns, end_ns))
    order = np.flatnonzero(first < behind)
    order = order[np.lexsort((-end_ns[order], start_ns[order]))]
    begun = np.searchsorted(start_ns[order], at_ns[queries], side="right").tolist()
    ends, rows, answers = end_ns[order].tolist(), order.tolist(), list[int]()
    around, at = list[int](), 0
    for time_ns, upto in zip(at_ns[queries].tolist(), begun, strict=True):
        while at < upto:
            # Whatever ended earlier than this one lies under it or is over: it is looked at again when this one ends.
            around.append(at)
            at += 1
        while around and ends[around[-1]] <= time_ns:
            around.pop()
        answers.append(rows[around[-1]] if around else -1)
    found[queries] = answers
    return found


def innermost_on(thread: IntArray, start_ns: IntArray, end_ns: IntArray, asked: IntArray, at_ns: IntArray) -> IntArray:
    """Return `innermost` of the intervals on the thread that each time asks for; those of the first 32,768 threads are looked at.

    Examples
    --------
    >>> import numpy as np
    >>> from streamscope.trace.nesting import innermost_on
    >>> innermost_on(np.array([7, 8]), np.array([0, 0]), np.array([9, 9]), np.array([8, 7, 6]), np.array([5, 5, 5])).tolist()
    [1, 0, -1]
    """
    found = np.full(len(at_ns), -1, np.int64)
    both = np.intersect1d(thread, asked)[:_MOST_THREADS]
    order, queries = (np.argsort(each, kind="stable") for each in (thread, asked))
    bounds = (np.searchsorted(of, both, side=side).tolist() for of in (thread[order], asked[queries]) for side in ("left", "right"))
    for first, behind, first_asked, behind_asked in zip(*bounds, strict=True):
        rows, where = order[first:behind], queries[first_asked:behind_asked]
        inner = innermost(start_ns[rows], end_ns[rows], at_ns[where])
        found[where] = np.where(inner >= 0, rows[inner], -1)
    return found


def enclosing(start_ns: IntArray, end_ns: IntArray) -> IntArray:
    """Return for each interval the innermost one around it, int64; -1 where there is none.

    Intervals nest, as ranges and frames of one thread do. Of those that are alike, the first is the outer one.

    Examples
    --------
    >>> import numpy as np
    >>> from streamscope.trace.nesting import enclosing
    >>> enclosing(np.array([0, 10, 12, 40]), np.array([100, 20, 15, 50])).tolist()
    [-1, 0, 1, 0]
    """
    found = np.full(len(start_ns), -1, np.int64)
    order = np.lexsort((-end_ns, start_ns))
    around, answers = list[tuple[int, int]](), list[int]()
    for row, start, end in zip(order.tolist(), start_ns[order].tolist(), end_ns[order].tolist(), strict=True):
        while around and around[-1][0] <= start:
            around.pop()
        answers.append(around[-1][1] if around else -1)
        around.append((end, row))
    found[order] = answers
    return found


def with_outer(rows: IntArray, around: IntArray) -> IntArray:
    """Return some rows and all rows around them, in order; ``around`` is the row around each, -1 for none.

    Examples
    --------
    >>> import numpy as np
    >>> from streamscope.trace.nesting import with_outer
    >>> with_outer(np.array([2]), np.array([-1, 0, 1, 0])).tolist()
    [0, 1, 2]
    """
    needed = np.zeros(len(around), bool)
    rows = rows[rows >= 0]
    while len(rows):
        needed[rows] = True
        outer = np.unique(around[rows])
        rows = outer[outer >= 0]
        rows = rows[~needed[rows]]
    return np.flatnonzero(needed)
