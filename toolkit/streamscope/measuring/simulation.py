"""Time of a plan on the simulated device at given costs and durations of launches: the one model behind all advice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from streamscope.devices.cost_model import CostModel
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engines.plan import CallHost, Issue, Plan, Replay, Step
from streamscope.engines.prepared import Prepared
from streamscope.measuring.case import run_ns
from streamscope.program.launch import Launch
from streamscope.recording.device_log import DeviceLogRecorder, logged_run
from streamscope.trace.info import TraceInfo
from streamscope.trace.spans import SpanTable

LEAST_NS = 0.01
"""Nothing is simulated as shorter than this."""


def without_data(plan: Plan, host_ns: Mapping[int, float] | None = None) -> Plan:
    """Return a plan that takes as long, and neither holds memory nor computes anything.

    Host functions take ``host_ns``, by operation; by default their declared time.
    """
    taken = host_ns or {}

    def emptied(step: Step) -> Step:
        match step:
            case Issue(launch, lane):
                return Issue(launch.but(**_BARE), lane)
            case CallHost(call):
                duration_ns = taken.get(call.operation, call.duration_ns)
                return CallHost(replace(call, reads=(), writes=(), function=tuple, duration_ns=duration_ns))
            case Replay(steps):
                return Replay(tuple(map(emptied, steps)))
        return step

    operations = tuple(replace(operation, reads=(), writes=(), views=(), written=()) for operation in plan.program.operations)
    program = replace(plan.program, variables=(), operations=operations, inputs=(), outputs=())
    return replace(plan, program=program, steps=tuple(map(emptied, plan.steps)))


def simulated_ns(plan: Plan, duration_ns: Callable[[Launch], float], model: CostModel) -> tuple[int, int]:
    """Simulate one run of a plan made by `without_data`, whose graphs are captured, on an idle device with such costs.

    Return after how long the host has issued all, and after how long it knows that all is done, in ns. ``duration_ns`` says how long a
    launch runs alone.
    """

    def stretched(launch: Launch, stream: str) -> tuple[float, float]:
        return 0.0, max(duration_ns(launch), LEAST_NS) / device.estimate_ns(launch)

    device = SimulatedDevice(model, delays=stretched, gpus=plan.program.gpus)
    prepared = Prepared(plan, device)
    prepared.capture()
    return run_ns(prepared)


def logged_without_data(plan: Plan, device: SimulatedDevice, streams: int | None) -> tuple[SpanTable, TraceInfo]:
    """Run a plan once on a simulated device, without computing anything, and return the spans of its log."""
    prepared = Prepared(without_data(plan), device, compute_streams=streams)
    prepared.capture()
    return DeviceLogRecorder(device, device.log).spans(prepared, logged_run(prepared, device.log))


def _nothing(arrays: object) -> tuple[()]:
    return ()


_BARE = {"reads": (), "writes": (), "views": (), "written": (), "reference": _nothing, "stateful": True}
