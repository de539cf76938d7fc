"""Charts as Plotly figures: plain `go.Figure`, which a notebook keeps small and shows again when it is reopened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamscope_widgets.show import palette
from streamscope_widgets.show.chart import Bars, Dots, Note, RowChart
from streamscope_widgets.show.still_chart import row_document

if TYPE_CHECKING:
    import plotly.graph_objects as go

FONT = {"family": "system-ui, -apple-system, Segoe UI, Roboto, sans-serif", "size": 13, "color": palette.ON_ANY}
CLEAR = "rgba(0,0,0,0)"
_GRID = {"gridcolor": palette.FAINT_ON_ANY, "zerolinecolor": palette.FAINT_ON_ANY}
_COLOURS = [palette.BUSY, *palette.HUES[1:]]
TEMPLATE = {"layout": {"paper_bgcolor": CLEAR, "plot_bgcolor": CLEAR, "font": FONT, "xaxis": _GRID, "yaxis": _GRID, "colorway": _COLOURS}}
"""A template of Plotly for figures that read on light pages and on dark ones."""
PLOT = 480
"""Width of a plot in px, of a narrow cell. In a wider one, the words beside marks have more room."""


def row_figure(chart: RowChart) -> go.Figure:
    """Draw a chart with categories from top to bottom."""
    from streamscope_widgets.show.pictured_figure import PicturedFigure

    figure = PicturedFigure()
    for series in chart.series:
        _ADD[type(series)](figure, chart, series)
    if chart.rule is not None:
        figure.add_vline(x=chart.rule, line={"color": palette.ON_ANY, "dash": "dot", "width": 1})
    for note in chart.notes:
        _add_note(figure, note)
    legend = bool(chart.legend)
    figure.update_layout(
        template=TEMPLATE, showlegend=legend, height=(158 if legend else 108) + 44 * len(chart.rows),
        barmode="stack", bargap=0.35 if legend else 0.45,
        title={"text": chart.title, "x": 0.012, "xanchor": "left", "y": 1, "yanchor": "top", "pad": {"t": 16}, "font": {"size": 15}},
        legend={"orientation": "h", "x": 0, "xanchor": "left", "y": 1, "yanchor": "bottom", "traceorder": "normal"},
        margin={"l": 20, "r": 24, "t": 104 if legend else 54, "b": 54},
    )  # fmt: skip
    figure.update_xaxes(
        title={"text": chart.axis.title, "font": {"size": 12}}, range=[chart.axis.low, chart.high(PLOT)],
        zeroline=False, ticks="", tickfont={"color": palette.ON_ANY},
    )  # fmt: skip
    figure.update_yaxes(type="category", autorange="reversed", automargin=True, showgrid=False, ticks="", ticksuffix="  ")
    return figure.pictured(row_document(chart))


def _add_bars(figure: go.Figure, chart: RowChart, bars: Bars) -> None:
    place = {"textposition": "outside", "cliponaxis": False} if bars.outside else {
        "textposition": "inside", "textangle": 0, "insidetextanchor": "middle", "insidetextfont": {"color": bars.ink, "size": 12},
    }  # fmt: skip
    figure.add_bar(
        y=chart.rows, x=bars.lengths, name=bars.name or None, orientation="h", marker={"color": bars.colour}, text=bars.labels,
        hovertemplate=f"%{{y}}: %{{x:,.2f}} {bars.meaning}<extra></extra>", **place,
    )  # fmt: skip


def _add_dots(figure: go.Figure, chart: RowChart, dots: Dots) -> None:
    above = [high - value for high, value in zip(dots.highs, dots.values, strict=True)]
    under = [value - low for low, value in zip(dots.lows, dots.values, strict=True)]
    figure.add_scatter(
        y=chart.rows, x=dots.values, mode="markers", marker={"size": 11, "color": list(dots.colours)},
        error_x={"type": "data", "array": above, "arrayminus": under, "thickness": 1.5, "color": palette.ON_ANY},
        customdata=list(zip(dots.lows, dots.highs, strict=True)),
        hovertemplate="%{y}: %{x:.3f}× (%{customdata[0]:.3f} to %{customdata[1]:.3f})<extra></extra>",
    )  # fmt: skip


_ADD: dict[type, Any] = {Bars: _add_bars, Dots: _add_dots}


def _add_note(figure: go.Figure, note: Note) -> None:
    figure.add_annotation(x=note.value, y=note.row, text=note.words, xanchor="left", xshift=note.gap, showarrow=False)
