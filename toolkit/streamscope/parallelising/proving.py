"""Proof by runs: a new order of captured code gives the capture's results, bit for bit, on many inputs and under disturbance.

First it is asked how far the capture differs from itself: sums by atomics come out otherwise from run to run. An output that does so is
only held to what results of other people's code may be off. All others have to be equal in each bit.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from streamscope.arrays import Array
from streamscope.capturing.arrays import allowed, copy_of, fetched, fill, restore
from streamscope.capturing.function import CapturedFunction
from streamscope.capturing.memory import AddressRange, Evidence, NodeMemory, inside, united
from streamscope.capturing.state import Copies, Moves
from streamscope.engine_entry import GRAPH, engine_with
from streamscope.engines.prepared import Prepared, prepare_traced
from streamscope.errors import HungError
from streamscope.kernels.library.libraries import libraries
from streamscope.parallelising.device_arrays import holds_the_same
from streamscope.parallelising.stress import Disturbed, Neighbours, run_watched, time_limit_s
from streamscope.tolerance import absolute_errors
from streamscope.words import counted, listed, time_text

_SELF_RUNS = 6
"""Runs of the capture that are compared with each other, half of them beside neighbours."""
_SECOND_LOOKS = 12
"""Runs of the capture on the same input, once something differs: maybe the capture does so as well, and seldom."""
_HELD_BACK_FIRST, _HELD_BACK_EVERY = 20, 5
"""With so many inputs, and then with each fifth, there is a run in which nodes are held back, which takes longer than others."""
_STATE = "state"


@dataclass(frozen=True)
class ProvedOutput:
    """How equal one output was."""

    name: str
    """``"output 0"``, or ``"state"``: other memory that the function changes."""
    self_difference: float
    """How far the capture was from itself at most, as an absolute difference; 0 where it was equal in each bit. Of state, which has no
    dtype, the number of bytes."""
    difference: float
    """How far the new order was from the capture at most, likewise."""
    holds: bool
    """Equal in each bit or, where the capture differs from itself, within the tolerance of other code."""


@dataclass(frozen=True)
class Proof:
    """Results of the runs of a new order.

    Attributes
    ----------
    name, engine : str
    inputs, runs : int
        Inputs that were tried, and runs of the new order, of which some were held back node by node, and all had neighbours.
    outputs : tuple of ProvedOutput
    seconds : float
    """

    name: str
    engine: str
    inputs: int
    runs: int
    outputs: tuple[ProvedOutput, ...]
    seconds: float

    @property
    def holds(self) -> bool:
        """Whether each run was as equal to the capture as the capture is to itself."""
        return all(output.holds for output in self.outputs)

    @property
    def bit_equal(self) -> bool:
        """Whether each run was equal to the capture in each bit."""
        return all(output.difference == 0 for output in self.outputs)

    @property
    def self_difference(self) -> float:
        """How far the capture is from itself at most; 0 where it is equal in each bit."""
        return max((output.self_difference for output in self.outputs), default=0.0)

    @property
    def text(self) -> str:
        """The whole in one sentence."""
        tried = f"in {counted(self.runs, 'run')} on {counted(self.inputs, 'input')}, beside neighbours and with nodes held back"
        if not self.holds:
            wrong = listed([output.name for output in self.outputs if not output.holds])
            return f"{self.engine} differs from the capture in {wrong}"
        if self.bit_equal:
            return f"{self.engine} was equal to the capture in each bit, {tried}"
        apart = listed([output.name for output in self.outputs if output.difference > 0])
        return f"{self.engine} was as equal to the capture as that is to itself, {tried}; the capture's own {apart} differs from run to run"

    def to_dict(self) -> dict[str, Any]:
        """Return all of it, as JSON holds it."""
        return asdict(self) | {"holds": self.holds, "bit_equal": self.bit_equal}

    def __str__(self) -> str:
        return f"{self.name}: {self.text} ({time_text(self.seconds * 1e9)})"

    __repr__ = __str__


def prove(
    captured: CapturedFunction,
    prepared: Prepared,
    *,
    inputs: int = 20,
    sequential: Prepared | None = None,
    sequential_us: float = 0.0,
    seed: int = 0,
) -> Proof:
    """Run a new order of captured code against the capture, on many inputs and disturbed; inputs and state are as before afterwards.

    Each input is run by the capture, and by the new order, with neighbours that fill the GPU and copy; most also by the true order with
    nodes held back at random and streams of random priorities. The first input is the given one, the others are made like it.

    ``prepared``: the new order.
    ``inputs``: how many inputs are tried.
    ``sequential``: the capture as it was; prepared here where it is not given.
    ``sequential_us``: how long a run of the capture takes, in µs, from which the time limit of runs follows.
    ``seed``: of all that is drawn.

    Raises
    ------
    HungError
        A run did not end.
    """
    start = time.monotonic()
    trial = _Trial(captured, prepared, sequential, sequential_us, seed)
    try:
        outputs, tried = _tried(trial, inputs)
    except HungError:
        raise  # To put anything back would wait for the GPU.
    except BaseException:
        captured.clear_outputs()
        raise
    captured.clear_outputs()
    return Proof(captured.name, prepared.plan.engine, tried, trial.runs, outputs, time.monotonic() - start)


def _tried(trial: _Trial, inputs: int) -> tuple[tuple[ProvedOutput, ...], int]:
    """Return how equal the outputs were, and how many inputs were tried."""
    found = [ProvedOutput(name, difference, 0.0, holds=True) for name, difference in trial.self_differences(_SELF_RUNS)]
    for number in range(inputs):
        trial.draw(number)
        expected = trial.sequential()
        held_back = number < _HELD_BACK_FIRST or number % _HELD_BACK_EVERY == 0
        for run in (trial.disturbed, trial.chosen) if held_back else (trial.chosen,):
            values = run()
            differences = values.differences(expected)
            if not any(differences):
                continue
            allowed = values.allowed(expected)
            own = [one.self_difference for one in found]
            if not all(map(_holds, differences, own, allowed)):
                # Looked at longer before it is called wrong: atomics may differ seldom, and not in the first runs.
                own = [max(old, now) for old, (_, now) in zip(own, trial.self_differences(_SECOND_LOOKS), strict=True)]
            found = [
                replace(one, self_difference=itself, difference=max(one.difference, now), holds=_holds(now, itself, fits))
                for one, itself, now, fits in zip(found, own, differences, allowed, strict=True)
            ]
            if not all(one.holds for one in found):
                return tuple(found), number + 1
    return tuple(found), inputs


def _holds(difference: float, self_difference: float, fits: bool) -> bool:  # noqa: FBT001 — called by `map`
    """Tell whether an output is as it must be: equal or, where the capture is known to differ from itself, near enough."""
    return difference == 0 or (self_difference > 0 and fits)


@dataclass(frozen=True)
class _Left:
    """Outcome of a run: copies of the results, and of other changed memory."""

    results: list[Any]
    state: Copies | None = None

    def differences(self, other: _Left) -> list[float]:
        """Return how far each result is from another run's, and how many bytes of the state differ."""
        results = zip(self.results, other.results, strict=True)
        state = self.state.differing(other.state) if self.state is not None and other.state is not None else 0
        # Compared where they lie: most are equal, and then nothing is fetched.
        return [*(0.0 if holds_the_same(one, two) else _difference(fetched(one), fetched(two)) for one, two in results), float(state)]

    def allowed(self, other: _Left) -> list[bool]:
        """Tell of which results the difference is one that results of other people's code may have; of state, any is."""
        pairs = [(one, fetched(one), fetched(another)) for one, another in zip(self.results, other.results, strict=True)]
        return [*(bool((absolute_errors(own, others) <= allowed(one, others)).all()) for one, own, others in pairs), True]


class _Trial:
    """Captured code in three orders, on the same memory."""

    def __init__(
        self, captured: CapturedFunction, prepared: Prepared, sequential: Prepared | None, sequential_us: float, seed: int
    ) -> None:
        self.captured = captured
        self.runs = 0
        self._random = np.random.default_rng(seed)
        self._sequential = sequential or prepare_traced(captured.program, engine_with(GRAPH), prepared.device)
        self._chosen = prepared
        self._disturbed = Disturbed(captured.program, prepared.device, self._random)
        self._neighbours = Neighbours(prepared.device)
        self._limit_s = time_limit_s(sequential_us)
        temporary = _temporary(captured.memories, captured.own_memory)
        self._clearing = Moves((0, region) for region in temporary)
        self._given = [(value, copy_of(value), fetched(value)) for value in captured.device_inputs]

    def draw(self, number: int) -> None:
        """Choose the values of the next runs: those that were given, and then some like them."""
        for _, drawn, values in self._given:
            fill(drawn, made_like(values, self._random) if number else values)

    def sequential(self) -> _Left:
        """Return the outcome of the capture."""
        return self._run(self._sequential)

    def chosen(self) -> _Left:
        """Return the outcome of the new order, beside neighbours."""
        self.runs += 1
        return self._run(self._chosen, beside=True)

    def disturbed(self) -> _Left:
        """Return the outcome of the true order with nodes held back; the first time they are not, so that a hang shows where it is."""
        self._disturbed.hold_back(self._random if self.runs else None)
        self.runs += 1
        return self._run(self._disturbed.prepared, beside=self.runs > 1)

    def self_differences(self, runs: int) -> Iterator[tuple[str, float]]:
        """Yield for each output, and for the state, how far the capture is from itself."""
        first = self.sequential()
        names = [f"output {number}" for number in range(len(first.results))]
        found = [0.0] * (len(names) + 1)
        for number in range(runs - 1):
            now = self._run(self._sequential, beside=number % 2 == 1)
            found = list(map(max, found, now.differences(first)))
        yield from zip([*names, _STATE], found, strict=True)

    def _run(self, prepared: Prepared, *, beside: bool = False) -> _Left:
        self.captured.clear_outputs()
        restore((value, drawn) for value, drawn, _ in self._given)
        # What an earlier run has left there would be right, and hide that something is read too early.
        self._clearing.run()
        libraries().runtime.deviceSynchronize()
        if beside:
            self._neighbours.begin(self._random)
        under_way = self._under_way if prepared is self._disturbed.prepared else None
        run_watched(prepared, self._limit_s, under_way, self.captured, self._disturbed, self._neighbours)
        return _Left(list(map(copy_of, self.captured.results)), Copies(self.captured.state_regions))

    def _under_way(self) -> list[str]:
        self._disturbed.let_go()
        certificate = self.captured.certificate()
        return [certificate.named(number) for number in self._disturbed.under_way]


def made_like(values: Array, random: np.random.Generator) -> Array:
    """Return other values for an input.

    Floats change places and, by up to a half, their size; so signs, zeros and the scale stay. Whole numbers and truth values change places
    along the first axis that has several. Where there are several such axes, each stays within the range of its row along every axis: they
    may be indices into tables of different sizes. What is sorted stays as it is: it may say where parts begin.

    Examples
    --------
    >>> made_like(np.array([0, 2, 5]), np.random.default_rng(0))
    array([0, 2, 5])
    >>> sorted(made_like(np.array([5, 0, 2]), np.random.default_rng(0)).tolist())
    [0, 2, 5]
    """
    if values.dtype.kind in "fc":
        by = random.integers(max(1, values.size))  # All by as much: a permutation would take longer than a run.
        with np.errstate(over="ignore", invalid="ignore"):
            moved = np.roll(values.reshape(-1), by) * (random.random(values.size, np.float32) + np.float32(0.5))
            return np.asarray(moved.reshape(values.shape).astype(values.dtype))
    axes = [axis for axis, length in enumerate(values.shape) if length > 1]
    if not axes or bool((values.reshape(-1)[1:] >= values.reshape(-1)[:-1]).all()):
        return values.copy()
    moved = random.permutation(values, axis=axes[0])
    for axis in axes if len(axes) > 1 else ():
        rest = tuple(other for other in range(values.ndim) if other != axis)
        least, most = values.min(axis=rest, keepdims=True), values.max(axis=rest, keepdims=True)
        moved = np.where((moved >= least) & (moved <= most), moved, values)
    return np.asarray(moved)


def _temporary(memories: Sequence[NodeMemory], own: Sequence[AddressRange]) -> list[AddressRange]:
    """Return the memory that a run writes for itself alone: its earlier content does not matter.

    That is memory of the capture's own. Workspaces of libraries are left alone: they may hold what a library counts on.
    """
    written = {
        (one.start, one.end) for memory in memories for one in memory.accesses if one.writes and one.evidence is not Evidence.POINTER
    }
    return united(region for region in written if inside(region, own))


def _difference(one: Array, other: Array) -> float:
    """Return how far two results are apart at most; 0 only where each bit is the same."""
    if one.tobytes() == other.tobytes():
        return 0.0
    return max(float(np.max(absolute_errors(one, other))), float(np.finfo(np.float64).tiny))  # −0 is not 0
