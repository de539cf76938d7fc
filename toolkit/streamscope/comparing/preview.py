"""A preview of a comparison on the simulated device, in milliseconds, since nothing is computed and no memory is held."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from streamscope.analysis.verdict import FORECAST
from streamscope.comparing.comparison import Comparison, Run
from streamscope.devices.link_model import LinkModel
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engine_entry import ENGINES
from streamscope.engines.plan import checked_streams
from streamscope.engines.prepared import planned
from streamscope.measuring.simulation import logged_without_data
from streamscope.program.operation import Program
from streamscope.recording.communication import communication_of
from streamscope.recording.origins import origins_of_program, with_waits
from streamscope.trace.origins import Origins
from streamscope.trace.trace import Trace


class Preview:
    """The times and timelines that `compare` has of a program on the simulated device, without results and without memory.

    Results of an engine are kept, so that another number of streams is the work of those engines alone that use it.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        """Traced; its inputs need no values."""
        self._runs: dict[tuple[str, int | None, float], Run] = {}

    def comparison(self, engines: Sequence[str], *, streams: int | None = None, link_speed: float = 1.0) -> Comparison:
        """Return the runs of some engines.

        ``streams``: compute streams that engines may use that take several, as ``dual`` does; see `most_streams`.
        ``link_speed``: of the links between GPUs, as a multiple of the measured one.
        """
        allowed = checked_streams(streams)
        runs = [self._run(engine, allowed if ENGINES[engine].takes_streams else 1, link_speed) for engine in engines]
        return Comparison(self.program.name, runs[0].trace.info.device, runs, checked_against=FORECAST)

    def _run(self, engine: str, streams: int | None, link_speed: float) -> Run:
        key = engine, streams, link_speed if self.program.gpus > 1 else 1.0
        if key not in self._runs:
            self._runs[key] = _run(self.program, engine, streams, _device(self.program, link_speed), self._origins)
        return self._runs[key]

    @cached_property
    def _origins(self) -> Origins:
        return origins_of_program(self.program.with_reuse, _device(self.program).estimate_ns)


def _device(program: Program, link_speed: float = 1.0) -> SimulatedDevice:
    return SimulatedDevice(gpus=program.gpus, links=linked(link_speed))


def linked(speed: float) -> LinkModel:
    """Return the built-in links, so many times as fast as measured."""
    links = LinkModel.load()
    return links if speed == 1 else links.with_link_speed(speed)


def _run(program: Program, engine: str, streams: int | None, device: SimulatedDevice, origins: Origins) -> Run:
    plan = planned(program, engine, device, streams)
    spans, info = logged_without_data(plan, device, streams)
    collectives, peers = communication_of(program, spans)
    trace = Trace(spans, info, with_waits(origins, plan), collectives=collectives, peers=peers)
    return Run(engine, np.asarray([trace.info.ledger["recorded_ns"]]), float("nan"), float("nan"), trace)
