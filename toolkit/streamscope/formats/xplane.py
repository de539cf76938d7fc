"""Reads XPlane, the protobuf of JAX's and TensorFlow's profiler: ``HOST.xplane.pb``, of one process.

A file is an ``XSpace`` of planes: one for each GPU, with a line for each stream, and one for the host, with a line for each thread. An
event has a name and statistics, both by number. A call and the work that it launched have one ``correlation_id``. Times are in ps, from
the start of their line. Messages are decoded here: few of their fields are needed, and protobuf is not.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import numpy as np

from streamscope.errors import TraceError, printable
from streamscope.formats.metadata import created_at, device_info, host_info, versions_of
from streamscope.trace.activities import Activities, Names, wanted_gpus, with_peers
from streamscope.trace.file_checks import whole
from streamscope.trace.foreign import foreign_trace
from streamscope.trace.format import Format, ReadOptions
from streamscope.trace.info import DeviceInfo
from streamscope.trace.plausibility import recorded
from streamscope.trace.spans import SpanKind
from streamscope.trace.symbols import call_kinds
from streamscope.trace.trace import Trace
from streamscope.words import counted

_RECORDER = "xplane"
_MOST_BYTES = 1 << 31
"""Protobuf allows no longer messages."""
_MOST_EVENTS = 10_000_000
_START = re.compile(rb"\n[\x80-\xff]*[\x00-\x7f](?:\x08[\x80-\xff]*[\x00-\x7f])?\x12.(?:/host:|/device:|Task Environment)", re.DOTALL)
_GPU = re.compile(r"/device:GPU:(\d{1,9})")
_STREAM = re.compile(r"Stream #(\d{1,9})")
_CALL = re.compile(r"(?:cu|cuda|hip)[A-Z]")
_GRID, _BLOCK = (re.compile(rf"\b{name}:(\d{{1,9}}),(\d{{1,9}}),(\d{{1,9}})") for name in ("grid", "block"))
_SIZE = re.compile(r"\bsize:(\d{1,18})")
_TARGET = re.compile(r"\bdest:(\d{1,9})")
"""GPU to which a copy between GPUs goes."""
_NAMES = {"MemcpyH2D": "Memcpy HtoD", "MemcpyD2H": "Memcpy DtoH", "MemcpyD2D": "Memcpy DtoD", "MemcpyP2P": "Memcpy PtoP"}
_VERSIONS = ("jax_version", "jaxlib_version", "cuda_runtime_version", "cuda_driver_version")
_MOST_KNOWN = 1 << 16
_Value = int | float | str | bytes
_Row = tuple[int, int, int, int, int, int, int, int, int, int, int, int]
"""Kind, name, start and end in ns, place, correlation, node of a graph, blocks, threads, bytes, GPU; of a copy to another GPU, that one."""
_COLUMNS = ("kind", "name", "start_ns", "end_ns", "place", "correlation", "graph_node", "blocks", "threads", "bytes", "gpu", "target")


def _read_xplane(file: io.BufferedReader[Any], options: ReadOptions) -> Trace:
    """Read a trace."""
    space = _Space()
    for number, value in _fields(whole(file, _MOST_BYTES)):
        if number == 1:
            space.add(_Plane(_message(value)))
        elif number in (2, 3):
            space.notes.append(f"JAX's profiler says: {printable(_text(value))[:300]}")
    return space.trace(options)


@dataclass
class _Space:
    """Collects the activities of all planes."""

    rows: list[_Row] = field(default_factory=list)
    names: Names = field(default_factory=Names)
    notes: list[str] = field(default_factory=list)
    threads: dict[int, str] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)
    """Events of the host by kind; a mark has no duration or no name."""
    gpus: dict[int, Mapping[str, _Value]] = field(default_factory=dict)
    versions: dict[str, _Value] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)
    """Planes of devices that are no GPUs."""
    began_ns: _Value = 0
    """When the profiler started, since 1970."""

    def add(self, plane: _Plane) -> None:
        """Add the events of a plane, and its facts on the machine."""
        if gpu := _GPU.fullmatch(plane.name):
            self.gpus[int(gpu[1])] = plane.statistics
            self._add_work(plane, int(gpu[1]))
        elif plane.name.startswith("/host:CPU"):
            self._add_calls(plane)
        elif plane.name.startswith("/device:"):
            self.others.append(plane.name)
        self.versions |= {name: plane.statistics[name] for name in _VERSIONS if name in plane.statistics}
        self.began_ns = plane.statistics.get("profile_start_time", self.began_ns)

    def _add_work(self, plane: _Plane, gpu: int) -> None:
        """Add the work on the streams of a GPU. Other lines of its plane show the same work by module or step."""
        for line in plane.lines():
            if not (stream := _STREAM.match(line.name)):
                continue
            for name, start_ns, end_ns, said in line.events():
                kernel, copy = _text(said.get("kernel_details", "")), _text(said.get("memcpy_details", said.get("memset_details", "")))
                size, target = _SIZE.search(copy), _TARGET.search(copy) if name == "MemcpyP2P" else None
                self._add((
                    _kind_of_work(name, kernel, said), self.names.code(_NAMES.get(name, name)), start_ns, end_ns, int(stream[1]),
                    _whole(said.get("correlation_id"), -1), _whole(said.get("cuda_graph_node_id"), -1),
                    _product(_GRID.search(kernel)), _product(_BLOCK.search(kernel)), int(size[1]) if size else 0, gpu,
                    int(target[1]) if target else -1,
                ))  # fmt: skip

    def _add_calls(self, plane: _Plane) -> None:
        """Add the calls and ranges of the host's threads. A call that launched work has its correlation, and often the kernel's name."""
        for line in plane.lines():
            place = -2 - len(self.threads)
            self.threads[place] = line.name
            for name, start_ns, end_ns, said in line.events():
                correlation = _whole(said.get("correlation_id"), -1)
                call = _CALL.match(name)
                if not name or name.startswith("$") or (end_ns == start_ns and correlation < 0):
                    self.left_out["Python function" if name.startswith("$") else "mark"] += 1
                    continue
                kind = int(call_kinds([name.partition(" ")[0]])[0]) if call else SpanKind.API if correlation >= 0 else SpanKind.RANGE
                self._add((kind, self.names.code(name), start_ns, end_ns, place, correlation, -1, 0, 0, 0, -1, -1))

    def _add(self, row: _Row) -> None:
        self.rows.append(row)
        if len(self.rows) > _MOST_EVENTS:
            raise TraceError(f"it has more than {_MOST_EVENTS:,} calls, ranges, kernels and copies")

    def trace(self, options: ReadOptions) -> Trace:
        """Return the trace."""
        if not any(row[_COLUMNS.index("gpu")] >= 0 for row in self.rows) and self.others:
            raise TraceError(f"it holds work of {self.others[0]!r:.80}, and none of a GPU")
        notes = self.notes + [f"left out: {counted(count, what)}" for what, count in self.left_out.items()]
        columns = np.array(self.rows or np.zeros((0, len(_COLUMNS))), np.int64).T
        named: dict[str, Any] = dict(zip(_COLUMNS, columns, strict=True))
        target = named.pop("target")
        found = Activities(**named | {"kind": named["kind"].astype(np.uint8)}, names=self.names.all(), places=self.threads)
        found = with_peers(found, (target >= 0) & (target != found.gpu), found.gpu, target)
        found = recorded(found, notes)
        gpus = wanted_gpus(found, options.gpu)
        return foreign_trace(
            found, engine=_RECORDER, program=options.program, recorder=_RECORDER, gpu=options.gpu, notes=notes,
            device=host_info({gpu: _device(self.gpus[gpu], gpu) for gpu in gpus}),
            versions=versions_of({name.removesuffix("_version"): value for name, value in self.versions.items()}),
            created=created_at(self.began_ns) or created_at(int(found.start_ns.min())),
        )  # fmt: skip


class _Plane:
    """One plane: its name, its statistics and its lines. Lines stand before the names that they need."""

    def __init__(self, data: bytes) -> None:
        self.name, self._lines = "", list[bytes]()
        self._events, self._statistics = dict[int, str](), dict[int, str]()
        own = list[bytes]()
        for number, value in _fields(data):
            if number == 2:
                self.name = _text(value)
            elif number == 3:
                self._lines.append(_message(value))
            elif number in (4, 5):
                key, name = _entry(_message(value))
                (self._events if number == 4 else self._statistics)[key] = name
            elif number == 6:
                own.append(_message(value))
        self._known: dict[bytes, tuple[str, _Value]] = {}
        self.statistics = dict(map(self.statistic, own))

    def lines(self) -> Iterator[_Line]:
        """Yield the lines in their order."""
        for data in self._lines:
            yield _Line(data, self)

    def event_name(self, number: int) -> str:
        """Return the name of events by its number; empty where there is none."""
        return self._events.get(number, "")

    def statistic(self, data: bytes) -> tuple[str, _Value]:
        """Return the name and the value of a statistic. Many events have the same ones, so each is decoded once."""
        found = self._known.get(data)
        if found is None:
            key, value = 0, cast("_Value", "")
            for number, each in _fields(data):
                if number == 1:
                    key = _whole(each, 0)
                elif number == 5:
                    value = _text(each)
                elif number == 7:
                    value = self._statistics.get(_whole(each, 0), "")
                else:
                    value = each
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            found = self._known[data] = self._statistics.get(key, ""), value
        return found


class _Line:
    """One stream or thread."""

    def __init__(self, data: bytes, plane: _Plane) -> None:
        self.name, self._plane, self._zero_ns = "", plane, 0
        self._events = list[bytes]()
        shown = ""
        for number, value in _fields(data):
            if number == 2:
                self.name = _text(value)
            elif number == 3:
                self._zero_ns = _whole(value, 0)
            elif number == 4:
                self._events.append(_message(value))
            elif number == 11:
                shown = _text(value)
        self.name = shown or self.name

    def events(self) -> Iterator[tuple[str, int, int, dict[str, _Value]]]:
        """Yield name, start and end in ns, and statistics of each event."""
        for data in self._events:
            name = start_ps = length_ps = 0
            said = []
            for number, value in _fields(data):
                if number == 4:
                    said.append(self._plane.statistic(_message(value)))
                elif number == 1:
                    name = _whole(value, 0)
                elif number == 2:
                    start_ps = _whole(value, 0)
                elif number == 3:
                    length_ps = _whole(value, 0)
            start_ns, end_ns = (self._zero_ns + ps // 1000 for ps in (start_ps, start_ps + length_ps))
            yield self._plane.event_name(name), start_ns, end_ns, dict(said)


def _kind_of_work(name: str, kernel: str, said: Mapping[str, _Value]) -> SpanKind:
    if "memcpy_details" in said:
        return SpanKind.COPY
    if "memset_details" in said:
        return SpanKind.SET
    return SpanKind.GRAPH if not kernel and name.startswith("CudaGraph") else SpanKind.KERNEL


def _product(sizes: re.Match[str] | None) -> int:
    """Return the product of three sizes; -1 where no number of 64 bits holds it, which is noted."""
    product = int(sizes[1]) * int(sizes[2]) * int(sizes[3]) if sizes else 0
    return product if product < 2**62 else -1


def _device(said: Mapping[str, _Value], gpu: int) -> DeviceInfo:
    keys = {
        "multiprocessors": "core_count", "memory_bytes": "memory_size", "compute_major": "compute_cap_major",
        "compute_minor": "compute_cap_minor",
    }  # fmt: skip
    kind: Literal["cuda", "hip"] = "hip" if _text(said.get("device_vendor", "")).startswith("AMD") else "cuda"
    name = said.get("gpu_device_name")
    return device_info(kind, name, gpu, **{ours: said.get(theirs) for ours, theirs in keys.items()})


def _entry(data: bytes) -> tuple[int, str]:
    """Return the key of a map's entry, and the name in its value."""
    key, name = 0, ""
    for number, value in _fields(data):
        if number == 1:
            key = _whole(value, 0)
        elif number == 2:
            name = next((_text(each) for inner, each in _fields(_message(value)) if inner == 2), "")
    return key, name


def _fields(data: bytes) -> Iterator[tuple[int, int | float | bytes]]:
    """Yield number and value of each field of a message: a whole number of 64 bits, a double, or bytes."""
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == 0:
            value: int | float | bytes
            value, at = _varint(data, at)
        else:
            size, at = _varint(data, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
            value, at = data[at : at + size], at + size
            if at > end:
                raise ValueError("it ends in the middle of a message")
        yield tag >> 3, value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a whole number, and where the next one begins."""
    byte = data[at]
    if byte < 128:
        return byte, at + 1
    number, shift = byte & 127, 7
    while byte > 127:
        at += 1
        byte = data[at]
        number |= (byte & 127) << shift
        shift += 7
        if shift > 70:
            raise ValueError("a number has too many bytes")
    return number, at + 1


def _message(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError("it has a number in the place of a message")
    return value


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _whole(value: object, missing: int) -> int:
    """Return a whole number of 64 bits with its sign; any other value becomes ``missing``."""
    if type(value) is not int or value >= 2**64:
        return missing
    return value if value < 2**63 else value - 2**64


FORMAT = Format(
    name="xplane",
    label="JAX's XPlane (.xplane.pb)",
    suffixes=(".xplane.pb",),
    sniff=lambda start, path: _START.match(start) is not None,
    read=_read_xplane,
    recorder=_RECORDER,
    stretches=True,
    most_bytes=_MOST_BYTES,
)
