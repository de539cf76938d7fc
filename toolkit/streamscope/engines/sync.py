"""The synchronous engine: the host waits after each operation, so nothing overlaps."""

from __future__ import annotations

from streamscope.engines.plan import MAIN, CallHost, Estimate, Issue, Plan, Step, Synchronize
from streamscope.program.launch import HostCall
from streamscope.program.operation import Program


def plan(program: Program, estimate: Estimate, streams: int | None = 1) -> Plan:
    """Issue every launch on one stream and synchronise it before the next. No events: nothing is ever pending."""
    steps: list[Step] = []
    for operation in program.operations:
        if isinstance(operation.work, HostCall):
            steps.append(CallHost(operation.work))
        for launch in operation.launches:
            steps += [Issue(launch, 0), Synchronize(0)]
    return Plan("sync", program, (MAIN,), tuple(steps), 0)
