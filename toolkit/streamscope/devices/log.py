"""A device's own log: when each launch truly ran."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from streamscope.program.launch import LaunchKind


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One kernel or copy of a launch as it ran: a CUPTI record of the simulated device."""

    name: str
    operation: int
    part: int
    kind: LaunchKind
    """Those of the launch."""
    stream: str
    """The stream that it was put on; in a graph, the stream that was captured."""
    start_ns: float
    end_ns: float
    """On the device's virtual clock, the same as the host's."""
    replay: int = -1
    """Which graph launch it belongs to, counted over the device; -1 outside graphs."""
    writes: tuple[object, ...] = field(default=(), compare=False, repr=False)
    """Variables that its launch writes, which identify it."""
    piece: int = 0
    """Which kernel of the launch it is; 0 for the first."""


class DeviceLog(list[LogRecord]):
    """Records in the order of their ends; ``clear()`` empties it."""

    enabled: bool = False
    """Whether new records are kept here. They are not by default, since they would pile up where nobody reads them."""

    def __init__(self) -> None:
        super().__init__()
        self._listening: list[list[LogRecord]] = []

    @property
    def wanted(self) -> bool:
        """Whether anybody keeps records."""
        return self.enabled or bool(self._listening)

    def note(self, record: LogRecord) -> None:
        """Give a record to all who keep them."""
        for records in (*([self] if self.enabled else []), *self._listening):
            records.append(record)

    @contextmanager
    def kept(self) -> Iterator[list[LogRecord]]:
        """Give a list that gets all that ends in a block, whoever put it on the device."""
        records: list[LogRecord] = []
        self._listening.append(records)
        try:
            yield records
        finally:
            self._listening = [other for other in self._listening if other is not records]
