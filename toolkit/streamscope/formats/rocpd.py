"""Reads rocpd, the SQLite files of rocprofv3: tables whose names end with an id, one set of them for each process.

Schemas to 3 have times and places in the rows themselves, later ones in tables of timestamps and tracks. Times are in ns. A call and its
work on the device have the same ``stack_id``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.formats.database import Columns, Tables, table_format, text_of
from streamscope.formats.metadata import device_info, host_info, versions_of
from streamscope.trace.activities import Activities, Names, Streams, joined, wanted_gpus, with_peers
from streamscope.trace.foreign import foreign_trace
from streamscope.trace.format import ReadOptions
from streamscope.trace.joins import looked_up
from streamscope.trace.plausibility import recorded
from streamscope.trace.spans import SpanKind
from streamscope.trace.symbols import call_kinds
from streamscope.trace.trace import Trace

_RECORDER = "rocpd"
_KERNELS = "rocpd_kernel_dispatch"
_COPIES = {
    "MEMORY_COPY_HOST_TO_DEVICE": "Memcpy HtoD", "MEMORY_COPY_DEVICE_TO_HOST": "Memcpy DtoH",
    "MEMORY_COPY_DEVICE_TO_DEVICE": "Memcpy DtoD", "MEMORY_COPY_HOST_TO_HOST": "Memcpy HtoH",
}  # fmt: skip
_PLACES = {"tid": -1, "agent_id": -1, "queue_id": -1, "stream_id": -1}
_SIZES = [f"{what}_size_{axis}" for what in ("grid", "workgroup") for axis in "xyz"]


def _is_rocpd(names: Collection[str]) -> bool:
    """Tell whether tables are those of rocprofv3, by their names."""
    return any(name.startswith(_KERNELS) for name in names)


def _trace(tables: Tables, options: ReadOptions) -> Trace:
    names, streams = Names(), Streams("process")
    parts, devices, streams_known = [], dict[int, str](), True
    for index, name in enumerate(sorted(name for name in tables.names if name.startswith(_KERNELS))):
        process = _Process(tables, name.removeprefix(_KERNELS), index, names, streams)
        parts += [process.kernels(), process.copies(), process.regions()]
        devices |= process.devices
        streams_known &= process.streams_known
    found = joined([part for part in parts if part is not None])
    found.names = names.all()
    notes = list[str]()
    found = recorded(found, notes, streams_known=streams_known)
    gpus = wanted_gpus(found, options.gpu)
    found.places = streams.texts_of(found)
    versions = versions_of({
        f"rocpd {tag}": value
        for name in sorted(tables.names) if name.startswith("rocpd_metadata")
        for tag, value in tables.texts(name, ("tag", "value")) if tag == "schema_version" and isinstance(value, str)
    })  # fmt: skip
    return foreign_trace(
        found, engine=_RECORDER, program=options.program, recorder=_RECORDER, gpu=options.gpu,
        device=host_info({gpu: device_info("hip", devices.get(gpu), gpu) for gpu in gpus}), notes=notes, versions=versions,
        created="", clock_ns=0,
    )  # fmt: skip


class _Process:
    """The tables of one process, whose names have the same ending."""

    def __init__(self, tables: Tables, ending: str, index: int, names: Names, streams: Streams) -> None:
        self._tables, self._ending, self._index, self._names, self._streams = tables, ending, index, names, streams
        self.streams_known = True
        """Whether places are those of streams; else they are of queues, which streams share."""
        self._strings = self._named("rocpd_string", "string")
        events = tables.numbers(f"rocpd_event{ending}", {"id": -1, "stack_id": -1, "category_id": -1})
        self._events = events
        self._stamps = tables.numbers(f"rocpd_timestamp{ending}", {"id": -1, "value": 0})
        self._tracks = tables.numbers(f"rocpd_track{ending}", {"id": -1, **_PLACES})
        agents = tables.numbers(f"rocpd_info_agent{ending}", {"id": -1, "type_index": -1})
        self._agents = agents["id"], np.where(agents["type_index"] >= 0, agents["type_index"], agents["id"])
        gpus = {one for one, kind in self._named("rocpd_info_agent", "type").items() if kind == "GPU"}
        self._gpus = np.array(sorted(gpus), np.int64)
        numbers = dict(zip(*(column.tolist() for column in self._agents), strict=True))
        self.devices = {
            numbers[one]: text for column in ("name", "product_name") for one, text in self._named("rocpd_info_agent", column).items()
            if one in gpus and one in numbers and text
        }  # fmt: skip

    def kernels(self) -> Activities:
        columns = self._rows(_KERNELS, {"kernel_id": None, **dict.fromkeys(_SIZES, 0)})
        names = [self._named("rocpd_info_kernel_symbol", column) for column in ("kernel_name", "display_name")]
        symbols = {one: text for each in names for one, text in each.items() if text}
        sizes = {what: [columns[f"{what}_size_{axis}"] for axis in "xyz"] for what in ("grid", "workgroup")}
        fits = np.logical_and.reduce([(size > 0) & (size < 2**31) for both in sizes.values() for size in both])
        groups = [
            np.where(fits, -(-grid // np.maximum(group, 1)), 0) for grid, group in zip(sizes["grid"], sizes["workgroup"], strict=True)
        ]
        fits &= np.prod([group.astype(np.float64) for group in groups], axis=0) < 2.0**62
        blocks = np.where(fits, np.prod(groups, axis=0), 0)
        threads = np.where(fits, np.prod([np.where(fits, np.minimum(size, 4096), 0) for size in sizes["workgroup"]], axis=0), 0)
        gpu = looked_up(*self._agents, columns["agent_id"], 0)
        return self._activities(
            columns, SpanKind.KERNEL, self._names.codes(columns["kernel_id"], text_of(symbols)), gpu, blocks=blocks, threads=threads
        )

    def copies(self) -> Activities | None:
        if f"rocpd_memory_copy{self._ending}" not in self._tables.names:
            return None
        columns = self._rows("rocpd_memory_copy", {"name_id": -1, "size": 0, "dst_agent_id": -1, "src_agent_id": -1})
        texts = {one: _COPIES.get(text, text) for one, text in self._strings.items()}
        agent = np.where(np.isin(columns["dst_agent_id"], self._gpus), columns["dst_agent_id"], columns["src_agent_id"])
        gpu = looked_up(*self._agents, agent, 0)
        found = self._activities(columns, SpanKind.COPY, self._names.codes(columns["name_id"], text_of(texts)), gpu, bytes=columns["size"])
        ends = columns["src_agent_id"], columns["dst_agent_id"]
        between = np.isin(ends[0], self._gpus) & np.isin(ends[1], self._gpus) & (ends[0] != ends[1])
        return with_peers(found, between, *(looked_up(*self._agents, end, 0) for end in ends))

    def regions(self) -> Activities | None:
        if f"rocpd_region{self._ending}" not in self._tables.names:
            return None
        columns = self._rows("rocpd_region", {"name_id": -1})
        category = looked_up(self._events["id"], self._events["category_id"], columns["event_id"], -1)
        marked = {one for one, text in self._strings.items() if "MARKER" in text or "ROCTX" in text}
        is_range = np.isin(category, np.array(sorted(marked), np.int64))
        different, which = np.unique(columns["name_id"], return_inverse=True)
        kinds = call_kinds([self._strings.get(one, "") for one in different.tolist()])[which.reshape(-1)]
        kinds = np.where(is_range, np.uint8(SpanKind.RANGE), kinds)
        return self._activities(columns, kinds, self._names.codes(columns["name_id"], text_of(self._strings)), None)

    def _activities(self, columns: Columns, kind: Any, name: npt.NDArray[Any], gpu: npt.NDArray[Any] | None, **others: Any) -> Activities:
        stack = looked_up(self._events["id"], self._events["stack_id"], columns["event_id"], -1)
        if gpu is None:
            place = columns["tid"]
        else:
            others["gpu"] = gpu
            by_stream = bool((columns["stream_id"] >= 0).any())
            self.streams_known &= by_stream or not len(name)
            place = columns["stream_id"] if by_stream else columns["queue_id"]
            place = self._streams.places(place, np.full(len(place), self._index + 1))
        return Activities(
            kind=np.broadcast_to(np.asarray(kind, np.uint8), name.shape), name=name, start_ns=columns["start"], end_ns=columns["end"],
            place=place, correlation=np.where(stack > 0, (self._index << 40) + stack, -1),
            process=np.full(len(place), self._index + 1), **others,
        )  # fmt: skip

    def _rows(self, table: str, more: Mapping[str, int | None]) -> Columns:
        """Return the rows of a table, with times, places and events whatever the schema."""
        full = f"{table}{self._ending}"
        if "start_id" not in self._tables.columns(full):
            return self._tables.numbers(full, {"start": None, "end": None, "event_id": -1, **_PLACES, **more})
        columns = self._tables.numbers(full, {"start_id": None, "end_id": None, "track_id": -1, "event_id": -1, **more})
        for name in ("start", "end"):
            columns[name] = looked_up(self._stamps["id"], self._stamps["value"], columns.pop(f"{name}_id"), -1)
        if (columns["start"] < 0).any() or (columns["end"] < 0).any():
            raise ValueError(f"its table {full!r} names timestamps that are not there")
        for name in _PLACES:
            columns[name] = looked_up(self._tracks["id"], self._tracks[name], columns["track_id"], -1)
        return columns

    def _named(self, table: str, column: str) -> dict[int, str]:
        return self._tables.named(f"{table}{self._ending}", column)


FORMAT = table_format(
    _is_rocpd, _trace,
    name="rocpd", label="rocprofv3's rocpd (.db)", suffixes=(".db", ".sqlite"), recorder=_RECORDER,
)  # fmt: skip
