"""The graph that a captured program comes from: its certificate, and its replays in the process that captured it.

`capturing` and `devices.cuda.raw_graph` implement these protocols.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, Protocol

COMMUNICATION = "communication"
"""Attribute of operations that are collectives, in words; the operations of a collective use the links between GPUs."""
Edges = tuple[tuple[int, ...], ...]
"""For each operation those that it comes directly after."""


@dataclass(frozen=True)
class OrderCause:
    """Something that orders nodes of captured code, perhaps without need."""

    kind: Literal["not understood", "shared workspace", "memory used twice"]
    subject: str
    """The cause as the beginning of a sentence, without the nodes."""
    nodes: Sequence[int]
    without: Edges
    """The true order if the cause were gone."""
    advice: str


class Certificate(Protocol):
    """Why the true order of captured code is right, and the check that each of its schedules passes before it runs."""

    @property
    def order(self) -> Edges:
        """The true order."""

    @property
    def edges(self) -> int:
        """Number of edges of the true order."""

    @property
    def pairs(self) -> int:
        """Number of pairs of nodes that must keep their order."""

    @property
    def capture_pairs(self) -> int:
        """Number of pairs of nodes that the capture orders."""

    def check(self, after: Sequence[Sequence[int]], schedule: str = ...) -> None:
        """Raise a RaceError if a schedule, which is for each operation those that it waits for, leaves operations unordered."""

    def named(self, number: int) -> str:
        """Name a node for errors: number, name, operator, module and line."""

    def symbol(self, number: int) -> str:
        """Return the whole name of a node's kernel; empty for a copy or a set."""

    def causes(self) -> Iterator[OrderCause]:
        """Yield each cause that orders nodes, with the order that would be without it."""


class CapturedGraph(Protocol):
    """A captured graph that a CUDA device replays, with its own or with other edges."""

    @property
    def edges(self) -> Edges:
        """Orders of the capture."""

    @property
    def kept(self) -> Sequence[Any]:
        """Objects that must live as long as graphs of these nodes: the captured graph, and the memory that nodes use."""

    def graph(
        self, edges: Edges, events: Mapping[int, Any] = MappingProxyType({}), added: Sequence[int] = ()
    ) -> tuple[Any, tuple[int, ...]]:
        """Return the device's graph of the nodes with other edges, and the operation of each of its nodes."""

    def put_back(self) -> object:
        """Undo the changes of a replay, so that the next one begins as it did."""

    def times_us(self, orders: Sequence[Edges], added: Sequence[Sequence[int]] = ()) -> list[float]:
        """Return how long a replay takes on the device with each of these edges, in µs."""

    def waits_us(self, orders: Sequence[Edges], added: Sequence[Sequence[int]] = ()) -> list[float]:
        """Return how long the host waits for a replay with each of these edges, in µs."""
