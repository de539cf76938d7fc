"""A trace: spans and the facts about them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from streamscope.arguments import given_path, shown
from streamscope.errors import OutputError, TraceError
from streamscope.renamed import unknown_attribute
from streamscope.results import views
from streamscope.results.result import Result
from streamscope.results.widgets import Timeline
from streamscope.trace.collectives import Collectives, PeerCopies
from streamscope.trace.columns import Blocks
from streamscope.trace.counters import Counters, Markers, Note, note_on, sorted_notes, without_note
from streamscope.trace.file_checks import plain
from streamscope.trace.format import NOTES_SUFFIX, read_as, writers, written
from streamscope.trace.info import DeviceInfo, TraceInfo
from streamscope.trace.launch_sites import LaunchSites
from streamscope.trace.memory import Allocations
from streamscope.trace.origins import Origins
from streamscope.trace.spans import COLUMN_DTYPES, SpanKind, SpanTable
from streamscope.words import counted

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False)
class Trace(Result):
    """A table of spans with the facts about it.

    Attributes
    ----------
    spans : SpanTable
    info : TraceInfo
    origins : Origins
        Labels, lines, shapes and event waits of its operations, as far as they are known.
    blocks : Blocks
        Which multiprocessor ran which block, and when; of kernels that stamped their blocks.
    collectives : Collectives
        Which spans are parts of collectives, of which kind and size, as far as that is known.
    peers : PeerCopies
        Which spans are copies from GPU to GPU, and between which two.
    sites : LaunchSites
        Lines and modules that launched spans, where the profiler tells them; those of programs are in ``origins``.
    counters : Counters
        Values over time, of `ss.counter` or of another tool.
    markers : Markers
        Named moments, of `ss.marker` or of another tool.
    memory : Allocations
        Memory over time: what was held, from when to when, and what took it.
    user_notes : tuple of Note
        Your notes, as `with_note` adds them; those of the recorder are ``info.notes``.

    Raises
    ------
    TraceError
        Collectives, copies or launch sites name rows that are not work of a GPU; or notes are no `Note`, or more than 1,000.

    Examples
    --------
    >>> function, inputs = ss.workload("branches").build()
    >>> runs = ss.compare(function, *inputs, engines=["async"], device="simulated", progress=False)
    >>> trace = runs["async"].trace
    >>> trace.info.engine, trace.info.device.simulated
    ('async', True)
    """

    view = "trace"
    renamed: ClassVar[Mapping[str, str]] = {"what_if": "ss.what_if(trace)"}

    spans: SpanTable
    info: TraceInfo
    origins: Origins = field(default_factory=Origins)
    blocks: Blocks = field(default_factory=Blocks)
    collectives: Collectives = field(default_factory=Collectives)
    peers: PeerCopies = field(default_factory=PeerCopies)
    sites: LaunchSites = field(default_factory=LaunchSites)
    counters: Counters = field(default_factory=Counters)
    markers: Markers = field(default_factory=Markers)
    memory: Allocations = field(default_factory=Allocations)
    user_notes: tuple[Note, ...] = ()

    def __post_init__(self) -> None:
        given: Any = self.user_notes
        if not isinstance(given, tuple) or not all(isinstance(note, Note) for note in given):
            raise TraceError(f"user_notes of a trace must be a tuple of Note, not {shown(self.user_notes)}", hint="trace.with_note(text)")
        object.__setattr__(self, "user_notes", sorted_notes(self.user_notes))
        for found in (self.collectives, self.peers, self.sites):
            if len(found) and not (found.span[-1] < len(self.spans) and (self.spans.kind[found.span] >= SpanKind.KERNEL).all()):
                raise TraceError(f"{found.NOUN} must name rows with work of a GPU; the trace has {counted(len(self.spans), 'span')}")

    @property
    def gpus(self) -> tuple[int, ...]:
        """Numbers of the GPUs that have lanes, in order.

        Examples
        --------
        >>> function, inputs = ss.workload("branches").build()
        >>> runs = ss.compare(function, *inputs, engines=["async"], device="simulated", progress=False)
        >>> runs["async"].trace.gpus
        (0,)
        """
        return tuple(sorted({gpu for gpu in self.spans.gpus if gpu >= 0}))

    def of_gpu(self, gpu: int) -> Trace:
        """Return the trace of one GPU: its lanes and those of the host, at the same times.

        Copies from another GPU are on a lane of their own, such as ``"GPU 1 from GPU 0"``. Calls that launched work of other GPUs, and
        threads that launched nothing else, are left out, and so are waits for other GPUs.

        Parameters
        ----------
        gpu : int
            One of `gpus`.

        Raises
        ------
        TraceError
            No lane is of this GPU.

        Examples
        --------
        >>> from streamscope.trace import DeviceInfo, SpanTable, Trace, TraceInfo
        >>> spans = SpanTable.of(("launch", "a", "host", 0, 2, 0), ("launch", "b", "host", 2, 4, 1), ("kernel", "a", "main", 5, 25, 0),
        ...                      ("kernel", "b", "GPU 1 main", 6, 26, 1), gpus={"main": 0, "GPU 1 main": 1})
        >>> trace = Trace(spans, TraceInfo("async", "step", DeviceInfo("cuda", "2 × NVIDIA H100")))
        >>> trace.gpus, trace.of_gpu(1).spans.lanes, len(trace.of_gpu(1).spans)
        ((0, 1), ('host', 'GPU 1 main'), 2)
        """
        from streamscope.trace.one_gpu import trace_of_gpu

        return trace_of_gpu(self, gpu)

    def with_note(
        self, text: str, at_us: float | None = None, until_us: float | None = None, *, lane: str = "", span: int | None = None
    ) -> Self:
        """Return the trace with one more note of yours, which reports, pictures and files then have.

        Notes are numbered: those on the whole trace first, then by time.

        Parameters
        ----------
        text : str
            At most 2,000 characters; line breaks become spaces.
        at_us, until_us : float, optional
            Moment or stretch on the time axis of the trace, in µs. Without them, the note is on the whole trace.
        lane : str, optional
            Name of the lane that is meant.
        span : int, optional
            Row of a span, instead of times and lane: the note is on its stretch and its lane.

        Raises
        ------
        TraceError
            A time is outside of the trace or no number, the stretch ends before it begins, there is no such lane or span, the text is
            empty or too long, or the trace has 1,000 notes already.

        Examples
        --------
        >>> function, inputs = ss.workload("branches").build()
        >>> trace = ss.compare(function, *inputs, engines=["async"], device="simulated", progress=False)["async"].trace
        >>> trace = trace.with_note("before the fix").with_note("launches fall behind here", 20, 45.5, lane="host")
        >>> [(note.when, note.lane, note.text) for note in trace.user_notes]
        [('', '', 'before the fix'), ('20 µs to 45.5 µs', 'host', 'launches fall behind here')]
        """
        return replace(self, user_notes=(*self.user_notes, note_on(self.spans, self._extent_ns(), text, at_us, until_us, lane, span)))

    def without_note(self, number: int) -> Self:
        """Return the trace without the note of this number, which counts from 1.

        Raises
        ------
        TraceError
            There is no such note.

        Examples
        --------
        >>> function, inputs = ss.workload("branches").build()
        >>> trace = ss.compare(function, *inputs, engines=["async"], device="simulated", progress=False)["async"].trace
        >>> trace.with_note("before the fix").without_note(1) == trace
        True
        """
        return replace(self, user_notes=without_note(self.user_notes, number))

    def save_notes(self, path: str | Path) -> Path:
        """Write your notes beside the file that the trace was read from, and return the path: ``step.json.notes.json`` for ``step.json``.

        `ss.read` of that file then has them. They replace those that were there. Parquet of ours needs no such file: `to_parquet` keeps
        them.

        Parameters
        ----------
        path : str or Path
            The file of the trace. Its size and its first and last bytes are kept, so that notes never attach to another one.

        Raises
        ------
        OutputError
            There is no such file, it is Parquet of ours, the notes there are on another one, or the trace is of one GPU of several.

        Examples
        --------
        >>> function, inputs = ss.workload("branches").build()
        >>> runs = ss.compare(function, *inputs, engines=["async"], device="simulated", progress=False)
        >>> path = runs["async"].trace.to_kineto("step.json")  # or any file of PyTorch's profiler
        >>> ss.read(path).with_note("launches fall behind here", 20, 45.5).save_notes(path).name
        'step.json.notes.json'
        >>> ss.read(path).user_notes[0].text
        'launches fall behind here'
        """
        target = given_path(path, error=OutputError)
        return written("notes", self, target.with_name(target.name + NOTES_SUFFIX))

    def _extent_ns(self) -> tuple[int, int]:
        """Return the first and the last time of the trace, its zero among them."""
        moments = (self.counters.time_ns, self.markers.time_ns)
        first = min(int(times_ns.min(initial=0)) for times_ns in (self.spans.start_ns, *moments))
        return first, max(int(times_ns.max(initial=0)) for times_ns in (self.spans.end_ns, *moments))

    def timeline(self, by: Literal["stream", "multiprocessor"] = "stream") -> Timeline:
        """Return the live timeline of this trace, as a notebook widget.

        Parameters
        ----------
        by : {"stream", "multiprocessor"}
            Lanes: each stream; or each multiprocessor, too, with the blocks that it ran, below the streams and on the same axis.

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
        return views.timeline(self, by)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Say where the columns are: functions of `ss.analysis` that take spans were given a trace."""
            if name in COLUMN_DTYPES or (hasattr(SpanTable, name) and not name.startswith("_")):
                raise TraceError(f"the spans of a trace have {name!r}, not the trace itself", hint="pass trace.spans")
            hint = "ss.analysis.summary(trace) measures it" if name in ("metrics", "summary") else None
            if name in ("kernel", "without", "fused"):
                hint = f"ss.what_if(trace).{name} is there"
            raise unknown_attribute(self, name, hint)

    def __repr__(self) -> str:
        spans, gpus = counted(len(self.spans), "span"), f" of {len(self.gpus)} GPUs" if len(self.gpus) > 1 else ""
        return f"<Trace of {self.info.program!r:.80}, {self.info.engine!r:.40}: {spans}{gpus} on {self.info.device.name!r:.80}>"

    def writers(self) -> dict[str, Callable[[Path], Path]]:
        """Return the functions that write the trace, each by the suffix of its files."""
        found = super().writers() | {".csv": self.to_csv}
        for suffix, each in writers().items():
            found[suffix] = partial(written, each.name, self)
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return where the trace comes from and the number of spans of each kind, as JSON values; `to_pandas` has the spans.

        Examples
        --------
        >>> function, inputs = ss.workload("branches").build()
        >>> runs = ss.compare(function, *inputs, engines=["async"], device="simulated", progress=False)
        >>> runs["async"].trace.to_dict()["spans"]
        {'launch': 35, 'sync': 1, 'kernel': 35}
        """
        spans, info = self.spans, self.info
        device = {"kind": info.device.kind, "name": info.device.name, "details": info.device.details}
        counts = {kind.name.lower(): int((spans.kind == kind).sum()) for kind in SpanKind}
        found: dict[str, Any] = plain(
            {
                "program": info.program,
                "engine": info.engine,
                "device": device,
                "recorder": info.recorder,
                **info.job,
                "created": info.created,
                "versions": info.versions,
                "notes": info.notes,
                "lanes": spans.lanes,
                "gpus": self.gpus,
                "spans": {kind: count for kind, count in counts.items() if count},
                "end_ns": int(spans.end_ns.max(initial=0)),
                "user_notes": [note.to_dict() for note in self.user_notes],
            }
        )
        return found

    def to_pandas(self) -> pd.DataFrame:
        """Return the spans as a DataFrame; ``attrs["info"]`` holds the `TraceInfo`.

        Examples
        --------
        >>> from streamscope.trace import DeviceInfo, SpanTable, Trace, TraceInfo
        >>> spans = SpanTable.of(("launch", "a", "host", 0, 3_000, 0), ("kernel", "a", "main", 5_000, 25_000, 0))
        >>> trace = Trace(spans, TraceInfo("async", "step", DeviceInfo("cuda", "NVIDIA H200")))
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
        return written("parquet", self, given_path(path, error=OutputError))

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
        return written("kineto", self, given_path(path, error=OutputError))

    def to_perfetto(self, path: str | Path) -> Path:
        """Write the trace as Perfetto's own protobuf, by way of a temporary name, and return its path.

        Work on the GPU is on tracks of its own, with arrows from its launch and from awaited events. Perfetto's UI
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
        return written("perfetto", self, given_path(path, error=OutputError))

    @classmethod
    def from_spans(cls, spans: Any, *, program: str = "spans", device: str | DeviceInfo = "GPU") -> Trace:
        """Make a trace of spans of your own: of a simulator, a log, or a profiler whose files Streamscope does not read.

        Parameters
        ----------
        spans : DataFrame, mapping, or iterable
            A DataFrame or a dict of columns; or rows, each a dict of the same keys or a tuple ``(name, stream, start_ns, end_ns)``.
            Columns, each with a value for each span, in any order of rows:

            - ``name``: a text.
            - ``stream``: the stream, as a whole number or text; of spans on the host, the thread.
            - ``start_us``, and ``end_us`` or ``duration_us``: times on one clock with any zero. The ending says the unit: ``_ns``,
              ``_us``, ``_ms`` or ``_s``.
            - ``kind``, optional: ``"kernel"`` by default; any `SpanKind` in small letters, such as ``"copy"``, ``"launch"``, ``"range"``.
            - ``correlation``, optional: a number that a launch has in common with its work on the device; -1 for none.
            - ``gpu``, optional: number of the GPU of a stream, 0 by default; -1 for a thread.
            - ``blocks``, ``threads``, ``bytes``, ``graph_node``, optional: as in the table of spans.
            - ``lane`` in the place of ``stream``: lanes and times stay as they are, and ``operation``, ``part``, ``basis``, ``flops``
              and ``symbol`` are kept, too. So a table of `to_pandas` comes back as it was, also with fewer rows.
            - Others are left out, and ``info.notes`` name them.
        program : str
            Name of the trace. Of a table of `to_pandas`, that is known, as is the device.
        device : str or DeviceInfo
            The device. Give ``DeviceInfo("simulated", "my model")`` for times that were not measured, which are then labelled. A table of
            `to_pandas` that lost its ``attrs`` needs it: the columns do not say whether times are simulated.

        Returns
        -------
        Trace
            Its zero is the first call or, without calls, the first span. Spans that overlap on one stream get lanes of their own, and
            ``info.notes`` count them.

        Raises
        ------
        TraceError
            A column is missing, nearly has one of these names, or holds something else, such as NaN or dates; a span ends before it
            starts; or nothing ran on a GPU.

        Examples
        --------
        >>> rows = [("load", "copies", 0, 4_000), ("gemm", "compute", 4_000, 9_000), ("load", "copies", 4_000, 8_000)]
        >>> trace = ss.Trace.from_spans(rows, program="my pipeline")
        >>> trace.to_pandas()[["kind", "name", "lane", "start_ns", "end_ns"]]
             kind  name            lane  start_ns  end_ns
        0  kernel  load   stream copies         0    4000
        1  kernel  gemm  stream compute      4000    9000
        2  kernel  load   stream copies      4000    8000
        >>> ss.analysis.overlap_fraction(trace.spans)
        0.444...
        >>> frame = trace.to_pandas()
        >>> gemms = ss.Trace.from_spans(frame[frame["name"] == "gemm"])
        >>> gemms.info.program, gemms.spans.lanes[gemms.spans.lane[0]]
        ('my pipeline', 'stream compute')
        """
        from streamscope.trace.user_spans import trace_of_spans

        return trace_of_spans(spans, program, device)

    @classmethod
    def from_parquet(cls, path: str | Path) -> Trace:
        """Read a file of `to_parquet`.

        Raises
        ------
        TraceError
            The file is missing, truncated, or not a trace of ours.

        Examples
        --------
        >>> from streamscope.trace import DeviceInfo, SpanTable, Trace, TraceInfo
        >>> spans = SpanTable.of(("launch", "a", "host", 0, 3_000, 0), ("kernel", "a", "main", 5_000, 25_000, 0))
        >>> trace = Trace(spans, TraceInfo("async", "step", DeviceInfo("cuda", "NVIDIA H200")))
        >>> read = ss.Trace.from_parquet(trace.to_parquet("step.parquet"))
        >>> read.info == trace.info
        True
        """
        return read_as("parquet", given_path(path, error=TraceError))


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
