"""Any two traces compared: the difference of their spans, explained part by part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from streamscope.analysis.diff_rows import HEADINGS, DiffRow, diff_rows, signed
from streamscope.analysis.gpus import busiest
from streamscope.analysis.matching import SAME_PROGRAM_FROM, Joined, join
from streamscope.analysis.metrics import EngineMetrics
from streamscope.analysis.overlap import kernel_time_ns, span_ns
from streamscope.analysis.statistics import FEWEST_FOR_INTERVAL, SAME_WITHIN, Ranking
from streamscope.analysis.summary import Summary, summary
from streamscope.analysis.table import in_markdown, markdown_rows
from streamscope.analysis.verdict import Change, change
from streamscope.analysis.work import Work, work_of
from streamscope.arguments import shown
from streamscope.arrays import IntArray
from streamscope.errors import TraceError, printable
from streamscope.results import views
from streamscope.results.result import Result
from streamscope.results.widgets import Timeline
from streamscope.trace.spans import SpanKind
from streamscope.trace.trace import Trace
from streamscope.words import aligned, capitalised, counted, format_us, listed, percent, shortened, signed_time_text, time_text, times_text

if TYPE_CHECKING:
    import pandas as pd

_WORTH_TELLING = 0.1
"""A part that explains less than this share of the whole change is not in the sentence."""
_UNNAMED = ("the first", "the second")
"""Names of two traces with one name."""
_ONE_RUN_EACH = "parts and rows are of one run each"
_FEW_RUNS = f"one run each, and rows of fewer than {FEWEST_FOR_INTERVAL} runs: {Ranking.UNKNOWN.value} a difference"
_NOT_IN_TURNS = "two comparisons do not take turns: a drift between them is in the difference of their repeats, too"
_MOST_IN_TEXT = 12
"""So many rows stand in the text and in Markdown; all are in `TraceDiff.rows`."""


@runtime_checkable
class Measured(Protocol):
    """A recorded run with the makespans of its repeats, as `ss.compare` has of each engine."""

    @property
    def trace(self) -> Trace:
        """One recorded run."""

    @property
    def metrics(self) -> EngineMetrics:
        """Its metrics, with the makespan of the repeats."""


@dataclass(frozen=True)
class Contribution:
    """One part of a trace's span. The parts of `TraceDiff.contributions` add up to the span, and their differences to its difference.

    Attributes
    ----------
    label : str
    first_us, second_us : float
        In each trace; negative for parts that shorten the span.
    """

    label: str
    first_us: float
    second_us: float

    @property
    def difference_us(self) -> float:
        """Second less first, in µs."""
        return self.second_us - self.first_us

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {"name": self.label, "first_us": self.first_us, "second_us": self.second_us, "difference_us": self.difference_us}


@dataclass(frozen=True)
class CounterMeans:
    """Means of the values of the counters of one name, GPU and unit in both traces.

    Attributes
    ----------
    label : str
    means : tuple of float or None
        None where a trace has no such counter.
    counts : tuple of int
        How many values they are of.
    """

    label: str
    means: tuple[float | None, float | None]
    counts: tuple[int, int]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        (first, second), (first_count, second_count) = self.means, self.counts
        return {"name": self.label, "first_mean": first, "second_mean": second, "first_count": first_count, "second_count": second_count}

    def cells(self) -> tuple[str, ...]:
        """Return it as text, in the order of `COUNTER_HEADS`."""
        first, second = self.means
        change = "–" if first is None or second is None else f"{second - first:+.6g}".replace("-", "−")
        return self.label, *("–" if one is None else f"{one:.6g}".replace("-", "−") for one in self.means), change


COUNTER_HEADS = ("counter", "mean of the first", "mean of the second", "difference")


@dataclass(frozen=True, repr=False)
class TraceDiff(Result):
    """Result of `diff`. Differences are the second trace less the first: negative is faster.

    Attributes
    ----------
    first, second : Trace
    summaries : tuple of Summary
        Of both.
    joined : Joined
        Which span of one is which of the other.
    span_us : tuple of float
        Of both; of several GPUs, that of all together.
    contributions : tuple of Contribution
        Kernel time, less time side by side, copies alone and idle time by cause: together the span. Of several GPUs, those of one:
        without communication that compute hides, and with the time before and after, in which others worked.
    communication : Contribution, optional
        Of several GPUs, the communication of that one, hidden or not.
    rows : tuple of DiffRow
        By how much they change: the largest first.
    metrics : tuple of EngineMetrics, optional
        Of two runs of `ss.compare`: of one comparison, their repeats tell whether one is faster.
    """

    view = "diff"

    first: Trace
    second: Trace
    summaries: tuple[Summary, Summary]
    joined: Joined
    span_us: tuple[float, float]
    contributions: tuple[Contribution, ...]
    communication: Contribution | None
    rows: tuple[DiffRow, ...]
    metrics: tuple[EngineMetrics, EngineMetrics] | None = None

    @property
    def names(self) -> tuple[str, str]:
        """Names of the two traces in sentences: engine or program, whichever differs."""
        first, second = self.first.info, self.second.info
        if first.engine != second.engine:
            return first.engine, second.engine
        return (first.program, second.program) if first.program != second.program else _UNNAMED

    @property
    def title(self) -> str:
        """Which two traces are compared."""
        gpus = [f" · GPU {gpu}" for gpu in self._gpus] or [self._of_several, self._of_several]
        parts = [f"{each.info.program} · {each.info.engine}{gpu}" for each, gpu in zip(self.summaries, gpus, strict=True)]
        return f"{parts[0]} → {parts[1]}"

    @property
    def _of_several(self) -> str:
        """Which GPU the parts and rows are of, in traces of several; else empty."""
        return f" · GPU {self.summaries[0].gpu}" if self.communication else ""

    @property
    def pairs(self) -> IntArray:
        """Which rows of both tables of spans stand for each other: int64 array, shape (n, 2)."""
        return self.joined.row[self.joined.pairs]

    @property
    def in_both(self) -> float:
        """Which share of both traces' kernel time is that of kernels which the other trace has, too; 1 where no kernel ran."""
        joined, pairs = self.joined, self.joined.pairs
        sides = (self.first.spans, joined.row[: joined.cut]), (self.second.spans, joined.row[joined.cut :])
        taken_ns = np.concatenate([np.where(spans.kind[rows] == SpanKind.KERNEL, spans.duration_ns[rows], 0) for spans, rows in sides])
        if joined.by == "name":
            pairs = pairs[joined.called[pairs[:, 0]] == joined.called[pairs[:, 1]]]  # What was renamed may be something else.
        whole_ns = int(taken_ns.sum())
        return float(taken_ns[pairs].sum() / whole_ns) if whole_ns else 1.0

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings for the reader."""
        kinds = {each.info.device.simulated or each.info.recorder == "prediction" for each in self.summaries}
        devices = dict.fromkeys(each.info.device.name for each in self.summaries)
        both, gpus = self.in_both, self._gpus
        alike = [text for text in self.summaries[0].warnings if text in self.summaries[1].warnings]
        apart = f"{percent(both)} of the kernel time is in both: these look like different programs"
        return (
            *([apart] if both < SAME_PROGRAM_FROM else []),
            *([f"GPU {gpus[0]} is compared with GPU {gpus[1]}: ss.read(path, gpu=...) chooses"] if gpus else []),
            *([_ONE_OF_ALL.format(self.summaries[0].gpu)] if self.communication and not gpus else []),
            *(["one trace was measured, the other was not"] if len(kinds) > 1 else []),
            *([f"two devices: {listed(list(devices))}"] if len(devices) > 1 else []),
            *([] if self._exact else [_ONE_RUN_EACH if self.metrics else _FEW_RUNS]),
            *([] if self._in_turns else [_NOT_IN_TURNS]),
            *(f"both: {text}" for text in alike),
            *(
                f"{name}: {text}"
                for name, each in zip(self.names, self.summaries, strict=True)
                for text in each.warnings
                if text not in alike
            ),
        )

    @property
    def _gpus(self) -> tuple[int, ...]:
        """The GPUs of both traces, where they have different numbers; else empty."""
        first, second = (each.info.device.gpu for each in self.summaries)
        return () if first is None or second is None or first == second else (first, second)

    @property
    def _exact(self) -> bool:
        """Whether times have no noise, so that one run of each tells."""
        return all(each.info.device.exact for each in self.summaries)

    @property
    def _in_turns(self) -> bool:
        """Whether no drift lies between the repeats: one comparison has one program, and an engine once."""
        return self._exact or self.metrics is None or (self.joined.by == "operation" and self.first.info.engine != self.second.info.engine)

    @cached_property
    def answer(self) -> str:
        """How the two compare, and why. One measured run of each tells no difference: without repeats, it compares these runs only."""
        (first_us, second_us), (first, second) = self.span_us, self.names
        if not first_us or not second_us:
            return _begun(f"{first if second_us else second} has no spans, so there is nothing to compare.", self.names)
        profiled = [name for name, each in zip(self.names, self.summaries, strict=True) if each.info.profiled]
        watched = ", both with a profiler on" if len(profiled) > 1 else f", {profiled[0]} with a profiler on" if profiled else ""
        spans = f"{times_text(first_us * 1e3, ' → ', second_us * 1e3)}{watched}"
        same = abs(second_us - first_us) <= SAME_WITHIN * max(first_us, second_us)
        if self._exact:
            ranking = Ranking.FASTER if second_us < first_us else Ranking.SLOWER
            words = Change(second, first, ranking, max(first_us, second_us) / min(first_us, second_us)).words
            compared = f"{second} " + (f"takes as long as {first}, within 1 %" if same else f"is {words} than {first}") + f" ({spans})"
        else:
            took = f"{self._by_repeats}{second} took {time_text(second_us * 1e3)}, and {first} {time_text(first_us * 1e3)}{watched}"
            once = "" if self.metrics else f". One run each: {Ranking.UNKNOWN.value} a difference"
            if not same and self.change and self.change.told and (self.change.ranking is Ranking.SLOWER) != (second_us > first_us):
                return self._lacking + _begun(f"{took}: the other way round, so they do not explain it.", self.names)
            compared = f"{took}{once}" + ("" if same else f". In {second}")
        compared = f"{compared}." if same else f"{compared}: {self._made_of(second_us - first_us)}.{self._most_changed()}"
        return self._lacking + _begun(compared, self.names)

    @property
    def change(self) -> Change | None:
        """Change of the makespans, where the repeats of two runs tell it."""
        return change(self.metrics[1], self.metrics[0], self.names[1], self.names[0]) if self.metrics else None

    @property
    def _by_repeats(self) -> str:
        if self.metrics is None or self.change is None:
            return ""
        first, second = self.names
        words = f"is {self.change.words} than {first}" if self.change.told else f"against {first}: {self.change.words}"
        makespans = times_text(self.metrics[0].makespan_us * 1e3, " → ", self.metrics[1].makespan_us * 1e3)
        turns = "" if self._in_turns else ", not in turns"
        return f"{second} {words} (makespans {makespans}{turns}). In the recorded runs, "

    @property
    def _lacking(self) -> str:
        """Say which trace lacks records: its smaller numbers may be missing, not saved."""
        lacking = [name for name, each in zip(self.names, self.summaries, strict=True) if "kernel_count" in each.at_least]
        if not lacking:
            return ""
        if len(lacking) > 1:
            return "Both lack records, so their metrics are lower bounds, and what one has less of may be missing. "
        told = f"{lacking[0]} lacks records, so its metrics are lower bounds, and what it has less of may be missing. "
        return _begun(told, self.names)

    def _made_of(self, change_us: float) -> str:
        parts = sorted(self.contributions, key=lambda part: -abs(part.difference_us))
        parts = [part for part in parts if abs(part.difference_us) >= _WORTH_TELLING * abs(change_us)]
        along = [_words(part) for part in parts if part.difference_us * change_us > 0]
        against = [_words(part) for part in parts if part.difference_us * change_us < 0]
        on = f"on GPU {self.summaries[0].gpu}, " if self.communication and not self._gpus else ""
        return on + listed(along) + (f"; against that, {listed(against)}" if against else "")

    def _most_changed(self) -> str:
        top = next((row for row in self.rows if row.kind == "kernel"), None)
        change_us = sum(row.difference_us for row in self.rows if row.kind == "kernel")
        if top is None or abs(top.difference_us) < _WORTH_TELLING * abs(self.span_us[1] - self.span_us[0]):
            return ""
        change, most = signed_time_text(change_us * 1e3), signed_time_text(top.difference_us * 1e3)
        return f" Of kernel time ({change} in all), {shortened(top.called, 60)} changed most: {most}."

    @cached_property
    def counters(self) -> tuple[CounterMeans, ...]:
        """Means of the counters of both traces; those of one label side by side."""
        found: dict[str, list[list[float]]] = {}
        for side, trace in enumerate((self.first, self.second)):
            for number, series in enumerate(trace.counters.described):
                values = found.setdefault(replace(series, process="").label, [[], []])[side]
                values += trace.counters.value[trace.counters.rows_of(number)].tolist()
        return tuple(
            CounterMeans(label, (_mean(first), _mean(second)), (len(first), len(second)))
            for label, (first, second) in found.items() if first or second
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values: times in µs, differences the second less the first. Means of counters are there where one has some.

        Examples
        --------
        >>> function, inputs = ss.workload("branches").build()
        >>> runs = ss.compare(function, *inputs, engines=["async", "graph"], device="simulated", progress=False)
        >>> found = ss.diff(runs["async"].trace, runs["graph"].trace).to_dict()
        >>> list(found)
        ['answer', 'first', 'second', 'joined_by', 'difference_us', 'contributions', 'rows', 'warnings']
        """
        traces = [
            {"program": each.info.program, "engine": each.info.engine, "device": each.info.device.name, "span_us": span_us,
             "gpu_busy_us": each.gpu_busy_us, "idle_us": each.idle.total_ns / 1000, "overlap": each.overlap}
            for each, span_us in zip(self.summaries, self.span_us, strict=True)
        ]  # fmt: skip
        return {
            "answer": self.answer,
            "first": traces[0],
            "second": traces[1],
            "joined_by": self.joined.by,
            "difference_us": self.span_us[1] - self.span_us[0],
            "contributions": [part.to_dict() for part in self.contributions],
            **({"gpu": self.summaries[0].gpu, "communication": self.communication.to_dict()} if self.communication else {}),
            "rows": [row.to_dict() for row in self.rows],
            **({"counters": [each.to_dict() for each in self.counters]} if self.counters else {}),
            "warnings": list(self.warnings),
        }

    def _markdown(self) -> str:
        """Return a short page: the answer, the parts of the difference, and the rows that changed most.

        Examples
        --------
        >>> function, inputs = ss.workload("branches").build()
        >>> runs = ss.compare(function, *inputs, engines=["async", "graph"], device="simulated", progress=False)
        >>> print(ss.diff(runs["async"].trace, runs["graph"].trace).to_markdown())
        # parallel_branches · async → parallel_branches · graph
        <BLANKLINE>
        graph is 2.3× faster than async (...
        """
        parts = markdown_rows(("part of the span", "first, µs", "second, µs", "difference, µs"), self.contribution_rows())
        page = [f"# {in_markdown(self.title)}", "", in_markdown(self.answer), "", *parts, ""]
        page += markdown_rows(HEADINGS, self.table_rows(_MOST_IN_TEXT)) if self.changed else []
        if self.counters:
            page += ["", *markdown_rows(COUNTER_HEADS, (each.cells() for each in self.counters))]
        notes = [f"- {in_markdown(line)}" for line in (*self._left_out, *self.warnings)]
        return printable("\n".join([*page, "", *notes, ""]))

    def _repr_markdown_(self) -> str:
        return self.to_markdown()

    def __repr__(self) -> str:
        parts = aligned([("part of the span", "first, µs", "second, µs", "difference, µs"), *self.contribution_rows()], numbers=True)
        cells = [(shortened(row[0], 60), *row[1:]) for row in self.table_rows(_MOST_IN_TEXT)]
        table = ["", *aligned([HEADINGS, *cells], numbers=True)] if cells else []
        means = [(shortened(name, 60), *rest) for name, *rest in (each.cells() for each in self.counters)]
        counters = ["", *aligned([COUNTER_HEADS, *means], numbers=True)] if means else []
        notes = [f"[{number}] {warning}" for number, warning in enumerate(self.warnings, 1)]
        return printable("\n".join([self.title, self.answer, "", *parts, *table, *self._left_out, *counters, *notes]))

    def timeline(self) -> Timeline:
        """Return both traces as live timelines on one axis; a selection in one is marked in the other.

        Raises
        ------
        OutputError
            The front end was not built.

        Examples
        --------
        >>> function, inputs = ss.workload("branches").build()
        >>> runs = ss.compare(function, *inputs, engines=["async", "graph"], device="simulated", progress=False)
        >>> ss.diff(runs["async"].trace, runs["graph"].trace).timeline().engines
        ['async', 'graph']
        """
        return views.timeline(self)

    def contribution_rows(self) -> Iterator[tuple[str, ...]]:
        """Yield label, both values and the difference of each contribution as text, then of the span, which is their sum.

        Of several GPUs, communication comes last, which is no part: what compute hides of it takes no time.
        """
        span = Contribution("span", *self.span_us)
        for part in (*self.contributions, span, *([self.communication] if self.communication else [])):
            yield part.label, *(format_us(value).replace("-", "−") for value in (part.first_us, part.second_us)), signed(part.difference_us)

    @property
    def changed(self) -> tuple[DiffRow, ...]:
        """The rows whose total or count differs; they come first in ``rows``."""
        return tuple(row for row in self.rows if row.difference_us or row.count[0] != row.count[1])

    def table_rows(self, most: int | None = None) -> Iterator[tuple[str, ...]]:
        """Yield the rows that changed as text, under `HEADINGS`, the largest change first; all, or at most so many."""
        for row in self.changed[:most]:
            yield row.cells()

    @property
    def _left_out(self) -> list[str]:
        rest, same = self.changed[_MOST_IN_TEXT:], len(self.rows) - len(self.changed)
        left_us = sum(row.difference_us for row in rest)
        more = [f"{counted(len(rest), 'more row')}, {signed_time_text(left_us * 1e3)} in all"] if rest else []
        return more + ([f"{counted(same, 'row')} without a difference"] if same else [])

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a DataFrame, one row each, times in µs.

        Examples
        --------
        >>> function, inputs = ss.workload("branches").build()
        >>> runs = ss.compare(function, *inputs, engines=["async", "graph"], device="simulated", progress=False)
        >>> frame = ss.diff(runs["async"].trace, runs["graph"].trace).to_pandas()
        >>> list(frame.columns)[:6]
        ['name', 'was', 'kind', 'operation', 'part', 'status']
        """
        import pandas as pd

        sides = ("first", "second")
        columns: dict[str, list[Any]] = {name: [getattr(row, name) for row in self.rows] for name in ("name", "was", "kind", "operation")}
        columns |= {name: [getattr(row, name) for row in self.rows] for name in ("part", "status")}
        columns |= {f"{side}_count": [row.count[at] for row in self.rows] for at, side in enumerate(sides)}
        columns |= {f"{side}_us": [row.total_us[at] for row in self.rows] for at, side in enumerate(sides)}
        names = ("difference_us", "each_us", "low_us", "high_us", "basis", "told")
        return pd.DataFrame(columns | {name: [getattr(row, name) for row in self.rows] for name in names})


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None


def diff(first: Trace | Measured, second: Trace | Measured) -> TraceDiff:
    """Compare two traces of any origin: two engines, two versions of a model, a trace before and after, a prediction and a recording.

    A trace is one run, which does not tell whether a measured difference is more than noise. Two runs of `ss.compare` do, since they have
    the makespans of their repeats: ``ss.diff(runs["async"], runs["graph"])``. Runs of two comparisons did not take turns. So a drift of the
    machine between them is in the difference, and a warning says so.

    Kernels, copies and sets are joined by operation if both traces are of one program, else by name and order (see
    `TraceDiff.joined`). The difference of the spans is divided by an identity that holds for each trace: span = kernel time - what of it
    runs side by side + copies and sets alone + idle time by cause. Kernel time is the sum over its rows. Where a name runs several
    times, a row has the median of the differences of its pairs with its interval, as `median_interval` has it. If the two traces have
    different counts, it has the difference of the medians, with the interval from one's low end to the other's high end. Unit: µs.

    Of traces of several GPUs, the span is that of all together, as in `ss.compare`. Its parts and the rows are of one GPU: the busiest of
    the first, in both traces if the second one has it. There, span = compute - what of it runs side by side + communication alone + copies
    and sets alone + idle time by cause + what the others did before and after. If one of the two is of one GPU, so is the span. Take
    other GPUs by `Trace.of_gpu`, also two of one trace: ``ss.diff(trace.of_gpu(0), trace.of_gpu(1))``.

    Parameters
    ----------
    first, second : Trace or Run

    Raises
    ------
    TraceError
        One of the two is neither.

    Examples
    --------
    >>> function, inputs = ss.workload("branches").build()
    >>> runs = ss.compare(function, *inputs, engines=["async", "graph"], device="simulated", progress=False)
    >>> found = ss.diff(runs["async"].trace, runs["graph"].trace)
    >>> found.answer
    'graph is 2.7× faster than async (...
    """
    metrics = (first.metrics, second.metrics) if isinstance(first, Measured) and isinstance(second, Measured) else None
    whole = _trace_of(first), _trace_of(second)
    first, second = _one_gpu_each(*whole)
    summaries = summary(first), summary(second)
    joined = join(first, second)
    rows = sorted(diff_rows(first, second, joined), key=lambda row: -abs(row.difference_us))
    several = all(len(trace.gpus) > 1 for trace in whole)
    one, other = (span_ns(trace.spans) / 1000 if several else found.span_us for trace, found in zip(whole, summaries, strict=True))
    parts, communication = _contributions((first, second), summaries), None
    if several:
        parts = _of_several(parts, (first, second), summaries, (one, other))
        communication = Contribution("communication in all", *(found.work.communication_ns / 1000 for found in summaries))
    return TraceDiff(first, second, summaries, joined, (one, other), parts, communication, tuple(rows), metrics)


def _trace_of(given: object) -> Trace:
    """Return a trace, or the one of a run."""
    trace = given.trace if isinstance(given, Measured) else given
    if not isinstance(trace, Trace):
        named = f"a {type(given).__name__}" if isinstance(given, Result) else shown(given)
        raise TraceError(f"diff compares two traces, not {named}", hint='take a run, runs["graph"], or its trace; ss.read opens a file')
    return trace


def _one_gpu_each(first: Trace, second: Trace) -> tuple[Trace, Trace]:
    """Return one GPU of each of two traces: the same one, if both have the busiest of the first, or of the second."""
    ours, theirs = busiest(first), busiest(second)
    if len(second.gpus) > 1 and ours.gpus[0] in second.gpus:
        return ours, second.of_gpu(ours.gpus[0])
    if len(first.gpus) > 1 and theirs.gpus and theirs.gpus[0] in first.gpus:
        return first.of_gpu(theirs.gpus[0]), theirs
    return ours, theirs


def _contributions(traces: tuple[Trace, Trace], summaries: tuple[Summary, Summary]) -> tuple[Contribution, ...]:
    parts = []
    for trace, found in zip(traces, summaries, strict=True):
        kernels_us = kernel_time_ns(trace.spans) / 1000
        idle = (found.idle.host_wait_ns, found.idle.launch_ns, found.idle.kernel_wait_ns, found.idle.other_ns)
        parts.append((kernels_us, found.gpu_busy_us - kernels_us, found.copy_us, *(time_ns / 1000 for time_ns in idle)))
    return tuple(Contribution(label, *values) for label, *values in zip(_PARTS, *parts, strict=True))


def _of_several(
    parts: tuple[Contribution, ...], traces: tuple[Trace, Trace], summaries: tuple[Summary, Summary], span_us: tuple[float, float]
) -> tuple[Contribution, ...]:
    """Return the parts of the span of several GPUs, from those of one: communication stands apart, and so does the time around."""
    columns = []
    for trace, found, whole_us in zip(traces, summaries, span_us, strict=True):
        durations_us = int(trace.spans.duration_ns[work_of(trace) == Work.COMPUTE].sum()) / 1000
        work = found.work
        alone_us, copies_us = work.exposed_communication_ns / 1000, work.exposed_memory_ns / 1000
        columns.append((durations_us, work.compute_ns / 1000 - durations_us, alone_us, copies_us, whole_us - found.span_us))
    compute, beside, alone, copies, around = zip(*columns, strict=True)
    return (
        Contribution("compute", *compute), Contribution(_BESIDE, *beside), Contribution("communication alone", *alone),
        Contribution("copies and sets alone", *copies), *parts[3:], Contribution(_AROUND, *around),
    )  # fmt: skip


_BESIDE, _AROUND = "kernels side by side", "other GPUs before and after"
_ONE_OF_ALL = "the span is of all GPUs, its parts and the rows are of GPU {}: ss.diff(a.of_gpu(n), b.of_gpu(n)) compares another"
_PARTS = (
    "kernel time", _BESIDE, "copies and sets alone",
    "idle: host wait", "idle: launch", "idle: kernel wait", "idle: other",
)  # fmt: skip
_IN_WORDS = {"idle: launch": "launch latency", "idle: other": "other idle time", _AROUND: f"time of {_AROUND}"}


def _begun(sentence: str, names: tuple[str, str]) -> str:
    """Return a sentence that begins with one of two names; names of engines and programs stay as they are written."""
    return capitalised(sentence) if names == _UNNAMED else sentence


def _words(part: Contribution) -> str:
    amount = time_text(abs(part.difference_us) * 1e3)
    more = part.difference_us > 0
    if part.label == _BESIDE:  # It shortens the span, so more of it is a negative difference.
        return f"{amount} {'less' if more else 'more'} saved by kernels side by side"
    return f"{amount} {'more' if more else 'less'} {_IN_WORDS.get(part.label, part.label.removeprefix('idle: '))}"
