"""The simulated device's own log: when each launch truly ran."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from streamscope.program.launch import LaunchKind


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One launch as it ran; what CUPTI is to a real device.

    Attributes
    ----------
    name, operation, part, kind
        Those of the launch.
    stream : str
        The stream that it was put on; in a graph, the stream that was captured.
    start_ns, end_ns : float
        On the device's virtual clock, the same as the host's.
    replay : int
        Which graph launch it belongs to, counted over the device; -1 outside graphs.
    """

    name: str
    operation: int
    part: int
    kind: LaunchKind
    stream: str
    start_ns: float
    end_ns: float
    replay: int = -1


class DeviceLog(list[LogRecord]):
    """Records in the order of their ends; ``clear()`` empties it.

    Attributes
    ----------
    enabled : bool
        Whether new records are kept. They are not by default, since they would pile up where nobody reads them.
    """

    enabled: bool = False

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep what runs in a block, and nothing else; afterwards the log is empty and as enabled as before."""
        before = self.enabled
        self.clear()
        try:
            self.enabled = True
            yield
        finally:
            self.enabled = before
            self.clear()
