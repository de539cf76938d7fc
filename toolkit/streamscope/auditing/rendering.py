"""An audit as plain text: what was looked at, then the findings, the worst first."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence

from streamscope.auditing.findings import Finding, Severity, count
from streamscope.engines.plan import Plan

SHOWN = 50
"""Findings in a text or a page; the rest is counted."""

UNSEEN = (
    "Not seen: state that a function sets once only, or for values that were not tried; memory that NumPy does not hand out; arrays that a "
    "function captured (a closure, a global) and writes to; and what a CUDA kernel does that its reference does not."
)
"""What no audit sees of the operators that it runs."""
NOT_LOOKED = "Not seen: what operators touch besides what they declare, since touches=False left that out."

_WIDTH = 120


def headline(plan: Plan, findings: Sequence[Finding]) -> str:
    """Return one line: what was audited and how much was found."""
    numbers = Counter(finding.severity for finding in findings)
    counted = [count(numbers[severity], severity.value) for severity in Severity if numbers[severity]]
    return f"Audit of {plan.program.name} under {plan.engine}: {', '.join(counted) or 'nothing to report'}"


def circumstances(plan: Plan, needed_ns: float, planned_ns: float) -> str:
    """Return one line: how large the plan is, and the two lower bounds of its makespan."""
    size = f"{count(len(plan.program.operations), 'operation')}, {count(plan.waits, 'event wait')}"
    if planned_ns == 0:
        return size
    return f"{size}; at least {needed_ns / 1e3:.1f} µs by dependencies alone, {planned_ns / 1e3:.1f} µs in this order (estimated durations)"


def audit_text(plan: Plan, findings: Sequence[Finding], needed_ns: float, planned_ns: float, *, touches: bool) -> str:
    """Return an audit as plain text."""
    lines = [headline(plan, findings), circumstances(plan, needed_ns, planned_ns)]
    for finding in findings[:SHOWN]:
        lines.append("")
        lines += textwrap.wrap(f"{finding.severity.value} · {finding.kind.value}: {finding.message}", _WIDTH, subsequent_indent="    ")
        lines += textwrap.wrap(f"→ {finding.advice}", _WIDTH, initial_indent="    ", subsequent_indent="      ")
    if len(findings) > SHOWN:
        lines += ["", f"… and {len(findings) - SHOWN:,} more in .findings"]
    lines += ["", *textwrap.wrap(UNSEEN if touches else NOT_LOOKED, _WIDTH)]
    return "\n".join(lines)
