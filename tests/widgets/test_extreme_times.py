"""Traces and makespans at the limits of what is allowed are shown in every way there is: as text, as HTML, as a report, as numbers."""

from __future__ import annotations

import json

import pytest

from streamscope.comparing.comparison import Comparison, Run
from streamscope.trace import Basis, DeviceInfo, SpanBuilder, SpanKind, Trace, TraceInfo
from streamscope_widgets.payload import encode

LIMIT = 2**53
LANES = ("host", "main")
TIMES = {
    "nothing": [],
    "one instant at zero": [(0, 0)],
    "all starts equal": [(0, 5_000)] * 6,
    "all in one instant": [(700, 700)] * 6,
    "all before zero": [(-9_000, -8_000), (-7_000, -6_500), (-6_000, -1)],
    "all in one instant before zero": [(-7, -7)] * 3,
    "around zero": [(-1_500, 2_000), (-900, 3_000), (0, 1)],
    "the earliest": [(-LIMIT, -LIMIT), (-LIMIT, -LIMIT + 1)],
    "the latest": [(LIMIT - 1, LIMIT), (LIMIT, LIMIT)],
    "from the earliest to the latest": [(-LIMIT, -LIMIT), (LIMIT, LIMIT)],
    "as long as may be": [(0, LIMIT - 10), (5, 10)],
}


def trace_of(times, engine, *, backwards):
    """Make a trace of launch calls and kernels; ``backwards``, each kernel runs before its call."""
    builder = SpanBuilder(LANES)
    calls = reversed(times) if backwards else times
    for number, (start_ns, end_ns) in enumerate(times):
        builder.add(SpanKind.KERNEL, "work", "main", start_ns, end_ns, operation=number, correlation=number, basis=Basis.PLACED)
    for number, (start_ns, _) in enumerate(calls):
        builder.add(SpanKind.LAUNCH, "call", "host", start_ns, start_ns, operation=number, correlation=number)
    info = TraceInfo(engine, "p", DeviceInfo("cuda", "card"), ledger={"recorded_ns": LIMIT, "unrecorded_ns": 1})
    return Trace(builder.build(), info)


MAKESPANS = {"async": [0.0], "graph": [1.0] * 6, "dual": [float(LIMIT)] * 6, "sync": [0.0, 1.0, float(LIMIT)] * 3}


def show(folder, makespans_ns, times, *, backwards=False):
    runs = [Run(name, lengths, 0.0, 0.0, trace_of(times, name, backwards=backwards)) for name, lengths in makespans_ns.items()]
    comparison = Comparison("p", DeviceInfo("cuda", "card"), runs)
    assert repr(comparison)
    assert comparison.verdict
    assert "data:image/svg" in comparison._repr_html_()
    assert "nan" not in comparison.report(folder / "report.html").read_text(encoding="utf-8").split("<script")[0].lower()
    json.dumps(comparison.to_dict(), allow_nan=False)
    for group in encode(comparison.groups()).header["groups"]:
        assert group["extent_ns"] == max(0, *(end for _, end in times), 0)


@pytest.mark.parametrize("backwards", [False, True], ids=["calls first", "kernels first"])
@pytest.mark.parametrize("times", TIMES.values(), ids=TIMES)
def test_any_times_are_shown(tmp_path, times, backwards):
    show(tmp_path, MAKESPANS, times, backwards=backwards)


@pytest.mark.parametrize("engine", MAKESPANS)
@pytest.mark.parametrize("times", ["nothing", "all starts equal"])
def test_any_makespans_are_shown(tmp_path, engine, times):
    show(tmp_path, {engine: MAKESPANS[engine]}, TIMES[times])
