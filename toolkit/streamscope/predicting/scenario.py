"""Scenarios: the tasks of a prediction, and changes of them."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import methodcaller

from streamscope.devices.cost_model import CostModel
from streamscope.engine_entry import ENGINES
from streamscope.errors import TraceError
from streamscope.predicting.calls import Host, host_of
from streamscope.predicting.changes import chosen, scaled, without
from streamscope.predicting.foreign import is_foreign
from streamscope.predicting.tasks import Task
from streamscope.trace.file_checks import MOST_NS
from streamscope.trace.trace import Trace
from streamscope.words import counted, time_text

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
        if not is_factor(factor):
            hint = f"give a number above 0, {LARGEST_FACTOR:,.0f} at most; without(...) leaves them out"
            raise TraceError(f"kernels cannot take {factor!r:.40} times as long", hint=hint)
        longest = max(task.factor for task, one in zip(self.tasks, picked, strict=True) if one) * float(factor)
        if longest > LARGEST_FACTOR:
            raise TraceError(f"kernels cannot take {longest:,.12g} times as long", hint=f"{LARGEST_FACTOR:,.0f} times is the most")
        tasks = scaled(self.tasks, picked, float(factor))
        taken_ns = sum(task.alone_ns + task.gap_ns + max(0.0, task.call_ns) for task in tasks)
        if taken_ns > MOST_NS / 2:
            raise TraceError(
                f"the run would take up to {time_text(taken_ns)} with kernels {factor:g} times as long", hint="give a smaller factor"
            )
        change = f"{_picked_words(sum(picked), patterns)} × {factor:g}"
        return self._changed(tasks, change, methodcaller("scaled", factor, *patterns), self._with_dropped(tasks))

    def without(self, *patterns: str) -> Scenario:
        """Return it without tasks."""
        picked = self.picked(*patterns)
        if not any(task.pieces and not one for task, one in zip(self.tasks, picked, strict=True)):
            raise TraceError(f"nothing is left without {', '.join(patterns)!r}", hint="leave out less")
        change = f"without {_picked_words(sum(picked), patterns)}"
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


def _picked_words(count: int, patterns: Sequence[str]) -> str:
    """Return ``"7 copies"`` for a kind, ``"16 relu"`` for a name, and ``"23 operations"`` for all names."""
    names = ", ".join(patterns)
    kinds = {
        "kernel": ("kernel", "kernels"), "copy": ("copy", "copies"), "set": ("set", "sets"), "host": ("host function", "host functions"),
        "*": ("operation", "operations"),
    }  # fmt: skip
    return counted(count, *kinds.get(names, (names, names)))
