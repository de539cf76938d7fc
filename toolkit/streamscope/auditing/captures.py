"""Whether what a graph is captured from can be captured: every lane forks from the main one and is joined to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from streamscope.auditing.findings import Finding, Kind, Severity, named
from streamscope.engines.plan import Issue, Plan, RecordEvent, Replay, Step, WaitEvent
from streamscope.program.launch import Launch


@dataclass(frozen=True)
class Break:
    """Something that breaks a capture."""

    launch: Launch | None
    """The launch at which it shows; for a lane that is not joined, its last one. None if it shows at no launch."""
    lane: int
    why: str
    """What is wrong, with ``{lane}`` and ``{main}`` for the names of the lanes."""
    advice: str
    """What to do, likewise."""


@dataclass
class _Capture:
    """What is known of a capture while its steps are read: for each lane in it, how far it comes after each other lane."""

    clocks: dict[int, dict[int, int]] = field(default_factory=lambda: {0: {}})
    last: dict[int, Launch] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    events: dict[int, dict[int, int]] = field(default_factory=dict)
    breaks: list[Break] = field(default_factory=list)

    def issue(self, launch: Launch, lane: int) -> None:
        if not launch.capturable:
            why = f"{launch.name} cannot be captured: {launch.why_not or 'no reason was given'}"
            self.breaks.append(Break(launch, lane, why, "run it outside the graph"))
        if lane not in self.clocks:
            # Taken as mended, so that what follows from it is not reported too.
            self.clocks[lane] = {}
            why, advice = (
                "{lane} has not forked from {main} when it is put there",
                "let {lane} wait for an event recorded on {main} before it",
            )
            self.breaks.append(Break(launch, lane, why, advice))
        self.counts[lane] = self.counts.get(lane, 0) + 1
        self.clocks[lane][lane] = self.counts[lane]
        self.last[lane] = launch

    def record(self, event: int, lane: int) -> None:
        self.events.pop(event, None)
        if lane in self.clocks:
            self.events[event] = dict(self.clocks[lane])

    def wait(self, event: int, lane: int) -> None:
        if event in self.events:
            clock = self.clocks.setdefault(lane, {})
            for other, position in self.events[event].items():
                clock[other] = max(position, clock.get(other, 0))
        elif lane in self.clocks:
            why = f"{{lane}} waits for event {event}, which was not recorded in the capture"
            self.breaks.append(Break(self.last.get(lane), lane, why, "record the event in the capture, or wait before it begins"))

    def end(self) -> None:
        for lane, count in self.counts.items():
            if lane != 0 and self.clocks[0].get(lane, 0) < count:
                why, advice = (
                    "{lane} is not joined to {main} behind it",
                    "let {main} wait, at the end, for an event recorded on {lane} behind it",
                )
                self.breaks.append(Break(self.last[lane], lane, why, advice))


def capture_breaks(steps: Sequence[Step]) -> list[Break]:
    """Return what breaks the capture of some steps, which begins and ends on lane 0; empty if nothing does."""
    capture = _Capture()
    for step in steps:
        match step:
            case Issue(launch, lane):
                capture.issue(launch, lane)
            case RecordEvent(event, lane):
                capture.record(event, lane)
            case WaitEvent(event, lane):
                capture.wait(event, lane)
            case _:
                why = f"a {type(step).__name__} step makes the host wait or work, which no capture records"
                capture.breaks.append(Break(None, 0, why, "end the graph before it"))
    capture.end()
    return capture.breaks


def capture_findings(plan: Plan) -> Iterator[Finding]:
    """Yield what breaks the captures of a plan."""
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
