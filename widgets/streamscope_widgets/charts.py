"""Charts of a comparison, as data and as Plotly figures.

Each title states the finding, each axis its unit, and each bar carries its value, so that a chart can be read without hovering.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from streamscope.analysis.launches import launch_latency_ns
from streamscope.analysis.memory import MemoryUse, memory
from streamscope.analysis.metrics import EngineMetrics
from streamscope.analysis.statistics import Ranking, quantiles
from streamscope.analysis.traits import reference_engine
from streamscope.analysis.verdict import against, difference, fastest, rank, reference_of
from streamscope.errors import TraceError
from streamscope.trace import TimelineGroup
from streamscope.words import binary_size, capitalised, format_mib, format_us, time_unit, times_text
from streamscope_widgets.show import palette
from streamscope_widgets.show.chart import Axis, Bars, Boxes, Dots, Note, RowChart
from streamscope_widgets.show.plotly_chart import TEMPLATE, row_figure

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["TEMPLATE", "makespan_chart", "overlap_chart", "speedup_chart"]

_MIB = 2**20
LETTER = 0.017
"""Share of the longest bar that a letter of a label takes, in a wide font. A stretch narrower than its label carries none."""


def _host_functions_us(m: EngineMetrics) -> float:
    """Return the idle time in which a function of the user's runs: first in the device's waits for the host, then in other idle time."""
    return min(m.host_function_us, m.host_wait_us + m.other_idle_us)


STRETCHES: tuple[tuple[str, str, str, Callable[[EngineMetrics], float]], ...] = (
    ("one kernel", palette.BUSY, palette.ON_LIGHT, lambda m: m.gpu_busy_us - m.overlap_us),
    ("two or more kernels", palette.OVERLAPPED, palette.ON_OVERLAPPED, lambda m: m.overlap_us),
    ("copies alone", palette.COPY, palette.ON_DARK, lambda m: m.copy_us),
    ("host functions alone", palette.HOST_FUNCTION, palette.INK, _host_functions_us),
    ("host wait (not launched yet)", palette.HOST_WAIT, palette.ON_LIGHT, lambda m: max(0.0, m.host_wait_us - m.host_function_us)),
    ("launch (on its way)", palette.LAUNCH, palette.ON_DARK, lambda m: m.launch_wait_us),
    ("kernel wait (between kernels)", palette.KERNEL_WAIT, palette.ON_LIGHT, lambda m: m.kernel_wait_us),
    ("other idle", palette.OTHER_IDLE, palette.ON_LIGHT, lambda m: m.other_idle_us - max(0.0, _host_functions_us(m) - m.host_wait_us)),
)
"""Where a makespan goes: name, colour, colour of the label, and length in µs. They add up to the makespan."""


def makespan_chart(metrics: Mapping[str, EngineMetrics]) -> go.Figure:
    """Draw where each engine's makespan goes: kernels alone and side by side, copies, and idle time by cause.

    Raises
    ------
    TraceError
        There are no metrics, or no engine took any time.
    """
    return row_figure(makespans(metrics))


def overlap_chart(metrics: Mapping[str, EngineMetrics]) -> go.Figure:
    """Draw the share of GPU-busy time in which two or more kernels run, for each engine.

    Raises
    ------
    TraceError
        There are no metrics.
    """
    return row_figure(overlaps(metrics))


def speedup_chart(metrics: Mapping[str, EngineMetrics]) -> go.Figure:
    """Draw each engine's speed against the reference engine's, with the interval that both makespans' intervals allow.

    The speed-up is reference makespan / makespan (medians); its low end is lowest reference / highest makespan, its high end the reverse.

    Raises
    ------
    TraceError
        There are no metrics, or the reference took no time.
    """
    return row_figure(speedups(metrics))


def makespans(metrics: Mapping[str, EngineMetrics]) -> RowChart:
    """Describe `makespan_chart`."""
    _some(metrics)
    longest_us = max(max(m.makespan_us, m.gpu_busy_us) for m in metrics.values())
    if not longest_us:
        raise TraceError("no engine took any time, so there is nothing to draw", hint="was anything run?")
    scale, unit = _unit(longest_us)
    longest, series = longest_us * scale, []
    for name, colour, ink, length_us in STRETCHES:
        lengths = [length_us(m) * scale for m in metrics.values()]
        if any(lengths):
            told = [(length, format_us(length)) for length in lengths]
            labels = [text if length >= LETTER * len(text) * longest else "" for length, text in told]
            series.append(Bars(name, colour, ink, lengths, labels, f"{unit} {name}"))
    notes = [
        Note(max(m.makespan_us, m.gpu_busy_us) * scale, engine, f"{format_us(m.makespan_us * scale)} {unit}", 4)
        for engine, m in metrics.items()
    ]
    axis = Axis(_titled(f"time, {unit}", metrics), 0, longest * 1.16)
    return RowChart(_makespan_title(metrics), axis, tuple(metrics), tuple(series), tuple(notes))


def overlaps(metrics: Mapping[str, EngineMetrics]) -> RowChart:
    """Describe `overlap_chart`."""
    _some(metrics)
    shares = [m.overlap * 100 for m in metrics.values()]
    labels = [
        f"{share:.1f} % ({times_text(m.overlap_us * 1e3, ' of ', m.gpu_busy_us * 1e3)})" if share else "none"
        for share, m in zip(shares, metrics.values(), strict=True)
    ]
    title = "No kernels run side by side under any engine"
    if any(shares):
        best = max(metrics, key=lambda engine: metrics[engine].overlap)
        title = f"Kernels overlap most under {best}: {metrics[best].overlap * 100:.0f} % of GPU-busy time"
    bars = Bars("", palette.OVERLAPPED, palette.INK, shares, labels, "% of GPU-busy time", outside=True)
    axis = Axis(_titled("time with two or more kernels running, % of GPU busy", metrics), 0, max(*shares, 5) * 1.5)
    return RowChart(title, axis, tuple(metrics), (bars,))


def speedups(metrics: Mapping[str, EngineMetrics], wrong: Collection[str] = ()) -> RowChart:
    """Describe `speedup_chart`; engines with ``wrong`` results are marked, and its title calls none of them the fastest."""
    _some(metrics)
    reference = reference_of(metrics, wrong)
    base = metrics[reference]
    if any(not m.makespan_low_us > 0 for m in metrics.values()):
        raise TraceError("a makespan of 0 µs has no speed-up", hint="was anything run?")
    dots = Dots(
        values=[base.makespan_us / m.makespan_us for m in metrics.values()],
        lows=[base.makespan_low_us / m.makespan_high_us for m in metrics.values()],
        highs=[base.makespan_high_us / m.makespan_low_us for m in metrics.values()],
        colours=[palette.ON_ANY if engine in wrong else _judged(m, base) for engine, m in metrics.items()],
    )
    notes = [
        Note(end, engine, against(metrics, engine, reference, wrong) or ("reference" if engine == reference else ""), 10)
        for engine, end in zip(metrics, dots.highs, strict=True)
    ]
    axis = Axis(_titled(f"speed-up against {reference}, ×", metrics), 0, max(dots.highs) * 1.25)
    right = {engine: m for engine, m in metrics.items() if engine == reference or engine not in wrong}
    alone = "No engine has right results" if reference in wrong else f"No engine beside {reference} has right results"
    title = alone if len(right) == 1 < len(metrics) else _speedup_title(right, reference)
    return RowChart(title, axis, tuple(metrics), (dots,), tuple(notes), rule=1)


def launch_overheads(groups: Sequence[TimelineGroup]) -> RowChart:
    """Describe the distribution of launch latency for each engine: quartiles as a box, the 5th and 95th percentiles as whiskers.

    Engines without launches are left out.

    Raises
    ------
    TraceError
        No trace has a launch with its kernel.
    """
    latency_us = {group.trace.info.engine: launch_latency_ns(group.trace.spans) / 1000 for group in groups}
    latency_us = {engine: values for engine, values in latency_us.items() if len(values)}
    if not latency_us:
        raise TraceError("no trace has a launch call with its kernel, so there is no launch latency to draw")
    summary_us = [quantiles(values, 0.05, 0.25, 0.5, 0.75, 0.95) for values in latency_us.values()]
    scale, unit = _unit(max(abs(value) for values in summary_us for value in values))
    summary = [[value * scale for value in values] for values in summary_us]
    boxes = Boxes(*(list(column) for column in zip(*summary, strict=True)))
    rows = tuple(f"{engine} ({len(values):,})" for engine, values in latency_us.items())
    medians = [f"{format_us(median)} {unit}" for median in boxes.median]
    notes = [Note(high, row, f"median {median}", 8) for row, median, high in zip(rows, medians, boxes.high, strict=True)]
    least, most = min(0.0, *boxes.low), max(0.0, *boxes.high)
    _, slowest, engine = max(zip(boxes.median, medians, latency_us, strict=True), key=lambda row: row[0])
    title = f"From launch call to kernel: {slowest} at the median under {engine}"
    simulated = ", simulated" if any(group.trace.info.device.simulated for group in groups) else ""
    axis = Axis(f"launch latency, {unit} (in brackets: launches){simulated}", least * 1.1, most * 1.3 if most > least else 1.0)
    return RowChart(title, axis, rows, (boxes,), tuple(notes))


def memories(groups: Sequence[TimelineGroup]) -> RowChart:
    """Describe what the peak of the memory under each engine is made of, by kind, and how much more that is than under the first engine.

    Engines whose traces tell nothing of memory are left out. Of several GPUs, it is the one with the largest peak.

    Raises
    ------
    TraceError
        No trace tells of memory.
    """
    found = {group.trace.info.engine: memory(group.trace, "kind") for group in groups if len(group.trace.memory)}
    if not found:
        raise TraceError("no trace tells of memory, so there is nothing to draw")
    held = {engine: {row.name: row.bytes for row in use.rows} for engine, use in found.items()}
    longest_mib = max(use.peak.bytes for use in found.values()) / _MIB or 1.0
    # What all engines hold comes first, so that what one of them holds besides stands at the ends of the bars.
    kinds = sorted(
        {kind for kinds in held.values() for kind in kinds}, key=lambda kind: -min(kinds.get(kind, 0) for kinds in held.values())
    )
    series = []
    for number, kind in enumerate(kinds):
        lengths = [kinds.get(kind, 0) / _MIB for kinds in held.values()]
        told = [(length, format_mib(length * _MIB)) for length in lengths]
        labels = [text if length >= LETTER * len(text) * longest_mib else "" for length, text in told]
        series.append(Bars(kind, palette.KERNELS[number % len(palette.KERNELS)], palette.ON_LIGHT, lengths, labels, f"MiB {kind}"))
    (first, base), *others = found.items()
    notes = [Note(base.peak.bytes / _MIB, first, binary_size(base.peak.bytes), 4)]
    for engine, use in others:
        notes.append(Note(use.peak.bytes / _MIB, engine, f"{binary_size(use.peak.bytes)}{_more(use.peak.bytes - base.peak.bytes)}", 4))
    return RowChart(_memory_title(found), Axis("peak of the memory, MiB", 0, longest_mib * 1.16), tuple(found), tuple(series), tuple(notes))


def _memory_title(found: Mapping[str, MemoryUse]) -> str:
    sizes = {engine: use.peak.bytes for engine, use in found.items()}
    most, least = max(sizes, key=sizes.__getitem__), min(sizes, key=sizes.__getitem__)
    if sizes[most] == sizes[least]:
        return f"Every engine holds {binary_size(sizes[most])}" if len(sizes) > 1 else f"{most} holds {binary_size(sizes[most])}"
    return f"{capitalised(most)} holds most: {binary_size(sizes[most])}, {binary_size(sizes[most] - sizes[least])} more than {least}"


def _more(difference: int) -> str:
    return "" if not difference else f" ({'+' if difference > 0 else '−'}{binary_size(abs(difference))})"


def _unit(longest_us: float) -> tuple[float, str]:
    """Return the unit of an axis up to a time, and by how much times in µs are multiplied for it."""
    unit_ns, unit = time_unit(longest_us * 1e3)
    return 1e3 / unit_ns, unit


def _titled(axis: str, metrics: Mapping[str, EngineMetrics]) -> str:
    return f"{axis}, simulated" if any(m.simulated for m in metrics.values()) else axis


def _some(metrics: Mapping[str, EngineMetrics]) -> None:
    if not metrics:
        raise TraceError("there are no engines to draw", hint="run at least one")


def _judged(metrics: EngineMetrics, base: EngineMetrics) -> str:
    colours = {Ranking.FASTER: palette.FASTER, Ranking.SLOWER: palette.SLOWER}
    return colours.get(rank(metrics, base), palette.ON_ANY)


def _makespan_title(metrics: Mapping[str, EngineMetrics]) -> str:
    first = reference_engine(metrics)
    best = fastest(metrics)[0]
    where = "" if metrics[first].gpu is None else f" on GPU {metrics[first].gpu}"
    idle = f"Under {first} no kernel runs{where} for {_unused_percent(metrics[first])} of the run"
    return idle if best == first else f"{idle}, under {best} {_unused_percent(metrics[best])}"


def _unused_percent(metrics: EngineMetrics) -> str:
    return f"{100 * (metrics.idle_us + metrics.copy_us) / metrics.makespan_us:.0f} %" if metrics.makespan_us else "0 %"


def _speedup_title(metrics: Mapping[str, EngineMetrics], base: str) -> str:
    others = [engine for engine in metrics if engine != base]
    best = fastest(metrics)
    if not others:
        return f"Only {base} was run: nothing to compare"
    if rank(metrics[best[0]], metrics[base]) is Ranking.UNKNOWN:
        return f"{capitalised(Ranking.UNKNOWN.value)} which engine is faster than {base}"
    if base in best:
        return f"No engine is measurably faster than {base}"
    told = difference(metrics[best[0]], metrics[base])
    return f"{' and '.join(best)} tie as fastest: {told} than {base}" if len(best) > 1 else f"{best[0]} is {told} than {base}"
