"""The module or range of the user's code that launched each piece of work."""

from __future__ import annotations

import numpy as np

from streamscope.analysis.code import Key, numbered, operation_keys, ranges_around, site_key
from streamscope.arrays import IntArray
from streamscope.ranks.steps import is_step
from streamscope.trace.joins import call_rows
from streamscope.trace.spans import DEVICE_KINDS
from streamscope.trace.trace import Trace


def places_of(trace: Trace) -> tuple[IntArray, tuple[str, ...]]:
    """Return for each span an index into texts, and the texts: the module, else the innermost range around the launch call.

    It is -1 for spans of the host, and where nothing is known. Ranges of steps are no places.

    Examples
    --------
    >>> from streamscope.ranks.places import places_of
    >>> from streamscope.trace import DeviceInfo, SpanTable, Trace, TraceInfo
    >>> spans = SpanTable.of(("range", "augment", "host ranges", 0, 9), ("launch", "a", "host", 1, 3, 0), ("kernel", "a", "main", 5, 25, 0))
    >>> code, texts = places_of(Trace(spans, TraceInfo("async", "step", DeviceInfo("cuda", "NVIDIA H200"))))
    >>> code.tolist(), texts
    ([-1, -1, 0], ('augment',))
    """
    spans, keys = trace.spans, dict[Key, int]()
    found = np.full(len(spans), -1)
    device = np.flatnonzero(spans.is_kind(DEVICE_KINDS))
    around = ranges_around(spans, call_rows(spans, device))
    of_name = np.full(len(spans.names) + 1, -1)
    for code in np.unique(spans.name[around[around >= 0]]).tolist():
        name = spans.names[code]
        of_name[code] = -1 if is_step(name) else numbered(Key(name), keys)
    found[device] = np.where(around >= 0, of_name[spans.name[around]], -1)
    of_site = np.array([numbered(site_key(site, "module"), keys) for site in trace.sites.sites], np.int64)
    of_operation = np.array([*(numbered(key, keys) for key in operation_keys(trace, "module")), -1], np.int64)
    operation = spans.operation[device]
    of_program = of_operation[np.where((operation >= 0) & (operation < len(of_operation)), operation, -1)]
    if len(trace.sites):
        module = of_site[trace.sites.site]
        found[trace.sites.span[module >= 0]] = module[module >= 0]
    found[device[of_program >= 0]] = of_program[of_program >= 0]
    return found, tuple(key.name for key in keys)
