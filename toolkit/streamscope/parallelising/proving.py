"""Proof by runs: a new order of captured code gives the capture's results, bit for bit, on many inputs and under disturbance.

First it is asked how far the capture differs from itself: sums by atomics come out otherwise from run to run. An output that does so is
only held to what results of other people's code may be off. All others have to be equal in each bit.

A kernel that hangs cannot be stopped from within its process: CUDA has no call for that, and whoever waits for the GPU then waits for ever.
So nobody waits without a limit while an order is new.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.arrays import Array
from streamscope.capturing.arrays import allowed, copy_of, fetched, fill, restore
from streamscope.capturing.function import CapturedFunction
from streamscope.capturing.memory import AddressRange, Evidence, NodeMemory, inside, united
from streamscope.capturing.state import Copies, Moves
from streamscope.devices.cuda.bench import CudaBench
from streamscope.devices.hang import hung
from streamscope.engine_entry import GRAPH, engine_with
from streamscope.engines.issuing import captured_plan
from streamscope.engines.plan import Plan, own_branches
from streamscope.engines.prepared import Prepared, prepare_traced
from streamscope.errors import HungError
from streamscope.job import gathered, the_same
from streamscope.kernels.cuda import pieces
from streamscope.kernels.library.libraries import libraries
from streamscope.kernels.source import KernelSource
from streamscope.parallelising.device_arrays import holds_the_same
from streamscope.program.launch import CudaCall
from streamscope.program.operation import Operation, Program
from streamscope.tolerance import absolute_errors
from streamscope.words import counted, listed, time_text

_LONGEST_DELAY_NS = 100_000
_HELD_BACK = 0.15
"""The share of the nodes that are held back in a disturbed run."""
_PRIORITIES = 6
"""Of streams, from 0 on; CUDA takes those that it does not have for its highest."""
_NEIGHBOUR_NS = 300_000
_COPY_BYTES = 1 << 24

_PIECES = pieces("disturbing")
_BEGINS, _ENDED, _NEIGHBOUR = (KernelSource(name, _PIECES["now"] + _PIECES[name]) for name in ("node_begins", "node_ended", "neighbour"))


class Disturbed:
    """The order of captured code as a graph with kernels of ours around each node.

    ``program``: captured; the order is the one that its operations ask for.
    ``random``: draws the priorities of streams.
    """

    def __init__(self, program: Program, device: Any, random: np.random.Generator) -> None:
        self._count = len(program.operations)
        self._memory: Any = libraries().cupy.cuda.alloc_pinned_memory(4 * (1 + 3 * self._count))
        self._words: npt.NDArray[np.uint32] = np.frombuffer(self._memory, np.uint32, 1 + 3 * self._count)
        self._words[:] = 0
        plan = self._plan(program)
        streams = {lane: device.stream(name, priority=int(random.integers(_PRIORITIES))) for lane, name in enumerate(plan.lanes)}
        self.prepared = Prepared(plan, device, streams=streams)
        """Its runs are disturbed as `hold_back` said last."""
        # Never issued one by one: if something hangs, the host would wait for room to launch the rest.
        self.prepared.capture()

    def _plan(self, program: Program) -> Plan:
        operations = tuple(map(self._marked, program.operations))
        needed = tuple(operation.reads for operation in operations)
        # A stream for each branch adds no order of its own. The raw graph has no kernels of ours in it.
        marked = replace(program, operations=operations, raw=None)
        return captured_plan("disturbed", marked, operations, own_branches(operations, needed), edges=needed)

    def _marked(self, operation: Operation) -> Operation:
        (launch,) = operation.launches
        assert launch.cuda is not None
        return replace(operation, work=(replace(launch, cuda=partial(self._bind, launch.cuda, operation.id)),))

    def _bind(self, build: Callable[..., CudaCall], number: int, bench: CudaBench, reads: Sequence[Any], writes: Sequence[Any]) -> CudaCall:
        # `kept` is a default of `launch`, so the words live as long as the graph does.
        words, count, kept = ctypes.c_void_p(self._memory.ptr), self._count, self._memory
        begins = bench.kernel(_BEGINS, 1, 1, [words, ctypes.c_int(1 + number), ctypes.c_int(1 + 2 * count + number)])
        call = build(bench, reads, writes)
        ended = bench.kernel(_ENDED, 1, 1, [words, ctypes.c_int(1 + count + number)])

        def launch(kept: object = kept) -> None:
            begins()
            call()
            ended()

        return launch

    def hold_back(self, random: np.random.Generator | None) -> None:
        """Draw how long each node is held back in the next runs; nothing is without a generator. The device must be idle."""
        self._words[:] = 0
        if random is not None:
            held = random.random(self._count) < _HELD_BACK
            self._words[1 + 2 * self._count :] = held * random.integers(0, _LONGEST_DELAY_NS, self._count)

    def let_go(self) -> None:
        """Hold nothing back any more, and release held nodes."""
        self._words[0] = 1

    @property
    def under_way(self) -> list[int]:
        """The numbers of nodes that have begun and not ended, at this moment."""
        begun, ended = (self._words[1 + first : 1 + first + self._count] != 0 for first in (0, self._count))
        return [int(number) for number in np.flatnonzero(begun & ~ended)]


class Neighbours:
    """Work of nobody's that fills the GPU for a while, and copies, on streams of their own."""

    def __init__(self, device: Any) -> None:
        self._streams = device.stream("neighbour", priority=_PRIORITIES), device.stream("neighbouring copies")
        self._blocks = device.properties["multiProcessorCount"]
        self._bench = CudaBench(device, self._streams[0], "a neighbour")
        self._memory = [device.empty_bytes(_COPY_BYTES) for _ in range(2)]

    def begin(self, random: np.random.Generator) -> None:
        """Put a kernel and copies beside the next launch; they end by themselves."""
        blocks = int(random.integers(1, 2 * self._blocks))
        duration = ctypes.c_uint(int(random.integers(1000, _NEIGHBOUR_NS)))
        self._bench.kernel(_NEIGHBOUR, blocks, 1024, [duration])()
        runtime, (one, other) = libraries().runtime, self._memory
        for _ in range(int(random.integers(1, 5))):
            runtime.memcpyAsync(one.data.ptr, other.data.ptr, _COPY_BYTES, runtime.memcpyDeviceToDevice, self._streams[1].pointer)


_LEAST_S = 10.0
_TIMES = 100
"""How many times as long as the sequential order a new one may take before it counts as hung."""
_BETWEEN_LOOKS_S = 0.0005

_GIVEN_UP: list[object] = []
"""Work that never ends on the GPU, and all that it uses, which nobody may free."""


def time_limit_s(sequential_us: float) -> float:
    """Return after how long a run of a new order counts as hung, in s."""
    return _LEAST_S + _TIMES * sequential_us / 1e6


def run_watched(prepared: Prepared, limit_s: float, under_way: Callable[[], Sequence[str]] | None = None, *kept: object) -> None:
    """Run once and wait until all issued work is done, or give it up.

    ``limit_s``: after so long, the run counts as hung; see `time_limit_s`.
    ``under_way``: tells the names of the nodes that have begun and not ended, for the error.
    ``*kept``: what the run uses besides, which must stay if it hangs.

    Raises
    ------
    HungError
        It is not done in time.
    DeviceError
        What was issued failed.
    """
    prepared.run()
    events: list[Any] = []
    for stream in prepared.streams.values():
        # Events are asked, not streams synchronized: a wait for a stream that hangs has no end.
        events.append(prepared.device.event())
        stream.record(events[-1])
    deadline = time.monotonic() + limit_s
    while not all(event.done() for event in events):
        if time.monotonic() > deadline:
            raise _given_up(prepared, limit_s, under_way, events, kept)
        time.sleep(_BETWEEN_LOOKS_S)


def _given_up(
    prepared: Prepared, limit_s: float, under_way: Callable[[], Sequence[str]] | None, events: Sequence[Any], kept: Sequence[object]
) -> HungError:
    names = list(under_way()) if under_way is not None else []
    # Never freed: to free memory or graphs is to wait for the work that uses them.
    prepared.abandon()
    _GIVEN_UP.append((prepared, events, kept))
    return hung(f"{prepared.program.name} under {prepared.plan.engine!r}", limit_s, names)


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
            differences = the_same("proving", values.differences(expected))
            if not any(differences):
                continue
            allowed = [all(each) for each in zip(*gathered("proving", values.allowed(expected)), strict=True)]
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
        yield from zip([*names, _STATE], the_same("proving", found), strict=True)

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
