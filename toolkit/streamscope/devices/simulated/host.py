"""A simulated host of several GPUs: copies between them on links, and collectives, whose parts wait for each other."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby

import numpy as np

from streamscope.arrays import Array
from streamscope.devices.link_model import LinkModel
from streamscope.devices.log import LogRecord
from streamscope.devices.simulated.core import Action, Appointment, Core
from streamscope.devices.simulated.execution import BoundLaunch, Multiprocessors, Part
from streamscope.devices.simulated.memory import poison_of
from streamscope.errors import OutOfMemoryError
from streamscope.program.launch import Launch, call_collective

BUFFERED_BYTES = 1 << 16
"""Who sends no more than this may be done before the receivers begin: it is in a buffer of theirs."""
_NEIGHBOURS = {True: "matmul", False: "elementwise"}


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


class _Transfer:
    """The transfer of some parts, which is slower while kernels run beside it on one of their GPUs."""

    def __init__(
        self, core: Core, chips: Sequence[Multiprocessors], speeds: Mapping[bool, float], alone_ns: float, finished: Action
    ) -> None:
        self._timeline, self._chips, self._speeds, self._finished = core.timeline, chips, speeds, finished
        self._remaining_ns, self._rated_ns, self._speed = alone_ns, core.timeline.now_ns, 1.0
        self._end: Appointment | None = None
        for chip in chips:
            chip.watching.append(self._rate)
        self._rate()

    def cancel(self) -> None:
        """Break it off, or do nothing where it is over."""
        if self._end is not None:
            self._end.cancel()
            self._end = None
            for chip in self._chips:
                chip.watching.remove(self._rate)

    def _rate(self) -> None:
        """Set its speed by its neighbours now, and so its end."""
        now_ns = self._timeline.now_ns
        self._remaining_ns -= (now_ns - self._rated_ns) * self._speed
        self._rated_ns = now_ns
        beside = set[bool]().union(*(chip.neighbours for chip in self._chips))
        self._speed = min((self._speeds[product] for product in beside), default=1.0)
        if self._end is not None:
            self._end.cancel()
        self._end = self._timeline.at(now_ns + max(0.0, self._remaining_ns) / self._speed, self._over)

    def _over(self) -> None:
        self.cancel()
        self._finished()


@dataclass(eq=False)
class Meeting:
    """One run of a collective, from the start of its first part to the end of its last one.

    A part reads and writes from its start to its end. Its result is poison meanwhile; where its operand changes, results that come later
    are poison, as on a GPU they are a mixture.
    """

    parts: dict[int, Part] = field(default_factory=dict)
    """Those that have begun."""
    transferring: set[int] = field(default_factory=set)
    """Those of them that wait for no other any more."""
    ended: set[int] = field(default_factory=set)
    aborted: bool = False
    """Its parts end as they begin, and leave poison."""
    transfers: list[_Transfer] = field(default_factory=list)


class BoundCollective:
    """A collective bound to its buffers. Streams are in order, so the n-th start of each part belongs to the n-th run."""

    def __init__(self, core: Core, duration_ns: float, launches: Sequence[Launch], links: LinkModel) -> None:
        self.core = core
        self.duration_ns = duration_ns
        self._launches = launches
        self._awaited = list(map(_awaited, launches))
        nbytes = next(launch.collective.nbytes for launch in launches if launch.collective is not None)
        # Whatever the priorities: parts wait here for room as kernels do, and at equal priority that wait would count twice, since the
        # table's speeds have it in them. With communication first, they have the least of it.
        self.kernel_speeds = {product: links.kernel_speed_beside(name, nbytes, "communication") for product, name in _NEIGHBOURS.items()}
        # Blocks of element-wise kernels are short, so a collective of priority waits least for room beside them. Beside products,
        # it is no slower than beside those, which large ones show.
        beside = links.collective_speed_beside("elementwise", nbytes, "communication")
        self._speeds = {True: max(core.model.collective_share, beside), False: beside}
        self._meetings: deque[Meeting] = deque()

    def begin(self, part: Part) -> None:
        """Let a part begin; the transfer begins for those that have waited for it."""
        number = part.work.launch.part
        meeting = next((each for each in self._meetings if number not in each.parts), None)
        if meeting is None:
            meeting = Meeting()
            self._meetings.append(meeting)
        parts, timeline = meeting.parts, self.core.timeline
        parts[number] = part
        if meeting.aborted:
            timeline.at(timeline.now_ns, lambda: self._break_off(meeting, number))
            return
        ready = [each for each in sorted(parts) if each not in meeting.transferring and self._awaited[each] <= parts.keys()]
        if ready:
            self.core.note(part.work.launch)
            meeting.transferring.update(ready)
        for each, group in groupby(sorted(ready, key=lambda each: parts[each].stretch), key=lambda each: parts[each].stretch):
            numbers = list(group)
            chips = [parts[one].kernel.chip for one in numbers]
            meeting.transfers.append(
                _Transfer(self.core, chips, self._speeds, self.duration_ns * each, partial(self._end, meeting, numbers))
            )

    def abort(self) -> None:
        """End the runs that are under way now, and parts of theirs that come later as they begin."""
        for meeting in [each for each in self._meetings if not each.aborted]:
            meeting.aborted = True
            for transfer in meeting.transfers:
                transfer.cancel()
            for number in meeting.parts.keys() - meeting.ended:
                self._break_off(meeting, number)

    def _break_off(self, meeting: Meeting, number: int) -> None:
        part = meeting.parts[number]
        self._note_ended(meeting, [number])
        part.work.let_go()
        part.kernel.end()
        part.finished()

    def _note_ended(self, meeting: Meeting, numbers: Sequence[int]) -> None:
        meeting.ended.update(numbers)
        if len(meeting.ended) == len(self._launches):
            self._meetings.remove(meeting)

    def _end(self, meeting: Meeting, numbers: Sequence[int]) -> None:
        ended = [meeting.parts[number] for number in numbers]
        try:
            self._commit(meeting, ended)
        except BaseException as error:  # noqa: BLE001 — whatever it is, the launch failed
            self.core.fail(ended[-1].work.launch, error)
        self._note_ended(meeting, numbers)
        now_ns = self.core.timeline.now_ns
        for part in ended:
            work, log = part.work, part.work.execution.log
            work.let_go()
            part.kernel.end()
            if log.wanted:
                launch = work.launch
                what = (launch.name, launch.operation, launch.part, launch.kind, part.stream)
                log.note(LogRecord(*what, part.start_ns, now_ns, part.replay, work.writes))
        for part in ended:
            part.finished()

    def _commit(self, meeting: Meeting, ended: Sequence[Part]) -> None:
        for number, part in meeting.parts.items():
            if number not in meeting.ended:
                part.operand = _unchanged(part)
        receivers = [part.work for part in ended if part.work.writes]
        if not receivers:
            return
        operands = [part.operand for _, part in sorted(meeting.parts.items()) if part.operand is not None]
        results = iter(call_collective(self._launches, operands))
        found = {launch.part: next(results) for launch in self._launches if launch.writes}
        for work in receivers:
            _put(work, found[work.launch.part])


def _put(work: BoundLaunch, result: Array) -> None:
    """Write the result of a part, which may be a part of a variable."""
    ((_, view),), (target,) = work.launch.results, work.writes
    if view is None:
        target.check(result, "it")
        target.store(result)
    else:
        view.put(target.hold(), result)


def _awaited(launch: Launch) -> set[int]:
    """Return the parts that begin before a part's transfer does: all of them, but where the sender need not wait for the others."""
    collective = launch.collective
    assert collective is not None
    return set(collective.awaits(launch.part) if collective.nbytes <= BUFFERED_BYTES else range(len(collective.gpus)))


def _unchanged(part: Part) -> Array | None:
    """Return the operand of a part, if it has one, or poison where it is no longer what it was at the start."""
    before = part.operand
    if before is None:
        return None
    now = part.work.reads[0].values
    if now.tobytes() == before.tobytes():
        return before
    try:
        return np.full(now.shape, poison_of(now.dtype), now.dtype)
    except MemoryError as error:
        raise OutOfMemoryError(f"the operand of {part.work.launch} has no copy: {error}", hint="use smaller shapes") from error
