"""The verdict on metrics, as data, and the one place that puts it into words."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from streamscope.analysis.metrics import EngineMetrics
from streamscope.analysis.statistics import FEWEST_FOR_INTERVAL, Ranking, compare_times
from streamscope.analysis.traits import base_of, reference_engine, verb, what_differs
from streamscope.engine_entry import GRAPH, traits_of
from streamscope.errors import TraceError
from streamscope.trace.info import DeviceInfo
from streamscope.words import capitalised, counted, listed, percent, time_text

_Bottleneck = Literal["communication-bound", "GPU-bound", "copy-bound", "host-bound", "launch-bound", "mixed"]

GPU_BOUND_FROM = 0.75
"""Share of the makespan with a kernel running from which a program is GPU-bound."""
_BOUND_FROM = 0.5
"""Share of the makespan from which communication, copies or host functions alone, or launching and waiting, name the bottleneck."""
_AS_RATIO_FROM = 1.495
"""From this factor on, a difference is told as a factor, below it in per cent: 1.5, rounded, is "1.5×" and never "50 %"."""
FUNCTION, NUMPY, PLAIN_CALL, NOTHING, FORECAST = "the plain function", "NumPy", "a plain call", "nothing", "nothing: a forecast"
"""References of results: the user's function, called with NumPy arrays; the traced program in NumPy; a plain call of
captured code. Code that was captured elsewhere computes nothing here, and a forecast computes nothing at all."""
_NO_PLAIN_CALL = "None of these times is that of a plain call: every engine, also async, launches the captured kernels without Python."
"""Warning on captured code's times."""
WRONG_RESULTS = "wrong results"
"""Stands in the place of a comparison: the time of a wrong result says nothing."""
WORTH_SAYING = 0.01
"""Shares of the makespan below this are not told."""


@dataclass(frozen=True)
class Shares:
    """Where the makespan of an engine goes, as shares of it.

    Attributes
    ----------
    busy : float
        With a kernel running; more than 1 where recording made the kernels longer.
    copies, host, launching : float
        With copies alone, with host functions alone, and the rest: launching and waiting.
    kernels : int
    missing : bool
        Whether records were lost, so that ``busy`` is a lower bound.
    busy_error : float or None
        How far ``busy`` may be off; None where that is not said.
    exposed : float
        With communication between GPUs alone. Collectives are part of ``busy``, copies between GPUs of ``copies``.
    gpu : int or None
        Which of several GPUs it is; None where there is one.
    """

    busy: float
    copies: float
    host: float
    launching: float
    kernels: int
    missing: bool
    busy_error: float | None = None
    exposed: float = 0.0
    gpu: int | None = None

    @property
    def gpu_words(self) -> str:
        """Name the GPU."""
        return "the GPU" if self.gpu is None else f"GPU {self.gpu}"

    @property
    def bottleneck(self) -> _Bottleneck:
        """Bottleneck of the engine, by the thresholds that `assess` states."""
        if self.exposed >= _BOUND_FROM:
            return "communication-bound"
        if self.busy >= GPU_BOUND_FROM:
            return "GPU-bound"
        others: tuple[tuple[_Bottleneck, float], ...]
        others = (("copy-bound", self.copies), ("host-bound", self.host), ("launch-bound", self.launching))
        return next((name for name, share in others if share >= _BOUND_FROM), "mixed")


@dataclass(frozen=True)
class Change:
    """How an engine's makespan compares with another's.

    Attributes
    ----------
    engine, base : str
    ranking : Ranking
        Certainty: `Ranking.FASTER` and `Ranking.SLOWER` only where it can be told.
    ratio : float
        The longer makespan over the shorter one.
    """

    engine: str
    base: str
    ranking: Ranking
    ratio: float

    @property
    def told(self) -> bool:
        """Whether one is faster than the other."""
        return self.ranking in (Ranking.FASTER, Ranking.SLOWER)

    @property
    def words(self) -> str:
        """`difference` of the two."""
        if not self.told:
            return "same within 1 %" if self.ranking is Ranking.SAME else self.ranking.value
        amount = f"{self.ratio:.1f}×" if self.ratio >= _AS_RATIO_FROM else f"{(self.ratio - 1) * 100:.0f} %"
        return f"{amount} {self.ranking.value}"


@dataclass(frozen=True, repr=False)
class Verdict:
    """A judgement as data; `text` says it in words.

    Attributes
    ----------
    device : DeviceInfo
        If it is simulated, so are all times.
    reference : str
        The engine that the bottleneck is of, and that the others are compared with.
    shares : Shares
        Where the reference's makespan goes.
    changes : tuple of Change
        Change of each other engine against the reference; of one with several traits, such as ``graph-dual``, against an engine that
        differs from it in one. Engines with wrong results are left out here and in ``best``.
    best : tuple of str
        The fastest engine, with those that cannot be told apart from it.
    gain : Change
        The fastest engine against the reference: its size and certainty.
    evidence : tuple of str
        The numbers that it rests on, a line each.
    checked : bool or None
        Whether the results could be compared with others; None where nobody said.
    not_checked : tuple of str
        Outputs that could not be compared, where others could.
    wrong : tuple of str
        Engines whose results differ by more than is allowed from those of ``checked_against``.
    checked_against : str
    why_not_function : str
        Why the results were compared with the traced program, and not with the function itself.
    beside : dict of str to EngineMetrics
        Copies beside kernels, host functions beside the device, communication beside kernels: of the reference, and of the fastest engine
        if that is another.
    streams : dict of str to str
        `streams_words` of each engine, as far as its plan is known.
    """

    device: DeviceInfo
    reference: str
    shares: Shares
    changes: tuple[Change, ...]
    best: tuple[str, ...]
    gain: Change
    evidence: tuple[str, ...]
    checked: bool | None = None
    not_checked: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    checked_against: str = ""
    why_not_function: str = ""
    beside: Mapping[str, EngineMetrics] = field(default_factory=dict)
    streams: Mapping[str, str] = field(default_factory=dict)

    @property
    def bottleneck(self) -> _Bottleneck:
        """Bottleneck of the reference: "communication-bound", "GPU-bound", "copy-bound", "host-bound", "launch-bound" or "mixed"."""
        return self.shares.bottleneck

    @property
    def text(self) -> str:
        """The whole in plain words."""
        parts = (
            self.warning,
            self.proviso,
            self.bound,
            self.overlapped,
            self.hides,
            self.communicated,
            self.awaited,
            self.changed,
            self.fastest,
            self.replayed,
            self.unchecked,
        )
        return " ".join(filter(None, parts))

    def __repr__(self) -> str:
        return self.text

    @property
    def warning(self) -> str:
        """Which results are wrong; empty where none is known to be."""
        if not self.wrong:
            return ""
        told = f"they differ from those of {self.checked_against} by more than is allowed"
        everywhere = self.checked_against == FUNCTION and self.reference in self.wrong  # It is a right one where there is any.
        traced = ". Under every engine, so the traced program does something else than the function" if everywhere else ""
        return f"RESULTS ARE WRONG under {', '.join(self.wrong)}: {told}{traced}."

    @property
    def proviso(self) -> str:
        """That times are simulated; empty where they were measured."""
        return f"Simulated times ({self.device.name}), not measured." if self.device.simulated else ""

    @property
    def bound(self) -> str:
        """Bottleneck of the reference, and the shares that show it."""
        shares, engine = self.shares, self.reference
        if not shares.kernels and not shares.copies and not shares.missing:
            return f"No kernels: nothing runs on the GPU under {engine}."
        at_least = "at least " if shares.missing else ""
        parts = [f"under {engine} {shares.gpu_words} is busy {at_least}{percent(min(shares.busy, 1.0), shares.busy_error)} of the time"]
        if self.bottleneck == "communication-bound":
            parts.append(f"communication alone takes {percent(shares.exposed)}")
        elif self.bottleneck not in ("GPU-bound", "launch-bound"):
            others = (
                ("copies alone take", shares.copies),
                ("host functions alone take", shares.host),
                ("launching and waiting take", shares.launching),
            )
            parts += [f"{words} {percent(share)}" for words, share in others if share >= WORTH_SAYING]
        return f"{capitalised(self.bottleneck)}: {listed(parts)}."

    @property
    def overlapped(self) -> str:
        """How much of the copies and of the host functions runs beside other work; empty where there is neither."""
        kinds = (
            ("copies run beside kernels", [(engine, one.copy_overlap) for engine, one in self.beside.items()]),
            ("host functions run beside the device", [(engine, one.host_overlap) for engine, one in self.beside.items()]),
        )
        clauses = []
        for words, shares in kinds:
            told = [(percent(share), engine) for engine, share in shares if share is not None]
            if told:
                (share, engine), *others = told
                clauses.append(" and ".join([f"{words} for {share} of their time under {engine}", *map(" under ".join, others)]))
        return f"{capitalised('; '.join(clauses))}." if clauses else ""

    @property
    def communicated(self) -> str:
        """How long communication between GPUs takes, with its waiting and transfer; empty where there is none."""
        told = [
            f"{time_text(one.communication_us * 1e3)} under {engine}{_parts(one)}"
            for engine, one in self.beside.items()
            if one.communication_us
        ]
        one_rank = " It is that of one rank, as if all others came in time." if self.checked_against == NOTHING else ""
        return f"Communication{self._where} takes {listed(told)}.{one_rank}" if told else ""

    @property
    def _where(self) -> str:
        return "" if self.shares.gpu is None else f" on GPU {self.shares.gpu}"

    @property
    def hides(self) -> str:
        """Whether communication hides behind kernels under the fastest engine; empty where there is none."""
        return f"Does communication{self._where} hide? {self.hidden}" if self.hidden else ""

    @property
    def hidden(self) -> str:
        """The answer of `hides` alone."""
        if not any(one.communication_us for one in self.beside.values()):
            return ""
        *_, (engine, fastest) = self.beside.items()
        whole_us = fastest.communication_us or 0.0
        hidden, whole = (fastest.hidden_us or 0.0) / whole_us if whole_us else 0.0, time_text(whole_us * 1e3)
        if hidden < WORTH_SAYING:
            return f"No: under {engine}, all {whole} of it is exposed."
        if hidden > 1 - WORTH_SAYING:
            return f"Yes: under {engine}, all {whole} of it runs beside kernels that compute."
        exposed = time_text((fastest.exposed_us or 0.0) * 1e3)
        return f"In part: under {engine}, {percent(hidden)} of {whole} is hidden and {exposed} is exposed."

    @property
    def awaited(self) -> str:
        """Which GPU the others wait for in collectives, and why; empty where that is not worth saying."""
        clauses = [f"under {engine} {one.awaited}" for engine, one in self.beside.items() if one.awaited]
        return f"{capitalised('; '.join(clauses))}." if clauses else ""

    @property
    def replayed(self) -> str:
        """That no engine is a plain call, of captured code; empty of other code."""
        return _NO_PLAIN_CALL if self.checked_against in (NOTHING, PLAIN_CALL) else ""

    @property
    def changed(self) -> str:
        """One sentence: the change of each other engine; empty where there is none."""
        clauses, unknown = [], []
        kinds = [traits_of(engine) for engine in (self.reference, *(change.engine for change in self.changes))]
        for change in self.changes:
            alone = kinds.count(traits_of(change.engine)) == 1  # Else the same words would be said of several engines.
            what = what_differs(change.engine, change.base, self.streams) if alone else change.engine
            if change.ranking is Ranking.UNKNOWN:
                unknown.append(what)
                continue
            whom = "it" if change.base == self.reference else "the graph" if traits_of(change.base) == frozenset({GRAPH}) else change.base
            words = change.words if change.told else f"neither faster nor slower ({change.words})"
            clauses.append(f"{what} {verb(what, 'makes', 'make')} {whom} {words}")
        if unknown:
            clauses.append(f"{Ranking.UNKNOWN.value} the effect of {listed(unknown)}")
        return f"{capitalised('; '.join(clauses))}." if clauses else ""

    @property
    def fastest(self) -> str:
        """Which engines are the fastest; empty where only one ran."""
        if not self.changes:
            return ""
        if len(self.best) == 1:
            return f"Fastest: {self.best[0]}."
        if self.gain.ranking is Ranking.UNKNOWN:
            return f"{capitalised(Ranking.UNKNOWN.value)} which engine is the fastest: run {FEWEST_FOR_INTERVAL} or more."
        simulated = self.device.simulated
        if len(self.best) > len(self.changes):
            return "No engine is the fastest: all are the same within 1 %." if simulated else "No engine is measurably the fastest."
        return f"Fastest: {listed(self.best)}, which {'are the same within 1 %' if simulated else 'cannot be told apart'}."

    @property
    def unchecked(self) -> str:
        """Results that could not be checked, and the reference of the others; empty where unknown."""
        if self.checked_against == NOTHING:
            return "Results were not checked: the code was captured elsewhere, and computes nothing here."
        if self.checked_against == FORECAST:
            return "This is a forecast: no results were computed."
        if self.checked is False and self.checked_against == PLAIN_CALL:
            return "Results were not checked: the function returns none."
        if self.checked is False:
            return "Results were not checked: an operation has no NumPy reference, or is stateful."
        told = [] if self.wrong else [self._checked]
        if self.not_checked:
            depend = "depend" if len(self.not_checked) > 1 else "depends"
            told.append(
                f"Not checked: {listed(self.not_checked)}, which {depend} on an operation that has no NumPy reference, or is stateful."
            )
        return " ".join(filter(None, told))

    @property
    def _checked(self) -> str:
        """Reference of the results; empty where unknown, as in comparisons of older versions."""
        if self.checked and self.checked_against == FUNCTION:
            return "Results are those of the plain function."
        if self.checked and self.checked_against == NUMPY and self.why_not_function:
            return f"Results are those of the traced program in NumPy (the function itself {self.why_not_function})."
        return ""


def _parts(one: EngineMetrics) -> str:
    """Say how much of the communication is waiting and transfer, and how long copies of all GPUs take, where that is longer."""
    parts = [("transfer", one.collective_transfer_us), ("waiting", one.collective_wait_us)]
    told = [f"{time_text(time_us * 1e3)} {what}" for what, time_us in parts if time_us is not None]
    if one.peer_copy_us is not None and one.peer_copy_us > (1 + WORTH_SAYING) * (one.communication_us or 0.0):
        told.append(f"copies between all GPUs {time_text(one.peer_copy_us * 1e3)}")
    return f" ({', '.join(told)})" if told else ""


def verdict(metrics: Mapping[str, EngineMetrics], device: DeviceInfo) -> str:
    """Return the text of `assess`.

    Examples
    --------
    >>> function, inputs = ss.workload("branches").build()
    >>> runs = ss.compare(function, *inputs, engines=["async", "graph"], device="simulated", progress=False)
    >>> print(ss.analysis.verdict(runs.metrics, runs.device))
    Simulated times (simulated NVIDIA H200), not measured. ...A CUDA graph makes it ... faster. Fastest: graph.
    """
    return assess(metrics, device).text


def assess(
    metrics: Mapping[str, EngineMetrics], device: DeviceInfo, streams: Mapping[str, str] | None = None, wrong: Sequence[str] = ()
) -> Verdict:
    """Judge a comparison of any number of engines.

    The bottleneck is named after the shares of the reference engine's makespan: *communication-bound* where communication between GPUs
    alone takes at least 50 % of it; else *GPU-bound* where a kernel runs for at least 75 % of it; else *copy-bound*, *host-bound* or
    *launch-bound* where copies alone, host functions alone, or the rest (launching and waiting) take at least 50 %; else *mixed*.
    Engines whose intervals overlap, or that have fewer than six measured repeats, are not ranked. A simulated device repeats itself: there,
    one run is enough, and those that are the same within 1 % are not ranked.

    Parameters
    ----------
    metrics : dict of str to EngineMetrics
    device : DeviceInfo
    streams : dict of str to str, optional
        Further streams of each engine, in the words of `streams_words`; ``"a second stream"`` by default.
    wrong : sequence of str, optional
        Engines whose results are wrong. They are neither ranked nor compared; where all are wrong, none is.

    Raises
    ------
    TraceError
        There are no metrics.

    Examples
    --------
    >>> function, inputs = ss.workload("branches").build()
    >>> runs = ss.compare(function, *inputs, engines=["async", "graph"], device="simulated", progress=False)
    >>> found = ss.analysis.assess(runs.metrics, runs.device)
    >>> found.bottleneck, found.best, found.gain.ranking
    ('launch-bound', ('graph',), <Ranking.FASTER: 'faster'>)
    """
    if not metrics:
        raise TraceError("there are no engines to judge", hint="run at least one")
    right = {engine: each for engine, each in metrics.items() if engine not in wrong}
    reference = reference_of(metrics, wrong)
    right = right or {reference: metrics[reference]}
    best, bases = fastest(right), {engine: base_of(engine, right, reference) for engine in right}
    return Verdict(
        device=device,
        reference=reference,
        shares=shares_of(metrics[reference]),
        changes=tuple(change(metrics[engine], metrics[base], engine, base) for engine, base in bases.items() if engine != reference),
        best=best,
        gain=change(metrics[best[0]], metrics[reference], best[0], reference),
        evidence=_evidence(metrics, reference, device),
        beside={name: metrics[name] for name in (reference, best[0])},
        wrong=tuple(wrong),
        streams=streams or {},
    )


def shares_of(metrics: EngineMetrics) -> Shares:
    """Return where an engine's makespan goes."""
    whole = metrics.makespan_us
    parts = metrics.copy_us, metrics.host_function_us, metrics.idle_us - metrics.host_function_us
    copies, host, launching = (part / whole if whole else 0.0 for part in parts)
    return Shares(
        metrics.busy_fraction,
        copies,
        host,
        launching,
        metrics.kernel_count,
        bool(metrics.missing_records),
        metrics.busy_fraction_error,
        exposed=(metrics.exposed_us or 0.0) / whole if whole else 0.0,
        gpu=metrics.gpu,
    )


def fastest(metrics: Mapping[str, EngineMetrics]) -> tuple[str, ...]:
    """Return the engine with the shortest median makespan, first, and those that cannot be told apart from it."""
    ranked = sorted(metrics, key=lambda engine: metrics[engine].makespan_us)
    return tuple(engine for engine in ranked if engine == ranked[0] or rank(metrics[engine], metrics[ranked[0]]) is not Ranking.SLOWER)


def rank(metrics: EngineMetrics, base: EngineMetrics) -> Ranking:
    """Tell whether an engine is faster or slower than a base, or whether that cannot be told."""
    if any(not one.simulated and one.repeats < FEWEST_FOR_INTERVAL for one in (metrics, base)):
        return Ranking.UNKNOWN
    return compare_times(*_interval_us(metrics), *_interval_us(base))


def _interval_us(metrics: EngineMetrics) -> tuple[float, float, float]:
    if metrics.simulated:
        # It repeats itself, so the median is the time; a first run that differs from the rest is not noise either.
        return (metrics.makespan_us,) * 3
    return metrics.makespan_us, metrics.makespan_low_us, metrics.makespan_high_us


def difference(metrics: EngineMetrics, base: EngineMetrics) -> str:
    """Say how an engine's makespan compares with a base's, in a few words.

    Formula: ratio = longer / shorter makespan; from 1.5 (rounded) on told as ``"3.4× faster"``, below as ``"12 % slower"`` (ratio - 1, in
    per cent).
    Told only where both were measured six times or more (else ``"too few repeats to tell"``), the two intervals do not overlap (else
    ``"within the noise"``) and the medians differ by 1 % or more (else ``"same within 1 %"``). Times that come from a cost model have no
    noise: there one run is enough, and the medians alone count.

    Examples
    --------
    >>> function, inputs = ss.workload("branches").build()
    >>> runs = ss.compare(function, *inputs, engines=["async", "graph"], device="simulated", progress=False)
    >>> ss.analysis.difference(runs.metrics["graph"], runs.metrics["async"])
    '2.7× faster'
    """
    return change(metrics, base, metrics.engine, base.engine).words


def against(metrics: Mapping[str, EngineMetrics], engine: str, base: str, wrong: Collection[str] = ()) -> str:
    """Say how an engine compares with a base, as `difference` does, or that its results are among the ``wrong``."""
    return WRONG_RESULTS if engine in wrong else "" if engine == base else difference(metrics[engine], metrics[base])


def reference_of(metrics: Mapping[str, EngineMetrics], wrong: Collection[str] = ()) -> str:
    """Return the engine that others are compared with: one whose results are right, where there is one."""
    return reference_engine({engine: each for engine, each in metrics.items() if engine not in wrong} or metrics)


def change(metrics: EngineMetrics, base: EngineMetrics, engine: str, base_engine: str) -> Change:
    """Compare an engine's makespan with a base's."""
    slow, quick = max(metrics.makespan_us, base.makespan_us), min(metrics.makespan_us, base.makespan_us)
    return Change(engine, base_engine, rank(metrics, base), slow / quick if quick else float("inf"))


def _evidence(metrics: Mapping[str, EngineMetrics], reference: str, device: DeviceInfo) -> tuple[str, ...]:
    simulated = device.simulated
    few = f"have overlapping intervals, or fewer than {FEWEST_FOR_INTERVAL} repeats,"
    word, unranked = ("simulated", "are the same within 1 %") if simulated else ("measured", few)
    lines = [f"Times {word} on {device.name}; the bottleneck is that of {reference}; engines that {unranked} are not ranked."]
    for engine, m in metrics.items():
        makespan, low, high = (time_text(1e3 * time_us) for time_us in (m.makespan_us, m.makespan_low_us, m.makespan_high_us))
        bare = [text.removesuffix(makespan.lstrip("0123456789.,")) for text in (low, high)]
        interval = " to ".join((low, high) if " " in "".join(bare) else bare)
        varied = f"{interval}, {m.makespan_basis}, " if low != high or not simulated else ""
        net = "" if m.net_overlap_us is None or simulated else f" ({time_text(m.net_overlap_us * 1e3)} gained, less what neighbours cost)"
        share, overlap = percent(m.busy_fraction, m.busy_fraction_error), percent(m.overlap, m.overlap_error)
        busy = f"GPU busy {share}, overlap {overlap} of GPU busy{net}, {counted(m.kernel_count, 'kernel')}"
        beside = (("copies beside kernels", m.copy_overlap), ("host functions beside the device", m.host_overlap))
        shares = " and ".join(f"{kind} {percent(share)}" for kind, share in beside if share is not None)
        ran = f"{makespan} ({varied}{counted(m.repeats, 'repeat')})"
        lines.append(f"{engine}: {', '.join(filter(None, (ran, busy, _communication(m), shares)))}.")
        lines.extend(f"{engine}: {flag}." for flag in m.flags)
    return tuple(lines)


def _communication(metrics: EngineMetrics) -> str:
    """Say how much communication the GPU hides behind kernels that compute."""
    if metrics.exposed_us is None or metrics.hidden_us is None:
        return ""
    alone, hidden = (time_text(1e3 * time_us) for time_us in (metrics.exposed_us, metrics.hidden_us))
    return f"communication alone {alone} and hidden {hidden}{'' if metrics.gpu is None else f' on GPU {metrics.gpu}'}"
