"""`ss.advise`: from which kernel length on a graph or a second stream pays on this device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, ClassVar

from streamscope.advising.break_even import DeviceCosts, graph_pays, launch_bound_below_ns, second_stream_pays
from streamscope.advising.sentences import advice_text, verdict
from streamscope.devices import open_device
from streamscope.devices.protocol import Device
from streamscope.errors import ProgramError
from streamscope.results.result import Result

_BRANCH_LENGTHS = (1, 4, 16)
"""Kernels in a branch for which break-even lengths are told."""


@dataclass(frozen=True, repr=False)
class Advice(Result):
    """Result of `ss.advise`. Shown in a notebook, it is the verdict and the picture.

    Attributes
    ----------
    costs : DeviceCosts
        The device, and its cost model.

    Examples
    --------
    >>> ss.advise(device="simulated").costs.model.launch_ns
    3324.0
    """

    view = "advice"
    renamed: ClassVar[Mapping[str, str]] = {"to_json": "to_dict()", "save_html": 'save("advice.html")'}

    costs: DeviceCosts

    @property
    def verdict(self) -> str:
        """The advice in plain words."""
        return verdict(self.costs)

    def to_dict(self) -> dict[str, Any]:
        """Return the advice as JSON values; infinite and unknown values become null.

        Examples
        --------
        >>> content = ss.advise(device="simulated").to_dict()
        >>> shortest, longest = content["graph_pays_ns"]
        >>> f"a graph pays for kernels of {shortest / 1e3:.0f} to {longest / 1e3:.0f} µs"
        'a graph pays for kernels of 0 to 16 µs'
        """
        graph = graph_pays(self.costs)
        device = self.costs.device
        return {
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

    def __str__(self) -> str:
        return advice_text(self.costs)

    __repr__ = __str__


def advise(*program: object, device: str | Device = "auto") -> Advice:
    """Find out at which kernel length and count a graph, or a second stream, pays on this device.

    The simulated device runs chains and branches with this device's cost model: the one that ``streamscope calibrate`` measured here, else
    the built-in one of the H200. For a program of yours, `best` measures, and `what_if` predicts from a trace.

    Parameters
    ----------
    *program
        Refused: the advice is about the device.
    device : {"auto", "cuda", "simulated"} or Device
        Whose costs count.

    Raises
    ------
    ProgramError
        A program was given.
    DeviceError
        The device is missing, or failed.

    Examples
    --------
    >>> ss.advise(device="simulated").verdict
    'Simulated times, not measured. On the simulated NVIDIA H200 kernels shorter than 2.27 µs wait for the host ...'
    """
    if program:
        hint = "ss.best(function, ...) measures a program; ss.what_if(trace, engine='graph') predicts one"
        raise ProgramError("ss.advise is about the device, and takes no program", hint=hint)
    return Advice(DeviceCosts.of(open_device(device)))


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None
