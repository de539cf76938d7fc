"""Advice: whether a graph or a second stream pays on a device, and for a program."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamscope import display
from streamscope.advising.break_even import graph_pays, launch_bound_below_ns, second_stream_pays
from streamscope.advising.device_costs import DeviceCosts
from streamscope.advising.forecast import Forecast
from streamscope.advising.wording import advice_text, verdict
from streamscope.arguments import given_path
from streamscope.errors import OutputError

if TYPE_CHECKING:
    import plotly.graph_objects as go

BRANCH_LENGTHS = (1, 4, 16)
"""Kernels in a branch for which break-even lengths are told."""


@dataclass(frozen=True, repr=False)
class Advice:
    """What `ss.advise` found. Shown in a notebook, it is the verdict and the costs that it rests on; `chart` draws it.

    Attributes
    ----------
    costs : DeviceCosts
        What launches, graphs and streams cost on the device, fitted to measured runs.
    forecast : Forecast, optional
        The program, predicted and measured; None where none was given.
    """

    costs: DeviceCosts
    forecast: Forecast | None = None

    @property
    def verdict(self) -> str:
        """The advice in plain words."""
        return verdict(self.costs, self.forecast)

    def chart(self) -> go.Figure:
        """Draw which engine wins over kernel length and number of kernels, with the program as a point (Plotly)."""
        return display.chart(self, "regions")

    def capture_chart(self) -> go.Figure:
        """Draw after how many replays a graph has paid for its capture, over kernel length (Plotly)."""
        return display.chart(self, "capture")

    def to_json(self) -> dict[str, Any]:
        """Return the advice as JSON values; what is infinite or not known becomes null."""
        graph = graph_pays(self.costs)
        device = self.costs.device
        content: dict[str, Any] = {
            "device": {"kind": device.kind, "name": device.name},
            "verdict": self.verdict,
            "costs": {name: {"ns": fitted.value_ns, "margin_ns": _finite(fitted.margin_ns)} for name, fitted in self.costs.fitted.items()},
            "residual": self.costs.residual,
            "captures_ns": [list(point) for point in self.costs.captures],
            "launch_bound_below_ns": launch_bound_below_ns(self.costs),
            "graph_pays_ns": [_finite(graph.low_ns), _finite(graph.high_ns)],
            "second_stream_pays_ns": {
                place: {
                    str(kernels): [_finite(pays.low_ns), _finite(pays.high_ns)]
                    for kernels in BRANCH_LENGTHS
                    for pays in [second_stream_pays(self.costs, kernels, in_graph=in_graph)]
                }
                for place, in_graph in (("one_by_one", False), ("in_graph", True))
            },
        }
        return content if self.forecast is None else content | {"program": _forecast_json(self.forecast)}

    def save_html(self, path: str | Path) -> Path:
        """Write the verdict, the picture and the costs to one HTML file that needs no network, and return its path.

        Raises
        ------
        OutputError
            The file cannot be written.
        """
        return display.report(self, given_path(path, error=OutputError))

    def __str__(self) -> str:
        return advice_text(self.costs, self.forecast)

    __repr__ = __str__

    def _repr_html_(self) -> str | None:
        return display.html(self)


def _forecast_json(forecast: Forecast) -> dict[str, Any]:
    return {
        "name": forecast.program,
        "kernels": forecast.kernels,
        "kernel_ns": forecast.kernel_ns,
        "capture_replays": _finite(forecast.capture_replays),
        "engines": {
            engine: {
                "predicted_ns": forecast.predicted_ns[engine],
                "makespan_ns": forecast.makespans_ns[engine].median,
                "predicted_speedup": forecast.predicted_speedup(engine),
                "speedup": forecast.speedups[engine].median,
                "speedup_low": forecast.speedups[engine].low,
                "speedup_high": forecast.speedups[engine].high,
            }
            for engine in forecast.predicted_ns
        },
        "unfit": forecast.unfit,
    }


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None
