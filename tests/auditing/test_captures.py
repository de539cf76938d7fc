"""What breaks a capture, by hand and as the simulated device sees it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from tests.auditing.conftest import breaks, launch, plan_of, plans

from streamscope.auditing.audit import audit
from streamscope.auditing.findings import Kind
from streamscope.engines.happens_before import capture_breaks
from streamscope.engines.plan import HostWait, Issue, RecordEvent, Replay, WaitEvent

FORK = (RecordEvent(0, 0), WaitEvent(0, 1))
JOIN = (RecordEvent(1, 1), WaitEvent(1, 0))
WORK = Issue(launch(0, "", "a"), 1)


@given(plans())
def test_a_capture_breaks_where_reachability_says_so(plan):
    for step in plan.steps:
        if isinstance(step, Replay):
            assert bool(capture_breaks(step.steps)) == breaks(step.steps)


@pytest.mark.parametrize(
    ("steps", "message", "advice"),
    [
        ((WORK, *JOIN), "aux has not forked from main", "let aux wait for an event recorded on main before it."),
        ((*FORK, WORK), "aux is not joined to main behind it", "let main wait, at the end, for an event recorded on aux behind it."),
        ((*FORK, WORK, *JOIN, WaitEvent(7, 0)), "waits for event 7", "record the event in the capture, or wait before it begins."),
        ((*FORK, WORK, *JOIN, HostWait(1)), "HostWait", "end the graph before it."),
        (
            (*FORK, replace(WORK, launch=replace(WORK.launch, capturable=False, why_not="it allocates")), *JOIN),
            "k0 cannot be captured: it allocates",
            "run it outside the graph.",
        ),
    ],
)
def test_each_break_is_named_with_what_to_do(steps, message, advice):
    found = audit(plan_of(Replay(steps)), touches=False)
    (finding,) = found.of(Kind.BROKEN_CAPTURE)
    assert not found.ok
    assert "The capture would break" in finding.message
    assert message in finding.message
    assert finding.advice == advice


def test_a_whole_capture_is_fine():
    assert capture_breaks((*FORK, WORK, *JOIN)) == []
    assert audit(plan_of(Replay((*FORK, WORK, *JOIN))), touches=False).findings == ()
