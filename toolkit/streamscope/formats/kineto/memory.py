"""Memory of a Kineto file: instants ``[memory]``, which PyTorch's profiler writes with ``profile_memory=True``.

Each says how many bytes its allocator lent or, with a minus sign, took back; at which address, and its totals after that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.errors import printable
from streamscope.formats.kineto.stacks import Stacks, ThreadTimes
from streamscope.formats.kineto.values import times_ns, whole_numbers
from streamscope.trace.activities import Activities
from streamscope.trace.joins import distinct, thread_numbers
from streamscope.trace.memory_events import MemoryEvents
from streamscope.trace.nesting import innermost_on
from streamscope.trace.spans import SpanKind
from streamscope.words import counted

MEMORY = "[memory]"
"""Name of the instants."""
_KIND = "PyTorch"
_CPU = 0
"""PyTorch's number of the type of device that is the host."""
_COLUMNS = ("process", "place", "time_ns", "bytes", "address", "gpu", "total", "reserved")
_ALLOCATORS = frozenset({
    "aten::empty", "aten::empty_like", "aten::empty_permuted", "aten::empty_quantized", "aten::empty_strided", "aten::new_empty",
    "aten::new_empty_strided", "aten::resize_", "aten::resize_as_",
})  # fmt: skip
"""Operators that do nothing but take memory: the operator around them says what for."""
_LONGEST = 1_000
"""Most characters of a name; longer ones are cut."""
_STEP = "ProfilerStep#"
"""Ranges around all operators of a step."""


def is_mark(event: Any) -> bool:
    """Tell whether an event is an instant of memory with a time and an address."""
    return event.name == MEMORY and event.ts is not None and event.args is not None and event.args.address is not None


class MemoryMarks:
    """Collects the instants, piece by piece."""

    def __init__(self) -> None:
        self._parts: list[npt.NDArray[np.int64]] = [np.zeros((len(_COLUMNS), 0), np.int64)]

    def __bool__(self) -> bool:
        return len(self._parts) > 1

    def add(self, marks: Sequence[Any], process: npt.NDArray[np.int64], place: npt.NDArray[np.int64]) -> None:
        """Keep instants that have a time and arguments; ``process`` and ``place`` as in `Activities`."""
        given = [mark.args for mark in marks]
        number = whole_numbers([args.memory_device for args in given], 0)
        kind = whole_numbers([args.memory_device_type for args in given], _CPU)
        columns = (
            process,
            place,
            times_ns([mark.ts for mark in marks]),
            whole_numbers([args.memory_bytes for args in given], 0),
            whole_numbers([args.address for args in given], 0),
            np.where(kind == _CPU, -1, np.maximum(number, 0)),
            whole_numbers([args.total_allocated for args in given], -1),
            whole_numbers([args.total_reserved for args in given], -1),
        )
        self._parts.append(np.stack(columns))

    def events(self, found: Activities, stacks: Stacks, said: list[str], *, several: bool, renumbered: bool) -> list[MemoryEvents]:
        """Return all of them, each with the innermost operator and line around it, and note what is left out.

        ``found``: the ranges of the file among other activities.
        ``several``: whether the file is of several processes, whose GPUs and addresses have the same numbers.
        ``renumbered``: whether GPUs of the trace have other numbers than in the file.
        """
        columns = dict(zip(_COLUMNS, np.concatenate(self._parts, axis=1), strict=True))
        count = len(columns["time_ns"])
        if not count:
            return []
        if several and (renumbered or len(distinct(columns["process"])[0]) > 1):
            said.append(f"left out: {counted(count, 'event')} called {MEMORY!r}, of several processes whose GPUs cannot be told apart")
            return []
        threads = ThreadTimes(columns.pop("process"), columns.pop("place"), columns["time_ns"], columns["time_ns"])
        takes = np.flatnonzero(columns["bytes"] > 0)
        name, site = np.full(count, -1), np.full(count, -1)
        name[takes], texts = _operators(found, threads.rows(takes))
        site[takes], sites = stacks.sites(threads.rows(takes))
        return [MemoryEvents(**columns, name=name, site=site, texts=texts, sites=tuple(sites), kind=_KIND)]


def _operators(found: Activities, threads: ThreadTimes) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    """Return an index into the texts for each time on a thread, -1 where there is none: of the innermost operator or range around it.

    An operator that does nothing but take memory is named where it stands alone.
    """
    rows = np.flatnonzero(found.kind == SpanKind.RANGE)
    thread, asked = thread_numbers((found.process[rows], found.place[rows]), (threads.process, threads.place))
    name_of = found.name[rows]
    takes = np.array([name in _ALLOCATORS for name in found.names], bool)[name_of]
    step = np.array([name.startswith(_STEP) for name in found.names], bool)[name_of]
    inner = np.full(len(threads), -1, np.int64)
    for chosen in (~takes & ~step, takes):
        some = rows[chosen]
        missing = np.flatnonzero(inner < 0)
        around = innermost_on(thread[chosen], found.start_ns[some], found.end_ns[some], asked[missing], threads.start_ns[missing])
        inner[missing] = np.where(around >= 0, some[around], -1) if len(some) else -1
    known = np.flatnonzero(inner >= 0)
    used, code = distinct(found.name[inner[known]])
    name = np.full(len(threads), -1, np.int64)
    name[known] = code
    return name, tuple(printable(found.names[one])[:_LONGEST] for one in used.tolist())
