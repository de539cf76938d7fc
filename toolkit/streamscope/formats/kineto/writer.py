"""Traces as Kineto's Chrome JSON, for Perfetto, chrome://tracing, Holistic Trace Analysis and whatever else reads PyTorch's traces.

Rows that name processes and threads come first, then the spans in the order of the table, then the arrows,
values of counters, markers, and your notes. A time is in µs, with three
decimals. Times count from the earliest span, since programs drop events before 0. The key ``streamscope`` beside ``traceEvents`` says
whether times are simulated, how they were recorded, and of which engine and program.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.arrays import IntArray
from streamscope.files import suffix_of, written_whole
from streamscope.trace.file_checks import plain
from streamscope.trace.joins import call_rows, distinct
from streamscope.trace.launch_sites import LaunchSites, Site, listed_sites
from streamscope.trace.origins import Origins
from streamscope.trace.spans import DEVICE_KINDS, Basis, SpanKind, SpanTable
from streamscope.trace.trace import Trace
from streamscope.trace.tracks import Track, launched_by, levels_of, numbered, time_before_zero_ns, tracks_of

_OURS = "streamscope"
_EVENTS = "traceEvents"

_RUNTIME, _DRIVER = "cuda_runtime", "cuda_driver"
CATEGORIES = {
    SpanKind.LAUNCH: _RUNTIME,
    SpanKind.GRAPH_LAUNCH: _RUNTIME,
    SpanKind.EVENT: _RUNTIME,
    SpanKind.SYNC: _RUNTIME,
    SpanKind.API: _RUNTIME,
    SpanKind.HOST: "cpu_op",
    SpanKind.COMPILE: "user_annotation",
    SpanKind.RANGE: "user_annotation",
    SpanKind.KERNEL: "kernel",
    SpanKind.COPY: "gpu_memcpy",
    SpanKind.SET: "gpu_memset",
    SpanKind.GRAPH: "gpu_user_annotation",
}
"""Category of each kind of span. A call whose name begins with ``cu``, but not with ``cuda``, is of the driver."""

_CALLS = {SpanKind.KERNEL: "cudaLaunchKernel", SpanKind.COPY: "cudaMemcpyAsync", SpanKind.SET: "cudaMemsetAsync"}
"""Name of a launch by the kind of work that it launched, where its own name is not that of a CUDA call."""
_GRAPH_CALL = "cudaGraphLaunch"
_WAITS = {"wait for an event": "cudaEventSynchronize", "wait for the stream": "cudaStreamSynchronize"}
_WAIT_CALL = "cudaDeviceSynchronize"
"""Names of waits, whose own names are not those of CUDA calls, so that they are read as waits."""
_PREFIXES = {SpanKind.COPY: "Memcpy", SpanKind.SET: "Memset"}
"""How names of copies and sets begin: programs tell them from kernels by that."""
assert set(CATEGORIES) == set(SpanKind)

SITE = "launch site"
"""Argument of a call: number of its place in the user's code among ``sites`` of the key ``streamscope``."""
NOTE = "streamscope note"
"""Category of your notes."""
VALUE = "value"
"""Name of the one part of a counter without a unit."""
FLOW, WAIT = "ac2g", "streamscope wait"
"""Categories of flow arrows: from a call to its work on the device; from a span to those that waited for it."""

_MOST_ALLOCATIONS = 200_000
"""Allocations that a file keeps, since they stand in front of the events; of more it has none."""
_AT_ONCE = 1 << 16
"""Spans whose text is in memory at one time."""
_QUICK = 6
"""Level of compression."""
OTHER = -1
"""Kind of a launch's work on the device, where it is unknown."""


def write_events(trace: Trace, path: Path) -> Path:
    """Write a trace to one file of Chrome JSON, whole or not at all, and return its path."""
    packed = suffix_of(path, ".json", ".json.gz") == ".json.gz"
    with written_whole(path) as temporary, temporary.open("wb") as file:
        if packed:
            with gzip.GzipFile("", "wb", _QUICK, file, mtime=0) as inner:
                _write(trace, inner)
        else:
            _write(trace, file)
    return path


@dataclass(frozen=True)
class _Table:
    """Spans with their threads, and with the times, in ns, and correlations that they have in the file."""

    trace: Trace
    pid: IntArray
    tid: IntArray
    start_ns: IntArray
    correlation: IntArray

    @property
    def spans(self) -> SpanTable:
        return self.trace.spans


def _write(trace: Trace, file: Any) -> None:
    """Write the JSON text of a trace to a file that takes bytes."""
    tracks, track = tracks_of(trace.spans)
    numbers = numbered(tracks)
    head = json.dumps(_head(trace))
    file.write(f'{head[:-1]}, "{_EVENTS}": [\n'.encode())
    file.write(",\n".join(json.dumps(row) for row in _names(trace, tracks, numbers)).encode())
    pid = np.where(trace.spans.kind < SpanKind.KERNEL, _host_pid(trace), trace.spans.gpu)
    start_ns = trace.spans.start_ns + time_before_zero_ns(trace)
    table = _Table(trace, pid, np.array([*numbers, 0], np.int64)[track], start_ns, _from_one(trace.spans.correlation))
    threads = {one.lane: number for one, number in zip(tracks, numbers, strict=True) if not one.device and not one.level}
    for texts in (
        _spans(table),
        _launch_arrows(table),
        _wait_arrows(table),
        _counters(trace),
        _markers(trace, threads),
        _notes(trace, numbers),
    ):
        for some in texts:
            file.write(f",\n{some}".encode())
    file.write(b"\n]}\n")


def _counters(trace: Trace) -> Iterator[str]:
    """Yield the values of counters, some at a time: a unit stands in the place of the name that Chrome wants for each part of a counter."""
    found, zero_ns = trace.counters, time_before_zero_ns(trace)
    heads = []
    for each in found.described:
        pid = each.gpu if each.gpu >= 0 else _host_pid(trace)
        name = f"{each.name} ({each.process})" if each.process else each.name
        heads.append(f'{{"ph": "C", "name": {json.dumps(name)}, "pid": {pid}, "args": {{{json.dumps(each.unit or VALUE)}: ')
    for first in range(0, len(found), _AT_ONCE):
        rows = slice(first, first + _AT_ONCE)
        columns = zip(found.series[rows].tolist(), found.value[rows].tolist(), _us(found.time_ns[rows] + zero_ns), strict=True)
        yield ",\n".join(f'{heads[series]}{value}}}, "ts": {at}}}' for series, value, at in columns)


def _markers(trace: Trace, threads: Mapping[str, int]) -> Iterator[str]:
    """Yield the markers, each on the thread of its lane."""
    found, pid = trace.markers, _host_pid(trace)
    times = _us(found.time_ns + time_before_zero_ns(trace))
    rows = [
        f'{{"ph": "i", "s": "p", "name": {json.dumps(name)}, "pid": {pid}, "tid": {threads.get(thread, 0)}, "ts": {at}}}'
        for name, thread, at in zip(found.names, found.threads, times, strict=True)
    ]
    if rows:
        yield ",\n".join(rows)


def _notes(trace: Trace, numbers: Sequence[int]) -> Iterator[str]:
    """Yield your notes as slices of threads of their own, so many that none lies over another."""
    found, pid = levels_of(trace.user_notes), _host_pid(trace)
    if not found:
        return
    first = 1 + max(numbers, default=0)
    times_ns = np.array([(note.start_ns, note.end_ns) for _, note in found], np.int64)
    columns = zip(found, _us(times_ns[:, 0] + time_before_zero_ns(trace)), _us(times_ns[:, 1] - times_ns[:, 0]), strict=True)
    named = {"ph": "M", "name": "thread_name", "pid": pid, "args": {"name": "your notes"}}
    yield ",\n".join(json.dumps({**named, "tid": first + level}) for level in sorted({level for level, _ in found}))
    yield ",\n".join(
        f'{{"ph": "X", "cat": "{NOTE}", "name": {json.dumps(note.text)}, "pid": {pid}, "tid": {first + level}, '
        f'"ts": {start}, "dur": {length}, "args": {json.dumps({"lane": note.lane} if note.lane else {})}}}'
        for (level, note), start, length in columns
    )


def _from_one(correlation: IntArray) -> IntArray:
    """Return correlations that count from 1, as CUPTI's do: programs take 0 for none. Those that do already stay as they are."""
    found = correlation.astype(np.int64)
    return found + (found >= 0) if (found == 0).any() else found


def _head(trace: Trace) -> dict[str, Any]:
    """Return the fields of the file beside the events."""
    info = trace.info
    each: dict[str, Any] = {}
    if "multiprocessors" in info.device.details:
        each["numSms"] = plain(info.device.details["multiprocessors"])
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": gpu, "name": info.device.of_one(gpu).name, **each} for gpu in trace.gpus or (0,)],
        **({"distributedInfo": {"rank": info.rank, "world_size": info.world_size}} if info.rank is not None else {}),
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": 0,
        "traceName": titled(trace),
        _OURS: {
            "engine": info.engine,
            "program": info.program,
            "recorder": info.recorder,
            "stretched": info.stretched,
            "device": {"kind": info.device.kind, "name": info.device.name},
            **info.job,
            **({"user_notes": whole} if (whole := [asdict(note) for note in trace.user_notes if note.start_ns is None]) else {}),
            **({"sites": listed_sites(sites)} if (sites := _launch_sites(trace).sites) else {}),
            **({"lines_left_out": left_out} if (left_out := _lines_left_out(trace)) else {}),
            **_memory(trace),
            **({} if info.zero_ns is None else {"clock_ns": info.zero_ns - time_before_zero_ns(trace)}),
        },
    }


def titled(trace: Trace) -> str:
    """Name a trace by its program and engine, and say so where its times are not measured."""
    what = "predicted" if trace.info.recorder == "prediction" else "simulated" if trace.info.device.simulated else ""
    return f"{trace.info.program} · {trace.info.engine}" + (f" ({what} times)" if what else "")


def _host_pid(trace: Trace) -> int:
    """Return the number of the process; those of the GPUs have the GPUs' numbers, as Kineto's have."""
    return 1 + max(trace.gpus, default=0)


def _names(trace: Trace, tracks: Sequence[Track], numbers: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Yield the rows that name processes and threads, and order them."""
    device, gpus = trace.info.device, trace.gpus or (0,)
    labels = [f"GPU {gpu}, simulated" if device.simulated else f"GPU {gpu}" for gpu in gpus]
    processes = [(_host_pid(trace), titled(trace), "CPU"), *zip(gpus, (device.of_one(gpu).name for gpu in gpus), labels, strict=True)]
    for place, (pid, name, shown) in enumerate(processes):
        for row, args in (("name", {"name": name}), ("labels", {"labels": shown}), ("sort_index", {"sort_index": place})):
            yield {"ph": "M", "name": f"process_{row}", "pid": pid, "tid": 0, "args": args}
    for index, (track, number) in enumerate(zip(tracks, numbers, strict=True)):
        for row, thread in (("name", {"name": track.label}), ("sort_index", {"sort_index": index})):
            yield {
                "ph": "M",
                "name": f"thread_{row}",
                "pid": track.gpu if track.device else _host_pid(trace),
                "tid": number,
                "args": thread,
            }


def _memory(trace: Trace) -> dict[str, Any]:
    """Return the allocations, or how many they are where these are too many."""
    held = trace.memory
    if len(held) > _MOST_ALLOCATIONS:
        return {"allocations_left_out": len(held)}
    return {"memory": held.since(-time_before_zero_ns(trace)).to_dict()} if len(held) else {}


def _spans(table: _Table) -> Iterator[str]:
    """Yield the events of all spans, some at a time."""
    spans, tid = table.spans, table.tid
    heads, owns, form = _forms(table)
    graph = _graph_ids(spans)
    work = spans.is_kind(DEVICE_KINDS)
    replay = spans.kind == SpanKind.GRAPH
    basis = [f', "basis": "{basis.name.lower()}"' for basis in Basis]
    said, beside = _said(table.trace.origins), _together(table.trace) | _sites(table.trace)
    for first in range(0, len(spans), _AT_ONCE):
        rows = slice(first, first + _AT_ONCE)
        some = form[rows].tolist()
        columns = [
            _argument("stream", tid[rows], work[rows]),
            _argument("correlation", table.correlation[rows], ~replay[rows] & (table.correlation[rows] > 0)),
            _argument("graph id", graph[rows], graph[rows] > 0),
            _argument("graph node id", spans.graph_node[rows], spans.graph_node[rows] >= 0),
            _argument("operation", spans.operation[rows], spans.operation[rows] >= 0),
            _argument("grid", spans.blocks[rows], spans.blocks[rows] > 0, "[{}, 1, 1]"),
            _argument("block", spans.threads[rows], spans.threads[rows] > 0, "[{}, 1, 1]"),
            _argument("bytes", spans.bytes[rows], spans.bytes[rows] > 0),
            _argument("flops", spans.flops[rows], spans.flops[rows] > 0),
            [basis[code] if code else "" for code in spans.basis[rows].tolist()] if spans.basis[rows].any() else None,
            [said.get(code, "") for code in np.where(work[rows], spans.operation[rows], -1).tolist()] if said else None,
            [beside.get(row, "") for row in range(first, first + len(some))] if beside else None,
        ]
        rest = map("".join, zip(*(column for column in columns if column is not None), [""] * len(some), strict=True))
        times = zip(tid[rows].tolist(), _us(table.start_ns[rows]), _us(spans.duration_ns[rows]), strict=True)
        yield ",\n".join(
            f'{heads[code]}, "tid": {thread}, "ts": {start}, "dur": {length}, "args": {{{(owns[code] + others).removeprefix(", ")}}}}}'
            for code, (thread, start, length), others in zip(some, times, rest, strict=True)
        )


def _said(origins: Origins) -> dict[int, str]:
    """Return, for each operation of which something is known, the arguments that say it."""
    return {number: f", {json.dumps(each)[1:-1]}" for number, each in enumerate(origins.words()) if each}


def _together(trace: Trace) -> dict[int, str]:
    """Return, for the row of each collective and of each copy between GPUs, Kineto's arguments that say what it is."""
    found, arguments = trace.collectives, dict[int, dict[str, Any]]()
    texts = {name: found.words(name) for name in ("kind", "op", "communicator")}
    numbers = zip(*(getattr(found, name).tolist() for name in ("span", "instance", "nbytes", "ranks", "sequence", "peer")), strict=True)
    for at, (row, instance, nbytes, ranks, sequence, peer) in enumerate(numbers):
        said = {"Collective name": texts["kind"][at]}
        said |= {"In msg nelems": nbytes, "Out msg nelems": nbytes, "dtype": "Byte"} if nbytes else {}
        said |= {"Group size": ranks} if ranks else {}
        said |= {"Process Group Name": texts["communicator"][at]} if texts["communicator"][at] else {}
        said |= {"Seq": sequence} if sequence >= 0 else {}
        said |= {"Src Rank" if texts["kind"][at] == "recv" else "Dst Rank": peer} if peer >= 0 else {}
        said |= {"reduction": texts["op"][at]} if texts["op"][at] else {}
        arguments[row] = said | ({"instance": instance} if instance >= 0 else {})
    peers = trace.peers
    for row, source, target in zip(peers.span.tolist(), peers.from_gpu.tolist(), peers.to_gpu.tolist(), strict=True):
        arguments[row] = arguments.get(row, {}) | {"fromDevice": source, "toDevice": target}
    return {row: f", {json.dumps(said)[1:-1]}" for row, said in arguments.items()}


def _sites(trace: Trace) -> dict[int, str]:
    """Return, for the row of each call whose place in the user's code is known, the arguments that say it."""
    sites = _launch_sites(trace)
    own = len(trace.sites) > 0  # Kernels of programs and captures say the rest themselves.
    texts = [f", {json.dumps({SITE: number} | (one.words() if own else {}))[1:-1]}" for number, one in enumerate(sites.sites)]
    call, device = launched_by(trace.spans)
    at = np.full(len(trace.spans), -1)
    at[sites.span] = sites.site
    known = at[device] >= 0
    return {row: texts[site] for row, site in zip(call[known].tolist(), at[device[known]].tolist(), strict=True)}


def _launch_sites(trace: Trace) -> LaunchSites:
    """Return the launch sites of a trace; of a program or a capture, its lines, unless one call launched several, as of a graph."""
    if len(trace.sites):
        return trace.sites
    rows, site, sites = _lines(trace)
    call = call_rows(trace.spans, rows)
    least, most = np.full(len(trace.spans), len(sites)), np.full(len(trace.spans), -1)
    np.minimum.at(least, call, site)
    np.maximum.at(most, call, site)
    single = (call >= 0) & (least[call] == most[call])
    return LaunchSites(rows[single], site[single], sites) if single.any() else LaunchSites()


def _lines_left_out(trace: Trace) -> int:
    """Return the number of kernels, copies and sets whose line is known and not in the file."""
    return 0 if len(trace.sites) else len(_lines(trace)[0]) - len(_launch_sites(trace))


def _lines(trace: Trace) -> tuple[IntArray, IntArray, tuple[Site, ...]]:
    """Return the rows of the work whose operation has a line, the site of each, and the sites."""
    of_operation, spans = trace.origins.sites(), trace.spans
    numbers = {site: number for number, site in enumerate(dict.fromkeys(site for site in of_operation if site is not None))}
    number = np.array([*(-1 if site is None else numbers[site] for site in of_operation), -1], np.int64)
    rows = np.flatnonzero(spans.is_kind(DEVICE_KINDS))
    operation = spans.operation[rows]
    site = number[np.where((operation >= 0) & (operation < len(of_operation)), operation, -1)]
    known = np.flatnonzero(site >= 0)[: LaunchSites.MOST]
    return rows[known], site[known], tuple(numbers)


def _argument(name: str, values: IntArray, known: npt.NDArray[np.bool_], form: str = "{}") -> list[str] | None:
    """Return an argument's text for each row, empty where it is not known; None where that is everywhere."""
    if not known.any():
        return None
    before, after = (f', "{name}": {form}').split("{}")
    texts = [f"{before}{value}{after}" for value in values.tolist()]
    return texts if known.all() else [text if there else "" for text, there in zip(texts, known.tolist(), strict=True)]


def _us(times_ns: IntArray) -> list[str]:
    """Return times from 0 on in µs with three decimals, which are exact."""
    whole, rest = np.divmod(times_ns, 1000)
    return [f"{us}.{ns:03}" for us, ns in zip(whole.tolist(), rest.tolist(), strict=True)]


def _forms(table: _Table) -> tuple[list[str], list[str], IntArray]:
    """Return the distinct beginnings of events and of their arguments, and each span's index among them.

    They follow from a span's process, kind, name and symbol, and for a launch from the kind of its work on the device.
    """
    spans, (pids, pid) = table.spans, distinct(table.pid)
    call, device = launched_by(spans)
    target = np.full(len(spans), OTHER, np.int64)
    target[call] = spans.kind[device]
    target[spans.kind != SpanKind.LAUNCH] = OTHER
    kinds, names = len(SpanKind), len(spans.names)
    key = ((spans.symbol.astype(np.int64) + 1) * (names or 1) + spans.name) * kinds + spans.kind
    different, form = np.unique((key * (kinds + 1) + target + 1) * len(pids) + pid, return_inverse=True)
    heads, owns = [], []
    for code in different.tolist():
        rest, process = divmod(code, len(pids))
        rest, aim = divmod(rest, kinds + 1)
        rest, kind = divmod(rest, kinds)
        symbol, name = divmod(rest, names or 1)
        texts = spans.names[name], spans.names[symbol - 1] if symbol else None
        head, own = _form(SpanKind(kind), *texts, aim - 1, int(pids[process]))
        heads.append(head)
        owns.append(own)
    return heads, owns, form


def _form(kind: SpanKind, name: str, symbol: str | None, target: int, pid: int) -> tuple[str, str]:
    """Return how an event begins, and how its arguments begin, for spans of one kind, name, symbol and process."""
    own: dict[str, Any] = {"device": pid} if kind in DEVICE_KINDS else {}
    event = name
    if kind == SpanKind.KERNEL:
        event = name if symbol is None else symbol
    if kind in _PREFIXES and not name.startswith(_PREFIXES[kind]):
        event = f"{_PREFIXES[kind]} ({name})"
    if kind in (SpanKind.LAUNCH, SpanKind.GRAPH_LAUNCH) and not is_call(name):
        event = _GRAPH_CALL if kind == SpanKind.GRAPH_LAUNCH else _CALLS[SpanKind(target) if target != OTHER else SpanKind.KERNEL]
    if kind == SpanKind.SYNC and not is_call(name):
        event = _WAITS.get(name, _WAIT_CALL)
    if event != name:
        own["operation name"] = name
    category = CATEGORIES[kind]
    if category == _RUNTIME and re.match("cu[A-Z]", event):
        category = _DRIVER
    return f'{{"ph": "X", "cat": "{category}", "name": {json.dumps(event)}, "pid": {pid}', json.dumps(own)[1:-1]


def is_call(name: str) -> bool:
    """Tell whether a span's name is that of a call of CUDA, or of HIP, so that other programs know it."""
    return re.match("(cu|cuda|hip)[A-Z]", name) is not None


def _graph_ids(spans: SpanTable) -> IntArray:
    """Return the graph of each span: they are numbered from 1, by the least of their nodes; 0 where no node is known.

    Nodes of two graphs have different ids. Kineto has CUDA's own numbers of graphs, which a trace of ours does not keep.
    """
    found = np.zeros(len(spans), np.int64)
    rows = np.flatnonzero((spans.graph_node >= 0) & (spans.correlation >= 0))
    if len(rows):
        _, launch = np.unique(spans.correlation[rows], return_inverse=True)
        least = np.full(launch.max() + 1, np.iinfo(np.int64).max)
        np.minimum.at(least, launch, spans.graph_node[rows])
        found[rows] = np.unique(least, return_inverse=True)[1][launch] + 1
    return found


def _launch_arrows(table: _Table) -> Iterator[str]:
    """Yield arrows from each call to all that it put on the device. The first has the correlation as its number."""
    call, device = launched_by(table.spans)
    number = table.correlation[device]
    again = np.flatnonzero(np.diff(call, prepend=-1) == 0)
    number[again] = number.max(initial=0) + 1 + np.arange(len(again))
    yield from _arrows(table, FLOW, number, (call, table.start_ns[call]), device)


def _wait_arrows(table: _Table) -> Iterator[str]:
    """Yield arrows from the end of each awaited span to the start of the one that waited."""
    spans = table.spans
    before, after = table.trace.origins.wait_rows(spans)
    at_ns = table.start_ns[before] + np.maximum(spans.duration_ns[before] - 1, 0)  # An arrow begins inside a slice.
    number = int(table.correlation.max(initial=0)) + len(spans) + 1 + np.arange(len(before))
    yield from _arrows(table, WAIT, number, (before, at_ns), after)


def _arrows(table: _Table, category: str, number: IntArray, begin: tuple[IntArray, IntArray], end: IntArray) -> Iterator[str]:
    """Yield the events of arrows, some at a time, from rows at their times to the starts of other rows."""
    named = f'"cat": "{category}", "name": "{category}"}}'
    for first in range(0, len(end), _AT_ONCE):
        some = slice(first, first + _AT_ONCE)
        numbers = number[some].tolist()
        texts = []
        for sign, rows, at_ns in (('"s"', begin[0][some], begin[1][some]), ('"f", "bp": "e"', end[some], table.start_ns[end[some]])):
            columns = zip(numbers, table.pid[rows].tolist(), table.tid[rows].tolist(), _us(at_ns), strict=True)
            texts += [f'{{"ph": {sign}, "id": {one}, "pid": {of}, "tid": {thread}, "ts": {at}, {named}' for one, of, thread, at in columns]
        yield ",\n".join(texts)
