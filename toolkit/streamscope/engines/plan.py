"""Plans: what an engine does for one run of a program, as a list of steps.

A plan is made once, from the program and the engine's rules, without a device. Lanes and events are numbers in it; `Prepared` binds it
to a device. Because a plan is data, a test can take a step out and show that the results are then wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from streamscope.program.launch import HostCall, Launch
from streamscope.program.operation import Program

MAIN = "main"
AUXILIARY = "aux"
COPY_IN = "copy in"
COPY_OUT = "copy out"


@dataclass(frozen=True)
class Issue:
    """Put a launch on a lane."""

    launch: Launch
    lane: int


@dataclass(frozen=True)
class RecordEvent:
    """Record an event on a lane."""

    event: int
    lane: int


@dataclass(frozen=True)
class WaitEvent:
    """Let a lane wait for an event; the host does not."""

    event: int
    lane: int


@dataclass(frozen=True)
class HostWait:
    """Let the host wait for an event."""

    event: int


@dataclass(frozen=True)
class Synchronize:
    """Let the host wait until a lane is empty."""

    lane: int


@dataclass(frozen=True)
class CallHost:
    """Call a host function."""

    call: HostCall


@dataclass(frozen=True)
class Replay:
    """Launch the graph that was captured from ``steps``, on lane 0.

    Attributes
    ----------
    steps : tuple of Issue, RecordEvent and WaitEvent
        What is captured. Lane 0 is the capture's origin; every other lane forks from it and is joined back.
    """

    steps: tuple[Step, ...]


Step = Issue | RecordEvent | WaitEvent | HostWait | Synchronize | CallHost | Replay


@dataclass(frozen=True)
class Plan:
    """Everything an engine does in one run of a program.

    Attributes
    ----------
    engine : str
    program : Program
    lanes : tuple of str
        Names of the streams; lane numbers index it. Lane 0 is ``"main"``.
    steps : tuple of Step
    events : int
        How many events the steps use; those inside graphs become edges there.
    scopes : bool
        A user's operator that opens an auxiliary-stream scope gets an auxiliary stream; else its scope costs nothing.
    """

    engine: str
    program: Program
    lanes: tuple[str, ...]
    steps: tuple[Step, ...]
    events: int
    scopes: bool = False

    def flat(self) -> Iterator[Step]:
        """Yield every step, those inside graphs among them."""
        for step in self.steps:
            yield step
            if isinstance(step, Replay):
                yield from step.steps

    @property
    def streams(self) -> int:
        """Number of streams with kernels on them; those that carry nothing but copies come on top."""
        lanes = {self.lanes[step.lane] for step in self.flat() if isinstance(step, Issue)}
        return len(lanes - {COPY_IN, COPY_OUT})

    @property
    def auxiliary(self) -> int | None:
        """The first auxiliary lane, if there is one."""
        return next((lane for lane, name in enumerate(self.lanes) if name.startswith(AUXILIARY)), None)

    @property
    def waits(self) -> int:
        """Number of event waits, of streams and of the host; those inside graphs are edges there."""
        return sum(isinstance(step, WaitEvent | HostWait) for step in self.flat())

    @property
    def counts(self) -> dict[str, int]:
        """What a trace tells of the plan: its streams, events and waits."""
        return {"streams": self.streams, "events": self.events, "waits": self.waits}

    def without_wait(self, index: int) -> Plan:
        """Return the plan without its ``index``-th event wait: a race, for tests to find."""
        counter = iter(range(self.waits))

        def keep(step: Step) -> bool:
            return not isinstance(step, WaitEvent | HostWait) or next(counter) != index

        steps: list[Step] = []
        for step in self.steps:
            if isinstance(step, Replay):
                steps.append(Replay(tuple(inner for inner in step.steps if keep(inner))))
            elif keep(step):
                steps.append(step)
        return replace(self, steps=tuple(steps))
