"""The same kernels on all ranks: which take longer on one of them, or run more often."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamscope.ranks.rank import Rank
from streamscope.trace.spans import SpanKind


def imbalance_of(ranks: Sequence[Rank]) -> list[dict[str, Any]]:
    """Return the kernels that take longer on one rank than in the median of the others, the largest difference first.

    Kernels are joined by name. Collectives are left out: their time is waiting, too. A row has the ``kernel``, the ``rank`` that it takes
    longest on, ``us`` and ``count`` there, and ``median_us`` and ``median_count`` of the other ranks.
    """
    names: dict[str, int] = {}
    code_of = [np.array([names.setdefault(name, len(names)) for name in rank.trace.spans.names], np.int64) for rank in ranks]
    time_us, count = np.zeros((2, len(ranks), len(names)))
    for at, (rank, code) in enumerate(zip(ranks, code_of, strict=True)):
        spans = rank.trace.spans
        kernels = spans.kind == SpanKind.KERNEL
        kernels[rank.trace.collectives.span] = False
        used = code[spans.name[kernels]]
        time_us[at] = np.bincount(used, weights=spans.duration_ns[kernels] / 1e3, minlength=len(names))
        count[at] = np.bincount(used, minlength=len(names))
    if not names or len(ranks) < 2:
        return []
    longest = time_us.argmax(axis=0)
    others = np.arange(len(ranks))[:, None] != longest
    usual_us, usual_count = (np.nanmedian(np.where(others, column, np.nan), axis=0) for column in (time_us, count))
    excess_us, texts = time_us.max(axis=0) - usual_us, list(names)
    return [
        {
            "kernel": texts[one],
            "rank": ranks[int(longest[one])].number,
            "us": float(time_us[longest[one], one]),
            "count": int(count[longest[one], one]),
            "median_us": float(usual_us[one]),
            "median_count": float(usual_count[one]),
        }
        for one in np.argsort(-excess_us, kind="stable").tolist()
        if excess_us[one] > 0
    ]
