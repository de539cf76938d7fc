"""Traits of engines, in words, and the pairs of engines that are compared."""

from __future__ import annotations

from collections.abc import Mapping

from streamscope.analysis.metrics import EngineMetrics
from streamscope.words import counted

WAITING, STREAM, GRAPH = "waiting after every operation", "a second stream", "a CUDA graph"
TRAITS: Mapping[str, frozenset[str]] = {
    "async": frozenset(),
    "dual": frozenset({STREAM}),
    "sync": frozenset({WAITING}),
    "graph": frozenset({GRAPH}),
    "graph-dual": frozenset({STREAM, GRAPH}),
}
"""Traits that engines add to ``async``, each in words.

The first that was run is the reference: its metrics classify the program. An engine is compared with the last that was run and to which it
adds a single thing, or else with the reference. One that is not listed is told by its name.
"""


def reference_engine(metrics: Mapping[str, EngineMetrics]) -> str:
    """Return the reference engine: async, or the closest to it among those that ran."""
    return next((engine for engine in TRAITS if engine in metrics), next(iter(metrics)))


def base_of(engine: str, metrics: Mapping[str, EngineMetrics], reference: str) -> str:
    """Return the engine that one is compared with."""
    ours = TRAITS.get(engine, frozenset())
    near = [other for other, theirs in TRAITS.items() if other in metrics and theirs < ours and len(ours - theirs) == 1]
    return near[-1] if near else reference


def what_differs(engine: str, base: str, streams: Mapping[str, str] | None = None) -> str:
    """Return the traits of an engine over a base, and those it replaces: ``"a second stream inside a graph"``.

    Where an engine put kernels on more than two streams, their number is told: ``"4 streams inside a graph"``.
    """
    if engine not in TRAITS or base not in TRAITS:
        return engine
    (ours, more), (theirs, others) = ((TRAITS[one], (streams or {}).get(one, STREAM)) for one in (engine, base))
    added = ours - theirs | ({STREAM} if STREAM in ours & theirs and more != others else frozenset())
    if added == {STREAM}:
        words = f"{more} inside a graph" if GRAPH in ours else f"{more} alone" if not theirs else more
    else:
        words = " with ".join(more if trait == STREAM else trait for trait in sorted(added))
    left = " and ".join(others if trait == STREAM else trait for trait in sorted(theirs - ours))
    return f"{words} in place of {left}" if left else words


def streams_words(plan: Mapping[str, int]) -> str:
    """Describe a plan's streams: ``"a second stream"``, or ``"4 streams"`` if they are more.

    A graph that CUDA places by itself is on no streams: of it, ``"9 branches"`` are told.
    """
    streams = plan.get("streams", 0)
    return counted(streams, *(("branch", "branches") if "branches" in plan else ("stream",))) if streams > 2 else STREAM
