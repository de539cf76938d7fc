"""The registry of engines: one entry each. Planners, verdicts, options, the explorer and predictions go by an entry's properties."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from streamscope.doors import Door
from streamscope.words import a_kind

WAITING, STREAM, GRAPH = "waiting after every operation", "a second stream", "a CUDA graph"
"""Traits that several engines share."""


@dataclass(frozen=True, kw_only=True)
class EngineEntry:
    """One engine: an entry of the door ``streamscope.engines``.

    Attributes
    ----------
    name : str
        Name in ``engines=...``, tables and files.
    line : str
        Description in one line, for tooltips and the completion of names.
    plan : callable
        ``plan(program, estimate, streams=None) -> Plan``: the steps that issue a traced program. ``estimate(launch)`` is a guess of a
        launch's duration in ns; ``streams`` is the number of compute streams that the user allows, None where nobody said.
        The plan has the entry's name as its engine, and keeps every pair of operations in order that share a variable which one
        of them writes. Of captured code and of other packages' engines, `Prepared` checks that before anything runs.
    traits : frozenset of str
        Differences from the plain asynchronous engine, each in words that fit "... makes it 2× faster": `WAITING`, `STREAM`, `GRAPH`, or
        others of its own. Verdicts compare engines that differ in one trait.
    rank : int
        Place in the order of simplicity, and of the least memory held; of engines that are as fast, the one with the lowest is chosen.

    Examples
    --------
    >>> from streamscope.engine_entry import ENGINES
    >>> [name for name, entry in ENGINES.items() if entry.captures]
    ['graph', 'graph-dual']
    """

    name: str
    line: str
    plan: Callable[..., Any]
    traits: frozenset[str] = frozenset()
    rank: int = 100

    def __post_init__(self) -> None:
        if not isinstance(self.traits, frozenset):
            raise TypeError(f"traits of engine {self.name!r} are no frozenset of texts")
        if type(self.rank) is not int:
            raise TypeError(f"rank of engine {self.name!r} is {a_kind(self.rank)}, not a whole number")

    @property
    def takes_streams(self) -> bool:
        """Whether the plan depends on the number of streams that are allowed."""
        return STREAM in self.traits

    @property
    def captures(self) -> bool:
        """Whether operations are captured into graphs."""
        return GRAPH in self.traits

    @property
    def waits(self) -> bool:
        """Whether the host waits after every operation, so that nothing overlaps."""
        return WAITING in self.traits


ENGINES: Door[EngineEntry] = Door(
    "engine",
    {
        "sync": "streamscope.engines.planners:SYNC",
        "async": "streamscope.engines.planners:ASYNC",
        "dual": "streamscope.engines.planners:DUAL",
        "graph": "streamscope.engines.planners:GRAPH_ENGINE",
        "graph-dual": "streamscope.engines.graph_dual:GRAPH_DUAL",
    },
    EngineEntry,
)
"""All engines by name: ours from the simplest on, then those of other packages."""
DEFAULT_ENGINE = "async"
"""Name of the plain engine, which the others are compared with, and which runs where nobody names one."""


def traits_of(engine: str) -> frozenset[str] | None:
    """Return the traits of an engine; None where no entry has that name, as of a trace of code that is not ours."""
    return ENGINES[engine].traits if engine in ENGINES else None


def engine_with(*traits: str) -> str:
    """Return the name of the first engine that has these traits and no others; empty where there is none."""
    return next((name for name, entry in ENGINES.items() if entry.traits == frozenset(traits)), "")


def simplest_first(engines: Iterable[str]) -> tuple[str, ...]:
    """Return engines in the order in which they are preferred where they are equally fast: by rank."""
    order = list(ENGINES)
    return tuple(sorted(engines, key=lambda name: (ENGINES[name].rank, order.index(name))))
