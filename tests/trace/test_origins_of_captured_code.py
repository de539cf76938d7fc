"""What traces and their tables say of captured code: operator, module and line of each span."""

from __future__ import annotations

import csv
from dataclasses import replace

import numpy as np

from streamscope.trace import DeviceInfo, SpanBuilder, SpanKind, Trace, TraceInfo
from streamscope.trace.origins import Origins

TEXTS = ("encoder.conv1", "net.py:7: x = self.conv1(x)", "aten.convolution.default", "float32[4] → float32[4]")


def trace_of(arguments):
    """A trace of a launch that belongs to no operation, and of a kernel of operation 0."""
    builder = SpanBuilder(["host", "main"])
    builder.add(SpanKind.GRAPH_LAUNCH, "launch graph", "host", 0, 3_000)
    builder.add(SpanKind.KERNEL, "Kernel", "main", 5_000, 25_000, operation=0)
    trace = Trace(builder.build(), TraceInfo("graph", "net", DeviceInfo("cuda", "NVIDIA H200")))
    return replace(trace, origins=Origins(TEXTS, *(np.array([code], np.int32) for code in (0, 1, arguments))))


def test_csv_has_operator_module_and_line_of_each_kernel(tmp_path):
    with trace_of(2).to_csv(tmp_path / "spans.csv").open(encoding="utf-8") as file:
        launch, kernel = csv.DictReader(file)
    assert [kernel[name] for name in ("operator", "module", "line")] == [TEXTS[2], TEXTS[0], TEXTS[1]]
    assert [launch[name] for name in ("operator", "module", "line")] == ["", "", ""]


def test_modules_are_not_called_labels_and_labels_not_modules():
    assert trace_of(2).origins.words() == [{"module": TEXTS[0], "operator": TEXTS[2], "line": TEXTS[1]}]
    assert trace_of(3).origins.words() == [{"label": TEXTS[0], "shapes": TEXTS[3], "line": TEXTS[1]}]
    assert trace_of(-1).origins.words() == [{"label": TEXTS[0], "line": TEXTS[1]}]
