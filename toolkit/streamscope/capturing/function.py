"""`ss.capture`: run a function under stream capture, and make a program of what it launched."""

from __future__ import annotations

import contextlib
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.capturing.captured import CapturedProgram
from streamscope.capturing.certificate import Certificate
from streamscope.capturing.durations import timed
from streamscope.capturing.memory import NodeMemory, Region
from streamscope.capturing.nodes import LaunchableNode, read_nodes
from streamscope.capturing.state import State, found_state, torch_segments
from streamscope.capturing.true_order import true_order
from streamscope.devices.cuda.graph import CAPTURES
from streamscope.devices.cuda.raw_graph import RawGraph
from streamscope.devices.graph_node import GraphNode
from streamscope.errors import EngineError, NoDeviceError, ProgramError, StreamscopeError
from streamscope.interrupts import when_gone
from streamscope.kernels.library.libraries import libraries
from streamscope.program.launch import Launch
from streamscope.program.operation import Operation, Program, Variable
from streamscope.program.user_line import user_line
from streamscope.program.variable import ArraySpec, Place

Array = npt.NDArray[Any]

WARM_RUNS = 3
_TOKEN = ArraySpec((0,), np.dtype(np.uint8))


@dataclass
class CapturedFunction(CapturedProgram):
    """A program made of what a function launched; give it to `ss.compare` or `ss.prepare` as it is.

    Its memory is that of the capture: inputs are read where they lay then, and results are written where they were then.

    Attributes
    ----------
    results : list
        The arrays (CuPy) or tensors that the function returned while it was captured.
    """

    results: list[Any]
    _function: Callable[..., Any]
    _inputs: tuple[Any, ...]
    _expected: list[Array]
    _before: list[tuple[Any, Any]]
    _state: State

    def __reduce__(self) -> str:
        raise ProgramError(f"captured {self.name!r} cannot be pickled: it is a graph of this process", hint="capture it in each process")

    def expected(self) -> list[Array]:
        """Return what a plain call of the function returned, on the host; what it changes was then as `clear_outputs` puts it back."""
        return self._expected

    def outputs(self) -> list[Array]:
        """Return what the last run left in the captured results, on the host."""
        return [on_host(result) for result in self.results]

    def clear_outputs(self) -> None:
        """Overwrite the results, so that a run that writes nothing shows, and put back what the function changes.

        That is its inputs, and what it holds besides: parameters, the state of an optimiser or of random numbers.
        """
        runtime = libraries().runtime
        for start, end in _regions([result for result in self.results if _is_one_piece(result)]):
            runtime.memset(start, 0, end - start)
        self._state.put_back()
        _restore(self._before)
        runtime.deviceSynchronize()

    def plain_call_us(self, repeats: int = 30) -> float:
        """Return the median time of a plain call, framework included, until the device is done, in µs."""
        runtime = libraries().runtime
        times = []
        for _ in range(repeats):
            start = time.perf_counter_ns()
            self._function(*self._inputs)
            runtime.deviceSynchronize()
            times.append(time.perf_counter_ns() - start)
        return statistics.median(times) / 1e3


def capture(function: Callable[..., Any], *inputs: Any, name: str | None = None) -> CapturedFunction:
    """Make a program of any function that launches CUDA work: CuPy, PyTorch, Numba, a library.

    Streamscope calls the function a few times to warm up, once under stream capture, and once for the results to compare with. Each kernel,
    copy and set that it launched becomes an operation, with the edges of the capture. So you can compare engines on code that was never
    written for Streamscope. The nodes run a few times to find what the function changes, such as parameters in a training step. Before
    each check, these are put back. The warm-up changes them as plain calls do.

    Parameters
    ----------
    function : callable
        ``function(*inputs)``; returns a CuPy array or PyTorch tensor, a tuple of them, or None.
    *inputs : object
        Passed on; their memory is part of the capture.
    name : str, optional
        The function's name by default.

    Raises
    ------
    ProgramError
        It is not a function, or returns something else than arrays on the device.
    EngineError
        The function cannot be captured: it synchronises, copies to pageable memory, allocates outside a pool, or launches nothing.
    NoDeviceError
        There is no usable GPU.

    Examples
    --------
    You need a GPU to capture anything::

        def step(x, w):
            return torch.relu(x @ w)

        captured = ss.capture(step, x, w)       # x and w are CUDA tensors
        print(ss.compare(captured).verdict)
    """
    if not callable(function):
        raise ProgramError(f"ss.capture wants a function, not a {type(function).__name__}", hint="ss.capture(function, *inputs)")
    try:
        lib = libraries()
    except NoDeviceError as error:
        hint = "ss.capture records what a GPU is given; for the simulated device, write the operations with @ss.program"
        raise NoDeviceError(error.message, hint=hint) from None
    title = str(name or getattr(function, "__name__", "captured"))
    where = user_line()
    before = [(one, _copy(one)) for one in inputs if _on_device(one)]
    for _ in range(WARM_RUNS):
        _restore(before)
        # Not kept as they are: a loss keeps the nodes of its backward pass, which belong to the stream of this call.
        results = _results(function(*inputs), title)
        lib.runtime.deviceSynchronize()
    capturing = _torch_capture if any(_is_tensor(one) for one in (*inputs, *results)) else _cupy_capture
    try:
        graph, captured, kept, own = capturing(function, inputs)
        nodes = read_nodes(graph)
    except StreamscopeError:
        raise
    except Exception as error:
        raise EngineError(
            f"{title} cannot be captured: {error}",
            hint="leave out what synchronises (.item(), .get(), print of a tensor) or allocates host memory",
        ) from error
    if not nodes:
        raise EngineError(f"{title} launched nothing while it was captured", hint="launch on the current CuPy or PyTorch stream")
    results = _results(captured, title)
    del captured  # As above: the plain call below would meet nodes of the capture's stream.
    pieces = [one for one in results if _is_one_piece(one)]
    words = (word for node in nodes for word in node.words)
    state = found_state(words, own, _regions(pieces), lambda: [on_host(one) for one in pieces], partial(_run_once, nodes))
    _restore(before)
    with _random_numbers_as_captured():
        expected = [on_host(one) for one in _results(function(*inputs), title)]
    state.put_back()
    nodes = timed(nodes, state.keeping)
    memories = [NodeMemory(why_unknown="nothing looked at it")] * len(nodes)
    described = _described(nodes, where)
    raw = RawGraph(graph, [one.handle for one in nodes], tuple(one.node.after for one in nodes), state.keeping, kept)
    program = _program(title, nodes, described, memories, where, kept, raw)
    return CapturedFunction(title, program, described, memories, results, function, inputs, expected, before, state)


def _run_once(nodes: Sequence[LaunchableNode]) -> None:
    """Launch nodes one after the other, and wait for them."""
    lib = libraries()
    lib.runtime.deviceSynchronize()
    stream = lib.cupy.cuda.Stream(non_blocking=True)
    for node in nodes:
        node.bind(stream.ptr)()
    stream.synchronize()


@contextlib.contextmanager
def _random_numbers_as_captured() -> Iterator[None]:
    """Let PyTorch draw the random numbers that a captured graph draws, which start at offset 0 in each run; then go on as before."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        yield
        return
    generator = torch.cuda.default_generators[torch.cuda.current_device()]
    before = generator.get_state()
    generator.set_offset(0)
    try:
        yield
    finally:
        generator.set_state(before)


def _is_one_piece(result: Any) -> bool:
    return result.nbytes > 0 and result.__cuda_array_interface__["strides"] is None


def _regions(pieces: Sequence[Any]) -> list[Region]:
    """Return where results lie that are in one piece each."""
    starts = [(one.__cuda_array_interface__["data"][0], one.nbytes) for one in pieces]
    return [(start, start + nbytes) for start, nbytes in starts]


def _on_device(value: Any) -> bool:
    """Tell a CuPy array or CUDA tensor; one that needs a gradient is one, though it does not say so."""
    return hasattr(value.detach() if _is_tensor(value) else value, "__cuda_array_interface__")


class _RawGraph:
    """Destroys a captured graph when nothing uses it any more, and no capture of the thread can be broken by that."""

    def __init__(self, graph: int) -> None:
        when_gone(self, partial(_destroy, partial(libraries().runtime.graphDestroy, graph)))


def _destroy(destroy: Callable[[], object]) -> None:
    with contextlib.suppress(Exception):
        CAPTURES.destroy(destroy)


def _copy(value: Any) -> Any:
    return value.detach().clone() if _is_tensor(value) else value.copy()


def _restore(before: Sequence[tuple[Any, Any]]) -> None:
    """Put back what inputs held before the function ran."""
    for value, copy in before:
        if _is_tensor(value):
            value.detach().copy_(copy)
        else:
            value[...] = copy


def on_host(value: Any) -> Array:
    """Return a CuPy array or PyTorch tensor as a NumPy array."""
    if hasattr(value, "detach"):
        value = value.detach()
        return np.asarray((value.float() if str(value.dtype) == "torch.bfloat16" else value).cpu().numpy())
    return np.asarray(value.get() if hasattr(value, "get") else value)


def _results(result: Any, name: str) -> list[Any]:
    results = [] if result is None else list(result) if isinstance(result, tuple | list) else [result]
    for one in results:
        if not _on_device(one):
            raise ProgramError(f"{name} returned a {type(one).__name__}", hint="return CuPy arrays or CUDA tensors")
    return [one.detach() if _is_tensor(one) else one for one in results]


def _cupy_capture(function: Callable[..., Any], inputs: Sequence[Any]) -> tuple[int, Any, list[Any], list[Region]]:
    """Capture with memory from a pool of its own, warmed so that the capture allocates nothing; return that memory, too."""
    lib = libraries()
    pool, own = _pool()
    stream = lib.cupy.cuda.Stream(non_blocking=True)
    with lib.cupy.cuda.using_allocator(pool.malloc), stream:
        function(*inputs)
        stream.synchronize()
        with _captured(stream.ptr) as graphs:
            result = function(*inputs)
    return graphs[0], result, [_RawGraph(graphs[0]), pool, stream], own


def _pool() -> tuple[Any, list[Region]]:
    """Return a memory pool of CuPy's, and a list that will hold all memory that it takes from CUDA."""
    memory = libraries().cupy.cuda.memory
    own: list[Region] = []

    def allocate(nbytes: int) -> Any:
        pointer = memory.MemoryPointer(memory.Memory(nbytes), 0)
        own.append((pointer.ptr, pointer.ptr + nbytes))
        return pointer

    return memory.MemoryPool(allocate), own


@contextlib.contextmanager
def _captured(stream: int) -> Iterator[list[int]]:
    runtime = libraries().runtime
    graphs: list[int] = []
    CAPTURES.begun(stream)
    try:
        runtime.streamBeginCapture(stream, runtime.streamCaptureModeThreadLocal)
        yield graphs
    except BaseException:
        with contextlib.suppress(runtime.CUDARuntimeError):
            runtime.streamEndCapture(stream)
        raise
    else:
        graphs.append(runtime.streamEndCapture(stream))
    finally:
        CAPTURES.ended(stream)


def _torch_capture(function: Callable[..., Any], inputs: Sequence[Any]) -> tuple[int, Any, list[Any], list[Region]]:
    """Capture through PyTorch, whose allocator must know; CuPy launches on the same stream."""
    import torch

    lib = libraries()
    side = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    pool, own = _pool()
    with lib.cupy.cuda.using_allocator(pool.malloc), lib.cupy.cuda.Stream.from_external(_ForeignStream(side.cuda_stream)):
        with torch.cuda.stream(side):
            function(*inputs)
        torch.cuda.synchronize()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The CUDA Graph is empty")  # We say so ourselves.
            CAPTURES.begun(side.cuda_stream)
            try:
                with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
                    result = function(*inputs)
            finally:
                CAPTURES.ended(side.cuda_stream)
    segments = (each for each in torch_segments() if tuple(each["segment_pool_id"]) == tuple(graph.pool()))
    own += [(each["address"], each["address"] + each["total_size"]) for each in segments]
    return graph.raw_cuda_graph(), result, [graph, pool, side], own


@dataclass(frozen=True)
class _ForeignStream:
    """A stream of another library, as CUDA's stream protocol wants it."""

    pointer: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.pointer


def _is_tensor(value: Any) -> bool:
    """Tell a PyTorch tensor, without importing PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _described(nodes: Sequence[LaunchableNode], where: str) -> list[GraphNode]:
    return [replace(one.node, operation=number, operator=one.node.name, where=where) for number, one in enumerate(nodes)]


def _program(
    name: str,
    nodes: Sequence[LaunchableNode],
    described: Sequence[GraphNode],
    memories: Sequence[NodeMemory],
    where: str,
    kept: Sequence[Any],
    raw: RawGraph,
) -> Program:
    """Make a program whose variables stand for what nodes leave: a node writes its own and reads those that it must come after."""
    order = true_order(memories, raw.edges)
    operations = []
    for number, (one, after) in enumerate(zip(nodes, order, strict=True)):
        node, writes = one.node, (number,)
        launch = Launch(number, 0, node.name, one.kind, after, writes, one.cost, None, _builder(one, kept))
        operations.append(Operation(number, node.name, after, writes, {"grid": node.grid, "block": node.block}, where, (launch,)))
    variables = tuple(Variable(number, node.node.name, _TOKEN, Place.DEVICE) for number, node in enumerate(nodes))
    certificate = Certificate(name, described, memories, order)
    raw.check = certificate.check
    return Program(name, variables, tuple(operations), (), (), captured=raw.edges, certificate=certificate, raw=raw)


def _builder(node: LaunchableNode, kept: Sequence[Any]) -> Callable[[Any, Sequence[Any], Sequence[Any]], Callable[[], None]]:
    def build(bench: Any, reads: Sequence[Any], writes: Sequence[Any]) -> Callable[[], None]:
        call = node.bind(bench.stream.pointer)

        # The graph owns the arguments and the pool the memory: both must live as long as the call.
        def launch(call: Callable[[], None] = call, kept: Sequence[Any] = kept) -> None:
            call()

        return launch

    return build
