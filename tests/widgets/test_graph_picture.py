"""The picture of a graph: valid, escaped, with a tooltip and a place for each box."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from tests.engines.graphs.conftest import graphs, ran_twice  # noqa: F401 — a fixture

from streamscope.devices.graph_node import GraphNode, NodeKind
from streamscope.engines.graphs import GraphView
from streamscope_widgets.graph_picture import BOX_HEIGHT, BOX_WIDTH, graph_html, graph_svg

SVG = "{http://www.w3.org/2000/svg}"
INSIDE = re.compile(r"data:image/svg\+xml;base64,([^\"]+)")


class Tags(HTMLParser):
    """Collects the tags of a document with their attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))


@given(graphs())
def test_any_graph_is_valid_and_every_node_has_a_box(nodes):
    root = ET.fromstring(graph_svg(GraphView("<&>", 0, nodes)))
    boxes = root.findall(f"{SVG}g")
    assert len(boxes) == len(nodes)
    assert len([path for path in root.findall(f"{SVG}path") if path.get("class") == "edge"]) == sum(len(node.after) for node in nodes)
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    for box in boxes:
        frame = box.find(f"{SVG}use")
        assert float(frame.get("x")) + BOX_WIDTH <= width
        assert float(frame.get("y")) + BOX_HEIGHT <= height


@pytest.mark.parametrize(("count", "cut"), [(3, False), (60, True)])
def test_a_picture_that_is_cut_off_says_so_and_can_be_made_taller(count, cut):
    nodes = tuple(
        GraphNode(NodeKind.KERNEL, f"k{number}", range(number % 2, number, 2)[-1:], (1, 1, 1), (64, 1, 1)) for number in range(count)
    )
    html = graph_html(GraphView("graph", 0, nodes))
    assert ("resize:vertical" in html, "Scroll the picture" in html) == (cut, cut)


def test_names_are_escaped():
    node = GraphNode(NodeKind.KERNEL, '<b>&"\x00', grid=(2, 1, 1), block=(64, 1, 1), registers=40)
    html = graph_html(GraphView("<script>", 0, (node,)))
    assert "<script>" not in html
    assert "<b>" not in html
    root = ET.fromstring(base64.b64decode(INSIDE.search(html).group(1)))
    assert root.find(f"{SVG}g/{SVG}text").text == '<b>&"�'


def test_captured_nodes_are_called_by_their_modules():
    def node(number, module, operator):
        after = (number - 1,) if number else ()
        return GraphNode(NodeKind.KERNEL, "kernel", after, (2, 1, 1), (64, 1, 1), operation=number, operator=operator, module=module)

    (alone,) = [node(0, "layer3.0.conv1", "aten.relu_.default")]
    assert "layer3.0.conv1 · relu_" in graph_svg(GraphView("net", 0, (alone,)))
    chain = tuple(node(number, f"layer3.{number}.conv", "aten.convolution.default") for number in range(80))
    assert ">layer3<" in graph_svg(GraphView("net", 0, chain))


def test_tooltips_in_both_forms():
    node = GraphNode(NodeKind.KERNEL, "relu", (), (64, 2, 1), (256, 1, 1), 40, 1024)
    view = GraphView("p", 0, (replace(node, lane="aux", operation=3, operator="relu", where="a.py:7"),))
    expected = [
        "node 0",
        "relu (kernel)",
        "operation 3, relu, a.py:7",
        "stream aux",
        "grid 64·2, block 256",
        "40 registers a thread",
        "1,024 bytes of shared memory a block",
    ]
    assert ET.fromstring(view.svg()).find(f"{SVG}g/{SVG}title").text.splitlines() == expected
    tags = Tags(view._repr_html_()).tags
    (area,) = [attributes for tag, attributes in tags if tag == "area"]
    assert area["title"].splitlines() == expected
    (image,) = [attributes for tag, attributes in tags if tag == "img"]
    (image_map,) = [attributes for tag, attributes in tags if tag == "map"]
    assert image["usemap"] == "#" + image_map["name"]


def test_long_chains_are_folded_with_a_count(ran_twice):  # noqa: F811
    (view,) = ran_twice("elementwise-chain", "graph", length=600).graphs
    root = ET.fromstring(view.svg())
    boxes = root.findall(f"{SVG}g")
    assert len(boxes) == 60
    assert all("10 nodes" in "".join(box.itertext()) for box in boxes)
    assert len(view._repr_html_()) < 200_000


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.browser
def test_the_card_follows_the_browser(ran_twice, browser, scheme):  # noqa: F811
    (view,) = ran_twice("branches", "graph-dual", streams=4).graphs
    page = browser.new_page(color_scheme=scheme)
    page.set_content(view.svg())
    colours = page.evaluate("['.card', '.box', '.band', 'g > use'].map(name => getComputedStyle(document.querySelector(name)).fill)")
    light = [sum(map(int, re.findall(r"\d+", colour)[:3])) > 380 for colour in colours]
    assert light == [scheme == "light"] * 4
    overlaps = page.evaluate(
        """() => { const boxes = [...document.querySelectorAll('g > use')].map(e => e.getBoundingClientRect());
        const texts = [...document.querySelectorAll('g')].every(g => { const frame = g.querySelector('use').getBoundingClientRect();
            return [...g.querySelectorAll('text')].every(t => t.getBoundingClientRect().right <= frame.right); });
        return [texts, boxes.length]; }"""
    )
    assert overlaps == [True, 35]
    page.close()


def test_as_text_it_is_a_line():
    nodes = tuple(GraphNode(NodeKind.KERNEL, "k") for _ in range(3))
    assert repr(GraphView("step", 1, nodes)) == "<step, segment 1: a graph of 3 nodes>"
