"""The multi-stream graph engine: the auxiliary streams inside the capture, so that forks and joins cost the host nothing."""

from __future__ import annotations

from collections.abc import Sequence

from streamscope.engines.issuing import captured_plan
from streamscope.engines.plan import Estimate, Plan, StreamOf
from streamscope.engines.scheduling import best_plan, in_a_graph, may_open_scopes
from streamscope.program.operation import Operation, Program


def plan(program: Program, estimate: Estimate, streams: int = 2) -> Plan:
    """Capture each segment with at most so many compute streams; with one, this is the graph engine.

    Raises
    ------
    EngineError
        ``streams`` is out of range.
    """

    def make(operations: Sequence[Operation], stream_of: StreamOf) -> Plan:
        return captured_plan("graph-dual", program, operations, stream_of, scopes=streams > 1 and may_open_scopes(program))

    return best_plan(program, estimate, streams, in_a_graph, make)
