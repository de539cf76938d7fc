"""Needless orders of captured code: opaque nodes, memory of unknown use, and the capture itself.

Each cause is taken away in thought: the order is worked out anew without it, and its longest path is compared. That is a bound of what
can be gained, since the device is taken to have room for all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isclose

import numpy as np

from streamscope.auditing.dependencies import longest_path
from streamscope.auditing.findings import Finding, Kind, Severity
from streamscope.auditing.serialisation import Serialisation
from streamscope.capturing.certificate import Certificate
from streamscope.capturing.conflicts import has, known_before
from streamscope.capturing.memory import Access, Evidence, NodeMemory, Region
from streamscope.capturing.true_order import true_order
from streamscope.devices.graph_node import GraphNode
from streamscope.engines.plan import Estimate
from streamscope.order.graph import Edges
from streamscope.program.operation import Program
from streamscope.words import counted, listed, time_text

VAGUE = frozenset({Evidence.POINTER})
"""Evidence of memory that a node may use, or may not: an address led there, and nothing says more."""
FAR = 2**49
"""Bytes, further than any two addresses are apart."""
EXAMPLES = 3
MOST_REASONS = 8
"""Reasons that have a finding of their own; the order is worked out anew for each."""
WORTH = 0.01
"""The share of the longest path from which on a cause is a warning and not a note."""


def order_findings(program: Program, estimate: Estimate, planned: Serialisation) -> Iterator[Finding]:
    """Yield a finding for each cause that orders nodes of captured code; nothing for other programs.

    The capture is a cause only where the orders of the plan (``planned``) cost what the capture's order costs: a plan that keeps another
    order does not pay for it.
    """
    if not isinstance(certificate := program.certificate, Certificate):
        return
    audit = _Orders(program, certificate, [sum(map(estimate, operation.launches)) for operation in program.operations], planned.planned_ns)
    for why, numbers in _grouped(certificate.reasons).items():
        changed = audit.without(_understood, numbers)
        subject = f"{counted(len(numbers), 'node')} {'is' if len(numbers) == 1 else 'are'} ordered against all others, because {why}"
        advice = "look at .certificate() of the captured code for each node; what is called through PyTorch's operators is understood best."
        yield audit.finding(Kind.NOT_UNDERSTOOD, subject, numbers, changed, advice)
    vague = [number for number, memory in enumerate(certificate.memories) if any(one.evidence in VAGUE for one in memory.accesses)]
    if vague:
        changed = audit.without(_certain, vague)
        subject = (
            f"{counted(len(vague), 'node')} {'leads' if len(vague) == 1 else 'lead'} to memory whose use is not known, as of workspaces"
        )
        yield audit.finding(
            Kind.SHARED_WORKSPACE, subject, vague, changed, "give libraries a workspace for each call, where they take one."
        )
    apart, again = used_once(certificate.nodes, certificate.memories)
    if again:
        handed = "is handed memory" if len(again) == 1 else "are handed memory"
        subject = f"{counted(len(again), 'node')} {handed} that was used before"
        advice = "give ss.capture a higher memory_limit=, so that it uses no memory twice."
        yield audit.finding(Kind.REUSED_MEMORY, subject, again, true_order(apart, program.captured), advice)
    if planned.pairs and isclose(planned.planned_ns, audit.captured_ns):
        yield from audit.capture_finding()


def _grouped(reasons: Mapping[str, list[int]]) -> dict[str, list[int]]:
    """Return the most frequent reasons why nodes are not understood, and all others as one."""
    found = list(reasons.items())
    rest = found[MOST_REASONS:]
    if not rest:
        return dict(found)
    return dict(
        [*found[:MOST_REASONS], (f"of {counted(len(rest), 'other reason')}", sorted(number for _, some in rest for number in some))]
    )


def _understood(memory: NodeMemory) -> NodeMemory:
    return replace(memory, why_unknown="")


def _certain(memory: NodeMemory) -> NodeMemory:
    return replace(memory, accesses=tuple(one for one in memory.accesses if one.evidence not in VAGUE))


def used_once(nodes: Sequence[GraphNode], memories: Sequence[NodeMemory]) -> tuple[list[NodeMemory], list[int]]:
    """Return the accesses of nodes if no memory were handed out twice, and the nodes that got reused memory.

    Memory that an operator allocates holds nothing yet. If it was touched before, only the allocator makes the operator wait.
    """
    rows = [(one.start, one.end, number) for number, memory in enumerate(memories) for one in memory.accesses]
    start, end, node = np.array(rows, np.uint64).reshape(-1, 3).T
    elsewhere: list[tuple[Region, int]] = []  # The latest first: memory that was handed out again, and how far it is moved.
    found, again, before = list[NodeMemory](), list[int](), None
    for number, memory in enumerate(memories):
        allocated = tuple((one.start, one.end) for one in memory.accesses if one.evidence is Evidence.ALLOCATED)
        operator = (nodes[number].operator, nodes[number].module, nodes[number].where)
        if operator != before:
            used = [(low, high) for low, high in allocated if ((start < high) & (end > low) & (node < number)).any()]
            elsewhere[:0] = [(region, (len(again) + 1) * FAR) for region in used]
            again += [number] if used else []
        before = operator
        found.append(replace(memory, accesses=tuple(_moved(one, elsewhere) for one in memory.accesses)))
    return found, again


def _moved(access: Access, elsewhere: Sequence[tuple[Region, int]]) -> Access:
    by = next((by for (start, end), by in elsewhere if start <= access.start and access.end <= end), 0)
    return replace(access, start=access.start + by, end=access.end + by) if by else access


@dataclass(frozen=True)
class _Orders:
    """The true order of captured code, with and without a cause; costs are shares of the plan's own longest path."""

    program: Program
    certificate: Certificate
    durations_ns: Sequence[float]
    planned_ns: float

    @property
    def capture(self) -> Edges:
        return self.program.captured

    @cached_property
    def takes_ns(self) -> float:
        return self._longest_ns(self.certificate.order)

    @cached_property
    def captured_ns(self) -> float:
        return self._longest_ns(self.capture)

    def _longest_ns(self, order: Edges) -> float:
        return max(longest_path(self.durations_ns, order), default=0.0)

    def without(self, change: Callable[[NodeMemory], NodeMemory], numbers: Collection[int]) -> Edges:
        """Return the order with other memory of some nodes."""
        memories = enumerate(self.certificate.memories)
        return true_order([change(memory) if number in numbers else memory for number, memory in memories], self.capture)

    def finding(self, kind: Kind, subject: str, numbers: Sequence[int], changed: Edges, advice: str) -> Finding:
        """Return the orders of a cause, and their cost at most."""
        kept = self._lost(self.certificate.order, changed)
        gain_ns = max(0.0, self.takes_ns - self._longest_ns(changed))
        edges = f"That keeps {kept:,} of {counted(self.certificate.edges, 'edge')}"
        return self._said(kind, f"{subject}: {self._some(numbers)}. {edges}", numbers, gain_ns, advice)

    def capture_finding(self) -> Iterator[Finding]:
        """Yield orders of the capture that memory does not need."""
        pairs, needed = self.certificate.capture_pairs, self.certificate.pairs
        lost = self._lost(self.capture, self.certificate.order)
        if not lost:
            return
        gain_ns = max(0.0, self.captured_ns - self.takes_ns)
        numbers = [number for number, direct in enumerate(self.capture) if set(direct) - set(self.certificate.order[number])]
        message = (
            f"The capture orders {counted(pairs, 'pair')} of nodes, of which {needed:,} share memory or are not understood; "
            f"it has {lost:,} of {counted(sum(map(len, self.capture)), 'edge')} without need, "
            f"such as one to {self.certificate.named(numbers[0])}"
        )
        yield self._said(Kind.FALSE_SERIALISATION, message, numbers, gain_ns, "run it in its true order: engine='graph-dual'.")

    def _lost(self, order: Edges, other: Edges) -> int:
        """Return how many edges of an order another order does not keep."""
        reached = known_before(other)
        return sum(not has(reached, later, earlier) for later, direct in enumerate(order) for earlier in direct)

    def _said(self, kind: Kind, message: str, numbers: Sequence[int], gain_ns: float, advice: str) -> Finding:
        whole_ns = self.planned_ns
        most = f"at most {time_text(gain_ns)} of {time_text(whole_ns)}" if gain_ns > 0 else "nothing"
        severity = Severity.WARNING if gain_ns > WORTH * whole_ns else Severity.NOTE
        operations = tuple(self.program.operations[number] for number in numbers[:EXAMPLES])
        return Finding(kind, severity, operations, (), f"{message}, and costs {most} (estimated).", advice, gain_ns)

    def _some(self, numbers: Sequence[int]) -> str:
        more = [counted(len(numbers) - EXAMPLES, "other")] if len(numbers) > EXAMPLES else []
        return listed([*(self.certificate.named(number) for number in numbers[:EXAMPLES]), *more])
