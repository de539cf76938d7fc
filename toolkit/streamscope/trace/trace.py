"""A trace: spans, and what is needed to read them."""

from __future__ import annotations

import importlib
import math
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from streamscope import display
from streamscope.arguments import Kinds, check_kinds, given_path
from streamscope.errors import OutputError, TraceError
from streamscope.trace.blocks import Blocks
from streamscope.trace.origins import Origins
from streamscope.trace.spans import COLUMN_DTYPES, SpanTable
from streamscope.trace.stored import COUNTS, JSON, SCHEMA_VERSION, TEXT, TEXTS, TIMES, VERSIONS, is_count, listed_texts

if TYPE_CHECKING:
    import pandas as pd

    from streamscope.predicting.prediction import Prediction
    from streamscope_widgets.timeline import TimelineWidget


def library_versions() -> dict[str, str]:
    """Return the versions of Python, Streamscope and the libraries it uses that are installed here."""
    return dict(_library_versions())


@cache
def _library_versions() -> Mapping[str, str]:
    versions = {"python": platform.python_version(), "platform": sys.platform}
    for name in ("streamscope", "numpy", "cupy-cuda13x", "cupy-cuda12x", "cuda-bindings", "nvidia-cudnn-frontend", "cupti-python"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


@dataclass(frozen=True)
class DeviceInfo:
    """What a device is called and whether its times are real.

    Attributes
    ----------
    kind : {"cuda", "hip", "simulated"}
        Times from a simulated device are never shown without this word.
    name : str
        For example ``"NVIDIA H200"``, or ``"simulated NVIDIA H200"``.
    details : mapping
        Multiprocessors, driver version, cost model and the like, as JSON values.

    Raises
    ------
    TraceError
        A field is not what it should be.
    """

    kind: Literal["cuda", "hip", "simulated"]
    name: str
    details: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_kinds("DeviceInfo", _DEVICE_FIELDS, self.kind, self.name, self.details, error=TraceError)

    @property
    def simulated(self) -> bool:
        """Whether the times come from a model. Wherever such a time is shown, the word stands beside it."""
        return self.kind == "simulated"

    @property
    def exact(self) -> bool:
        """Whether the times have no error and repeat, so that measuring once is enough."""
        return self.simulated


@dataclass(frozen=True)
class TraceInfo:
    """Where a trace comes from and what its numbers rest on.

    Attributes
    ----------
    engine, program : str
        Name of the engine and of the program.
    device : DeviceInfo
    recorder : str
        ``"events"``, ``"stamps"``, ``"cupti"``, ``"device log"``, ``"prediction"``; the format where another tool recorded.
    calibration : mapping
        What the recorder subtracted and how it was found (JSON values, times in ns).
    ledger : mapping
        What recording cost, in ns: ``recorded_ns`` (makespan of the run shown), ``unrecorded_ns`` (median of runs without recording);
        where all recorders were measured, ``events_ns``, ``stamps_ns`` and ``cupti_ns`` (makespans recorded so). Where records were lost,
        ``lost_records`` (a count: at least so many).
    notes : tuple of str
        What a reader must know before believing a number ("3 kernels end outside their graph", and so on).
    versions : mapping
        Versions of Python, Streamscope and the libraries that took part.
    created : str
        ISO 8601, UTC.
    schema : int
        `SCHEMA_VERSION` of the program that wrote it.
    plan : mapping
        How the engine ordered the work: ``streams`` with kernels on them (those for copies come on top), ``events``, and ``waits`` for
        them by streams and by the host. In a graph, events and waits are edges. ``branches`` where lanes are those of a graph that CUDA
        places by itself. Empty where there was no plan of ours.
    memory : mapping
        Memory that the engine held for the program, in bytes, by what it is for: ``variables_bytes``, ``workspaces_bytes`` and
        ``temporaries_bytes`` on the device, where known, their sum ``device_bytes``, and ``host_bytes`` (page-locked). Since nothing is
        given back as long as a program is prepared, each is also the most there was. Empty where it was not measured.

    Raises
    ------
    TraceError
        A field is not what it should be.
    """

    engine: str
    program: str
    device: DeviceInfo
    recorder: str = "events"
    calibration: Mapping[str, Any] = field(default_factory=dict)
    ledger: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=library_versions)
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    schema: int = SCHEMA_VERSION
    plan: Mapping[str, int] = field(default_factory=dict)
    memory: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_kinds("TraceInfo", _FIELDS, *(getattr(self, name) for name in _FIELDS), error=TraceError)

    @classmethod
    def from_dict(cls, stored: Any) -> TraceInfo:
        """Return what `dataclasses.asdict` made a dict of; fields of later versions are left out.

        Raises
        ------
        LookupError, TypeError, ValueError, TraceError
            It is something else.
        """
        if not isinstance(stored, dict):
            raise TypeError(f"{stored!r:.20} is not a mapping of names to values")
        values = {name: value for name, value in stored.items() if name in _FIELDS}
        return cls(**{**values, "device": DeviceInfo(**values["device"]), "notes": listed_texts(values["notes"])})


_DEVICE_FIELDS: Kinds = {
    "kind": (lambda value: isinstance(value, str) and value in ("cuda", "hip", "simulated"), "'cuda', 'hip' or 'simulated'"),
    "name": TEXT,
    "details": JSON,
}
_FIELDS: Kinds = {
    "engine": TEXT,
    "program": TEXT,
    "device": (lambda value: isinstance(value, DeviceInfo), "a DeviceInfo"),
    "recorder": TEXT,
    "calibration": JSON,
    "ledger": TIMES,
    "notes": TEXTS,
    "versions": VERSIONS,
    "created": TEXT,
    "schema": (lambda value: is_count(value) and 1 <= value <= SCHEMA_VERSION, f"a schema from 1 to {SCHEMA_VERSION}"),
    "plan": COUNTS,
    "memory": COUNTS,
}


@dataclass(frozen=True, repr=False)
class Trace:
    """A table of spans with what is needed to read it.

    Attributes
    ----------
    spans : SpanTable
    info : TraceInfo
    origins : Origins
        Labels, lines, shapes and event waits of its operations, as far as they are known.
    blocks : Blocks
        Which multiprocessor ran which block, and when; of kernels that stamped their blocks.

    Examples
    --------
    >>> function, inputs = ss.workload("branches").build()
    >>> runs = ss.compare(function, *inputs, engines=["async"], device="simulated", progress=False)
    >>> trace = runs["async"].trace
    >>> trace.info.engine, trace.info.device.simulated
    ('async', True)
    """

    spans: SpanTable
    info: TraceInfo
    origins: Origins = field(default_factory=Origins)
    blocks: Blocks = field(default_factory=Blocks)

    def timeline(self, by: Literal["stream", "multiprocessor"] = "stream") -> TimelineWidget:
        """Return the live timeline of this trace, as a notebook widget.

        Parameters
        ----------
        by : {"stream", "multiprocessor"}
            What has a lane: each stream; or each multiprocessor, too, with the blocks that it ran, below the streams and on the same axis.

        Raises
        ------
        TraceError
            The trace does not say which multiprocessor ran which block: the recorder ``"stamps"`` does.
        OutputError
            The front end was not built.

        Examples
        --------
        >>> function, inputs = ss.workload("branches").build()
        >>> runs = ss.compare(function, *inputs, engines=["async"], device="simulated", progress=False)
        >>> runs["async"].trace.timeline().engines
        ['async']
        """
        if by not in ("stream", "multiprocessor"):
            raise TraceError(
                f"a timeline has a lane for each stream or multiprocessor, not for each {by!r:.40}", hint='by="multiprocessor"'
            )
        return display.timeline(self, by)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Say where the columns are: functions of `ss.analysis` that take spans were given a trace."""
            if name in COLUMN_DTYPES or (hasattr(SpanTable, name) and not name.startswith("_")):
                raise TraceError(f"the spans of a trace have {name!r}, not the trace itself", hint="pass trace.spans")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def __repr__(self) -> str:
        return f"<Trace of {self.info.program!r:.80}, {self.info.engine!r:.40}: {len(self.spans):,} spans on {self.info.device.name!r:.80}>"

    def _repr_html_(self) -> str | None:
        return display.html(self)

    def to_pandas(self) -> pd.DataFrame:
        """Return the spans as a DataFrame; ``attrs["info"]`` holds the `TraceInfo`.

        Examples
        --------
        >>> from streamscope.trace import DeviceInfo, SpanBuilder, SpanKind, Trace, TraceInfo
        >>> builder = SpanBuilder(["host", "main"])
        >>> builder.add(SpanKind.LAUNCH, "a", "host", 0, 3_000, operation=0, correlation=0)
        >>> builder.add(SpanKind.KERNEL, "a", "main", 5_000, 25_000, operation=0, correlation=0)
        >>> trace = Trace(builder.build(), TraceInfo("async", "step", DeviceInfo("cuda", "NVIDIA H200")))
        >>> trace.to_pandas()[["kind", "name", "lane", "start_ns", "end_ns"]]
             kind name  lane  start_ns  end_ns
        0  launch    a  host         0    3000
        1  kernel    a  main      5000   25000
        """
        frame = self.spans.to_pandas()
        frame.attrs["info"] = self.info
        return frame

    def to_parquet(self, path: str | Path) -> Path:
        """Write the trace to one Parquet file, by way of a temporary name, and return its path.

        Raises
        ------
        OutputError
            The file cannot be written.

        Examples
        --------
        >>> function, inputs = ss.workload("branches").build()
        >>> runs = ss.compare(function, *inputs, engines=["async"], device="simulated", progress=False)
        >>> runs["async"].trace.to_parquet("step.parquet").name
        'step.parquet'
        """
        from streamscope.trace.parquet import write_parquet

        return write_parquet(self, given_path(path, error=OutputError))

    def to_csv(self, path: str | Path) -> Path:
        """Write the spans to one CSV file, by way of a temporary name, and return its path.

        Columns ``engine`` and ``device`` come first, then those of `to_pandas`, then ``operator``, ``module`` and ``line``: where the
        operation comes from. Operator and module are known of captured code.

        Raises
        ------
        OutputError
            The file cannot be written, or its name does not end with ``.csv``.

        Examples
        --------
        >>> function, inputs = ss.workload("branches").build()
        >>> runs = ss.compare(function, *inputs, engines=["async"], device="simulated", progress=False)
        >>> runs["async"].trace.to_csv("step.csv").read_text().splitlines()[0]
        '"engine","device","kind","name","lane","start_ns","end_ns",...'
        """
        from streamscope.files import suffix_of
        from streamscope.trace.span_files import write_spans

        found = given_path(path, error=OutputError)
        suffix_of(found, ".csv")
        return write_spans([self], found)

    def to_kineto(self, path: str | Path) -> Path:
        """Write the trace as Chrome JSON with Kineto's names, by way of a temporary name, and return its path.

        Perfetto's UI and ``chrome://tracing`` draw it, Holistic Trace Analysis loads it, and `ss.read` reads it again. Simulated times
        are called so in its names.

        Parameters
        ----------
        path : str or Path
            It ends with ``.json``, or with ``.json.gz`` for a packed file.

        Raises
        ------
        OutputError
            The file cannot be written, or its name ends otherwise.

        Examples
        --------
        >>> import json
        >>> function, inputs = ss.workload("branches").build()
        >>> runs = ss.compare(function, *inputs, engines=["async"], device="simulated", progress=False)
        >>> content = json.loads(runs["async"].trace.to_kineto("step.json").read_text())
        >>> content["traceName"], sorted({event["cat"] for event in content["traceEvents"] if event["ph"] == "X"})
        ('parallel_branches · async (simulated times)', ['cuda_runtime', 'kernel'])
        """
        from streamscope.trace.kineto_writer import write_kineto

        return write_kineto(self, given_path(path, error=OutputError))

    def to_perfetto(self, path: str | Path) -> Path:
        """Write the trace as Perfetto's own protobuf, by way of a temporary name, and return its path.

        Work on the GPU is on tracks of its own, with arrows from its launch and from what it waited for. Perfetto's UI
        (https://ui.perfetto.dev) and its trace processor read the file. Simulated times are called so.

        Parameters
        ----------
        path : str or Path
            It ends with ``.pftrace`` or ``.perfetto-trace``.

        Raises
        ------
        OutputError
            The file cannot be written, or its name ends otherwise.

        Examples
        --------
        >>> from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace
        >>> function, inputs = ss.workload("branches").build()
        >>> runs = ss.compare(function, *inputs, engines=["async"], device="simulated", progress=False)
        >>> path = runs["async"].trace.to_perfetto("step.pftrace")
        >>> packets = Trace.FromString(path.read_bytes()).packet
        >>> sum(packet.HasField("gpu_render_stage_event") for packet in packets)  # as many as kernels
        35
        """
        from streamscope.trace.perfetto_writer import write_perfetto

        return write_perfetto(self, given_path(path, error=OutputError))

    def what_if(self, engine: str | None = None, streams: int | None = None, measured_us: float | None = None) -> Prediction:
        """Predict this run under another engine, with what the trace knows: durations, costs of calls, and what depends on what.

        The prediction is a trace too. Change it further with ``.kernel("*gemm*").scale(0.5)``, ``.without("copy")`` and
        ``.fused("add", "relu")``, look at it in the timeline, and compare it by `ss.diff`.

        Parameters
        ----------
        engine : {"sync", "async", "dual", "graph", "graph-dual"}, optional
            The trace's own by default, or "async" where it is of code that is not ours. Such code keeps the order of its streams.
        streams : int, optional
            Compute streams; from 2 on, "dual" stands for "sync" and "async", and "graph-dual" for "graph". By default 2 of those that
            use several, and up to 12 of captured code.
        measured_us : float, optional
            How long the run takes without a profiler, in µs, to compare with that: a profiler stretches what it records.

        Raises
        ------
        TraceError
            The trace has no kernels, or is from a version that did not keep dependencies.
        EngineError
            The engine is unknown, ``streams`` is out of its range, or more than one while it is not known what depends on what.

        Examples
        --------
        >>> function, inputs = ss.workload("elementwise-chain").build(length=50)
        >>> trace = ss.compare(function, *inputs, engines="sync", device="simulated", progress=False)["sync"].trace
        >>> round(trace.what_if(engine="graph").speedup, 1)
        7.8
        """
        # A trace knows nothing of engines. Only here it asks for what stands above it, and by name, when it is called.
        predicting = importlib.import_module("streamscope.predicting.prediction")
        prediction: Prediction = predicting.what_if(self, engine, streams, measured_us)
        return prediction

    @classmethod
    def from_parquet(cls, path: str | Path) -> Trace:
        """Read what `to_parquet` wrote.

        Raises
        ------
        TraceError
            The file is missing, truncated, or not a trace of ours.

        Examples
        --------
        >>> from streamscope.trace import DeviceInfo, SpanBuilder, SpanKind, Trace, TraceInfo
        >>> builder = SpanBuilder(["host", "main"])
        >>> builder.add(SpanKind.LAUNCH, "a", "host", 0, 3_000, operation=0, correlation=0)
        >>> builder.add(SpanKind.KERNEL, "a", "main", 5_000, 25_000, operation=0, correlation=0)
        >>> trace = Trace(builder.build(), TraceInfo("async", "step", DeviceInfo("cuda", "NVIDIA H200")))
        >>> read = ss.Trace.from_parquet(trace.to_parquet("step.parquet"))
        >>> read.info == trace.info
        True
        """
        from streamscope.trace.parquet import read_parquet

        return read_parquet(given_path(path, error=TraceError))


@dataclass(frozen=True)
class TimelineGroup:
    """One trace as a timeline shows it.

    Attributes
    ----------
    trace : Trace
    makespan_ns : float, optional
        Median makespan without recording, in nanoseconds; the trace's own extent stands in where it is unknown.
    note : str
        A remark for the header, after the comparison.
    label : str
        Name of the group; the engine's by default.
    comparison : str, optional
        How it compares with another group, in words; worked out from the makespans where None.

    Raises
    ------
    TraceError
        The makespan is negative or not finite.
    """

    trace: Trace
    makespan_ns: float | None = None
    note: str = ""
    label: str = ""
    comparison: str | None = None

    def __post_init__(self) -> None:
        if self.makespan_ns is not None and not 0 <= self.makespan_ns < math.inf:
            raise TraceError(f"makespan of {self.makespan_ns} ns is not a length of time")

    @property
    def extent_ns(self) -> int:
        """End of the last span, in nanoseconds from the start of the run; 0 where nothing ends after that."""
        return int(self.trace.spans.end_ns.max(initial=0))
