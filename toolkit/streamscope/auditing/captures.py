"""Findings on captures that would break."""

from __future__ import annotations

from collections.abc import Iterator

from streamscope.auditing.findings import Finding, Kind, Severity, named
from streamscope.engines.happens_before import Break, capture_breaks
from streamscope.engines.plan import Plan, Replay


def capture_findings(plan: Plan) -> Iterator[Finding]:
    """Yield breaches of a plan's captures."""
    for step in plan.steps:
        if isinstance(step, Replay):
            for found in capture_breaks(step.steps):
                yield _capture_finding(plan, found)


def _capture_finding(plan: Plan, found: Break) -> Finding:
    names = {"lane": plan.lanes[found.lane], "main": plan.lanes[0]}
    operations = () if found.launch is None else (plan.program.operations[found.launch.operation],)
    variables = () if found.launch is None else named(plan.program, found.launch.writes)
    subject = f" at {operations[0]}" if operations else ""
    message = f"The capture would break{subject}: {found.why.format(**names)}. The segment then runs uncaptured."
    return Finding(Kind.BROKEN_CAPTURE, Severity.ERROR, operations, variables, message, f"{found.advice.format(**names)}.")
