"""`ss.parallelise`: a function captured, its kernels ordered as their memory asks, and handed back to be called."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, cast

import numpy as np

from streamscope.arguments import check_kinds, size_in_bytes, whole_number
from streamscope.calling import check_keywords
from streamscope.capturing.capture_errors import MEMORY_HINT
from streamscope.capturing.captured import ELSEWHERE, CapturedProgram
from streamscope.capturing.function import CapturedFunction
from streamscope.devices import open_device
from streamscope.devices.cuda.graph import CudaGraph
from streamscope.devices.cuda.streams import CudaStream
from streamscope.devices.protocol import Device
from streamscope.engines.plan import checked_streams
from streamscope.engines.prepared import Prepared
from streamscope.errors import EngineError, HungError, NoDeviceError, ProgramError
from streamscope.job import TIMEOUT_S, checked_timeout, gathered, joined, since_last_start, the_same
from streamscope.kernels.library.libraries import libraries
from streamscope.measuring.best import MOST_ROUNDS, Selection
from streamscope.measuring.case import Case
from streamscope.measuring.choice import Choice
from streamscope.order.collectives import AS_CAPTURED
from streamscope.parallelising.calls import Arguments, Calls, described, name_of
from streamscope.parallelising.captured_call import MISSED, CapturedCall, QuickCall
from streamscope.parallelising.device_arrays import out_of_memory
from streamscope.parallelising.flat_function import captured
from streamscope.parallelising.parallelised import CAPTURED, PARALLEL, Capture, Gain, Parallelised
from streamscope.parallelising.proving import Proof, prove
from streamscope.parallelising.random_numbers import drawing
from streamscope.parallelising.saved_state import KeptState
from streamscope.progress import Progress, Steps, showing
from streamscope.tracebacks import users_lines_shown
from streamscope.tracing import ProgramFunction
from streamscope.words import a_kind, listed, time_text

_PLAIN_CALLS = 10
"""Plain calls that are timed."""
_TIMED_CALLS = 20
"""Calls that take turns with launches of their graph."""
_LEAST_ROUNDS = 20
"""Rounds of both orders, so that the interval of their ratio is one of many."""
_SETTLING_NS, _MOST_SETTLING = 1e8, 1000
"""How long the clocks get before an order is timed, and in how many replays at most: each waits for the host."""
_WRONG_HINT = "does it depend on calls before, draw random numbers on the host, or launch on the default stream, as some extensions do?"
_SHAPES, _OUTPUTS = ("refuse", "recapture"), ("fresh", "static")
_CHOICES = {
    "shapes": (lambda value: value in _SHAPES, " or ".join(map(repr, _SHAPES))),
    "outputs": (lambda value: value in _OUTPUTS, " or ".join(map(repr, _OUTPUTS))),
    "name": (lambda value: value is None or isinstance(value, str), "a string"),
}


@dataclass(frozen=True)
class _Wanted:
    """How a function is to be parallelised."""

    title: str
    streams: int | None
    memory_limit: int | None
    fresh: bool
    check: int
    progress: bool | Progress


def parallelise(
    function: Callable[..., Any],
    /,
    *inputs: Any,
    streams: int | None = None,
    progress: bool | Progress = True,
    memory_limit: int | str | None = None,
    shapes: Literal["refuse", "recapture"] = "refuse",
    outputs: Literal["fresh", "static"] = "fresh",
    check: int = 20,
    name: str | None = None,
    timeout: float | None = TIMEOUT_S,
    **keywords: Any,
) -> Parallelised:
    """Capture a function, let its kernels run side by side wherever they may, and return it to be called.

    The function is captured for these arguments, as by `capture`. Which kernels need which follows from the memory that they read and
    write. Then both orders, the captured one and the one that memory asks for, take turns. The faster is handed back; within 1 % it is
    the captured one. Nothing is guessed: a kernel that is not understood keeps its place.

    Parameters
    ----------
    function : callable
        A function, method, module or compiled function of PyTorch's, or a function of CuPy's. It must not wait for the GPU.
    *inputs : object
        What it is called with: arrays on the GPU, in tuples, lists, dictionaries and dataclasses, too. Other values are constants, and
        so are small arrays of numbers in host memory, such as lengths.
        Inputs that it only reads stay as they are; the capture has copies.
    streams : int, optional
        At most so many branches run side by side in orders of ours, 1 to 128; the capture's own order stays as your code made it. Without
        it, orders on up to 12 streams are tried, and the graph with the fewest edges, whose branches CUDA places by itself.
    progress : bool or callable
        Show a progress bar, or call ``progress(what, step, steps)``.
    memory_limit : int or str, optional
        Device memory that the capture may hold beyond what a plain call has in use, in bytes or for example as ``"2 GiB"``; half of
        what is free by default. Memory that is used twice makes kernels wait.
    shapes : {"refuse", "recapture"}
        What happens in a call with other shapes, dtypes, constants or modes: an error, or a further capture (8 are kept). Under
        ``torch.distributed``, all ranks make that together if a capture so far has collectives; else each goes on by itself.
    outputs : {"fresh", "static"}
        Whether results are copies of your own, or the memory of the capture, which the next call overwrites.
    check : int
        On how many random inputs the order is proven against the captured one before it is handed back; 0 for none.
    name : str, optional
        The function's name by default.
    timeout : float, optional
        Under ``torch.distributed``, all ranks have to do this together. So many seconds they wait for each other: for one that is late, or
        for those that are in a collective when another one fails. None for a function without collectives: this rank goes on by itself.
    **keywords : object
        Passed on to the function.

    Returns
    -------
    Parallelised
        Call it like the function. Shown in a notebook, it is what was gained.

    Raises
    ------
    ProgramError
        The arguments do not fit the function or are not on the GPU, its results cannot be handed back or have other shapes in each call,
        or each call writes to numbers in host memory or changes one of an optimiser.
    KeywordError
        Neither `parallelise` nor the function has a keyword of that name, or both have.
    EngineError
        The function cannot be captured: the error names the line that waits for the GPU, or allocates host memory.
    OutOfMemoryError
        Device memory ran out; ``memory_limit`` makes the capture smaller.
    NoDeviceError
        There is no usable GPU.
    PeerError
        Another rank refused, failed or did not come; the message says which and why.

    Examples
    --------
    You need a GPU to capture anything::

        model = torchvision.models.googlenet(init_weights=True).cuda().half().eval()
        x = torch.randn(1, 3, 224, 224, device="cuda", dtype=torch.half)
        with torch.no_grad():
            fast = ss.parallelise(model, x)
            y = fast(x)            # as model(x), on your current stream

        print(fast.verdict)        # before, after, and what that rests on
        ss.compare(fast)           # every engine on the captured kernels

    Weights that a function takes as arguments are copied in each call. Bind them, and they stay where they are::

        fast = ss.parallelise(functools.partial(step, weights=weights), x)
    """
    wait_s = checked_timeout(timeout)
    with users_lines_shown(), joined(f"parallelising {name or getattr(function, '__name__', 'a function')}", wait_s):
        if isinstance(function, CapturedProgram):
            hint = "give the function itself; a file holds no kernels to call; ss.compare(captured) shows what their order brings"
            raise ProgramError(f"ss.parallelise wants a function, not {a_kind(function)}", hint=hint)
        if not callable(function):
            raise ProgramError(f"ss.parallelise wants a function, not {a_kind(function)}", hint="ss.parallelise(function, *inputs)")
        check_keywords("ss.parallelise", _OWN, ProgramFunction(described(function)), inputs, keywords)
        check_kinds("ss.parallelise", _CHOICES, shapes, outputs, name)
        limit = None if memory_limit is None else size_in_bytes("the memory limit", memory_limit)
        proofs = whole_number("check", check, least=0)
        calls = Calls(function)
        wanted = _Wanted(name or name_of(function), checked_streams(streams), limit, outputs == "fresh", proofs, progress)
        made = out_of_memory(f"parallelising {wanted.title}", MEMORY_HINT)(partial(_capture, function, calls, wanted))
        found = Parallelised(function, calls, wanted.title, made, recaptures=shapes == "recapture", timeout_s=wait_s)
        found.add(calls.arguments(inputs, keywords))
        return found


_OWN = tuple(one.name for one in inspect.signature(parallelise).parameters.values() if one.kind is one.KEYWORD_ONLY)


def _capture(function: Callable[..., Any], calls: Calls, wanted: _Wanted, arguments: Arguments) -> Capture:
    """Capture one kind of call, and choose its order."""
    try:
        device = open_device("cuda")
    except NoDeviceError as error:
        raise NoDeviceError(error.message, hint=f"ss.parallelise orders what a GPU is given, so it needs one, {ELSEWHERE}") from None
    with showing(f"parallelising {wanted.title}", progress=wanted.progress) as said:
        steps = Steps(said, 4 + MOST_ROUNDS)
        steps.begin("capturing")
        mode = calls.mode()
        state, hung = KeptState(arguments), False
        try:
            found, slots, flat = captured(function, calls, arguments, wanted.title, wanted.memory_limit, state.called)
            state.draws_from(found.generators)
            choice, prepared, proof = _chosen(found, device, wanted, steps)
            gathered("timing plain calls", None)
            plain_us = found.plain_call_us(_PLAIN_CALLS)
            random, bound = drawing(found), found.bound()
            assert flat.returned is not None
            call = CapturedCall(wanted.title, flat.tree, slots, flat.returned, found.results, _graph_of(prepared), wanted.fresh, random)
            call.mode, call.given = mode, flat.given
            quickly = call.quick_path(calls)
            call_us = _beyond_launch_us(call, quickly, calls, arguments, prepared.put_back)
            found.clear_outputs()
        except HungError:
            hung = True  # To put back is to wait for the device, for ever.
            raise
        finally:
            note = "" if hung else state.put_back()
        moved = [slot.memory for slot in slots if slot.own] + (found.results if wanted.fresh else [])
        gain = Gain(
            wanted.title,
            device.info,
            len(found.nodes),
            choice,
            plain_us,
            sum(int(array.nbytes) for array in moved),
            found.memory,
            found.certificate(),
            bound=bound,
            proof=proof,
            order=prepared.plan.chosen,
            note=note,
            as_called=found.as_called,
            call_us=call_us,
            compared=call.compared,
        )
    return Capture(call, found, gain, prepared, quickly)


def _beyond_launch_us(
    call: CapturedCall, quickly: QuickCall, calls: Calls, arguments: Arguments, put_back: Callable[[], object]
) -> tuple[float, float]:
    """Return how much longer a call takes than the launch of its graph, in µs: until the device is done, and on the host.

    Both take turns, each from the same state and with the arguments that were given.
    """
    stream, synchronize = call.free_stream(), libraries().runtime.streamSynchronize
    inputs, keywords = calls.call(lambda *inputs, **keywords: (inputs, keywords), arguments)

    def called() -> None:
        if quickly(inputs, keywords) is MISSED:
            call.run(call.arrays_of(calls.arguments(inputs, keywords)) or ())

    def times_us(run: Callable[[], object]) -> tuple[float, float]:
        put_back()
        synchronize(stream)
        start = time.perf_counter_ns()
        run()
        launched = time.perf_counter_ns()
        synchronize(stream)
        return (time.perf_counter_ns() - start) / 1e3, (launched - start) / 1e3

    turns = np.array([(times_us(called), times_us(partial(call.graph.launch_on, stream))) for _ in range(_TIMED_CALLS)])
    until_done, on_host = np.median(turns[:, 0] - turns[:, 1], axis=0).tolist()
    return until_done, on_host


def _chosen(found: CapturedFunction, device: Device, wanted: _Wanted, steps: Steps) -> tuple[Choice, Prepared, Proof | None]:
    """Let both orders take turns, and return the faster one that is proven; the captured one where they are equal within 1 %."""
    selection = Selection(Case.of(found, (), "ss.parallelise"), device)
    selection.prepare((CAPTURED, PARALLEL), wanted.streams, steps, named=True)
    selection.keep(set.intersection(*map(set, gathered("admitting orders", sorted(selection.admitted)))))
    if CAPTURED not in selection.admitted:
        why = selection.ruled_out[CAPTURED].why
        different = f". {found.as_called}" if found.as_called.verdict == "different" else ""
        raise EngineError(f"{wanted.title} cannot be captured as it is: {why}{different}", hint=_WRONG_HINT)
    ordered, how = _best_order(found, selection, wanted, steps)
    choice = _timed(selection, steps)
    assert choice.prepared is not None
    if choice.engine != CAPTURED and how:
        choice.prepared.plan = replace(choice.prepared.plan, chosen=f"{choice.prepared.plan.chosen}; collectives {how}")
    if choice.engine == CAPTURED or not wanted.check:
        return choice, choice.prepared, None
    sequential = selection.admitted[CAPTURED].prepared
    before_us = next(one.makespan_ns.median / 1e3 for one in choice.candidates if one.engine == CAPTURED and one.makespan_ns)
    steps.begin("proving the order")
    proof = prove(ordered, choice.prepared, inputs=wanted.check, sequential=sequential, sequential_us=before_us)
    if proof.holds:
        return choice, choice.prepared, proof
    return replace(choice, engine=CAPTURED, reason=proof.text, prepared=sequential), sequential, proof


def _best_order(found: CapturedFunction, selection: Selection, wanted: _Wanted, steps: Steps) -> tuple[CapturedFunction, str]:
    """Let each order of collectives take part with its fastest graph, keep the fastest of these, and return its program and its name."""
    tried = {AS_CAPTURED: (found, selection.admitted.get(PARALLEL))}
    out = []
    for name, other in found.in_other_orders().items():
        alone = Selection(Case.of(other, (), "ss.parallelise"), selection.device)
        alone.prepare((PARALLEL,), wanted.streams, steps, named=True)
        tried[name] = other, alone.admitted.get(PARALLEL)
        out += [f"{name} was ruled out: {one.why}" for one in alone.ruled_out.values()]
    common = set.intersection(*map(set, gathered("admitting collectives", [name for name, (_, one) in tried.items() if one is not None])))
    timers = {name: _Timer(one.prepared) for name, (_, one) in tried.items() if one is not None and name in common}
    if len(tried) == 1 or not timers:
        return found, ""
    medians_ns = np.median([[*each.values()] for each in _rounds(timers, [*timers])], axis=0).tolist()
    best = [*timers][int(np.argmin(medians_ns))]
    ordered, checked = tried[best]
    assert checked is not None
    selection.admitted[PARALLEL] = checked
    times = [f"{name} {time_text(ns)}" for name, ns in zip(timers, medians_ns, strict=True)]
    return ordered, "; ".join([f"{best}, of {listed(times)}", *out])


def _timed(selection: Selection, steps: Steps) -> Choice:
    """Let orders take turns of many replays, each from the same state, until one is left or `MOST_ROUNDS` are done; return the choice.

    What counts is the time from the launch to the end on the device: what the host does besides is the same for both.
    """
    elimination, random = selection.elimination(), np.random.default_rng(0)
    timers = {name: _Timer(checked.prepared) for name, checked in selection.admitted.items()}
    done = 0
    while done < MOST_ROUNDS and not (elimination.decided and done):
        # Several in one go: a decision between two rounds would let ranks of a job begin the next one at different times.
        for _ in range(_LEAST_ROUNDS):
            steps.begin("timing")
        for each in _rounds(timers, random.permutation(elimination.remaining if done else [*timers]).tolist()):
            elimination.add(each)
        done += _LEAST_ROUNDS
    return selection.choice(elimination)


def _rounds(timers: Mapping[str, _Timer], names: Sequence[str]) -> list[dict[str, float]]:
    """Return rounds of times of some orders, in ns, each of them timed many times in a row, as a loop runs it.

    A GPU at its power limit has the clocks of what it ran in the last tenth of a second. One replay of each in turn would give an order
    that makes the GPU hot the clocks that another one has left: on two H200, steps that take 13.5 and 12.6 ms in a row take 13.8 and 11.8.
    """
    found: dict[str, list[float]] = {name: [] for name in names}
    before = ""
    for name in (*names, *reversed(names)):  # There and back: what drifts meets all alike.
        replay_ns = timers[name].replay_ns
        if name != before:
            first_ns = max(1.0, *the_same("timing", [replay_ns()]))
            for _ in range(min(_MOST_SETTLING, int(_SETTLING_NS / first_ns))):  # As many on each rank of a job.
                replay_ns()
        found[name] += since_last_start("timing", [replay_ns() for _ in range(_LEAST_ROUNDS // 2)])
        before = name
    return [dict(zip(found, times, strict=True)) for times in zip(*found.values(), strict=True)]


class _Timer:
    """Times replays of a prepared graph."""

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared
        self._launch = _graph_of(prepared).launch_on
        self._stream = prepared.streams[0]
        self._start, self._end = (prepared.device.event(timing=True) for _ in range(2))

    def replay_ns(self) -> float:
        """Return the duration of one replay on the device, in ns; changes of the one before are undone first."""
        # Before the start event, so that it is not timed.
        self._prepared.put_back()
        self._stream.record(self._start)
        self._launch(cast("CudaStream", self._stream).pointer)
        self._stream.record(self._end)
        self._stream.synchronize()
        return self._prepared.device.elapsed_ns(self._start, self._end)


def _graph_of(prepared: Prepared) -> CudaGraph:
    """Return the graph of captured code."""
    (bound,) = prepared.bound
    if bound.graph is None:
        raise EngineError(f"{prepared.program.name!r} is not one graph: {bound.why_not}", hint="see captured.nodes for what it launched")
    return cast("CudaGraph", bound.graph)
