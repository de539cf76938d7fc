"""Needless orders of captured code: opaque nodes, memory of unknown use, and the capture itself.

Each cause is taken away in thought: the order is worked out anew without it, and its longest path is compared. That is a bound of what
can be gained, since the device is taken to have room for all at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isclose

from streamscope.auditing.findings import Finding, Kind, Severity
from streamscope.auditing.serialisation import Serialisation
from streamscope.engines.plan import Estimate
from streamscope.order.ancestors import has, known_before
from streamscope.order.graph import path_lengths
from streamscope.program.captured_graph import Certificate, Edges, OrderCause
from streamscope.program.operation import Program
from streamscope.words import counted, listed, time_text

_EXAMPLES = 3


def order_findings(program: Program, estimate: Estimate, planned: Serialisation) -> Iterator[Finding]:
    """Yield a finding for each cause that orders nodes of captured code; nothing for other programs.

    The capture is a cause only where the orders of the plan (``planned``) cost what the capture's order costs: a plan that keeps another
    order does not pay for it.
    """
    if (certificate := program.certificate) is None:
        return
    audit = _Orders(program, certificate, [sum(map(estimate, operation.launches)) for operation in program.operations], planned.planned_ns)
    yield from map(audit.finding, certificate.causes())
    if planned.pairs and isclose(planned.planned_ns, audit.captured_ns):
        yield from audit.capture_finding()


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
        return max(path_lengths(self.durations_ns, order), default=0.0)

    def finding(self, cause: OrderCause) -> Finding:
        """Return the orders of a cause, and their cost at most."""
        kept = self._lost(self.certificate.order, cause.without)
        gain_ns = max(0.0, self.takes_ns - self._longest_ns(cause.without))
        edges = f"That keeps {kept:,} of {counted(self.certificate.edges, 'edge')}"
        return self._said(Kind(cause.kind), f"{cause.subject}: {self._some(cause.nodes)}. {edges}", cause.nodes, gain_ns, cause.advice)

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
        severity = Severity.of_cost(gain_ns, whole_ns)
        operations = tuple(self.program.operations[number] for number in numbers[:_EXAMPLES])
        return Finding(kind, severity, operations, (), f"{message}, and costs {most} (estimated).", advice, gain_ns)

    def _some(self, numbers: Sequence[int]) -> str:
        more = [counted(len(numbers) - _EXAMPLES, "other")] if len(numbers) > _EXAMPLES else []
        return listed([*(self.certificate.named(number) for number in numbers[:_EXAMPLES]), *more])
