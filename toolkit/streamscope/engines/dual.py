"""The dual-stream engine: the asynchronous one with an auxiliary stream, for operators that ask for one and for independent operations."""

from __future__ import annotations

from streamscope.engines.issuing import repeating_steps
from streamscope.engines.lanes import LANES, Estimate, two_lanes
from streamscope.engines.plan import Plan
from streamscope.program.operation import Program


def plan(program: Program, estimate: Estimate) -> Plan:
    """Spread launches over two compute streams by earliest start, ordered by events."""
    lanes = two_lanes(program, estimate)
    steps, events = repeating_steps(program.operations, range(len(LANES)), lambda launch: lanes[launch.operation, launch.part])
    return Plan("dual", program, LANES, tuple(steps), events, scopes=True)
