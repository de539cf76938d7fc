"""The engines that have a few lines each: how they issue, or capture, a program's operations."""

from __future__ import annotations

from collections.abc import Sequence

from streamscope.engine_entry import GRAPH, STREAM, WAITING, EngineEntry
from streamscope.engines.issuing import captured_plan, repeating_steps
from streamscope.engines.plan import (
    CallHost,
    Estimate,
    Issue,
    Plan,
    Step,
    StreamOf,
    Synchronize,
    lanes_in_use,
    main_lanes,
    main_stream,
    own_branches,
)
from streamscope.engines.scheduling import best_plan, may_open_scopes, on_streams
from streamscope.program.launch import HostCall
from streamscope.program.operation import Operation, Program


def synchronous(program: Program, estimate: Estimate, streams: int | None = 1) -> Plan:
    """Issue every launch on one stream and synchronise it before the next. No events: nothing is ever pending, and nothing overlaps."""
    steps: list[Step] = []
    waits = [Synchronize(lane) for lane in range(program.gpus)]
    for operation in program.operations:
        if isinstance(operation.work, HostCall):
            steps.append(CallHost(operation.work))
        elif len(waits) > 1 and operation.collective is not None:
            steps += [Issue(launch, launch.gpu) for launch in operation.work]
            steps += [waits[launch.gpu] for launch in operation.work]
        else:
            for launch in operation.work:
                steps += (Issue(launch, launch.gpu), waits[launch.gpu])
    names, gpus = main_lanes(program.gpus)
    return Plan(SYNC.name, program, names, tuple(steps), 0, gpus=gpus)


def _asynchronous(program: Program, estimate: Estimate, streams: int | None = 1) -> Plan:
    """Issue launches in program order: kernels on one stream, copies on one for each direction.

    Streams wait for each other by events, and the host only before its own functions.
    """
    return _issued(ASYNC.name, program, program.operations, main_stream, communication=False)


def dual(program: Program, estimate: Estimate, streams: int | None = None) -> Plan:
    """Spread launches over at most so many compute streams, ordered by events; with one, this is the asynchronous engine.

    The further streams are for operators that ask for one and for independent operations. Collectives have a stream on each GPU.
    """

    def make(operations: Sequence[Operation], stream_of: StreamOf) -> Plan:
        return _issued(DUAL.name, program, operations, stream_of, communication=True, scopes=streams != 1 and may_open_scopes(program))

    return best_plan(program, estimate, streams, on_streams, make)


def graph(program: Program, estimate: Estimate, streams: int | None = 1) -> Plan:
    """Capture each segment with one compute stream; copies are branches of their own. Captured code keeps the order that it has."""
    if not program.captured:
        return captured_plan(GRAPH_ENGINE.name, program, program.operations, main_stream)
    branches = own_branches(program.operations, program.captured)
    return captured_plan(GRAPH_ENGINE.name, program, program.operations, branches, edges=program.captured)


def _issued(
    engine: str, program: Program, operations: Sequence[Operation], stream_of: StreamOf, *, communication: bool, scopes: bool = False
) -> Plan:
    lanes = lanes_in_use(operations, stream_of, communication=communication)
    steps, events = repeating_steps(operations, len(lanes.names), lanes.of, runs_apart=bool(program.captured))
    return Plan(engine, program, lanes.names, tuple(steps), events, scopes=scopes, gpus=lanes.gpus)


SYNC = EngineEntry(name="sync", line="wait after every operation; nothing overlaps", plan=synchronous, traits=frozenset({WAITING}), rank=0)
ASYNC = EngineEntry(name="async", line="one compute stream; copies on streams of their own", plan=_asynchronous, rank=1)
DUAL = EngineEntry(name="dual", line="several compute streams", plan=dual, traits=frozenset({STREAM}), rank=2)
GRAPH_ENGINE = EngineEntry(name="graph", line="a CUDA graph of one compute stream", plan=graph, traits=frozenset({GRAPH}), rank=3)
