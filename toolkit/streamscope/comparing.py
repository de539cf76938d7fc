"""Comparing engines: one program under each of them, interleaved, checked, timed and recorded."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.capturing.function import CapturedFunction
from streamscope.comparison import Comparison, Run
from streamscope.devices import open_device
from streamscope.devices.protocol import Device
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engines import engine_names
from streamscope.engines.lanes import checked_streams
from streamscope.engines.prepared import Prepared, host_array, prepare
from streamscope.errors import EngineError, ProgramError
from streamscope.program.operation import Program
from streamscope.program.reference import has_reference, run_reference
from streamscope.program.tracing import ProgramFunction
from streamscope.recording.device_log import DeviceLogRecorder
from streamscope.recording.events import EventRecorder

Array = npt.NDArray[Any]

RELATIVE_TOLERANCE = {"float16": 2e-2, "float32": 2e-3, "float64": 1e-9}
"""Allowed error of an output, as a share of its largest reference value. For float32 it is that of TF32, which cuDNN uses; other kernels
are far below it. Whole numbers must be equal."""

SIMULATED_REPEATS = 3
"""A simulated device repeats itself to the nanosecond, so more would show nothing."""

Progress = Callable[[str, int, int], None]
"""``progress(what, step, steps)``"""


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
