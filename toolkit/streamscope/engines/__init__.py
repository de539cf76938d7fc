"""Engines: how a program's operations are issued."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from streamscope.engines import asynchronous, dual, graph, graph_dual, sync
from streamscope.engines.lanes import Estimate
from streamscope.engines.plan import Plan
from streamscope.errors import EngineError
from streamscope.program.operation import Program


class Planner(Protocol):
    """Makes the plan of one engine."""

    def __call__(self, program: Program, estimate: Estimate, streams: int = ...) -> Plan:
        """Plan a program; ``streams`` is how many compute streams an engine with auxiliary ones may use."""


PLANNERS: Mapping[str, Planner] = {
    "sync": sync.plan,
    "async": asynchronous.plan,
    "dual": dual.plan,
    "graph": graph.plan,
    "graph-dual": graph_dual.plan,
}
"""The engines by name, in the order in which they are shown."""


def engine_names(names: Sequence[str] | str | None = None) -> tuple[str, ...]:
    """Check names of engines (a sequence, or one string with commas) and return them, each once; None is all of them.

    Raises
    ------
    EngineError
        A name is unknown, or none is given.
    """
    if names is None:
        return tuple(PLANNERS)
    listed = names.split(",") if isinstance(names, str) else list(names)
    chosen = tuple(dict.fromkeys(name.strip() for name in listed if name.strip()))
    for name in chosen:
        if name not in PLANNERS:
            raise EngineError(f"unknown engine {name!r}", hint=f"choose from {', '.join(PLANNERS)}")
    if not chosen:
        raise EngineError("no engine was named", hint=f"choose from {', '.join(PLANNERS)}")
    return chosen
