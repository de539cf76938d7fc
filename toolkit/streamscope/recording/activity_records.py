"""CUPTI's activity records, from the bytes of its buffers to columns: no Python object a record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from streamscope.errors import RecordingError
from streamscope.trace.spans import SpanKind

Rows = Any
"""A structured array. NumPy's types know no columns, and mypy would try every overload of each operator on them, for seconds."""
_Layouts = Mapping[int, "Layout"]

_MARKER_START, _MARKER_END = 1 << 1, 1 << 2
_STRUCTURE = 6  # CUPTI_METRIC_VALUE_KIND_NVTX_EXTENDED_PAYLOAD
STRUCTURES = ("kernel", "memcpy", "memcpy_pto_p", "memset", "api", "synchronization", "cuda_event", "marker", "marker_data", "overhead",
              "memory")  # fmt: skip
"""cupti-python's names of the record layouts, without their versions."""


@dataclass(frozen=True)
class Layout:
    """Where the fields of one kind of record lie: ``dtype`` has the names that cupti-python gives the fields of CUPTI's C structures.

    Its rows go to a ``table`` of `ActivityRecords`, in which a ``code`` tells them from other kinds.
    """

    table: str
    code: int
    dtype: np.dtype[Any]

    def place(self, name: str) -> tuple[int, np.dtype[Any]] | None:
        """Return offset and type of a field, None where the structure has none of that name; ``"a.b"`` is a field of a field."""
        offset, dtype = 0, self.dtype
        for part in name.split("."):
            if dtype.fields is None or part not in dtype.fields:
                return None
            inner, at, *_ = dtype.fields[part]
            offset, dtype = offset + at, inner
        return offset, dtype


def _columns(*names: str) -> Rows:
    return np.zeros(0, [(name, np.int64) for name in names])


_COLUMNS: Mapping[str, Mapping[str, str]] = {
    "calls": {
        "start_ns": "start", "end_ns": "end", "thread": "thread_id", "correlation": "correlation_id", "name": "cbid",
        "status": "return_value", "site": "none of CUPTI's",
    },
    "work": {
        "start_ns": "start", "end_ns": "end", "gpu": "device_id", "context": "context_id", "stream": "stream_id",
        "correlation": "correlation_id", "graph_node": "graph_node_id", "name": "name", "way": "copy_kind", "bytes": "bytes",
        "from_gpu": "src_device_id", "to_gpu": "dst_device_id",
        "grid_x": "grid_x", "grid_y": "grid_y", "grid_z": "grid_z", "block_x": "block_x", "block_y": "block_y", "block_z": "block_z",
    },
    "waits": {
        "start_ns": "start", "context": "context_id", "stream": "stream_id", "correlation": "correlation_id",
        "event": "cuda_event_sync_id", "what": "type",
    },
    "events": {"context": "context_id", "stream": "stream_id", "correlation": "correlation_id", "event": "cuda_event_sync_id"},
    "markers": {
        "time_ns": "timestamp", "thread": "object_id.pt.thread_id", "id": "id", "flags": "flags_", "name": "name", "domain": "domain",
    },
    "attributes": {"id": "id", "kind": "payload_kind", "payload": "payload.metric_value_uint64"},
    "overheads": {"start_ns": "start", "end_ns": "end", "thread": "object_id.pt.thread_id", "what": "overhead_kind"},
    "memory": {
        "time_ns": "timestamp", "gpu": "device_id", "address": "address", "bytes": "bytes", "correlation": "correlation_id",
        "what": "memory_operation_type", "kind": "memory_kind", "async": "is_async", "pool": "memory_pool_config.address",
        "pool_bytes": "memory_pool_config.pool.size_",
    },
}  # fmt: skip


@dataclass(frozen=True)
class ActivityRecords:
    """CUPTI's records: arrays of int64 with `_COLUMNS`, in the order of its buffers; times in ns on CUPTI's clock.

    Every row has a ``code``: of calls, 1 for the runtime and 0 for the driver; of work, a `SpanKind`. A call's ``name`` is the number of
    the function, its ``status`` its return value, and its ``site`` that of `LaunchLines.sites`, 0 where unknown; other names, and domains
    of markers, are addresses of ``texts``. ``graph_node`` is 0
    outside graphs; ``from_gpu`` and ``to_gpu`` are 0 where a copy stays on one GPU; ``event`` is the id of one record of an event. Markers
    are ends of NVTX ranges, and attributes say more of one of the same id; ``payloads`` has the bytes of those that came with a structure.
    Overheads are the time that CUPTI and the driver themselves took. Memory is what the driver gave, or got back.
    ``dropped`` counts records that CUPTI says it had no room for.
    """

    calls: Rows = field(default_factory=lambda: _empty("calls"))
    work: Rows = field(default_factory=lambda: _empty("work"))
    waits: Rows = field(default_factory=lambda: _empty("waits"))
    events: Rows = field(default_factory=lambda: _empty("events"))
    markers: Rows = field(default_factory=lambda: _empty("markers"))
    attributes: Rows = field(default_factory=lambda: _empty("attributes"))
    overheads: Rows = field(default_factory=lambda: _empty("overheads"))
    memory: Rows = field(default_factory=lambda: _empty("memory"))
    texts: Mapping[int, str] = field(default_factory=dict)
    payloads: Mapping[int, bytes] = field(default_factory=dict)
    dropped: int = 0

    @classmethod
    def decoded(
        cls,
        buffers: Iterable[npt.NDArray[np.uint8]],
        layouts: _Layouts,
        size_at: Callable[[npt.NDArray[np.uint8], int], int],
        text_at: Callable[[int], str],
        payload_at: Callable[[int], bytes] = lambda _: b"",
        dropped: int = 0,
    ) -> Self:
        """Read the records in CUPTI's buffers, each cut to its filled part, beginning at a multiple of 8 in memory.

        ``layouts`` are of the kinds to read, by CUPTI's number. ``size_at`` says how many bytes the record at an offset of a buffer takes,
        and is asked once for each kind; ``text_at`` returns the text at an address, and ``payload_at`` the payload of a range, once.
        """
        sizes: dict[int, int] = {}
        found: dict[str, list[Rows]] = {table: [] for table in _COLUMNS}
        for buffer in buffers:
            for kind, offsets in _offsets(buffer, sizes, size_at).items():
                if layout := layouts.get(kind):
                    _check_size(kind, layout, sizes[kind])
                    found[layout.table].append(_table(buffer, np.array(offsets, np.int64), layout))
        tables = {table: np.concatenate([_empty(table), *parts]) for table, parts in found.items()}
        named = [tables[table][column] for table, column in TEXT_COLUMNS]
        addresses = np.unique(np.concatenate(named)).tolist()
        texts = {address: text_at(address) for address in addresses if address}
        given = tables["attributes"][(tables["attributes"]["kind"] == _STRUCTURE) & (tables["attributes"]["payload"] != 0)]
        # Each address once: reading frees it.
        content = {address: payload_at(address) for address in np.unique(given["payload"]).tolist()}
        payloads = {one: content[address] for one, address in given[["id", "payload"]].tolist()}
        return cls(**tables, texts=texts, payloads=payloads, dropped=dropped)


TEXT_COLUMNS = (("work", "name"), ("markers", "name"), ("markers", "domain"))
"""Columns of addresses of texts."""
assert set(_COLUMNS) <= {one.name for one in fields(ActivityRecords)}


def _empty(table: str) -> Rows:
    return _columns("code", *_COLUMNS[table])


def _offsets(
    buffer: npt.NDArray[np.uint8], sizes: dict[int, int], size_at: Callable[[npt.NDArray[np.uint8], int], int]
) -> dict[int, list[int]]:
    """Return where in a buffer the records of each kind begin; ``sizes`` are those known so far."""
    kinds = buffer[: len(buffer) & ~3].view(np.int32).data
    found: dict[int, list[int]] = {}
    offset, end = 0, len(buffer)
    while offset + 8 <= end:
        kind = kinds[offset >> 2]
        size = sizes.get(kind)
        if size is None:
            size = sizes[kind] = size_at(buffer, offset)
            if size < 8 or size % 8:
                raise RecordingError(
                    f"CUPTI gives records of kind {kind} an impossible size of {size} bytes", hint="another version of CUPTI is needed"
                )
        found.setdefault(kind, []).append(offset)
        offset += size
    if offset > end:
        raise RecordingError(f"CUPTI's buffer of {end:,} bytes ends in the middle of a record", hint="record again")
    return found


def _check_size(kind: int, layout: Layout, size: int) -> None:
    if size < layout.dtype.itemsize:
        raise RecordingError(
            f"cupti-python is newer than the CUPTI that is loaded: it expects {layout.dtype.itemsize} bytes in records of kind {kind}, "
            f"which have {size}",
            hint="install the one of the driver's CUDA, which streamscope doctor names: pip install 'cupti-python==13.0.*' for CUDA 13.0",
        )


def _table(buffer: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], layout: Layout) -> Rows:
    """Return the records at some offsets as columns; a field that the structure lacks is 0."""
    table = np.zeros(len(offsets), _empty(layout.table).dtype)
    table["code"] = layout.code
    for column, name in _COLUMNS[layout.table].items():
        if (place := layout.place(name)) is not None:
            offset, dtype = place
            words = buffer[: len(buffer) // dtype.itemsize * dtype.itemsize].view(dtype)
            values = words[(offsets + offset) // dtype.itemsize]
            # Addresses and node ids are 64 bits without a sign: as int64 they stay the same bits.
            table[column] = values.view(np.int64) if values.dtype == np.uint64 else values
    return table


def marker_ranges(markers: Rows) -> tuple[Rows, int]:
    """Return NVTX ranges as ``start_ns``, ``end_ns``, ``thread``, ``name``, ``domain``, ``id``: each begin with the end of the same id.

    Those that have only one of the two are left out; the second value is how many.

    A range that a ``RangePush`` began has its ends on one thread, and those nest. Ranges of ``RangeStart`` may end on another.
    """
    starts, ends = (markers[markers["flags"] & flag != 0] for flag in (_MARKER_START, _MARKER_END))
    _, starts_at, ends_at = np.intersect1d(starts["id"], ends["id"], return_indices=True)
    open_ones = len(starts) + len(ends) - 2 * len(starts_at)
    starts, ends = starts[starts_at], ends[ends_at]
    ranges: Rows = np.zeros(len(starts), _columns("start_ns", "end_ns", "thread", "name", "domain", "id").dtype)
    ranges["start_ns"], ranges["end_ns"] = starts["time_ns"], ends["time_ns"]
    for column in ("thread", "name", "domain", "id"):
        ranges[column] = starts[column]
    return ranges[ranges["end_ns"] >= ranges["start_ns"]], open_ones


def may_have_payloads(buffer: npt.NDArray[np.uint8], kind: int, layout: Layout) -> bool:
    """Tell whether a buffer may have ranges with a payload: without, no word stands where it would in a record of that kind."""
    place = layout.place("payload_kind")
    if place is None:
        return False
    words = buffer[: len(buffer) & ~7].view(np.int32)
    payloads = words[place[0] // 4 :: 2]  # Records begin at multiples of 8 bytes.
    return bool(((words[::2][: len(payloads)] == kind) & (payloads == _STRUCTURE)).any())


def layouts_of(cupti: Any, dtypes: Mapping[str, np.dtype[Any]]) -> dict[int, Layout]:
    """Return the layouts of all kinds that are read, by CUPTI's number of them; ``dtypes`` are of the structures in `STRUCTURES`."""
    kinds = cupti.ActivityKind
    read: Sequence[tuple[Any, str, int, str]] = (
        (kinds.CONCURRENT_KERNEL, "work", SpanKind.KERNEL, "kernel"),
        (kinds.MEMCPY, "work", SpanKind.COPY, "memcpy"),
        (kinds.MEMCPY2, "work", SpanKind.COPY, "memcpy_pto_p"),
        (kinds.MEMSET, "work", SpanKind.SET, "memset"),
        (kinds.RUNTIME, "calls", 1, "api"),
        (kinds.DRIVER, "calls", 0, "api"),
        (kinds.SYNCHRONIZATION, "waits", 0, "synchronization"),
        (kinds.CUDA_EVENT, "events", 0, "cuda_event"),
        (kinds.MARKER, "markers", 0, "marker"),
        (kinds.MARKER_DATA, "attributes", 0, "marker_data"),
        (kinds.OVERHEAD, "overheads", 0, "overhead"),
        (kinds.MEMORY2, "memory", 0, "memory"),
    )
    return {int(kind): Layout(table, int(code), dtypes[structure]) for kind, table, code, structure in read}
