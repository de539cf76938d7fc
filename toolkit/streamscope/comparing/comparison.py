"""A comparison of engines: runs, metrics, a verdict; shown, saved and read back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from streamscope.analysis.gpus import compared_gpu
from streamscope.analysis.json_lines import json_lines
from streamscope.analysis.metric import ENGINE, metrics_of
from streamscope.analysis.metrics import EngineMetrics, measure
from streamscope.analysis.neighbours import net_overlap_ns
from streamscope.analysis.table import EngineTable, markdown_rows, metrics_markdown, metrics_text
from streamscope.analysis.traits import streams_words
from streamscope.analysis.verdict import NUMPY, Verdict, against, assess, reference_of
from streamscope.arguments import Kinds, check_kinds, given_path, shown
from streamscope.comparing.comparison_folder import FILE_NAME, TRACES, older_traces, read_trace, trace_name, write_trace
from streamscope.engine_entry import ENGINES
from streamscope.errors import EngineError, OutputError, TraceError, printable
from streamscope.files import filled_whole, written_whole
from streamscope.program.foreign import CaptureInfo
from streamscope.results import views
from streamscope.results.result import Result
from streamscope.results.widgets import Timeline
from streamscope.trace.counters import ENGINE_NOTE_HEADS, Note, note_rows, sorted_notes, without_note
from streamscope.trace.file_checks import (
    AMOUNT,
    COUNTS,
    MOST_JSON_BYTES,
    REPEATS,
    TEXT,
    VERSIONS,
    checked_content,
    is_tuple_of_texts,
    opened,
    optional,
    parsed,
    plain,
    with_digest,
)
from streamscope.trace.info import DeviceInfo
from streamscope.trace.span_files import write_spans
from streamscope.trace.trace import TimelineGroup, Trace
from streamscope.words import aligned, counted, time_text

if TYPE_CHECKING:
    import pandas as pd

ALL = "all"
"""In a table of notes, the engine of those on the whole comparison."""
"""Engine of a note on the comparison as a whole, and time of one on a whole trace."""


@dataclass(frozen=True)
class Run:
    """One engine's part of a comparison.

    Attributes
    ----------
    engine : str
    makespans_ns : float array
        Makespan of each repeat without recording, in ns: from the first call until the host knows that all is done.
    max_abs_error : float
        How far the results are from those of `Comparison.checked_against`, in the element that uses most of what is allowed; NaN where
        there is nothing to compare with.
    tolerance : float
        What was allowed there or, where all is equal, the most that was allowed anywhere. For generated kernels it is what rounding
        explains, element by element; behind matrix products, convolutions and code of the user's own, a share of the largest value.
    trace : Trace
        One recorded run.
    gpu : int or None
        Which GPU its metrics are of, where there are several: a comparison takes the same one for each engine.
    """

    engine: str
    makespans_ns: npt.NDArray[np.float64]
    max_abs_error: float
    tolerance: float
    trace: Trace
    gpu: int | None = None

    @property
    def correct(self) -> bool:
        """Whether the results are those of `Comparison.checked_against` within the tolerance; true where nothing was compared."""
        return bool(np.isnan(self.tolerance) or self.max_abs_error <= self.tolerance)

    def __repr__(self) -> str:
        return f"Run({self.engine!r}, {time_text(self.metrics.makespan_us * 1e3)}, {counted(len(self.trace.spans), 'span')})"

    @cached_property
    def metrics(self) -> EngineMetrics:
        """The run's metrics."""
        return measure(self.trace, self.makespans_ns, gpu=self.gpu)


class NotComparedError(EngineError, KeyError):
    """An engine that a comparison does not have."""


class Comparison(Mapping[str, Run], Result):
    """Result of `compare`: a `Run` for each engine, by name.

    Displayed in a notebook, it shows the verdict, the metrics and a static picture, which survive closing and opening the notebook.

    Attributes
    ----------
    program : str
    device : DeviceInfo
    settings : mapping of str to int
        What the program was made with, where that is known: the settings of a workload.
    checked_against : str
        What the results were compared with: ``"the plain function"``, which is your function called with NumPy arrays; ``"NumPy"``, which
        is the traced program run in NumPy; or ``"a plain call"`` of captured code.
    why_not_function : str
        Why the results were compared with the traced program only: what your function does; empty where they were compared with it.
    not_checked : tuple of str
        Outputs that could not be compared with anything, where others were.
    capture : CaptureInfo, optional
        Of captured code: where it was captured, what there is to gain, what is certified.
    gpu : int or None
        Which GPU the metrics of one GPU are of, under each engine: of several, the one with the most work, without waiting.
    user_notes : tuple of Note
        Your notes on the comparison as a whole; those on an engine's time axis are its trace's.

    Examples
    --------
    >>> function, inputs = ss.workload("elementwise-chain").build(length=10)
    >>> runs = ss.compare(function, *inputs, engines="async,graph", device="simulated", progress=False)
    >>> runs["graph"].metrics.makespan_us < runs["async"].metrics.makespan_us
    True
    >>> runs.assessment.bottleneck
    'launch-bound'
    """

    view = "comparison"
    renamed: ClassVar[Mapping[str, str]] = {
        "to_json": "to_dict()",
        "spans": 'save("spans.csv"), or runs["graph"].trace.spans for the spans of one engine',
    }

    def __init__(
        self,
        program: str,
        device: DeviceInfo,
        runs: Sequence[Run],
        *,
        settings: Mapping[str, int] | None = None,
        checked_against: str = NUMPY,
        why_not_function: str = "",
        not_checked: Sequence[str] = (),
        capture: CaptureInfo | None = None,
        user_notes: Sequence[Note] = (),
    ) -> None:
        self.program = program
        self.device = device
        self.settings = dict(settings or {})
        self.checked_against = checked_against
        self.why_not_function = why_not_function
        self.not_checked = tuple(not_checked)
        self.capture = capture
        self.user_notes = sorted_notes(user_notes)
        self.gpu = compared_gpu([run.trace for run in runs])
        self._runs = {run.engine: run if run.gpu == self.gpu else replace(run, gpu=self.gpu) for run in runs}

    def __getitem__(self, engine: str) -> Run:
        try:
            return self._runs[engine]
        except (KeyError, TypeError):  # TypeError: a list or the like, which can be no key.
            raise NotComparedError(f"engine {shown(engine)} was not compared", hint=f"compared were {', '.join(self._runs)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def title(self) -> str:
        """The program and, if there are several, the number of GPUs that it runs on."""
        gpus = max((len(run.trace.gpus) for run in self._runs.values()), default=1)
        return f"{self.program} over {gpus} GPUs" if gpus > 1 else self.program

    @cached_property
    def metrics(self) -> EngineTable:
        """Metrics of each engine by its name; the net overlap rests on an engine without any, where one ran."""
        found = EngineTable({engine: run.metrics for engine, run in self._runs.items()})
        found.wrong = tuple(engine for engine, run in self._runs.items() if not run.correct)
        source = next((engine for engine in found if engine in ENGINES and ENGINES[engine].waits), None)
        if source is not None:
            for engine, metrics in found.items():
                net_ns = net_overlap_ns(self._runs[engine].trace, self._runs[source].trace)
                found[engine] = metrics if net_ns is None else replace(metrics, net_overlap_us=net_ns / 1000)
        return found

    @cached_property
    def assessment(self) -> Verdict:
        """The verdict as data, with its evidence."""
        streams = {engine: streams_words(run.trace.info.plan) for engine, run in self._runs.items()}
        return replace(
            assess(self.metrics, self.device, streams, self.metrics.wrong),
            checked=any(not np.isnan(run.tolerance) for run in self._runs.values()),
            not_checked=self.not_checked,
            checked_against=self.checked_against,
            why_not_function=self.why_not_function,
        )

    @property
    def verdict(self) -> str:
        """The verdict in plain words; wrong results come first."""
        return self.assessment.text

    def with_note(
        self,
        text: str,
        engine: str | None = None,
        at_us: float | None = None,
        until_us: float | None = None,
        *,
        lane: str = "",
        span: int | None = None,
    ) -> Comparison:
        """Return the comparison with one more note of yours: on the whole or, with ``engine``, on its trace.

        Reports, pictures and saved folders have it.

        Parameters
        ----------
        text : str
            At most 2,000 characters; line breaks become spaces.
        engine : str, optional
            Whose time axis is meant. Without it, the note is on the comparison as a whole.
        at_us, until_us, lane, span
            As `Trace.with_note` takes them.

        Raises
        ------
        TraceError
            `Trace.with_note` refuses it, or there is a time, lane or span without an engine.
        NotComparedError
            There is no such engine.

        Examples
        --------
        >>> function, inputs = ss.workload("branches").build()
        >>> runs = ss.compare(function, *inputs, engines="async,graph", device="simulated", progress=False)
        >>> runs = runs.with_note("for Monday's meeting").with_note("one launch for all", "graph", 0, lane="host")
        >>> runs.note_rows()
        [('1', 'all', 'all', '', "for Monday's meeting"), ('1', 'graph', '0 µs', 'host', 'one launch for all')]
        """
        if engine is not None:
            run = self[engine]
            noted = replace(run, trace=run.trace.with_note(text, at_us, until_us, lane=lane, span=span))
            return self._with_notes(self.user_notes, {engine: noted})
        if at_us is not None or until_us is not None or lane or span is not None:
            raise TraceError("a note on a time, a lane or a span needs an engine", hint=f"engine={next(iter(self._runs))!r}")
        return self._with_notes((*self.user_notes, Note.of(text)), {})

    def without_note(self, number: int, engine: str | None = None) -> Comparison:
        """Return the comparison without the note of this number, of those on the whole or on an engine's trace.

        Raises
        ------
        TraceError
            There is no such note.
        NotComparedError
            There is no such engine.
        """
        if engine is None:
            if not self.user_notes and (noted := next((engine for engine, notes in self._notes() if notes), None)):
                raise TraceError("there is no note on the whole comparison", hint=f"those on engines need theirs, engine={noted!r}")
            return self._with_notes(without_note(self.user_notes, number), {})
        run = self[engine]
        return self._with_notes(self.user_notes, {engine: replace(run, trace=run.trace.without_note(number))})

    def _with_notes(self, user_notes: Sequence[Note], noted: Mapping[str, Run]) -> Comparison:
        return Comparison(
            self.program,
            self.device,
            [noted.get(engine, run) for engine, run in self._runs.items()],
            settings=self.settings,
            checked_against=self.checked_against,
            why_not_function=self.why_not_function,
            not_checked=self.not_checked,
            capture=self.capture,
            user_notes=user_notes,
        )

    def _notes(self) -> Iterator[tuple[str | None, tuple[Note, ...]]]:
        """Yield the notes on the whole, and those of each engine."""
        yield None, self.user_notes
        yield from ((engine, run.trace.user_notes) for engine, run in self._runs.items())

    def note_rows(self) -> list[tuple[str, ...]]:
        """Return all notes as text, in the order of `ENGINE_NOTE_HEADS`: each engine's are numbered as in its picture."""
        rows = ((engine or ALL, row) for engine, notes in self._notes() for row in note_rows(notes, whole=ALL))
        return [(number, engine, *others) for engine, (number, *others) in rows]

    def to_pandas(self) -> pd.DataFrame:
        """Return the metrics as a DataFrame, one row an engine."""
        import pandas as pd

        fields = [asdict(each) for each in self.metrics.values()]
        rows = [each.pop("added") | each for each in fields]  # A guest replaces no field of ours.
        return pd.DataFrame(rows).set_index("engine")

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as JSON values, as ``streamscope compare --json`` prints it; NaN and unknown values become null."""
        engines = {}
        for engine, run in self._runs.items():
            m, plan = run.metrics, run.trace.info.plan
            engines[engine] = {
                "makespan_us": {"median": m.makespan_us, "low": m.makespan_low_us, "high": m.makespan_high_us},
                **{metric.name: m.value(metric.name) for metric in metrics_of(ENGINE) if metric.name != "makespan_us"},
                **({"awaited": m.awaited} if m.awaited else {}),
                "streams": plan.get("streams"),
                "events": plan.get("events"),
                "waits": plan.get("waits"),
                "memory": run.trace.info.memory,
                "max_abs_error": run.max_abs_error,
                "tolerance": run.tolerance,
                "repeats": m.repeats,
                "flags": list(m.flags),
                **({"gpu_busy_error_us": m.gpu_busy_error_us} if m.gpu_busy_error_us is not None else {}),
                **({"overlap_error": m.overlap_error} if m.overlap_error is not None else {}),
            }
        device = {"kind": self.device.kind, "name": self.device.name, "details": self.device.details}
        content: dict[str, Any] = {"workload": self.program, "settings": self.settings, "device": device, "engines": engines}
        content["verdict"] = self.verdict
        if self.gpu is not None:
            content["gpu"] = self.gpu
        content["checked_against"] = self.checked_against
        if self.why_not_function:
            content["why_not_function"] = self.why_not_function
        if self.not_checked:
            content["not_checked"] = self.not_checked
        if self.capture is not None:
            content["capture"] = self.capture.to_dict()
        if notes := [{"engine": engine, **note.to_dict()} for engine, found in self._notes() for note in found]:
            content["user_notes"] = notes
        found: dict[str, Any] = plain(content)
        return found

    def groups(self) -> list[TimelineGroup]:
        """Return the traces with their makespans, as the timeline draws them."""
        wrong = self.metrics.wrong
        base = reference_of(self.metrics, wrong)
        words = {engine: against(self.metrics, engine, base, wrong) for engine in self._runs}
        return [
            TimelineGroup(
                run.trace,
                run.metrics.makespan_us * 1e3,
                comparison=f"{words[engine]} (against {base})" if words[engine] and engine not in wrong else words[engine],
            )
            for engine, run in self._runs.items()
        ]

    def timeline(self) -> Timeline:
        """Return the live timelines of all engines on one time axis (a notebook widget)."""
        return views.timeline(self)

    def save(self, path: str | Path) -> Path:
        """Write the comparison to one file or, where the path has no suffix, into a folder; return the path.

        The folder gets ``comparison.json`` and a Parquet trace for each engine, and `load_comparison` reads them. A comparison of ours in
        it is replaced, all at once. Other files stay.

        Parameters
        ----------
        path : str or Path
            A folder, or a file whose suffix says the form: ``.html``, ``.pdf``, ``.md`` (as `report`), ``.json`` (`to_dict`), ``.svg``,
            ``.png`` (as `picture`), ``.csv`` or ``.parquet``: the spans of all engines, with columns for the engine and the device; or
            ``.jsonl``: the metrics of all engines' traces.

        Raises
        ------
        OutputError
            The file or folder cannot be written, its suffix is another, the folder's ``comparison.json`` is not ours, or the name of an
            engine cannot be a file's.

        Examples
        --------
        >>> function, inputs = ss.workload("branches").build()
        >>> runs = ss.compare(function, *inputs, engines="async,graph", device="simulated", progress=False)
        >>> runs.save("spans.csv").read_text().splitlines()[1]
        '"async","simulated NVIDIA H200","launch",...'
        >>> ss.load_comparison(runs.save("runs"))["graph"].metrics.kernel_count
        35
        """
        target = given_path(path, error=OutputError)
        return super().save(target) if target.suffix and not target.is_dir() else self.save_folder(target)

    def save_folder(self, folder: str | Path) -> Path:
        """Write a folder as `save` does, whatever its name."""
        target = given_path(folder, error=OutputError)
        with filled_whole(target, last=FILE_NAME, older=older_traces) as unfinished:
            write_files(self, unfinished)
        return target

    def writers(self) -> dict[str, Callable[[Path], Path]]:
        """Return the functions that write the comparison, each by the suffix of its files."""
        return super().writers() | dict.fromkeys((".csv", ".parquet"), self._save_spans) | {".jsonl": self._save_lines}

    def _save_spans(self, path: Path) -> Path:
        return write_spans([run.trace for run in self._runs.values()], path)

    def _save_lines(self, path: Path) -> Path:
        with written_whole(path) as unfinished:
            unfinished.write_text("".join(json_lines(run.trace) for run in self._runs.values()), encoding="utf-8")
        return path

    def _markdown(self) -> str:
        text, rows = metrics_markdown(self.program, self.device, self.metrics, self.assessment), self.note_rows()
        return printable("\n".join([text, *markdown_rows(ENGINE_NOTE_HEADS, rows, words=len(ENGINE_NOTE_HEADS)), ""])) if rows else text

    def __str__(self) -> str:
        text, rows = metrics_text(self.title, self.device, self.metrics, self.assessment), self.note_rows()
        return printable("\n".join([text, "", *aligned([ENGINE_NOTE_HEADS, *rows])])) if rows else text

    __repr__ = __str__


def write_files(comparison: Comparison, folder: Path) -> None:
    """Write the files of `Comparison.save` into an empty folder, one by one: to show all or none of them is the caller's part."""
    traces = {engine: write_trace(run.trace, engine, folder) for engine, run in comparison.items()}
    makespans_ns = {engine: run.makespans_ns.tolist() for engine, run in comparison.items()}
    content = with_digest(comparison.to_dict() | {"makespans_ns": makespans_ns, TRACES: traces})
    (folder / FILE_NAME).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


_RANKS = "ranks.json"
"""In the folder that `Job.save` writes; the package of jobs stands above this one."""


def load_comparison(folder: str | Path) -> Comparison:
    """Read a saved comparison, for example a recording made on a GPU elsewhere.

    Raises
    ------
    TraceError
        A file is missing or broken, or a trace is not the one that was saved with the comparison.

    Examples
    --------
    >>> runs = ss.compare(lambda x: x + x, np.ones(4, np.float32), engines="sync", device="simulated", progress=False)
    >>> folder = runs.save("doubled")
    >>> ss.load_comparison(folder)["sync"].metrics.kernel_count
    1
    """
    path = given_path(folder, error=TraceError)
    path = path if path.name == FILE_NAME else path / FILE_NAME
    try:
        with opened(path, MOST_JSON_BYTES) as file:
            text = file.read(MOST_JSON_BYTES)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and path.with_name(_RANKS).is_file():
            hint = f"ss.read_ranks reads it; in a terminal, streamscope ranks {path.parent} --save report.html writes a report"
            raise TraceError(f"{str(path.parent)!r} is the folder of a job of several ranks, not of a comparison", hint=hint) from error
        raise TraceError(f"cannot read {path}: {error.strerror or error}", hint="give the folder that save() wrote") from error
    try:
        content = checked_content(parsed(text))
        workload, settings, stored, engines = content["workload"], content["settings"], content["device"], content["engines"]
        against, missed, traces = content["checked_against"], content.get("not_checked", []), content[TRACES]
        why_not = content.get("why_not_function", "")
        check_kinds("comparison", _DESCRIBED, workload, settings, against, why_not, missed, traces, stored, engines, error=TraceError)
        device = DeviceInfo(stored["kind"], stored["name"], stored["details"])
        measured = {engine: _measured(content, engine) for engine in engines}
        for engine in measured:
            trace_name(engine, traces[engine])  # Neither leads to another folder.
        capture = CaptureInfo.from_dict(content["capture"]) if content.get("capture") is not None else None
        # Those of engines are in their traces, exact to the ns.
        notes = [Note(stored["text"]) for stored in content.get("user_notes", ()) if stored["engine"] is None]
    except (TraceError, ValueError, KeyError, TypeError, RecursionError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise TraceError(f"{path} is not a comparison of ours: {reason}", hint="give the folder that save() wrote") from error
    runs = [Run(engine, *numbers, read_trace(path, engine, traces[engine], device)) for engine, numbers in measured.items()]
    return Comparison(
        workload,
        device,
        runs,
        settings=settings,
        checked_against=against,
        why_not_function=why_not,
        not_checked=missed,
        capture=capture,
        user_notes=notes,
    )


def _measured(content: Mapping[str, Any], engine: str) -> tuple[npt.NDArray[np.float64], float, float]:
    """Read an engine's stored values beside its trace: makespans, error and tolerance."""
    values, makespans_ns = content["engines"][engine], content["makespans_ns"][engine]
    check_kinds(engine, _MEASURED, makespans_ns, values["max_abs_error"], values["tolerance"], error=TraceError)
    return np.asarray(makespans_ns, np.float64), _number(values["max_abs_error"]), _number(values["tolerance"])


_DESCRIBED: Kinds = {
    "workload": TEXT,
    "settings": COUNTS,
    "checked_against": TEXT,
    "why_not_function": TEXT,
    "not_checked": (lambda value: isinstance(value, list) and is_tuple_of_texts(tuple(value)), "a list of texts"),
    "traces": VERSIONS,
    "device": (lambda value: isinstance(value, dict), "a mapping"),
    "engines": (lambda value: isinstance(value, dict) and value, "a mapping with an engine at least"),
}
_MEASURED: Kinds = {"makespans_ns": REPEATS, "max_abs_error": optional(AMOUNT), "tolerance": optional(AMOUNT)}


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)
