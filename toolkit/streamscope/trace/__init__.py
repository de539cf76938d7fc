"""Traces: spans in columns, and the facts about them."""

import types

from streamscope.trace.collectives import Collectives as Collectives
from streamscope.trace.collectives import PeerCopies as PeerCopies
from streamscope.trace.columns import Blocks as Blocks
from streamscope.trace.counters import Counters as Counters
from streamscope.trace.counters import Markers as Markers
from streamscope.trace.counters import Note as Note
from streamscope.trace.counters import Series as Series
from streamscope.trace.format import FORMATS as FORMATS
from streamscope.trace.format import Format as Format
from streamscope.trace.format import ReadOptions as ReadOptions
from streamscope.trace.info import DeviceInfo as DeviceInfo
from streamscope.trace.info import TraceInfo as TraceInfo
from streamscope.trace.launch_sites import LaunchSites as LaunchSites
from streamscope.trace.launch_sites import Site as Site
from streamscope.trace.memory import BEFORE as BEFORE
from streamscope.trace.memory import HELD as HELD
from streamscope.trace.memory import Allocation as Allocation
from streamscope.trace.memory import Allocations as Allocations
from streamscope.trace.memory import Level as Level
from streamscope.trace.origins import Origins as Origins
from streamscope.trace.origins import Trait as Trait
from streamscope.trace.spans import Basis as Basis
from streamscope.trace.spans import SpanBuilder as SpanBuilder
from streamscope.trace.spans import SpanKind as SpanKind
from streamscope.trace.spans import SpanTable as SpanTable
from streamscope.trace.trace import TimelineGroup as TimelineGroup
from streamscope.trace.trace import Trace as Trace

# The names above: the modules that they come from are attributes, too.
__all__ = sorted(name for name, value in globals().items() if not (name.startswith("_") or isinstance(value, types.ModuleType)))  # noqa: PLE0605
