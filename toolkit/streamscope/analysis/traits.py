"""Traits of engines, in words, and the pairs of engines that are compared."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from streamscope.analysis.metrics import EngineMetrics
from streamscope.engine_entry import ENGINES, GRAPH, STREAM, WAITING, traits_of
from streamscope.words import counted

_NEAREST = (STREAM, WAITING, GRAPH)


def _distance(engine: str) -> tuple[int, list[int]]:
    """Sort key of engines: the number of traits that one has beside the plain engine, then which they are."""
    traits = traits_of(engine) or frozenset()
    return len(traits), sorted(_NEAREST.index(one) if one in _NEAREST else len(_NEAREST) for one in traits)


def reference_engine(engines: Collection[str]) -> str:
    """Return the engine that the others are compared with: the plain one, or the nearest to it among those that ran.

    Its metrics classify the program. Engines without an entry count only where there are no others.
    """
    known = [engine for engine in engines if engine in ENGINES]
    return min(known, key=_distance) if known else next(iter(engines))


def base_of(engine: str, metrics: Mapping[str, EngineMetrics], reference: str) -> str:
    """Return the engine that one is compared with: the last to which it adds a single trait, or else the reference."""
    ours = traits_of(engine) or frozenset()
    near = [other for other in metrics if (theirs := traits_of(other)) is not None and theirs < ours and len(ours - theirs) == 1]
    return max(near, key=_distance) if near else reference


def what_differs(engine: str, base: str, streams: Mapping[str, str] | None = None) -> str:
    """Return the traits of an engine over a base, and those it replaces: ``"a second stream inside a graph"``.

    Where an engine put kernels on more than two streams, their number is told: ``"4 streams inside a graph"``.
    """
    ours, theirs = traits_of(engine), traits_of(base)
    if ours is None or theirs is None:
        return engine
    more, others = ((streams or {}).get(one, STREAM) for one in (engine, base))
    added = ours - theirs | ({STREAM} if STREAM in ours & theirs and more != others else frozenset())
    if ours == theirs and not added:
        return engine
    if added == {STREAM}:
        without = "alone" if " on each GPU" not in more else "without a graph"  # Else "alone" would be said of the GPU.
        words = f"{more} inside a graph" if GRAPH in ours else f"{more} {without}" if not theirs else more
    else:
        words = " with ".join(more if trait == STREAM else trait for trait in sorted(added))
    left = " and ".join(others if trait == STREAM else trait for trait in sorted(theirs - ours))
    return f"{words} in place of {left}" if left else words


def streams_words(plan: Mapping[str, int]) -> str:
    """Describe a plan's streams: ``"a second stream"``, or ``"4 streams"`` if they are more.

    A graph that CUDA places by itself is on no streams: of it, ``"9 branches"`` are told. Of several GPUs, collectives may have a stream of
    their own: ``"a second stream and one for communication on each GPU"``.
    """
    streams, communication = plan.get("streams", 0), plan.get("communication", 0)
    several = counted(streams, *(("branch", "branches") if "branches" in plan else ("stream",))) if streams > 2 else STREAM
    if not communication:
        return f"{several} on each GPU" if plan.get("gpus", 1) > 1 else several
    return f"{f'{several} and one' if streams > 1 else 'a stream'} for communication on each GPU"


def verb(words: str, one: str, many: str) -> str:
    """Return the form of a verb that follows the words for streams, or for another trait."""
    return many if words[0].isdigit() or words.startswith(("the ", "further ", f"{STREAM} and ")) else one
