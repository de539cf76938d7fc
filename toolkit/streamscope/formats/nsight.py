"""Reads SQLite exports of Nsight Systems: ``nsys export --type sqlite`` or ``nsys profile --export sqlite``.

Versions differ in their columns; those that matter and are there are read. Times are in ns. A call is joined with its work on the device by
process and correlation.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.errors import printable
from streamscope.formats.database import Columns, Tables, table_format, text_of
from streamscope.formats.metadata import created_at, device_info, host_info, versions_of
from streamscope.formats.nsight_memory import memory_events
from streamscope.trace.activities import ON_DEVICE, Activities, Names, Streams, joined, name_waits, wanted_gpus, with_peers
from streamscope.trace.counters import LONGEST_COUNTER, Noted, Series
from streamscope.trace.foreign import EventWaits, foreign_trace
from streamscope.trace.format import ReadOptions
from streamscope.trace.info import DeviceInfo
from streamscope.trace.joins import distinct, looked_up
from streamscope.trace.memory_events import allocations_of
from streamscope.trace.plausibility import recorded
from streamscope.trace.spans import MOST_GPU, SpanKind
from streamscope.trace.symbols import call_kinds, call_name
from streamscope.trace.trace import Trace
from streamscope.words import counted

_RECORDER = "nsys"
_KERNELS, _COPIES, _SETS, _CALLS, _GRAPHS, _SYNCS, _EVENTS = (
    f"CUPTI_ACTIVITY_KIND_{name}" for name in ("KERNEL", "MEMCPY", "MEMSET", "RUNTIME", "GRAPH_TRACE", "SYNCHRONIZATION", "CUDA_EVENT")
)
_COPY_KINDS = {1: "Memcpy HtoD", 2: "Memcpy DtoH", 8: "Memcpy DtoD", 9: "Memcpy HtoH", 10: "Memcpy PtoP"}
_PEER = 10
_GRID, _BLOCK = ([f"{size}{axis}" for axis in "XYZ"] for size in ("grid", "block"))
_SYMBOLS = ("demangledName", "mangledName", "shortName")
_PUSHED, _STARTED = 59, 60
"""NVTX ranges that were pushed and popped, and those that were started and ended."""
_MARK = 34
"""NVTX marks."""
_METRICS = "GPU_METRICS"
_GPU_OF_TYPE = 0xFF
"""Bits of the type of a metric that are the GPU's number on the machine."""
_STREAM_WAIT, _STREAM_SYNC = 2, 3
_THREAD = (1 << 24) - 1
"""Bits of a thread in Nsight's global ids; the 24 bits above are the process."""
_SAYS_LOST = re.compile(r"not all|lost|dropp|incomplete|missing", re.IGNORECASE)


def _is_nsight(names: Collection[str]) -> bool:
    """Tell whether tables are those of Nsight Systems, by their names."""
    return "StringIds" in names and any(name.startswith(("CUPTI_ACTIVITY_KIND_", "NVTX_EVENTS")) for name in names)


def _trace(tables: Tables, options: ReadOptions) -> Trace:
    texts = tables.named("StringIds", "value")
    names, streams = Names(), Streams("process", "context")
    calls = _calls(tables, texts, names)
    graphs = _others(tables, _GRAPHS, SpanKind.GRAPH, "graph", names, streams)
    sets = _others(tables, _SETS, SpanKind.SET, "Memset", names, streams)
    parts = [calls, graphs, sets, _kernels(tables, texts, names, streams), _copies(tables, names, streams), _ranges(tables, texts, names)]
    found = joined([part for part in parts if part is not None])
    found.names = names.all()
    odd = list[str]()
    found = recorded(found, odd)
    keys: tuple[str, ...] = ("cuDevice", "id")
    numbers = _machine_numbers(tables)
    if numbers and _number_gpus(found, numbers):
        keys, found.fact = ("id",), np.full(len(found), -1)  # GPUs of copies have the numbers of their processes.
    gpus = wanted_gpus(found, options.gpu)
    found.places = streams.texts_of(found)
    if _SYNCS in tables.names:
        waits = tables.numbers(_SYNCS, {"correlationId": -1, "globalPid": 0, "contextId": -1, "streamId": -1, "syncType": -1})
        waits = {name: values[waits["syncType"] == _STREAM_SYNC] for name, values in waits.items()}
        name_waits(found, _correlation(waits, waits["globalPid"] >> 24), _places(waits, streams), options.gpu)
    notes = []
    if graphs is not None and len(graphs):
        notes.append(
            f"{counted(len(graphs), 'graph launch')} recorded as a whole: the kernels inside are not in the file "
            "(nsys profile --cuda-graph-trace=node records them)"
        )
    memory = memory_events(tables, texts, calls, found, numbers if len(keys) == 1 else {}, odd)
    overhead = tables.numbers("PROFILER_OVERHEAD", {"start": 0, "end": 0})
    said = [text for (text,) in tables.texts("DIAGNOSTIC_EVENT", ("text",)) if isinstance(text, str) and _SAYS_LOST.search(text)]
    notes += [f"Nsight Systems says: {printable(text)[:300]}" for text in list(dict.fromkeys(said))[:5]]
    return foreign_trace(
        found, engine=_RECORDER, program=options.program, recorder=_RECORDER, gpu=options.gpu,
        device=host_info({gpu: _device(tables, gpu, keys) for gpu in gpus}),
        waits=_waits(tables, calls, streams), profiler=(overhead["start"], overhead["end"]),
        versions=_versions(tables), created=created_at(_began_ns(tables)), clock_ns=_began_ns(tables),
        ledger={"lost_records": float(len(said))} if said else {},
        noted=_noted(tables, texts, odd, cuda_numbers=len(keys) > 1), memory=partial(allocations_of, memory), notes=[*notes, *odd],
    )  # fmt: skip


def _correlation(columns: Columns, process: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return numbers that differ between processes, too: each counts its own from 1."""
    known = columns["correlationId"] > 0
    return np.where(known, ((process & _THREAD) << 32) | (columns["correlationId"] & 0xFFFFFFFF), -1)


def _process(ids: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the numbers of processes by global ids; -1 where the version has none."""
    process = ids >> 24 & _THREAD
    return np.where((ids > 0) & (process > 0), process, -1)


def _places(columns: Columns, streams: Streams) -> npt.NDArray[np.int64]:
    return streams.places(columns["streamId"], columns["globalPid"] >> 24 & _THREAD, columns["contextId"])


def _calls(tables: Tables, texts: Mapping[int, str], names: Names) -> Activities | None:
    if _CALLS not in tables.names:
        return None
    columns = tables.numbers(_CALLS, {"start": None, "end": None, "globalTid": -1, "correlationId": -1, "nameId": None})
    different, which = np.unique(columns["nameId"], return_inverse=True)
    plain = [call_name(texts.get(number, f"#{number}")) for number in different.tolist()]
    return Activities(
        kind=call_kinds(plain)[which.reshape(-1)],
        name=np.array([names.code(name) for name in plain], np.int64)[which.reshape(-1)],
        start_ns=columns["start"],
        end_ns=columns["end"],
        place=columns["globalTid"] & _THREAD,
        correlation=_correlation(columns, columns["globalTid"] >> 24),
        process=_process(columns["globalTid"]),
    )


def _device_rows(tables: Tables, table: str, more: Mapping[str, int | None]) -> Columns:
    columns: dict[str, int | None] = {
        "start": None,
        "end": None,
        "deviceId": 0,
        "streamId": -1,
        "correlationId": -1,
        "globalPid": 0,
        "contextId": -1,
    }
    return tables.numbers(table, {**columns, "graphNodeId": 0, "bytes": 0, **more})


def _on_device(columns: Columns, kind: SpanKind, name: npt.NDArray[Any], streams: Streams) -> Activities:
    return Activities(
        kind=np.full(len(name), kind, np.uint8), name=name, start_ns=columns["start"], end_ns=columns["end"],
        place=_places(columns, streams),
        correlation=_correlation(columns, columns["globalPid"] >> 24), gpu=columns["deviceId"], bytes=columns["bytes"],
        graph_node=np.where(columns["graphNodeId"] > 0, columns["graphNodeId"], -1), process=_process(columns["globalPid"]),
    )  # fmt: skip


def _kernels(tables: Tables, texts: Mapping[int, str], names: Names, streams: Streams) -> Activities | None:
    if _KERNELS not in tables.names:
        return None
    columns = _device_rows(tables, _KERNELS, dict.fromkeys(_SYMBOLS, -1) | dict.fromkeys((*_GRID, *_BLOCK), 0))
    symbol = columns[_SYMBOLS[0]]
    for other in _SYMBOLS[1:]:
        symbol = np.where(symbol < 0, columns[other], symbol)
    found = _on_device(columns, SpanKind.KERNEL, names.codes(symbol, text_of({-1: "kernel"} | dict(texts))), streams)
    found.blocks, found.threads = (_product([columns[axis] for axis in axes]) for axes in (_GRID, _BLOCK))
    return found


def _copies(tables: Tables, names: Names, streams: Streams) -> Activities | None:
    if _COPIES not in tables.names:
        return None
    columns = _device_rows(tables, _COPIES, {"copyKind": 0, "srcDeviceId": -1, "dstDeviceId": -1})
    kind = np.where(np.isin(columns["copyKind"], list(_COPY_KINDS)), columns["copyKind"], 0)
    found = _on_device(columns, SpanKind.COPY, names.codes(kind, text_of(_COPY_KINDS | {0: "Memcpy"})), streams)
    source, target = columns["srcDeviceId"], columns["dstDeviceId"]
    return with_peers(found, (columns["copyKind"] == _PEER) & (source >= 0) & (target >= 0) & (source != target), source, target)


def _others(tables: Tables, table: str, kind: SpanKind, name: str, names: Names, streams: Streams) -> Activities | None:
    """Return the sets or the graphs of a table."""
    if table not in tables.names:
        return None
    columns = _device_rows(tables, table, {})
    return _on_device(columns, kind, np.full(len(columns["start"]), names.code(name)), streams)


def _product(sizes: list[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    """Return the product of three sizes, -1 where it cannot be, which is noted."""
    fits = np.logical_and.reduce([(size >= 0) & (size < 2**31) for size in sizes])
    fits &= np.prod([size.astype(np.float64) for size in sizes], axis=0) < 2.0**62
    return np.where(fits, np.prod([np.where(fits, size, 0) for size in sizes], axis=0), -1)


def _ranges(tables: Tables, texts: Mapping[int, str], names: Names) -> Activities | None:
    """Return the NVTX ranges that have an end, and a text in the row itself or among the strings."""
    if "NVTX_EVENTS" not in tables.names:
        return None
    columns = tables.numbers("NVTX_EVENTS", {"start": None, "end": -1, "eventType": _PUSHED, "globalTid": -1, "textId": -1})
    name = names.codes(columns["textId"], text_of({-1: "range"} | dict(texts)))
    own = tables.texts("NVTX_EVENTS", ("text",))
    for row, (text,) in enumerate(own):
        if isinstance(text, str):
            name[row] = names.code(text)
    chosen = np.isin(columns["eventType"], (_PUSHED, _STARTED)) & (columns["end"] >= 0)
    kind = np.full(len(name), SpanKind.RANGE, np.uint8)
    found = Activities(
        kind=kind, name=name, start_ns=columns["start"], end_ns=columns["end"], place=columns["globalTid"] & _THREAD,
        process=_process(columns["globalTid"]),
    )  # fmt: skip
    return found.rows(chosen)


def _noted(tables: Tables, texts: Mapping[int, str], said: list[str], *, cuda_numbers: bool) -> Noted:
    """Return NVTX marks, and metrics of the GPUs: the last tables that are read, since metrics are many, and a file is whole without them.

    ``cuda_numbers``: whether GPUs have CUDA's numbers in the trace, and not those of the machine.
    """
    found = Noted()
    if "NVTX_EVENTS" in tables.names:
        marks = tables.numbers("NVTX_EVENTS", {"start": None, "eventType": _PUSHED, "globalTid": -1, "textId": -1})
        rows = np.flatnonzero(marks["eventType"] == _MARK).tolist()
        own = [text for (text,) in tables.texts("NVTX_EVENTS", ("text",))] if rows else []
        columns = (marks["start"].tolist(), marks["textId"].tolist(), (marks["globalTid"] & _THREAD).tolist())
        names = [own[row] if own and isinstance(own[row], str) else texts.get(columns[1][row], "") for row in rows]
        shown = [printable(name)[:LONGEST_COUNTER] or "mark" for name in names]
        found.add_markers([(columns[0][row], name, f"thread {columns[2][row]}") for row, name in zip(rows, shown, strict=True)])
    if _METRICS in tables.names:
        try:
            _add_metrics(tables, found, cuda_numbers=cuda_numbers)
        except (ValueError, sqlite3.Error) as error:
            said.append(f"left out: metrics of the GPUs: {error}")
    return found


def _add_metrics(tables: Tables, found: Noted, *, cuda_numbers: bool) -> None:
    """Add the metrics of the GPUs, as ``--gpu-metrics-devices`` samples them: ``"SMs Active [Throughput %]"``."""
    columns = tables.numbers(_METRICS, {"timestamp": None, "typeId": 0, "metricId": None, "value": None})
    named = {(kind, metric): name for kind, metric, name in tables.texts(f"TARGET_INFO_{_METRICS}", ("typeId", "metricId", "metricName"))}
    cuda = {one: number for one, number in tables.texts("TARGET_INFO_GPU", ("id", "cuDevice")) if cuda_numbers}
    (kinds, kind_of), (metrics, metric_of) = distinct(columns["typeId"]), distinct(columns["metricId"])
    pairs, which = distinct(kind_of * len(metrics) + metric_of)
    numbers = []
    for pair in pairs.tolist():
        kind, metric = int(kinds[pair // len(metrics)]), int(metrics[pair % len(metrics)])
        text = named.get((kind, metric))
        name, _, unit = (printable(text) if isinstance(text, str) and text else f"metric {metric}").partition(" [")
        gpu = kind & _GPU_OF_TYPE
        gpu = cuda.get(gpu, gpu)
        known = isinstance(gpu, int) and 0 <= gpu <= MOST_GPU
        numbers.append(
            found.number(Series(name[:LONGEST_COUNTER] or "?", unit.removesuffix("]")[:LONGEST_COUNTER], gpu=gpu if known else -1))
        )
    if numbers:
        found.add_values(np.array(numbers)[which], columns["timestamp"], columns["value"])


def _waits(tables: Tables, calls: Activities | None, streams: Streams) -> EventWaits | None:
    """Return the waits of streams for events: each is for the last record of its event before the call that waits."""
    if calls is None or not {_SYNCS, _EVENTS} <= tables.names:
        return None
    keys: dict[str, int | None] = {"streamId": None, "correlationId": None, "globalPid": 0, "contextId": -1, "eventId": None}
    waited = tables.numbers(_SYNCS, keys | {"syncType": None})
    waited = {name: values[waited["syncType"] == _STREAM_WAIT] for name, values in waited.items()}
    recorded = tables.numbers(_EVENTS, keys)
    for columns in (waited, recorded):
        columns["ns"] = looked_up(calls.correlation, calls.start_ns, _correlation(columns, columns["globalPid"] >> 24), -1)
        columns["place"] = _places(columns, streams)
        columns["event"] = ((columns["globalPid"] >> 24 & _THREAD) << 32) | (columns["eventId"] & 0xFFFFFFFF)
    order = np.lexsort((recorded["ns"], recorded["event"]))
    recorded = {name: values[order] for name, values in recorded.items()}
    first = np.searchsorted(recorded["event"], waited["event"], side="left")
    last = np.searchsorted(recorded["event"], waited["event"], side="right")
    before = np.array([
        low + int(np.searchsorted(recorded["ns"][low:high], at)) - 1
        for low, high, at in zip(first.tolist(), last.tolist(), waited["ns"].tolist(), strict=True)
    ], np.int64)  # fmt: skip
    known = (before >= first) & (waited["ns"] >= 0)
    before = before[known]
    return EventWaits(recorded["place"][before], recorded["ns"][before], waited["place"][known], waited["ns"][known])


def _machine_numbers(tables: Tables) -> dict[tuple[int, int], int]:
    """Return the machine's numbers of GPUs by process and number in it, where processes number them by themselves; else nothing.

    With one visible GPU each, each calls its own 0.
    """
    numbers = {"pid": -1, "cudaId": -1, "gpuId": -1}
    if not tables.columns("TARGET_INFO_CUDA_DEVICE").issuperset(numbers):
        return {}
    columns = tables.numbers("TARGET_INFO_CUDA_DEVICE", numbers)
    gpus = {(pid & _THREAD, cuda): gpu for pid, cuda, gpu in zip(*(columns[name].tolist() for name in numbers), strict=True)}
    return gpus if len(set(gpus.values())) > len({cuda for _, cuda in gpus}) else {}


def _number_gpus(found: Activities, numbers: Mapping[tuple[int, int], int]) -> bool:
    """Give GPUs the numbers of the machine; tell whether all of them are known."""
    rows = np.flatnonzero(found.is_kind(ON_DEVICE))
    pairs, which = np.unique(np.stack((found.process[rows], found.gpu[rows])), axis=1, return_inverse=True)
    known = [numbers.get((pid, cuda), -1) for pid, cuda in pairs.T.tolist()]
    if not known or min(known) < 0:
        return False
    found.gpu = found.gpu.copy()
    found.gpu[rows] = np.array(known, np.int64)[which.reshape(-1)]
    return True


def _device(tables: Tables, gpu: int, keys: Sequence[str]) -> DeviceInfo:
    """Return the GPU of a number, by the table of GPUs, or the only one that is there."""
    rows: list[dict[str, Any]] = []
    there = [name for name in ("cuDevice", "id", "name", "smCount", "totalMemory") if name in tables.columns("TARGET_INFO_GPU")]
    if "name" in there:
        rows = [dict(zip(there, row, strict=True)) for row in tables.texts("TARGET_INFO_GPU", there)]
    found = next((row for key in keys for row in rows if row.get(key) == gpu), rows[0] if len(rows) == 1 else {})
    return device_info("cuda", found.get("name"), gpu, multiprocessors=found.get("smCount"), memory_bytes=found.get("totalMemory"))


def _versions(tables: Tables) -> dict[str, str]:
    kept = {"EXPORT_PRODUCT_VERSION": "Nsight Systems", "EXPORT_SCHEMA_VERSION": "schema of Nsight Systems"}
    rows = tables.texts("META_DATA_EXPORT", ("name", "value"))
    return versions_of({kept[name]: str(value) for name, value in rows if name in kept})


def _began_ns(tables: Tables) -> int | None:
    """Return when the session began, at which its clock shows 0, in ns since 1970; None where the export does not say it."""
    return next((start_ns for (start_ns,) in tables.texts("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",)) if created_at(start_ns)), None)


FORMAT = table_format(
    _is_nsight, _trace,
    name="nsight", label="an SQLite export of Nsight Systems", suffixes=(".sqlite", ".db"), recorder=_RECORDER,
)  # fmt: skip
