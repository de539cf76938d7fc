"""Events of the simulated device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamscope.devices.simulated.core import Core
from streamscope.devices.simulated.timeline import Moment
from streamscope.errors import DeviceError

if TYPE_CHECKING:
    from streamscope.devices.simulated.capture import Mark


class SimulatedEvent:
    """A point in a stream; `streamscope.devices.protocol.Event`.

    Attributes
    ----------
    latest : Moment or None
        The latest record, which is when its stream gets there; None before the first.
    mark : Mark or None
        Where in a capture it was recorded, if that was the latest record.
    """

    def __init__(self, core: Core, *, timing: bool) -> None:
        self.core = core
        self.latest: Moment | None = None
        self.mark: Mark | None = None
        self._timing = timing

    @property
    def timing(self) -> bool:
        """Whether `elapsed_ns` accepts it."""
        return self._timing

    def recorded(self, record: Moment) -> None:
        """Make a record the latest, outside any capture."""
        self.latest = record
        self.mark = None

    def synchronize(self) -> None:
        """Block the host until the latest record is done."""
        self._refuse_captured()
        self.core.synchronize([self.latest], "waiting for an event")

    def done(self) -> bool:
        """Tell whether the latest record is done (true if never recorded)."""
        self._refuse_captured()
        self.core.spend(self.core.model.event_query_ns)
        self.core.catch_up()
        return self.latest is None or self.latest.time_ns is not None

    def time_ns(self) -> float:
        """Return the time of the latest record.

        Raises
        ------
        DeviceError
            The event has no timing, was not recorded, or is not done.
        """
        if not self._timing:
            raise DeviceError("the time of an event without timing was asked for", hint="make the event with timing=True")
        self.core.catch_up()
        if self.latest is None:
            raise DeviceError("the time of an event was asked for that was never recorded", hint="record it, or launch the graph that does")
        if self.latest.time_ns is None:
            raise DeviceError("the time of an event was asked for that is not done", hint="synchronize it first")
        return self.latest.time_ns

    def _refuse_captured(self) -> None:
        if self.mark is not None:
            message = "the host cannot wait for an event that was last recorded in a capture"
            raise self.mark.capture.fail(message, hint="record it outside, or use an event with timing and launch the graph")
