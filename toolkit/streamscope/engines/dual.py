"""The multi-stream engine: the asynchronous one with auxiliary streams, for operators that ask for one and for independent operations."""

from __future__ import annotations

from collections.abc import Sequence

from streamscope.engines.issuing import repeating_steps
from streamscope.engines.plan import Estimate, Plan, StreamOf, lanes_in_use
from streamscope.engines.scheduling import best_plan, may_open_scopes, on_streams
from streamscope.program.operation import Operation, Program


def plan(program: Program, estimate: Estimate, streams: int | None = None) -> Plan:
    """Spread launches over at most so many compute streams, ordered by events; with one, this is the asynchronous engine.

    Raises
    ------
    EngineError
        ``streams`` is out of range.
    """

    def make(operations: Sequence[Operation], stream_of: StreamOf) -> Plan:
        lanes = lanes_in_use(operations, stream_of)
        steps, events = repeating_steps(operations, len(lanes.names), lanes.of, runs_apart=bool(program.captured))
        return Plan("dual", program, lanes.names, tuple(steps), events, scopes=streams != 1 and may_open_scopes(program))

    return best_plan(program, estimate, streams, on_streams, make)
