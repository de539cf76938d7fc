"""Predictions: a trace as it would be under another engine, with kernels that take longer or shorter, or without some of them."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from streamscope.analysis.gpus import busiest
from streamscope.analysis.metrics import PROFILED
from streamscope.analysis.overlap import span_ns
from streamscope.arguments import shown
from streamscope.devices.measured_models import model_of
from streamscope.engine_entry import DEFAULT_ENGINE, ENGINES, GRAPH, STREAM, WAITING, engine_with
from streamscope.engines import engine_names
from streamscope.engines.plan import checked_streams
from streamscope.errors import EngineError, TraceError
from streamscope.measuring.case import uncollected
from streamscope.predicting.issued import issued_tasks, recorded_ns
from streamscope.predicting.scenario import Scenario, is_factor
from streamscope.predicting.simulating import simulated
from streamscope.predicting.tasks import SEVERAL, check_foreign, is_foreign, notes_of_foreign, tasks_of_foreign, tasks_of_program
from streamscope.trace.file_checks import MOST_NS
from streamscope.trace.info import DeviceInfo
from streamscope.trace.spans import DEVICE_KINDS, Basis, SpanKind, SpanTable
from streamscope.trace.trace import Trace
from streamscope.words import counted, listed, percent, time_text

_CHANGED = "changed: "
"""Begin of a note on a change."""
MOST_LAUNCHES = 1_000_000
"""Kernels, copies and sets of a trace that is predicted: each costs Python some µs."""

_STRETCHED = f"{PROFILED}, and give measured_us to compare with that"
_AS_THEY_ARE = "the times of the table are taken as they are: if a profiler took them, it stretched them"
_REPLAYED = "the model replays the recording in {} of {}"
_MISSED = _REPLAYED + ": that is {} off, so what it predicts may be as far off"
_WORST_REPLAY = 0.1
"""From this error of the replay on, a prediction is warned of."""
_OTHER_PACE = "the recorded run lies in a {} moment of its host: its calls are taken {:.2f} times as long, as in a usual run"


@dataclass(frozen=True, repr=False)
class Prediction(Trace):
    """A predicted trace: a recorded one under another engine, or with other kernels.

    It is a `Trace` like any other, of a simulated device, and can be changed further.

    Attributes
    ----------
    spans, info, origins, blocks, collectives, peers, sites, counters, markers, memory, user_notes
        As of any trace; there are no blocks, and no counters, markers, memory and notes, whose times would be others, too.
    scenario : Scenario
        Its tasks and changes.

    Examples
    --------
    >>> function, inputs = ss.workload("branches").build()
    >>> trace = ss.compare(function, *inputs, engines="sync", device="simulated", progress=False)["sync"].trace
    >>> prediction = ss.what_if(trace, engine="graph").kernel("relu").scale(0.5)
    >>> prediction.info.engine, prediction.info.recorder, prediction.info.device.simulated
    ('graph', 'prediction', True)
    >>> prediction.speedup > 1
    True
    """

    view = "prediction"

    scenario: Scenario = field(kw_only=True, repr=False, compare=False)

    @property
    def before_ns(self) -> float:
        """Makespan of the run that it was made from, in nanoseconds: as the user measured it, else without the cost of recording."""
        measured_ns = self.scenario.measured_ns
        return makespan_ns(self.scenario.source) if math.isnan(measured_ns) else measured_ns

    @property
    def replay_ns(self) -> float:
        """How long the run takes under its own engine and without a change, as the model has it, in nanoseconds."""
        return self.scenario.replay_ns

    @property
    def recorded_ns(self) -> float:
        """How long the run took that the replay is compared with, in nanoseconds.

        Of code that is not ours, until the host noticed the end of the last work: a profiler that stops waits once more.
        """
        return _replayed_run_ns(self.scenario)

    @property
    def predicted_ns(self) -> float:
        """Predicted makespan, in nanoseconds."""
        return float(self.spans.end_ns.max(initial=0))

    @cached_property
    def unchanged_ns(self) -> float:
        """Predicted makespan without the changes, in nanoseconds."""
        scenario = self.scenario
        if not scenario.changes:
            return self.predicted_ns
        return predicted_from(replace(scenario, tasks=scenario.recorded, changes=(), whole=())).predicted_ns

    @property
    def speedup(self) -> float:
        """How many times as fast as the same prediction without its changes; if it has none, as the run that it was made from.

        NaN without changes where a profiler recorded that run: it stretched the run, so the ratio would be none of the engines.
        """
        scenario = self.scenario
        if scenario.stretched and not scenario.changes:
            return math.nan
        before_ns = self.unchanged_ns if scenario.changes else self.before_ns
        return before_ns / self.predicted_ns if self.predicted_ns else math.inf

    @property
    def notes(self) -> tuple[str, ...]:
        """Warnings."""
        return self.info.notes

    def kernel(self, *patterns: str) -> Kernels:
        """Choose kernels, copies or host functions by name, to change them.

        Parameters
        ----------
        *patterns : str
            Each a name as the timeline shows it, a kernel's own, an operator of captured code (``"*convolution*"``), or a label or
            module (``"inception4a*"``), with ``*`` and ``?``; or a kind: "kernel", "copy", "set", "host". ``"*"`` is all that runs on the
            device. Any other name means launches in ranges of that name: ``"aten::conv2d"``, or your NVTX range.

        Raises
        ------
        TraceError
            Nothing is called like that.

        Examples
        --------
        >>> function, inputs = ss.workload("branches").build()
        >>> trace = ss.compare(function, *inputs, engines="graph", device="simulated", progress=False)["graph"].trace
        >>> ss.what_if(trace).kernel("mul*").scale(10).speedup < 1
        True
        """
        return Kernels(self, patterns, tuple(self.scenario.picked(*patterns)))

    def without(self, *patterns: str) -> Prediction:
        """Leave out kernels, copies or host functions, chosen as by `kernel`. Their successors get their predecessors.

        Raises
        ------
        TraceError
            Nothing is called like that, or nothing else is left.

        Examples
        --------
        >>> function, inputs = ss.workload("branches").build()
        >>> trace = ss.compare(function, *inputs, engines="async", device="simulated", progress=False)["async"].trace
        >>> ss.what_if(trace).without("add").predicted_ns < ss.what_if(trace).predicted_ns
        True
        """
        return predicted_from(self.scenario.without(*patterns))

    def what_if(
        self, engine: str | None = None, streams: int | None = None, measured_us: float | None = None, *, waits: bool | None = None
    ) -> Prediction:
        """Predict another engine, with the same changes; see `ss.what_if`."""
        scenario = self.scenario
        stay = scenario.waits if waits is None else waits
        other = scenario_of(scenario.source, engine or scenario.engine, streams, measured_us, waits=stay)
        if measured_us is None:
            other = replace(other, measured_ns=scenario.measured_ns)
            # The replay is of the same run, with the same waits.
            other = replace(other, replay_ns=scenario.replay_ns if stay == scenario.waits else math.nan)
        for edit in scenario.edits:
            other = edit(other)
        return predicted_from(other)

    def to_dict(self) -> dict[str, Any]:
        """Return the prediction as JSON values; times in microseconds."""
        return {
            "engine": self.scenario.engine,
            "streams": self.scenario.streams,
            "before_us": round(self.before_ns / 1e3, 3),
            "recorded_us": round(self.recorded_ns / 1e3, 3),
            "replay_us": round(self.replay_ns / 1e3, 3),
            "predicted_us": round(self.predicted_ns / 1e3, 3),
            "unchanged_us": round(self.unchanged_ns / 1e3, 3),
            "speedup": None if math.isnan(self.speedup) else round(self.speedup, 3),
            "notes": list(self.info.notes),
        }

    def __str__(self) -> str:
        scenario = self.scenario
        changed = f", {', '.join(scenario.changes)}" if scenario.changes else ""
        head = f"{scenario.source.info.program} under {scenario.engine}{changed}: {time_text(self.predicted_ns)}, predicted; {self.against}"
        return "\n".join([head, *self.told])

    __repr__ = __str__

    @property
    def told(self) -> tuple[str, ...]:
        """Warnings without the changes, which stand in the head of the text already."""
        return tuple(note for note in self.info.notes if not note.startswith(_CHANGED))

    @property
    def against(self) -> str:
        """The base of the comparison, and the comparison, in words. A recording that a profiler stretched is told and not compared."""
        scenario = self.scenario
        before = time_text(self.before_ns)
        if scenario.stretched:
            run = f"the recorded run took {before} with the profiler on"
        else:
            what = "the run of all steps" if any(note.startswith(SEVERAL) for note in scenario.notes) else "the run"
            run = f"{scenario.source.info.engine} took {before}" if math.isnan(scenario.measured_ns) else f"{what} was measured at {before}"
        slow = round(self.speedup, 2) < 1
        faster = f"{1 / self.speedup:,.2f} times as slow" if slow else f"{self.speedup:,.2f} times as fast"
        if scenario.changes:
            return f"{run}; predicted without the change: {time_text(self.unchanged_ns)}, so the change makes it {faster}"
        return run if scenario.stretched else f"{run}: {faster}"


@dataclass(frozen=True)
class Kernels:
    """Kernels of a prediction that were chosen by name; ``picked`` says of each of its tasks whether it is one of them."""

    prediction: Prediction
    patterns: tuple[str, ...]
    picked: tuple[bool, ...]

    def __len__(self) -> int:
        return sum(self.picked)

    def __repr__(self) -> str:
        return f"<Kernels {', '.join(self.patterns)!r}: {len(self):,}>"

    def scale(self, factor: float) -> Prediction:
        """Predict with these taking ``factor`` times as long.

        Raises
        ------
        TraceError
            The factor is not a number above 0, or makes kernels more than a million times as long.

        Examples
        --------
        >>> function, inputs = ss.workload("branches").build()
        >>> trace = ss.compare(function, *inputs, engines="graph", device="simulated", progress=False)["graph"].trace
        >>> print(ss.what_if(trace).kernel("relu").scale(0.5).scenario.changes)
        ('16 relu × 0.5',)
        """
        return predicted_from(self.prediction.scenario.scaled(factor, *self.patterns))


def _measured_ns(measured_us: float) -> float:
    if not is_factor(measured_us) or measured_us * 1e3 > MOST_NS:
        raise TraceError(f"a run cannot take measured_us={measured_us!r:.40}", hint="give the time of a run without the profiler, in µs")
    return float(measured_us) * 1e3


def what_if(
    trace: Trace, *, engine: str | None = None, streams: int | None = None, measured_us: float | None = None, waits: bool = True
) -> Prediction:
    """Predict a run under another engine, from its trace: durations, costs of calls, and dependencies.

    The prediction is a trace too. Change it further with ``.kernel("*nvjet*").scale(0.5)`` and ``.without("copy")``,
    look at it in the timeline, and compare it by `ss.diff`.

    Parameters
    ----------
    trace : Trace
        Of code that is not ours and of several GPUs, the busiest is predicted; `Trace.of_gpu` chooses another.
    engine : str, optional
        The trace's own by default, or "async" where it is of code that is not ours. Such code keeps the order of its streams.
    streams : int, optional
        Compute streams; from 2 on, "dual" stands for "sync" and "async", and "graph-dual" for "graph". By default 2 of those that
        use several, and up to 12 of captured code.
    measured_us : float, optional
        How long all that is in the trace takes without a profiler, in µs, to compare with that: a profiler stretches what it records.
        Of a `sync` trace, calls and host functions are then taken as long as they must be for that.
    waits : bool
        Of code that is not ours: keep waits of 30 µs or more that nothing in the trace explains, under every engine. They may be for an
        event, another stream or another GPU.

    Raises
    ------
    TraceError
        It is not a trace, or has no kernels, or is from a version that did not keep dependencies.
    EngineError
        The engine is unknown, ``streams`` is out of its range, or more than one without known dependencies.

    See Also
    --------
    Prediction.what_if : another engine with the same changes.

    Examples
    --------
    >>> function, inputs = ss.workload("elementwise-chain").build(length=50)
    >>> trace = ss.compare(function, *inputs, engines="sync", device="simulated", progress=False)["sync"].trace
    >>> round(ss.what_if(trace, engine="graph").speedup, 1)
    7.8
    """
    if not isinstance(trace, Trace):
        raise TraceError(f"what_if predicts a trace, not {shown(trace)}", hint='a run has one: runs["graph"].trace; ss.read opens a file')
    if isinstance(trace, Prediction):
        return trace.what_if(engine, streams, measured_us, waits=waits)
    return predicted_from(uncollected(partial(scenario_of, waits=waits), trace, engine, streams, measured_us))


def _own_engine(trace: Trace) -> str:
    """Return the engine that a trace is of: code that is not ours is issued as it was, which the plain engine means for it."""
    return trace.info.engine if trace.info.engine in ENGINES and not is_foreign(trace) else DEFAULT_ENGINE


def scenario_of(
    trace: Trace, engine: str | None = None, streams: int | None = None, measured_us: float | None = None, *, waits: bool = True
) -> Scenario:
    """Return the tasks of a prediction under an engine, to be changed before it is predicted."""
    measured_ns = math.nan if measured_us is None else _measured_ns(measured_us)
    if (launched := int(trace.spans.is_kind(DEVICE_KINDS).sum())) > MOST_LAUNCHES:
        raise TraceError(
            f"{launched:,} kernels, copies and sets are more than the {MOST_LAUNCHES:,} that are predicted",
            hint="record one step, or a few, and predict that trace",
        )
    foreign = is_foreign(trace)
    trace = busiest(trace) if foreign else trace
    wanted, allowed = _engine(engine or (trace.info.engine if trace.info.engine in ENGINES else DEFAULT_ENGINE), streams)
    _check_streams(trace, allowed if ENGINES[wanted].takes_streams else 1)
    model = model_of(str(trace.info.device.details.get("cost_model_of", trace.info.device.name.removeprefix("simulated "))))
    if foreign:
        check_foreign(trace)
        tasks = (issued_tasks if wanted == DEFAULT_ENGINE else tasks_of_foreign)(trace, waits=waits)
    else:
        tasks = tasks_of_program(trace, as_captured=ENGINES[wanted].traits == {GRAPH})
    if not any(task.pieces for task in tasks):
        raise TraceError("the trace has no kernels, so there is nothing to predict", hint="record a run that uses the GPU")
    notes = notes_of_foreign(trace, tasks, in_graphs=ENGINES[wanted].captures) if foreign else ()
    return Scenario(trace, tuple(tasks), model, wanted, allowed, notes=notes, measured_ns=measured_ns, waits=waits)


def predicted_from(scenario: Scenario) -> Prediction:
    """Return the prediction of a scenario."""
    found = _simulated(scenario)
    makespan = float(found.spans.end_ns.max(initial=0))
    if math.isnan(scenario.replay_ns):
        own = _as_it_ran(scenario)
        same = not scenario.changes and (scenario.engine, scenario.streams) == (own.engine, own.streams)
        scenario = replace(scenario, replay_ns=makespan if same else float(_simulated(own).spans.end_ns.max(initial=0)))
    info = replace(
        found.info,
        device=predicted_device(scenario.source.info.device),
        recorder="prediction",
        ledger={"recorded_ns": makespan, "unrecorded_ns": makespan},
        notes=_notes(scenario),
        memory={},
    )
    beside: dict[str, Any] = {name: getattr(found, name) for name in ("collectives", "peers", "sites")}
    return Prediction(found.spans, info, found.origins, **beside, scenario=scenario)


def _simulated(scenario: Scenario) -> Trace:
    tasks = scenario.host.paced(scenario.run)
    # A collection finds nothing here, and all of them take half of the time.
    return uncollected(simulated, scenario.source, tasks, scenario.engine, scenario.streams, scenario.host)


def _as_it_ran(scenario: Scenario) -> Scenario:
    """Return the scenario that changes nothing: the trace's own engine, its streams and its tasks."""
    source, engine = scenario.source, _own_engine(scenario.source)
    streams = source.info.plan.get("streams") if ENGINES[engine].takes_streams else None
    return replace(scenario_of(source, engine, streams, waits=scenario.waits), measured_ns=scenario.measured_ns)


def _replayed_run_ns(scenario: Scenario) -> float:
    """Return how long the run took that a replay has to come out as."""
    if is_foreign(scenario.source):
        return float(recorded_ns(scenario.source))
    return makespan_ns(scenario.source) if math.isnan(scenario.measured_ns) else scenario.measured_ns


def makespan_ns(trace: Trace) -> float:
    """Return the length of a recorded run, in ns: without the cost of recording, where known; else its `span_ns`."""
    return float(trace.info.ledger.get("unrecorded_ns", 0.0)) or float(span_ns(trace.spans))


def _engine(engine: str, streams: int | None) -> tuple[str, int | None]:
    """Return the engine that is meant, and how many streams it may use; None leaves it to the engine."""
    if not isinstance(engine, str):
        raise EngineError(f"{engine!r} is not the name of an engine", hint=f"choose from {', '.join(ENGINES)}")
    (name,) = engine_names([engine])
    allowed = checked_streams(streams)
    if allowed is None:
        return name, None if ENGINES[name].takes_streams else 1
    spread = engine_with(*ENGINES[name].traits - {WAITING} | {STREAM})
    return (spread or name) if allowed > 1 else name, allowed


def _check_streams(trace: Trace, streams: int | None) -> None:
    if streams != 1 and is_foreign(trace):
        raise EngineError(
            f"{trace.info.program!r} does not say which of its kernels depend on each other, so more streams cannot be predicted",
            hint="a trace of ss.compare or ss.capture does; engine='graph' keeps the order that was recorded",
        )


def predicted_device(source: DeviceInfo) -> DeviceInfo:
    """Return the device of a prediction, which is simulated, for that of the trace that it was made from."""
    details = {key: source.details[key] for key in ("multiprocessors", "driver", "cost_model") if key in source.details}
    return DeviceInfo("simulated", f"simulated {source.name.removeprefix('simulated ')}", {**details, "predicted_from": source.kind})


_UNCOUNTED = "left out: {} of the trace, whose times would be others, too"


def _notes(scenario: Scenario) -> tuple[str, ...]:
    """Title of the prediction: source, engines, device."""
    source, tasks = scenario.source, scenario.tasks
    calls = sum(task.call_ns > 0 for task in tasks)
    kinds = Counter(SpanKind(int(source.spans.kind[row])) for task in tasks for row in task.rows)
    words = ((SpanKind.KERNEL, "kernel", "kernels"), (SpanKind.COPY, "copy", "copies"), (SpanKind.SET, "set", "sets"))
    lasted = [counted(kinds[kind], one, many) for kind, one, many in words if kinds[kind]] + ([counted(calls, "call")] if calls else [])
    order = "the order on its streams" if is_foreign(source) else "the dependencies"
    beside = _beside_neighbours(source)
    timed = {"counters": len(source.counters), "markers": len(source.markers), "memory": len(source.memory)}
    untimed = [name for name, rows in (timed | {"your notes": len(source.user_notes)}).items() if rows]
    of, pace = f"{source.info.engine} on {source.info.device.name}", scenario.host.pace
    return (
        f"predicted from a trace of {of}: the trace gives durations of {listed(lasted)}, and {order}; the cost model gives all else",
        _replay_words(scenario),
        *scenario.notes,
        *([_OTHER_PACE.format("slow" if pace < 1 else "quick", pace)] if abs(pace - 1) > 0.05 else []),
        *([beside] if beside else []),
        *([_STRETCHED] if scenario.stretched else [_AS_THEY_ARE] if _from_table(source) and math.isnan(scenario.measured_ns) else []),
        *([_UNCOUNTED.format(listed(untimed))] if untimed else []),
        *source.info.notes,
        *(f"{_CHANGED}{change}" for change in scenario.changes),
    )


def _replay_words(scenario: Scenario) -> str:
    """Say how well the model replays the run under its own engine: any prediction may be off by as much."""
    run_ns, replay_ns = _replayed_run_ns(scenario), scenario.replay_ns
    error = abs(replay_ns / run_ns - 1) if run_ns else 0.0
    text = _MISSED if error > _WORST_REPLAY else _REPLAYED
    return text.format(time_text(replay_ns), time_text(run_ns), percent(error))


def _from_table(source: Trace) -> bool:
    return source.info.recorder == "spans" and not source.info.device.simulated


def _ran_beside(spans: SpanTable) -> int:
    """Count the spans that began before one that was earlier had ended, as measured."""
    measured = spans.select(spans.basis == Basis.MEASURED)
    ended_ns = np.maximum.accumulate(measured.end_ns)
    return int((measured.start_ns[1:] < ended_ns[:-1]).sum())


def _beside_neighbours(source: Trace) -> str:
    """Say that kernels of a GPU ran beside each other in the source, where their durations are those beside neighbours."""
    each = [source.of_gpu(gpu) for gpu in source.gpus] if len(source.gpus) > 1 else [source]
    count = sum(_ran_beside(trace.spans.of_kind(DEVICE_KINDS)) for trace in each)
    return f"{counted(count, 'kernel')} ran beside others in the trace, so their durations alone may be shorter" if count else ""
