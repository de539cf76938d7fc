"""A trace as static HTML for a notebook, whoever recorded it: what was found, what to know before believing it, and a still picture."""

from __future__ import annotations

from streamscope.analysis import gpu_busy_ns, kernel_count
from streamscope.analysis.table import device_words
from streamscope.trace import Trace
from streamscope.words import counted, percent, shortened, time_text
from streamscope_widgets.payload import as_groups, nature_of
from streamscope_widgets.show.html import Html, above, block, folded, joined, lead, lines, small
from streamscope_widgets.still_timeline import timeline_image

LONGEST_NAME = 80
MOST_WARNINGS = 3
"""More of them unfold."""


def trace_html(trace: Trace) -> Html:
    """Return a trace as HTML of less than 200 kB that needs no script, style sheet or network."""
    finding = finding_of(trace)
    return block(
        above(trace_title(trace)),
        lead(finding),
        _warnings(trace),
        timeline_image(as_groups([trace]), finding),
        small("This is a picture. timeline() on the trace gives a timeline to zoom and search."),
    )


def trace_title(trace: Trace) -> str:
    """Return what a trace is of: the program, how it ran or who recorded it, and the device."""
    info = trace.info
    return " · ".join((shortened(info.program, LONGEST_NAME), shortened(info.engine, LONGEST_NAME), device_words(info.device)))


def finding_of(trace: Trace) -> str:
    """Say how busy the GPU is, in one sentence."""
    spans = trace.spans
    if not len(spans):
        return "The trace is empty."
    length_ns = int(spans.end_ns.max() - spans.start_ns.min())
    busy_ns, kernels = gpu_busy_ns(spans), kernel_count(spans)
    times = {"": "", "simulated": "Simulated times. ", "predicted": "Predicted times, not measured. "}[nature_of(trace.info)]
    share = f", {percent(busy_ns / length_ns)} of {time_text(length_ns)}" if length_ns else ""
    return f"{times}The GPU is busy for {time_text(busy_ns)}{share}, with {counted(kernels, 'kernel')}."


def _warnings(trace: Trace) -> Html:
    notes = [f"[{number}] {note}" for number, note in enumerate(trace.info.notes, 1)]
    if len(notes) <= MOST_WARNINGS:
        return small(lines(notes))
    return joined(
        [small(lines(notes[:MOST_WARNINGS])), folded(f"{len(notes) - MOST_WARNINGS} more warnings", lines(notes[MOST_WARNINGS:]))]
    )
