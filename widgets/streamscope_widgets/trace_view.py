"""A trace as static HTML for a notebook, whoever recorded it: finding, warnings, and a still picture."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from streamscope.analysis.code import CodeTimes, most_telling
from streamscope.analysis.memory import MemoryUse, memory
from streamscope.analysis.summary import COUNTER_HEADS, GPU_HEADS, KERNEL_HEADS, LINK_HEADS, STREAM_HEADS, Summary, summary
from streamscope.analysis.table import device_words
from streamscope.results.views import View
from streamscope.results.views import sections as added
from streamscope.trace import TimelineGroup, Trace, TraceInfo
from streamscope.trace.counters import note_rows
from streamscope.words import counted, percent, shortened, shortened_inside, time_text
from streamscope_widgets import comparison_view
from streamscope_widgets.code_view import code_table
from streamscope_widgets.memory_view import HEADING as MEMORY_HEADING
from streamscope_widgets.memory_view import memory_parts
from streamscope_widgets.notes_view import notes_section, notes_table
from streamscope_widgets.payload import as_groups, nature_of
from streamscope_widgets.report import provenance, report, still_page
from streamscope_widgets.show.html import (
    Column,
    Html,
    Row,
    a_picture,
    above,
    block,
    fill,
    folded,
    joined,
    lead,
    small,
    sortable,
    still,
    table,
    warned,
)
from streamscope_widgets.still_timeline import timeline_image, timeline_svg
from streamscope_widgets.tiles import MOST_WHOLE, needs_tiles

KERNELS = "Kernels that take most time"
COUNTERS = "Counters"
CODE_HEADINGS = {"line": "Lines that cost most", "module": "Modules that cost most", "range": "Ranges that cost most"}
MOST_COUNTERS = 100
"""Rows of a table; counters can be thousands."""
LONGEST_NAME, LONGEST_KERNEL = 80, 200
"""Names of kernels differ at their ends, so those are wrapped, not cut."""
MOST_WARNINGS, MOST_STREAMS = 3, 50
"""More warnings unfold; more streams are counted."""
FIRST = ("kernels", "span", "GPU busy", "copies and sets alone", "idle", "overlap", "launch latency", "queue time", "API time")
"""Numbers that are seen at once; the others unfold."""
WORTH_SAYING = 0.05
"""Share of the time from which a cause of idleness is told in the first sentence."""
NATURE_WORDS = {"": "", "simulated": "Simulated times. ", "predicted": "Predicted times, not measured. "}


def trace_html(trace: Trace) -> Html:
    """Return a trace as HTML of less than 200 kB that needs no script, style sheet or network."""
    found = summary(trace)
    finding = finding_of(trace, found)
    return block(
        *head(trace, found, finding),
        timeline_image(as_groups([trace]), finding),
        a_picture("trace"),
    )


def show_with_timeline(trace: Trace) -> None:
    """Show a trace and its live timeline, which takes the picture's place, as outputs of a cell."""
    from IPython.display import display

    found = summary(trace)
    finding = finding_of(trace, found)
    shown = block(*head(trace, found, finding), still(timeline_image(as_groups([trace]), finding)))
    display({"text/html": str(shown), "text/plain": repr(found)}, raw=True)  # type: ignore[no-untyped-call]
    trace.timeline().show_live()


def head(trace: Trace, found: Summary, finding: str) -> tuple[Html, ...]:
    """Return the head above the picture: the finding, the numbers, the warnings, your notes."""
    kernels = folded(KERNELS, _kernels(found)) if found.kernels else Html()
    counters = folded(COUNTERS, _counters(found)) if found.counters else Html()
    held = folded(MEMORY_HEADING, *memory_parts(memory(trace))) if len(trace.memory) else Html()
    warnings = warned(found.warnings, MOST_WARNINGS, 10 * LONGEST_NAME)
    numbers = _first_numbers(found), _all_numbers(found)
    notes = notes_table(note_rows(found.user_notes))
    return above(trace_title(trace.info)), lead(finding), *numbers, kernels, held, counters, warnings, notes


def summary_html(found: Summary) -> Html:
    """Return a summary as HTML: its numbers, the kernels and the warnings."""
    kernels = folded(KERNELS, _kernels(found)) if found.kernels else Html()
    warnings = warned(found.warnings, MOST_WARNINGS, 10 * LONGEST_NAME)
    notes = notes_table(note_rows(found.user_notes))
    return block(above(trace_title(found.info)), _first_numbers(found), _all_numbers(found), kernels, warnings, notes)


def _counters(found: Summary) -> Html:
    """Return the range and the last value of each counter as a table."""
    columns = [Column(COUNTER_HEADS[0], kind="prose"), *map(Column, COUNTER_HEADS[1:])]
    rows = [Row(cells) for cells in islice(found.counter_rows(), MOST_COUNTERS)]
    left_out = len(found.counters) - len(rows)
    shown = sortable(table(columns, rows))
    return joined([shown, small(f"{left_out:,} more counters")]) if left_out else shown


def trace_report(trace: Trace, groups: Sequence[TimelineGroup], finding: str, path: Path) -> Path:
    """Write a trace with its live timeline to one self-contained HTML file; with a still one, where it has too many spans for a file."""
    found, title = summary(trace), trace_title(trace.info)
    warnings = warned(found.warnings, len(found.warnings), 10 * LONGEST_NAME)
    code, held = most_telling(trace), memory(trace) if len(trace.memory) else None
    answers = [*([code.answer] if code.known else []), *([held.answer] if held else [])]
    verdict = fill('<p class="verdict">{}</p>{}', finding, [fill("<p>{}</p>", answer) for answer in answers])
    sections = [comparison_view.STYLE + verdict, _first_numbers(found), warnings]
    kernels = fill("<h2>{}</h2>{}", KERNELS, _kernels(found)) if found.kernels else Html()
    tables = [
        notes_section(note_rows(found.user_notes)),
        _memory(held, told=True),
        _counted(found),
        _code(code, told=bool(code.known)),
        kernels,
        _all_numbers(found),
    ]
    return timeline_page(groups, path, title, finding, sections, [*tables, *added(trace, "html")])


def _counted(found: Summary) -> Html:
    """Return the table of counters, whose lines the timeline has."""
    return fill("<h2>{}</h2>{}", COUNTERS, _counters(found)) if found.counters else Html()


def code_and_memory(trace: Trace) -> Html:
    """Return what costs most and what held the peak of the memory, as far as the trace tells."""
    return joined([_code(most_telling(trace)), _memory(memory(trace) if len(trace.memory) else None)])


def _memory(found: MemoryUse | None, *, told: bool = False) -> Html:
    """Return what held the peak of the memory, where the trace tells of memory; ``told``: its sentence stands above."""
    return fill("<h2>{}</h2>{}", MEMORY_HEADING, [*memory_parts(found, told=told)]) if found else Html()


def _code(found: CodeTimes, *, told: bool = False) -> Html:
    """Return which lines, modules or ranges cost most, or why none is known; ``told``: its sentence stands above."""
    if not found.gpu_ns:
        return Html()
    answer = Html() if told else fill("<p>{}</p>", found.answer)
    return fill("<h2>{}</h2>{}{}{}", CODE_HEADINGS[found.by], answer, code_table(found), [*map(small, found.notes)])


def timeline_page(
    groups: Sequence[TimelineGroup], path: Path, title: str, finding: str, sections: Sequence[str], below: Sequence[str]
) -> Path:
    """Write sections and a timeline to one HTML file: a live timeline or, where it has too many spans for a file, a still one."""
    if not needs_tiles(groups):
        return report(groups, path, title=title, sections=sections, below=below)
    spans = sum(len(group.trace.spans) for group in groups)
    said = f"This is a picture: these are {spans:,} spans, and a file holds the live timeline of {MOST_WHOLE:,} at most."
    picture = fill('<p class="missing">{} In a notebook, timeline() shows all of them.</p>{}', said, timeline_image(groups, finding))
    parts = [fill("<section>{}</section>", Html(part)) for part in (*sections, picture, *below) if part]
    body = fill("<main><h1>{}</h1>{}</main><footer>{}</footer>", title, parts, provenance(groups))
    return still_page(path, title=title, body=body)


def trace_title(info: TraceInfo) -> str:
    """Title of a trace: the program, how it ran or who recorded it, and the device."""
    device = f"{info.device.name}: all times are predicted" if nature_of(info) == "predicted" else device_words(info.device)
    return " · ".join((shortened(info.program, LONGEST_NAME), shortened(info.engine, LONGEST_NAME), device))


def finding_of(trace: Trace, found: Summary | None = None) -> str:
    """Say in two sentences how busy the GPU is, and its main cause of waiting."""
    found = found or summary(trace)
    said = NATURE_WORDS[nature_of(trace.info)]
    if not found.kernel_count or not found.span_us:
        return f"{said}No kernel runs in this trace."
    which = f"GPU {found.gpu} of {len(found.gpus)}, which has most work," if found.gpus else "The GPU"
    busy = f"{said}{which} is busy {percent(found.gpu_busy_us / found.span_us)} of {time_text(found.span_us * 1000)}"
    causes = {
        "waits for the host": found.idle.host_wait_ns / 1000,
        "waits for launches on their way": found.idle.launch_ns / 1000,
        "waits between kernels": found.idle.kernel_wait_ns / 1000,
        "copies or sets memory, with no kernel beside it,": found.copy_us,
        "is idle for other reasons": found.idle.other_ns / 1000,
    }
    if not found.idle.total_ns - found.idle.other_ns and found.launch_latency is None:
        causes = {"is idle, and the trace does not tell why,": causes.popitem()[1], **causes}
    words, most_us = max(causes.items(), key=lambda cause: cause[1])
    if most_us < WORTH_SAYING * found.span_us:
        return f"{busy}, with {counted(found.kernel_count, 'kernel')}.{_slowest(found)}"
    kernels = f"{busy}, with {counted(found.kernel_count, 'kernel')}."
    return f"{kernels} It {words} {percent(most_us / found.span_us)} of the time.{_slowest(found)}"


def _slowest(found: Summary) -> str:
    """Say for which GPU the others waited most, where that is worth saying."""
    slowest = max(found.gpus, key=lambda each: each.waited_for_us or 0, default=None)
    waited_us = 0.0 if slowest is None else slowest.waited_for_us or 0.0
    if slowest is None or waited_us < WORTH_SAYING * found.span_us:
        return ""
    return f" Other GPUs waited longest for GPU {slowest.gpu}: {time_text(waited_us * 1000)} in collectives."


def _first_numbers(found: Summary) -> Html:
    rows = [row for row in found.rows() if row[0] in FIRST]
    spreads = {"launch latency": found.launch_latency, "queue time": found.queue_time, "API time": found.api_time}
    told = [
        (f"{label}, median", time_text(spread.median_us * 1000)) if (spread := spreads.get(label)) else (label, value)
        for label, value, _ in rows
    ]
    return table(
        [Column(label, meaning) for (label, _), (*_, meaning) in zip(told, rows, strict=True)], [Row([value for _, value in told])]
    )


def _all_numbers(found: Summary) -> Html:
    whole = table([Column(kind="text"), Column(), Column(kind="prose")], map(Row, found.rows()))
    return joined([*_gpus(found), folded("What the numbers mean, and each stream", whole, _streams(found))])


def _gpus(found: Summary) -> list[Html]:
    """Return the GPUs of a trace of several side by side, and the copies between them."""
    tables = [(GPU_HEADS, list(found.gpu_rows())), (LINK_HEADS, list(found.link_rows()))]
    return [sortable(table([Column(heads[0], kind="text"), *map(Column, heads[1:])], map(Row, rows))) for heads, rows in tables if rows]


def _kernels(found: Summary) -> Html:
    """Return the kernels that take most time; the kernel's own name stands in the tooltip."""
    rows = []
    for kernel in found.kernels:
        name, *numbers = kernel.cells()
        rows.append(Row((shortened_inside(name, LONGEST_KERNEL), *numbers), title=shortened(kernel.symbol or name, 5 * LONGEST_NAME)))
    columns = [Column(KERNEL_HEADS[0], kind="prose"), *map(Column, KERNEL_HEADS[1:])]
    return sortable(table(columns, rows))


def _streams(found: Summary) -> Html:
    if not found.streams:
        return Html()
    columns = [Column(STREAM_HEADS[0], kind="text"), *map(Column, STREAM_HEADS[1:])]
    rows = [Row((shortened(name, LONGEST_NAME), *cells)) for name, *cells in islice(found.stream_rows(), MOST_STREAMS)]
    left = len(found.streams) - MOST_STREAMS
    return joined([sortable(table(columns, rows)), small(f"+ {counted(left, 'more stream')}") if left > 0 else ""])


SUMMARY = View(of="summary", html=summary_html)
TRACE = View(
    of="trace",
    html=trace_html,
    markdown=lambda trace: "\n".join(found.to_markdown() for found in (summary(trace), *([memory(trace)] if len(trace.memory) else []))),
    pictures={"timeline": lambda trace: timeline_svg(as_groups([trace]))},
    timeline="streamscope_widgets.timeline:trace_timeline",
    report=lambda trace, path: trace_report(trace, as_groups([trace]), finding_of(trace), path),
)
