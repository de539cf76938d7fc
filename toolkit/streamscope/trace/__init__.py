"""Traces: spans in columns, and the facts about them."""

from streamscope.trace.collectives import Collectives, PeerCopies
from streamscope.trace.columns import Blocks
from streamscope.trace.format import FORMATS, Format, ReadOptions
from streamscope.trace.info import DeviceInfo, TraceInfo
from streamscope.trace.origins import Origins, Trait
from streamscope.trace.spans import Basis, SpanBuilder, SpanKind, SpanTable
from streamscope.trace.trace import TimelineGroup, Trace

__all__ = [
    "FORMATS",
    "Basis",
    "Blocks",
    "Collectives",
    "DeviceInfo",
    "Format",
    "Origins",
    "PeerCopies",
    "ReadOptions",
    "SpanBuilder",
    "SpanKind",
    "SpanTable",
    "TimelineGroup",
    "Trace",
    "TraceInfo",
    "Trait",
]
