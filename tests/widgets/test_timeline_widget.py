"""The widget's Python side, without a browser."""

from __future__ import annotations

import pytest

from streamscope.errors import TraceError
from streamscope_widgets import tiles
from streamscope_widgets.payload import as_groups, encode
from streamscope_widgets.timeline import timeline

pytestmark = pytest.mark.usefixtures("bundle")


@pytest.fixture
def widget(five_engines, monkeypatch):
    made = timeline(five_engines(20))
    sent = []
    monkeypatch.setattr(made, "send", lambda content, buffers=None: sent.append((content, buffers)))
    made.sent = sent
    return made


def test_each_view_gets_the_spans_that_it_asks_for(widget, five_engines):
    expected = encode(as_groups(five_engines(20)))
    for view in ("one", "two"):
        widget._handle_custom_msg({"type": "ready", "view": view}, [])
    assert [content["view"] for content, _ in widget.sent] == ["one", "two"]
    for content, buffers in widget.sent:
        assert content["type"] == "spans"
        assert content["header"] == expected.header
        assert buffers == [expected.block]


def test_of_a_long_trace_a_view_gets_an_overview_and_asks_for_the_rest(large_trace, monkeypatch):
    monkeypatch.setattr(tiles, "MOST_WHOLE", 1000)
    monkeypatch.setattr(tiles, "MOST_EXACT", 100)
    made, sent = timeline([large_trace(4000)]), []
    monkeypatch.setattr(made, "send", lambda content, buffers=None: sent.append((content, buffers)))
    made._handle_custom_msg({"type": "ready", "view": "one"}, [])
    made._handle_custom_msg({"type": "tile", "view": "one", "id": "1", "windows": [[0, 16, 2]]}, [])
    made._handle_custom_msg({"type": "find", "view": "two", "id": "2", "find": {"code": None, "text": "kernel"}}, [])
    made._handle_custom_msg({"type": "tile", "view": "one", "id": "3"}, [])
    (overview, _), (tile, (block,)), (found, _), (refused, _) = sent
    assert overview["type"] == "spans"
    assert overview["header"]["groups"][0]["count"] < 4000
    assert (tile["type"], tile["view"], tile["id"]) == ("answer", "one", "1")
    assert tile["header"]["groups"][0]["exact"]
    assert 0 < len(block) < 8000
    assert found["header"]["groups"][0]["onDevice"] == 2000
    assert refused["header"]["refused"].startswith("the question was not understood")


@pytest.mark.parametrize("message", [None, "ready", {}, {"type": "other"}, ["ready"]])
def test_other_messages_are_not_answered(widget, message):
    widget._handle_custom_msg(message, [])
    assert widget.sent == []


def test_the_saved_state_holds_the_front_end_but_no_spans(five_engines):
    small, large = timeline(five_engines(10)), timeline(five_engines(400))
    sizes = [sum(len(str(value)) for value in widget.get_state().values()) for widget in (small, large)]
    assert sizes[0] == sizes[1] < 110_000


def test_it_is_displayed_as_a_picture_with_the_finding_and_then_as_the_widget(five_engines, monkeypatch):
    shown = []
    monkeypatch.setattr("streamscope_widgets.timeline.display", lambda data, raw: shown.append(data))
    timeline(five_engines(20), "<b>graph</b> is fastest")._ipython_display_()
    picture, widget = shown
    assert "&lt;b&gt;graph&lt;/b&gt; is fastest" in picture["text/html"]
    assert "data:image/svg+xml;base64," in picture["text/html"]
    assert picture["text/plain"] == "<b>graph</b> is fastest"
    assert "application/vnd.jupyter.widget-view+json" in widget
    assert (widget["text/html"], widget["text/plain"]) == ("", "")


def test_traits_say_what_is_shown_and_are_observed(widget):
    seen = []
    widget.observe(lambda change: seen.append((change["name"], change["new"])), ["range", "engines", "selection", "shows"])
    assert (widget.selection, widget.range, widget.shows) == (None, None, ["overlap"])
    assert widget.engines == ["sync", "async", "dual", "graph", "graph-dual"]
    widget.range = (10, 2_000)
    widget.engines = ["graph", "async", "graph"]
    widget.selection = {"engine": "graph", "operation": 3}
    widget.selection = {"engine": "graph", "operation": None, "name": "synchronize", "span": 0}  # a wait, as the browser tells it
    widget.shows = ["critical path", "overlap", "overlap"]
    # What the browser sends goes the same way.
    widget.set_state({"range": [100.5, 200], "selection": None, "engines": ["sync"], "shows": []})
    assert seen == [
        ("range", (10.0, 2000.0)), ("engines", ["graph", "async"]), ("selection", {"engine": "graph", "operation": 3}),
        ("selection", {"engine": "graph", "operation": None, "name": "synchronize", "span": 0}),
        ("shows", ["overlap", "critical path"]),
        ("range", (100.5, 200.0)), ("selection", None), ("engines", ["sync"]), ("shows", []),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("trait", "value", "message"),
    [
        ("engines", ["graphs"], "no engine 'graphs'"),
        ("selection", {"engine": "graph"}, "names no operation"),
        ("selection", {"operation": 3}, "no engine None"),
        ("selection", {"engine": "graph", "operation": 999}, r"graph has no operation 999 \(its operations are 0 to 19\)"),
        ("selection", {"engine": "graph", "operation": -1}, "graph has no operation -1"),
        ("selection", {"engine": "graph", "operation": None, "span": 10**6}, "graph has no span 1000000"),
        ("range", (5, 5), "has no length"),
        ("range", (0, float("nan")), "has no length"),
        ("range", (0, float("inf")), "has no length"),
        ("shows", ["overlap", "path"], "cannot show 'path'"),
    ],
)
def test_a_trait_refuses_what_cannot_be_shown(widget, trait, value, message):
    before = getattr(widget, trait)
    with pytest.raises(TraceError, match=message):
        setattr(widget, trait, value)
    assert getattr(widget, trait) == before


def test_traits_follow_when_other_timelines_are_shown(widget, five_engines):
    widget.engines = ["graph", "sync"]
    widget.selection = {"engine": "sync", "operation": 3}
    traces = five_engines(20)
    widget.show(as_groups({"graph": traces["graph"], "async": traces["async"], "graph again": traces["graph"]}))
    assert widget.engines == ["graph", "graph again"]  # sync is gone, async was hidden
    assert widget.selection is None
    widget.show(as_groups({"other": traces["graph"]}))
    assert widget.engines == ["other"]
