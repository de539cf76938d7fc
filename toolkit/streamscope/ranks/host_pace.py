"""The pace of hosts: how long launches take on each rank and in each step, beside the usual time of the same calls.

Two hosts that do the same differ by as much as a factor of two while a profiler records them, and the next recording has other ones. So a
prediction that hosts decide is as uncertain as their pace.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streamscope.arrays import FloatArray, IntArray
from streamscope.predicting.tasks import Task
from streamscope.ranks.job import Job
from streamscope.ranks.replay import RankWork
from streamscope.trace.joins import CALL_KINDS

_MOST = 5.0
"""A launch that takes so many times as long as usual met something else: a full queue, or a kernel that was loaded."""
_QUICK, _SLOW = 5.0, 95.0
"""Percentiles of the steps of all ranks that count as quick and as slow."""
_NEXT = 1.15
"""By so much more, hosts of the next recording are quicker or slower: of 81 predictions on H100 and H200, 78 ran within
that and 5 %."""
_LONGEST_ISSUING_NS = 1e6
"""A host that launches nothing for longer sleeps or reads a file, which does not depend on its pace."""


def pace_ranges(job: Job) -> list[tuple[float, float]]:
    """Return for each rank the factors on its host's time that make it as quick, and as slow, as hosts of such a job are now and then."""
    found = _paces(job)
    known = found[~np.isnan(found)]
    if not len(known) or job.simulated:
        return [(1.0, 1.0)] * len(job.ranks)
    quick, slow = (np.percentile(known, (_QUICK, _SLOW)) * (1 / _NEXT, _NEXT)).tolist()
    return [(min(1.0, quick / own), max(1.0, slow / own)) for own in usual_paces(job)]


def usual_paces(job: Job) -> list[float]:
    """Return the pace of each rank's host in its median step: 1.1 takes a tenth longer than usual for the same calls."""
    if job.simulated:
        return [1.0] * len(job.ranks)
    return [float(np.median(row[~np.isnan(row)])) if not np.isnan(row).all() else 1.0 for row in _paces(job)]


def _paces(job: Job) -> FloatArray:
    """Return the time of launches over the usual time of their calls: a row for each rank, a column for each step; NaN without launches."""
    names: dict[str, int] = {}
    columns = list[tuple[IntArray, ...]]()
    steps = max(1, len(job.steps))
    for at, rank in enumerate(job.ranks):
        spans = rank.trace.spans
        calls = np.flatnonzero(spans.is_kind(CALL_KINDS))
        name = np.array([names.setdefault(text, len(names)) for text in spans.names] or [0])[spans.name[calls]]
        begin_ns = job.clocks.job_ns(at, spans.start_ns[calls] + float(rank.zero_ns - job.base_ns))
        step = job.steps.at(begin_ns) if len(job.steps) else np.zeros(len(calls), np.int64)
        columns.append(tuple(each[step >= 0] for each in (at * steps + step, name, spans.duration_ns[calls])))
    place, name, took_ns = (np.concatenate(each) for each in zip(*columns, strict=True))
    usual_ns = np.zeros(len(names) + 1)
    for one in np.unique(name).tolist():
        usual_ns[one] = max(1.0, float(np.median(took_ns[name == one])))
    count = len(job.ranks) * steps
    took, usual = (np.bincount(place, each, count) for each in (np.minimum(took_ns, _MOST * usual_ns[name]), usual_ns[name]))
    return np.where(usual > 0, took / np.maximum(usual, 1.0), np.nan).reshape(-1, steps)


def paced(work: RankWork, factor: float) -> RankWork:
    """Return work whose host takes ``factor`` times as long to issue it."""

    def own_time(task: Task) -> Task:
        longer_ns = (factor - 1) * min(task.call_ns, _LONGEST_ISSUING_NS)
        return replace(task, call_ns=task.call_ns + longer_ns, tail_ns=task.tail_ns * (factor if task.tail_ns > 0 else 1.0))

    return replace(work, tasks=tuple(map(own_time, work.tasks)))
