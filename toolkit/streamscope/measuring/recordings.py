"""The recorded runs of a comparison: by one recorder, or by all where the ledger of their costs is wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from streamscope.arguments import shown
from streamscope.devices.protocol import Device
from streamscope.engines.prepared import Prepared
from streamscope.errors import RecordingError
from streamscope.measuring.case import Case, Checked, uncollected
from streamscope.program.operation import Program
from streamscope.recording.device_log import DeviceLogRecorder
from streamscope.recording.origins import memory_of_program, origins_of_program
from streamscope.recording.recorders import STAYED, Recorder, checked_recorder, cupti_stayed, recorder_of
from streamscope.trace.trace import Trace
from streamscope.words import listed

if TYPE_CHECKING:
    from streamscope.devices.link_model import LinkModel

_LEDGER = ("events", "stamps", "cupti")
"""All recorders of a GPU. CUPTI is the last, in case that it stays in the process, which then launches more slowly."""


@dataclass(frozen=True)
class Recorded:
    """How runs are recorded."""

    recorder: str = "auto"
    """Whose trace is shown."""
    ledger: bool = False
    """Whether the others record, too, to find their costs."""

    def __post_init__(self) -> None:
        checked_recorder(self.recorder)
        if not isinstance(self.ledger, bool | np.bool_):
            raise RecordingError(f"ledger={shown(self.ledger)} must be True or False", hint="True measures what each recorder costs")

    def check(self, device: Device) -> None:
        """Find out before anything runs whether the recorder can serve."""
        recorder_of(device, self.recorder)

    def runs(self, device: Device) -> int:
        """Return how often each engine is recorded."""
        return len(self.recorders) if self.ledger and device.log is None else 1

    @property
    def recorders(self) -> tuple[str, ...]:
        """All that record where the ledger is wanted: the one whose trace is shown, too."""
        return _LEDGER if self.recorder in _LEDGER else (self.recorder, *_LEDGER)


_BY_DEFAULT = Recorded()


def recorded_traces(
    case: Case,
    device: Device,
    checked: Mapping[str, Checked],
    asked: Recorded = _BY_DEFAULT,
    begin: Callable[[str], None] = lambda _: None,
) -> Iterator[tuple[str, Trace]]:
    """Yield each engine's trace; all times are taken before.

    ``checked``: by engine.
    ``begin``: told of each engine before it is recorded.
    """
    said = _links_worked_out(device, case.program)
    # The run that was timed and checked is the recorded one: another would be the same.
    if device.repeats_exactly and device.log is not None:
        origins = uncollected(origins_of_program, case.program.with_reuse, device.estimate_ns)
        memory = uncollected(memory_of_program, case.program)
        log = DeviceLogRecorder(device, device.log, asked.recorder)
        for engine, each in checked.items():
            begin(engine)
            assert each.run is not None
            yield engine, _noted(uncollected(log.trace, each.prepared, each.run, origins, memory), said)
        return
    if asked.runs(device) == 1:
        recorder = recorder_of(device, asked.recorder)
        for engine, each in checked.items():
            begin(engine)
            yield engine, _noted(_record(recorder, case, each.prepared), said)
        return
    chosen = asked.recorder
    traces: dict[str, dict[str, Trace]] = {engine: {} for engine in checked}
    reasons: list[str] = []
    # By recorder, not by engine: CUPTI, the last, may stay and slow down all that comes after it.
    for name in asked.recorders:
        try:
            recorder = recorder_of(device, name)
            for engine, each in checked.items():
                begin(engine)
                traces[engine][name] = _record(recorder, case, each.prepared)
        except RecordingError as error:
            # The shown trace needs its recorder; the others only add their costs.
            if name == chosen:
                raise
            reasons.append(f"the cost of {name} is unknown: {error.message}")
    for engine, found in traces.items():
        costs = {f"{name}_ns": found[name].info.ledger["recorded_ns"] for name in _LEDGER if name in found}
        trace = found[chosen]
        info = replace(trace.info, ledger={**trace.info.ledger, **costs})
        yield engine, _noted(replace(trace, info=info), reasons)


def _record(recorder: Recorder, case: Case, prepared: Prepared) -> Trace:
    stayed = cupti_stayed()  # Since the last engine, too: the stamp recorder asks CUPTI.
    reload = partial(case.reload, prepared)
    reload()
    return _noted(recorder.record(prepared, reload), [STAYED] * stayed)


def _links_worked_out(device: Device, program: Program) -> list[str]:
    """Say of a simulated host which numbers of a program's GPUs its links were not measured for."""
    links: LinkModel | None = getattr(device, "links", None) if device.info.simulated else None
    if links is None or program.gpus < 2:
        return []
    used = {program.gpus, *(len(launch.collective.gpus) for launch in program.launches() if launch.collective is not None)}
    unmeasured, measured = ([str(gpus) for gpus in sorted(found)] for found in (used - {*links.collective_points}, links.collective_points))
    return [f"links of {listed(unmeasured)} GPUs are worked out from those measured on {listed(measured)}"] if unmeasured else []


def _noted(trace: Trace, notes: list[str]) -> Trace:
    return replace(trace, info=replace(trace.info, notes=(*trace.info.notes, *notes))) if notes else trace
