"""Plotly figures that a notebook keeps a still picture of, for where nothing draws Plotly's: VS Code by itself, a converted notebook."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from streamscope_widgets.show.html import image


class PicturedFigure(go.Figure):  # type: ignore[misc]
    """A figure whose output has a still picture, too, as ``text/html``. Front ends that draw Plotly prefer the figure."""

    _ipython_display_ = None  # So IPython asks for the bundle, which Plotly's own way to display does not have.
    _picture = ""

    def pictured(self, svg: str) -> PicturedFigure:
        """Keep a picture of the figure as it is now, and return the figure."""
        self._picture = image(svg, self.layout.title.text or "")
        return self

    def _repr_mimebundle_(self, *arguments: Any, **options: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = super()._repr_mimebundle_(*arguments, **options)
        if self._picture and "application/vnd.plotly.v1+json" in bundle:
            bundle.setdefault("text/html", self._picture)
        return bundle
