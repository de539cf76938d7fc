"""`GraphView`: a captured graph to look at, as a list of nodes, as text, as DOT and, in a notebook, as a picture."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from streamscope import display
from streamscope.arguments import given_path
from streamscope.devices.graph_node import GraphNode
from streamscope.engines.graphs.dot import dot
from streamscope.errors import OutputError
from streamscope.files import written_whole


@dataclass(frozen=True)
class GraphView:
    """A captured graph.

    Attributes
    ----------
    program : str
        Name of the program.
    segment : int
        Which of the program's segments it was captured from.
    nodes : tuple of GraphNode
        In the order of capture, so that each comes after those that it depends on.
    lanes : tuple of str
        Names of the streams, in the plan's order.
    """

    program: str
    segment: int
    nodes: tuple[GraphNode, ...]
    lanes: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The program's name and the number of the segment."""
        return f"{self.program}, segment {self.segment}"

    def dot(self) -> str:
        """Return the graph in Graphviz's DOT language, with a cluster for each stream."""
        return dot(self.nodes, self.title)

    def write_dot(self, path: str | Path) -> Path:
        """Write the graph as a ``.dot`` file and return its path.

        Raises
        ------
        OutputError
            The file cannot be written.
        """
        target = given_path(path, error=OutputError)
        with written_whole(target) as temporary:
            temporary.write_text(self.dot(), encoding="utf-8")
        return target

    def svg(self) -> str:
        """Return a picture of the graph as an SVG document."""
        return display.svg(self)

    def _repr_html_(self) -> str | None:
        return display.html(self)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"graph of {self.title}: {len(self.nodes)} nodes"
        for index, node in enumerate(self.nodes):
            after = ", ".join(map(str, node.after)) or "-"
            registers = "" if node.registers is None else f"{node.registers} registers"
            where = f"    # {node.where}" if node.where else ""
            yield f"{index:>4}  {node.kind.value:<12}  {node.name:<32}  {node.shape:<16}  {registers:<14}  after {after}{where}"
