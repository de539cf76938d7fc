"""All ranks of a job as one trace on one clock: for timelines, and for files that other tools open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING

import numpy as np

from streamscope.arrays import Array, IntArray
from streamscope.errors import TraceError
from streamscope.trace.collectives import Collectives
from streamscope.trace.info import DeviceInfo, TraceInfo
from streamscope.trace.origins import Origins
from streamscope.trace.spans import COLUMN_DTYPES, MOST_SPANS, SpanTable
from streamscope.trace.trace import Trace
from streamscope.words import counted, listed

if TYPE_CHECKING:
    from streamscope.ranks.job import Job

_MOST_NAMED = 8
_FEWER = "choose some of them: job.trace(ranks=[0, 1, 2])"


def merged_trace(job: Job, ranks: Sequence[int] | None = None) -> Trace:
    """Return one trace of several ranks; `Job.trace` describes it."""
    known = {rank.number: at for at, rank in enumerate(job.ranks)}
    unknown = [number for number in ranks or () if number not in known]
    if unknown:
        raise TraceError(f"the job has no rank {unknown[0]!r:.40}", hint=f"it has {counted(len(known), 'rank')}, from {min(known)} on")
    wanted = [known[number] for number in sorted(known if ranks is None else set(ranks))]
    working = [at for at in wanted if len(job.ranks[at].work)]
    if not working:
        raise TraceError("none of these ranks has work of a GPU")
    chosen = [at for at in working if job.clocks.group[at] == job.clocks.group[working[0]]]
    count = sum(len(job.ranks[at].trace.spans) for at in chosen)
    if count > MOST_SPANS or (job.matched.parts.rank == np.array(chosen)[:, None]).sum() > Collectives.MOST:
        raise TraceError(f"{counted(len(chosen), 'rank')} have {count:,} spans, or more collectives than a trace keeps", hint=_FEWER)
    columns, rows_of, names, lanes, waits = _columns(job, chosen)
    order = np.argsort(columns["start_ns"], kind="stable")
    new_row = np.empty(len(order), np.int64)
    new_row[order] = np.arange(len(order))
    columns = {name: values[order] for name, values in columns.items()}
    zero_ns = columns["start_ns"].min()
    columns |= {name: columns[name] - zero_ns for name in ("start_ns", "end_ns")}
    lane_of, texts, gpus = _lanes_of(lanes)
    columns["lane"] = lane_of[columns["lane"]]
    spans = SpanTable(**columns, names=tuple(names), lanes=texts, gpus=gpus)
    complete = all(job.ranks[at].trace.origins.complete for at in chosen)
    origins = Origins(row_waits=new_row[np.concatenate(waits)].reshape(-1, 2), complete=complete)
    collectives = _collectives(job, chosen, [new_row[rows] for rows in rows_of])
    return Trace(spans, _info(job, chosen, set(wanted) - set(chosen)), origins, collectives=collectives)


_Lane = tuple[str, int, bool]
"""Name of a lane, its rank, and whether it is of the GPU."""


def _columns(job: Job, chosen: Sequence[int]) -> tuple[dict[str, Array], list[IntArray], dict[str, int], list[_Lane], list[IntArray]]:
    """Return the columns of all ranks below each other, the rows of each, texts of names, lanes with rank and side, and event waits."""
    parts: dict[str, list[Array]] = {name: [] for name in COLUMN_DTYPES}
    names, lanes, rows_of, waits = dict[str, int](), list[_Lane](), list[IntArray](), list[IntArray]()
    base, correlation = 0, 0
    for at in chosen:
        rank = job.ranks[at]
        spans, shift_ns = rank.trace.spans, float(rank.zero_ns - job.base_ns)
        code = np.array([*(names.setdefault(name, len(names)) for name in spans.names), -1], np.int64)
        own: dict[str, Array] = {name: getattr(spans, name) for name in COLUMN_DTYPES}
        own |= {
            "name": code[spans.name],
            "symbol": code[spans.symbol],
            "lane": spans.lane.astype(np.int64) + len(lanes),
            "start_ns": np.rint(job.clocks.job_ns(at, spans.start_ns + shift_ns)).astype(np.int64),
            "end_ns": np.rint(job.clocks.job_ns(at, spans.end_ns + shift_ns)).astype(np.int64),
            "correlation": np.where(spans.correlation >= 0, spans.correlation.astype(np.int64) + correlation, -1),
        }
        for name, values in own.items():
            parts[name].append(values)
        lanes += [(text, rank.number, gpu >= 0) for text, gpu in zip(spans.lanes, spans.gpus, strict=True)]
        rows_of.append(np.arange(base, base + len(spans)))
        waits.append(rank.trace.origins.row_waits.astype(np.int64).reshape(-1, 2) + base)
        correlation += int(spans.correlation.max(initial=-1)) + 1
        base += len(spans)
    return {name: np.concatenate(values) for name, values in parts.items()}, rows_of, names, lanes, waits


def _lanes_of(lanes: Sequence[_Lane]) -> tuple[IntArray, tuple[str, ...], tuple[int, ...]]:
    """Return the new number of each lane, and texts and GPUs of all: those of hosts come first, and each names its rank."""
    order = sorted(range(len(lanes)), key=lambda at: lanes[at][2])
    number = np.empty(len(lanes), np.int64)
    number[order] = np.arange(len(lanes))
    ordered = [lanes[at] for at in order]
    texts = tuple(f"{'GPU' if on_gpu else 'rank'} {rank} {text.removeprefix('GPU 0 ')}" for text, rank, on_gpu in ordered)
    return number, texts, tuple(rank if on_gpu else -1 for _, rank, on_gpu in ordered)


def _collectives(job: Job, chosen: Sequence[int], rows_of: Sequence[IntArray]) -> Collectives:
    """Return the collectives of these ranks: those that were matched are one operation."""
    own: dict[str, list[Array]] = {field.name: [] for field in fields(Collectives) if field.name != "texts"}
    texts: dict[str, int] = {}
    shown = _parts_shown(job, chosen)
    for at, rows in zip(chosen, rows_of, strict=True):
        found = job.ranks[at].trace.collectives
        code = np.array([*(texts.setdefault(text, len(texts)) for text in found.texts), -1], np.int64)
        for name, values in own.items():
            column = getattr(found, name)
            values.append(code[column] if name in ("kind", "op", "communicator") else column)
        own["span"][-1] = rows[found.span]
        mine = job.matched.parts.rank == at
        own["instance"][-1] = job.matched.operation[mine]
        own["ranks"][-1] = np.where(shown[mine] > 0, shown[mine], found.ranks)
    columns = {name: np.concatenate(values) for name, values in own.items()}
    order = np.argsort(columns["span"], kind="stable")
    return Collectives(**{name: values[order] for name, values in columns.items()}, texts=tuple(texts))


def _parts_shown(job: Job, chosen: Sequence[int]) -> IntArray:
    """Return for each part of a collective how many parts are shown, if the one that began last is among them, else 0.

    Then waiting is known, although other ranks of the collective are not shown.
    """
    operation, last, rank = job.matched.operation, job.waits.last, job.matched.parts.rank
    here = np.isin(rank, np.array(chosen)) & (operation >= 0)
    count = np.bincount(operation[here], minlength=int(operation.max(initial=-1)) + 1)
    found: IntArray = np.where((last >= 0) & np.isin(rank[last], np.array(chosen)), np.append(count, 0)[operation], 0)
    return found


def _info(job: Job, chosen: Sequence[int], left_out: set[int]) -> TraceInfo:
    """Return facts about the merged trace: which GPU is which rank, and how far its clock may be off."""
    first = job.ranks[chosen[0]].trace.info
    notes = ["GPU numbers are ranks, and times are on one clock"]
    off_ns = job.clocks.error_ns[list(chosen)]
    if np.isfinite(off_ns).any():
        notes.append(f"the clocks of ranks are off by {off_ns[np.isfinite(off_ns)].max() / 1e3:,.0f} µs at most")
    if left_out:
        told = [str(job.ranks[at].number) for at in sorted(left_out)]
        notes.append(
            f"left out, without work or on another clock: rank {listed(told[:_MOST_NAMED])}{' and more' if len(told) > _MOST_NAMED else ''}"
        )
    name = first.device.name if len(chosen) == 1 else f"{len(chosen)} × {first.device.name}"
    device = DeviceInfo(first.device.kind, name, {"gpus": [job.ranks[at].number for at in chosen]})
    return replace(
        first, program="job", device=device, notes=tuple(notes), rank=None, local_rank=None, world_size=None, host="", zero_ns=None
    )
