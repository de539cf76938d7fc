"""What every part of the simulated device shares: the model, the timeline, and the host's clock with its ways to pass time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from threading import RLock, get_ident
from typing import TYPE_CHECKING, TypeVar

from streamscope.devices.cost_model import CostModel
from streamscope.devices.simulated.execution import Execution
from streamscope.devices.simulated.timeline import Moment, Timeline
from streamscope.errors import DeviceError
from streamscope.interrupts import deferred
from streamscope.program.launch import Launch

if TYPE_CHECKING:
    from streamscope.devices.simulated.capture import Capture
    from streamscope.devices.simulated.streams import SimulatedStream

Delays = Callable[[Launch, str], tuple[float, float]]
"""``delays(launch, stream name) -> (ns to start later, factor on the duration)``: makes any legal schedule happen."""

T = TypeVar("T")


class Core:
    """The state of one simulated device. Threads take turns, since there is one clock.

    The device is simulated lazily: up to the host's clock when the host looks at it, and beyond only while the host is blocked.

    Attributes
    ----------
    lock : RLock
        Held by who moves the device or its clock.
    host_ns : float
        The host's clock, in virtual ns.
    captures : list of Capture
        Captures that have begun and not ended.
    """

    def __init__(self, model: CostModel, delays: Delays | None) -> None:
        self.lock = RLock()
        self.model = model
        self.timeline = Timeline()
        self.execution = Execution(self.timeline, model)
        self.captures: list[Capture] = []
        self.host_ns = 0.0
        self.replay_ids = count()
        self._delays = delays

    def spend(self, call_ns: float) -> None:
        """Let the host be busy with a call."""
        with self.lock:
            self.host_ns += call_ns

    def catch_up(self) -> None:
        """Simulate the device up to the host's clock. As everything that moves the device, it is not torn by Ctrl-C."""
        if self.timeline.is_due(self.host_ns):
            with self.lock, deferred():
                self.timeline.run_to(self.host_ns)

    def block(self, condition: Callable[[], bool], what: str) -> None:
        """Block the host until a condition of the device holds.

        Raises
        ------
        DeviceError
            It never will. Waits are for earlier work only, so it can only be that a closed gate holds everything.
        """
        self.catch_up()
        with self.lock, deferred() as interrupts:
            held = not self.timeline.run_until(lambda: condition() or interrupts.due)
            self.host_ns = max(self.host_ns, self.timeline.now_ns)
        if held:
            raise DeviceError(
                f"deadlock: {what} would block the host for ever, because a gate that is still closed holds the work back",
                hint=f"open the gate first, and put at most {self.model.queue_depth} items on a held stream",
            )

    def synchronize(self, moments: Iterable[Moment | None], what: str, streams: Iterable[SimulatedStream] = ()) -> None:
        """Block the host until moments have come, those of whole ``streams`` for example, then raise what went wrong meanwhile.

        Raises
        ------
        EngineError
            The calling thread captures, or one of the streams is captured, which this breaks.
        DeviceError
            A launch failed, or a closed gate makes this wait for ever.
        """
        self.forbid_in_capture(what, streams)
        for moment in moments:
            if moment is not None:
                self.block(moment.has_come, what)
        self.spend(self.model.synchronize_return_ns)
        self.execution.raise_fault()

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

    def sway(self, launch: Launch, stream: str) -> tuple[float, float]:
        """Return what the adversary does to a launch: ns to start later, and factor on the duration."""
        if self._delays is None:
            return 0.0, 1.0
        delay_ns, factor = self._delays(launch, stream)
        if delay_ns < 0 or factor <= 0:
            message = f"delays returned {(delay_ns, factor)} for {launch.name!r}"
            raise DeviceError(message, hint="expected a delay of at least 0 and a factor above 0")
        return delay_ns, factor

    def own(self, kind: type[T], thing: object) -> T:
        """Return ``thing``, which must be one of this device's.

        Raises
        ------
        DeviceError
            It is something else, or belongs to another device.
        """
        if not isinstance(thing, kind) or getattr(thing, "core", self) is not self:
            raise DeviceError(f"{thing!r} does not belong to this simulated device", hint="make it with the device that uses it")
        return thing
