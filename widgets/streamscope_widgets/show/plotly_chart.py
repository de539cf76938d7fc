"""Charts as Plotly figures: plain `go.Figure`, which a notebook keeps small and shows again when it is reopened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamscope_widgets.show import palette
from streamscope_widgets.show.chart import Axis, Bars, Boxes, Cells, Dots, Line, Note, Panel, PlaneChart, RowChart, Spot
from streamscope_widgets.show.still_chart import plane_svg, row_document

if TYPE_CHECKING:
    import plotly.graph_objects as go

FONT = {"family": "system-ui, -apple-system, Segoe UI, Roboto, sans-serif", "size": 13, "color": palette.ON_ANY}
CLEAR = "rgba(0,0,0,0)"
_GRID = {"gridcolor": palette.FAINT_ON_ANY, "zerolinecolor": palette.FAINT_ON_ANY}
_COLOURS = [palette.BUSY, *palette.HUES[1:]]
TEMPLATE = {"layout": {"paper_bgcolor": CLEAR, "plot_bgcolor": CLEAR, "font": FONT, "xaxis": _GRID, "yaxis": _GRID, "colorway": _COLOURS}}
"""A template of Plotly for figures that read on light pages and on dark ones."""
MARKER = {"size": 13, "color": palette.SLOWER, "line": {"color": palette.CARD, "width": 2.5}}


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
    figure.update_layout(barmode="stack", bargap=0.35 if legend else 0.45)
    lay_out(figure, chart.title, height=(158 if legend else 108) + 44 * len(chart.rows), legend=legend)
    figure.update_layout(margin={"l": 20, "r": 24, "t": 104 if legend else 54, "b": 54}, title_pad_t=16)
    figure.update_xaxes(
        title={"text": chart.axis.title, "font": {"size": 12}}, range=[chart.axis.low, chart.axis.high],
        zeroline=False, ticks="", tickfont={"color": palette.ON_ANY},
    )  # fmt: skip
    figure.update_yaxes(type="category", autorange="reversed", automargin=True, showgrid=False, ticks="", ticksuffix="  ")
    return figure.pictured(row_document(chart))


def plane_figure(chart: PlaneChart, *, height: int) -> go.Figure:
    """Draw panels beside each other."""
    from streamscope_widgets.show.pictured_figure import PicturedFigure

    titles = [panel.title for panel in chart.panels]
    figure = PicturedFigure().set_subplots(1, len(titles), subplot_titles=titles, horizontal_spacing=0.09)
    for column, panel in enumerate(chart.panels, 1):
        _add_panel(figure, panel, {"row": 1, "col": column})
    lay_out(figure, chart.title, below=chart.below, height=height, legend=any(panel.legend for panel in chart.panels))
    for column, panel in enumerate(chart.panels, 1):
        for update, axis in ((figure.update_xaxes, panel.x), (figure.update_yaxes, panel.y)):
            _place_ticks(update, axis, column, grid=panel.cells is None)
    return figure.pictured(plane_svg(chart))


def lay_out(figure: go.Figure, title: str, *, height: int, legend: bool = False, below: str = "") -> None:
    """Give a figure our looks: no ground and inks that read in any theme, and a left-aligned title that is the finding."""
    small = f"<br><span style='font-size:12px;color:{palette.ON_ANY}'>{below}</span>" if below else ""
    figure.update_layout(
        template=TEMPLATE, showlegend=legend, height=height,
        title={"text": title + small, "x": 0.012, "xanchor": "left", "y": 1, "yanchor": "top", "pad": {"t": 18}, "font": {"size": 15}},
        legend={"orientation": "h", "x": 0, "xanchor": "left", "y": 1, "yanchor": "bottom", "traceorder": "normal"},
        margin={"l": 64, "r": 24, "t": 96, "b": 54},
    )  # fmt: skip


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


def _add_boxes(figure: go.Figure, chart: RowChart, boxes: Boxes) -> None:
    figure.add_box(
        y=chart.rows, lowerfence=boxes.low, q1=boxes.q1, median=boxes.median, q3=boxes.q3, upperfence=boxes.high, orientation="h",
        line={"color": palette.BUSY, "width": 1.5}, fillcolor=palette.BOX, showlegend=False,
    )  # fmt: skip


_ADD: dict[type, Any] = {Bars: _add_bars, Dots: _add_dots, Boxes: _add_boxes}


def _add_note(figure: go.Figure, note: Note) -> None:
    figure.add_annotation(x=note.value, y=note.row, text=note.words, xanchor="left", xshift=note.gap, showarrow=False)


def _add_panel(figure: go.Figure, panel: Panel, where: dict[str, int]) -> None:
    if panel.cells is not None:
        _add_cells(figure, panel.cells, where)
    for line in panel.lines:
        _add_line(figure, line, where)
    for x, y, words in panel.labels:
        _add_label(figure, x, y, f"<b>{words}</b>", where, size=14)
    if panel.spot is not None:
        _add_spot(figure, panel, panel.spot, where)


def _add_cells(figure: go.Figure, cells: Cells, where: dict[str, int]) -> None:
    count = len(cells.colours)
    scale = [(edge / count, colour) for index, colour in enumerate(cells.colours) for edge in (index, index + 1)]
    figure.add_heatmap(
        x=cells.x, y=cells.y, z=cells.colour, zmin=-0.5, zmax=count - 0.5, colorscale=scale, showscale=False,
        customdata=cells.details, hovertemplate=f"{cells.hover}<extra></extra>", **where,
    )  # fmt: skip


def _add_line(figure: go.Figure, line: Line, where: dict[str, int]) -> None:
    looks = {"color": palette.BOUNDARY, "width": 2, "dash": "dash"} if line.dashed else {"color": palette.INK, "width": 1}
    if line.colour:
        looks = {"color": line.colour, "width": 2.5}
    shown = {"customdata": line.details, "hovertemplate": f"{line.hover}<extra></extra>"} if line.hover else {"hoverinfo": "skip"}
    figure.add_scatter(x=line.x, y=line.y, mode="lines", name=line.words, line=looks, showlegend=bool(line.colour), **shown, **where)
    if line.colour:
        return
    place = {"xanchor": "left", "xshift": 4, "yshift": 10} if line.dashed else {"yshift": -9}
    _add_label(figure, line.x[line.at], line.y[line.at], line.words, where, size=11, **place)


def _add_label(figure: go.Figure, x: float, y: float, words: str, where: dict[str, int], *, size: int, **place: Any) -> None:
    looks = {"showarrow": False, "font": {"size": size, "color": palette.INK}, "bgcolor": "rgba(255,255,255,0.75)", "borderpad": 1}
    figure.add_annotation(x=x, y=y, text=words, **looks, **place, **where)


def _add_spot(figure: go.Figure, panel: Panel, spot: Spot, where: dict[str, int]) -> None:
    figure.add_scatter(
        x=[spot.x], y=[spot.y], mode="markers", marker=MARKER, showlegend=False, hoverinfo="skip", cliponaxis=False, **where
    )  # fmt: skip
    high = spot.y > (panel.y.low + panel.y.high) / 2
    figure.add_annotation(
        x=spot.x, y=spot.y, text="<br>".join([f"<b>{spot.words[0]}</b>", *spot.words[1:]]), align="left",
        ax=42, ay=42 if high else -42, xanchor="left", arrowcolor=palette.INK, arrowwidth=1, bgcolor=palette.CARD,
        bordercolor=palette.FAINT_INK, borderpad=4, font={"size": 12, "color": palette.INK}, **where,
    )  # fmt: skip


def _place_ticks(update: Any, axis: Axis, column: int, *, grid: bool) -> None:
    update(
        title={"text": axis.title, "font": {"size": 12}}, range=[axis.low, axis.high],
        tickvals=[place for place, _ in axis.ticks], ticktext=[words for _, words in axis.ticks],
        showgrid=grid, gridcolor=palette.FAINT_ON_ANY, zeroline=False, ticks="outside", tickcolor=palette.ON_ANY,
        tickfont={"color": palette.ON_ANY}, row=1, col=column,
    )  # fmt: skip
