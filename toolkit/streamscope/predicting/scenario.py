"""Scenarios: the tasks of a prediction, and changes of them."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache, cached_property
from operator import methodcaller

import numpy as np

from streamscope.devices.cost_model import CostModel
from streamscope.engine_entry import ENGINES
from streamscope.errors import TraceError
from streamscope.predicting.calls import Host, host_of
from streamscope.predicting.tasks import Task, is_foreign
from streamscope.trace.file_checks import MOST_NS
from streamscope.trace.joins import call_rows
from streamscope.trace.spans import SpanKind, SpanTable
from streamscope.trace.symbols import readable_name
from streamscope.trace.trace import Trace
from streamscope.words import counted, time_text


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


def checked_factor(factor: float) -> float:
    """Return a factor on the time of kernels; a TraceError if it is not a number above 0."""
    if not is_factor(factor):
        hint = f"give a number above 0, {LARGEST_FACTOR:,.0f} at most; without(...) leaves them out"
        raise TraceError(f"kernels cannot take {factor!r:.40} times as long", hint=hint)
    return float(factor)


def scaled(tasks: Sequence[Task], picked: Sequence[bool], factor: float) -> list[Task]:
    """Return tasks of which those that are picked take ``factor`` times as long, on the device or, of a host function, on the host.

    Raises
    ------
    TraceError
        Kernels would take more than `LARGEST_FACTOR` times as long, or the run years.
    """
    longest = max((task.factor for task, one in zip(tasks, picked, strict=True) if one), default=1.0) * factor
    if longest > LARGEST_FACTOR:
        raise TraceError(f"kernels cannot take {longest:,.12g} times as long", hint=f"{LARGEST_FACTOR:,.0f} times is the most")

    def longer(task: Task) -> Task:
        factors = max(task.factor * factor, sys.float_info.min)  # 0 is for what is left out.
        return replace(task, factor=factors, call_ns=task.call_ns * factor if task.on_host else task.call_ns)

    found = [longer(task) if change else task for task, change in zip(tasks, picked, strict=True)]
    taken_ns = sum(task.alone_ns + task.gap_ns + max(0.0, task.call_ns) for task in found)
    if taken_ns > MOST_NS / 2:
        raise TraceError(
            f"the run would take up to {time_text(taken_ns)} with kernels {factor:g} times as long", hint="give a smaller factor"
        )
    return found


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


LARGEST_FACTOR = 1e6
"""Kernels take up to so many times as long, with all changes: one of a second is one of eleven days then."""


@dataclass(frozen=True)
class Scenario:
    """Input of a prediction.

    ``tasks`` run, with all changes; ``recorded`` is without them, and empty where there are none. ``notes`` say which values were taken
    from where. ``measured_ns`` is how long the run takes without a profiler, if the user said so; else NaN. ``edits`` make the changes
    again for another engine, since captured code keeps another order under ``graph``. ``waits`` says whether long waits stay that nothing
    in the trace explains. ``replay_ns`` is how long the run takes under its own engine, as the model has it; NaN until that is known.
    ``whole`` are the tasks with those that were left out, which have a factor of 0; empty where none was.
    """

    source: Trace
    tasks: tuple[Task, ...]
    model: CostModel
    engine: str
    streams: int | None
    changes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    recorded: tuple[Task, ...] = ()
    measured_ns: float = math.nan
    edits: tuple[Callable[[Scenario], Scenario], ...] = ()
    waits: bool = True
    replay_ns: float = math.nan
    whole: tuple[Task, ...] = ()

    @cached_property
    def host(self) -> Host:
        """Host calls of the source."""
        return host_of(self.source, self.recorded or self.tasks, self.model, self.measured_ns)

    @property
    def stretched(self) -> bool:
        """Whether all that is known of the run is how long it took while a profiler watched its host."""
        return self.source.info.profiled and is_foreign(self.source) and math.isnan(self.measured_ns)

    @property
    def run(self) -> tuple[Task, ...]:
        """Tasks for the simulation: in a graph of code that is not ours, with those that were left out, whose order the others keep."""
        return self.whole if self.whole and is_foreign(self.source) and ENGINES[self.engine].captures else self.tasks

    def picked(self, *patterns: str) -> list[bool]:
        """Tell of each task whether one of the patterns names it; each names some."""
        if not patterns:
            raise TraceError("a name of kernels is missing", hint='for example "relu*"')
        found = [chosen(self.tasks, self.source, pattern) for pattern in patterns]
        return [any(each) for each in zip(*found, strict=True)]

    def scaled(self, factor: float, *patterns: str) -> Scenario:
        """Return it with tasks that take ``factor`` times as long."""
        picked = self.picked(*patterns)
        tasks = scaled(self.tasks, picked, checked_factor(factor))
        change = f"{picked_words(self.tasks, picked, patterns)} × {factor:g}"
        return self._changed(tasks, change, methodcaller("scaled", factor, *patterns), self._with_dropped(tasks))

    def without(self, *patterns: str) -> Scenario:
        """Return it without tasks."""
        picked = self.picked(*patterns)
        if not any(task.pieces and not one for task, one in zip(self.tasks, picked, strict=True)):
            raise TraceError(f"nothing is left without {', '.join(patterns)!r}", hint="leave out less")
        change = f"without {picked_words(self.tasks, picked, patterns)}"
        hosts = any(task.on_host for task, one in zip(self.tasks, picked, strict=True) if one)  # Without them, there are fewer graphs.
        dropped = [replace(task, factor=0.0) if one else task for task, one in zip(self.tasks, picked, strict=True)]
        whole = () if hosts else self._with_dropped(dropped)
        return self._changed(without(self.tasks, picked), change, methodcaller("without", *patterns), whole)

    def _with_dropped(self, tasks: Sequence[Task]) -> tuple[Task, ...]:
        """Return all tasks, those that are left as they are now."""
        left, found = iter(tasks), []
        for task in self.whole or self.tasks:
            now = next(left) if task.factor else task
            # What a task comes after is told by its position among all.
            found.append(replace(task, factor=now.factor, call_ns=now.call_ns))
        return tuple(found)

    def _changed(self, tasks: Sequence[Task], change: str, edit: Callable[[Scenario], Scenario], whole: tuple[Task, ...] = ()) -> Scenario:
        changes, edits = (*self.changes, change), (*self.edits, edit)
        return replace(self, tasks=tuple(tasks), changes=changes, edits=edits, recorded=self.recorded or self.tasks, whole=whole)


def is_factor(value: object) -> bool:
    """Tell whether a value is a number above 0, as factors and times are."""
    return isinstance(value, int | float) and 0 < value <= sys.float_info.max


def picked_words(tasks: Sequence[Task], picked: Sequence[bool], patterns: Sequence[str]) -> str:
    """Return ``"7 copies"`` for a kind, ``"16 relu"`` for a name, and ``"23 operations"`` for all names; a collective counts once."""
    chosen = [task for task, one in zip(tasks, picked, strict=True) if one]
    together = {task.place[0] for task in chosen if task.collective is not None}
    count = sum(task.collective is None for task in chosen) + len(together)
    names = ", ".join(patterns)
    kinds = {
        "kernel": ("kernel", "kernels"), "copy": ("copy", "copies"), "set": ("set", "sets"), "host": ("host function", "host functions"),
        "*": ("operation", "operations"),
    }  # fmt: skip
    return counted(count, *kinds.get(names, (names, names)))
