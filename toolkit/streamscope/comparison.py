"""Comparing engines: one program under each of them, interleaved, checked, timed and recorded."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from streamscope.analysis.metrics import EngineMetrics, measure
from streamscope.analysis.verdict import Verdict, assess, difference, reference_engine
from streamscope.capturing.function import CapturedFunction
from streamscope.devices import open_device
from streamscope.devices.protocol import Device
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engines import engine_names
from streamscope.engines.lanes import checked_streams
from streamscope.engines.prepared import Prepared, host_array, prepare
from streamscope.errors import EngineError, ProgramError, TraceError
from streamscope.files import writable_folder, written_whole
from streamscope.program.operation import Program
from streamscope.program.reference import has_reference, run_reference
from streamscope.program.tracing import ProgramFunction
from streamscope.recording.device_log import DeviceLogRecorder
from streamscope.recording.events import EventRecorder
from streamscope.trace.trace import DeviceInfo, Trace

if TYPE_CHECKING:
    import pandas as pd

    from streamscope_widgets.payload import TimelineGroup
    from streamscope_widgets.timeline import TimelineWidget

Array = npt.NDArray[Any]

RELATIVE_TOLERANCE = {"float16": 2e-2, "float32": 2e-3, "float64": 1e-9}
"""Allowed error of an output, as a share of its largest reference value. For float32 it is that of TF32, which cuDNN uses; other kernels
are far below it. Whole numbers must be equal."""

SIMULATED_REPEATS = 3
"""A simulated device repeats itself to the nanosecond, so more would show nothing."""

Progress = Callable[[str, int, int], None]
"""``progress(what, step, steps)``"""


@dataclass(frozen=True)
class Run:
    """One engine's part of a comparison.

    Attributes
    ----------
    engine : str
    makespans_ns : float array
        Makespan of each repeat without recording, in ns: from the first call until the host knows that all is done.
    max_abs_error : float
        Largest difference of an output from the NumPy reference; NaN where there is no reference.
    tolerance : float
        What was allowed.
    trace : Trace
        One recorded run.
    """

    engine: str
    makespans_ns: npt.NDArray[np.float64]
    max_abs_error: float
    tolerance: float
    trace: Trace

    @property
    def correct(self) -> bool:
        """Whether the results equal the reference within the tolerance; true where there is none to compare with."""
        return bool(np.isnan(self.tolerance) or self.max_abs_error <= self.tolerance)

    def __repr__(self) -> str:
        return f"Run({self.engine!r}, {self.metrics.makespan_us:.4g} µs, {len(self.trace.spans)} spans)"

    @cached_property
    def metrics(self) -> EngineMetrics:
        """The run's metrics."""
        return measure(self.trace, self.makespans_ns)


class NotComparedError(EngineError, KeyError):
    """An engine that a comparison does not have."""


class Comparison(Mapping[str, Run]):
    """What `compare` found: a `Run` for each engine, by name.

    Displayed in a notebook, it shows the verdict, the metrics and a static picture, which survive closing and opening the notebook.
    """

    def __init__(self, program: str, device: DeviceInfo, runs: Sequence[Run]) -> None:
        self.program = program
        self.device = device
        self._runs = {run.engine: run for run in runs}

    def __getitem__(self, engine: str) -> Run:
        try:
            return self._runs[engine]
        except KeyError:
            raise NotComparedError(f"engine {engine!r} was not compared", hint=f"compared were {', '.join(self._runs)}") from None

    def __contains__(self, engine: object) -> bool:
        return engine in self._runs

    def __iter__(self) -> Iterator[str]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    @cached_property
    def metrics(self) -> dict[str, EngineMetrics]:
        """Metrics of each engine."""
        return {engine: run.metrics for engine, run in self._runs.items()}

    @cached_property
    def assessment(self) -> Verdict:
        """The verdict with what it rests on."""
        return assess(self.metrics, self.device)

    @property
    def verdict(self) -> str:
        """The verdict in plain words; wrong results come first."""
        wrong = [engine for engine, run in self._runs.items() if not run.correct]
        if not wrong:
            return self.assessment.text
        return f"RESULTS ARE WRONG under {', '.join(wrong)}: further from the NumPy reference than allowed. {self.assessment.text}"

    def to_pandas(self) -> pd.DataFrame:
        """Return the metrics as a DataFrame, one row an engine."""
        import pandas as pd

        return pd.DataFrame([asdict(metrics) for metrics in self.metrics.values()]).set_index("engine")

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as JSON values, as ``streamscope compare --json`` prints it; NaN and what is not known become null."""
        engines = {}
        for engine, run in self._runs.items():
            m, plan = run.metrics, run.trace.info.plan
            engines[engine] = {
                "makespan_us": {"median": m.makespan_us, "low": m.makespan_low_us, "high": m.makespan_high_us},
                "gpu_busy_us": m.gpu_busy_us,
                "idle_us": m.idle_us,
                "overlap": m.overlap,
                "kernel_count": m.kernel_count,
                "streams": plan.get("streams"),
                "events": plan.get("events"),
                "waits": plan.get("waits"),
                "launch_latency_us": m.launch_latency_us,
                "api_time_us": m.api_time_us,
                "max_abs_error": _finite(run.max_abs_error),
                "tolerance": _finite(run.tolerance),
                "repeats": m.repeats,
                "recording_cost": m.recording_cost,
                "flags": list(m.flags),
            }
        device = {"kind": self.device.kind, "name": self.device.name, "details": dict(self.device.details)}
        return {"workload": self.program, "device": device, "engines": engines, "verdict": self.verdict}

    def groups(self) -> list[TimelineGroup]:
        """Return the traces with their makespans, as the timeline draws them."""
        from streamscope_widgets.payload import TimelineGroup

        base = reference_engine(self.metrics)
        return [
            TimelineGroup(
                run.trace,
                run.metrics.makespan_us * 1e3,
                comparison="" if engine == base else f"{difference(run.metrics, self.metrics[base])} (against {base})",
            )
            for engine, run in self._runs.items()
        ]

    def timeline(self) -> TimelineWidget:
        """Return the live timelines of all engines on one time axis (a notebook widget)."""
        from streamscope_widgets.timeline import timeline

        return timeline(self.groups())

    def report(self, path: str | Path) -> Path:
        """Write one HTML file with verdict, metrics, charts and the live timeline; it needs no network. Return its path.

        Raises
        ------
        OutputError
            The file cannot be written.
        """
        from streamscope_widgets.comparison_report import comparison_report

        return comparison_report(self, Path(path))

    def save(self, folder: str | Path) -> Path:
        """Write ``comparison.json`` and a Parquet trace for each engine into a folder, and return it; `load_comparison` reads them.

        Raises
        ------
        OutputError
            The folder cannot be written.
        """
        target = writable_folder(Path(folder))
        for engine, run in self._runs.items():
            run.trace.to_parquet(target / f"{engine}.parquet")
        content = self.to_json() | {"makespans_ns": {engine: run.makespans_ns.tolist() for engine, run in self._runs.items()}}
        with written_whole(target / "comparison.json") as path:
            path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        return target

    def __str__(self) -> str:
        from streamscope_widgets.summary import summary_text

        return summary_text(self.program, self.device, self.metrics, self.verdict)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from streamscope_widgets.summary import summary_html

        return summary_html(self.program, self.device, self.groups(), self.metrics, self.verdict)


def compare(
    program: ProgramFunction | CapturedFunction,
    *inputs: Any,
    engines: Sequence[str] | str | None = None,
    repeats: int = 30,
    streams: int = 2,
    device: str | Device = "auto",
    progress: bool | Progress = True,
    name: str | None = None,
) -> Comparison:
    """Run one program under several engines and compare them.

    All engines are prepared first (memory, packed arguments, captured graphs); then they take turns, in an order that is shuffled for
    each repeat, so that drifts meet all alike. The repeats run without recording; one more set of runs is recorded.

    Parameters
    ----------
    program : ProgramFunction or CapturedFunction
        Made by ``@ss.program``, or by ``ss.capture``, which takes no inputs.
    *inputs : array
        Arguments of the program: NumPy or CuPy arrays.
    engines : sequence of str, optional
        Which engines; all by default. A string may name several, with commas.
    repeats : int
        Timed runs of each engine; a simulated device, which repeats itself exactly, is run three times at most.
    streams : int
        Compute streams that ``dual`` and ``graph-dual`` may use; they use fewer where more are not expected to pay.
    device : {"auto", "cuda", "simulated"} or Device
    progress : bool or callable
        Show a progress bar, or call ``progress(what, step, steps)``.
    name : str, optional
        What the comparison is called; the program's name by default.

    Raises
    ------
    ProgramError
        The program or its inputs are wrong.
    EngineError
        An engine is unknown, ``repeats`` is not positive, or ``streams`` is out of range.
    DeviceError
        The device is missing, or failed.
    """
    if not isinstance(program, ProgramFunction | CapturedFunction):
        raise ProgramError(f"compare wants a program, not a {type(program).__name__}", hint="decorate the function with @ss.program")
    captured = program if isinstance(program, CapturedFunction) else None
    if captured is not None and inputs:
        raise ProgramError(f"captured {program.name!r} takes no inputs: the capture holds its own", hint="call ss.compare(captured)")
    if not isinstance(repeats, int):
        raise EngineError(f"repeats={repeats!r} is not a whole number")
    if repeats < 1:
        raise EngineError(f"repeats={repeats} is not positive")
    checked_streams(streams)
    names = engine_names(engines)
    traced = program.trace(*inputs)
    arrays = [host_array(value) for value in inputs]
    opened = open_device(device)
    count = min(repeats, SIMULATED_REPEATS) if opened.info.kind == "simulated" else repeats
    with _reporting(2 * len(names) + count, progress=progress) as step:
        reference = _reference(traced, arrays) if captured is None else captured.expected()
        prepared, errors = {}, {}
        for engine in names:
            step(f"preparing {engine}")
            prepared[engine] = _warm(traced, engine, opened, arrays, streams)
            errors[engine] = _error(_outputs(prepared[engine], captured), reference)
        makespans = _repeat(prepared, arrays, count, step)
        recorder = _recorder(opened)
        runs = []
        for engine in names:
            step(f"recording {engine}")
            _load(prepared[engine], arrays)
            trace = recorder.record(prepared[engine], partial(_load, prepared[engine], arrays))
            runs.append(Run(engine, makespans[engine], *errors[engine], trace))
    return Comparison(name or traced.name, opened.info, runs)


def load_comparison(folder: str | Path) -> Comparison:
    """Read what `Comparison.save` wrote, for example a recording made on a GPU elsewhere.

    Raises
    ------
    TraceError
        A file is missing or broken.
    """
    path = Path(folder) / "comparison.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        device = DeviceInfo(content["device"]["kind"], content["device"]["name"], content["device"]["details"])
        runs = [
            Run(
                engine,
                np.asarray(content["makespans_ns"][engine], dtype=np.float64),
                _number(values["max_abs_error"]),
                _number(values["tolerance"]),
                Trace.from_parquet(path.parent / f"{engine}.parquet"),
            )
            for engine, values in content["engines"].items()
        ]
        return Comparison(content["workload"], device, runs)
    except OSError as error:
        raise TraceError(f"cannot read {path}: {error.strerror or error}", hint="give the folder that save() wrote") from error
    except (ValueError, KeyError, TypeError) as error:
        raise TraceError(f"{path} is not a comparison of ours: {error!r}", hint="give the folder that save() wrote") from error


def _warm(program: Program, engine: str, device: Device, inputs: Sequence[Array], streams: int) -> Prepared:
    """Prepare an engine and run it until its graphs are captured and replayed; leaves the results of the program in its outputs."""
    prepared = prepare(program, engine, device, streams=streams)
    for _ in range(3):
        prepared.load(inputs)
        prepared.run()
        prepared.wait()
    return prepared


def _reference(program: Program, inputs: Sequence[Array]) -> list[Array] | None:
    return run_reference(program, inputs) if has_reference(program) else None


def _outputs(prepared: Prepared, captured: CapturedFunction | None) -> list[Array]:
    """Return what the last run left; captured code is run once more, on results that are overwritten first."""
    if captured is None:
        return prepared.outputs()
    captured.clear_outputs()
    prepared.run()
    prepared.wait()
    return captured.outputs()


def _load(prepared: Prepared, inputs: Sequence[Array]) -> None:
    if prepared.program.changes_inputs:
        prepared.load(inputs)


def _repeat(
    prepared: Mapping[str, Prepared], inputs: Sequence[Array], repeats: int, step: Callable[[str], None]
) -> dict[str, npt.NDArray[np.float64]]:
    """Let the engines take turns; return each one's makespans in ns."""
    random = np.random.default_rng(0)
    makespans: dict[str, list[int]] = {name: [] for name in prepared}
    for _ in range(repeats):
        step("timing")
        for name in random.permutation(list(prepared)):
            engine = prepared[str(name)]
            _load(engine, inputs)
            with _no_garbage_collection():
                start = engine.device.now_ns()
                engine.run()
                engine.wait()
                end = engine.device.now_ns()
            makespans[str(name)].append(end - start)
    return {name: np.asarray(values, dtype=np.float64) for name, values in makespans.items()}


def _error(outputs: Sequence[Array], reference: Sequence[Array] | None) -> tuple[float, float]:
    """Return the largest absolute error and the tolerance, of the output that uses most of its tolerance."""
    if reference is None:
        return float("nan"), float("nan")
    worst = (0.0, 0.0)
    used = -1.0
    for output, expected in zip(outputs, reference, strict=True):
        if expected.size == 0:
            continue
        with np.errstate(invalid="ignore"):  # Infinity less infinity; see below.
            difference = np.abs(output.astype(np.float64) - expected.astype(np.float64))
        # Equal infinities and NaN where NaN is due are no error; a NaN anywhere else is an infinite one.
        same = (output == expected) | (np.isnan(output.astype(np.float64)) & np.isnan(expected.astype(np.float64)))
        error = float(np.nan_to_num(np.where(same, 0.0, difference), nan=np.inf).max())
        scale = float(np.nanmax(np.abs(np.where(np.isfinite(expected), expected, 0)), initial=0.0))
        tolerance = RELATIVE_TOLERANCE.get(expected.dtype.name, 0.0) * scale
        share = error / tolerance if tolerance > 0 else (np.inf if error > 0 else 0.0)
        if share > used:
            worst, used = (error, tolerance), share
    return worst


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Keep the collector from running inside a timed run."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def _reporting(steps: int, *, progress: bool | Progress) -> Iterator[Callable[[str], None]]:
    """Give a function that says what happens next, to the user's function or to a bar that goes away at the end."""
    done = iter(range(1, steps + 1))
    if progress is False:
        yield lambda what: None
    elif callable(progress):
        yield lambda what: progress(what, next(done), steps)
    elif _in_notebook():
        from streamscope_widgets.progress import notebook_progress

        with notebook_progress() as shown:
            yield lambda what: shown(what, next(done), steps)
    else:
        from rich.console import Console
        from rich.progress import Progress as Bar

        with Bar(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("comparing engines", total=steps)
            yield lambda what: bar.update(task, advance=1, description=what)


def _recorder(device: Device) -> EventRecorder | DeviceLogRecorder:
    return DeviceLogRecorder(device) if isinstance(device, SimulatedDevice) else EventRecorder.on(device)


def _in_notebook() -> bool:
    """Tell whether a Jupyter kernel runs this; Rich's bar would leave a widget there that a reopened notebook cannot show."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)
