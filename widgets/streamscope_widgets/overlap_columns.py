"""Columns of overlap for the live timeline, worked out here, so that every number has one definition.

The device's activity over time, waits between launches, the critical path, and origins of operations.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.analysis import Bound, Occupation, critical_path
from streamscope.analysis.critical_path import BOUND_WORDS
from streamscope.arrays import IntArray
from streamscope.trace import Origins, SpanTable, Trace
from streamscope_widgets.columns import ColumnBlock
from streamscope_widgets.gpu_activity import GpuActivity
from streamscope_widgets.show import palette

FULLNESS_STEPS, FULLNESS_UNKNOWN = 200, 255
"""Fullness goes in half per cents."""

LOOKS = {
    "kernel": ("one kernel", palette.BUSY),
    "kernels": ("two or more kernels", palette.OVERLAPPED),
    "hidden": ("communication, hidden", palette.HIDDEN),
    "exposed": ("communication, exposed", palette.EXPOSED),
    "copy": ("copy", palette.COPY),
    "host_function": ("idle: host function", palette.HOST_FUNCTION),
    "host_wait": ("idle: host wait", palette.HOST_WAIT),
    "launch": ("idle: launch", palette.LAUNCH),
    "kernel_wait": ("idle: kernel wait", palette.KERNEL_WAIT),
    "other": ("idle: other", palette.OTHER_IDLE),
}
"""Words and colours of the lane "at once": those of the charts."""
NOTES = {
    "hidden": "Hidden: a kernel computes meanwhile.",
    "exposed": "Exposed: no kernel computes meanwhile.",
    "host_function": "Nothing runs on the device while a host function of the program does.",
    "host_wait": "Nothing runs: the host has not yet called what comes next.",
    "launch": "Nothing runs: what comes next has been called, and is on its way to the device.",
    "kernel_wait": "Nothing runs: what comes next was launched before; this is the device's own delay between two kernels.",
    "other": "Nothing runs: what comes next waits for an event, another stream or GPU, or the run is over and the host has yet to notice.",
}
"""What a tooltip adds."""


def header_words() -> dict[str, Any]:
    """Return the part that all groups share: names of occupations and bounds by their codes, words, colours, light and dark, and notes."""
    return {
        "occupations": [occupation.name.lower() for occupation in Occupation],
        "bounds": [BOUND_WORDS[bound] for bound in Bound],
        "looks": {name: [words, colour, palette.DARK.get(colour, colour), NOTES.get(name, "")] for name, (words, colour) in LOOKS.items()},
        "fullness_steps": FULLNESS_STEPS,
        "fullness_unknown": FULLNESS_UNKNOWN,
    }


def encode_activity(found: GpuActivity, block: ColumnBlock, crowd: npt.NDArray[np.bool_] | None = None) -> dict[str, Any]:
    """Encode the activity of a GPU; ``crowd`` tells which stretches stand for many."""
    return {
        **({} if crowd is None else {"crowd": block.add(crowd)}),
        **{name: block.add(np.minimum(getattr(found, name), 255)) for name in ("collectives", "peers")},
        "count": len(found.start_ns),
        "end_ns": int(found.end_ns[-1]) if len(found.end_ns) else 0,
        "start": block.add_rising(found.start_ns),
        "kernels": block.add(np.minimum(found.kernels, 255)),
        "copies": block.add(np.minimum(found.copies, 255)),
        "occupation": block.add(found.occupation),
        "fullness": block.add(np.where(np.isnan(found.fullness), FULLNESS_UNKNOWN, np.round(found.fullness * FULLNESS_STEPS))),
    }


def waits_of(origins: Origins, spans: SpanTable) -> tuple[IntArray, IntArray]:
    """Return the event waits as rows of the spans: awaited work and waiting work, in the order of the latter."""
    earlier, later = origins.wait_rows(spans)
    order = np.argsort(later, kind="stable")
    return earlier[order], later[order]


def encode_waits(earlier: IntArray, later: IntArray, block: ColumnBlock) -> dict[str, Any]:
    """Encode `waits_of`."""
    return {"count": len(later), "earlier": block.add(earlier), "later": block.add_rising(later)}


def encode_path(trace: Trace, keep: int, block: ColumnBlock) -> dict[str, Any]:
    """Encode the critical path, as far as its spans are among the first that are sent."""
    found = critical_path(trace)
    kept = found.span < keep
    lane = trace.spans.lane[found.span[kept]]
    return encode_stretches_of_path(found.words, found.start_ns[kept], found.end_ns[kept], found.bound[kept], lane, block)


def encode_stretches_of_path(
    words: str, start_ns: IntArray, end_ns: IntArray, bound: IntArray, lane: IntArray, block: ColumnBlock
) -> dict[str, Any]:
    """Encode stretches of a critical path: time, lane and bound of each."""
    times = {"start": block.add_rising(start_ns), "duration": block.add(end_ns - start_ns)}
    return {"count": len(start_ns), "words": words, **times, "bound": block.add(bound), "lane": block.add(lane)}


def encode_origins(origins: Origins, texts: dict[str, int], block: ColumnBlock) -> dict[str, Any]:
    """Encode labels, lines and shapes of operations, by their ids; ``texts`` numbers the texts of all groups."""
    codes = np.array([-1, *(texts.setdefault(text, len(texts)) for text in origins.texts)], np.int64)
    columns = {name: block.add_codes(codes[getattr(origins, name) + 1]) for name in ("label", "line", "arguments")}
    return {"count": len(origins.label), **columns}
