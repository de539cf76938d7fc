"""A graph in the DOT language of Graphviz (https://graphviz.org/doc/info/lang.html)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from streamscope.devices.graph_node import GraphNode, NodeKind
from streamscope.errors import printable

SHAPES = {NodeKind.KERNEL: "box", NodeKind.COPY: "cds", NodeKind.SET: "cds", NodeKind.HOST: "component", NodeKind.EMPTY: "point"}
"""Shapes of nodes by kind; others are ellipses."""


def dot(nodes: Sequence[GraphNode], name: str) -> str:
    """Return a graph as DOT, with a cluster for each stream on which nodes were captured."""
    return "\n".join(_lines(nodes, name)) + "\n"


def _lines(nodes: Sequence[GraphNode], name: str) -> Iterator[str]:
    yield f"digraph {quoted(name)} {{"
    yield "  rankdir=TB;"
    yield '  node [fontname="sans-serif", fontsize=10];'
    lanes = dict.fromkeys(node.lane for node in nodes)
    for number, lane in enumerate(lanes):
        indent = "    " if lane else "  "
        if lane:
            yield f"  subgraph cluster_{number} {{"
            yield f"    label={quoted(lane)};"
        for index, node in enumerate(nodes):
            if node.lane == lane:
                yield f"{indent}n{index} [{_attributes(node)}];"
        if lane:
            yield "  }"
    for index, node in enumerate(nodes):
        for before in node.after:
            yield f"  n{before} -> n{index};"
    yield "}"


def _attributes(node: GraphNode) -> str:
    label = [node.name, node.shape, node.where]
    attributes = {
        "label": "\n".join(line for line in label if line),
        "tooltip": "\n".join(node.details),
        "shape": SHAPES.get(node.kind, "ellipse"),
    }
    return ", ".join(f"{key}={quoted(value)}" for key, value in attributes.items())


def quoted(text: str) -> str:
    r"""Return a text as a double-quoted string of DOT: its quotes and backslashes stand for themselves, line breaks are ``\n``.

    DOT itself escapes nothing but the quote, but labels read ``\N``, ``\l`` and the like, so that a backslash needs one before it.
    Other characters that cannot be printed are replaced.
    """
    escaped = printable(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
