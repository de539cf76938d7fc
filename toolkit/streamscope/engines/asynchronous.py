"""The asynchronous engine: one compute stream and one copy stream a direction, ordered by events; the host never waits for a stream."""

from __future__ import annotations

from streamscope.engines.issuing import repeating_steps
from streamscope.engines.lanes import LANES, Estimate, copy_lanes
from streamscope.engines.plan import Plan
from streamscope.program.operation import Program


def plan(program: Program, estimate: Estimate) -> Plan:
    """Issue launches in program order; streams wait for each other by events, and the host only before its own functions."""
    steps, events = repeating_steps(program.operations, range(len(LANES)), copy_lanes)
    return Plan("async", program, LANES, tuple(steps), events)
