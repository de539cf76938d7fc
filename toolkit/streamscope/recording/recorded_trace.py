"""From CUPTI's records of any CUDA code to a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from streamscope.arrays import Array, BoolArray
from streamscope.devices.cuda.graph_nodes import demangled
from streamscope.recording.activity_records import ActivityRecords, Rows, marker_ranges
from streamscope.recording.launch_lines import LaunchLines
from streamscope.recording.nccl_ranges import NcclLaunch, NcclRange, nccl_facts, ranges_of_nccl
from streamscope.recording.ranks import ALONE, Rank
from streamscope.trace.activities import Activities, Names, Streams, joined, name_waits, with_peers
from streamscope.trace.communication import collective_kind, communicates
from streamscope.trace.counters import Noted
from streamscope.trace.foreign import EventWaits, foreign_trace
from streamscope.trace.info import DeviceInfo
from streamscope.trace.joins import distinct, looked_up
from streamscope.trace.memory import Allocations
from streamscope.trace.plausibility import timed
from streamscope.trace.spans import SpanKind
from streamscope.trace.symbols import call_kinds
from streamscope.trace.trace import Trace
from streamscope.words import counted

CallName = Callable[[int, int], str]

_COPIES = {1: "copy to device", 2: "copy to host", 8: "copy on device", 9: "copy on host", 10: "copy between devices"}
"""Names of copies by ``CUpti_ActivityMemcpyKind``; those of arrays of textures are just copies."""
_STREAM_WAITED, _STREAM_SYNCHRONIZED = 2, 3
"""Waiters, by ``CUpti_ActivitySynchronizationType``: a stream for an event, or the host for a stream."""
_COMPILING = {1: "compile", 4 << 16: "load module", 5 << 16: "load kernel"}
"""Overheads of the driver, by ``CUpti_ActivityOverheadKind``; the other kinds are CUPTI's own."""


@dataclass(frozen=True)
class CodeBlock:
    """The block of code that was recorded, on CUPTI's clock, and the GPU whose work is kept: all where None.

    Calls outside are not the user's. ``whole_ns``: from when on all is there, if only the last seconds were kept.
    """

    name: str
    start_ns: int
    end_ns: int
    gpu: int | None = None
    whole_ns: int | None = None

    def began(self, rows: Rows) -> Rows:
        """Return the rows that began in the block."""
        return rows[(rows["start_ns"] >= self.start_ns) & (rows["start_ns"] < self.end_ns)]


def recorded_trace(
    records: ActivityRecords,
    block: CodeBlock,
    device: DeviceInfo,
    call_name: CallName,
    notes: Sequence[str] = (),
    rank: Rank = ALONE,
    noted: Noted | None = None,
    lines: LaunchLines | None = None,
    memory: Callable[[int, list[str]], Allocations] | None = None,
    clock_ns: int | None = 0,
) -> Trace:
    """Return CUPTI's records of a block as a trace, whose zero is the start of the block.

    ``device`` names the GPUs whose work is kept. ``call_name`` returns a CUDA function's name by its number, of the
    runtime (1) or driver (0). ``noted``: counters and markers, on CUPTI's clock. ``lines``: those whose numbers
    the calls have. ``memory``: see `foreign_trace`. ``clock_ns``: None where pauses were cut out, so that times are no longer CUPTI's.
    """
    names, streams = Names(), Streams("context")
    placed = {table: _placed(getattr(records, table), streams) for table in ("work", "waits", "events")}
    records = replace(records, **placed)
    called = block.began(records.calls)
    calls, captured = _calls(called, records.work, names, call_name)
    own = block.began(records.overheads)
    compiling = np.isin(own["what"], list(_COMPILING))
    ranges, open_ranges = marker_ranges(records.markers)
    work = _work(records.work, names, records.texts)
    work = _with_collectives(work, calls, ranges_of_nccl(ranges, records.texts, records.payloads), names.all())
    calls.fact = np.where(called["site"] > 0, called["site"] - 1 + len(work.facts), -1)
    parts = [
        calls,
        work,
        _replays(records.work, calls.correlation[calls.kind == SpanKind.GRAPH_LAUNCH], names),
        _ranges(block.began(ranges), names, records.texts),
        _compiling(own[compiling], names),
    ]
    said = [*notes, *_notes(records.dropped, captured, open_ranges)]
    found = timed(replace(joined(parts), names=names.all(), facts=[*work.facts, *(lines.sites if lines else ())]), said)
    found.places = streams.texts_of(found)
    on_stream = records.waits[records.waits["what"] == _STREAM_SYNCHRONIZED]
    name_waits(found, on_stream["correlation"], on_stream["stream"], block.gpu)
    return foreign_trace(
        found,
        engine="recorded",
        program=block.name,
        device=device,
        recorder="cupti",
        stretched=True,
        gpu=block.gpu,
        zero_ns=block.start_ns,
        clock_ns=clock_ns,
        notes=said,
        waits=_event_waits(records, calls),
        noted=noted,
        memory=memory,
        ledger={
            "recorded_ns": block.end_ns - block.start_ns,
            "cupti_itself_ns": _length_ns(own[~compiling]),
            **({} if block.whole_ns is None else {"whole_from_ns": block.whole_ns - block.start_ns}),
            **({"lines_ns": round(lines.cost_ns)} if lines else {}),
            **({"lost_records": float(records.dropped)} if records.dropped else {}),
        },
        **asdict(rank),
    )


def _placed(rows: Rows, streams: Streams) -> Rows:
    """Return rows with streams that are told apart where two contexts number theirs alike."""
    placed = rows.copy()
    placed["stream"] = streams.places(rows["stream"], rows["context"])
    return placed


def _length_ns(rows: Rows) -> int:
    return int((rows["end_ns"] - rows["start_ns"]).sum())


def _notes(dropped: int, captured: int, open_ranges: int) -> Iterable[str]:
    """Note missing and misleading records."""
    if dropped:
        yield f"CUPTI dropped {counted(dropped, 'record')}: busy time and overlap are lower bounds"
    if captured:
        yield f"{counted(captured, 'launch call')} went into CUDA graphs that were captured, and ran nothing by themselves"
    if open_ranges:
        yield f"{counted(open_ranges, 'NVTX range')} left out: begun before the block, or not ended in it"


def _rows(kind: SpanKind | Array, name: int | Array, rows: Rows, place: str, **more: Any) -> Activities:
    """Return rows of a table as activities; kind and name may be one for all."""
    kinds, names = (np.broadcast_to(np.asarray(value, np.int64), len(rows)) for value in (kind, name))
    return Activities(kinds, names, rows["start_ns"], np.maximum(rows["start_ns"], rows["end_ns"]), rows[place], **more)


def _calls(calls: Rows, work: Rows, names: Names, call_name: CallName) -> tuple[Activities, int]:
    """Return the calls, and how many of them were launches that went into graphs.

    A call that put nothing on a device, as it should not, launches nothing: into a graph that is captured, of no bytes, or failed. A kernel
    that has no record of its own for another reason was lost, and its call stays a launch, which is counted.
    """
    name = names.codes(calls["code"] << 32 | calls["name"], lambda key: call_name(key >> 32, key & 0xFFFFFFFF))
    texts = np.array(names.all() or [""])
    kind = call_kinds(names.all())[name] if len(calls) else np.zeros(0, np.uint8)
    launches = np.isin(kind, [SpanKind.LAUNCH, SpanKind.GRAPH_LAUNCH]) & ~np.isin(calls["correlation"], work["correlation"])
    capturing = _while_capturing(calls, texts[name])
    captured = launches & capturing
    kernels = (np.char.find(texts, "Launch") >= 0)[name]
    empty = launches & (~kernels | (calls["status"] != 0))
    kind = np.where(captured | empty | (capturing & (kind == SpanKind.EVENT)), SpanKind.API, kind)
    return _rows(kind, name, calls, "thread", correlation=calls["correlation"]), int(captured.sum())


def _event_waits(records: ActivityRecords, calls: Activities) -> EventWaits:
    """Return the waits of streams for events; both sides have the number of one record of an event."""
    events, waits = records.events, records.waits[records.waits["what"] == _STREAM_WAITED]
    made = calls.rows(calls.kind == SpanKind.EVENT)
    record_ns = looked_up(made.correlation, made.start_ns, looked_up(events["event"], events["correlation"], waits["event"], -1), -1)
    wait_ns = looked_up(made.correlation, made.start_ns, waits["correlation"], -1)
    known = (record_ns >= 0) & (wait_ns >= 0)
    recorded_on = looked_up(events["event"], events["stream"], waits["event"], -1)
    return EventWaits(recorded_on[known], record_ns[known], waits["stream"][known], wait_ns[known])


def _while_capturing(calls: Rows, names: Array) -> BoolArray:
    """Tell of each call whether some thread captured a stream then: a launch may have gone into its graph, from whichever thread."""
    order = np.argsort(calls["start_ns"], kind="stable")
    began, ended = (np.char.find(names, word) >= 0 for word in ("StreamBeginCapture", "StreamEndCapture"))
    capturing = np.zeros(len(calls), bool)
    capturing[order] = np.cumsum(began[order].astype(int) - ended[order]) > 0
    return capturing


def _work(work: Rows, names: Names, texts: Mapping[int, str]) -> Activities:
    """Return kernels by their names, copies and sets by their kind."""
    kernel, copy = work["code"] == SpanKind.KERNEL, work["code"] == SpanKind.COPY
    name = np.full(len(work), names.code("set"), np.int64)
    name[kernel] = names.codes(work["name"][kernel], lambda address: demangled(texts.get(address, "")) or "kernel without a name")
    name[copy] = names.codes(work["way"][copy], lambda way: _COPIES.get(way, "copy"))
    blocks, threads = (work[f"{what}_x"] * work[f"{what}_y"] * work[f"{what}_z"] for what in ("grid", "block"))
    more = {"blocks": blocks, "threads": threads, "graph_node": np.where(work["graph_node"] == 0, -1, work["graph_node"])}
    found = _rows(work["code"], name, work, "stream", **more, **{column: work[column] for column in ("correlation", "bytes", "gpu")})
    return with_peers(found, copy & (work["from_gpu"] != work["to_gpu"]), work["from_gpu"], work["to_gpu"])


def _with_collectives(work: Activities, calls: Activities, ranges: Sequence[NcclRange], names: Sequence[str]) -> Activities:
    """Return work with the facts of kernels that NCCL launched; kernels of graphs have none, since NCCL was called before."""
    used, which = distinct(work.name)
    communicating = np.array([communicates(names[code]) for code in used.tolist()], bool)[which] & (work.kind == SpanKind.KERNEL)
    launch = calls.rows(calls.kind == SpanKind.LAUNCH)
    call = looked_up(launch.correlation, np.arange(len(launch)), work.correlation, -1)
    rows = np.flatnonzero(communicating & (call >= 0)) if ranges else np.zeros(0, np.int64)
    launches = [
        NcclLaunch(int(launch.place[at]), int(launch.start_ns[at]), collective_kind(names[int(work.name[row])]))
        for row, at in zip(rows.tolist(), call[rows].tolist(), strict=True)
    ]
    fact, facts = work.fact.copy(), list(work.facts)
    for row, known in zip(rows.tolist(), nccl_facts(ranges, launches), strict=True):
        if known is not None:
            fact[row] = len(facts)
            facts.append(known)
    return replace(work, fact=fact, facts=facts)


def _replays(work: Rows, launches: Array, names: Names) -> Activities:
    """Return each graph launch on each of its GPUs, from its first node to its last, on the stream of the first."""
    nodes = work[np.isin(work["correlation"], launches)]
    nodes = nodes[np.lexsort((nodes["start_ns"], nodes["gpu"], nodes["correlation"]))]
    _, first = np.unique(nodes[["correlation", "gpu"]], return_index=True)
    whole = nodes[first]
    if len(first):
        whole["end_ns"] = np.maximum.reduceat(nodes["end_ns"], first)
    return _rows(SpanKind.GRAPH, names.code("graph"), whole, "stream", correlation=whole["correlation"], gpu=whole["gpu"])


def _ranges(ranges: Rows, names: Names, texts: Mapping[int, str]) -> Activities:
    return _rows(
        SpanKind.RANGE, names.codes(ranges["name"], lambda address: texts.get(address) or "range without a name"), ranges, "thread"
    )


def _compiling(overheads: Rows, names: Names) -> Activities:
    return _rows(SpanKind.COMPILE, names.codes(overheads["what"], _COMPILING.__getitem__), overheads, "thread")
