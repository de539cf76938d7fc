"""Memory in exports of Nsight Systems: the table that ``nsys profile --cuda-memory-usage=true`` fills.

It has what programs take from CUDA: ``cudaMalloc``, of which pools make their tensors, pinned and managed memory; and what CUDA's own pools
lend to ``cudaMallocAsync``, with the size of the pool.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from streamscope.errors import printable
from streamscope.formats.database import Columns, Tables
from streamscope.trace.activities import Activities
from streamscope.trace.joins import distinct, looked_up, thread_numbers
from streamscope.trace.memory import Level
from streamscope.trace.memory_events import MemoryEvents
from streamscope.trace.nesting import innermost_on
from streamscope.trace.spans import SpanKind

TABLE = "CUDA_GPU_MEMORY_USAGE_EVENTS"
_PROCESS = (1 << 24) - 1
_GIVES_BACK = 1
_KINDS = ("pageable", "pinned", "CUDA", "CUDA array", "managed", "CUDA static", "managed static", "")
"""By the number of the kind of memory; the last one is not known."""
_ON_HOST = 2
"""Kinds below are memory of the host."""
_POOL = "cudaMallocAsync"
_LONGEST = 1_000
"""Most characters of a name; longer ones are cut."""


def memory_events(
    tables: Tables,
    texts: Mapping[int, str],
    calls: Activities | None,
    found: Activities,
    gpu_of: Mapping[tuple[int, int], int],
    said: list[str],
) -> list[MemoryEvents]:
    """Return what was taken and given back, of each kind of memory; nothing where the file has none.

    ``calls``: with their correlations in the file; ``found``: the ranges around them.
    ``gpu_of``: GPUs by process and number in it, where processes number them by themselves.
    """
    if TABLE not in tables.names:
        return []
    wanted: dict[str, int | None] = {
        "start": None, "bytes": None, "address": None, "memKind": -1, "memoryOperationType": None, "deviceId": 0, "globalPid": 0,
        "correlationId": -1, "name": -1, "localMemoryPoolAddress": 0, "localMemoryPoolSize": -1,
    }  # fmt: skip
    try:
        columns = tables.numbers(TABLE, wanted)
    except (ValueError, sqlite3.Error) as error:
        said.append(f"left out: memory of the GPUs: {error}")
        return []
    process = columns["globalPid"] >> 24 & _PROCESS
    kind = np.where((columns["memKind"] >= 0) & (columns["memKind"] < len(_KINDS)), columns["memKind"], len(_KINDS) - 1)
    on_host = kind < _ON_HOST
    pool = np.where(on_host, 0, columns["localMemoryPoolAddress"])
    gpu = np.where(on_host, -1, _gpus(process, columns["deviceId"], gpu_of))
    name, names = _names(columns, process, texts, calls, found)
    events = MemoryEvents(
        time_ns=columns["start"],
        bytes=np.where(columns["memoryOperationType"] == _GIVES_BACK, -columns["bytes"], columns["bytes"]),
        address=_apart(process, columns["address"]),
        gpu=gpu, reserved=np.where(pool != 0, columns["localMemoryPoolSize"], -1), name=name, texts=names,
    )  # fmt: skip
    pools = [replace(events.rows(pool == one), kind=_POOL) for one in np.unique(pool[pool != 0]).tolist()]
    direct = [(one, (kind == one) & (pool == 0)) for one in np.unique(kind).tolist()]
    return [*pools, *(replace(events.rows(rows), kind=_KINDS[one], level=Level.RESERVED) for one, rows in direct if rows.any())]


def _apart(process: npt.NDArray[np.int64], address: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return numbers of addresses that differ between processes."""
    addresses, which = distinct(address)
    return process * max(1, len(addresses)) + which


def _gpus(process: npt.NDArray[np.int64], device: npt.NDArray[np.int64], gpu_of: Mapping[tuple[int, int], int]) -> npt.NDArray[np.int64]:
    """Return the GPU of each row; -2, which is none, where processes number them by themselves and this one is not known."""
    if not gpu_of:
        return device
    pairs, which = np.unique(np.stack((process, device)), axis=1, return_inverse=True)
    return np.array([gpu_of.get((pid, number), -2) for pid, number in pairs.T.tolist()], np.int64)[which.reshape(-1)]


def _names(
    columns: Columns, process: npt.NDArray[np.int64], texts: Mapping[int, str], calls: Activities | None, found: Activities
) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    """Return an index into the texts for each row, -1 where nothing is known, and the texts.

    They are that of the variable, or of the innermost range around the call.
    """
    codes: dict[str, int] = {}
    used, which = distinct(columns["name"])
    known = [texts.get(one, "") if one >= 0 else "" for one in used.tolist()]
    own = np.array([codes.setdefault(printable(text)[:_LONGEST], len(codes)) if text else -1 for text in known], np.int64)[which]
    ranges = np.flatnonzero(found.kind == SpanKind.RANGE)
    if calls is None or not len(ranges) or not len(calls):
        return own, tuple(codes)
    correlation = (process << 32) | (columns["correlationId"] & 0xFFFFFFFF)  # As those of the calls: each process counts its own.
    call = looked_up(calls.correlation, np.arange(len(calls)), np.where(columns["correlationId"] > 0, correlation, -2), -1)
    rows = np.flatnonzero((call >= 0) & (own < 0))
    thread, asked = thread_numbers((found.process[ranges], found.place[ranges]), (calls.process[call[rows]], calls.place[call[rows]]))
    inner = innermost_on(thread, found.start_ns[ranges], found.end_ns[ranges], asked, calls.start_ns[call[rows]])
    inside = np.flatnonzero(inner >= 0)
    used, which = distinct(found.name[ranges[inner[inside]]])
    of_range = np.array([codes.setdefault(printable(found.names[one])[:_LONGEST], len(codes)) for one in used.tolist()], np.int64)
    if len(inside):
        own[rows[inside]] = of_range[which]
    return own, tuple(codes)
