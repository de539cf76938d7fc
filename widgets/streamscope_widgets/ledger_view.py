"""Cost of recording, by recorder, and the source of each number of a comparison."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from streamscope.analysis.metrics import EngineMetrics
from streamscope.trace import Basis, TimelineGroup, Trace
from streamscope.trace.spans import DEVICE_KINDS
from streamscope.words import counted, format_us, listed
from streamscope_widgets.payload import stamped_words
from streamscope_widgets.show.html import Column, Row

RECORDERS = {"events": "events", "stamps": "stamps", "cupti": "CUPTI"}
"""Columns of a ledger, with their formats."""
TITLE, RESTS = "What recording cost", "What each number rests on"
MEANINGS = {
    "events": "makespan of a run recorded by CUDA events, against one without recording",
    "stamps": "the same with kernels that stamp their blocks; what has no stamps is recorded by events",
    "cupti": "the same with NVIDIA's profiling interface",
}
_BASES = {
    Basis.MEASURED: "both ends measured",
    Basis.DERIVED: "end measured, start from the length when timed alone",
    Basis.PLACED: "length measured, place worked out",
}
BY_CUPTI = "end measured, start from the length that CUPTI saw in other runs"


def ledger_table(groups: Sequence[TimelineGroup]) -> tuple[list[Column], list[Row]] | None:
    """Return columns and rows of the cost of recording, a row an engine; None where nothing of it was measured."""
    costs = {group.label or group.trace.info.engine: found for group in groups if (found := _costs(group.trace))}
    if not costs:
        return None
    there = [name for name in RECORDERS if any(name in found for _, found in costs.values())]
    columns = [
        Column("engine", kind="text"),
        Column("unprofiled, µs", "median makespan of runs without recording, just before the recorded one"),
        *(Column(RECORDERS[name], MEANINGS[name]) for name in there),
    ]
    rows = [
        Row((engine, format_us(plain_ns / 1000), *(_factor(found.get(name), plain_ns) for name in there)))
        for engine, (plain_ns, found) in costs.items()
    ]
    return columns, rows


def _costs(trace: Trace) -> tuple[float, dict[str, float]] | None:
    """Return the makespan without recording and those with each recorder, in ns; None where they were not measured."""
    ledger = trace.info.ledger
    plain_ns = ledger.get("unrecorded_ns", 0.0)
    found = {name: ledger[f"{name}_ns"] for name in RECORDERS if ledger.get(f"{name}_ns")}
    if "recorded_ns" in ledger and trace.info.recorder in RECORDERS:
        found.setdefault(trace.info.recorder, ledger["recorded_ns"])
    return (plain_ns, found) if plain_ns and found and not trace.info.device.simulated else None


def _factor(time_ns: float | None, plain_ns: float) -> str:
    return "–" if time_ns is None else f"{time_ns / plain_ns:.2f}×"


def what_it_rests_on(groups: Sequence[TimelineGroup], metrics: Mapping[str, EngineMetrics]) -> Iterator[str]:
    """Say of each engine where its makespan and its times come from; of simulated ones nothing, since all is a model's."""
    for group in groups:
        info = group.trace.info
        if info.device.simulated:
            continue
        engine, stamped = group.label or info.engine, stamped_words(info)
        found = metrics.get(engine)
        makespan = f"makespan: median of {counted(found.repeats, 'run')} without recording; " if found is not None else ""
        bases = _BASES | ({Basis.DERIVED: BY_CUPTI} if info.calibration.get("by_cupti") else {})
        times = listed([f"{number:,} with {(not basis and stamped) or bases[basis]}" for basis, number in _bases(group.trace)])
        yield f"{engine}: {makespan}kernels, copies and sets, by {RECORDERS.get(info.recorder, info.recorder)}: {times or 'none'}"


def _bases(trace: Trace) -> Iterator[tuple[Basis, int]]:
    spans = trace.spans
    for code, number in enumerate(np.bincount(spans.basis[spans.is_kind(DEVICE_KINDS)])):
        if number:
            yield Basis(code), int(number)
