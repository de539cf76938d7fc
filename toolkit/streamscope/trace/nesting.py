"""Intervals that nest, as ranges and frames of a thread do: the innermost one at a time."""

from __future__ import annotations

import numpy as np

from streamscope.arrays import IntArray


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
    order = np.lexsort((-end_ns, start_ns))
    # One that is over before the first question, or begins after the last, answers none.
    order = order[(end_ns[order] > at_ns[queries[0]]) & (start_ns[order] <= at_ns[queries[-1]])]
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
