"""Runs of a prepared program whose steps a recorder carries out one by one, reading the host's clock around each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from streamscope.devices.protocol import Call
from streamscope.engines.binding import BoundStep, name_launch
from streamscope.engines.plan import Issue, Replay, Step
from streamscope.engines.prepared import Prepared

AroundReplay = Callable[[], AbstractContextManager[object]]
"""Returns the context in which a graph is launched."""


@dataclass(frozen=True)
class HostInterval:
    """One call of the host, on its own clock.

    ``step`` is None for the wait at the end of the run.
    """

    step: Step | None
    start_ns: int
    end_ns: int


def makespan_ns(host: Sequence[HostInterval]) -> int:
    """Return how long a run took, from its first call to the end of the last."""
    return host[-1].end_ns - host[0].start_ns


def steps_of(prepared: Prepared) -> list[BoundStep]:
    """Return the bound steps that the host carries out: those of a segment without a graph one by one."""
    steps: list[BoundStep] = []
    for bound in prepared.bound:
        steps += bound.inner if isinstance(bound.step, Replay) and bound.graph is None else [bound]
    return steps


def launches_of(steps: Sequence[BoundStep]) -> list[int]:
    """Return the indices of the launches among steps."""
    return [index for index, bound in enumerate(steps) if isinstance(bound.step, Issue)]


def timed_run(prepared: Prepared, around_replay: AroundReplay = nullcontext) -> list[HostInterval]:
    """Run once as it is, and note when each call of the host began and ended."""
    host: list[HostInterval] = []
    now_ns = prepared.device.now_ns
    for bound in steps_of(prepared):
        with around_replay() if bound.graph is not None else nullcontext():
            start = now_ns()
            try:
                bound.call()
            except Exception as error:
                name_launch(error, (bound,), bound.call)
                raise
            host.append(HostInterval(bound.step, start, now_ns()))
    start = now_ns()
    prepared.wait()
    host.append(HostInterval(None, start, now_ns()))
    prepared.ran()
    return host


def call_all(calls: Sequence[Call]) -> None:
    """Call some functions, one after the other."""
    for call in calls:
        call()
