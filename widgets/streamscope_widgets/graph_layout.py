"""Where the nodes of a graph lie in a picture: rows by topological level, columns by stream, long chains folded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from streamscope.devices.graph_node import GraphNode

MOST_BOXES = 60
"""With more nodes than this, chains are folded."""


@dataclass(frozen=True)
class Box:
    """One box of the picture."""

    nodes: tuple[int, ...]
    """The node, by its index, or the nodes of a chain that is folded, in order."""
    level: int
    """Row: the number of boxes before it on the longest path from a root."""
    column: int


@dataclass(frozen=True)
class LaneColumns:
    """The columns ``first`` to ``first + count - 1``, which belong to one stream."""

    name: str
    first: int
    count: int


@dataclass(frozen=True)
class Layout:
    """A graph laid out."""

    boxes: tuple[Box, ...]
    """In topological order."""
    edges: tuple[tuple[int, int], ...]
    """From box to box, by index."""
    lanes: tuple[LaneColumns, ...]
    """From left to right."""

    @property
    def levels(self) -> int:
        """Number of rows."""
        return max((box.level + 1 for box in self.boxes), default=0)

    @property
    def columns(self) -> int:
        """Number of columns."""
        return sum(lane.count for lane in self.lanes)


def layout(nodes: Sequence[GraphNode], order: Sequence[str] = (), *, most_boxes: int = MOST_BOXES) -> Layout:
    """Lay a graph out.

    ``nodes``: each after those that it depends on.
    ``order``: streams from left to right; those that it does not name come after it, as they are first used.
    ``most_boxes``: with more nodes, chains are folded.
    """
    groups = folded(nodes, most_boxes)
    box_of = {node: number for number, group in enumerate(groups) for node in group}
    before = [sorted({box_of[one] for node in group for one in nodes[node].after} - {number}) for number, group in enumerate(groups)]
    levels: list[int] = []
    for earlier in before:
        levels.append(max((levels[one] + 1 for one in earlier), default=0))
    lane_of = [nodes[group[0]].lane for group in groups]
    slots = _slots(levels, lane_of, before)
    lanes: list[LaneColumns] = []
    for name in [*(lane for lane in order if lane in lane_of), *dict.fromkeys(lane for lane in lane_of if lane not in order)]:
        width = 1 + max(slot for slot, lane in zip(slots, lane_of, strict=True) if lane == name)
        lanes.append(LaneColumns(name, sum(lane.count for lane in lanes), width))
    first = {lane.name: lane.first for lane in lanes}
    boxes = tuple(Box(*one) for one in zip(groups, levels, (first[n] + s for n, s in zip(lane_of, slots, strict=True)), strict=True))
    edges = tuple((one, number) for number, earlier in enumerate(before) for one in earlier)
    return Layout(boxes, edges, tuple(lanes))


def folded(nodes: Sequence[GraphNode], most_boxes: int = MOST_BOXES) -> list[tuple[int, ...]]:
    """Group nodes into boxes, in topological order: each by itself or, where there are too many, pieces of chains.

    A chain is a run of nodes of one stream in which each is the only successor of the one before and depends on nothing else. Chains are
    cut into equal pieces, no longer than needed to come down to about ``most_boxes``, so that the shape of the whole stays visible.
    """
    chains = _chains(nodes)
    if len(nodes) <= most_boxes:
        return [(index,) for index in range(len(nodes))]
    length = -(-len(nodes) // most_boxes)
    pieces = [piece for chain in chains for piece in _pieces(chain, length)]
    # By the first node of each: what a piece depends on comes before its first node, since only that one has foreign predecessors.
    return sorted(pieces)


def _chains(nodes: Sequence[GraphNode]) -> list[list[int]]:
    followers = Counter(one for node in nodes for one in node.after)
    chains: list[list[int]] = []
    ends: dict[int, list[int]] = {}
    for index, node in enumerate(nodes):
        last = node.after[0] if len(node.after) == 1 else None
        if last is not None and followers[last] == 1 and nodes[last].lane == node.lane:
            chain = ends.pop(last)
        else:
            chain = []
            chains.append(chain)
        chain.append(index)
        ends[index] = chain
    return chains


def _pieces(chain: Sequence[int], length: int) -> list[tuple[int, ...]]:
    """Cut a chain into pieces of nearly equal length, at most ``length``."""
    count = -(-len(chain) // length)
    cuts = [len(chain) * number // count for number in range(count + 1)]
    return [tuple(chain[start:end]) for start, end in pairwise(cuts)]


def _slots(levels: Sequence[int], lanes: Sequence[str], before: Sequence[Sequence[int]]) -> list[int]:
    """Give each box a column within its stream: that of a predecessor where it is free, so that chains are straight, else the first."""
    taken: set[tuple[str, int, int]] = set()
    slots: list[int] = []
    for level, lane, earlier in zip(levels, lanes, before, strict=True):
        wanted = [slots[one] for one in earlier if lanes[one] == lane]
        free = (slot for slot in (*wanted, *range(len(levels))) if (lane, level, slot) not in taken)
        slot = next(free)
        taken.add((lane, level, slot))
        slots.append(slot)
    return slots
