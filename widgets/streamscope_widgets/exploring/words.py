"""What the explorer says: a question, its answer from the metrics, how two runs differ, and what was wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamscope.analysis.metrics import EngineMetrics
from streamscope.analysis.statistics import Ranking
from streamscope.analysis.traits import streams_words
from streamscope.analysis.verdict import GPU_BOUND_FROM, Change, change, shares_of
from streamscope.comparing.comparison import Comparison
from streamscope.errors import StreamscopeError, described
from streamscope.order.graph import DependencyGraph
from streamscope.program.operation import Program
from streamscope.words import capitalised, listed, percent

OF_STREAMS = (("dual", "async"), ("graph-dual", "graph"))
"""Engines that differ in their second stream alone: launched one by one, and inside a graph."""


@dataclass(frozen=True)
class Answer:
    """A question and the sentence that answers it; all empty while there is no answer."""

    question: str = ""
    sentence: str = ""
    because: str = ""
    """What explains it; may be empty."""

    @property
    def parts(self) -> tuple[tuple[str, str], ...]:
        """What it says, in the order of reading, each with its part."""
        return (("question", self.question), ("answer", self.sentence), ("because", self.because))


def answer(comparison: Comparison, streams: int | None, *, in_a_row: bool = False) -> Answer:
    """Say whether further streams pay or, where the engines that would tell did not run, which engine is the fastest.

    ``streams``: how many were allowed; programs may use fewer, and captured code more.
    ``in_a_row``: whether each operation of the program needs the one before.
    """
    metrics, found = comparison.metrics, comparison.assessment
    changes = [change(metrics[engine], metrics[base], engine, base) for engine, base in OF_STREAMS if {engine, base} <= metrics.keys()]
    if len(metrics) == 1:
        return Answer(f"What limits it under {next(iter(metrics))}?", " ".join(filter(None, (found.warning, found.bound))))
    if not changes:
        return Answer("Which engine suits it?", " ".join(filter(None, (found.warning, found.fastest))), found.bound)
    if streams == 1:
        return Answer("Does one stream pay here?", "With one stream there is nothing to overlap.", found.fastest)
    more = {one.engine: streams_words(comparison[one.engine].trace.info.plan) for one in changes}
    said = streams_words({"streams": streams}) if streams else more[changes[0].engine] if len({*more.values()}) == 1 else "further streams"
    question = f"{_with_verb(said, 'Do', 'Does')} {said} pay here?"
    sentence = streams_sentence(changes, more)
    paid = [found for found in changes if found.ranking is Ranking.FASTER]
    reason = f"{_overlap(metrics[paid[-1].engine])} {found.fastest}" if paid else _why_not(metrics, changes, in_a_row=in_a_row)
    return Answer(question, " ".join(filter(None, (found.warning, sentence))), reason)


def streams_sentence(changes: list[Change], more: Mapping[str, str]) -> str:
    """Say what further streams do: with kernels launched one by one, and inside a graph; ``more`` says how many each engine has."""
    alone = next((one for one in changes if one.base == "async"), None)
    inside = next((one for one in changes if one.base == "graph"), None)
    if alone is None or inside is None:
        only = alone or inside
        assert only is not None
        where = " inside a CUDA graph" if only is inside else ""
        return f"{_yes(only)}: {_made(more[only.engine], only, where)}."
    as_many = more[alone.engine] == more[inside.engine]
    both = f"inside a CUDA graph {_words(inside)}" if as_many else _made(more[inside.engine], inside, " inside a CUDA graph")
    if alone.ranking is Ranking.FASTER and inside.ranking is Ranking.FASTER:
        return f"Yes: {_made(more[alone.engine], alone)}, and {both}."
    if inside.ranking is Ranking.FASTER:
        return f"Only inside a CUDA graph: there {_made(more[inside.engine], inside)}. Launched one by one, it is {_words(alone)}."
    if alone.ranking is Ranking.FASTER:
        return f"Only without a CUDA graph: there {_made(more[alone.engine], alone)}. Inside a graph, it is {_words(inside)}."
    if not alone.told and not inside.told:
        said = more[alone.engine] if as_many else "further streams"
        return f"No: {said} {_with_verb(said, 'make', 'makes')} it neither faster nor slower, with a CUDA graph or without."
    return f"No: {_made(more[alone.engine], alone)}, and {both}."


def _made(more: str, found: Change, where: str = "") -> str:
    return f"{more}{where} {_with_verb(more, 'make', 'makes')} it {_words(found)}"


def _with_verb(more: str, many: str, one: str) -> str:
    return one if more.startswith("a ") else many


def _yes(found: Change) -> str:
    return "Yes" if found.ranking is Ranking.FASTER else "No"


def _words(found: Change) -> str:
    return found.words if found.told else f"neither faster nor slower ({found.words})"


def _overlap(metrics: EngineMetrics) -> str:
    return f"Under {metrics.engine}, two or more kernels run at once for {percent(metrics.overlap)} of the time that the GPU is busy."


def _why_not(metrics: Mapping[str, EngineMetrics], changes: list[Change], *, in_a_row: bool) -> str:
    """Explain why nothing is gained, as far as the metrics do: the first of several reasons that holds."""
    if in_a_row:
        return "Each operation needs the result of the one before, so there is nothing to run beside it."
    last = metrics[changes[-1].base]
    shares = shares_of(last)
    if shares.busy >= GPU_BOUND_FROM:
        return f"Under {last.engine} the GPU is busy {percent(min(shares.busy, 1.0))} of the time already."
    if shares.launching >= max(shares.busy, shares.copies, shares.host):
        return f"Under {last.engine} the GPU waits for launches {percent(shares.launching)} of the time."
    if shares.copies >= shares.busy:
        return f"Under {last.engine} copies alone take {percent(shares.copies)} of the time."
    return f"Under {last.engine} the GPU is busy {percent(shares.busy)} of the time."


def between(first: Comparison, second: Comparison, names: tuple[str, str], settings: tuple[Mapping[str, str], Mapping[str, str]]) -> Answer:
    """Say how a second run differs from a first one, under the engines that both have."""
    one, other = settings
    both = [engine for engine in first if engine in second]
    told: dict[str, list[str]] = {}
    for engine in both:
        found = change(second[engine].metrics, first[engine].metrics, engine, engine)
        told.setdefault(_words(found), []).append(engine)
    sentence = "; ".join(f"{words} under {listed(engines)}" for words, engines in told.items())
    changed = [f"{name} {other[name]} instead of {one[name]}" for name in one.keys() & other.keys() if one[name] != other[name]]
    changed.sort()
    said = f"{capitalised(names[1])} has {listed(changed)}." if changed else "Both have the same settings."
    if first.device.simulated != second.device.simulated:
        said += f" {capitalised(names[0] if first.device.simulated else names[1])} is simulated, the other one measured."
    missing = "" if both else "They have no engine in common."
    return Answer(f"What differs between {names[0]} and {names[1]}?", f"{capitalised(names[1])} is {sentence}." if both else missing, said)


def runs_in_a_row(program: Program) -> bool:
    """Tell whether each operation of a program needs the one before."""
    before = DependencyGraph(program.operations, [1.0] * len(program.operations)).before
    return all(position - 1 in earlier for position, earlier in enumerate(before) if position)


def mistake(error: BaseException) -> str:
    """Return what an error says: our sentence as it is, another one's with its class."""
    return str(error) if isinstance(error, StreamscopeError) else described(error)
