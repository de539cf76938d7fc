"""`ss.best`: the engine for a program, chosen by measurement: who may take part, the rounds, and the choice that follows from them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamscope.analysis.metrics import device_memory_bytes
from streamscope.analysis.statistics import MedianInterval, median_interval
from streamscope.arguments import size_in_bytes
from streamscope.calling import verb
from streamscope.devices import device_for
from streamscope.devices.protocol import Device
from streamscope.engine_entry import ENGINES, GRAPH, STREAM, engine_with, simplest_first
from streamscope.engines import engine_names
from streamscope.engines.plan import Plan, Replay, checked_streams
from streamscope.errors import EngineError, OutOfMemoryError
from streamscope.measuring.case import Case, Checked
from streamscope.measuring.choice import Candidate, Choice, Standing, reason
from streamscope.measuring.elimination import Elimination, Out, paired_ratios
from streamscope.program.foreign import ForeignProgram
from streamscope.progress import Progress, Steps, showing
from streamscope.tracing import ProgramFunction
from streamscope.words import counted, format_mib

MOST_ROUNDS = 100
"""After so many rounds, engines that cannot be told apart count as equal."""
_STANDINGS = {Out.SLOWER: Standing.SLOWER, Out.NO_FASTER: Standing.NO_FASTER}


@verb
def best(
    program: Callable[..., Any] | ProgramFunction | ForeignProgram,
    /,
    *inputs: Any,
    engines: Sequence[str] | str | None = None,
    device: str | Device = "auto",
    gpus: int | Sequence[int] | None = None,
    streams: int | None = None,
    progress: bool | Progress = True,
    memory_limit: int | str | None = None,
    **attributes: Any,
) -> Choice:
    """Choose the engine for a program by measurement, and hand it over ready to run.

    The engines run in paired rounds, in shuffled order. After each round those that are shown to be slower by more than 1 % drop out, with
    a wrong decision in at most 5 % of comparisons, until one is left, or 100 rounds are done. Of engines that are equally fast within 1 %,
    or that cannot be told apart, the simpler is chosen: sync, async, dual, graph, graph-dual, which is also the order of the memory
    that they need. Engines with wrong results, with more memory than allowed, or with a segment that could not be captured are ruled out.

    Parameters
    ----------
    {program}
    {inputs}
    engines : sequence of str, optional
        Which engines; all by default. A string may name several, with commas.
    {device}
    {gpus}
    {streams}
    {progress}
    memory_limit : int or str, optional
        Device memory that an engine may hold for the program: bytes, or for example ``"512 MiB"``. The engines are all prepared at
        the same time, so that they can take turns; together they may hold more. Of captured code, `capture` takes the limit.
    {attributes}

    Raises
    ------
    ProgramError
        The program or its inputs are wrong.
    EngineError
        An engine is unknown, ``streams`` is out of range, the limit is not a size or is of captured code, or no engine is left to choose.
    DeviceError
        The device is missing, or failed.

    Examples
    --------
    >>> def chain(x):
    ...     for _ in range(20):
    ...         x = np.tanh(x)
    ...     return x
    >>> x = np.ones((64, 64), np.float32)
    >>> choice = ss.best(chain, x, device="simulated", progress=False)
    >>> choice.engine
    'graph'
    >>> print(choice.reason)
    graph takes 29.4 µs (run once); async, the next, takes 2.47× as long. Then: ...sync (6.63×). Ruled out: dual ...

    The program is prepared for that engine:

    >>> choice.prepared.run()
    >>> choice.prepared.outputs()[0].shape
    (64, 64)
    """
    names = engine_names(engines)
    limit = None if memory_limit is None else size_in_bytes("the memory limit", memory_limit)
    allowed = checked_streams(streams)
    case = Case.of(program, inputs, "ss.best", attributes)
    opened = device_for(case.program, device, gpus=gpus, inputs=inputs)
    case.warn_if_short_of_memory(opened, len(names))
    rounds = 1 if opened.info.exact else MOST_ROUNDS
    with showing("choosing an engine", progress=progress) as said:
        steps = Steps(said, case.reference_steps + case.measuring_steps(opened, len(names), rounds=rounds))
        selection = Selection(case.with_reference(steps), opened, limit)
        with case.keeping(), opened.watched(lambda launch: steps.part(launch.name)):
            selection.prepare(names, allowed, steps, named=engines is not None)
            return selection.run(steps)


@dataclass
class Selection:
    """The engines among which one is chosen for a program."""

    case: Case
    device: Device
    memory_limit: int | None = None
    """Device memory that an engine may hold, in bytes."""
    admitted: dict[str, Checked] = field(default_factory=dict)
    """Engines that take part."""
    ruled_out: dict[str, Candidate] = field(default_factory=dict)
    """Those that do not."""

    def prepare(self, engines: Iterable[str], streams: int | None, steps: Steps, *, named: bool) -> None:
        """Prepare engines, which the user ``named`` or not, and admit each, unless something speaks against it."""
        for engine in simplest_first(engines):
            steps.begin(f"preparing {engine}", self.case.checking_parts(self.device))
            try:
                checked = self.case.prepare_or_leave_out(engine, self.device, streams, named=named)
            except OutOfMemoryError as error:
                self.ruled_out[engine] = Candidate(engine, Standing.RULED_OUT, f"device memory ran out: {error.message}")
                continue
            if checked is not None:
                self.admit(engine, checked)

    def admit(self, engine: str, checked: Checked) -> None:
        """Admit an engine that is prepared, or rule it out; simpler engines must have been admitted before."""
        held = device_memory_bytes(checked.prepared.memory)
        why = self._objection(checked, held)
        if why:
            self.ruled_out[engine] = Candidate(engine, Standing.RULED_OUT, why, device_bytes=held)
        else:
            self.admitted[engine] = checked

    def keep(self, names: Collection[str]) -> None:
        """Rule out all engines but some, which take part on each rank of a job."""
        for name in [one for one in self.admitted if one not in names]:
            del self.admitted[name]
            self.ruled_out[name] = Candidate(name, Standing.RULED_OUT, "another rank has ruled it out")

    def elimination(self) -> Elimination:
        """Return the elimination of those that take part, with no rounds yet."""
        if not self.admitted:
            why = "; ".join(f"{one.engine}: {one.why}" for one in self.ruled_out.values())
            raise EngineError(f"no engine can be chosen. {why}", hint="raise the memory limit, or allow other engines")
        return Elimination(simplest_first(self.admitted), exact=self.device.info.exact)

    def run(self, steps: Steps) -> Choice:
        """Let those that are still in run round after round, until one is left or `MOST_ROUNDS` are done."""
        elimination = self.elimination()
        random = np.random.default_rng(0)
        for _ in range(MOST_ROUNDS):
            # One round at least: an engine that is alone needs a time, too.
            if elimination.decided and elimination.times_ns:
                break
            steps.begin("timing", self.case.parts(self.device) * len(elimination.remaining))
            running = {name: self.admitted[name] for name in elimination.remaining}
            elimination.add({name: float(ns) for name, ns in self.case.round_ns(running, random).items()})
        return self.choice(elimination)

    def choice(self, elimination: Elimination) -> Choice:
        """Return the choice that rounds lead to: the simplest engine that is left."""
        chosen = elimination.remaining[0]
        candidates = [self._candidate(name, chosen, elimination) for name in elimination.names]
        candidates.sort(key=lambda one: (one.engine != chosen, elimination.names.index(one.engine)))
        listed = (*candidates, *self.ruled_out.values())
        text = reason(listed, len(elimination.times_ns[chosen]), self.device.info)
        prepared = self.admitted[chosen].prepared
        self.case.reload(prepared)
        return Choice(chosen, text, listed, self.case.program.name, self.device.info, self.memory_limit, prepared)

    def _candidate(self, name: str, chosen: str, elimination: Elimination) -> Candidate:
        times_ns, dropped = elimination.times_ns[name], elimination.dropped.get(name)
        standing = _STANDINGS[dropped.why] if dropped else Standing.CHOSEN if name == chosen else Standing.UNDECIDED
        ratio: MedianInterval | None = None
        if name != chosen and (ratios := paired_ratios(times_ns, elimination.times_ns[chosen])):
            ratio = median_interval(ratios)
        why = (
            f"{dropped.why.value} than {dropped.against}"
            if dropped
            else ""
            if name == chosen
            else f"after {counted(len(times_ns), 'round')}"
        )
        held = device_memory_bytes(self.admitted[name].prepared.memory)
        return Candidate(name, standing, why, median_interval(times_ns), ratio, held, dropped.against if dropped else "")

    def _objection(self, checked: Checked, held: int | None) -> str:
        prepared = checked.prepared
        if not checked.correct:
            return f"its results are wrong: off by {checked.max_abs_error:.3g}, tolerance {checked.tolerance:.3g}"
        if held is not None and self.memory_limit is not None and held > self.memory_limit:
            return f"it holds {format_mib(held)} MiB of device memory, and the limit is {format_mib(self.memory_limit)} MiB"
        failed = next((bound.why_not for bound in prepared.bound if bound.why_not), "")
        if failed:
            return f"a segment runs uncaptured: {failed}"
        twin, why = _twin(prepared.plan)
        return why if twin in self.admitted else ""


def _twin(plan: Plan) -> tuple[str, str]:
    """Return the simpler engine that would do the same with the program, and why; empty where there is none.

    Without a graph, the further streams of captures are none either, so the plain engine stands in for all that capture.
    """
    traits = ENGINES[plan.engine].traits
    if GRAPH in traits and not any(isinstance(step, Replay) for step in plan.steps):
        simpler, why = engine_with(*traits - {GRAPH, STREAM}), "nothing in the program can be captured"
    elif STREAM in traits and plan.streams_of_a_gpu < 2 and not (plan.scopes or plan.communicates):
        simpler, why = engine_with(*traits - {STREAM}), "it uses one stream here"
    else:
        return "", ""
    return simpler, f"{why}, so it is {simpler}"
