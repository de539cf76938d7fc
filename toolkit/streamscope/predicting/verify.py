"""Verifying predictions: every engine predicted from the sync trace alone, then run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.arguments import whole_number
from streamscope.calling import verb
from streamscope.devices import device_for
from streamscope.devices.protocol import Device
from streamscope.engine_entry import ENGINES, WAITING, engine_with
from streamscope.engines.plan import checked_streams
from streamscope.measuring.case import Case, Checked
from streamscope.measuring.elimination import in_turns
from streamscope.measuring.recordings import recorded_traces
from streamscope.predicting.prediction import Prediction, makespan_ns, what_if
from streamscope.program.foreign import ForeignProgram
from streamscope.progress import Progress, Steps, showing
from streamscope.results.result import Result
from streamscope.trace.file_checks import MOST_REPEATS
from streamscope.trace.info import DeviceInfo
from streamscope.trace.spans import DEVICE_KINDS
from streamscope.trace.trace import Trace
from streamscope.tracing import ProgramFunction
from streamscope.words import aligned, format_us

SOURCE = engine_with(WAITING)
"""The engine whose trace is all that predictions see: nothing overlaps in it, so each launch stands for itself."""
SIMULATED_REPEATS = 1
_SAME_MODEL = "Here the prediction is compared with the model that it was made from, so this proves nothing about a GPU."
_RECORDINGS = 5
"""Traces among which a usual one counts: for a tenth of a second, a host may take twice as long for everything."""


@dataclass(frozen=True)
class Verified:
    """One engine, predicted and measured.

    Attributes
    ----------
    engine : str
    prediction : Prediction
    makespans_ns : array of float
        Of its timed runs, in nanoseconds: each the second of its turn.
    first_ns : array of float
        Of the first runs of its turns, which find the caches full of what another engine has used.
    """

    engine: str
    prediction: Prediction
    makespans_ns: npt.NDArray[np.float64]
    first_ns: npt.NDArray[np.float64]

    @property
    def measured_ns(self) -> float:
        """Median makespan of its runs, in nanoseconds."""
        return float(np.median(self.makespans_ns))

    @property
    def error(self) -> float:
        """Predicted over measured, less one: 0.05 where the prediction is 5 % too long."""
        return self.prediction.predicted_ns / self.measured_ns - 1

    def cells(self) -> tuple[str, ...]:
        """Return it as text: engine, both times in µs, and the error."""
        return self.engine, format_us(self.prediction.predicted_ns / 1e3), format_us(self.measured_ns / 1e3), error_text(self.error)


class Verification(Mapping[str, Verified], Result):
    """Result of `ss.verify`: for each engine its prediction and its runs, by name.

    Attributes
    ----------
    program : str
    device : DeviceInfo
    source : Trace
        The sync trace, which is all that the predictions were made from.
    """

    view = "verification"

    def __init__(self, program: str, device: DeviceInfo, source: Trace, engines: Mapping[str, Verified]) -> None:
        self.program = program
        self.device = device
        self.source = source
        self._engines = dict(engines)

    def __getitem__(self, engine: str) -> Verified:
        return self._engines[engine]

    def __iter__(self) -> Iterator[str]:
        return iter(self._engines)

    def __len__(self) -> int:
        return len(self._engines)

    @property
    def median_error(self) -> float:
        """Median of the absolute errors."""
        return float(np.median([abs(each.error) for each in self.values()]))

    @property
    def worst(self) -> Verified:
        """The engine that is furthest from its prediction."""
        return max(self.values(), key=lambda each: abs(each.error))

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values; times in microseconds."""
        return {
            "program": self.program,
            "device": self.device.name,
            "simulated": self.device.simulated,
            "engines": {
                name: {
                    "predicted_us": round(each.prediction.predicted_ns / 1e3, 3),
                    "measured_us": round(each.measured_ns / 1e3, 3),
                    "error": round(each.error, 4),
                    "runs": len(each.makespans_ns),
                }
                for name, each in self.items()
            },
            "median_error": round(self.median_error, 4),
        }

    def __repr__(self) -> str:
        simulated = ", simulated and not measured" if self.device.simulated else ""
        return f"<predictions of {self.program} verified on {self.device.name}{simulated}: {self._headline()}>"

    def __str__(self) -> str:
        rows = [("engine", "predicted µs", ran_heading(self.device), "error"), *(each.cells() for each in self.values())]
        told = f"{self.program} on {self.device.name}: {self._headline()}"
        head = [f"Simulated, not measured: {told}", _SAME_MODEL] if self.device.simulated else [told]
        return "\n".join([*head, *aligned(rows)])

    def _headline(self) -> str:
        return f"predictions are off by {self.median_error:.1%} in the median, {abs(self.worst.error):.1%} at most ({self.worst.engine})"


def ran_heading(device: DeviceInfo) -> str:
    """Title of a column of run times, marked where they are simulated."""
    return "run, simulated µs" if device.simulated else "measured µs"


def error_text(error: float) -> str:
    """Return an error in per cent with its sign, which nothing does not have."""
    text = f"{error:+.1%}"
    return text if text.strip("+-0.%") else "0.0%"


@verb
def verify(
    program: Callable[..., Any] | ProgramFunction | ForeignProgram,
    /,
    *inputs: Any,
    device: str | Device = "auto",
    gpus: int | Sequence[int] | None = None,
    streams: int | None = None,
    repeats: int = 30,
    progress: bool | Progress = True,
    **attributes: Any,
) -> Verification:
    """Predict every engine from the sync trace alone, run them all, and show how far the predictions are off.

    The engines take turns, in an order that is shuffled for each repeat. Each runs twice in its turn, and the second run counts: the first
    finds the GPU's caches full of what the engine before has used, which a trace of repeated runs does not. The sync trace is recorded
    several times in between. The predictions see one of these traces, a usual one, and how long runs of sync usually take.

    Parameters
    ----------
    {program}
    {inputs}
    {device}
    {gpus}
    {streams}
    {repeats}
    {progress}
    {attributes}

    Returns
    -------
    Verification
        For each engine its `Prediction` and its makespans, by name.

    Raises
    ------
    ProgramError
        The program or its inputs are wrong.
    EngineError
        ``repeats`` or ``streams`` is out of its range.
    DeviceError
        The device is missing, or failed.
    TraceError
        The program launches nothing.

    Examples
    --------
    >>> x, w = np.ones((2, 64, 64), np.float32)
    >>> found = ss.verify(lambda x, w: ss.ops.relu(x @ w) + x, x, w, device="simulated", progress=False)
    >>> found.median_error < 0.001
    True
    """
    wanted = whole_number("repeats", repeats, least=1, most=MOST_REPEATS)
    allowed = checked_streams(streams)
    case = Case.of(program, inputs, "ss.verify", attributes, checked=False)
    opened = device_for(case.program, device, gpus=gpus, inputs=inputs)
    count = SIMULATED_REPEATS if opened.info.exact else wanted
    with showing("verifying predictions", progress=progress) as said:
        parts = case.parts(opened)
        moments = {number * (count - 1) // (_RECORDINGS - 1) for number in range(_RECORDINGS)}
        steps = Steps(said, case.measuring_steps(opened, len(ENGINES), rounds=2 * count, recorded=len(moments)))
        sources: list[Trace] = []
        with case.keeping(), opened.watched(lambda launch: steps.part(launch.name)):
            checked = case.prepare_each(ENGINES, opened, allowed, steps, named=False)

            def before(turn: int) -> None:
                if turn in moments:
                    steps.begin(f"recording {SOURCE}", parts)
                    found = recorded_traces(case, opened, {SOURCE: checked[SOURCE]})
                    sources.extend(trace for _, trace in found)
                steps.begin("timing", parts * len(checked))

            makespans = _timed(case, checked, count, before)
        usual_ns = float(np.median(makespans[SOURCE][1]))
    source = usual_of(sources, usual_ns)
    predicted = {
        engine: what_if(source, engine=engine, streams=_streams(engine, allowed), measured_us=usual_ns / 1e3) for engine in checked
    }
    found = {engine: Verified(engine, prediction, *makespans[engine][::-1]) for engine, prediction in predicted.items()}
    return Verification(case.program.name, opened.info, source, found)


def usual_of(traces: Sequence[Trace], usual_ns: float) -> Trace:
    """Return the trace whose run took nearest to ``usual_ns``, of those whose kernels and copies do not take most or least.

    Events have common errors of 0.1 µs a kernel, which differ from recording to recording.
    """

    def busy_ns(trace: Trace) -> int:
        return int(trace.spans.of_kind(DEVICE_KINDS).duration_ns.sum())

    extreme = len(traces) // 4
    middle = sorted(traces, key=busy_ns)[extreme : len(traces) - extreme]
    return min(middle, key=lambda trace: abs(makespan_ns(trace) - usual_ns))


def _streams(engine: str, allowed: int | None) -> int | None:
    return allowed if ENGINES[engine].takes_streams else None


def _timed(case: Case, checked: Mapping[str, Checked], repeats: int, before: Callable[[int], None]) -> dict[str, npt.NDArray[np.float64]]:
    """Let the engines take turns of two runs; return the makespans of the first runs and of the second ones, in ns."""
    random, turns = np.random.default_rng(0), []
    for turn in range(repeats):
        before(turn)
        turns.append(in_turns(checked, lambda engine: [float(case.makespan_ns(checked[engine])) for _ in range(2)], random))
    return {engine: np.array([each[engine] for each in turns]).T for engine in checked}
