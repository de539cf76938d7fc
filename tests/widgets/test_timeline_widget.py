"""The widget's Python side, without a browser."""

from __future__ import annotations

import pytest

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
