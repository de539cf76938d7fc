"""Issuing: operations that have their turn go on streams, behind the fewest waits; a fault is kept on the variables that they write."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING

from streamscope.engines.pushed.catalogue import Application, Part
from streamscope.engines.pushed.faults import Fault, FaultLog
from streamscope.engines.pushed.lanes import EventStamp, Lane, LanesOfGpu, earliest, expect, made_lanes
from streamscope.engines.pushed.memory_pool import MemoryPool
from streamscope.engines.pushed.variable import VariableState, passed_on, spoiled, written
from streamscope.errors import DeviceError, EngineError
from streamscope.interrupts import deferred, is_interruption
from streamscope.order.clocks import Clock, merged
from streamscope.order.hazards import note, unordered
from streamscope.program.launch import LaunchKind
from streamscope.program.user_line import user_line

if TYPE_CHECKING:
    from streamscope.devices.protocol import Call, Device


class Issuer:
    """Issues operations on one device; the caller holds `lock`.

    Ctrl-C, or another signal handler's exception, may come in the middle of `issue`, since to put it off takes as long as all of that.
    The operation then counts as failed, and the device is waited for, so that no event can be missing behind what was launched.
    """

    def __init__(self, device: Device, *, synchronous: bool, streams: int) -> None:
        self.device = device
        self.lock = device.lock
        """The device's. Guards the engine, and the order of calls on streams; engines on one device share it."""
        self.memory = MemoryPool(device)
        self.faults = FaultLog()
        self.live: Mapping[int, VariableState] = {}
        """The engine's variables."""
        self.torn = False
        """An operation was interrupted while it was issued, and the device has not been waited for since."""
        self.gpus: int = getattr(device, "gpus", 1)
        """Number of the device's GPUs."""
        self.lanes: dict[int, Lane] = {}
        """By number, those of the GPUs that have been used."""
        self._streams = streams
        self._of_gpus: dict[int, LanesOfGpu] = {}
        first = self.lanes_of(0)
        self.known: Clock = first.copy_in.clock
        """For each lane, the position up to which the host knows its items to be done."""
        self._synchronous = synchronous
        self._collectives: deque[_Collective] = deque()
        self._aborts = self._aborts_now()
        self._issuing = False
        self._broken: tuple[Application, str | None, int | None, BaseException] | None = None

    def lanes_of(self, gpu: int) -> LanesOfGpu:
        """Return the lanes of a GPU, made when it is first used."""
        found = self._of_gpus.get(gpu)
        if found is None:
            with deferred():
                found = self._of_gpus[gpu] = made_lanes(self.device, gpu, self.gpus, self._streams)
                self.lanes |= {lane.index: lane for lane in found.all}
        return found

    def lane_for(self, kind: LaunchKind, gpu: int, *, priority: bool) -> Lane | None:
        """Return the lane of a GPU that operations of a kind go on; None if it is chosen afresh each time."""
        lanes = self.lanes_of(gpu)
        match kind:
            case LaunchKind.COPY_IN:
                return lanes.copy_in
            case LaunchKind.COPY_OUT:
                return lanes.copy_out
            case LaunchKind.COPY_PEER:
                return lanes.urgent_copy if priority else lanes.peer_copy
            case LaunchKind.COLLECTIVE:
                return lanes.communication
            case _:
                ordinary = lanes.compute[0] if len(lanes.compute) == 1 else None
                return lanes.priority if priority else ordinary

    def issue(self, application: Application, where: str | None = None, pushed: int | None = None) -> None:
        """Issue an operation that has its turn: waits, launches, one event; ``pushed`` is its number where it had to wait for that."""
        if self._issuing:
            if _in_issue(self):
                raise EngineError("an operator's function used the engine that was calling it", hint="push from outside operators")
            self.mend()  # Ctrl-C came in the last moment of an operation that was being issued.
        self._issuing = True
        try:
            lane = application.lane or self._placed(application)
            index = lane.index
            if application.members:
                self._wait_together(application)
            else:
                before = unordered(index, lane.clock, application.reads, application.writes)
                # An operation on empty arrays launches nothing: it needs neither waits nor an event.
                if before and application.launches:
                    lane.wait(before)
            for number, part in enumerate(application.parts):
                if (self.faults.live or pushed is not None) and passed_on(part.inputs, part.writes, pushed):
                    continue
                try:
                    calls = part.calls.get(index)
                    for call in self._bound(part, application, lane) if calls is None else calls:
                        call()
                except Exception as error:
                    if is_interruption(error):
                        raise
                    # Whatever it is, it is raised where the results are waited for.
                    self.fail(part.writes, Fault(part.name, where or application.lines[number] or user_line(), error, pushed))
                    continue
                written(part.writes)
            if application.members:
                self._record_together(application, where)
            elif application.launches:
                stamp = lane.record()
                # After the record: whoever finds this stamp on a variable may wait for its event.
                note(index, stamp, application.reads, application.writes)
                if self._synchronous:
                    lane.stream.synchronize()
                    self.learn(stamp)
        except BaseException as error:
            # Before any call, since Ctrl-C comes once more in calls only: whoever uses the engine next then mends it.
            self.torn, self._broken = True, (application, where, pushed, error)
            with deferred():
                self.mend()
            if is_interruption(error):
                raise
        self._issuing = False

    def fail(self, writes: Iterable[VariableState], fault: Fault) -> None:
        """Keep a fault on an operation's outputs."""
        self.faults.add(fault)
        spoiled(writes, fault)

    def learn(self, stamp: EventStamp) -> None:
        """Note that the host has waited for a stamp, so that all that is issued from now on comes after it."""
        self.known = merged(self.known, stamp.known)
        for lane in self.lanes.values():
            lane.clock = merged(lane.clock, self.known)

    def mend(self) -> None:
        """Wait for the device after an operation was interrupted, whose events may be missing, and count that as failed."""
        broken, self._broken = self._broken, None
        if broken is not None:
            application, where, pushed, error = broken
            self.fail(application.writes, Fault(application.parts[0].name, where or application.lines[0] or user_line(), error, pushed))
        for lane in self.lanes.values():
            try:
                lane.stream.synchronize()
            except Exception as error:  # noqa: BLE001 — kept like any other fault
                self.faults.add(Fault("waiting after an interruption", user_line(), error))
        # Last: until every stream was waited for, an event may be missing behind what was launched.
        self._issuing = self.torn = False

    def mend_if_torn(self) -> None:
        """Repair state that Ctrl-C has left half done, before anything else is done."""
        if self.torn:
            self.mend()

    # Collectives that are aborted.

    def abort_collectives(self) -> bool:
        """Abort the collectives that are under way, if there are any; tell whether there were. The caller need not hold the lock."""
        # All are asked: those that have ended keep their results.
        under_way = [each for each in list(self._collectives) if not self._has_ended(each)]
        if under_way:
            self.device.abort_collectives()
        return bool(under_way)

    def note_aborts(self) -> None:
        """Keep a fault on what comes from collectives that anybody has aborted: their results, and all that was issued behind them."""
        aborts = self._aborts_now()
        if aborts == self._aborts:
            return
        lost = [each for each in self._collectives if not each.ended and not each.is_known(self.known)]
        self._collectives.clear()
        self._aborts = aborts
        why = "it was aborted before it had ended"
        faults = [(each, Fault(each.name, each.where, DeviceError(why, hint="push it again"), lost=True)) for each in lost]
        for _, fault in faults:
            self.faults.add(fault)
        for state in self.live.values():
            behind = [fault for each, fault in faults if state.writer is not None and each.is_before(state.writer)]
            if behind:
                spoiled((state,), behind[0])

    def _has_ended(self, each: _Collective) -> bool:
        """Ask the device whether a collective has ended on all GPUs; what an abort may have ended, which is not noted yet, has not."""
        each.ended = each.ended or (all(stamp.event.done() for stamp in each.stamps) and self._aborts_now() == self._aborts)
        return each.ended

    def _aborts_now(self) -> int:
        return self.device.collective_aborts if self.gpus > 1 else 0

    def let_finish(self) -> None:
        """Let the device finish the streams, before memory goes to others."""
        self.device.let_finish([lane.stream for lane in self.lanes.values()])

    def _placed(self, application: Application) -> Lane:
        now_ns = self.device.now_ns()
        lane = earliest(application.choice, application, now_ns)
        expect(lane, application.estimate_ns, now_ns)
        return lane

    def _wait_together(self, application: Application) -> None:
        """Let the streams of all GPUs of collectives wait for what these use there, before any part is launched."""
        self.note_aborts()  # Now: these come behind what was aborted, and use nothing of it.
        for lane, reads, writes in application.members:
            before = unordered(lane.index, lane.clock, reads, writes)
            if before:
                lane.wait(before)

    def _record_together(self, application: Application, where: str | None) -> None:
        """Record an event behind collectives on each of their GPUs."""
        stamps = []
        for lane, reads, writes in application.members:
            stamp = lane.record()
            note(lane.index, stamp, reads, writes)
            stamps.append(stamp)
        self._collectives.append(_Collective(stamps, application.parts[0].name, where or application.lines[0] or user_line()))
        self.note_aborts()  # Behind that: another thread may have aborted it since it was launched.
        while self._collectives and self._has_ended(self._collectives[0]):
            self._collectives.popleft()
        if self._synchronous:
            for stamp in stamps:
                self.lanes[stamp.lane].stream.synchronize()
                self.learn(stamp)

    def _bound(self, part: Part, application: Application, lane: Lane) -> tuple[Call, ...]:
        with deferred():
            return part.bind(self.device, self.memory, application.lanes or (lane,))


@dataclass(slots=True, eq=False)
class _Collective:
    """A collective that was issued, for when it is aborted."""

    stamps: Sequence[EventStamp]
    """On each of its GPUs."""
    name: str
    where: str
    ended: bool = False
    """Whether it is known that it has ended by itself on all GPUs."""

    def is_known(self, clock: Clock) -> bool:
        """Tell whether it has ended, by the host's clock."""
        return all(clock[each.lane] >= each.position for each in self.stamps)

    def is_before(self, stamp: EventStamp) -> bool:
        """Tell whether an operation comes behind it, by the clocks: it may use its results."""
        known = stamp.known
        return any(known[each.lane] >= each.position for each in self.stamps)


def _in_issue(issuer: Issuer) -> bool:
    """Tell whether the caller's `Issuer.issue` was called out of another one of the same issuer, which is at work."""
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 — as in `user_line`
    while frame is not None:
        if frame.f_code is Issuer.issue.__code__ and frame.f_locals.get("self") is issuer:
            return True
        frame = frame.f_back
    return False
