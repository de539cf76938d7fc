"""Charts of an advice, as Plotly figures: which engine wins where, and when a graph has paid for its capture."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from streamscope.advising.advice import Advice
from streamscope.advising.break_even import LONGEST_US, SHORTEST_US, chain_ns, replays_to_pay
from streamscope.advising.device_costs import DeviceCosts
from streamscope.words import format_us
from streamscope_widgets.advice_marks import BANDS, COUNT_TICKS, LENGTH_TICKS, SHADES, Panel, Point, headline, panels, ticks
from streamscope_widgets.show import palette

if TYPE_CHECKING:
    import plotly.graph_objects as go

LENGTH_TITLE = "kernel length, µs"
REPLAY_TICKS = (0.5, 1, 2, 3, 4, 5, 7, 10, 20, 50, 100, 1000)
CHAIN_LENGTHS = (10, 100, 1000)
"""Kernels in the chains whose capture is drawn."""
FONT = {"family": "system-ui, -apple-system, Segoe UI, Roboto, sans-serif", "size": 13, "color": palette.INK}


def advice_chart(advice: Advice) -> go.Figure:
    """Draw which engine wins over kernel length and number of kernels, for chains and for independent branches."""
    costs, forecast = advice.costs, advice.forecast
    from plotly.subplots import make_subplots

    both = panels(costs, forecast)
    figure = make_subplots(1, 2, subplot_titles=[panel.title for panel in both], horizontal_spacing=0.09)
    for column, panel in enumerate(both, 1):
        _draw(figure, panel, column)
    simulated = costs.device.simulated
    _laid_out(figure, headline(costs, forecast), costs, height=470)
    for column, panel in enumerate(both, 1):
        low, high = float(panel.y[0]), float(panel.y[-1])
        _axis(figure.update_xaxes, f"{LENGTH_TITLE}{', simulated' if simulated else ''}", LENGTH_TICKS, panel.x[[0, -1]], 1, column)
        _axis(figure.update_yaxes, panel.count_title, COUNT_TICKS, np.array([low, high]), 1, column)
    return figure


def capture_chart(advice: Advice) -> go.Figure:
    """Draw after how many replays a graph has paid for its capture, over kernel length, for chains of several lengths."""
    costs, forecast = advice.costs, advice.forecast
    import plotly.graph_objects as go

    figure = go.Figure()
    lengths_us = np.geomspace(SHORTEST_US, LONGEST_US, 100)
    colours = (SHADES["graph"][1], SHADES["graph"][3], palette.OVERLAPPED)
    for count, colour in zip(CHAIN_LENGTHS, colours, strict=True):
        replays = [_replays(costs, count, length_us * 1e3) for length_us in lengths_us]
        figure.add_scatter(
            x=lengths_us, y=replays, mode="lines", name=f"{count:,} kernels", line={"color": colour, "width": 2.5},
            hovertemplate=f"{count:,} kernels of %{{x:.2f}} µs: %{{y:.1f}} replays<extra></extra>",
        )  # fmt: skip
    if forecast is not None and forecast.kernels and isfinite(forecast.capture_replays):
        figure.add_scatter(
            x=[forecast.kernel_ns / 1e3], y=[forecast.capture_replays], mode="markers+text", name="yours",
            text=[f"yours: {forecast.capture_replays:.1f} replays"], textposition="middle right", marker=_marker(), showlegend=False,
            hoverinfo="skip",
        )  # fmt: skip
    title = f"A graph of 100 kernels of {format_us(1)} µs has paid for its capture after {_replays(costs, 100, 1e3) or np.inf:.1f} replays"
    if forecast is not None and forecast.kernels:
        paid = f"after {forecast.capture_replays:.1f} replays" if isfinite(forecast.capture_replays) else "never"
        title = f"{forecast.program}: its graph has paid for its capture {paid}"
    _laid_out(figure, title, costs, height=380)
    simulated = ", simulated" if costs.device.simulated else ""
    figure.update_xaxes(type="log", title_text=f"{LENGTH_TITLE}{simulated}", gridcolor=palette.RULE, tickvals=LENGTH_TICKS)
    figure.update_yaxes(type="log", title_text="replays until it has paid", gridcolor=palette.RULE, tickvals=REPLAY_TICKS)
    figure.update_layout(showlegend=True)
    return figure


def _replays(costs: DeviceCosts, count: int, length_ns: float) -> float | None:
    """Return after how many replays a chain's graph has paid; None if it never has."""
    saved_ns = float(chain_ns(costs, "async", count, length_ns) - chain_ns(costs, "graph", count, length_ns))
    replays = replays_to_pay(costs, count, saved_ns)
    return replays if isfinite(replays) else None


def _draw(figure: go.Figure, panel: Panel, column: int) -> None:
    where = {"row": 1, "col": column}
    engines = np.array(panel.regions.engines, object)[panel.regions.winner]
    bands = np.digitize(panel.regions.speedup, BANDS)
    hover = np.dstack([engines, panel.regions.speedup, np.broadcast_to(panel.regions.lengths_us, engines.shape)])
    counts = np.broadcast_to(panel.regions.counts[:, None], engines.shape)
    figure.add_heatmap(
        x=panel.x, y=panel.y, z=panel.regions.winner * len(SHADES["async"]) + bands, zmin=-0.5, zmax=len(_scale(panel)) / 2 - 0.5,
        colorscale=_scale(panel), showscale=False, customdata=np.dstack([hover, counts]),
        hovertemplate="%{customdata[3]} × %{customdata[2]:.2f} µs: %{customdata[0]}, %{customdata[1]:.2f}× as fast as async<extra></extra>",
        **where,
    )  # fmt: skip
    for line in panel.speedups:
        figure.add_scatter(
            x=line.x, y=line.y, mode="lines", line={"color": palette.INK, "width": 1}, hoverinfo="skip", showlegend=False, **where
        )
        _label(figure, line.x[line.at], line.y[line.at], line.words, column, size=11, yshift=-9)
    if panel.dual_from is not None:
        line = panel.dual_from
        dashed = {"color": palette.HOST_FUNCTION, "width": 2, "dash": "dash"}
        figure.add_scatter(x=line.x, y=line.y, mode="lines", line=dashed, hoverinfo="skip", showlegend=False, **where)
        _label(figure, line.x[0], line.y[0], "from here on dual beats async", column, size=11, xanchor="left", xshift=4, yshift=10)
    for x, y, words in panel.labels:
        _label(figure, x, y, f"<b>{words}</b>", column, size=14)
    if panel.point is not None:
        _draw_point(figure, panel.point, panel, column)


def _draw_point(figure: go.Figure, point: Point, panel: Panel, column: int) -> None:
    figure.add_scatter(
        x=[point.x], y=[point.y], mode="markers", marker=_marker(), showlegend=False, hoverinfo="skip", cliponaxis=False, row=1, col=column
    )
    high = point.y > (panel.y[0] + panel.y[-1]) / 2
    figure.add_annotation(
        x=point.x, y=point.y, text="<br>".join([f"<b>{point.words[0]}</b>", *point.words[1:]]), row=1, col=column, align="left",
        ax=42, ay=42 if high else -42, xanchor="left", arrowcolor=palette.INK, arrowwidth=1, bgcolor=palette.CARD,
        bordercolor=palette.FAINT_INK, borderpad=4, font={"size": 12},
    )  # fmt: skip


def _scale(panel: Panel) -> list[tuple[float, str]]:
    """Return a colour scale with a step for each engine and band."""
    colours = [colour for engine in panel.regions.engines for colour in SHADES[engine]]
    return [(edge / len(colours), colour) for index, colour in enumerate(colours) for edge in (index, index + 1)]


def _marker() -> dict[str, Any]:
    return {"size": 13, "color": palette.SLOWER, "line": {"color": palette.CARD, "width": 2.5}}


def _label(figure: go.Figure, x: float, y: float, words: str, column: int, *, size: int, **place: Any) -> None:
    figure.add_annotation(
        x=x,
        y=y,
        text=words,
        row=1,
        col=column,
        showarrow=False,
        font={"size": size},
        bgcolor="rgba(255,255,255,0.75)",
        borderpad=1,
        **place,
    )


def _axis(update: Any, title: str, values: tuple[float, ...], extent: Any, row: int, column: int) -> None:
    placed = ticks(values, float(extent[0]), float(extent[1]))
    update(
        title={"text": title, "font": {"size": 12}}, range=[float(extent[0]), float(extent[1])],
        tickvals=[place for place, _ in placed], ticktext=[words for _, words in placed],
        showgrid=False, zeroline=False, ticks="outside", tickcolor=palette.RULE, tickfont={"color": palette.FAINT_INK}, row=row, col=column,
    )  # fmt: skip


def _laid_out(figure: go.Figure, title: str, costs: DeviceCosts, *, height: int) -> None:
    """Give a figure our looks: a light card that reads in any theme, a left-aligned title that is the finding."""
    below = "simulated times, " if costs.device.simulated else ""
    head = (
        f"{title}<br><span style='font-size:12px;color:{palette.FAINT_INK}'>{costs.device.name}: {below}prediction from fitted costs</span>"
    )
    figure.update_layout(
        template="none", paper_bgcolor=palette.CARD, plot_bgcolor=palette.CARD, font=FONT, showlegend=False, height=height,
        xaxis_title_font_size=12, yaxis_title_font_size=12,
        title={"text": head, "x": 0.012, "xanchor": "left", "y": 1, "yanchor": "top", "pad": {"t": 18}, "font": {"size": 15}},
        legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"}, margin={"l": 64, "r": 24, "t": 96, "b": 54},
    )  # fmt: skip
