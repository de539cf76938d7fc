"""The order of collectives on the streams for communication: of those that are ready, the one with the highest priority goes first.

As in P3 (Jayarajan et al., "Priority-based parameter propagation for distributed DNN training", MLSys 2019): a gradient that the next step
needs first overtakes those that were ready before it and still wait, and with buckets also the rest of one that has begun. Streams are in
order and plans are made before they run, so the order is found with estimates of when each is ready.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from streamscope.engines.plan import Estimate
from streamscope.order.graph import DependencyGraph
from streamscope.program.launch import HostCall
from streamscope.program.operation import Program

_Stream = tuple[int, int]
"""A GPU and one of its compute streams; -1 is the stream for communication."""


def has_priorities(program: Program) -> bool:
    """Tell whether a program asks for an order of its collectives."""
    return program.gpus > 1 and any(operation.collective is not None and operation.collective.priority for operation in program.operations)


def by_priority(program: Program, order: Sequence[int], streams: Mapping[tuple[int, int], int], launch_ns: Estimate) -> tuple[int, ...]:
    """Return an order of issue in which collectives go by priority; all else stays as it is in ``order``.

    ``order``: positions of operations, each behind those that it needs. ``streams``: the compute stream of each launch.
    """
    queue = _Queue(program, DependencyGraph(program.operations, [0.0] * len(program.operations)), streams, launch_ns)
    for position in order:
        if program.operations[position].collective is not None:
            queue.pending.append(position)
            continue
        queue.issue_needed(position)
        queue.issue_until(queue.start_ns(position))
        queue.issue(position)
    queue.issue_until(float("inf"))
    return tuple(queue.issued)


@dataclass
class _Queue:
    """What was issued so far, when it is done, and the collectives that wait."""

    program: Program
    graph: DependencyGraph
    streams: Mapping[tuple[int, int], int]
    launch_ns: Estimate
    pending: list[int] = field(default_factory=list)
    issued: list[int] = field(default_factory=list)
    done_ns: dict[int, float] = field(default_factory=dict)
    taken_ns: dict[_Stream, float] = field(default_factory=dict)

    def start_ns(self, position: int) -> float:
        """Return when an operation can start: what it needs is done, and its streams are free."""
        needed = max((self.done_ns.get(each, float("inf")) for each in self.graph.before[position]), default=0.0)
        return max([needed, *(self.taken_ns.get(stream, 0.0) for stream in self._streams_of(position))])

    def issue(self, position: int) -> None:
        """Issue an operation."""
        operation, start_ns = self.program.operations[position], self.start_ns(position)
        if isinstance(operation.work, HostCall):
            self.done_ns[position] = start_ns + operation.work.duration_ns
        else:
            times_ns = [self.launch_ns(launch) for launch in operation.launches]
            whole_ns = max(times_ns, default=0.0) if operation.collective is not None else sum(times_ns)
            self.done_ns[position] = start_ns + whole_ns
            self.taken_ns.update(dict.fromkeys(self._streams_of(position), self.done_ns[position]))
        self.issued.append(position)

    def issue_until(self, limit_ns: float) -> None:
        """Issue the collectives that would start by then, of those that are ready at the same time the one of the highest priority."""
        while self.pending:
            starts_ns = {position: self.start_ns(position) for position in self.pending}
            first_ns = min(starts_ns.values())
            if first_ns == float("inf") or first_ns > limit_ns:
                return
            ready = [position for position in self.pending if starts_ns[position] == first_ns]
            chosen = max(ready, key=lambda position: (self._priority(position), -position))
            self.pending.remove(chosen)
            self.issue(chosen)

    def issue_needed(self, position: int) -> None:
        """Issue collectives until none is left that an operation needs."""
        while needed := set(self.graph.before[position]).intersection(self.pending):
            # By when the last of these could start: others that are ready before have their turn by priority.
            self.issue_until(max(self.start_ns(each) for each in needed))

    def _priority(self, position: int) -> int:
        collective = self.program.operations[position].collective
        return 0 if collective is None else collective.priority

    def _streams_of(self, position: int) -> list[_Stream]:
        launches = self.program.operations[position].launches
        return [(one.gpu, -1 if one.collective is not None else self.streams[one.operation, one.part]) for one in launches]
