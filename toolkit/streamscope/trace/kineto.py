"""Reads Kineto's Chrome JSON, as PyTorch's profiler writes it: kernels, calls, ranges.

A time is in µs, with three decimals, and becomes whole ns. A kernel is joined with its launch by the correlation that both name; flows say
the same once more, and are not looked at. Files of ROCm have the same categories, with HIP's names of calls.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import IO, Any, Literal

import numpy as np
import numpy.typing as npt

from streamscope.errors import TraceError, printable
from streamscope.trace.calls import call_kinds
from streamscope.trace.foreign import Activities, busiest_gpu, counted, foreign_trace, joined
from streamscope.trace.kineto_events import EventsReader
from streamscope.trace.spans import SpanKind
from streamscope.trace.trace import DeviceInfo, Trace

_DEVICE = {
    "kernel": SpanKind.KERNEL, "gpu_memcpy": SpanKind.COPY, "gpu_memset": SpanKind.SET, "memcpy": SpanKind.COPY, "memset": SpanKind.SET,
}  # fmt: skip
"""The last two stand in files of PyTorch before 1.12, as do ``Kernel``, ``Runtime`` and ``Operator``."""
_RANGES = ("cpu_op", "user_annotation", "operator", "nvtx")
_CALLS = ("runtime", "driver")
_QUIET = frozenset({"", "ac2g", "async_cpu_to_gpu", "async_gpu", "fwdbwd", "trace", "overhead", "cuda_sync", "gpu_user_annotation"})
"""Categories of which nothing is lost when they are not read: flows, what is noted in another way, what is there on the host too."""
_FAR_NS = 2.0**61


def read_kineto(file: IO[bytes], program: str, gpu: int | None = None) -> Trace:
    """Read a Kineto file, open at its start and not compressed; ``program`` is what the trace is called.

    Raises
    ------
    TraceError, LookupError, TypeError, ValueError, ArithmeticError
        It is not such a file, or holds no work of a GPU.
    """
    reader = EventsReader(file)
    names: dict[str, int] = {}
    places: dict[int, str] = {}
    parts, lost, profiler_ns = [], Counter[str](), 0
    for events in reader.pieces():
        by_category = defaultdict(list)
        for event in events:
            if event.ph == "X":
                by_category[event.cat].append(event)
        for category, its_events in by_category.items():
            part = _activities(category.lower(), its_events, names, places, lost)
            if part is not None:
                parts.append(part)
            elif category == "overhead":
                profiler_ns += int(_times([event.dur or 0 for event in its_events]).sum())
    if not parts:
        raise TraceError("it is JSON of Chrome's trace events, but has none of Kineto's categories, such as 'kernel'")
    parts[-1].names = tuple(names)
    found = joined(parts)
    found.places = places
    gpu = busiest_gpu(found, gpu)
    notes = [f"left out: {counted(count, 'event')} {what}" for what, count in sorted(lost.items())]
    if profiler_ns:
        notes.append(f"the profiler itself took {profiler_ns / 1e3:,.1f} µs of host time while it recorded")
    hip = any(name.startswith("hip") for name in names)
    return foreign_trace(
        found, engine="kineto", program=program, device=_device(reader.beside.deviceProperties, gpu, hip=hip), recorder="kineto", gpu=gpu,
        notes=notes, versions=_versions(reader), created=_created(reader.beside.baseTimeNanoseconds, found),
    )  # fmt: skip


def _activities(category: str, events: list[Any], names: dict[str, int], places: dict[int, str], lost: Counter[str]) -> Activities | None:
    """Return the events of one category as activities, or None where they are none."""
    device = _DEVICE.get(category)
    is_call = category.rpartition("_")[2] in _CALLS
    if device is None and not is_call and category not in _RANGES:
        if category not in _QUIET:
            lost[f"of category {printable(category)[:50]!r}"] += len(events)
        return None
    timed = [event for event in events if event.ts is not None and event.dur is not None]
    if len(timed) < len(events):
        lost[f"of category {printable(category)[:50]!r} without a time"] += len(events) - len(timed)
    start_ns = _times([event.ts for event in timed])
    columns: dict[str, Any] = {"start_ns": start_ns, "end_ns": start_ns + _times([event.dur for event in timed])}
    columns["name"] = np.array([names.setdefault(event.name, len(names)) for event in timed], np.int64)
    if is_call:
        used, code = np.unique(columns["name"], return_inverse=True)
        texts = list(names)
        columns["kind"] = call_kinds([texts[each] for each in used.tolist()])[code.reshape(-1)]
    else:
        columns["kind"] = np.full(len(timed), SpanKind.RANGE if device is None else device, np.uint8)
    if device is None:
        columns["place"] = _numbers([event.tid for event in timed], places)
    if device is not None or is_call:
        columns["correlation"] = _whole([event.args and event.args.correlation for event in timed], 0)
        columns["correlation"][columns["correlation"] == 0] = -1  # CUPTI counts from 1
    if device is not None:
        columns |= _on_device(timed, places)
    return Activities(**columns)


def _on_device(events: list[Any], places: dict[int, str]) -> dict[str, npt.NDArray[np.int64]]:
    arguments = [event.args for event in events]
    streams = [event.tid if given is None or given.stream is None else given.stream for event, given in zip(events, arguments, strict=True)]
    gpus = [event.pid if given is None or given.device is None else given.device for event, given in zip(events, arguments, strict=True)]
    return {
        "place": _numbers(streams, places),
        "gpu": _whole(gpus, 0),
        "graph_node": _whole([given and given.graph_node_id for given in arguments], -1),
        "blocks": _products([given and given.grid for given in arguments]),
        "threads": _products([given and given.block for given in arguments]),
        "bytes": _whole([given and given.bytes for given in arguments], 0),
    }


def _times(values: Sequence[Any]) -> npt.NDArray[np.int64]:
    """Return times in µs as whole ns, exact to the last digit in the file."""
    if any(isinstance(value, int | float) for value in values[:1]):
        us = np.array(values, np.float64)
        whole = np.floor(us)
        return _clipped(whole * 1000).astype(np.int64) + np.rint((us - whole) * 1000).astype(np.int64)
    return np.array([int(min(max((value * 1000).to_integral_value(), -int(_FAR_NS)), int(_FAR_NS))) for value in values], np.int64)


def _clipped(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.clip(values, -_FAR_NS, _FAR_NS)


def _whole(values: Sequence[Any], missing: int) -> npt.NDArray[np.int64]:
    """Return whole numbers, which some versions write as texts."""
    try:
        return np.array([missing if value is None else value for value in values], np.int64)
    except (TypeError, ValueError):
        return np.array([missing if value is None else int(value) for value in values], np.int64)


def _numbers(values: Sequence[Any], places: dict[int, str]) -> npt.NDArray[np.int64]:
    """Return numbers of threads or streams; a text that is no number gets one, from -2 down, and is kept in ``places``."""
    if all(type(value) is int for value in values):
        return np.array(values, np.int64)
    texts = {text: number for number, text in places.items()}
    found = []
    for value in values:
        text = "?" if value is None else str(value)
        if text.isascii() and text.removeprefix("-").isdigit():
            found.append(int(text))
        else:
            number = texts.setdefault(text, -2 - len(texts))
            places[number] = text
            found.append(number)
    return np.array(found, np.int64)


def _products(values: Sequence[Any]) -> npt.NDArray[np.int64]:
    """Return the product of each list of three sizes; 0 where there is none, -1 where it cannot be."""
    known: dict[tuple[Any, ...], int] = {(): 0}  # few different ones stand in many events
    found = []
    for value in values:
        sizes = tuple(value or ())
        if sizes not in known:
            known[sizes] = _product(sizes)
        found.append(known[sizes])
    return np.array(found, np.int64)


def _product(sizes: tuple[Any, ...]) -> int:
    if len(sizes) != 3 or any(type(size) is not int for size in sizes):
        raise ValueError(f"the size of a grid or a block must be three whole numbers, not {sizes!r:.50}")
    product = math.prod(sizes)
    return product if min(sizes) >= 0 and product < 2**63 else -1


def _device(properties: Any, gpu: int, *, hip: bool) -> DeviceInfo:
    """Return the GPU by the properties that the file has of each."""
    known = [each for each in properties if isinstance(each, Mapping)] if isinstance(properties, list) else []
    found = next((each for each in known if each.get("id") == gpu), {})
    name = found.get("name")
    kind: Literal["cuda", "hip"] = "hip" if hip or (isinstance(name, str) and name.startswith("AMD")) else "cuda"
    keys = {"numSms": "multiprocessors", "totalGlobalMem": "memory_bytes", "computeMajor": "compute_major", "computeMinor": "compute_minor"}
    details = {ours: found[theirs] for theirs, ours in keys.items() if type(found.get(theirs)) is int and 0 <= found[theirs] < 2**63}
    return DeviceInfo(kind, printable(name)[:200] if isinstance(name, str) else f"GPU {gpu}", details)


def _versions(reader: EventsReader) -> dict[str, str]:
    beside = reader.beside
    libraries = ("cuda_runtime", "cuda_driver", "cupti", "hip_runtime")
    given = {name: getattr(beside, f"{name}_version") for name in libraries}
    given |= beside.versions if isinstance(beside.versions, Mapping) else {}
    kept = ((printable(str(name)), value) for name, value in given.items() if isinstance(value, str | int | float))
    return {name[:100]: printable(str(value))[:100] for name, value in kept}


def _created(base_ns: Any, found: Activities) -> str:
    """Return when the first activity was, in UTC, where the file says so."""
    first_ns = int(found.start_ns.min()) + (base_ns if type(base_ns) is int else 0)
    if not 0 < first_ns < 2**62 or first_ns < 10**18:  # before 2001
        return ""
    return datetime.fromtimestamp(first_ns / 1e9, UTC).isoformat(timespec="seconds")
