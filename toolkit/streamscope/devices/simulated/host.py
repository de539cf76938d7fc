"""A simulated host of several GPUs: copies between them on links, and collectives, whose parts wait for each other."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from streamscope.arrays import Array
from streamscope.devices.log import LogRecord
from streamscope.devices.simulated.core import Action, Appointment, Core
from streamscope.devices.simulated.execution import Part
from streamscope.devices.simulated.memory import poison_of
from streamscope.errors import OutOfMemoryError
from streamscope.program.launch import call_collective


class PeerLinks:
    """Copies between GPUs: each GPU sends one at a time, and receives one at a time, in the order of arrival."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._waiting: list[_PeerCopy] = []
        self._sending: set[int] = set()
        self._receiving: set[int] = set()

    def put(self, source: int, target: int, duration_ns: float, started: Action, finished: Action) -> None:
        """Queue a copy; ``started`` is called when it is taken up."""
        self._waiting.append(_PeerCopy(source, target, duration_ns, started, finished))
        self._take_up()

    def _take_up(self) -> None:
        for copy in list(self._waiting):
            if copy.source not in self._sending and copy.target not in self._receiving:
                self._waiting.remove(copy)
                self._sending.add(copy.source)
                self._receiving.add(copy.target)
                copy.started()
                timeline = self._core.timeline
                timeline.at(timeline.now_ns + copy.duration_ns, lambda copy=copy: self._end(copy))  # type: ignore[misc]

    def _end(self, copy: _PeerCopy) -> None:
        copy.finished()
        self._sending.remove(copy.source)
        self._receiving.remove(copy.target)
        self._take_up()


@dataclass(slots=True, eq=False)
class _PeerCopy:
    source: int
    target: int
    duration_ns: float
    started: Action
    finished: Action


@dataclass(eq=False)
class Meeting:
    """One run of a collective, from the start of its first part to its end.

    A part reads from its start to the end of the whole: where its operand changes meanwhile, the results are poison, as on a GPU they are
    a mixture.
    """

    parts: dict[int, Part] = field(default_factory=dict)
    aborted: bool = False
    """Its parts end as they begin, and leave poison."""
    end: Appointment | None = None
    """When the transfer is to end, once all have begun."""


class BoundCollective:
    """A collective bound to its buffers. Streams are in order, so the n-th start of each part belongs to the n-th run."""

    def __init__(self, core: Core, duration_ns: float, count: int) -> None:
        self.core = core
        self.duration_ns = duration_ns
        self.count = count
        self._meetings: deque[Meeting] = deque()

    def begin(self, part: Part) -> None:
        """Let a part begin; the last one lets the transfer begin."""
        number = part.work.launch.part
        meeting = next((each for each in self._meetings if number not in each.parts), None)
        if meeting is None:
            meeting = Meeting()
            self._meetings.append(meeting)
        meeting.parts[number] = part
        if meeting.aborted:
            if len(meeting.parts) == self.count:
                self._meetings.remove(meeting)
            self.core.timeline.at(self.core.timeline.now_ns, lambda: self._break_off(part))
        elif len(meeting.parts) == self.count:
            timeline = self.core.timeline
            self.core.note(part.work.launch)
            stretch = max(each.stretch for each in meeting.parts.values())
            meeting.end = timeline.at(timeline.now_ns + self.duration_ns * stretch, lambda: self._end(meeting))

    def abort(self) -> None:
        """End the runs that are under way now, and parts of theirs that come later as they begin."""
        for meeting in [each for each in self._meetings if not each.aborted]:
            meeting.aborted = True
            if meeting.end is not None:
                meeting.end.cancel()
            if len(meeting.parts) == self.count:
                self._meetings.remove(meeting)
            for part in list(meeting.parts.values()):
                self._break_off(part)

    def _break_off(self, part: Part) -> None:
        for target in part.work.writes:
            target.poison()
        part.work.let_go()
        part.kernel.end()
        part.finished()

    def _end(self, meeting: Meeting) -> None:
        self._meetings.remove(meeting)
        parts = [meeting.parts[number] for number in sorted(meeting.parts)]
        try:
            self._commit(parts)
        except BaseException as error:  # noqa: BLE001 — whatever it is, the launch failed
            self.core.fail(parts[-1].work.launch, error)
        now_ns = self.core.timeline.now_ns
        for part in parts:
            work, log = part.work, part.work.execution.log
            work.let_go()
            part.kernel.end()
            if log.wanted:
                launch = work.launch
                what = (launch.name, launch.operation, launch.part, launch.kind, part.stream)
                log.note(LogRecord(*what, part.start_ns, now_ns, part.replay, work.writes))
        for part in parts:
            part.finished()

    def _commit(self, parts: Sequence[Part]) -> None:
        if not any(part.work.writes for part in parts):
            return
        operands = [_unchanged(part) for part in parts if part.operand is not None]
        results = iter(call_collective([part.work.launch for part in parts], operands))
        for part in parts:
            for (_, view), target in zip(part.work.launch.results, part.work.writes, strict=True):
                result = next(results)
                if view is None:
                    target.check(result, "it")
                    target.store(result)
                else:
                    view.put(target.hold(), result)


def _unchanged(part: Part) -> Array:
    """Return the operand of a part, or poison where it is no longer what it was at the start."""
    now, before = part.work.reads[0].values, part.operand
    assert before is not None
    if now.tobytes() == before.tobytes():
        return before
    try:
        return np.full(now.shape, poison_of(now.dtype), now.dtype)
    except MemoryError as error:
        raise OutOfMemoryError(f"the operand of {part.work.launch} has no copy: {error}", hint="use smaller shapes") from error
