"""Logs of compilations as static HTML: origins of kernels, time by stage, the threads' work over time, the cost of each kernel.

The threads' work is a still picture: a row for each thread, a bar for each stage, a colour for each sort of stage.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from streamscope.compiling.compare_compilation import CompilationComparison
from streamscope.kernels.compile.compilation_log import CompilationLog, CompileStage, KernelRecord, StageTime, lane_order
from streamscope.kernels.compile.cubin import KernelResources
from streamscope.kernels.compile.kernel_cache import Origin
from streamscope.results.views import View
from streamscope.words import counted, format_ms, time_text
from streamscope_widgets.show import palette
from streamscope_widgets.show.html import Column, Html, Row, above, bar, block, fill, folded, image, lead, table
from streamscope_widgets.show.svg import FONT, document, lane_axis, lane_legend, shape, small_text, tick_text, ticks

MOST_SHOWN, MOST_FOLDED = 12, 120
"""Kernels that are listed at once, and those that unfold below; the costliest come first, and the rest is counted."""
LONGEST_NAME, LONGEST_TITLE = 80, 200
BAR_PX = 240

WIDTH, GUTTER, MARGIN, TOP = 980, 84, 14, 34
ROW, BAR = 17, 12
MOST_BARS = 500
"""The longest ones are drawn; the others are too short to be seen beside so many."""
MOST_ROWS = 32

COLOURS = {
    CompileStage.GENERATE: palette.KERNELS[2],
    CompileStage.LOOK_UP: palette.KERNELS[4],
    CompileStage.COMPILE: palette.KERNELS[0],
    CompileStage.STORE: palette.KERNELS[1],
    CompileStage.WAIT: palette.SYNC,
    CompileStage.LOAD: palette.KERNELS[3],
}

STAGES = {
    CompileStage.GENERATE: "Source is generated from the operators.",
    CompileStage.LOOK_UP: "Kernels are looked up in the cache, in memory and on disk.",
    CompileStage.COMPILE: "NVRTC compiles translation units to machine code; nothing is left to link.",
    CompileStage.STORE: "Machine code is written to the cache on disk.",
    CompileStage.WAIT: "Another thread or process compiles what is needed here.",
    CompileStage.LOAD: "The driver loads machine code onto the device.",
}
SHARES = (
    "compile ms: kernels that are compiled together are timed together; each is given an equal share. What came from the cache took that"
    " long when it was compiled."
)
COLUMNS = (
    Column("kernel", "Name of the function: the operator, the dtypes, and the first digits of its source's SHA-256.", "code"),
    Column("from", "Where it came from: compiled now, or taken from the cache in memory or on disk; how often, if more than once.", "text"),
    Column("compile ms", "Its equal share of the time that its translation unit took NVRTC, whenever and by whomever that was compiled."),
    Column("code bytes", "Machine code of the kernel."),
    Column("registers", "Of each thread."),
    Column("shared bytes", "Static shared memory of each block."),
    Column("stack bytes", "Local memory of each thread, spilled registers among it."),
)
STAGE_COLUMNS = (
    Column("stage", "What is done to get from a program to kernels.", "text"),
    Column("ms", "Added up over all threads."),
    Column(kind="bar"),
)


def compilation_html(log: CompilationLog) -> Html:
    """Return a log as HTML of less than 200 kB that needs no script, style sheet or network."""
    kernels = asked_kernels(list(log.kernels))
    if not kernels:
        return block("No kernel has been asked for yet.")
    return block(
        above("compiled for " + ", ".join(sorted({kernel.architecture for kernel in kernels}))),
        lead(headline(log)),
        _stages(log),
        _picture(log, "Which thread did what, and when."),
        _launches(log),
        _kernels(kernels),
        fill('<p style="margin:0;font-size:12px;color:#808080">{}</p>', SHARES),
    )


def compilation_comparison_html(comparison: CompilationComparison) -> Html:
    """Return compiling one by one and together as HTML: the verdict, and both as still pictures on one time axis."""
    logs = {"one by one": comparison.one_by_one, "together": comparison.together}
    axis_ns = max(log.wall_ns for log in logs.values())
    heading = '<p style="margin:6px 0 2px 0;font-weight:600">{}, {}</p>{}'
    pictures = [
        fill(heading, label, time_text(log.wall_ns), _picture(log, f"Which thread did what, and when: {label}.", axis_ns))
        for label, log in logs.items()
    ]
    return block(above(comparison.together.trace().info.device.name), lead(str(comparison)), *pictures)


@dataclass(frozen=True)
class AskedKernel:
    """One kernel for one architecture, however often it was asked for."""

    name: str
    architecture: str
    origins: Counter[Origin]
    """How often it came from where."""
    compile_ns: float
    """As `KernelRecord.compile_ns`."""
    resources: KernelResources | None
    """None where they are not known."""


def asked_kernels(records: Iterable[KernelRecord]) -> list[AskedKernel]:
    """Return each kernel that was asked for once: those that failed first, then by time to compile; in one unit by machine code."""
    by_kernel: dict[tuple[str, str], list[KernelRecord]] = {}
    for record in records:
        by_kernel.setdefault((record.name, record.architecture), []).append(record)
    kernels = [
        AskedKernel(name, architecture, Counter(record.origin for record in each), each[-1].compile_ns, each[-1].resources)
        for (name, architecture), each in by_kernel.items()
    ]
    return sorted(kernels, key=lambda kernel: (Origin.FAILED not in kernel.origins, -kernel.compile_ns, -_code_bytes(kernel), kernel.name))


def _code_bytes(kernel: AskedKernel) -> int:
    return kernel.resources.code_bytes if kernel.resources is not None else 0


def headline(log: CompilationLog) -> str:
    """Return the whole in one sentence: ``9 kernels: 4 compiled, 5 from disk; in 81.4 ms; 34,816 bytes of device code``."""
    words = {Origin.COMPILED: "compiled", Origin.DISK: "from disk", Origin.MEMORY: "from memory", Origin.FAILED: "failed"}
    counts = log.counts
    origins = ", ".join(f"{counts[origin]:,} {word}" for origin, word in words.items() if origin in counts)
    total, kernels = sum(counts.values()), len({(record.name, record.architecture) for record in list(log.kernels)})
    asked = f", asked for {total:,} times" if total > kernels else ""
    return f"{counted(kernels, 'kernel')}{asked}: {origins}; in {format_ms(log.wall_ns)} ms; {log.code_bytes:,} bytes of device code"


def _stages(log: CompilationLog) -> Html:
    totals = log.stage_ns
    most = max(totals.values(), default=0) or 1
    rows = [
        Row((stage.value, format_ms(spent_ns), bar(BAR_PX * spent_ns / most, COLOURS[stage])), title=STAGES[stage])
        for stage, spent_ns in totals.items()
    ]
    total = Row(("wall clock", format_ms(log.wall_ns), ""), style="border-top:1px solid #888888")
    return table(STAGE_COLUMNS, [*rows, total])


def _picture(log: CompilationLog, alt: str, axis_ns: int = 0) -> Html:
    svg = workers_svg(list(log.stages), axis_ns)
    return image(svg, alt) if svg else Html()


def _launches(log: CompilationLog) -> Html:
    cost = log.launch_cost
    if cost is None:
        return Html()
    words = (
        f"To launch one takes the host {time_text(cost.prepared_ns)} from a prepared program and {time_text(cost.pushed_ns)} by"
        f" Engine.push, a plain launch of the same kernel {time_text(cost.plain_ns)} (medians on {cost.device})."
    )
    return fill('<p style="margin:10px 0">{}</p>', words)


def _kernels(kernels: Sequence[AskedKernel]) -> Html:
    shown, more = kernels[:MOST_SHOWN], kernels[MOST_SHOWN : MOST_SHOWN + MOST_FOLDED]
    if not more:
        return _kernel_table(shown)
    left_out = len(kernels) - len(shown) - len(more)
    summary = f"{counted(len(more), 'more kernel')}" + (f"; another {left_out:,} are not listed" if left_out else "")
    return Html(_kernel_table(shown) + folded(summary, _kernel_table(more)))


def _kernel_table(kernels: Sequence[AskedKernel]) -> Html:
    several = len({kernel.architecture for kernel in kernels}) > 1
    return table(COLUMNS, [_kernel(kernel, several=several) for kernel in kernels])


def _kernel(kernel: AskedKernel, *, several: bool) -> Row:
    name = kernel.name if len(kernel.name) <= LONGEST_NAME else kernel.name[: LONGEST_NAME - 10] + "…" + kernel.name[-9:]
    where = f" for {kernel.architecture}" if several else ""
    origins = ", ".join(f"{origin.value}{f' ×{count}' if count > 1 else ''}" for origin, count in kernel.origins.items())
    found = kernel.resources
    numbers = [found.code_bytes, found.registers, found.shared_bytes, found.stack_bytes] if found is not None else []
    cells = [format_ms(kernel.compile_ns) if kernel.compile_ns else "–", *(f"{number:,}" for number in numbers)]
    cells += ["–"] * (len(COLUMNS) - 2 - len(cells))
    title = kernel.name[:LONGEST_TITLE] if name != kernel.name else ""
    return Row((name + where, origins, *cells), bold=(0, 1) if Origin.FAILED in kernel.origins else False, title=title)


def workers_svg(stages: Sequence[StageTime], axis_ns: int = 0) -> str:
    """Return the picture as an SVG document on a white card; empty where there is nothing to draw.

    Time in which no thread was at a stage is left out, so that batches that lie minutes apart can be seen side by side.

    ``axis_ns``: length of the time axis, where that is more than the stages take: so that two pictures have the same.
    """
    clock = BusyClock(stages)
    if not clock.total_ns:
        return ""
    length_ns = max(axis_ns, clock.total_ns)
    every = lane_order(stages)
    lanes, left_out = every[:MOST_ROWS], len(every) - MOST_ROWS
    rows = {lane: number for number, lane in enumerate(lanes)}
    scale = (WIDTH - GUTTER - MARGIN) / length_ns
    longest = sorted((stage for stage in stages if stage.lane in rows), key=lambda stage: stage.start_ns - stage.end_ns)[:MOST_BARS]
    bars = [_bar(stage, clock, scale, TOP + rows[stage.lane] * ROW) for stage in longest]
    bottom = TOP + len(lanes) * ROW
    labels = [small_text(GUTTER - 8, TOP + number * ROW + 10, lane, "end") for lane, number in rows.items()]
    if left_out > 0:
        labels.append(small_text(GUTTER, bottom + 32, f"not shown: {counted(left_out, 'more thread')}"))
    present = [(str(stage), COLOURS[stage]) for stage in CompileStage if any(each.stage is stage for each in stages)]
    legend, _ = lane_legend(present, MARGIN)
    axis = lane_axis([(GUTTER + tick * 1e6 * scale, tick_text(tick)) for tick in ticks(0, length_ns / 1e6, 8)], TOP - 4, bottom)
    title = small_text(WIDTH - MARGIN, bottom + 32, "time in which something was done, ms", "end")
    return document(WIDTH, bottom + 44, *legend, *axis, title, *labels, *bars, font_family=FONT)


class BusyClock:
    """A clock that stands still while no thread is at a stage."""

    def __init__(self, stages: Sequence[StageTime]) -> None:
        self._starts: list[int] = []
        self._before: list[int] = []
        """Busy time before each start."""
        self.total_ns = 0
        until: int | None = None
        for start, end in sorted((stage.start_ns, stage.end_ns) for stage in stages):
            if until is None or start > until:
                self._starts.append(start)
                self._before.append(self.total_ns)
                until = start
            self.total_ns += max(0, end - until)
            until = max(until, end)

    def at(self, time_ns: int) -> int:
        """Return the busy time, in ns, before a time that lies in a stage."""
        number = bisect_right(self._starts, time_ns) - 1
        return self._before[number] + time_ns - self._starts[number]


def _bar(stage: StageTime, clock: BusyClock, scale: float, top: float) -> str:
    left = GUTTER + clock.at(stage.start_ns) * scale
    width = max(0.5, (stage.end_ns - stage.start_ns) * scale)
    return shape("rect", x=left, y=top, width=width, height=BAR, fill=COLOURS[stage.stage])


COMPILATION = View(of="compilation", html=compilation_html, timeline="streamscope_widgets.timeline:compilation_timeline")
COMPILATION_COMPARISON = View(
    of="compilation-comparison",
    html=compilation_comparison_html,
    timeline="streamscope_widgets.timeline:compilation_comparison_timeline",
)
