"""Traces as a header and one block of binary columns: what the timeline's front end reads.

The header is plain JSON, and describes the columns that `ColumnBlock` puts into the block. ``decode.js`` is the reader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.errors import OutputError, TraceError
from streamscope.trace.info import TraceInfo
from streamscope.trace.spans import DEVICE_KINDS, HOST_KINDS, Basis, SpanKind, SpanTable
from streamscope.trace.trace import TimelineGroup, Trace
from streamscope.words import exact_time_text, shortened, time_text
from streamscope_widgets.columns import ColumnBlock
from streamscope_widgets.overlap_columns import encode_activity, encode_origins, encode_path, encode_waits, header_words

BUNDLE = Path(__file__).parent / "static" / "timeline.js"

BASELINE = "async"
STRETCHED = 0.02
"""A drawn run that differs from the makespan by more than this share says so."""
LONGEST_LABEL = 48
FOREIGN = ("kineto", "nsys", "rocpd", "recorded")
"""Engines of traces of any code: how they were recorded."""
LONGEST_NAME = 1000
"""Letters. C++ names of kernels can be longer than anybody reads, and there can be thousands of them."""
ALIKE = 0.01
"""Two makespans closer than this share are called equally fast."""

BASIS_WORDS = {
    Basis.MEASURED: "both ends measured",
    Basis.DERIVED: "end measured; start is the end less the duration of the gated pass",
    Basis.PLACED: "duration measured; position worked out from order and dependencies",
}


Traces = Sequence[Trace | TimelineGroup] | Mapping[str, Trace] | Mapping[str, TimelineGroup]


@dataclass(frozen=True)
class BlockGroup(TimelineGroup):
    """Blocks as spans, under the spans of the same trace. They are parts of kernels, so they count in no sum."""


@dataclass(frozen=True)
class PairGroup(TimelineGroup):
    """A trace whose spans are joined with those of another: its "operations" are the pairs."""


@dataclass(frozen=True)
class Payload:
    """A header that can be written as JSON, and the block of columns it describes."""

    header: Mapping[str, Any]
    block: bytes


def bundle_source() -> str:
    """Return the JavaScript that draws timelines, in notebooks and in reports.

    Raises
    ------
    OutputError
        The package was put on the path without being built.
    """
    try:
        return BUNDLE.read_text(encoding="utf-8")
    except OSError as error:
        raise OutputError(
            f"the timeline's front end is missing: {BUNDLE.name} cannot be read ({error.strerror})",
            hint="run `make setup`, or `python hatch_build.py` in the clone",
        ) from error


def as_groups(traces: Traces) -> tuple[TimelineGroup, ...]:
    """Return traces as groups with labels that differ: a mapping's keys, else engine names, counted where they repeat.

    Raises
    ------
    TraceError
        There is no trace, or something else.
    """
    pairs = list(traces.items()) if isinstance(traces, Mapping) else [("", item) for item in traces]
    if not pairs:
        raise TraceError("a timeline needs at least one trace", hint="pass a list of traces, or a mapping from label to trace")
    seen: dict[str, int] = {}
    groups = []
    for key, item in pairs:
        if not isinstance(item, Trace | TimelineGroup):
            raise TraceError(f"{type(item).__name__} is not a trace", hint="pass Trace or TimelineGroup objects")
        group = item if isinstance(item, TimelineGroup) else TimelineGroup(item)
        label = key or group.label or label_of(group.trace.info)
        seen[label] = seen.get(label, 0) + 1
        groups.append(replace(group, label=label if seen[label] == 1 else f"{label} ({seen[label]})"))
    return tuple(groups)


def label_of(info: TraceInfo) -> str:
    """Return what a trace is called where nothing else is said: its engine; of a trace that no engine of ours made, what ran."""
    return shortened(info.program if info.engine in FOREIGN else info.engine, LONGEST_LABEL)


def nature_of(info: TraceInfo) -> str:
    """Return "simulated", "predicted" (from a measured trace) or, for measured times, nothing. It stands wherever they are shown."""
    if not info.device.simulated:
        return ""
    return "predicted" if info.recorder == "prediction" else "simulated"


def nature_of_axis(groups: Sequence[TimelineGroup]) -> str:
    """Return the same for an axis that groups share: "partly predicted" where others were measured."""
    found = list(dict.fromkeys(nature_of(group.trace.info) for group in groups))
    joined = " or ".join(filter(None, found))
    return f"partly {joined}" if joined and "" in found else joined


def operator_order(groups: Sequence[TimelineGroup]) -> tuple[str, ...]:
    """Return the names of kernels and copies by the time they take on the device in all groups, the longest first.

    It is the order in which operators take their colours, in pictures and in live timelines.
    """
    taken_ns: dict[str, int] = {}
    for group in groups:
        if isinstance(group, BlockGroup):
            continue
        spans = group.trace.spans
        chosen = spans.is_kind(DEVICE_KINDS)
        codes = spans.name[chosen]
        counts, totals = np.bincount(codes), np.bincount(codes, spans.duration_ns[chosen])
        for code in np.flatnonzero(counts):
            taken_ns[spans.names[code]] = taken_ns.get(spans.names[code], 0) + int(totals[code])
    return tuple(sorted(taken_ns, key=lambda name: -taken_ns[name]))


def encode(groups: Sequence[TimelineGroup], keep: Sequence[int] | None = None, *, paths: bool = False) -> Payload:
    """Encode groups for the front end.

    Parameters
    ----------
    groups : sequence of TimelineGroup
        From `as_groups`.
    keep : sequence of int, optional
        How many spans of each group to keep, from its start; all by default. The header says what is missing.
    paths : bool
        With the critical paths, where nobody can ask for them later.
    """
    names = {name: code for code, name in enumerate(operator_order(groups))}
    order = list(names.values())
    texts: dict[str, int] = {}
    block = ColumnBlock()
    remarks = compare_makespans(groups)
    devices = {group.trace.info.device.name for group in groups if nature_of(group.trace.info) != "predicted"}
    if len(devices) > 1:
        remarks = [f"{remark} on {group.trace.info.device.name}".strip() for remark, group in zip(remarks, groups, strict=True)]
    kept = keep if keep is not None else [len(group.trace.spans) for group in groups]
    headers = [_encode_group(*parts, names, texts, block) for parts in zip(groups, kept, remarks, strict=True)]
    if paths:
        for encoded, group, count in zip(headers, groups, kept, strict=True):
            encoded["path"] = _path_of(group, count, block)
    header = {
        "version": 1,
        "program": shortened(groups[0].trace.info.program, LONGEST_NAME),
        "kinds": [kind.name.lower() for kind in SpanKind],
        "bases": [BASIS_WORDS[basis] for basis in Basis],
        "names": [shortened(name, LONGEST_NAME) for name in names],
        "order": order,
        "texts": list(texts),
        "groups": headers,
        **header_words(),
    }
    return Payload(header, block.to_bytes())


def encode_paths(groups: Sequence[TimelineGroup], keep: Sequence[int] | None = None) -> Payload:
    """Encode the critical path of each group apart from its spans, since few ask for it, and a million spans take a while.

    Parameters
    ----------
    groups : sequence of TimelineGroup
    keep : sequence of int, optional
        As for `encode`.
    """
    block = ColumnBlock()
    kept = keep if keep is not None else [len(group.trace.spans) for group in groups]
    paths = [_path_of(group, count, block) for group, count in zip(groups, kept, strict=True)]
    return Payload({"paths": paths}, block.to_bytes())


def _path_of(group: TimelineGroup, keep: int, block: ColumnBlock) -> dict[str, Any] | None:
    return None if isinstance(group, BlockGroup) else encode_path(group.trace, keep, block)


def _encode_group(
    group: TimelineGroup, keep: int, comparison: str, names: dict[str, int], texts: dict[str, int], block: ColumnBlock
) -> dict[str, Any]:
    info = group.trace.info
    total = len(group.trace.spans)
    spans = group.trace.spans.select(np.arange(keep)) if keep < total else group.trace.spans
    extent_ns = group.extent_ns
    makespan_ns = group.makespan_ns if group.makespan_ns is not None else extent_ns
    missing = f"{total - keep:,} of {total:,} spans left out" if keep < total else ""
    thin = isinstance(group, BlockGroup)
    columns = _encode_columns(spans, names, texts, block)
    return {
        "label": group.label,
        "engine": info.engine,
        "program": shortened(info.program, LONGEST_NAME),
        "device": {"kind": info.device.kind, "name": info.device.name},
        "recorder": info.recorder,
        "extent_ns": extent_ns,
        "makespan_text": "" if thin else time_text(makespan_ns),
        "thin": thin,
        "joined_by": "pair" if isinstance(group, PairGroup) else "operation",
        "remarks": [remark for remark in (comparison, stretch_words(group), missing, group.note) if remark],
        "details": _details(group, extent_ns),
        "notes": list(info.notes),
        "lanes": [
            {"name": shortened(name, LONGEST_NAME), "host": bool(host)}
            for name, host in zip(spans.lanes, _host_lanes(group.trace.spans), strict=True)
        ],
        "count": len(spans),
        "shown_until_ns": int(group.trace.spans.start_ns[keep]) if keep < total else None,
        "columns": columns | ({"basis": block.add(np.zeros(len(spans)))} if thin else {}),
        "activity": None if thin else encode_activity(group.trace, spans, block),
        "waits": encode_waits(group.trace.origins, spans, block),
        "origins": encode_origins(group.trace.origins, texts, block),
    }


def stretch_words(group: TimelineGroup) -> str:
    """Say how much longer than the makespan the drawn run is: recording takes time. Empty where both are about the same."""
    extent_ns, makespan_ns = group.extent_ns, group.makespan_ns
    if makespan_ns is None or abs(extent_ns - makespan_ns) <= STRETCHED * makespan_ns:
        return ""
    if extent_ns < makespan_ns:
        return f"the run in this picture took {time_text(extent_ns)}"
    return f"recording stretched this picture to {time_text(extent_ns)}"


def _details(group: TimelineGroup, extent_ns: int) -> list[list[str]]:
    """Return what a tooltip says about a whole group, as pairs of term and value."""
    info = group.trace.info
    unrecorded = (
        []
        if group.makespan_ns is None or nature_of(info) == "predicted"
        else [["makespan without recording", exact_time_text(group.makespan_ns)]]
    )
    simulated = " (simulated)" if nature_of(info) == "simulated" else ""
    return [
        *unrecorded,
        ["end of the last span, in this recording", exact_time_text(extent_ns)],
        ["spans", f"{len(group.trace.spans):,}"],
        ["times by", f"{info.recorder}{simulated}"],
        ["created", info.created],
    ]


def _host_lanes(spans: SpanTable) -> npt.NDArray[np.bool_]:
    """Tell of each lane whether it is a host lane: one with host calls on it."""
    host: npt.NDArray[np.bool_] = np.bincount(spans.lane, spans.is_kind(HOST_KINDS), minlength=len(spans.lanes)) > 0
    return host


def _encode_columns(spans: SpanTable, names: dict[str, int], texts: dict[str, int], block: ColumnBlock) -> dict[str, Any]:
    codes = _codes_of(spans.names, spans.name, names)
    # A kernel's own name that is the span's name, too, says no more.
    symbols = _codes_of(tuple(shortened(name, LONGEST_NAME) for name in spans.names), spans.symbol[spans.symbol >= 0], texts)
    symbol = np.where((spans.symbol >= 0) & (spans.symbol != spans.name), symbols[spans.symbol], -1) if len(symbols) else spans.symbol
    return {
        "kind": block.add(spans.kind),
        "name": block.add(codes[spans.name]),
        "lane": block.add(spans.lane),
        "start": block.add_rising(spans.start_ns),
        "duration": block.add(spans.duration_ns),
        "operation": block.add_codes(spans.operation),
        "correlation": block.add_codes(spans.correlation),
        "symbol": block.add_codes(symbol),
        "graph_node": block.add_codes(spans.graph_node, wide=True),
        **{name: block.add(getattr(spans, name)) for name in ("part", "basis", "blocks", "threads", "bytes", "flops")},
    }


def _codes_of(texts: tuple[str, ...], used: npt.NDArray[Any], codes: dict[str, int]) -> npt.NDArray[np.int64]:
    """Return for each text its number in ``codes``, which takes those that are used."""
    found = np.zeros(len(texts), dtype=np.int64)
    for code in np.flatnonzero(np.bincount(used)):
        found[code] = codes.setdefault(texts[code], len(codes))
    return found


def compare_makespans(groups: Sequence[TimelineGroup]) -> list[str]:
    """Say of each group how it compares with the baseline: the ``async`` engine, else the first group.

    Makespans without recording are compared if all groups have one, extents of the recordings otherwise: never one with the other.
    Traces of different programs are not compared.
    """
    known = [group.makespan_ns for group in groups if group.makespan_ns is not None]
    lengths = known if len(known) == len(groups) else [float(group.extent_ns) for group in groups]
    base = next((index for index, group in enumerate(groups) if group.label == BASELINE), 0)
    program = groups[base].trace.info.program if groups else ""
    worked_out = [
        "" if index == base or group.trace.info.program != program else _comparison(length, lengths[base], groups[base].label)
        for index, (group, length) in enumerate(zip(groups, lengths, strict=True))
    ]
    return [words if group.comparison is None else group.comparison for group, words in zip(groups, worked_out, strict=True)]


def _comparison(length: float, baseline: float, label: str) -> str:
    if not length or not baseline:
        return ""
    ratio = max(length, baseline) / min(length, baseline)
    if ratio <= 1 + ALIKE:
        return f"as fast as {label}"
    return f"{ratio:.{1 if ratio >= 1.95 else 2}f}× {'faster' if length < baseline else 'slower'} than {label}"
