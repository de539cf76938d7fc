"""The dual-stream graph engine: the auxiliary stream inside the capture, so that fork and join cost the host nothing."""

from __future__ import annotations

from streamscope.engines.lanes import Estimate, two_lanes
from streamscope.engines.plan import Plan
from streamscope.engines.segments import captured_plan
from streamscope.program.operation import Program


def plan(program: Program, estimate: Estimate) -> Plan:
    """Capture each segment with two compute streams."""
    lanes = two_lanes(program, estimate)
    return captured_plan("graph-dual", program, lambda launch: lanes[launch.operation, launch.part], scopes=True)
