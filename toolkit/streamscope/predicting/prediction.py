"""Predictions: a trace as it would be under another engine, with kernels that take longer or shorter, or without some of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from streamscope.analysis.overlap import span_ns
from streamscope.devices.measured_models import model_of
from streamscope.engines import PLANNERS, engine_names, takes_streams
from streamscope.engines.plan import checked_streams
from streamscope.errors import EngineError, TraceError
from streamscope.predicting.calls import Host, host_of
from streamscope.predicting.changes import chosen, fused, scaled, without
from streamscope.predicting.foreign import is_foreign, tasks_of_foreign
from streamscope.predicting.simulating import simulated
from streamscope.predicting.tasks import Task, tasks_of_program
from streamscope.trace.spans import DEVICE_KINDS, Basis
from streamscope.trace.trace import DeviceInfo, Trace
from streamscope.words import counted, time_text

_MORE_STREAMS = {"sync": "dual", "async": "dual", "graph": "graph-dual"}
"""The engine that spreads over several streams what this one does on one."""


@dataclass(frozen=True)
class Supposition:
    """What a prediction is made of.

    Attributes
    ----------
    source : Trace
        What was recorded.
    tasks : tuple of Task
        What runs, with all changes.
    host : Host
        What the source tells of its host.
    engine : str
    streams : int
    changes : tuple of str
        What was changed, in words.
    notes : tuple of str
        What was taken from where, in words.
    """

    source: Trace
    tasks: tuple[Task, ...]
    host: Host
    engine: str
    streams: int
    changes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, repr=False)
class Prediction(Trace):
    """A predicted trace: what a recorded one would be under another engine, or with other kernels.

    It is a `Trace` like any other, of a simulated device, and can be changed further.

    Attributes
    ----------
    spans, info, origins, blocks
        As of any trace; there are no blocks.
    supposition : Supposition
        What it was made of.

    Examples
    --------
    >>> function, inputs = ss.workload("branches").build()
    >>> trace = ss.compare(function, *inputs, engines="sync", device="simulated", progress=False)["sync"].trace
    >>> prediction = trace.what_if(engine="graph").kernel("relu").scale(0.5)
    >>> prediction.info.engine, prediction.info.recorder, prediction.info.device.simulated
    ('graph', 'prediction', True)
    >>> prediction.speedup > 4
    True
    """

    supposition: Supposition = field(kw_only=True, repr=False, compare=False)

    @property
    def before_ns(self) -> float:
        """Makespan of the trace that it was made from, without what recording cost where that is known, in nanoseconds."""
        return makespan_ns(self.supposition.source)

    @property
    def predicted_ns(self) -> float:
        """Predicted makespan, in nanoseconds."""
        return float(self.spans.end_ns.max(initial=0))

    @property
    def speedup(self) -> float:
        """How many times as fast as the trace that it was made from."""
        return self.before_ns / self.predicted_ns if self.predicted_ns else math.inf

    def kernel(self, pattern: str) -> Kernels:
        """Choose kernels, copies or host functions by name, to change them.

        Parameters
        ----------
        pattern : str
            A name as the timeline shows it, or a kernel's own, with ``*`` and ``?``; or a kind:
            "kernel", "copy", "set", "host".

        Raises
        ------
        TraceError
            Nothing is called like that.

        Examples
        --------
        >>> function, inputs = ss.workload("branches").build()
        >>> trace = ss.compare(function, *inputs, engines="graph", device="simulated", progress=False)["graph"].trace
        >>> trace.what_if().kernel("mul*").scale(10).speedup < 1
        True
        """
        picked = chosen(self.supposition.tasks, self.supposition.source.spans, pattern)
        return Kernels(self, pattern, tuple(picked))

    def without(self, pattern: str) -> Prediction:
        """Leave out kernels, copies or host functions, chosen as by `kernel`. What came after them comes after what they came after.

        Raises
        ------
        TraceError
            Nothing is called like that, or nothing else is left.

        Examples
        --------
        >>> function, inputs = ss.workload("branches").build()
        >>> trace = ss.compare(function, *inputs, engines="async", device="simulated", progress=False)["async"].trace
        >>> trace.what_if().without("add").predicted_ns < trace.what_if().predicted_ns
        True
        """
        picked = chosen(self.supposition.tasks, self.supposition.source.spans, pattern)
        if all(picked):
            raise TraceError(f"nothing is left without {pattern!r}", hint="leave out less")
        return _changed(self.supposition, without(self.supposition.tasks, picked), f"without {counted(sum(picked), repr(pattern))}")

    def fused(self, *patterns: str) -> Prediction:
        """Make one kernel of each chain of kernels: one for each pattern, each the only one that comes right after the one before.

        The fused kernel takes as long as its parts, but for the start of a kernel, which it has once. What it saves in memory traffic is
        not counted, since a trace does not tell.

        Raises
        ------
        TraceError
            Fewer than two patterns, or there is no such chain.

        Examples
        --------
        >>> function, inputs = ss.workload("elementwise-chain").build(length=9)
        >>> trace = ss.compare(function, *inputs, engines="graph", device="simulated", progress=False)["graph"].trace
        >>> prediction = trace.what_if().fused("add", "relu")
        >>> len(prediction.supposition.tasks), prediction.speedup > 1
        (6, True)
        """
        if len(patterns) < 2:
            raise TraceError("fused takes the names of two kernels or more", hint='for example .fused("add", "relu")')
        supposed = self.supposition
        picked = [chosen(supposed.tasks, supposed.source.spans, pattern) for pattern in patterns]
        tasks = fused(supposed.tasks, picked, supposed.host.model.working_kernel_ns)
        return _changed(supposed, tasks, f"{'+'.join(patterns)} fused")

    def what_if(self, engine: str | None = None, streams: int | None = None) -> Prediction:
        """Predict another engine, with the same changes; see `Trace.what_if`."""
        supposed = self.supposition
        wanted, allowed = _engine(engine or supposed.engine, streams)
        _check_streams(supposed.source, allowed)
        return predicted_from(replace(supposed, engine=wanted, streams=allowed))

    def to_dict(self) -> dict[str, Any]:
        """Return what is predicted as JSON values; times in microseconds."""
        return {
            "engine": self.supposition.engine,
            "streams": self.supposition.streams,
            "before_us": round(self.before_ns / 1e3, 3),
            "predicted_us": round(self.predicted_ns / 1e3, 3),
            "speedup": round(self.speedup, 3),
            "notes": list(self.info.notes),
        }

    def __str__(self) -> str:
        supposed = self.supposition
        changed = f" {', '.join(supposed.changes)}" if supposed.changes else ""
        head = (
            f"{supposed.source.info.program} under {supposed.engine}{changed}: {time_text(self.predicted_ns)}, predicted; "
            f"{supposed.source.info.engine} took {time_text(self.before_ns)}: {self.speedup:.2f} times as fast"
        )
        return "\n".join([head, *self.info.notes])

    __repr__ = __str__


@dataclass(frozen=True)
class Kernels:
    """Kernels of a prediction that were chosen by name.

    Attributes
    ----------
    prediction : Prediction
    pattern : str
    picked : tuple of bool
        Of each of its tasks, whether it is one of them.
    """

    prediction: Prediction
    pattern: str
    picked: tuple[bool, ...]

    def __len__(self) -> int:
        return sum(self.picked)

    def scale(self, factor: float) -> Prediction:
        """Predict with these taking ``factor`` times as long.

        Raises
        ------
        TraceError
            The factor is not a number above 0.

        Examples
        --------
        >>> function, inputs = ss.workload("branches").build()
        >>> trace = ss.compare(function, *inputs, engines="graph", device="simulated", progress=False)["graph"].trace
        >>> print(trace.what_if().kernel("relu").scale(0.5).supposition.changes)
        ('16 relu × 0.5',)
        """
        if not _is_factor(factor):
            raise TraceError(f"kernels cannot take {factor!r} times as long", hint="give a number above 0; without(...) leaves them out")
        tasks = scaled(self.prediction.supposition.tasks, self.picked, float(factor))
        return _changed(self.prediction.supposition, tasks, f"{len(self)} {self.pattern} × {factor:g}")


def _is_factor(value: object) -> bool:
    return isinstance(value, int | float) and 0 < value < math.inf


def what_if(trace: Trace, engine: str | None = None, streams: int | None = None) -> Prediction:
    """Predict a trace under an engine; this is `Trace.what_if`."""
    foreign = is_foreign(trace)
    wanted, allowed = _engine(engine or (trace.info.engine if trace.info.engine in PLANNERS else "async"), streams)
    _check_streams(trace, allowed if takes_streams(wanted) else 1)
    model = model_of(str(trace.info.device.details.get("cost_model_of", trace.info.device.name.removeprefix("simulated "))))
    tasks, notes = tasks_of_foreign(trace) if foreign else (tasks_of_program(trace), ())
    if not any(task.pieces for task in tasks):
        raise TraceError("the trace has no kernels, so there is nothing to predict", hint="record a run that uses the GPU")
    host = host_of(trace, tasks, model)
    return predicted_from(Supposition(trace, tuple(tasks), host, wanted, allowed, notes=tuple(notes)))


def predicted_from(supposed: Supposition) -> Prediction:
    """Return the prediction of a supposition."""
    found = simulated(supposed.source, supposed.tasks, supposed.engine, supposed.streams, supposed.host)
    makespan = float(found.spans.end_ns.max(initial=0))
    info = replace(
        found.info,
        device=_device(supposed.source.info.device),
        recorder="prediction",
        ledger={"recorded_ns": makespan, "unrecorded_ns": makespan},
        notes=_notes(supposed),
        memory={},
    )
    return Prediction(found.spans, info, found.origins, supposition=supposed)


def _changed(supposed: Supposition, tasks: Sequence[Task], change: str) -> Prediction:
    return predicted_from(replace(supposed, tasks=tuple(tasks), changes=(*supposed.changes, change)))


def makespan_ns(trace: Trace) -> float:
    """Return how long a recorded run took, in ns: without what recording cost, where that is known; else its `span_ns`."""
    return float(trace.info.ledger.get("unrecorded_ns", 0.0)) or float(span_ns(trace.spans))


def _engine(engine: str, streams: int | None) -> tuple[str, int]:
    """Return the engine that is meant, and how many streams it may use."""
    if not isinstance(engine, str):
        raise EngineError(f"{engine!r} is not the name of an engine", hint=f"choose from {', '.join(PLANNERS)}")
    (name,) = engine_names([engine])
    if streams is None:
        return name, 2 if takes_streams(name) else 1
    allowed = checked_streams(streams)
    return (_MORE_STREAMS.get(name, name) if allowed > 1 else name), allowed


def _check_streams(trace: Trace, streams: int) -> None:
    if streams > 1 and is_foreign(trace):
        raise EngineError(
            f"{trace.info.program!r} does not say which of its kernels depend on each other, so more streams cannot be predicted",
            hint="a trace of ss.compare or ss.capture does; engine='graph' keeps the order that was recorded",
        )


def _device(source: DeviceInfo) -> DeviceInfo:
    name = source.name.removeprefix("simulated ")
    return DeviceInfo("simulated", f"simulated {name}", {**_plain(source.details), "predicted_from": source.kind})


def _plain(details: Mapping[str, Any]) -> dict[str, Any]:
    return {key: details[key] for key in ("multiprocessors", "driver", "cost_model") if key in details}


def _notes(supposed: Supposition) -> tuple[str, ...]:
    """Say what is predicted from what."""
    source, tasks = supposed.source, supposed.tasks
    calls = sum(not math.isnan(task.call_ns) for task in tasks)
    taken = f"durations of {counted(sum(len(task.pieces) for task in tasks), 'kernel')}"
    api = f", of {counted(calls, 'call')}" if calls else ""
    order = "the order on its streams" if is_foreign(source) else "what depends on what"
    beside = _beside_neighbours(source)
    of = f"{source.info.engine} on {source.info.device.name}"
    return (
        f"predicted from a trace of {of}: {taken}{api} and {order} are the trace's, all else is the cost model's",
        *supposed.notes,
        *([beside] if beside else []),
        *(f"changed: {change}" for change in supposed.changes),
    )


def _beside_neighbours(source: Trace) -> str:
    """Say that kernels ran beside each other in the source, where their durations are those beside neighbours."""
    spans = source.spans.of_kind(DEVICE_KINDS)
    measured = spans.select(spans.basis == Basis.MEASURED)
    if len(measured) < 2:
        return ""
    ended_ns = np.maximum.accumulate(measured.end_ns)
    count = int((measured.start_ns[1:] < ended_ns[:-1]).sum())
    return f"{counted(count, 'kernel')} ran beside others in the trace, so their durations alone may be shorter" if count else ""
