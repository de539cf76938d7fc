"""The graph engine: what the asynchronous engine issues, captured once into CUDA graphs and replayed."""

from __future__ import annotations

from streamscope.engines.issuing import captured_plan
from streamscope.engines.plan import Estimate, Plan, main_stream, own_branches
from streamscope.program.operation import Program


def plan(program: Program, estimate: Estimate, streams: int | None = 1) -> Plan:
    """Capture each segment with one compute stream; copies are branches of their own. Captured code keeps the order that it has."""
    if not program.captured:
        return captured_plan("graph", program, program.operations, main_stream)
    return captured_plan("graph", program, program.operations, own_branches(program.operations, program.captured), edges=program.captured)
