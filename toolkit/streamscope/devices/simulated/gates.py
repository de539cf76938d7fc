"""Gates of the simulated device: what `cuStreamWaitValue32` on page-locked memory is to a real one."""

from __future__ import annotations

from streamscope.devices.protocol import Stream
from streamscope.devices.simulated.core import Core
from streamscope.devices.simulated.streams import SimulatedStream, WaitItem
from streamscope.devices.simulated.timeline import Moment
from streamscope.interrupts import deferred


class SimulatedGate:
    """Holds streams until the host opens it; `streamscope.devices.protocol.Gate`."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._opened = Moment()

    def hold(self, stream: Stream) -> None:
        """Let everything put on the stream from now on wait for `open`."""
        own = self.core.own(SimulatedStream, stream)
        self.core.forbid_in_capture("holding a stream by a gate")
        own.put(WaitItem(self._opened), self.core.model.stream_wait_ns)

    def open(self) -> None:
        """Let the held streams go; opening once more does nothing."""
        with self.core.lock, deferred():
            self.core.catch_up()
            if self._opened.time_ns is None:
                self._opened.come(self.core.host_ns)
