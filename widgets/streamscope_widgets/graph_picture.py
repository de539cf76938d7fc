"""A captured graph as a picture: a box for each node, in rows by level and columns by stream, and arrows for dependencies.

In a notebook it is an image with a data URI, which untrusted notebooks keep (an inline ``<svg>`` they drop), and an image map, which is how
an image shows a tooltip for each box. It brings a card of its own, in light or dark as the browser prefers.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from streamscope.devices.graph_node import GraphNode, NodeKind
from streamscope.engines.graphs import GraphView
from streamscope.results.views import View
from streamscope.words import counted, shortened
from streamscope_widgets.graph_layout import Box, Layout, layout
from streamscope_widgets.show import palette
from streamscope_widgets.show.html import Html, fill, small
from streamscope_widgets.show.svg import data_uri, document, shape, text, words

BOX_WIDTH, BOX_HEIGHT, STRIPE = 248, 26, 5
COLUMN_GAP, ROW_GAP, PADDING = 40, 18, 14
TRACKS, TRACK = 4, 4
"""Arrows that go the long way beside a column keep to so many tracks, so many px apart."""
HEAD, LANE_HEAD = 34, 24
CHARACTER = 6.1
"""About the width of a character in px, at a font size of 11."""
TIP_LINES = 12
MOST_HEIGHT = 640
"""Pixels of a notebook's output before it scrolls."""
TALL = "height:{}px;resize:vertical;border-bottom:1px solid #8884"
SCROLL = "Scroll the picture to see all {:,} px of it, or drag its lower right corner."
"""Said under a picture that is cut off: many browsers hide the bar until somebody scrolls."""

STYLE = """
.g { --card: #ffffff; --band: #f4f6f9; --box: #ffffff; --ink: #1f2430; --soft: #5b6472; --rule: #c3cad4; --arrow: #8b93a1; }
@media (prefers-color-scheme: dark) {
.g { --card: #121212; --band: #1c2028; --box: #262b35; --ink: #e8eaee; --soft: #a3abb8; --rule: #424956; --arrow: #7d8697; } }
.g text { font: 11px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif; fill: var(--ink); }
.g .title { font-size: 12.5px; font-weight: 600; } .g .soft { fill: var(--soft); font-size: 10px; }
.g .card { fill: var(--card); } .g .band { fill: var(--band); }
.g .box, .g use { fill: var(--box); stroke: var(--rule); } .g .edge { fill: none; stroke: var(--arrow); stroke-width: 1.3; }
.g .tip { fill: var(--arrow); }
"""
_KIND_COLOURS = {
    NodeKind.COPY: palette.COPY,
    NodeKind.SET: palette.COPY,
    NodeKind.EVENT_RECORD: palette.EVENT_CALL,
    NodeKind.EVENT_WAIT: palette.EVENT_CALL,
    NodeKind.HOST: palette.HOST_FUNCTION,
}


def graph_html(view: GraphView) -> Html:
    """Return a graph as HTML for a notebook, with a tooltip for each box."""
    picture = _Picture.of(view)
    area = '<area shape="rect" coords="{:.0f},{:.0f},{:.0f},{:.0f}" title="{tip}" alt="{name}">'
    return fill(
        '<div style="overflow:auto;{tall}">'
        '<img src="{source}" alt="{title}" usemap="#{name}" width="{width}" height="{height}" style="max-width:none;border-radius:6px">'
        '<map name="{name}">{areas}</map></div>{hint}',
        tall=TALL.format(MOST_HEIGHT) if picture.height > MOST_HEIGHT else "",
        hint=small(SCROLL.format(picture.height)) if picture.height > MOST_HEIGHT else Html(),
        source=Html(data_uri(picture.svg(tips=False))),
        title=picture.title,
        name=f"graph-{secrets.token_hex(4)}",
        width=picture.width,
        height=picture.height,
        areas=[fill(area, x, y, x + BOX_WIDTH, y + BOX_HEIGHT, tip=tip, name=tip.partition("\n")[0]) for x, y, tip in picture.tips()],
    )


def graph_svg(view: GraphView) -> str:
    """Return a graph as an SVG document, with a ``<title>`` for each box."""
    return _Picture.of(view).svg()


@dataclass(frozen=True)
class _Picture:
    """A layout with its labels."""

    title: str
    nodes: Sequence[GraphNode]
    layout: Layout
    colours: Mapping[str, str]
    """Of kernels, by name."""

    @classmethod
    def of(cls, view: GraphView) -> _Picture:
        kernels = Counter(node.name for node in view.nodes if node.kind is NodeKind.KERNEL)
        colours = {name: palette.KERNELS[rank % len(palette.KERNELS)] for rank, (name, _) in enumerate(kernels.most_common())}
        laid_out = layout(view.nodes, view.lanes)
        lanes = f", {len(laid_out.lanes)} streams" if len(laid_out.lanes) > 1 else ""
        return cls(f"{view.title}: a graph of {counted(len(view.nodes), 'node')}{lanes}", view.nodes, laid_out, colours)

    @property
    def top(self) -> float:
        """Where the first row begins."""
        return HEAD + (LANE_HEAD if any(lane.name for lane in self.layout.lanes) else 0)

    @property
    def width(self) -> int:
        boxes = 2 * PADDING + max(1, self.layout.columns) * (BOX_WIDTH + COLUMN_GAP)
        return max(boxes, round(2 * PADDING + len(self.title) * CHARACTER * 1.2))

    @property
    def height(self) -> int:
        return round(self.top + self.layout.levels * (BOX_HEIGHT + ROW_GAP) + PADDING)

    def x(self, column: int) -> float:
        return PADDING + COLUMN_GAP / 2 + column * (BOX_WIDTH + COLUMN_GAP)

    def y(self, level: int) -> float:
        return self.top + ROW_GAP / 2 + level * (BOX_HEIGHT + ROW_GAP)

    def tips(self) -> Iterator[tuple[float, float, str]]:
        """Yield for each box its corner and its tooltip."""
        for box in self.layout.boxes:
            yield self.x(box.column), self.y(box.level), "\n".join(self.tip(box))

    def tip(self, box: Box) -> list[str]:
        if len(box.nodes) == 1:
            return [f"node {box.nodes[0]}", *self.nodes[box.nodes[0]].details]
        lines = [f"{index}: {self.nodes[index].name} {self.nodes[index].shape}".rstrip() for index in box.nodes]
        more = [f"and {len(lines) - TIP_LINES} more"] if len(lines) > TIP_LINES else []
        return [f"nodes {box.nodes[0]} to {box.nodes[-1]}, one after the other", *lines[:TIP_LINES], *more]

    def svg(self, *, tips: bool = True) -> str:
        """Return the document; an image shows no tips of its own."""
        arrow = shape("path", class_="tip", d="M0 .8 8 4 0 7.2z")
        marker = shape(
            "marker", arrow, id="tip", viewBox="0 0 8 8", refX=7, refY=4, markerWidth=7, markerHeight=7, orient="auto"
        )  # fmt: skip
        card = shape("rect", class_="card", width="100%", height="100%", rx=6)
        title = text(PADDING, 22, self.title, class_="title")
        edges = [shape("path", class_="edge", marker_end="url(#tip)", d=path) for path in self.edges()]
        boxes = [self.box(box, tips=tips) for box in self.layout.boxes]
        frame = shape("rect", id="box", class_="box", width=BOX_WIDTH, height=BOX_HEIGHT, rx=4)
        head = [shape("style", STYLE), shape("defs", marker, frame), card, title]
        return document(self.width, self.height, *head, *self.lanes(), *edges, *boxes, label=self.title, card=False, class_="g")

    def lanes(self) -> Iterator[str]:
        """Yield a band behind the columns of each stream, with its name."""
        for lane in self.layout.lanes:
            if lane.name:
                x, width = self.x(lane.first) - COLUMN_GAP / 2 + 3, lane.count * (BOX_WIDTH + COLUMN_GAP) - 6
                yield shape("rect", class_="band", x=x, y=HEAD, width=width, height=self.height - HEAD - PADDING / 2, rx=6)
                yield text(x + COLUMN_GAP / 2 - 3, HEAD + 16, lane.name, class_="soft")

    def box(self, box: Box, *, tips: bool) -> str:
        """Draw one box: a stripe in the kernel's colour, the name, and the shape in faint ink."""
        node, x, y = self.nodes[box.nodes[0]], self.x(box.column), self.y(box.level)
        name, extent = (_named(node), node.shape) if len(box.nodes) == 1 else self.summary(box)
        room = int((BOX_WIDTH - STRIPE - 22) / CHARACTER) - len(extent)
        frames = [shape("use", href="#box", x=x + shift, y=y + shift) for shift in ((3, 0) if len(box.nodes) > 1 else (0,))]
        tip = [shape("title", words("\n".join(self.tip(box))))] if tips else []
        parts = [*tip, *frames, *self.stripe(box), text(x + STRIPE + 8, y + 17, shortened(name, room))]
        if extent:
            parts.append(text(x + BOX_WIDTH - 8, y + 17, extent, class_="soft", text_anchor="end"))
        return shape("g", *parts)

    def stripe(self, box: Box) -> Iterator[str]:
        """Yield the stripe at the left edge of a box; that of a folded chain has the colours of its nodes, by their share."""
        colours = Counter(self.colour(self.nodes[index]) for index in box.nodes)
        x, y = self.x(box.column), self.y(box.level) + 0.5
        for colour, count in colours.most_common():
            height = (BOX_HEIGHT - 1) * count / len(box.nodes)
            yield shape("rect", x=x + 0.5, y=y, width=STRIPE, height=height, fill=colour)
            y += height

    def summary(self, box: Box) -> tuple[str, str]:
        """Return the label of a folded chain: its module, or its names, the most frequent first; and how many nodes it has."""
        count = counted(len(box.nodes), "node")
        if module := _common([self.nodes[index].module for index in box.nodes]):
            return module, count
        names = Counter(self.nodes[index].name for index in box.nodes)
        return ", ".join(name for name, _ in names.most_common()), count

    def colour(self, node: GraphNode) -> str:
        return self.colours[node.name] if node.kind is NodeKind.KERNEL else _KIND_COLOURS.get(node.kind, palette.HOST_CALL)

    def edges(self) -> Iterator[str]:
        """Yield the path of each arrow."""
        used: Counter[int] = Counter()
        for source, target in self.layout.edges:
            before, after = self.layout.boxes[source], self.layout.boxes[target]
            yield self.edge(before, after, used[after.column] % TRACKS)
            # Only what does not simply go down takes a track.
            used[after.column] += before.column != after.column or after.level > before.level + 1

    def edge(self, source: Box, target: Box, track: int) -> str:
        """Draw an arrow straight down, over to another column or, past other rows, through the gap beside the target's column."""
        x1, y1 = self.x(source.column) + BOX_WIDTH / 2, self.y(source.level) + BOX_HEIGHT
        x2, y2 = self.x(target.column) + BOX_WIDTH / 2, self.y(target.level)
        near = target.level == source.level + 1
        if near and source.column == target.column:
            return f"M{x1:.0f} {y1:.0f}V{y2:.0f}"
        # From a column on the left it comes in on the left; what comes from the right, or from above, on the right.
        side = -1 if source.column < target.column else 1
        enter, down = x2 + side * (BOX_WIDTH / 4 + track * TRACK), y1 + ROW_GAP / 2 - TRACK + track * 2
        if near:
            return _rounded([(x1, y1), (x1, down), (enter, down), (enter, y2)])
        gap = x2 + side * ((BOX_WIDTH + COLUMN_GAP) / 2 + (track - (TRACKS - 1) / 2) * TRACK)
        over = y2 - ROW_GAP / 2 - TRACK + track * 2
        leave = x1 + (BOX_WIDTH / 4 if source.column == target.column else 0)
        return _rounded([(leave, y1), (leave, down), (gap, down), (gap, over), (enter, over), (enter, y2)])


def _rounded(points: Sequence[tuple[float, float]], radius: float = 4) -> str:
    """Return a path along points, each to the next across or down, with round corners."""
    path = [f"M{points[0][0]:.0f} {points[0][1]:.0f}"]
    for (x0, y0), (x, y), (x2, y2) in zip(points, points[1:], points[2:], strict=False):
        before, after = (min(radius, (abs(x - a) + abs(y - b)) / 2) for a, b in ((x0, y0), (x2, y2)))
        path.append(f"L{x - before * _sign(x - x0):.1f} {y - before * _sign(y - y0):.1f}")
        path.append(f"Q{x:.1f} {y:.1f} {x + after * _sign(x2 - x):.1f} {y + after * _sign(y2 - y):.1f}")
    return "".join([*path, f"L{points[-1][0]:.1f} {points[-1][1]:.1f}"])


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)


def _named(node: GraphNode) -> str:
    """Return the label of a node: its name, or the module that it belongs to and what it does there, as ``conv1 · relu``."""
    does = node.operator.split(".")[:2][-1]  # PyTorch's are called "aten.relu.default".
    return f"{node.module} · {does}" if node.module else node.name


def _common(modules: Sequence[str]) -> str:
    """Return the module that all of these belong to; nothing where there is none."""
    levels = zip(*(module.split(".") for module in modules), strict=False)
    return ".".join(level[0] for level in takewhile(lambda level: len(set(level)) == 1, levels))


GRAPH = View(of="graph", html=graph_html, pictures={"graph": graph_svg})
