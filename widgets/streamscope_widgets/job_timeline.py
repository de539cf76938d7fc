"""A job's live timeline: some of its ranks on one axis, and a map of all ranks and steps that chooses them. ``ranks.js`` draws the map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from streamscope.arrays import FloatArray, IntArray
from streamscope.errors import TraceError
from streamscope.trace.trace import TimelineGroup
from streamscope.words import counted, shortened
from streamscope_widgets.columns import ColumnBlock
from streamscope_widgets.messages import CellAnswer, RanksAnswer

if TYPE_CHECKING:
    from streamscope.ranks.job import Job

MOST_SHOWN = 8
"""Ranks on the timeline, if nobody chooses others."""
_MOST_LATE = 4
MOST_CELLS = 4_000_000
"""Of more, neighbouring steps share one cell."""
_MOST_GROUPS, _MOST_WORDS = 60, 1000
_LEVELS = 255


@dataclass(frozen=True)
class JobGroup(TimelineGroup):
    """Ranks of a job as one group of a timeline: ``job`` has all of them, ``ranks`` are the numbers of those that are shown."""

    job: Job | None = None
    ranks: tuple[int, ...] = ()


def job_groups(job: Job, ranks: Sequence[int] | None = None) -> tuple[TimelineGroup, ...]:
    """Return some ranks of a job as one group; by default those to look at first.

    Raises
    ------
    TraceError
        There is no such rank, none of them has work of a GPU, or there are more spans than a trace keeps.
    """
    trace = job.trace(first_ranks(job) if ranks is None else ranks)
    return (JobGroup(trace, label="job", job=job, ranks=tuple(trace.gpus)),)


def first_ranks(job: Job) -> list[int]:
    """Return the ranks to look at first: all, if they are few; else those that are late, and those that wait most."""
    working = [at for at, rank in enumerate(job.ranks) if len(rank.work)]
    if len(working) > MOST_SHOWN:
        place = {rank.number: at for at, rank in enumerate(job.ranks)}
        most = np.argsort(-job.waiting_by_step().sum(axis=1), kind="stable").tolist()
        first = dict.fromkeys([*(place[late.rank] for late in job.late[:_MOST_LATE]), *most])
        working = [at for at in first if at in set(working)][:MOST_SHOWN]
    return sorted(job.ranks[at].number for at in working)


def job_of(groups: Sequence[TimelineGroup]) -> JobGroup | None:
    """Return the group of a job's ranks; None for other timelines."""
    return groups[0] if groups and isinstance(groups[0], JobGroup) else None


def _delays(job: Job) -> tuple[IntArray, FloatArray]:
    """Return of each collective the part that began last, -1 where that is unknown, and how long others waited for it at most, in µs."""
    operation, waits = job.matched.operation, job.waits
    last = np.full(int(operation.max(initial=-1)) + 1, -1)
    longest_us = np.zeros(len(last))
    known = np.flatnonzero(waits.known & (operation >= 0))
    last[operation[known]] = waits.last[known]
    np.maximum.at(longest_us, operation[known], waits.waiting_ns[known] / 1e3)
    return last, longest_us


def awaited_by_step(job: Job) -> FloatArray:
    """Return how long others wait for each rank in each step, in µs: an array of ranks by steps, as `Job.waiting_by_step`."""
    last, longest_us = _delays(job)
    last, longest_us = last[last >= 0], longest_us[last >= 0]
    steps = job.steps.at(job.waits.start_ns[last]) if len(job.steps) else np.zeros(len(last), np.int64)
    found = np.zeros((len(job.ranks), max(1, len(job.steps))))
    inside = steps >= 0
    np.add.at(found, (job.matched.parts.rank[last[inside]], steps[inside]), longest_us[inside])
    return found


def encode_ranks(groups: Sequence[TimelineGroup], block: ColumnBlock) -> RanksAnswer:
    """Encode the map of ranks and steps: how long each rank waits, and how long others wait for it, in parts of the longest."""
    group = _known(groups)
    job: Any = group.job
    several = max(1, -(-len(job.ranks) * max(1, len(job.steps)) // MOST_CELLS))
    maps = [job.waiting_by_step(), awaited_by_step(job)]
    starts = np.arange(0, maps[0].shape[1], several)
    maps = [np.maximum.reduceat(each, starts, axis=1) for each in maps]
    most_us = max(float(each.max()) for each in maps)
    waiting, awaited = (block.add(np.ceil(each.reshape(-1) * (_LEVELS / max(most_us, 1e-9)))) for each in maps)
    return {
        "numbers": [rank.number for rank in job.ranks],
        "shown": list(group.ranks),
        "steps": len(starts),
        "several": several,
        "most": most_us * 1e3,
        "late": [(late.rank, shortened(late.words, _MOST_WORDS)) for late in job.late[:_MOST_GROUPS]],
        "groups": _communicators(job),
        "waiting": waiting,
        "awaited": awaited,
    }


def _communicators(job: Job) -> list[tuple[str, list[int]]]:
    """Return the groups of ranks that communicate with each other and are not all, with their names."""
    parts = job.matched.parts
    pairs = np.unique(np.stack([parts.communicator, parts.rank]), axis=1)
    found = dict[tuple[int, ...], str]()
    for code in np.unique(pairs[0]).tolist():
        members = tuple(pairs[1][pairs[0] == code].tolist())
        if 1 < len(members) < len(job.ranks):
            found.setdefault(members, parts.texts[code])
    named = sorted(found.items())[:_MOST_GROUPS]
    return [
        (f"{counted(len(members), 'rank')} from {job.ranks[members[0]].number} on ({shortened(name, 40)})", list(members))
        for members, name in named
    ]


def answer_cell(groups: Sequence[TimelineGroup], rank: int, step: int) -> CellAnswer:
    """Say which collective a rank waits longest in within a step, or the others for it, and where that is on the timeline.

    Where its ranks are not shown, ``span`` is -1, and the answer has the numbers of those to be shown.
    """
    group = _known(groups)
    job: Any = group.job
    at = [each.number for each in job.ranks].index(rank)
    parts, waits, operation = job.matched.parts, job.waits, job.matched.operation
    last, longest_us = _delays(job)
    steps = job.steps.at(waits.start_ns) if len(job.steps) else np.zeros(len(waits.start_ns), np.int64)
    own = np.flatnonzero((parts.rank == at) & (steps == step) & waits.known & (operation >= 0))
    if not len(own):
        raise LookupError(f"rank {rank} takes part in no matched collective of step {step}")
    awaited = last[operation[own]] == own
    cost_us = np.where(awaited, longest_us[operation[own]], waits.waiting_ns[own] / 1e3)
    part = int(own[cost_us.argmax()])
    others = np.flatnonzero(operation == operation[part])
    others = others[np.argsort(-waits.waiting_ns[others], kind="stable")]
    needed = [job.ranks[parts.rank[each]].number for each in (part, last[operation[part]], others[0])]
    needed = needed if needed[0] == needed[1] else needed[:2]
    if not {*needed} <= {*group.ranks}:
        ranks = dict.fromkeys([*needed, *(job.ranks[parts.rank[other]].number for other in others.tolist()), *group.ranks])
        return {"numbers": sorted([*ranks][:MOST_SHOWN]), "span": -1, "start": 0, "end": 0}
    trace = group.trace
    spans, facts = trace.spans, trace.collectives
    rows = facts.span[facts.instance == operation[part]]
    begin, end = int(spans.start_ns[rows].min()), int(spans.end_ns[rows].max())
    return {"numbers": list(group.ranks), "span": int(rows[spans.gpu[rows] == rank][0]), "start": begin, "end": end}


def _known(groups: Sequence[TimelineGroup]) -> JobGroup:
    found = job_of(groups)
    if found is None:
        raise TraceError("these are no ranks of a job", hint="ss.read_ranks reads a job")
    return found
