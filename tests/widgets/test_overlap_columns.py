"""The columns that show overlap hold what the analysis says, and the live timeline shows it."""

from __future__ import annotations

import numpy as np
import pytest

import streamscope as ss
from streamscope.analysis import Bound, Occupation, activity, critical_path
from streamscope_widgets.overlap_columns import FULLNESS_STEPS, FULLNESS_UNKNOWN
from streamscope_widgets.payload import as_groups, encode, encode_paths
from streamscope_widgets.report import report
from streamscope_widgets.timeline import timeline

DTYPES = {"u8": "<u1", "u16": "<u2", "u32": "<u4", "f64": "<f8"}


@pytest.fixture(scope="module")
def runs():
    """Two labelled branches, so that graph-dual overlaps; with copies around them."""

    def step(x, w):
        device_x, device_w = ss.ops.to_device(x), ss.ops.to_device(w)
        with ss.label("left <b>"):
            a = ss.ops.relu(device_x) @ device_w
        with ss.label("right"):
            b = ss.ops.relu(device_w) @ device_x
        return ss.ops.to_host(a + b)

    x, w = np.ones((2, 256, 256), "float32")
    return ss.compare(ss.program(step), x, w, engines=["async", "dual", "graph-dual"], device="simulated", progress=False)


def column(block, spec, count):
    """Read a column as the front end does."""
    if "constant" in spec:
        values = np.full(count, spec["constant"], np.int64)
    else:
        values = np.frombuffer(block, DTYPES[spec["dtype"]], count, spec["offset"]).astype(np.int64)
    return spec["first"] + np.cumsum(values) if spec.get("delta") else values + spec.get("shift", 0)


def test_what_the_device_does_survives_exactly(runs):
    payload = encode(as_groups(runs.groups()))
    assert payload.header["occupations"] == [one.name.lower() for one in Occupation]
    for header, run in zip(payload.header["groups"], runs.values(), strict=True):
        found, sent = activity(run.trace.spans, 132), header["activities"][0]
        for name in ("kernels", "copies", "occupation"):
            np.testing.assert_array_equal(column(payload.block, sent[name], sent["count"]), getattr(found, name))
        np.testing.assert_array_equal(column(payload.block, sent["start"], sent["count"]), found.start_ns)
        assert sent["end_ns"] == found.end_ns[-1]
        full = column(payload.block, sent["fullness"], sent["count"])
        np.testing.assert_allclose(full / FULLNESS_STEPS, found.fullness, atol=0.5 / FULLNESS_STEPS)
        assert FULLNESS_UNKNOWN not in full


def test_unknown_fullness_is_sent_as_unknown(make_trace, five_engines):
    payload = encode(as_groups([five_engines()["async"]]))  # no word of multiprocessors
    sent = payload.header["groups"][0]["activities"][0]
    kernels = column(payload.block, sent["kernels"], sent["count"])
    assert (column(payload.block, sent["fullness"], sent["count"])[kernels > 0] == FULLNESS_UNKNOWN).all()


def test_waits_and_origins_survive_exactly(runs):
    payload = encode(as_groups(runs.groups()))
    for header, run in zip(payload.header["groups"], runs.values(), strict=True):
        origins, spans, sent = run.trace.origins, run.trace.spans, header["waits"]
        pairs = zip(*(column(payload.block, sent[name], sent["count"]).tolist() for name in ("earlier", "later")), strict=True)
        assert sorted(pairs) == sorted(zip(*(rows.tolist() for rows in origins.wait_rows(spans)), strict=True))
        for name in ("label", "line", "arguments"):
            codes = column(payload.block, header["origins"][name], header["origins"]["count"])
            texts = [payload.header["texts"][code] if code >= 0 else "" for code in codes]
            assert texts == [origins.texts[code] if code >= 0 else "" for code in getattr(origins, name)]


@pytest.mark.parametrize("apart", [True, False])
def test_the_critical_path_survives_exactly(runs, apart):
    groups = as_groups(runs.groups())
    payload = encode_paths(groups) if apart else encode(groups, paths=True)
    sent = payload.header["paths"] if apart else [header["path"] for header in payload.header["groups"]]
    for path, run in zip(sent, runs.values(), strict=True):
        found = critical_path(run.trace)
        assert path["words"] == found.words
        starts, durations, bounds, lanes = (
            column(payload.block, path[name], path["count"]) for name in ("start", "duration", "bound", "lane")
        )
        np.testing.assert_array_equal(starts, found.start_ns)
        np.testing.assert_array_equal(starts + durations, found.end_ns)
        np.testing.assert_array_equal(bounds, found.bound)
        np.testing.assert_array_equal(lanes, run.trace.spans.lane[found.span])
    assert len(encode(groups).header.get("bounds")) == len(Bound)


def test_a_shortened_trace_has_no_rows_beyond_its_end(runs):
    payload = encode(as_groups(runs.groups()), [8, 8, 8], paths=True)
    for header in payload.header["groups"]:
        for name in ("earlier", "later"):
            assert (column(payload.block, header["waits"][name], header["waits"]["count"]) < 8).all()
    for header, run in zip(payload.header["groups"], runs.values(), strict=True):
        assert header["path"]["count"] == (critical_path(run.trace).span < 8).sum()


def test_a_view_that_asks_gets_the_paths(runs):
    widget = timeline(runs.groups())
    sent = []
    widget.send = lambda content, buffers: sent.append((content, buffers))
    widget._answer(widget, {"type": "paths", "view": "one", "id": "7"}, [])
    ((content, buffers),) = sent
    assert (content["type"], content["view"], content["id"], len(content["header"]["paths"])) == ("answer", "one", "7", 3)
    assert buffers == [encode_paths(as_groups(runs.groups())).block]


@pytest.mark.browser
def test_overlap_is_seen_and_switched(runs, browser, bundle, tmp_path):
    path = report(runs.groups(), tmp_path / "report.html", title="overlap")
    page = browser.new_page(viewport={"width": 1100, "height": 700})
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(path.as_uri())
    element = "document.getElementById('timeline').timeline"
    page.evaluate(f"new Promise((done) => {{ const look = () => {element}?.layout ? done() : requestAnimationFrame(look); look(); }})")
    pixels = f"(() => {{ const {{ canvas }} = {element}.root.querySelector('.ss-base').getContext('2d'); return canvas.toDataURL(); }})()"
    with_overlap, height = page.evaluate(pixels), page.evaluate(f"{element}.layout.height")
    # Over the lane "at once" of graph-dual, in the middle of the stretch with two kernels.
    spot = page.evaluate(
        f"""(() => {{
            const timeline = {element};
            const [activity] = timeline.model.groups[2].activities;
            const i = activity.kernels.indexOf(2);
            const {{ left, right }} = timeline.layout.plot;
            const share = ((activity.start[i] + activity.end[i]) / 2 - timeline.view.t0) / (timeline.view.t1 - timeline.view.t0);
            const box = timeline.root.querySelector('.ss-overlay').getBoundingClientRect();
            return {{ x: box.left + left + share * (right - left), y: box.top + timeline.layout.groups[2].bottom - 8 }};
        }})()"""
    )
    page.mouse.move(spot["x"], spot["y"])
    tip = page.locator(".ss-tip")
    tip.wait_for()
    assert tip.inner_text().startswith("2 kernels at once")
    assert "simulated time" in tip.inner_text()
    page.locator(".ss-overlay").focus()
    page.keyboard.press("c")
    page.wait_for_timeout(60)
    with_path = page.evaluate(pixels)
    assert with_path != with_overlap
    page.keyboard.press("c")
    page.keyboard.press("o")
    page.wait_for_timeout(60)
    assert page.evaluate(f"{element}.layout.height") < height
    assert page.get_by_role("button", name="Show what runs at once").get_attribute("aria-pressed") == "false"
    # Each switch is part of the view's state, which a link, Python and new spans restore.
    assert page.evaluate(f"{element}.state.shows") == []
    page.evaluate(f"{element}.state = {{ shows: ['critical path'] }}")
    assert page.evaluate(f"{element}.state.shows") == ["critical path"]
    assert page.get_by_role("button", name="Show what made each run").get_attribute("aria-pressed") == "true"
    assert errors == []
    page.close()
