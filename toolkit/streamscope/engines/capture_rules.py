"""Capture rules: every lane forks from the main one and joins it again.

This checks plans, so it shares no walk over steps with the code that makes them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from streamscope.engines.plan import Issue, RecordEvent, Step, WaitEvent
from streamscope.program.launch import Launch
from streamscope.words import a_kind


@dataclass(frozen=True)
class Break:
    """Something that breaks a capture."""

    launch: Launch | None
    """The launch at which it shows; for a lane that is not joined, its last one. None if it shows at no launch."""
    lane: int
    why: str
    """Problem, with ``{lane}`` and ``{main}`` for the names of the lanes."""
    advice: str
    """Remedy, likewise."""


_NOT_FORKED = "{lane} has not forked from {main} when it is put there", "let {lane} wait for an event recorded on {main} before it"
_NOT_JOINED = "{lane} is not joined to {main} behind it", "let {main} wait, at the end, for an event recorded on {lane} behind it"


def capture_breaks(steps: Sequence[Step]) -> list[Break]:
    """Return the breaches of a capture, which begins and ends on lane 0; empty if there are none."""
    clocks: dict[int, Counter[int]] = {0: Counter()}  # For each lane in it, after how many launches of each other lane it comes.
    events: dict[int, Counter[int]] = {}
    launches: dict[int, list[Launch]] = defaultdict(list)
    breaks: list[Break] = []
    for step in steps:
        match step:
            case Issue(launch, lane):
                if not launch.capturable:
                    why = f"{launch.name} cannot be captured: {launch.why_not or 'no reason was given'}"
                    breaks.append(Break(launch, lane, why, "run it outside the graph"))
                if lane not in clocks:
                    clocks[lane] = Counter()  # Taken as mended, so that what follows from it is not reported too.
                    breaks.append(Break(launch, lane, *_NOT_FORKED))
                launches[lane].append(launch)
                clocks[lane][lane] = len(launches[lane])
            case RecordEvent(event, lane):
                events.pop(event, None)
                if lane in clocks:
                    events[event] = clocks[lane].copy()
            case WaitEvent(event, lane) if event in events:
                clocks[lane] = clocks.get(lane, Counter()) | events[event]
            case WaitEvent(event, lane):
                if lane in clocks:
                    why = f"{{lane}} waits for event {event}, which was not recorded in the capture"
                    last = launches[lane][-1] if launches[lane] else None
                    breaks.append(Break(last, lane, why, "record the event in the capture, or wait before it begins"))
            case _:
                why = f"{a_kind(step)} step makes the host wait or work, which no capture records"
                breaks.append(Break(None, 0, why, "end the graph before it"))
    left = [lane for lane, issued in launches.items() if lane != 0 and clocks[0][lane] < len(issued)]
    return breaks + [Break(launches[lane][-1], lane, *_NOT_JOINED) for lane in left]
