"""Engines: how a program's operations are issued."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from inspect import signature
from typing import Protocol

from streamscope.arguments import shown
from streamscope.engines import graph_dual, planners
from streamscope.engines.plan import Estimate, Plan
from streamscope.errors import EngineError
from streamscope.program.operation import Program


class Planner(Protocol):
    """Makes the plan of one engine."""

    def __call__(self, program: Program, estimate: Estimate, streams: int | None = ...) -> Plan:
        """Plan a program; ``streams`` is how many compute streams it may use; with None, engines that have several ask `most_streams`."""


PLANNERS: Mapping[str, Planner] = {
    "sync": planners.synchronous,
    "async": planners.asynchronous,
    "dual": planners.dual,
    "graph": planners.graph,
    "graph-dual": graph_dual.plan,
}
"""The engines by name, from the simplest on: by how much there is to understand, and by the memory that they hold at least."""


def takes_streams(engine: str) -> bool:
    """Tell whether an engine's plan depends on how many streams are allowed."""
    return signature(PLANNERS[engine]).parameters["streams"].default is None


def engine_names(names: Sequence[str] | str | None = None) -> tuple[str, ...]:
    """Check names of engines (a sequence, or one string with commas) and return them, each once; None is all of them."""
    if names is None:
        return tuple(PLANNERS)
    hint = f"choose from {', '.join(PLANNERS)}"
    chosen = listed_names(names)
    for name in chosen:
        if name not in PLANNERS:
            raise EngineError(f"unknown engine {name!r}", hint=hint)
    if not chosen:
        raise EngineError("no engine was named", hint=hint)
    return chosen


def listed_names(names: Iterable[str] | str) -> tuple[str, ...]:
    """Return the names in a sequence, or in one string with commas, each once, whether they are engines or not."""
    hint = f"choose from {', '.join(PLANNERS)}"
    if not isinstance(names, Iterable):
        raise EngineError(f"{shown(names)} names no engine", hint=hint)
    listed = names.split(",") if isinstance(names, str) else list(names)
    for name in listed:
        if not isinstance(name, str):
            raise EngineError(f"{shown(name)} is not the name of an engine", hint=hint)
    return tuple(dict.fromkeys(name.strip() for name in listed if name.strip()))
