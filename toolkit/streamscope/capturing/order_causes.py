"""Causes that order nodes of captured code: nodes that are not understood, memory whose use is not known, memory that is used twice.

Each cause is taken away in thought, and the order is worked out anew without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from streamscope.capturing.memory import Access, AddressRange, Evidence, NodeMemory
from streamscope.capturing.true_order import true_order
from streamscope.devices.graph_node import GraphNode
from streamscope.program.captured_graph import OrderCause
from streamscope.words import counted

_VAGUE = frozenset({Evidence.POINTER})
"""Evidence of memory that a node may use, or may not: an address led there, and nothing says more."""
_FAR = 2**49
"""Bytes, further than any two addresses are apart."""
MOST_REASONS = 8
"""Reasons that are a cause of their own; the order is worked out anew for each."""


def order_causes(nodes: Sequence[GraphNode], memories: Sequence[NodeMemory], reasons: Mapping[str, Sequence[int]]) -> Iterator[OrderCause]:
    """Yield each cause that orders nodes, with the order that would be without it.

    ``reasons``: why nodes are not understood, each with the nodes, the most frequent first.
    """
    capture = tuple(node.after for node in nodes)
    for why, numbers in _grouped(reasons).items():
        understood = [replace(memory, why_unknown="") if number in numbers else memory for number, memory in enumerate(memories)]
        subject = f"{counted(len(numbers), 'node')} {'is' if len(numbers) == 1 else 'are'} ordered against all others, because {why}"
        advice = "look at .certificate() of the captured code for each node; what is called through PyTorch's operators is understood best."
        yield OrderCause("not understood", subject, numbers, true_order(understood, capture), advice)
    vague = [number for number, memory in enumerate(memories) if any(one.evidence in _VAGUE for one in memory.accesses)]
    if vague:
        leads = "leads" if len(vague) == 1 else "lead"
        subject = f"{counted(len(vague), 'node')} {leads} to memory whose use is not known, as of workspaces"
        advice = "give libraries a workspace for each call, where they take one."
        yield OrderCause("shared workspace", subject, vague, true_order(list(map(_certain, memories)), capture), advice)
    apart, again = used_once(nodes, memories)
    if again:
        handed = "is handed memory" if len(again) == 1 else "are handed memory"
        subject = f"{counted(len(again), 'node')} {handed} that was used before"
        advice = "give ss.capture a higher memory_limit=, so that it uses no memory twice."
        yield OrderCause("memory used twice", subject, again, true_order(apart, capture), advice)


def _grouped(reasons: Mapping[str, Sequence[int]]) -> dict[str, Sequence[int]]:
    """Return the most frequent reasons why nodes are not understood, and all others as one."""
    found = list(reasons.items())
    rest = found[MOST_REASONS:]
    if not rest:
        return dict(found)
    return dict(
        [*found[:MOST_REASONS], (f"of {counted(len(rest), 'other reason')}", sorted(number for _, some in rest for number in some))]
    )


def _certain(memory: NodeMemory) -> NodeMemory:
    return replace(memory, accesses=tuple(one for one in memory.accesses if one.evidence not in _VAGUE))


def used_once(nodes: Sequence[GraphNode], memories: Sequence[NodeMemory]) -> tuple[list[NodeMemory], list[int]]:
    """Return the accesses of nodes if no memory were handed out twice, and the nodes that got reused memory.

    Memory that an operator allocates holds nothing yet. If it was touched before, only the allocator makes the operator wait.
    """
    rows = [(one.start, one.end, number) for number, memory in enumerate(memories) for one in memory.accesses]
    start, end, node = np.array(rows, np.uint64).reshape(-1, 3).T
    elsewhere: list[tuple[AddressRange, int]] = []  # The latest first: memory that was handed out again, and how far it is moved.
    found, again, before = list[NodeMemory](), list[int](), None
    for number, memory in enumerate(memories):
        allocated = tuple((one.start, one.end) for one in memory.accesses if one.evidence is Evidence.ALLOCATED)
        operator = (nodes[number].operator, nodes[number].module, nodes[number].where)
        if operator != before:
            used = [(low, high) for low, high in allocated if ((start < high) & (end > low) & (node < number)).any()]
            elsewhere[:0] = [(region, (len(again) + 1) * _FAR) for region in used]
            again += [number] if used else []
        before = operator
        found.append(replace(memory, accesses=tuple(_moved(one, elsewhere) for one in memory.accesses)))
    return found, again


def _moved(access: Access, elsewhere: Sequence[tuple[AddressRange, int]]) -> Access:
    by = next((by for (start, end), by in elsewhere if start <= access.start and access.end <= end), 0)
    return replace(access, start=access.start + by, end=access.end + by) if by else access
