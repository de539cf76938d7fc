"""Files of two jobs in one folder: what tells them from ranks of one job that have no collective in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from streamscope.arrays import IntArray
from streamscope.ranks.matching import MESSAGES, Matched
from streamscope.ranks.rank import Rank
from streamscope.words import time_text

FAR_S = 10.0
"""Clocks of hosts that ask for the time of day differ by less."""
TIME_OF_DAY_NS = 10**18
"""Clocks that count from 1970 show more, and those that count from the start of a host less."""
MOST_NAMED = 16


def of_two_jobs(ranks: Sequence[Rank], found: Matched) -> str | None:
    """Return the warning that ranks may be of two jobs; None where nothing says so.

    It is no proof: ranks of one job may have recorded different steps. So nothing is refused.
    """
    joined = _joined(len(ranks), found)
    if len(np.unique(joined)) < 2:
        return None
    return _told_by_communicator(ranks, found, joined) or _told_by_time(ranks, joined)


def _joined(count: int, found: Matched) -> IntArray:
    """Return a number for each rank: the same for ranks that collectives join, with or without other ranks between them."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    rows = np.flatnonzero(found.operation >= 0)
    ends = (found.parts.rank[rows], count + found.operation[rows])
    size = count + len(found)
    numbers: IntArray = connected_components(coo_array((np.ones(len(rows)), ends), (size, size)), directed=False)[1][:count]
    return numbers


def _told_by_communicator(ranks: Sequence[Rank], found: Matched, joined: IntArray) -> str | None:
    """Find collectives of all ranks of the job that some files have and others lack, or have under other numbers.

    Without numbers, those of both may be the same, and only their order is not known.
    """
    parts = found.parts
    world = next((rank.trace.info.world_size for rank in ranks if rank.trace.info.world_size is not None), None)
    of_all = (parts.size == (world or -1)) & ~parts.is_kind(MESSAGES)
    communicating = np.unique(parts.rank)
    for communicator in np.unique(parts.communicator[of_all]).tolist():
        rows = of_all & (parts.communicator == communicator)
        unnumbered = joined[parts.rank[rows & (parts.sequence < 0)]]
        for one in np.unique(joined[parts.rank[rows]]).tolist():
            others = joined != one if one not in unnumbered else ~np.isin(joined, unnumbered)
            others = np.intersect1d(np.flatnonzero(others), communicating)
            if len(others):
                name = parts.texts[communicator]
                why = f"though communicator {name!r:.60} is of all {world:,} ranks of the job"
                return _warning(ranks, np.flatnonzero(joined == one), others, why)
    return None


def _told_by_time(ranks: Sequence[Rank], joined: IntArray) -> str | None:
    """Find ranks that were recorded long after the others, by the time of day."""
    timed = [at for at, rank in enumerate(ranks) if len(rank.trace.spans) and rank.zero_ns > TIME_OF_DAY_NS]
    begins = {at: ranks[at].zero_ns + int(ranks[at].trace.spans.start_ns.min()) for at in timed}
    timed.sort(key=begins.__getitem__)
    end_ns = 0
    for place, at in enumerate(timed):
        earlier, later = timed[:place], timed[place:]
        apart_ns = begins[at] - end_ns
        if earlier and apart_ns > FAR_S * 1e9 and not {*joined[earlier].tolist()} & {*joined[later].tolist()}:
            return _warning(ranks, sorted(earlier), sorted(later), f"and were recorded {time_text(apart_ns)} apart")
        end_ns = max(end_ns, ranks[at].zero_ns + int(ranks[at].trace.spans.end_ns.max()))
    return None


def _warning(ranks: Sequence[Rank], some: Iterable[int], others: Iterable[int], why: str) -> str:
    told = [named([ranks[at].number for at in each]) for each in (some, others)]
    return f"these may be files of two jobs, or of different steps: {told[0]} and {told[1]} have no collective in common, {why}"


def named(numbers: Sequence[int]) -> str:
    """Name ranks: ``"rank 2"``, ``"ranks 0, 1 and 62 more"``."""
    more = f" and {len(numbers) - MOST_NAMED:,} more" if len(numbers) > MOST_NAMED else ""
    return f"{'rank' if len(numbers) == 1 else 'ranks'} {', '.join(map(str, numbers[:MOST_NAMED]))}{more}"
