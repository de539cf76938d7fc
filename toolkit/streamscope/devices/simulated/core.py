"""The discrete-event core of the simulated device: actions in order of time, and the host's clock with its ways to pass time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from itertools import count
from threading import RLock, get_ident, local
from typing import TYPE_CHECKING, TypeVar

from streamscope.devices.cost_model import CostModel
from streamscope.errors import DeviceError, StreamscopeError, described
from streamscope.interrupts import deferred
from streamscope.program.launch import Launch

if TYPE_CHECKING:
    from streamscope.devices.simulated.graphs import Capture
    from streamscope.devices.simulated.streams import SimulatedStream

Action = Callable[[], None]
Delays = Callable[[Launch, str], tuple[float, float]]
"""``delays(launch, stream name) -> (ns to start later, factor on the duration)``: makes any legal schedule happen."""

T = TypeVar("T")


class Moment:
    """A point in device time that is unknown until it has come."""

    __slots__ = ("_actions", "time_ns")

    def __init__(self) -> None:
        self.time_ns: float | None = None
        self._actions: list[Action] = []

    def has_come(self) -> bool:
        """Tell whether the moment has come."""
        return self.time_ns is not None

    def come(self, time_ns: float) -> None:
        """Let the moment come, and run the actions that wait for it."""
        self.time_ns = time_ns
        actions, self._actions = self._actions, []
        for action in actions:
            action()

    def then(self, action: Action) -> None:
        """Do something when the moment comes, or at once if it has."""
        if self.time_ns is None:
            self._actions.append(action)
        else:
            action()


class Appointment:
    """An action that is due; `cancel` before its time, and it never happens."""

    __slots__ = ("action",)

    def __init__(self, action: Action) -> None:
        self.action: Action | None = action

    def cancel(self) -> None:
        """Take the action back."""
        self.action = None


class Timeline:
    """Actions in order of their time; those of one time in the order in which they were put there."""

    def __init__(self) -> None:
        self.now_ns = 0.0
        """How far the device has been simulated. It never passes the host's clock but while the host is blocked."""
        self._due: list[tuple[float, int, Appointment]] = []
        self._order = count()

    def at(self, time_ns: float, action: Action) -> Appointment:
        """Put an action on the timeline, now at the earliest."""
        appointment = Appointment(action)
        # The number decides between equal times, so runs repeat exactly; appointments cannot be compared.
        heappush(self._due, (max(time_ns, self.now_ns), next(self._order), appointment))
        return appointment

    def is_due(self, time_ns: float) -> bool:
        """Tell whether `run_to` would change anything."""
        return self.now_ns < time_ns or bool(self._due and self._due[0][0] <= time_ns)

    def run_to(self, time_ns: float, stops: Callable[[], bool] = lambda: False) -> None:
        """Do all that is due up to and at a time, or until somebody wants to stop."""
        while self._due and self._due[0][0] <= time_ns:
            if stops():
                return
            self._step()
        self.now_ns = max(self.now_ns, time_ns)

    def run_until(self, condition: Callable[[], bool], limit_ns: float = math.inf) -> bool:
        """Run actions that are due by a limit until a condition holds; False if it still does not when none is left."""
        while not condition():
            if not self._due or self._due[0][0] > limit_ns:
                return False
            self._step()
        return True

    def _step(self) -> None:
        time_ns, _, appointment = heappop(self._due)
        if appointment.action is not None:
            self.now_ns = time_ns
            appointment.action()


class _Watch(local):
    """Watchers of the launches that a thread makes the device compute, and their errors; each thread has its own."""

    each: Callable[[Launch], None] | None = None
    stop: BaseException | None = None


class Core:
    """The state of one simulated device. Threads take turns, since there is one clock.

    The device is simulated lazily: up to the host's clock when the host looks at it, and beyond only while the host is blocked.
    """

    def __init__(self, model: CostModel, delays: Delays | None) -> None:
        self.lock = RLock()
        """Held by who moves the device or its clock."""
        self.model = model
        self.timeline = Timeline()
        self.captures: list[Capture] = []
        """Captures that have begun and not ended."""
        self.host_ns = 0.0
        """The host's clock, in virtual ns."""
        self.replay_ids = count()
        self._delays = delays
        self._watch = _Watch()
        self._fault: BaseException | None = None

    @property
    def delayed(self) -> bool:
        """Whether launches are delayed or stretched."""
        return self._delays is not None

    def spend(self, call_ns: float) -> None:
        """Let the host be busy with a call."""
        with self.lock:
            self.host_ns += call_ns

    def catch_up(self) -> None:
        """Simulate the device up to the host's clock. As everything that moves the device, it is not torn by Ctrl-C."""
        if self.timeline.is_due(self.host_ns):
            with self.lock, deferred() as interrupts:
                self.timeline.run_to(self.host_ns, lambda: interrupts.due or self._watch.stop is not None)
            self._raise_stop()

    def block(self, condition: Callable[[], bool], what: str) -> None:
        """Block the host until a condition of the device holds."""
        self.catch_up()
        with self.lock, deferred() as interrupts:
            held = not self.timeline.run_until(lambda: condition() or interrupts.due or self._watch.stop is not None)
            # The host wakes when the device is there, never earlier than its own clock.
            self.host_ns = max(self.host_ns, self.timeline.now_ns)
        self._raise_stop()
        if held:
            raise DeviceError(
                f"deadlock: {what} would block the host for ever: a gate that is still closed holds the work back, or a collective waits "
                "for a part that does not begin",
                hint=f"open the gate first, and put at most {self.model.queue_depth} items on a held stream",
            )

    def block_within(self, moment: Moment | None, timeout_ns: float, what: str) -> bool:
        """Block the host until a moment has come, so long at most; tell whether it has. Failures are raised as by `synchronize`."""
        self.forbid_in_capture(what)
        self.catch_up()
        if moment is not None and not moment.has_come():
            limit_ns = self.host_ns + timeout_ns
            with self.lock, deferred() as interrupts:
                self.timeline.run_until(lambda: moment.has_come() or interrupts.due or self._watch.stop is not None, limit_ns)
                waited_in_vain = not (moment.has_come() or interrupts.due or self._watch.stop is not None)
                self.host_ns = max(self.host_ns, limit_ns if waited_in_vain else self.timeline.now_ns)
            self._raise_stop()
            if waited_in_vain:
                return False
        self.spend(self.model.synchronize_return_ns)
        self.raise_fault()
        return True

    @contextmanager
    def watched(self, each: Callable[[Launch], None]) -> Iterator[None]:
        """Call a function before each launch that this thread lets the device compute.

        Where the function raises, the device stops between two launches, and it can go on. Another thread's block is its own, and
        another thread that moves the device neither calls the function nor gets what it raises.
        """
        before, self._watch.each = self._watch.each, each
        try:
            yield
            self._raise_stop()
        finally:
            self._watch.each, self._watch.stop = before, None

    def note(self, launch: Launch) -> None:
        """Tell who watches this thread that a launch is computed next."""
        if self._watch.each is not None and self._watch.stop is None:
            try:
                self._watch.each(launch)
            except BaseException as error:  # noqa: BLE001 — raised by who waits for the device, which would be torn by it here
                self._watch.stop = error

    def _raise_stop(self) -> None:
        stop, self._watch.stop = self._watch.stop, None
        if stop is not None:
            raise stop

    def synchronize(self, moments: Iterable[Moment | None], what: str, streams: Iterable[SimulatedStream] = ()) -> None:
        """Block the host until moments have come, those of whole ``streams`` for example, then raise a failure."""
        self.forbid_in_capture(what, streams)
        self.catch_up()
        for moment in moments:
            if moment is not None and not moment.has_come():
                self.block(moment.has_come, what)
        self.spend(self.model.synchronize_return_ns)
        self.raise_fault()

    def forbid_in_capture(self, what: str, streams: Iterable[SimulatedStream] = ()) -> None:
        """Raise EngineError, and break every capture of the calling thread, or that one of the streams is in, if there is one."""
        captured = {stream.capture for stream in streams}
        errors = [
            capture.fail(f"{what} is not possible while stream {capture.origin.name!r} is captured", hint="end the capture first")
            for capture in list(self.captures)
            if capture.thread == get_ident() or capture in captured
        ]
        if errors:
            raise errors[0]

    def fail(self, launch: Launch, error: BaseException) -> None:
        """Keep the first failure until `raise_fault`; later ones are lost, like the values of failed launches."""
        if self._fault is not None:
            return
        if not isinstance(error, Exception):  # Somebody wants to stop: the launch did not fail.
            self._fault = error
            return
        ours = error if isinstance(error, StreamscopeError) else StreamscopeError(described(error))
        self._fault = DeviceError(f"{launch} failed: {ours.message}", hint=ours.hint)
        self._fault.__cause__ = error

    def raise_fault(self) -> None:
        """Raise, once, the first failure since the last call."""
        fault, self._fault = self._fault, None
        if fault is not None:
            raise fault

    def delay_and_stretch(self, launch: Launch, stream: str) -> tuple[float, float]:
        """Return the effect of `Delays` on a launch: ns to start later, and factor on the duration."""
        if self._delays is None:
            return 0.0, 1.0
        delay_ns, factor = self._delays(launch, stream)
        if delay_ns < 0 or factor <= 0:
            message = f"delays returned {(delay_ns, factor)} for {launch.name!r}"
            raise DeviceError(message, hint="expected a delay of at least 0 and a factor above 0")
        return delay_ns, factor

    def own(self, kind: type[T], thing: object) -> T:
        """Return ``thing``, which must be one of this device's."""
        if not isinstance(thing, kind) or getattr(thing, "core", self) is not self:
            raise DeviceError(f"{thing!r} does not belong to this simulated device", hint="make it with the device that uses it")
        return thing
