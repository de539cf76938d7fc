"""`ss.capture`: run a function under stream capture, and make a program of its launches."""

from __future__ import annotations

import contextlib
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np

from streamscope.arguments import size_in_bytes
from streamscope.arrays import Array
from streamscope.capturing.allocations import arrays_memory_behind
from streamscope.capturing.arrays import allowed, copy_of, device_address, fetched, is_one_piece, is_tensor, on_device, restore, unsupported
from streamscope.capturing.as_called import Apart, AsCalled, as_called, first_apart, results_of_plain_call
from streamscope.capturing.capture_errors import let_variables_go, not_captured
from streamscope.capturing.captured import ELSEWHERE, CapturedProgram, certified, program_of
from streamscope.capturing.communication import belongs_to_collective, is_collective, without_links
from streamscope.capturing.cupy_captures import note_sources
from streamscope.capturing.memory import AddressRange, CaptureOrigin, MemoryHeld, NodeMemory, inside, united, with_first_writers
from streamscope.capturing.nodes import LaunchableNode, addresses_of, timed
from streamscope.capturing.operators import Operator
from streamscope.capturing.state import State, found_state
from streamscope.capturing.stream_capture import Taken, casting_each_time, take
from streamscope.capturing.true_order import all_orders, true_order
from streamscope.capturing.write_detection import checked_memories
from streamscope.devices.cuda.raw_graph import RawGraph
from streamscope.devices.graph_node import Communication, GraphNode, NodeKind, spins_on_peers
from streamscope.errors import DeadlockError, EngineError, NoDeviceError, ProgramError, RaceError, StreamscopeError
from streamscope.job import TIMEOUT_S, checked_timeout, current_timeout_s, differing_rank, gathered, go_alone, in_job, joined
from streamscope.kernels.library.libraries import cuda_errors, driver_version, libraries
from streamscope.order.collectives import AS_CAPTURED, collective_orders
from streamscope.program.captured_graph import Edges
from streamscope.program.foreign import ForeignFunction
from streamscope.program.launch import Launch
from streamscope.program.user_line import UserLine, user_line
from streamscope.trace.info import library_versions
from streamscope.words import a_kind, counted, listed

_WARM_RUNS = 3


@dataclass(repr=False)
class CapturedFunction(CapturedProgram, ForeignFunction):
    """A program made of a function's launches; give it to `ss.compare` or `ss.prepare` as it is.

    Its memory is that of the capture: inputs are read where they lay then, and results are written where they were then.

    Attributes
    ----------
    results : list
        The arrays (CuPy) or tensors that the function returned while it was captured.
    memory : MemoryHeld
        Device memory of the capture.
    as_called : AsCalled
        Whether it does what a plain call does.
    """

    results: list[Any]
    memory: MemoryHeld
    as_called: AsCalled
    _function: Callable[..., Any]
    _inputs: tuple[Any, ...]
    _expected: list[Array]
    _before: list[tuple[Any, Any]]
    _state: State
    _origin: CaptureOrigin
    _own: list[AddressRange] = field(default_factory=list)
    _launchable: list[LaunchableNode] = field(default_factory=list)
    timeout_s: float | None = None
    """How long ranks wait for each other when it is measured; None without collectives."""

    def __reduce__(self) -> str:
        raise ProgramError(f"captured {self.name!r} cannot be pickled: it is a graph of this process", hint="capture it in each process")

    def expected(self) -> list[Array]:
        """Return the results of a plain call, on the host; its state was then as `clear_outputs` restores it."""
        return self._expected

    def allowed(self) -> list[Array]:
        """Return how far results may be from that, as absolute differences."""
        return list(map(allowed, self.results, self._expected))

    def outputs(self) -> list[Array]:
        """Return the captured results of the last run, on the host."""
        return [fetched(result) for result in self.results]

    def clear_outputs(self) -> None:
        """Overwrite the results, so that a run that writes nothing shows, and restore the state that the function changes.

        That is its inputs, and its other state: parameters, the state of an optimiser or of random numbers. Results in memory that
        is not the capture's own, such as a weight that is returned, stay as they are, unless each run writes all of it.
        """
        runtime, own = libraries().runtime, self.own_memory
        runtime.deviceSynchronize()  # Results may still be copied on another stream.
        results = _regions([result for result in self.results if is_one_piece(result)])
        for start, end in (*(region for region in results if inside(region, own)), *self._state.overwritten):
            runtime.memset(start, 0, end - start)
        self._state.put_back()
        restore(self._before)
        runtime.deviceSynchronize()

    @property
    def kept(self) -> Sequence[Any]:
        """Objects that live as long as the capture."""
        return () if self.program.raw is None else self.program.raw.kept

    @property
    def own_memory(self) -> list[AddressRange]:
        """Memory that the capture allocated, sorted and apart; its contents do not outlive a run."""
        return united(self._own)

    @property
    def device_inputs(self) -> list[Any]:
        """The arrays and tensors among the inputs that lie in device memory; runs read them where they lay at the capture."""
        return [value for value, _ in self._before]

    @property
    def state_regions(self) -> list[AddressRange]:
        """Memory that a run changes, and scalars that the host may set between runs, such as the seed of random numbers."""
        return [region for region, _ in self._state.saved]

    @property
    def generators(self) -> list[Any]:
        """Generators of PyTorch's random numbers that it may draw from."""
        return generators_of(self.kept)

    @property
    def communicates(self) -> bool:
        """Whether it has collectives, so that all ranks have to run it together."""
        return any(node.communication is not None for node in self.nodes)

    @contextlib.contextmanager
    def keeping(self) -> Iterator[None]:
        """Run a block, and restore the function's state afterwards as it was before the block, and not as it was captured.

        If it has collectives, all ranks run the block together.
        """
        with _keeping(self.name, self._state, self.timeout_s):
            yield

    @property
    def capture_us(self) -> float | None:
        """Duration of a replay in the order of the capture, in µs; measured when first asked for, and its changes are undone."""
        raw = self.program.raw
        return None if raw is None else raw.times_us([raw.edges])[0]

    def origin(self) -> CaptureOrigin:
        """Return place, date and versions of the capture, and its memory."""
        return self._origin

    def in_other_orders(self) -> dict[str, CapturedFunction]:
        """Return it with its collectives in other orders, the same on each rank, by name; nothing where they cannot change places."""
        # NCCL waits for what was launched before the graph, so before all collectives, and others wait for its last record.
        waits = [at for at, node in enumerate(self.nodes) if node.kind is NodeKind.EVENT_WAIT]
        records = [at for at, node in enumerate(self.nodes) if node.kind is NodeKind.EVENT_RECORD and node.communication is not None]
        apart = {*waits, *records}
        units = [-1 if one.communication is None or at in apart else one.communication.number for at, one in enumerate(self.nodes)]
        known = all(one.communication is None or one.communication.communicator for one in self.nodes)
        if len({*units} - {-1}) < 2 or not known:
            return {}
        bare = list(map(without_links, self.memories))
        order = all_orders(gathered("comparing orders", true_order(bare, self.program.captured)))
        if any(order[at] for at in waits):
            return {}
        orders = collective_orders(units, order, self.durations_us)
        del orders[AS_CAPTURED]
        between = {name: [one for one in nodes if one not in apart] for name, nodes in orders.items()}
        return {name: self._reordered([*waits, *nodes, *records], order) for name, nodes in between.items()}

    def _reordered(self, numbers: Sequence[int], order: Edges) -> CapturedFunction:
        """Return it as if its nodes had been captured in another order, one after the other; ``order`` is what memory asks for."""
        position = {node: at for at, node in enumerate(numbers)}
        if (other := differing_rank("comparing orders", list(numbers))) is not None:
            hint = "nothing was launched; this is a defect of the order and not of your code, so please report it"
            raise DeadlockError(f"rank {other} has another order of the collectives of {self.name} than rank 0", hint=hint)
        if any(position[earlier] > position[node] for node, direct in enumerate(order) for earlier in direct):
            raise RaceError(f"another order of collectives of {self.name} misses an order that memory asks for", hint="please report it")
        chain = tuple((at - 1,) if at else () for at in range(len(numbers)))
        nodes = [replace(self.nodes[node], after=chain[at], operation=at) for at, node in enumerate(numbers)]
        memories, launchable = [self.memories[node] for node in numbers], [self._launchable[node] for node in numbers]
        certificate = certified(self.name, nodes, memories, _multiprocessors(), self.certificate().notes)
        certificate = replace(certificate, order=all_orders(gathered("comparing orders", certificate.order)))
        assert isinstance(self.program.raw, RawGraph)
        raw = self.program.raw.reordered(numbers, chain, certificate.check, certificate.named)
        sources = [self.program.operations[node].source for node in numbers]
        held = with_first_writers(self.memory.pieces, memories)
        program = program_of(certificate, partial(_launch, launchable, raw.kept), sources, raw, held)
        return replace(self, program=program, nodes=nodes, memories=memories, _launchable=launchable)

    def plain_call_us(self, repeats: int = 30) -> float:
        """Return the median time of a plain call, framework included, until the device is done, in µs; each begins from the same state."""
        runtime = libraries().runtime
        times = []
        for _ in range(repeats):
            self._state.put_changes_back()
            start = time.perf_counter_ns()
            self._function(*self._inputs)
            runtime.deviceSynchronize()
            times.append(time.perf_counter_ns() - start)
        return statistics.median(times) / 1e3


def capture(
    function: Callable[..., Any],
    *inputs: Any,
    name: str | None = None,
    memory_limit: int | str | None = None,
    timeout: float | None = TIMEOUT_S,
) -> CapturedFunction:
    """Make a program of any function that launches CUDA work: CuPy, PyTorch, Numba, a library.

    Streamscope calls the function a few times to warm up, once under stream capture, and once for the results to compare with. Each kernel,
    copy and set that it launched becomes an operation, with the edges of the capture. So you can compare engines on code that was never
    written for Streamscope. The nodes run a few times to find state that the function changes, as parameters in a training step. Before
    each check, these are put back. The warm-up changes them as plain calls do.

    Parameters
    ----------
    function : callable
        ``function(*inputs)``; returns a CuPy array or PyTorch tensor, a tuple of them, or None.
    *inputs : object
        Passed on; their memory is part of the capture.
    name : str, optional
        The function's name by default.
    memory_limit : int or str, optional
        Bytes, or text such as ``"512 MiB"``, that the capture may hold beyond the peak of a plain call; half of the free memory by
        default. Memory that is used twice orders nodes that share nothing else. With a limit, the oldest is used again.
    timeout : float, optional
        Under ``torch.distributed``, all ranks have to capture together. So many seconds they wait for each other: for one that is late, or
        for those that are in a collective when another one fails. None for a function without collectives: this rank captures by itself.

    Raises
    ------
    ProgramError
        It is not a function, or returns something else than arrays on the device, or the limit is not a size of memory.
    EngineError
        The function cannot be captured: it synchronises, copies to pageable memory, allocates outside a pool, or launches nothing.
    NoDeviceError
        There is no usable GPU.
    PeerError
        Another rank refused, failed or did not come; the message says which and why.

    Examples
    --------
    You need a GPU to capture anything::

        def step(x, w):
            return torch.relu(x @ w)

        captured = ss.capture(step, x, w)       # x and w are CUDA tensors
        print(ss.compare(captured).verdict)
    """
    title = str(name or getattr(function, "__name__", "captured"))
    with joined(f"capturing {title}", checked_timeout(timeout)):  # First of all: whatever one rank refuses, all do.
        if not callable(function):
            raise ProgramError(f"ss.capture wants a function, not {a_kind(function)}", hint="ss.capture(function, *inputs)")
        try:
            libraries()
        except NoDeviceError as error:
            hint = f"ss.capture records what a GPU is given; for the simulated device, write the operations with @ss.program, {ELSEWHERE}"
            raise NoDeviceError(error.message, hint=hint) from None
        extra_bytes = None if memory_limit is None else size_in_bytes("the memory limit", memory_limit)
        return _captured(function, inputs, title, extra_bytes)


def _captured(function: Callable[..., Any], inputs: tuple[Any, ...], title: str, extra_bytes: int | None) -> CapturedFunction:
    where, handled = user_line(), sys.exc_info()[1]
    for one in inputs:
        if (why := unsupported(one)) is not None:
            raise ProgramError(f"{title} was given {why[0]}", hint=f"give it {why[1]}")
    note_sources()
    before = [(one, copy_of(one)) for one in inputs if on_device(one)]
    casting = casting_each_time(function)
    for _ in range(_WARM_RUNS):
        gathered(f"calling {title}", None)
        restore(before)
        # Not kept as they are: a loss keeps the nodes of its backward pass, which belong to the stream of this call.
        results = _results(casting(*inputs), title)
        libraries().runtime.deviceSynchronize()
    try:
        taken, nodes, memories = take(casting, inputs, results, extra_bytes, partial(restore, before))
    except Exception as error:
        let_variables_go(error, handled)
        if isinstance(error, StreamscopeError):
            raise
        raise not_captured(title, error) from error
    if not nodes:
        raise EngineError(f"{title} launched nothing while it was captured", hint="launch on the current CuPy or PyTorch stream")
    _check_alike(title, nodes, taken.operators)
    results = _results(taken.result, title)
    taken = replace(taken, result=None)  # As above: the plain call below would meet nodes of the capture's stream.
    state, memories, notes = _state_and_memories(taken, nodes, memories, results, before)
    if taken.uploads:
        notes += (f"{counted(taken.uploads, 'NumPy array')} that the function hands to CuPy: the capture has the values as constants.",)
    if taken.constants:
        notes += (f"{counted(taken.constants, 'array')} of constants that the function makes in host memory: the capture has the values.",)
    gathered(f"calling {title} for its results", None)
    restore(before)
    with _random_numbers_as_captured(taken.kept):
        expected = [fetched(one) for one in _results(casting(*inputs), title)]
    state.put_back()
    _check_shapes(title, results, expected)

    def again() -> None:
        state.put_back()
        restore(before)

    called = _as_called(taken, nodes, results, expected, partial(casting, *inputs), again)
    notes += (str(called),)
    nodes = timed(nodes, state.keeping, state.put_changes_back)
    # A kernel of CuPy or Triton may read an array that only a global names, which may come to name another one.
    kept = [*taken.kept, *arrays_memory_behind(addresses_of(nodes, memories))]
    described, sources = _described(nodes, taken.operators, where)
    certificate = certified(title, described, memories, _multiprocessors(), notes)
    if in_job():
        # Memory lies elsewhere on each rank, so one may order more than another. All keep what any of them asks for.
        certificate = replace(certificate, order=all_orders(gathered("comparing orders", certificate.order)))
    handles, edges, check = [one.handle for one in nodes], tuple(one.node.after for one in nodes), certificate.check
    put_back = state.put_changes_back
    # None where no rank has a collective: see `_check_alike`.
    timeout_s = current_timeout_s()
    keeping = partial(_keeping, title, state, timeout_s)
    raw = RawGraph(taken.graph, handles, edges, keeping, kept, check=check, named=certificate.named, put_back=put_back)
    if in_job():
        raw.times_us([raw.edges])  # Now, and not when one rank asks for the bound: all have to replay.
    program = program_of(certificate, partial(_launch, nodes, kept), sources, raw, with_first_writers(taken.memory.pieces, memories))
    known = (title, program, described, memories, results, taken.memory, called)
    return CapturedFunction(*known, function, inputs, expected, before, state, _origin(taken.memory, results), taken.own, nodes, timeout_s)


@contextlib.contextmanager
def _keeping(title: str, state: State, timeout_s: float | None) -> Iterator[None]:
    """Run a block on all ranks, if there are collectives, and restore the state afterwards as it was before."""
    with joined(f"measuring {title}", timeout_s), state.keeping():
        yield


def _origin(memory: MemoryHeld, results: Sequence[Any]) -> CaptureOrigin:
    """Return the GPU, the time, and the versions of Streamscope, of the frameworks that may have launched something, and of the driver."""
    runtime = libraries().runtime
    versions = {name: version for name, version in library_versions().items() if name == "streamscope"}
    for name in ("torch", "cupy", "triton", "numba"):
        if (version := getattr(sys.modules.get(name), "__version__", None)) is not None:
            versions[name] = str(version)
    versions["CUDA driver"] = ".".join(map(str, driver_version()))
    device = str(runtime.getDeviceProperties(runtime.getDevice())["name"].decode())
    starts = tuple(map(device_address, results))
    return CaptureOrigin(device, datetime.now(UTC).isoformat(timespec="seconds"), versions, memory, starts)


def _multiprocessors() -> int:
    runtime = libraries().runtime
    return int(runtime.getDeviceProperties(runtime.getDevice())["multiProcessorCount"])


def _state_and_memories(
    taken: Taken, nodes: Sequence[LaunchableNode], memories: list[NodeMemory], results: Sequence[Any], before: Sequence[tuple[Any, Any]]
) -> tuple[State, list[NodeMemory], tuple[str, ...]]:
    """Return the state that a run changes, and the accesses of nodes whose writes are as claimed, with notes; ``before`` are the inputs."""
    pieces = [one for one in results if is_one_piece(one)]
    # A node that is not understood may change an input that only an address in device memory leads to.
    inputs = [device_address(one) for one, _ in before]

    def state_of(memories: Sequence[NodeMemory]) -> State:
        outcome, run = (lambda: [fetched(one) for one in pieces]), partial(_run_once, nodes)
        accesses = [one for memory in memories for one in memory.accesses]
        return found_state([*addresses_of(nodes, memories), *inputs], accesses, taken.own, _regions(pieces), outcome, run)

    state = state_of(memories)

    def put_back() -> None:
        state.put_back()
        restore(before)

    touched = united(region for node in nodes for word in node.words if (region := taken.allocated.around(word)) is not None)
    checked, notes = checked_memories(nodes, memories, touched, taken.own, put_back)
    if any(gathered("comparing writes", checked != memories)):  # What nobody had said is state, too.
        state = state_of(checked)
    return state, checked, notes


def _check_alike(title: str, nodes: Sequence[LaunchableNode], operators: Sequence[Operator]) -> None:
    """Refuse graphs with collectives that differ from rank to rank; where no rank has a collective, each goes on by itself."""
    waits = [is_collective(one.node.symbol) or spins_on_peers(one.node.symbol) for one in nodes]
    if not any(gathered("reading nodes", any(waits))):
        go_alone()
        return
    if not in_job():
        hint = (
            "initialise torch.distributed with several ranks, and leave timeout=None out: ranks agree through its store; "
            "parallelise calls with collectives apart from those without"
        )
        raise EngineError(f"{title} has a collective ({nodes[waits.index(True)].node.name}), and no other ranks to agree with", hint=hint)
    sizes = {handle: (one.communication.kind, one.communication.nbytes) for one in operators if one.communication for handle in one.nodes}
    graph = [(one.node.kind.name, one.node.after, sizes.get(one.handle)) for one in nodes]
    if (other := differing_rank("comparing nodes", graph)) is not None:
        kinds = Counter(one.communication.kind for one in operators if one.communication)
        said = gathered("naming nodes", listed([counted(len(nodes), "node"), *(f"{count} of {kind}" for kind, count in kinds.items())]))
        hint = "ranks have to launch the same nodes, which stages of a pipeline do not; capture the parts between their collectives"
        raise EngineError(f"{title} has other nodes on rank {other} than on rank 0: {said[other]}, and {said[0]}", hint=hint)


def _as_called(
    taken: Taken,
    nodes: Sequence[LaunchableNode],
    results: Sequence[Any],
    expected: Sequence[Array],
    call: Callable[[], Any],
    put_back: Callable[[], object],
) -> AsCalled:
    """Run nodes, and compare their results with those of a plain ``call``, both from the same state, which is as before afterwards."""

    def first() -> Apart:
        if in_job():
            return None, None  # Ranks may differ in whether they look, and a plain call has collectives.
        operators = [one for one in taken.operators if one.results]
        put_back()
        with _random_numbers_as_captured(taken.kept):
            plain = results_of_plain_call(call, {one.call for one in operators})
        put_back()
        return first_apart(nodes, operators, plain)

    _run_once(nodes)
    try:
        return as_called(results, expected, taken.parting, first, heard=taken.heard)
    finally:
        put_back()


def _check_shapes(title: str, results: Sequence[Any], expected: Sequence[Array]) -> None:
    """Check that results have the shapes that a further call returned."""
    then, now = ([tuple(one.shape) for one in arrays] for arrays in (results, expected))
    if now != then:
        hint = "captured code runs again as it was; let a cache have its full size from the start, and write into it"
        raise ProgramError(f"{title} returned results of other shapes when it was called again: {now} instead of {then}", hint=hint)


def _run_once(nodes: Sequence[LaunchableNode]) -> None:
    """Launch nodes one after the other, and wait for them."""
    lib = libraries()
    lib.runtime.deviceSynchronize()
    gathered("running the nodes", None)
    stream = lib.cupy.cuda.Stream(non_blocking=True)
    for number, node in enumerate(nodes):
        with cuda_errors(f"node {number} of the captured code ({node.node.name}), launched by itself"):
            node.bind(stream.ptr)()
    stream.synchronize()


@contextlib.contextmanager
def _random_numbers_as_captured(kept: Iterable[object]) -> Iterator[None]:
    """Let PyTorch draw the random numbers that a captured graph draws, which start at offset 0 in each run; then go on as before."""
    generators = generators_of(kept)
    before = [generator.get_state() for generator in generators]
    for generator in generators:
        generator.set_offset(0)
    try:
        yield
    finally:
        for generator, state in zip(generators, before, strict=True):
            generator.set_state(state)


def generators_of(kept: Iterable[object]) -> list[Any]:
    """Return the generators that captured code may draw from: PyTorch's own of the current GPU, and those that the capture keeps."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return []
    return [torch.cuda.default_generators[torch.cuda.current_device()], *(one for one in kept if isinstance(one, torch.Generator))]


def _regions(pieces: Sequence[Any]) -> list[AddressRange]:
    """Return where results lie that are in one piece each."""
    return [(device_address(one), device_address(one) + one.nbytes) for one in pieces]


def _results(result: Any, name: str) -> list[Any]:
    results = [] if result is None else list(result) if isinstance(result, tuple | list) else [result]
    for one in results:
        if (why := unsupported(one)) is not None:
            raise ProgramError(f"{name} returned {why[0]}", hint=f"return {why[1]}")
        if not on_device(one):
            where = " in host memory" if is_tensor(one) or isinstance(one, np.ndarray) else ""
            hint = "return CuPy arrays or CUDA tensors, and give it such" if where else "return CuPy arrays or CUDA tensors"
            raise ProgramError(f"{name} returned {a_kind(one)}{where}", hint=hint)
    return [one.detach() if is_tensor(one) else one for one in results]


def _described(nodes: Sequence[LaunchableNode], operators: Sequence[Operator], where: str) -> tuple[list[GraphNode], list[str]]:
    """Return the nodes with the operator, module and line that each came from, and the lines' texts; ``where`` if nothing says more."""
    launched_by = {handle: operator for operator in operators for handle in operator.nodes}
    place = {id(one): number for number, one in enumerate(one for one in operators if one.communication is not None)}
    described, sources = [], []
    for number, one in enumerate(nodes):
        operator = launched_by.get(one.handle)
        name, module, line = (one.node.name, "", UserLine("", "")) if operator is None else (operator.name, operator.module, operator.line)
        communication = None
        if operator is not None and operator.communication is not None and belongs_to_collective(one.node.kind, one.node.symbol):
            communication = replace(operator.communication, number=place[id(operator)])
        elif is_collective(one.node.symbol):
            communication = Communication("collective", "")  # Called through no operator of PyTorch's, or at the end of several.
        node = replace(one.node, operation=number, operator=name, where=line.where or where, module=module, communication=communication)
        described.append(node)
        sources.append(line.source)
    return described, sources


def _launch(nodes: Sequence[LaunchableNode], kept: Sequence[Any], number: int, after: tuple[int, ...]) -> Launch:
    """Return the launch of a node; ``kept`` lives as long as it."""
    one = nodes[number]
    return Launch(number, 0, one.node.name, one.kind, after, (number,), one.cost, None, _builder(one, kept))


def _builder(node: LaunchableNode, kept: Sequence[Any]) -> Callable[[Any, Sequence[Any], Sequence[Any]], Callable[[], None]]:
    def build(bench: Any, reads: Sequence[Any], writes: Sequence[Any]) -> Callable[[], None]:
        call = node.bind(bench.stream.pointer)

        # The graph owns the arguments and the pool the memory: both must live as long as the call.
        def launch(call: Callable[[], None] = call, kept: Sequence[Any] = kept) -> None:
            call()

        return launch

    return build
