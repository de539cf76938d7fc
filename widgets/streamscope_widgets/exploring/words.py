"""Sentences of the explorer: a question, its answer from the metrics, the difference of two runs, errors."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamscope.analysis.metrics import EngineMetrics
from streamscope.analysis.overlap import concurrency
from streamscope.analysis.statistics import FEWEST_FOR_INTERVAL, Ranking
from streamscope.analysis.traits import streams_words, verb
from streamscope.analysis.verdict import GPU_BOUND_FROM, WORTH_SAYING, Change, change, shares_of
from streamscope.comparing.comparison import Comparison, Run
from streamscope.engine_entry import GRAPH, STREAM, engine_with, traits_of
from streamscope.errors import StreamscopeError, described
from streamscope.order.graph import DependencyGraph
from streamscope.program.operation import Program
from streamscope.trace.spans import SpanKind
from streamscope.words import capitalised, listed, percent, time_text

if TYPE_CHECKING:
    from streamscope_widgets.exploring.runs import Link

PLAIN, CAPTURED = engine_with(), engine_with(GRAPH)
OF_STREAMS = ((engine_with(STREAM), PLAIN), (engine_with(GRAPH, STREAM), CAPTURED))
"""Engines that differ in their second stream alone: launched one by one, and inside a graph."""
ALIKE_ON_ONE_STREAM = tuple((base, engine) for engine, base in OF_STREAMS)
FEW = f"{capitalised(Ranking.UNKNOWN.value)}: run {FEWEST_FOR_INTERVAL} or more."


@dataclass(frozen=True)
class Answer:
    """A question and the sentence that answers it; all empty while there is no answer."""

    question: str = ""
    sentence: str = ""
    because: str = ""
    """Explanation; may be empty."""

    @property
    def parts(self) -> tuple[tuple[str, str], ...]:
        """Its sentences in the order of reading, each with its part."""
        return (("question", self.question), ("answer", self.sentence), ("because", self.because))


def answer(comparison: Comparison, streams: int | None, *, in_a_row: bool = False, links: str = "") -> Answer:
    """Say whether further streams pay or, where the engines that would tell did not run, which engine is the fastest.

    Of several GPUs that exchange data, say whether that hides behind kernels.

    ``streams``: how many were allowed; programs may use fewer, and captured code more.
    ``in_a_row``: whether each operation of the program needs the one before.
    ``links``: effect of the links between GPUs, in a sentence.
    """
    metrics, found = comparison.metrics, comparison.assessment
    right = metrics.keys() - metrics.wrong
    if any(one.communication_us for one in metrics.values()):
        return _on_communication(comparison, links)
    pairs = [(engine, base) for engine, base in OF_STREAMS if {engine, base} <= right]
    if len(metrics) == 1:
        return Answer(f"What limits it under {next(iter(metrics))}?", _joined(found.warning, found.bound))
    if not pairs:
        return Answer("Which engine suits it?", _joined(found.warning, found.fastest), _joined(_gain(found.gain), found.bound))
    if streams == 1:
        return _on_one_stream(comparison)
    changes = [change(metrics[engine], metrics[base], engine, base) for engine, base in pairs]
    more = {one.engine: _spread_over(comparison[one.engine].trace.info.plan, streams) for one in changes}
    question = _question(more.values(), streams)
    if any(one.ranking is Ranking.UNKNOWN for one in changes):
        return Answer(question, _joined(found.warning, FEW), found.bound)
    sentence = streams_sentence(changes, more, many=(streams or 0) > 2)
    reason, graph = _reason(comparison, changes, more, in_a_row=in_a_row), _gain_of_a_graph(metrics, right)
    told = f"A CUDA graph makes it {_words(graph)}." if graph is not None else "" if found.gain.engine in more else _gain(found.gain)
    return Answer(question, _joined(found.warning, sentence), _joined(reason, told, found.fastest))


def _on_communication(comparison: Comparison, links: str) -> Answer:
    """Say how much of the communication is hidden under the fastest engine, why, and what the links do."""
    metrics, found = comparison.metrics, comparison.assessment
    engine = found.best[0]
    right = metrics.keys() - metrics.wrong
    graph = _gain_of_a_graph(metrics, right)
    told = f"A CUDA graph makes it {_words(graph)}." if graph is not None and engine != CAPTURED else ""
    return Answer(
        "Does communication hide here?",
        _joined(found.warning, found.hidden),
        _joined(_exposed_by(comparison, engine), links, told, found.fastest),
    )


def communication_us(metrics: EngineMetrics) -> tuple[float, float, float]:
    """Return the time of communication on the GPU of the metrics, and the hidden and the exposed part of it, in µs."""
    return metrics.communication_us or 0.0, metrics.hidden_us or 0.0, metrics.exposed_us or 0.0


def _exposed_by(comparison: Comparison, engine: str) -> str:
    """Say why communication is exposed: under engines without a stream for it, or since no kernel is ready; empty where it is hidden."""
    whole_us, hidden_us, exposed_us = communication_us(comparison[engine].metrics)
    if not comparison[engine].trace.info.plan.get("communication"):
        return ""
    others = [
        name for name, run in comparison.items() if not (run.trace.info.plan.get("communication") or communication_us(run.metrics)[1])
    ]
    if others and hidden_us >= WORTH_SAYING * whole_us:
        have = "have" if len(others) > 1 else "has"
        return f"{capitalised(listed(others))} {have} no stream for communication, so all of it is exposed there."
    if GRAPH in (traits_of(engine) or ()) and exposed_us > WORTH_SAYING * whole_us:
        return "While it is exposed, no kernel is ready to run."
    return ""


def links_words(link: Link, engine: str, metrics: EngineMetrics, other: EngineMetrics) -> str:
    """Say what links do to an engine.

    ``other``: its metrics with the measured links or, where ``link`` is these, with links that are twice as fast.
    """
    exposed = time_text(communication_us(other)[2] * 1e3)
    if not link.changed:
        return f"With links twice as fast it would be {_words(change(other, metrics, engine, engine))}, and {exposed} would be exposed."
    slower = change(metrics, other, engine, engine)
    words = f"it is {_words(slower)} than with NVLink" if slower.told else "it is as fast as with NVLink"
    return f"With {link.name}, {words}, where {exposed} is exposed."


def _joined(*sentences: str) -> str:
    return " ".join(filter(None, sentences))


def _question(spread: Iterable[str], streams: int | None) -> str:
    used = {words for words in spread if words}
    said = streams_words({"streams": streams}) if streams else used.pop() if len(used) == 1 else "further streams" if used else STREAM
    return f"{verb(said, 'Does', 'Do')} {said} pay here?"


def _spread_over(plan: Mapping[str, int], allowed: int | None) -> str:
    """Say which streams a plan uses: ``"4 streams"`` or, of more that it may, ``"the 4 that it uses"``; empty where it uses one."""
    used, communication = plan.get("streams", 0), plan.get("communication", 0)
    if used < 2 and not communication:
        return ""
    return f"the {used} that it uses" if allowed and used < allowed and "gpus" not in plan else streams_words(plan)


def _on_one_stream(comparison: Comparison) -> Answer:
    """Name the gain that is left where kernels may use one stream: a graph. There dual equals async, and graph-dual graph."""
    metrics, found = comparison.metrics, comparison.assessment
    right = metrics.keys() - metrics.wrong
    launched, inside = ([one for one in alike if one in right] for alike in ALIKE_ON_ONE_STREAM)
    copies = ", and copies have streams of their own" if any(one.copy_overlap is not None for one in metrics.values()) else ""
    because = _joined(f"On one stream, kernels run one after the other{copies}.", found.fastest)
    sentence = f"Nothing: {listed(launched or inside)} do the same then."
    if launched and inside:
        graph = change(metrics[inside[0]], metrics[launched[0]], inside[0], launched[0])
        gain = f"a CUDA graph makes it {_words(graph)}."
        sentence = {Ranking.UNKNOWN: FEW, Ranking.FASTER: capitalised(gain)}.get(graph.ranking, f"Nothing: {gain}")
    return Answer("What pays on one stream?", _joined(found.warning, sentence), because)


def _gain(found: Change) -> str:
    """Say how much faster an engine is than another; empty where that cannot be told."""
    return f"Under {found.engine} it is {found.words} than under {found.base}." if found.told else ""


def _gain_of_a_graph(metrics: Mapping[str, EngineMetrics], right: Collection[str]) -> Change | None:
    """Compare a graph with the plain engine; None where one of them did not run, or has no right results."""
    return change(metrics[CAPTURED], metrics[PLAIN], CAPTURED, PLAIN) if {PLAIN, CAPTURED} <= {*right} else None


def streams_sentence(changes: Sequence[Change], more: Mapping[str, str], *, many: bool = False) -> str:
    """Describe the effect of further streams: with kernels launched one by one, and inside a graph.

    ``more``: which streams each engine uses, in words; empty where it uses one.
    ``many``: whether the question is about more than a second stream.
    """
    if not any(more.values()):
        return f"No: it uses one {'of them' if many else 'stream'}."
    alone = next((one for one in changes if one.base == PLAIN), None)
    inside = next((one for one in changes if one.base == CAPTURED), None)
    if alone is None or inside is None:
        only = alone or inside
        assert only is not None
        where = " inside a CUDA graph" if only is inside else ""
        return f"{'Yes' if only.ranking is Ranking.FASTER else 'No'}: {_made(more[only.engine], only, where)}."
    if inside.ranking is Ranking.FASTER and alone.ranking is not Ranking.FASTER:
        return f"Only inside a CUDA graph: there {_made(more[inside.engine], inside)}. Launched one by one, {_is(alone, more, inside)}."
    if alone.ranking is Ranking.FASTER and inside.ranking is not Ranking.FASTER:
        return f"Only without a CUDA graph: there {_made(more[alone.engine], alone)}. Inside a graph, {_is(inside, more, alone)}."
    as_many = more[alone.engine] == more[inside.engine]
    if as_many and not alone.told and not inside.told:
        return f"No: {_made(more[alone.engine])}, with a CUDA graph or without."
    if not more[alone.engine]:
        return f"No: launched one by one, it uses one stream, and {_made(more[inside.engine], inside, ' inside a CUDA graph')}."
    within = (
        f"inside a CUDA graph {_words(inside)}"
        if as_many
        else _made(more[inside.engine], inside, " inside a CUDA graph")
        if more[inside.engine]
        else "inside a CUDA graph it uses one stream"
    )
    return f"{'Yes' if alone.ranking is Ranking.FASTER else 'No'}: {_made(more[alone.engine], alone)}, and {within}."


def _made(more: str, found: Change | None = None, where: str = "") -> str:
    return f"{more}{where} {verb(more, 'makes', 'make')} it {'neither faster nor slower' if found is None else _words(found)}"


def _is(found: Change, more: Mapping[str, str], other: Change) -> str:
    """Say how fast it is with the streams of one engine, which are named where the other one has others."""
    ours, theirs = more[found.engine], more[other.engine]
    return f"it is {_words(found)}{f' with {ours}' if ours != theirs else ''}" if ours else "it uses one stream"


def _words(found: Change) -> str:
    return found.words if found.told or found.ranking is Ranking.UNKNOWN else f"neither faster nor slower ({found.words})"


def _reason(comparison: Comparison, changes: Sequence[Change], more: Mapping[str, str], *, in_a_row: bool) -> str:
    """Explain the effect of streams by the metrics: of an engine that gains by them, and of one that does not."""
    used = [one for one in changes if more[one.engine]]
    if not used:
        # Asked last: an operation may have branches of its own, as the backward pass of a convolution has.
        if all(one.kernel_count == 1 for one in comparison.metrics.values()):
            return "There is one kernel, so no other can run beside it."
        in_turn = "Each operation needs the result of the one before, so there is nothing to run beside it."
        return in_turn if in_a_row else "No kernel could begin earlier on a further stream."
    paid = [one for one in used if one.ranking is Ranking.FASTER][-1:]
    rest = [one for one in used if one.ranking is not Ranking.FASTER][-1:]
    return _joined(*(_gained(comparison, one) for one in paid), *(_not_gained(comparison.metrics, one) for one in rest))


def _gained(comparison: Comparison, found: Change) -> str:
    """Name work that runs side by side, and does so less under the base engine; empty where none does."""
    ours, base = (_side_by_side(comparison[engine]) for engine in (found.engine, found.base))
    parts = []
    for what, (whole, share) in ours.items():
        before = base[what][1] if what in base else 0.0
        if share - before >= WORTH_SAYING:
            told = f" (under {found.base} for {percent(before)})" if before >= WORTH_SAYING else ""
            parts.append(f"{what} for {percent(share)} of {whole}{told}")
    return f"Under {found.engine}, {listed(parts)}." if parts else ""


def _side_by_side(run: Run) -> dict[str, tuple[str, float]]:
    """Return each kind of overlap, with its denominator and its share."""
    metrics = run.metrics
    copying_ns = concurrency(run.trace.spans, [SpanKind.COPY]).time_at_ns()[1:]
    shares = {
        "two or more kernels run at once": ("the time that the GPU is busy", metrics.overlap),
        "copies run beside kernels": ("their time", metrics.copy_overlap),
        "two or more copies run at once": ("the time that something is copied", copying_ns[1:].sum() / max(copying_ns.sum(), 1)),
        "host functions run beside the device": ("their time", metrics.host_overlap),
    }
    return {what: (whole, float(share)) for what, (whole, share) in shares.items() if share is not None}


def _not_gained(metrics: Mapping[str, EngineMetrics], found: Change) -> str:
    """Explain a small gain: where the time goes under the base engine."""
    shares = shares_of(metrics[found.base])
    busy = f"Under {found.base} {shares.gpu_words} is busy {percent(min(shares.busy, 1.0))} of the time"
    if shares.busy >= GPU_BOUND_FROM:
        return f"{busy} already."
    others = {
        "launching and waiting take {}, which further streams do not shorten": shares.launching,
        "copies alone take {}": shares.copies,
        "host functions alone take {}": shares.host,
    }
    words, share = max(others.items(), key=lambda other: other[1])
    return f"{busy}, and {words.format(percent(share))}."


def between(first: Comparison, second: Comparison, names: tuple[str, str], settings: tuple[Mapping[str, str], Mapping[str, str]]) -> Answer:
    """Say how a second run differs from a first one, under the engines that both have."""
    one, other = settings
    question = f"What differs between {names[0]} and {names[1]}?"
    simulated = f"{capitalised(names[0] if first.device.simulated else names[1])} is simulated, the other one measured."
    devices = simulated if first.device.simulated != second.device.simulated else ""
    if one["program"] != other["program"]:
        programs = f"{capitalised(names[1])} is of {other['program']} and {names[0]} of {one['program']}: different programs."
        return Answer(question, _joined(programs, devices), "Their times are not compared.")
    changed = sorted(f"{name} {other[name]} instead of {one[name]}" for name in one.keys() & other.keys() if one[name] != other[name])
    differ = f"{capitalised(names[1])} has {listed(changed)}." if changed else "Both have the same settings."
    told: dict[str, list[str]] = {}
    both = [engine for engine in first if engine in second]
    wrong = [engine for engine in both if not (first[engine].correct and second[engine].correct)]
    for engine in (engine for engine in both if engine not in wrong):
        told.setdefault(_words(change(second[engine].metrics, first[engine].metrics, engine, engine)), []).append(engine)
    unknown = told.pop(Ranking.UNKNOWN.value, [])
    times = (
        f"{capitalised(names[1])} is {'; '.join(f'{words} under {listed(engines)}' for words, engines in told.items())}." if told else ""
    )
    few = f"{capitalised(Ranking.UNKNOWN.value)} which is faster under {listed(unknown)}." if unknown else ""
    left_out = f"Results are wrong under {listed(wrong)}, so its times are not compared." if wrong else ""
    return Answer(question, _joined(differ, devices), _joined(times, few, left_out) or "They have no engine in common.")


def runs_in_a_row(program: Program) -> bool:
    """Tell whether each operation of a program needs the one before."""
    before = DependencyGraph(program.operations, [1.0] * len(program.operations)).before
    return all(position - 1 in earlier for position, earlier in enumerate(before) if position)


def mistake(error: BaseException) -> str:
    """Return an error's message: ours as it is, another's with its class."""
    return str(error) if isinstance(error, StreamscopeError) else described(error)
