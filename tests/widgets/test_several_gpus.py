"""Several GPUs in one timeline: what the browser is sent of each, the still picture, and the page."""

from __future__ import annotations

import re

import numpy as np
import pytest
from tests.widgets.conftest import gpus_trace, until
from tests.widgets.test_overlap_columns import column

import streamscope as ss
from streamscope.trace import Collectives, SpanTable, Trace
from streamscope.words import time_text
from streamscope_widgets.payload import as_groups, encode
from streamscope_widgets.report import report
from streamscope_widgets.rows import places_of
from streamscope_widgets.still_timeline import timeline_svg
from streamscope_widgets.tile_questions import answer
from streamscope_widgets.tiles import Tiles

TIMELINE = "document.querySelector('#timeline').timeline"
SLOWEST = "slowest: begins 1 of 1 collective last, the others wait 60.0 µs each"


def header_of(*traces):
    payload = encode(as_groups(list(traces)))
    return payload.header["groups"], payload.block


def test_each_gpu_has_its_metrics_and_the_slowest_is_named():
    (group,), _ = header_of(gpus_trace(4))
    first, *_, last = group["gpus"]
    # 150 of 200 µs with a kernel on the first GPU, and 80 of 100 µs of communication with no matmul beside it.
    assert (first["name"], first["words"], first["slowest"]) == ("GPU 0", ["busy 75 %", "exposed communication 40 %", "waiting 30 %"], "")
    assert (last["words"], last["slowest"]) == (["busy 60 %", "exposed communication 10 %", "waiting 0 %"], SLOWEST)
    assert f"GPU 3 is the {SLOWEST}" in group["remarks"]
    assert [lane["gpu"] for lane in group["lanes"]][:4] == [-1, 0, 0, 0]


def test_the_metrics_are_those_of_the_analysis():
    trace = gpus_trace(3)
    (group,), _ = header_of(trace)
    for gpu in group["gpus"]:
        own = trace.of_gpu(gpu["gpu"])
        work = ss.analysis.work_split(own)
        times_ns = (
            ss.analysis.gpu_busy_ns(own.spans), work.compute_ns, work.exposed_communication_ns, work.hidden_communication_ns,
            ss.analysis.collective_wait_ns(trace, gpu["gpu"]),
        )  # fmt: skip
        assert [value.partition(",")[0] for _, value in gpu["details"]] == [time_text(time_ns) for time_ns in times_ns]


def test_a_gpu_without_more_work_is_not_the_slowest_but_was_launched_later():
    begins, lanes = (0, 60_000), {f"GPU {gpu} {stream}": gpu for gpu in range(2) for stream in ("main", "comm")}
    rows = [("kernel", "gemm", f"GPU {gpu} main", begin, begin + 10_000) for gpu, begin in enumerate(begins)]
    rows += [("kernel", "all-reduce", f"GPU {gpu} comm", begin + 10_000, 90_000) for gpu, begin in enumerate(begins)]
    both = Collectives.from_columns([1, 3], "all_reduce", instance=0, op="sum", nbytes=1, ranks=2)
    trace = Trace(SpanTable.of(*rows, gpus=lanes), gpus_trace(2).info, collectives=both)
    (launched,) = header_of(trace)[0]
    words = "launched later, has no more work: begins 1 of 1 collective last, the other GPU waits 60.0 µs"
    assert [gpu["slowest"] for gpu in launched["gpus"]] == ["", words]
    assert f"GPU 1 was {words}" in launched["remarks"]


def test_without_collectives_the_slowest_is_the_one_that_computes_longest():
    trace = gpus_trace(2)
    trace.__dict__["collectives"] = Collectives()
    (group,), _ = header_of(trace)
    # Its kernels take 50 and 100 µs, those of the other 80 and 40 µs.
    assert [gpu["slowest"] for gpu in group["gpus"]] == ["slowest: computes 25 % longer than the others", ""]
    assert group["gpus"][0]["words"] == ["busy 75 %", "exposed communication 0 %"]


def test_gpus_beyond_what_fits_begin_collapsed_but_for_the_slowest_and_one_other():
    def folded(*traces):
        return [[gpu["folded"] for gpu in group["gpus"]] for group in header_of(*traces)[0]]

    assert folded(gpus_trace(4)) == [[False] * 4]
    assert folded(gpus_trace(8, streams=10)) == [[False, *[True] * 6, False]]
    assert folded(gpus_trace(4), gpus_trace(4)) == [[True] * 4] * 2
    # The host and twelve streams of each of eight GPUs are all drawn.
    assert len(places_of(gpus_trace(8, streams=10).spans).lanes) == 97


def test_parts_of_collectives_and_copies_are_sent_with_what_a_tooltip_tells():
    trace = gpus_trace(2)
    (group,), block = header_of(trace)
    sent = group["collectives"]
    found = {name: column(block, sent[name], sent["count"]).tolist() for name in ("instance", "waiting", "last", "bandwidth", "told")}
    # All-reduce of two ranks moves its size once: 1 MiB in the 40 µs since the last part began.
    assert found == {"instance": [3, 3], "waiting": [60_000, 0], "last": [1, 1], "bandwidth": [26_214_400_000] * 2, "told": [0, 0]}
    assert sent["words"] == [[["collective", "all-reduce, sum"], ["size", "1.0 MiB"], ["communicator", "dp, 2 GPUs"]]]
    rows, far = (column(block, group["columns"][name], group["count"]) for name in ("collective", "far"))
    assert np.flatnonzero(rows >= 0).tolist() == trace.collectives.span.tolist()
    (copy,) = far[far > 0].tolist()
    assert group["lanes"][copy] == {"name": "GPU 1 from GPU 0", "host": False, "gpu": 1, "ends": [0, 1]}
    assert group["drawn"][-1] == [copy, 1, False, 0]


def test_communication_is_told_apart_from_what_computes_on_each_gpu():
    (group,), block = header_of(gpus_trace(2))
    first = group["activities"][0]
    names = ("start", "kernels", "copies", "collectives", "peers")
    stretches = np.stack([column(block, first[name], first["count"]) for name in names], axis=1).tolist()
    assert [2000, 1, 1, 0, 1] in stretches  # a copy to GPU 1 beside a kernel
    assert [100_000, 2, 0, 1, 0] in stretches  # a matmul hides the all-reduce
    assert [120_000, 1, 0, 1, 0] in stretches  # and then nothing does


def test_one_gpu_has_no_header_and_no_columns_of_several(five_engines):
    (group,), _ = header_of(five_engines(20)["dual"])
    assert group["gpus"] == [{"gpu": 0, "name": "", "words": [], "slowest": "", "details": [], "folded": False}]
    assert group.keys().isdisjoint({"collectives"})
    assert group["columns"].keys().isdisjoint({"collective", "far"})


def test_a_long_trace_has_the_same_of_each_gpu():
    trace = gpus_trace(2)
    tiles = Tiles(as_groups([trace]))
    overview = tiles.overview()
    (group,) = overview.header["groups"]
    assert [gpu["name"] for gpu in group["gpus"]] == ["GPU 0", "GPU 1"]
    assert group["collectives"]["count"] == 2
    (part,) = tiles.tile([[0, 18, 0]]).header["groups"]
    assert len(part["activities"]) == 2
    area = {"group": 0, "start": 0, "end": 200_000, "rows": []}
    (sums,) = answer(tiles, tiles.groups, {"type": "totals", "areas": [area]}).header["groups"]
    assert sums["gpus"] == [(4, 150_000.0, 150_000.0), (4, 120_000.0, 120_000.0)]


def test_the_still_picture_has_a_header_for_each_gpu_and_fades_waiting():
    svg = timeline_svg(as_groups([gpus_trace(8, streams=10)]))
    assert re.findall(r"from GPU \d|to GPU \d", timeline_svg(as_groups([gpus_trace(2)]))) == ["from GPU 0"]
    assert re.findall(r">(GPU \d)<", svg) == [f"GPU {gpu}" for gpu in range(8)]
    assert svg.count(">main<") == 2  # the others are collapsed
    assert svg.count(">at once<") == 8
    assert SLOWEST in svg
    assert len(svg) < 100_000
    waits = re.findall(r'opacity="0.36" d="M116 [\d.]+m([\d.]+) 0h([\d.]+)"', timeline_svg(as_groups([gpus_trace(2)])))
    assert waits == [("0", "1"), ("425", "254.5")]  # a short call; and from 100 to 160 of 200 µs, which are 850 pixels, less a hairline


@pytest.mark.browser
@pytest.mark.usefixtures("bundle")
def test_gpus_expand_by_click_and_by_key_and_axe_finds_nothing(open_page, violations, tmp_path):
    page = open_page(report([gpus_trace(8, streams=10)], tmp_path / "host.html", title="host"))
    height = f"{TIMELINE}.layout.height"
    closed = page.evaluate(height)
    button = page.get_by_role("button", name="Lanes of dual · GPU 2")
    assert button.get_attribute("aria-expanded") == "false"
    button.click()
    until(page, f"{height} > {closed}")
    assert page.get_by_role("button", name="Lanes of dual · GPU 2").get_attribute("aria-expanded") == "true"
    page.locator(".ss-overlay").focus()
    page.keyboard.press("x")
    page.keyboard.press("x")
    until(page, f"{height} < {closed}")
    assert page.evaluate(f"{TIMELINE}.state.collapsed.length") == 8
    # A part in a collapsed GPU is selected with all others; its name in the header's row expands it.
    page.evaluate(f"{TIMELINE}.select(0, {TIMELINE}.model.groups[0].collective.indexOf(5))")
    assert page.locator(".ss-panel tbody tr").count() == 8
    box = page.locator(".ss-overlay").bounding_box()
    top = page.locator(".ss-gpu").nth(5).bounding_box()
    page.mouse.click(box["x"] + 300, top["y"] + top["height"] / 2)
    until(page, f"{TIMELINE}.state.collapsed.length === 7")
    assert violations(page) == []
