"""Which multiprocessor ran which block, when: a lane a multiprocessor, below the streams of the same trace."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import numpy as np
import pytest

from streamscope.errors import TraceError
from streamscope.trace import Basis, Blocks, DeviceInfo, SpanBuilder, SpanKind, Trace, TraceInfo
from streamscope_widgets.block_group import block_group
from streamscope_widgets.payload import BlockGroup, as_groups, encode, encode_paths, operator_order
from streamscope_widgets.still_lanes import multiprocessor_lanes
from streamscope_widgets.still_timeline import MOST_BYTES, timeline_svg

H200 = DeviceInfo("cuda", "NVIDIA H200", {"multiprocessors": 132})


def stamped(rows, kernels=((0, "gemm", "main", 0, 90), (1, "relu", "aux", 40, 60)), device=H200):
    """A trace of kernels (operation, name, stream, start, end) with blocks (operation, multiprocessor, start, end)."""
    builder = SpanBuilder(["host", "main", "aux"])
    for operation, name, lane, start_ns, end_ns in kernels:
        builder.add(SpanKind.KERNEL, name, lane, start_ns, end_ns, operation=operation, basis=Basis.MEASURED)
    operation, multiprocessor, start_ns, end_ns = (np.array(column) for column in zip(*sorted(rows, key=lambda row: row[2]), strict=True))
    blocks = Blocks(operation, np.zeros(len(rows), int), multiprocessor, start_ns, end_ns)
    return Trace(builder.build(), TraceInfo("dual", "branches", device, "stamps"), blocks=blocks)


TRACE = stamped([(0, 3, 0, 50), (0, 3, 10, 60), (0, 130, 5, 90), (1, 3, 40, 60)])


def test_each_block_is_a_bar_of_its_kernel_on_its_multiprocessor():
    spans = block_group(TRACE).trace.spans
    told = [(spans.names[name], spans.lanes[lane]) for name, lane in zip(spans.name, spans.lane, strict=True)]
    assert told == [("gemm", "SM 3"), ("gemm", "SM 130"), ("gemm", "SM 3"), ("relu", "SM 3")]
    assert spans.start_ns.tolist() == [0, 5, 10, 40]
    assert spans.end_ns.tolist() == [50, 90, 60, 60]


def test_how_full_the_device_is():
    # SM 3 has a block from 0 to 60, SM 130 from 5 to 90: 145 ns in 90 ns.
    assert block_group(TRACE).note == "while blocks run, 1.6 of 132 multiprocessors have one, on average"
    full = stamped([(0, number, 0, 90) for number in range(120)], device=DeviceInfo("cuda", "a GPU"))
    assert block_group(full).note == "while blocks run, 120 multiprocessors have one, on average"


def test_blocks_of_kernels_that_are_not_in_the_trace_are_left_out():
    assert len(block_group(stamped([(0, 3, 0, 50), (7, 3, 10, 60)])).trace.spans) == 1


def test_they_stand_below_the_streams_and_add_to_no_sum():
    groups = as_groups([TRACE, block_group(TRACE)])
    assert operator_order(groups) == operator_order(groups[:1])
    streams, blocks = encode(groups, paths=True).header["groups"]
    assert (streams["thin"], blocks["thin"]) == (False, True)
    assert (blocks["label"], blocks["makespan_text"], blocks["activities"], blocks["path"]) == ("multiprocessors", "", [], None)
    assert blocks["columns"]["basis"] == {"dtype": "u8", "constant": 0}  # both ends were read from a clock
    assert [path is None for path in encode_paths(groups).header["paths"]] == [False, True]


def test_the_still_picture_has_a_thin_lane_for_each():
    rng = np.random.default_rng(3)
    rows = [(0, int(number % 132), int(start), int(start) + 20) for number, start in enumerate(rng.integers(0, 70_000, 20_000))]
    trace = stamped(rows, kernels=((0, "gemm", "main", 0, 80_000),))
    svg = timeline_svg(as_groups([trace, block_group(trace)]))
    assert len(svg) < 2 * MOST_BYTES
    found = [element.text for element in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
    assert {"multiprocessors", "SM 0", "SM 128", block_group(trace).note} <= set(found)
    assert "SM 1" not in found


def test_kernels_that_share_a_multiprocessor_have_a_row_each():
    """As in the live view: SM 3 runs gemm's two blocks beside those of relu; SM 130 has gemm alone. Times are in µs."""
    rows = [(0, 3, 0, 50), (0, 3, 10, 60), (0, 130, 5, 90), (1, 3, 40, 60), (1, 3, 60, 70)]
    spans = block_group(stamped([(*place, start * 1000, end * 1000) for *place, start, end in rows])).trace.spans
    lanes, height = multiprocessor_lanes(spans, 0, 1e-3, {"gemm": 0, "relu": 1})
    assert [(lane.label, lane.left.tolist(), lane.right.tolist(), lane.colour.tolist()) for lane in lanes] == [
        ("SM 3", [0, 10, 60], [50, 60, 70], [0, 0, 1]),
        ("", [40], [60], [1]),
        ("", [5], [90], [0]),
        ("", [], [], []),
    ]
    assert [(height, lane.height) for lane in lanes] == [(3, 3), (3, 2)] * 2
    assert multiprocessor_lanes(block_group(stamped([(0, 3, 0, 50_000), (0, 4, 10_000, 60_000)])).trace.spans, 0, 1, {})[1] == 4


@pytest.mark.usefixtures("bundle")
def test_by_multiprocessor():
    widget = TRACE.timeline(by="multiprocessor")
    assert widget.engines == ["dual", "multiprocessors"]
    assert isinstance(widget.groups[1], BlockGroup)
    assert widget.finding == "While blocks run, 1.6 of 132 multiprocessors have one, on average."


def test_a_trace_without_blocks_says_how_to_have_them(five_engines):
    with pytest.raises(TraceError, match="'dual' does not say which multiprocessor ran which block") as caught:
        five_engines(20)["dual"].timeline(by="multiprocessor")
    assert 'recorder="stamps"' in caught.value.hint
    with pytest.raises(TraceError, match="not for each 'warp'"):
        five_engines(20)["dual"].timeline(by="warp")
