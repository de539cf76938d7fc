"""Changes to tasks: kernels that take longer or shorter, and work that is left out."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache

import numpy as np

from streamscope.errors import TraceError
from streamscope.predicting.tasks import Task
from streamscope.trace.joins import call_rows
from streamscope.trace.spans import SpanKind, SpanTable
from streamscope.trace.symbols import readable_name
from streamscope.trace.trace import Trace


def chosen(tasks: Sequence[Task], source: Trace, pattern: str) -> list[bool]:
    """Tell of each task whether a pattern names it: its name, symbol, readable name, operator, label, or kind.

    A label is that of `ss.label`, and the module's path of captured code. Kinds are "kernel", "copy", "set" and "host". Where a pattern
    names nothing of that, it means what was launched in ranges of that name.

    Raises
    ------
    TraceError
        It names none.
    """
    if not isinstance(pattern, str):
        raise TraceError(f"{pattern!r} is not a name of kernels", hint='for example "*nvjet*"')
    spans, known, shown = source.spans, source.origins.words(), cache(readable_name)
    names = [{task.name, *_symbols(task, spans, shown), *_origins(task, spans, known)} for task in tasks]
    found = [
        pattern in _kinds(task, spans) or (_by_name(task, pattern) and any(name == pattern or fnmatchcase(name, pattern) for name in each))
        for task, each in zip(tasks, names, strict=True)
    ]
    found = found if any(found) else _in_ranges(tasks, spans, pattern)
    if not any(found):
        raise TraceError(
            f"no kernel, copy, host function or range of the trace is called {pattern!r}", hint=_instead(tasks, spans, names, pattern)
        )
    return found


def _in_ranges(tasks: Sequence[Task], spans: SpanTable, pattern: str) -> list[bool]:
    """Tell of each task whether its launch began in a range that a pattern names, on the same thread."""
    ranges = np.flatnonzero((spans.kind == SpanKind.RANGE) & np.isin(spans.name, _codes(spans, pattern)))
    ranges = ranges[np.argsort(spans.start_ns[ranges], kind="stable")]
    found = np.zeros(len(tasks), bool)
    launched = np.array([position for position, task in enumerate(tasks) if task.rows], np.int64)
    call = call_rows(spans, np.array([tasks[position].rows[0] for position in launched.tolist()], np.int64))
    launched, call = launched[call >= 0], call[call >= 0]
    for lane in np.unique(spans.lane[call]).tolist():
        of_thread = [code for code, base in enumerate(spans.stream_lanes.tolist()) if spans.lanes[base] == f"{spans.lanes[lane]} ranges"]
        inside = ranges[np.isin(spans.lane[ranges], of_thread)]
        reach_ns = np.maximum.accumulate(spans.end_ns[inside])
        of_lane = spans.lane[call] == lane
        at_ns = spans.start_ns[call[of_lane]]
        before = np.searchsorted(spans.start_ns[inside], at_ns, side="right") - 1
        found[launched[of_lane]] = (before >= 0) & (np.append(reach_ns, 0)[before] > at_ns)
    return [bool(each) for each in found]


def _codes(spans: SpanTable, pattern: str) -> list[int]:
    return [code for code, name in enumerate(spans.names) if name == pattern or fnmatchcase(name, pattern)]


def _by_name(task: Task, pattern: str) -> bool:
    """Tell whether a pattern can mean a task by its name: stars alone do not mean the host, nor a name its work between graphs."""
    return not task.on_host or (task.place[0] >= 0 and bool(pattern.strip("*")))


def _instead(tasks: Sequence[Task], source: SpanTable, names: Sequence[set[str]], pattern: str) -> str:
    """Return a hint: that nothing was launched in a range, the pattern with stars where that is found, else near names, and the longest."""
    kind = f"nothing in it is of the kind {pattern!r}; " if pattern in ("kernel", "copy", "set", "host") else ""
    within = f"*{pattern.strip('*?')}*"
    ranges = {source.names[code] for code in set(source.name[source.is_kind([SpanKind.RANGE])].tolist())}
    known = sorted({name for each in names for name in each} | ranges)
    meant = next((name for name in sorted(ranges) if name == pattern or fnmatchcase(name, pattern)), None)
    if meant is None and within.strip("*") and any(fnmatchcase(name, within) for name in known):
        return f"{kind}for example {within!r}"
    alone = f"nothing was launched in the range {meant!r}; " if meant is not None else kind
    takes_ns: Counter[str] = Counter()
    for task in tasks:
        symbols = [] if task.on_host else _own_names(task, source)
        takes_ns[readable_name(symbols[0]) if len(symbols) == 1 else task.name] += round(task.alone_ns)
    near, longest = get_close_matches(pattern, known, 3, 0.5), [name for name, _ in takes_ns.most_common(3)]
    said = [f"{words} {', '.join(map(repr, some))}" for words, some in (("for example", near), ("what takes longest is", longest)) if some]
    return alone + ("; ".join(said) or "the trace has no kernels")


def _own_names(task: Task, source: SpanTable) -> list[str]:
    return list(dict.fromkeys(source.names[source.symbol[row]] for row in task.rows if source.symbol[row] >= 0))


def _symbols(task: Task, source: SpanTable, shown: Callable[[str], str]) -> set[str]:
    """Return the kernels' symbols, and their readable names, alone or behind the task's."""
    own = _own_names(task, source)
    return {*own, *map(shown, own), *(f"{task.name}: {shown(symbol)}" for symbol in own)}


def _origins(task: Task, source: SpanTable, known: Sequence[Mapping[str, str]]) -> set[str]:
    """Return operator, module and label of a task's operation, as far as they are known."""
    operation = task.place[0] if task.place[0] >= 0 else int(source.operation[task.rows[0]]) if task.rows else -1
    words = known[operation] if 0 <= operation < len(known) else {}
    return {words[name] for name in ("operator", "module", "label") if name in words}


def _kinds(task: Task, source: SpanTable) -> set[str]:
    return {SpanKind(int(source.kind[row])).name.lower() for row in task.rows} | ({"host"} if task.on_host else set())


def scaled(tasks: Sequence[Task], picked: Sequence[bool], factor: float) -> list[Task]:
    """Return tasks of which those that are picked take ``factor`` times as long, on the device or, of a host function, on the host."""

    def longer(task: Task) -> Task:
        factors = max(task.factor * factor, sys.float_info.min)  # 0 is for what is left out.
        return replace(task, factor=factors, call_ns=task.call_ns * factor if task.on_host else task.call_ns)

    return [longer(task) if change else task for task, change in zip(tasks, picked, strict=True)]


def without(tasks: Sequence[Task], picked: Sequence[bool]) -> list[Task]:
    """Return tasks without those that are picked. Successors of a removed task get its predecessors."""
    number: dict[int, int] = {}
    ends: list[frozenset[int]] = []  # What is left of each task, or of what it came after.
    kept: list[Task] = []
    for position, (task, dropped) in enumerate(zip(tasks, picked, strict=True)):
        after = frozenset().union(*(ends[earlier] for earlier in task.after))
        ends.append(after if dropped else frozenset((position,)))
        if not dropped:
            number[position] = len(kept)
            kept.append(replace(task, after=tuple(sorted(number[earlier] for earlier in after))))
    return kept
