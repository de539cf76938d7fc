"""Charts of a comparison, as Plotly figures: plain `go.Figure`, which a notebook keeps small and shows again when it is reopened.

Each title states the finding, each axis its unit, and each bar carries its value, so that a chart can be read without hovering.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from streamscope.analysis.launches import launch_latency_ns
from streamscope.analysis.metrics import EngineMetrics
from streamscope.analysis.statistics import Order, quantiles
from streamscope.analysis.verdict import difference, fastest, order, reference_engine
from streamscope.errors import TraceError
from streamscope.trace import TimelineGroup
from streamscope.words import format_us
from streamscope_widgets.show import palette

if TYPE_CHECKING:
    import plotly.graph_objects as go

LABEL_FROM = 0.045
"""A stretch of a bar narrower than this share of the axis carries no label."""


def _host_functions_us(m: EngineMetrics) -> float:
    """Return the idle time in which a function of the user's runs: of what the device waits for the host, then of other idle time."""
    return min(m.host_function_us, m.host_wait_us + m.other_idle_us)


STRETCHES: tuple[tuple[str, str, str, Callable[[EngineMetrics], float]], ...] = (
    ("one kernel", palette.BUSY, "#ffffff", lambda m: m.gpu_busy_us - m.overlap_us),
    ("two or more kernels", palette.OVERLAPPED, "#ffffff", lambda m: m.overlap_us),
    ("copies alone", palette.COPY, "#ffffff", lambda m: m.copy_us),
    ("host functions alone", palette.HOST_FUNCTION, "#ffffff", _host_functions_us),
    ("host wait (not launched in time)", palette.HOST_WAIT, palette.INK, lambda m: max(0.0, m.host_wait_us - m.host_function_us)),
    ("kernel wait (between kernels)", palette.KERNEL_WAIT, palette.INK, lambda m: m.kernel_wait_us),
    ("other idle", palette.OTHER_IDLE, palette.INK, lambda m: m.other_idle_us - max(0.0, _host_functions_us(m) - m.host_wait_us)),
)
"""Where a makespan goes: name, colour, colour of the label, and length in µs. They add up to the makespan."""


def makespan_chart(metrics: Mapping[str, EngineMetrics]) -> go.Figure:
    """Draw where each engine's makespan goes: kernels alone and side by side, copies, and idle time by cause.

    Raises
    ------
    TraceError
        There are no metrics, or no engine took any time.
    """
    _some(metrics)
    import plotly.graph_objects as go

    engines = list(metrics)
    longest_us = max(max(m.makespan_us, m.gpu_busy_us) for m in metrics.values())
    if not longest_us:
        raise TraceError("no engine took any time, so there is nothing to draw", hint="was anything run?")
    figure = go.Figure()
    for name, colour, ink, length_us in STRETCHES:
        lengths = [length_us(metrics[engine]) for engine in engines]
        if not any(lengths):
            continue
        labels = [format_us(length) if length >= LABEL_FROM * longest_us else "" for length in lengths]
        figure.add_bar(
            y=engines, x=lengths, name=name, orientation="h", marker={"color": colour},
            text=labels, textposition="inside", textangle=0, insidetextanchor="middle", insidetextfont={"color": ink, "size": 12},
            hovertemplate=f"%{{y}}: %{{x:,.2f}} µs {name}<extra></extra>",
        )  # fmt: skip
    for engine in engines:
        end_us = max(metrics[engine].makespan_us, metrics[engine].gpu_busy_us)
        figure.add_annotation(
            x=end_us, y=engine, text=f"{format_us(metrics[engine].makespan_us)} µs", xanchor="left", showarrow=False, xshift=4
        )
    figure.update_layout(barmode="stack", bargap=0.35, xaxis_range=[0, longest_us * 1.16])
    return _styled(figure, metrics, _makespan_title(metrics), "time, µs", rows=len(engines), legend=True)


def overlap_chart(metrics: Mapping[str, EngineMetrics]) -> go.Figure:
    """Draw the share of GPU-busy time in which two or more kernels run, for each engine.

    Raises
    ------
    TraceError
        There are no metrics.
    """
    _some(metrics)
    import plotly.graph_objects as go

    engines = list(metrics)
    shares = [metrics[engine].overlap * 100 for engine in engines]
    labels = [
        f"{share:.1f} % ({format_us(m.overlap_us)} of {format_us(m.gpu_busy_us)} µs)" if share else "none"
        for share, m in zip(shares, metrics.values(), strict=True)
    ]
    bars = go.Bar(
        y=engines, x=shares, orientation="h", marker={"color": palette.OVERLAPPED}, text=labels, textposition="outside", cliponaxis=False,
        hovertemplate="%{y}: %{x:.2f} % of GPU-busy time<extra></extra>",
    )  # fmt: skip
    figure = go.Figure(bars)
    figure.update_layout(bargap=0.45, xaxis_range=[0, max(*shares, 5) * 1.5])
    title = "No kernels run side by side under any engine"
    if any(shares):
        best = max(metrics, key=lambda engine: metrics[engine].overlap)
        title = f"Kernels overlap most under {best}: {metrics[best].overlap * 100:.0f} % of GPU-busy time"
    return _styled(figure, metrics, title, "time with two or more kernels running, % of GPU busy", rows=len(engines))


def speedup_chart(metrics: Mapping[str, EngineMetrics]) -> go.Figure:
    """Draw each engine's speed against the reference engine's, with the interval that both makespans' intervals allow.

    The speed-up is reference makespan / makespan (medians); its low end is lowest reference / highest makespan, its high end the reverse.

    Raises
    ------
    TraceError
        There are no metrics, or the reference took no time.
    """
    _some(metrics)
    import plotly.graph_objects as go

    base_engine = reference_engine(metrics)
    base = metrics[base_engine]
    if any(not m.makespan_low_us > 0 for m in metrics.values()):
        raise TraceError("a makespan of 0 µs has no speed-up", hint="was anything run?")
    engines = list(metrics)
    speed = np.array([base.makespan_us / m.makespan_us for m in metrics.values()])
    low = np.array([base.makespan_low_us / m.makespan_high_us for m in metrics.values()])
    high = np.array([base.makespan_high_us / m.makespan_low_us for m in metrics.values()])
    points = go.Scatter(
        y=engines, x=speed, mode="markers", marker={"size": 11, "color": [_judged(m, base) for m in metrics.values()]},
        error_x={"type": "data", "array": high - speed, "arrayminus": speed - low, "thickness": 1.5, "color": palette.FAINT_INK},
        customdata=np.stack([low, high], axis=1),
        hovertemplate="%{y}: %{x:.3f}× (%{customdata[0]:.3f} to %{customdata[1]:.3f})<extra></extra>",
    )  # fmt: skip
    figure = go.Figure(points)
    figure.add_vline(x=1, line={"color": palette.FAINT_INK, "dash": "dot", "width": 1})
    for engine, m, end in zip(engines, metrics.values(), high, strict=True):
        words = "reference" if engine == base_engine else difference(m, base)
        figure.add_annotation(x=end, y=engine, text=words, xanchor="left", xshift=10, showarrow=False, bgcolor=palette.CARD)
    figure.update_layout(xaxis_range=[0, float(high.max()) * 1.25], yaxis_type="category")
    return _styled(figure, metrics, _speedup_title(metrics, base_engine), f"speed-up against {base_engine}, ×", rows=len(engines))


def launch_overhead_chart(groups: Sequence[TimelineGroup]) -> go.Figure:
    """Draw the distribution of launch latency for each engine: quartiles as a box, the 5th and 95th percentiles as whiskers.

    Quantiles are computed here, so the figure stays small however many launches there were. Engines without launches are left out.

    Raises
    ------
    TraceError
        No trace has a launch with its kernel.
    """
    import plotly.graph_objects as go

    latency_us = {group.trace.info.engine: launch_latency_ns(group.trace.spans) / 1000 for group in groups}
    latency_us = {engine: values for engine, values in latency_us.items() if len(values)}
    if not latency_us:
        raise TraceError("no trace has a launch call with its kernel, so there is no launch latency to draw")
    summary = {engine: quantiles(values, 0.05, 0.25, 0.5, 0.75, 0.95) for engine, values in latency_us.items()}
    low, q1, median, q3, high = (list(column) for column in zip(*summary.values(), strict=True))
    labels = [f"{engine} ({len(values):,})" for engine, values in latency_us.items()]
    box = go.Box(
        y=labels, lowerfence=low, q1=q1, median=median, q3=q3, upperfence=high, orientation="h",
        line={"color": palette.BUSY, "width": 1.5}, fillcolor=palette.BOX, showlegend=False,
    )  # fmt: skip
    figure = go.Figure(box)
    for label, middle, end in zip(labels, median, high, strict=True):
        figure.add_annotation(
            x=end, y=label, text=f"median {format_us(middle)} µs", xanchor="left", xshift=8, showarrow=False, bgcolor=palette.CARD
        )
    least, most = min(0.0, *low), max(0.0, *high)
    figure.update_layout(xaxis_range=[least * 1.1, most * 1.3 if most > least else 1.0])
    slowest = max(summary, key=lambda engine: summary[engine][2])
    title = f"From launch call to kernel: {format_us(summary[slowest][2])} µs at the median under {slowest}"
    simulated = any(group.trace.info.device.simulated for group in groups)
    return _laid_out(figure, title, "launch latency, µs (in brackets: launches)", rows=len(labels), simulated=simulated)


def _some(metrics: Mapping[str, EngineMetrics]) -> None:
    if not metrics:
        raise TraceError("there are no engines to draw", hint="run at least one")


def _judged(metrics: EngineMetrics, base: EngineMetrics) -> str:
    colours = {Order.FASTER: palette.FASTER, Order.SLOWER: palette.SLOWER}
    return colours.get(order(metrics, base), palette.HOST_CALL)


def _makespan_title(metrics: Mapping[str, EngineMetrics]) -> str:
    first = reference_engine(metrics)
    best = fastest(metrics)[0]
    idle = f"Under {first} no kernel runs for {_idle_percent(metrics[first])} of the makespan"
    return idle if best == first else f"{idle}, under {best} for {_idle_percent(metrics[best])}"


def _idle_percent(metrics: EngineMetrics) -> str:
    return f"{100 * metrics.idle_us / metrics.makespan_us:.0f} %" if metrics.makespan_us else "0 %"


def _speedup_title(metrics: Mapping[str, EngineMetrics], base: str) -> str:
    others = [engine for engine in metrics if engine != base]
    best = fastest(metrics)
    if not others:
        return f"Only {base} was run: nothing to compare"
    if base in best:
        return f"No engine is measurably faster than {base}"
    told = difference(metrics[best[0]], metrics[base])
    return f"{' and '.join(best)} tie as fastest: {told} than {base}" if len(best) > 1 else f"{best[0]} is {told} than {base}"


def _styled(
    figure: go.Figure, metrics: Mapping[str, EngineMetrics], title: str, axis: str, *, rows: int, legend: bool = False
) -> go.Figure:
    simulated = any(m.simulated for m in metrics.values())
    return _laid_out(figure, title, axis, rows=rows, simulated=simulated, legend=legend)


def _laid_out(figure: go.Figure, title: str, axis: str, *, rows: int, simulated: bool, legend: bool = False) -> go.Figure:
    """Give a figure our looks: a light card that reads in any theme, engines from top to bottom, a left-aligned title."""
    font: dict[str, Any] = {"family": "system-ui, -apple-system, Segoe UI, Roboto, sans-serif", "size": 13, "color": palette.INK}
    figure.update_layout(
        template="none", paper_bgcolor=palette.CARD, plot_bgcolor=palette.CARD, font=font, showlegend=legend,
        title={"text": title, "x": 0.012, "xanchor": "left", "y": 1, "yanchor": "top", "pad": {"t": 16}, "font": {"size": 15}},
        legend={"orientation": "h", "x": 0, "xanchor": "left", "y": 1, "yanchor": "bottom", "traceorder": "normal"},
        margin={"l": 20, "r": 24, "t": 104 if legend else 54, "b": 54}, height=(158 if legend else 108) + 44 * rows,
    )  # fmt: skip
    figure.update_xaxes(
        title={"text": f"{axis}, simulated" if simulated else axis, "font": {"size": 12}},
        gridcolor=palette.RULE, zeroline=False, ticks="", tickfont={"color": palette.FAINT_INK},
    )  # fmt: skip
    figure.update_yaxes(autorange="reversed", automargin=True, showgrid=False, ticks="", ticksuffix="  ")
    return figure
