"""What shows overlap in the live timeline, worked out here and sent as columns, so that every number has one definition.

What the device does at each time, which launch waited for which, the critical path, and where operations come from.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streamscope.analysis import Bound, Occupation, activity, critical_path
from streamscope.analysis.critical_path import BOUND_WORDS
from streamscope.trace import Origins, SpanTable, Trace
from streamscope.trace.spans import DEVICE_KINDS
from streamscope_widgets.columns import ColumnBlock
from streamscope_widgets.show import palette

FULLNESS_STEPS, FULLNESS_UNKNOWN = 200, 255
"""Fullness goes in half per cents."""

LOOKS = {
    "kernel": ("one kernel", palette.BUSY),
    "kernels": ("two or more kernels", palette.OVERLAPPED),
    "copy": ("copy", palette.COPY),
    "host_function": ("idle: host function", palette.HOST_FUNCTION),
    "host_wait": ("idle: host wait", palette.HOST_WAIT),
    "kernel_wait": ("idle: kernel wait", palette.KERNEL_WAIT),
    "other": ("idle: other", palette.OTHER_IDLE),
}
"""Words and colour of what the lane "at once" shows: those of the charts."""


def header_words() -> dict[str, Any]:
    """Return what all groups share: names of occupations and bounds by their codes, words and colours, light and dark."""
    return {
        "occupations": [occupation.name.lower() for occupation in Occupation],
        "bounds": [BOUND_WORDS[bound] for bound in Bound],
        "looks": {name: [words, colour, palette.DARK.get(colour, colour)] for name, (words, colour) in LOOKS.items()},
        "fullness_steps": FULLNESS_STEPS,
        "fullness_unknown": FULLNESS_UNKNOWN,
    }


def multiprocessors_of(trace: Trace) -> int | None:
    """Return how many multiprocessors the trace's device has, if it says so."""
    count = trace.info.device.details.get("multiprocessors")
    return count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else None


def encode_activity(trace: Trace, spans: SpanTable, block: ColumnBlock) -> dict[str, Any] | None:
    """Encode what the device does at each time; None where the trace has no kernels and copies.

    Parameters
    ----------
    trace : Trace
    spans : SpanTable
        The spans of it that are sent.
    block : ColumnBlock
    """
    if not spans.is_kind(DEVICE_KINDS).any():
        return None
    found = activity(spans, multiprocessors_of(trace))
    return {
        "count": len(found.start_ns),
        "end_ns": int(found.end_ns[-1]) if len(found.end_ns) else 0,
        "start": block.add_rising(found.start_ns),
        "kernels": block.add(np.minimum(found.kernels, 255)),
        "copies": block.add(np.minimum(found.copies, 255)),
        "occupation": block.add(found.occupation),
        "fullness": block.add(np.where(np.isnan(found.fullness), FULLNESS_UNKNOWN, np.round(found.fullness * FULLNESS_STEPS))),
    }


def encode_waits(origins: Origins, spans: SpanTable, block: ColumnBlock) -> dict[str, Any]:
    """Encode the event waits as rows of the spans that are sent, in the order of what waited."""
    earlier, later = origins.wait_rows(spans)
    order = np.argsort(later, kind="stable")
    return {"count": len(order), "earlier": block.add(earlier[order]), "later": block.add_rising(later[order])}


def encode_path(trace: Trace, keep: int, block: ColumnBlock) -> dict[str, Any]:
    """Encode the critical path, as far as its spans are among the first that are sent."""
    found = critical_path(trace)
    kept = found.span < keep
    start_ns = found.start_ns[kept]
    return {
        "count": len(start_ns),
        "words": found.words,
        "start": block.add_rising(start_ns),
        "duration": block.add(found.end_ns[kept] - start_ns),
        "bound": block.add(found.bound[kept]),
        "span": block.add(found.span[kept]),
    }


def encode_origins(origins: Origins, texts: dict[str, int], block: ColumnBlock) -> dict[str, Any]:
    """Encode labels, lines and shapes of operations, by their ids; ``texts`` numbers the texts of all groups."""
    codes = np.array([-1, *(texts.setdefault(text, len(texts)) for text in origins.texts)], np.int64)
    columns = {name: block.add_codes(codes[getattr(origins, name) + 1]) for name in ("label", "line", "arguments")}
    return {"count": len(origins.label), **columns}
