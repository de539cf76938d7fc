"""A contest of engines: who may take part, the rounds, and the choice that follows from them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from streamscope.advising.choice import Candidate, Choice, Standing
from streamscope.advising.elimination import Elimination, Out, paired_ratios
from streamscope.advising.reasons import reason
from streamscope.advising.task import Entrant, Task
from streamscope.analysis.metrics import device_memory_bytes
from streamscope.analysis.statistics import MedianInterval, median_interval
from streamscope.devices.protocol import Device
from streamscope.engines.plan import Plan, Replay
from streamscope.errors import EngineError, OutOfMemoryError
from streamscope.progress import Progress
from streamscope.words import format_mib

SIMPLEST_FIRST = ("sync", "async", "dual", "graph", "graph-dual")
"""By how much there is to understand, and by the memory that they hold at least: one stream, more streams, graphs, both."""
MOST_ROUNDS = 100
"""After so many rounds, what cannot be told apart counts as equal."""
STANDINGS = {Out.SLOWER: Standing.SLOWER, Out.NO_FASTER: Standing.NO_FASTER}


@dataclass
class Contest:
    """Engines that compete for one task.

    Attributes
    ----------
    task : Task
    device : Device
    memory_limit : int, optional
        Device memory that an engine may hold, in bytes.
    entrants : dict of str to Entrant
        Engines that take part.
    ruled_out : dict of str to Candidate
        Those that do not.
    """

    task: Task
    device: Device
    memory_limit: int | None = None
    entrants: dict[str, Entrant] = field(default_factory=dict)
    ruled_out: dict[str, Candidate] = field(default_factory=dict)

    def prepare(self, engines: Iterable[str], streams: int, progress: Progress) -> None:
        """Prepare engines and admit each, unless something speaks against it."""
        names = simplest_first(engines)
        for step, engine in enumerate(names):
            progress(f"preparing {engine}", step, len(names))
            try:
                entrant = self.task.enter(engine, self.device, streams)
            except OutOfMemoryError as error:
                self.ruled_out[engine] = Candidate(engine, Standing.RULED_OUT, f"device memory ran out: {error.message}")
                continue
            self.admit(engine, entrant)

    def admit(self, engine: str, entrant: Entrant) -> None:
        """Admit an engine that is prepared, or rule it out; simpler engines must have been admitted before.

        Raises
        ------
        EngineError
            There is a memory limit, and the memory that the program holds is not known.
        """
        held = device_memory_bytes(entrant.prepared.memory)
        if held is None and self.memory_limit is not None:
            raise EngineError(
                f"what {entrant.prepared.program.name!r} holds of device memory is not known, so no limit can be kept",
                hint="leave memory_limit out: captured code has memory of its own, the same under every engine",
            )
        why = self._objection(entrant, held)
        if why:
            self.ruled_out[engine] = Candidate(engine, Standing.RULED_OUT, why, device_bytes=held)
        else:
            self.entrants[engine] = entrant

    def elimination(self) -> Elimination:
        """Return the elimination of those that take part, with no rounds yet.

        Raises
        ------
        EngineError
            Nobody takes part.
        """
        if not self.entrants:
            why = "; ".join(f"{one.engine}: {one.why}" for one in self.ruled_out.values())
            raise EngineError(f"no engine can be chosen. {why}", hint="raise the memory limit, or allow other engines")
        return Elimination(simplest_first(self.entrants), exact=self.device.info.exact)

    def run(self, progress: Progress) -> Choice:
        """Let those that are still in run round after round, until one is left or `MOST_ROUNDS` are done."""
        elimination = self.elimination()
        random = np.random.default_rng(0)
        for step in range(MOST_ROUNDS):
            if elimination.decided and elimination.times_ns:
                break
            progress("timing", step, MOST_ROUNDS)
            running = {name: self.entrants[name].prepared for name in elimination.remaining}
            elimination.add({name: float(ns) for name, ns in self.task.round_ns(running, random).items()})
        return self.choice(elimination)

    def choice(self, elimination: Elimination) -> Choice:
        """Return the choice that rounds lead to: the simplest engine that is left."""
        chosen = elimination.remaining[0]
        candidates = [self._candidate(name, chosen, elimination) for name in elimination.names]
        candidates.sort(key=lambda one: (one.engine != chosen, elimination.names.index(one.engine)))
        listed = (*candidates, *self.ruled_out.values())
        text = reason(listed, len(elimination.times_ns[chosen]), self.device.info)
        prepared = self.entrants[chosen].prepared
        self.task.reload(prepared)
        return Choice(chosen, text, listed, self.task.program.name, self.device.info, self.memory_limit, prepared)

    def _candidate(self, name: str, chosen: str, elimination: Elimination) -> Candidate:
        times_ns, dropped = elimination.times_ns[name], elimination.dropped.get(name)
        standing = STANDINGS[dropped.why] if dropped else Standing.CHOSEN if name == chosen else Standing.UNDECIDED
        ratio: MedianInterval | None = None
        if name != chosen and (ratios := paired_ratios(times_ns, elimination.times_ns[chosen])):
            ratio = median_interval(ratios)
        why = f"{dropped.why.value} than {dropped.against}" if dropped else "" if name == chosen else f"after {len(times_ns)} rounds"
        held = device_memory_bytes(self.entrants[name].prepared.memory)
        return Candidate(name, standing, why, median_interval(times_ns), ratio, held, dropped.against if dropped else "")

    def _objection(self, entrant: Entrant, held: int | None) -> str:
        prepared = entrant.prepared
        if not entrant.correct:
            return f"its results are wrong: off by {entrant.max_abs_error:.3g}, tolerance {entrant.tolerance:.3g}"
        if held is not None and self.memory_limit is not None and held > self.memory_limit:
            return f"it holds {format_mib(held)} MiB of device memory, and the limit is {format_mib(self.memory_limit)} MiB"
        failed = next((bound.why_not for bound in prepared.bound if bound.why_not), "")
        if failed:
            return f"a segment runs uncaptured: {failed}"
        twin, why = _twin(prepared.plan)
        return why if twin in self.entrants else ""


def simplest_first(engines: Iterable[str]) -> tuple[str, ...]:
    """Return engines in the order in which they are preferred where they are equally fast."""
    return tuple(sorted(engines, key=SIMPLEST_FIRST.index))


def _twin(plan: Plan) -> tuple[str, str]:
    """Return the simpler engine that would do the same with the program, and why; empty where there is none."""
    if plan.engine in ("graph", "graph-dual") and not any(isinstance(step, Replay) for step in plan.steps):
        return "async", "nothing in the program can be captured, so it is async"
    if plan.engine in ("dual", "graph-dual") and plan.streams < 2 and not plan.scopes:
        simpler = "async" if plan.engine == "dual" else "graph"
        return simpler, f"it uses one stream here, so it is {simpler}"
    return "", ""
