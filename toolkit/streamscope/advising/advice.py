"""`ss.advise`: whether a graph or a second stream pays on this device, and for a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, ClassVar

from streamscope.advising.break_even import DeviceCosts, graph_pays, launch_bound_below_ns, second_stream_pays
from streamscope.advising.forecast import Forecast, forecast, forecast_steps
from streamscope.advising.sentences import advice_text, verdict
from streamscope.calling import verb
from streamscope.devices import device_for, open_device
from streamscope.devices.protocol import Device
from streamscope.errors import ProgramError
from streamscope.measuring.case import Case
from streamscope.program.foreign import ForeignProgram
from streamscope.progress import Progress, Steps, showing
from streamscope.results.result import Result
from streamscope.tracing import ProgramFunction

_BRANCH_LENGTHS = (1, 4, 16)
"""Kernels in a branch for which break-even lengths are told."""


@dataclass(frozen=True, repr=False)
class Advice(Result):
    """Result of `ss.advise`. Shown in a notebook, it is the verdict and the picture.

    Attributes
    ----------
    costs : DeviceCosts
        The device, and its cost model.
    forecast : Forecast, optional
        The program, predicted; None where none was given.

    Examples
    --------
    >>> advice = ss.advise(lambda x: np.tanh(np.tanh(x)), np.ones(64, np.float32), device="simulated", progress=False)
    >>> advice.forecast.kernels
    2
    >>> advice.costs.model.launch_ns
    3324.0
    """

    view = "advice"
    renamed: ClassVar[Mapping[str, str]] = {"to_json": "to_dict()", "save_html": 'save("advice.html")'}

    costs: DeviceCosts
    forecast: Forecast | None = None

    @property
    def verdict(self) -> str:
        """The advice in plain words."""
        return verdict(self.costs, self.forecast)

    def to_dict(self) -> dict[str, Any]:
        """Return the advice as JSON values; infinite and unknown values become null.

        Examples
        --------
        >>> content = ss.advise(device="simulated", progress=False).to_dict()
        >>> shortest, longest = content["graph_pays_ns"]
        >>> f"a graph pays for kernels of {shortest / 1e3:.0f} to {longest / 1e3:.0f} µs"
        'a graph pays for kernels of 0 to 16 µs'
        """
        graph = graph_pays(self.costs)
        device = self.costs.device
        content: dict[str, Any] = {
            "device": {"kind": device.kind, "name": device.name},
            "verdict": self.verdict,
            "cost_model_of": self.costs.model.provenance.device,
            "launch_bound_below_ns": launch_bound_below_ns(self.costs),
            "graph_pays_ns": [_finite(graph.low_ns), _finite(graph.high_ns)],
            "second_stream_pays_ns": {
                place: {
                    str(kernels): [_finite(pays.low_ns), _finite(pays.high_ns)]
                    for kernels in _BRANCH_LENGTHS
                    for pays in [second_stream_pays(self.costs, kernels, in_graph=in_graph)]
                }
                for place, in_graph in (("one_by_one", False), ("in_graph", True))
            },
        }
        return content if self.forecast is None else content | {"program": _forecast_json(self.forecast)}

    def __str__(self) -> str:
        return advice_text(self.costs, self.forecast)

    __repr__ = __str__


@verb
def advise(
    program: Callable[..., Any] | ProgramFunction | ForeignProgram | None = None,
    /,
    *inputs: Any,
    device: str | Device = "auto",
    progress: bool | Progress = True,
    **attributes: Any,
) -> Advice:
    """Find out at which kernel length and count a graph, or a second stream, pays on this device; and for a program, if one is given.

    The simulated device runs chains and branches with this device's cost model: the one that ``streamscope calibrate`` measured here, else
    the built-in one of the H200. Your program is recorded once under sync, and predicted under the other engines, as by
    `Trace.what_if`. `best` measures instead, and checks results.

    Parameters
    ----------
    program : callable, ProgramFunction or CapturedProgram, optional
        A function over variables, or a result of ``ss.capture``, which takes no inputs.
    {inputs}
    {device}
    {progress}
    {attributes}

    Raises
    ------
    ProgramError
        The program or its inputs are wrong.
    DeviceError
        The device is missing, or failed.

    Examples
    --------
    >>> def chain(x):
    ...     for _ in range(20):
    ...         x = np.tanh(x)
    ...     return x
    >>> x = np.ones((64, 64), np.float32)
    >>> advice = ss.advise(chain, x, device="simulated", progress=False)
    >>> print(advice.verdict)
    Simulated times, not measured. Your 20 kernels of 0.857 µs: a graph should run them 2.47× as fast as async, ...

    Without a program, the advice is about the device alone:

    >>> ss.advise(device="simulated", progress=False).verdict
    'Simulated times, not measured. On the simulated NVIDIA H200 kernels shorter than 2.27 µs wait for the host ...'
    """
    if program is None and inputs:
        raise ProgramError("ss.advise got inputs, but no program", hint="ss.advise(program, *inputs), or ss.advise() for the device alone")
    case = None if program is None else Case.of(program, inputs, "ss.advise", attributes, checked=False)
    opened = open_device(device) if case is None else device_for(case.program, device)
    costs = DeviceCosts.of(opened)
    if case is None:
        return Advice(costs)
    with showing("advising", progress=progress) as said:
        steps = Steps(said, forecast_steps(case, opened))
        with case.keeping(), opened.watched(lambda launch: steps.part(launch.name)):
            return Advice(costs, forecast(case, opened, costs, steps))


def _forecast_json(forecast: Forecast) -> dict[str, Any]:
    return {
        "name": forecast.program,
        "kernels": forecast.kernels,
        "kernel_ns": forecast.kernel_ns,
        "capture_replays": _finite(forecast.capture_replays),
        "engines": {
            engine: {"predicted_ns": predicted_ns, "speedup": forecast.speedup(engine)}
            for engine, predicted_ns in forecast.predicted_ns.items()
        },
    }


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None
