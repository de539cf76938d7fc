"""Traces as a header and one block of binary columns, for the timeline's front end.

The header is plain JSON, and describes the columns that `ColumnBlock` puts into the block. ``decode.js`` is the reader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.analysis import Ranking, span_ns
from streamscope.engine_entry import DEFAULT_ENGINE
from streamscope.errors import OutputError, TraceError
from streamscope.trace.info import TraceInfo
from streamscope.trace.spans import DEVICE_KINDS, Basis, SpanKind, SpanTable
from streamscope.trace.trace import TimelineGroup, Trace
from streamscope.words import exact_time_text, shortened, time_text
from streamscope_widgets.columns import ColumnBlock
from streamscope_widgets.details import details_of
from streamscope_widgets.gpu_activity import GpuActivity, activities_of
from streamscope_widgets.overlap_columns import (
    encode_activity,
    encode_origins,
    encode_path,
    encode_waits,
    header_words,
    waits_of,
)
from streamscope_widgets.rows import host_lanes, places_of
from streamscope_widgets.several_gpus import GpuWords, encode_collectives, far_lanes, fold, gpu_words, joint_columns, slowest_words

BUNDLE = Path(__file__).parent / "static" / "timeline.js"
REPORT_BUNDLE = BUNDLE.with_name("report.js")
SECOND_BUNDLE = BUNDLE.with_name("details.js")

STRETCHED = 0.02
"""A drawn run that differs from the makespan by more than this share says so."""
LONGEST_LABEL = 48
LONGEST_NAME = 1000
"""Letters. C++ names of kernels can be longer than anybody reads, and there can be thousands of them."""
ALIKE = 0.01
"""Two makespans closer than this share are called equally fast."""

BASIS_WORDS = {
    Basis.MEASURED: "both ends measured",
    Basis.DERIVED: "end measured; start is the end less the duration, which was measured apart",
    Basis.PLACED: "duration measured; position worked out from order and dependencies",
}
"""How the times of a span are known. Host calls, and kernels that something else than stamps recorded, are measured at both ends."""


def stamped_words(info: TraceInfo) -> str:
    """Return how both times of a stamped kernel are known; empty for traces by other recorders."""
    if info.recorder != "stamps":
        return ""
    around_ns, correction_ns = (info.calibration.get(f"stamp_{what}_ns") for what in ("excess", "correction"))
    added = "a constant" if around_ns is None else f"about {time_text(around_ns, 1)}"
    source = "" if correction_ns is None else " as the reference kernel tells"
    if info.calibration.get("stamp_by_cupti"):
        source = " as CUPTI measured"
    return f"first and last block measured, {added} around them added{source}"


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


def bundle_source(bundle: Path | None = None) -> str:
    """Return the JavaScript that draws timelines: in notebooks, or, with `REPORT_BUNDLE`, in reports; or another bundle."""
    bundle = bundle or BUNDLE
    try:
        return bundle.read_text(encoding="utf-8")
    except OSError as error:
        raise OutputError(
            f"the timeline's front end is missing: {bundle.name} cannot be read ({error.strerror})",
            hint="run `make setup`, or `python hatch_build.py` in the clone",
        ) from error


def as_groups(traces: Traces) -> tuple[TimelineGroup, ...]:
    """Return traces as groups with labels that differ: a mapping's keys, else engine names, counted where they repeat."""
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
    """Return a trace's default name: its engine; its program, where no engine of ours ran it."""
    return shortened(info.program if info.engine in (info.recorder, "recorded") else info.engine, LONGEST_LABEL)


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


@dataclass(frozen=True)
class Shown:
    """Spans of a group that are sent."""

    spans: SpanTable
    activities: Sequence[tuple[GpuActivity, npt.NDArray[np.bool_] | None]] = ()
    """Activity of each GPU meanwhile, and, bool, which stretches of it stand for many."""
    whole: Sequence[GpuActivity] = ()
    """Activity of each GPU in all of the trace."""
    more: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    """Further columns of the spans."""
    header: Mapping[str, Any] = field(default_factory=dict)
    """Other facts about the group."""
    waits: tuple[npt.NDArray[Any], npt.NDArray[Any]] | None = None
    """Pair of int arrays, optional: rows of ``spans`` that were waited for, and that waited, by the latter; worked out where they are not
    given."""


@dataclass(frozen=True)
class Codes:
    """The numbers of names and of texts, which all groups share."""

    names: dict[str, int]
    texts: dict[str, int] = field(default_factory=dict)

    def of(self, spans: SpanTable) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return for each of a table's names its number as a name, and as a kernel's own name; those that are used get one."""
        # A kernel's own name that is the span's name, too, says no more.
        own = tuple(shortened(name, LONGEST_NAME) for name in spans.names)
        return _codes_of(spans.names, spans.name, self.names), _codes_of(own, spans.symbol[spans.symbol >= 0], self.texts)


def first_spans(group: TimelineGroup, count: int) -> Shown:
    """Return the first spans of a group, all by default, and say how many are left out."""
    spans, thin = group.trace.spans, isinstance(group, BlockGroup)
    total, header = len(spans), dict[str, Any]()
    if count < total:
        header = {"left_out": f"{total - count:,} of {total:,} spans left out", "shown_until_ns": int(spans.start_ns[count])}
        spans = spans.select(np.arange(count))
    places = places_of(spans, thin=thin)
    activities = () if thin else activities_of(group.trace, spans)
    whole = activities if len(spans) == total or len(group.trace.gpus) < 2 else activities_of(group.trace, group.trace.spans)
    joint = {} if thin else {name: column[:count] for name, column in joint_columns(group.trace).items()}
    columns = {"row": places.row, **joint}
    return Shown(spans, [(found, None) for found in activities], whole, columns, {**header, **places.header()})


def encode(groups: Sequence[TimelineGroup], keep: Sequence[int] | None = None, *, paths: bool = False) -> Payload:
    """Encode groups for the front end.

    ``groups``: from `as_groups`.
    ``keep``: how many spans of each group to keep, from its start; all by default. The header counts the missing ones.
    ``paths``: with the critical paths, where nobody can ask for them later.
    """
    kept = keep if keep is not None else [len(group.trace.spans) for group in groups]
    shown = [first_spans(*each) for each in zip(groups, kept, strict=True)]
    block = ColumnBlock()
    header = encode_shown(groups, shown, codes_of(groups), block)
    if paths:
        for encoded, group, count in zip(header["groups"], groups, kept, strict=True):
            encoded["path"] = _path_of(group, count, block)
    return Payload(header, block.to_bytes())


def codes_of(groups: Sequence[TimelineGroup]) -> Codes:
    """Return the numbers of the operators' names; other names and texts get theirs when they are encoded."""
    return Codes({name: code for code, name in enumerate(operator_order(groups))})


def encode_shown(groups: Sequence[TimelineGroup], shown: Sequence[Shown], codes: Codes, block: ColumnBlock) -> dict[str, Any]:
    """Encode each group's shown spans into a block, and return the header."""
    order = list(range(len(operator_order(groups))))
    remarks = compare_makespans(groups)
    devices = {group.trace.info.device.name for group in groups if nature_of(group.trace.info) != "predicted"}
    if len(devices) > 1:
        remarks = [f"{remark} on {group.trace.info.device.name}".strip() for remark, group in zip(remarks, groups, strict=True)]
    words = [
        (GpuWords(0),) if isinstance(group, BlockGroup) else gpu_words(group.trace, each.whole)
        for group, each in zip(groups, shown, strict=True)
    ]
    gpus = fold(words, sum(_stream_rows(group, each) for group, each in zip(groups, shown, strict=True) if len(group.trace.gpus) > 1))
    headers = [_encode_group(*parts, codes, block) for parts in zip(groups, shown, remarks, gpus, strict=True)]
    return {
        "version": 1,
        "program": shortened(groups[0].trace.info.program, LONGEST_NAME),
        "kinds": [kind.name.lower() for kind in SpanKind],
        "bases": [BASIS_WORDS[basis] for basis in Basis],
        "names": [shortened(name, LONGEST_NAME) for name in codes.names],
        "order": order,
        "texts": list(codes.texts),
        "groups": headers,
        "details": details_of([group for group in groups if not isinstance(group, BlockGroup)]),
        **header_words(),
    }


def encode_paths(groups: Sequence[TimelineGroup]) -> Payload:
    """Encode the critical path of each group apart from its spans, since few ask for it, and a million spans take a while."""
    block = ColumnBlock()
    paths = [_path_of(group, len(group.trace.spans), block) for group in groups]
    return Payload({"paths": paths}, block.to_bytes())


def _path_of(group: TimelineGroup, keep: int, block: ColumnBlock) -> dict[str, Any] | None:
    return None if isinstance(group, BlockGroup) else encode_path(group.trace, keep, block)


def _stream_rows(group: TimelineGroup, shown: Shown) -> int:
    """Return how many rows the streams of a group have, and the far ends of copies between GPUs."""
    own: list[int] = [rows for lane, rows, *_ in shown.header["drawn"] if group.trace.spans.gpus[lane] >= 0]
    return sum(own) + len(far_lanes(group.trace))


def _encode_group(
    group: TimelineGroup, shown: Shown, comparison: str, gpus: Sequence[GpuWords], codes: Codes, block: ColumnBlock
) -> dict[str, Any]:
    info = group.trace.info
    extent_ns = group.extent_ns
    makespan_ns = group.makespan_ns if group.makespan_ns is not None else span_ns(group.trace.spans)
    more, far, own = dict(shown.header), far_lanes(group.trace), len(group.trace.spans.lanes)
    drawn = [*more.pop("drawn"), *([own + place, 1, False, 0] for place in range(len(far)))]
    remarks = (comparison, slowest_words(gpus), stretch_words(group), more.pop("left_out", ""), group.note)
    return {
        "label": group.label,
        "engine": info.engine,
        "program": shortened(info.program, LONGEST_NAME),
        "device": {"kind": info.device.kind, "name": info.device.name},
        "recorder": info.recorder,
        "stamped": {} if isinstance(group, BlockGroup) else dict.fromkeys(("kernel", "graph"), stamped_words(info)),
        "extent_ns": extent_ns,
        "makespan_text": "" if isinstance(group, BlockGroup) else time_text(makespan_ns),
        "thin": isinstance(group, BlockGroup),
        "joined_by": "pair" if isinstance(group, PairGroup) else "operation",
        "remarks": [remark for remark in remarks if remark],
        "details": _details(group, extent_ns),
        "notes": list(info.notes),
        "lanes": [
            {"name": shortened(name, LONGEST_NAME), "host": bool(host), "gpu": gpu}
            for name, host, gpu in zip(group.trace.spans.lanes, host_lanes(group.trace.spans), group.trace.spans.gpus, strict=True)
        ]
        + far,
        "drawn": drawn,
        "gpus": [words.header() for words in gpus],
        **encode_collectives(group.trace, block),
        "shown_until_ns": None,
        "origins": encode_origins(group.trace.origins, codes.texts, block),
        **encode_part(group, shown, codes, block),
        **more,
    }


def encode_part(group: TimelineGroup, shown: Shown, codes: Codes, block: ColumnBlock) -> dict[str, Any]:
    """Encode the columns of a group's shown spans."""
    earlier, later = shown.waits or waits_of(group.trace.origins, shown.spans)
    columns = _encode_columns(shown.spans, codes, block)
    columns |= {name: block.add_codes(values) if name == "collective" else block.add(values) for name, values in shown.more.items()}
    return {
        "count": len(shown.spans),
        "columns": columns | ({"basis": block.add(np.zeros(len(shown.spans)))} if isinstance(group, BlockGroup) else {}),
        "activities": [encode_activity(found, block, crowd) for found, crowd in shown.activities],
        "waits": encode_waits(earlier, later, block),
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
    """Return a group's tooltip, as pairs of term and value."""
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


def _encode_columns(spans: SpanTable, codes: Codes, block: ColumnBlock) -> dict[str, Any]:
    names, symbols = codes.of(spans)
    symbol = np.where((spans.symbol >= 0) & (spans.symbol != spans.name), symbols[spans.symbol], -1) if len(symbols) else spans.symbol
    return {
        "kind": block.add(spans.kind),
        "name": block.add(names[spans.name]),
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

    Makespans without recording are compared if all groups have one, spans of the recordings otherwise: never one with the other.
    Of two measured recordings, one run each, no difference is told. Traces of different programs are not compared.
    """
    known = [group.makespan_ns for group in groups if group.makespan_ns is not None]
    repeated = len(known) == len(groups)
    lengths = known if repeated else [float(span_ns(group.trace.spans)) for group in groups]
    told = [repeated or group.trace.info.device.exact for group in groups]
    base = next((index for index, group in enumerate(groups) if group.label == DEFAULT_ENGINE), 0)
    program = groups[base].trace.info.program if groups else ""
    worked_out = [
        ""
        if index == base or group.trace.info.program != program
        else _comparison(length, lengths[base], groups[base].label, told=told[index] or told[base])
        for index, (group, length) in enumerate(zip(groups, lengths, strict=True))
    ]
    return [words if group.comparison is None else group.comparison for group, words in zip(groups, worked_out, strict=True)]


def _comparison(length: float, baseline: float, label: str, *, told: bool) -> str:
    if not length or not baseline:
        return ""
    if not told:
        return f"{Ranking.UNKNOWN.value} (against {label})"
    ratio = max(length, baseline) / min(length, baseline)
    if ratio <= 1 + ALIKE:
        return f"as fast as {label}"
    return f"{ratio:.{1 if ratio >= 1.95 else 2}f}× {'faster' if length < baseline else 'slower'} than {label}"
