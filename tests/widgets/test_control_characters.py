"""Names with control characters leave every picture readable: XML has none but tabs and line breaks."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from streamscope.analysis.table import metrics_text
from streamscope.devices.graph_node import GraphNode, NodeKind
from streamscope.engines.graphs import GraphView
from streamscope.kernels.compile.compilation_log import CompileStage, StageTime
from streamscope.trace import TimelineGroup
from streamscope.trace.spans import SpanBuilder, SpanKind
from streamscope_widgets.compilation_view import workers_svg
from streamscope_widgets.report import report
from streamscope_widgets.show import palette
from streamscope_widgets.show.chart import Axis, Bars, RowChart
from streamscope_widgets.show.still_chart import row_svg
from streamscope_widgets.still_timeline import timeline_svg

HOSTILE = "a\x00b\x1b[31m\x08\x9b\ud800\ufffe<&"
SHOWN = "a�b�[31m����<&"


@pytest.fixture
def trace(make_trace):
    name = HOSTILE.replace("\ud800", "")  # A trace takes nothing that UTF-8 cannot express.
    builder = SpanBuilder([name, "main"])
    builder.add(SpanKind.LAUNCH, name, name, 0, 3000, operation=0, correlation=0)
    builder.add(SpanKind.KERNEL, name, "main", 4000, 9000, operation=0, correlation=0)
    return make_trace(name, builder.build(), program=name, notes=(name,))


def chart(_):
    bars = Bars(HOSTILE, palette.BUSY, "#ffffff", [1], [HOSTILE], HOSTILE)
    return row_svg(RowChart(HOSTILE, Axis(HOSTILE, 0, 2), (HOSTILE,), (bars,)))


PICTURES = {
    "timeline": lambda trace: timeline_svg([TimelineGroup(trace, label=HOSTILE)]),
    "chart": chart,
    "graph": lambda _: GraphView(HOSTILE, 0, (GraphNode(NodeKind.KERNEL, HOSTILE),)).svg(),
    "workers": lambda _: workers_svg([StageTime(CompileStage.COMPILE, "k", HOSTILE, 0, 10)]),
}


@pytest.mark.parametrize("picture", PICTURES)
def test_a_picture_shows_the_rest_of_the_name(picture, trace):
    root = ET.fromstring(PICTURES[picture](trace))
    assert any(SHOWN[:4] in (element.text or "") for element in root.iter())


@pytest.mark.usefixtures("bundle")
def test_a_report_can_be_written(trace, tmp_path):
    page = report([trace], tmp_path / "r.html", title=HOSTILE, sections=[HOSTILE], below=[HOSTILE]).read_text(encoding="utf-8")
    assert not set(page) & set("\x00\x1b\x08\x9b\ufffe")
    assert page.count(SHOWN.replace("<&", "")) >= 3


def test_a_summary_can_be_printed(trace):
    said = metrics_text(HOSTILE, trace.info.device, {}, HOSTILE)
    assert said.startswith(f"{SHOWN} · ")
    said.encode()
