"""The asynchronous engine: one compute stream and one copy stream a direction, ordered by events; the host never waits for a stream."""

from __future__ import annotations

from streamscope.engines.issuing import repeating_steps
from streamscope.engines.plan import Estimate, Plan, lanes_in_use, main_stream
from streamscope.program.operation import Program


def plan(program: Program, estimate: Estimate, streams: int | None = 1) -> Plan:
    """Issue launches in program order; streams wait for each other by events, and the host only before its own functions."""
    lanes = lanes_in_use(program.operations, main_stream)
    steps, events = repeating_steps(program.operations, len(lanes.names), lanes.of, runs_apart=bool(program.captured))
    return Plan("async", program, lanes.names, tuple(steps), events)
