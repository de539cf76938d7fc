"""`ss.capture`: run a function under stream capture, and make a program of what it launched."""

from __future__ import annotations

import contextlib
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.capturing.nodes import LaunchableNode, read_nodes
from streamscope.devices.cuda.driver import libraries
from streamscope.devices.cuda.graph import CAPTURES
from streamscope.errors import EngineError, NoDeviceError, ProgramError, StreamscopeError
from streamscope.graphs.node import GraphNode
from streamscope.interrupts import when_gone
from streamscope.program.launch import Launch
from streamscope.program.operation import Operation, Program, Variable
from streamscope.program.user_line import user_line
from streamscope.program.variable import ArraySpec, Place

Array = npt.NDArray[Any]

WARM_RUNS = 3
_TOKEN = ArraySpec((0,), np.dtype(np.uint8))


@dataclass
class CapturedFunction:
    """A program made of what a function launched; give it to `ss.compare` or `ss.prepare` as it is.

    Its memory is that of the capture: inputs are read where they lay then, and results are written where they were then.

    Attributes
    ----------
    name : str
    program : Program
        One operation for each kernel, copy and set; its variables have no elements and stand for the edges of the capture.
    nodes : list of GraphNode
        Kind, name, grid, block, registers and edges of each; each is the operation of that number.
    results : list
        The arrays (CuPy) or tensors that the function returned while it was captured.
    """

    name: str
    program: Program
    nodes: list[GraphNode]
    results: list[Any]
    _function: Callable[..., Any]
    _inputs: tuple[Any, ...]
    _expected: list[Array]
    _before: list[tuple[Any, Any]] = field(default_factory=list)

    def trace(self) -> Program:
        """Return the program; it takes no arguments, since the capture holds its own memory."""
        return self.program

    def expected(self) -> list[Array]:
        """Return what a plain call of the function returned, on the host."""
        return self._expected

    def outputs(self) -> list[Array]:
        """Return what the last run left in the captured results, on the host."""
        return [on_host(result) for result in self.results]

    def clear_outputs(self) -> None:
        """Overwrite the results, so that a run that writes nothing shows, and put back inputs that the function changes."""
        runtime = libraries().runtime
        for result in self.results:
            if result.__cuda_array_interface__["strides"] is None:  # In one piece; else leave it.
                runtime.memset(result.__cuda_array_interface__["data"][0], 0, result.nbytes)
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

    The function is called a few times to warm up and once under stream capture. Each kernel, copy and set that it launched becomes an
    operation, with the edges of the capture, so that engines can be compared on code that was never written for Streamscope.

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
        It is no function, or returns something else than arrays on the device.
    EngineError
        The function cannot be captured: it synchronises, copies to pageable memory, allocates outside a pool, or launches nothing.
    NoDeviceError
        There is no usable GPU.
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
    before = [(one, _copy(one)) for one in inputs if hasattr(one, "__cuda_array_interface__")]
    for _ in range(WARM_RUNS):
        _restore(before)
        result = function(*inputs)
        lib.runtime.deviceSynchronize()
    expected = [on_host(one) for one in _results(result, title)]
    capturing = _torch_capture if any(_is_tensor(one) for one in (*inputs, *_results(result, title))) else _cupy_capture
    try:
        graph, captured, kept = capturing(function, inputs)
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
    return CapturedFunction(
        title, _program(title, nodes, where, kept), _described(nodes, where), _results(captured, title), function, inputs, expected, before
    )


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
        if not hasattr(one, "__cuda_array_interface__"):
            raise ProgramError(f"{name} returned a {type(one).__name__}", hint="return CuPy arrays or CUDA tensors")
    return results


def _cupy_capture(function: Callable[..., Any], inputs: Sequence[Any]) -> tuple[int, Any, list[Any]]:
    """Capture with memory from a pool of its own, warmed so that the capture allocates nothing."""
    lib = libraries()
    pool = lib.cupy.cuda.MemoryPool()
    stream = lib.cupy.cuda.Stream(non_blocking=True)
    with lib.cupy.cuda.using_allocator(pool.malloc), stream:
        function(*inputs)
        stream.synchronize()
        with _captured(stream.ptr) as graphs:
            result = function(*inputs)
    return graphs[0], result, [_RawGraph(graphs[0]), pool, stream]


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


def _torch_capture(function: Callable[..., Any], inputs: Sequence[Any]) -> tuple[int, Any, list[Any]]:
    """Capture through PyTorch, whose allocator must know; CuPy launches on the same stream."""
    import torch

    lib = libraries()
    side = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    pool = lib.cupy.cuda.MemoryPool()
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
    return graph.raw_cuda_graph(), result, [graph, pool, side]


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


def _program(name: str, nodes: Sequence[LaunchableNode], where: str, kept: Sequence[Any]) -> Program:
    """Make a program whose variables stand for edges: a node writes its own and reads those of the nodes it depends on.

    Which memory nodes share is unknown, so one run must be over before the next begins.
    """
    operations = []
    for number, one in enumerate(nodes):
        node, writes = one.node, (number,)
        launch = Launch(number, 0, node.name, one.kind, node.after, writes, one.cost, None, _builder(one, kept))
        operations.append(Operation(number, node.name, node.after, writes, {"grid": node.grid, "block": node.block}, where, (launch,)))
    variables = tuple(Variable(number, f"edge {number}", _TOKEN, Place.DEVICE) for number in range(len(nodes)))
    return Program(name, variables, tuple(operations), (), (), runs_apart=True)


def _builder(node: LaunchableNode, kept: Sequence[Any]) -> Callable[[Any, Sequence[Any], Sequence[Any]], Callable[[], None]]:
    def build(bench: Any, reads: Sequence[Any], writes: Sequence[Any]) -> Callable[[], None]:
        call = node.bind(bench.stream.pointer)

        # The graph owns the arguments and the pool the memory: both must live as long as the call.
        def launch(call: Callable[[], None] = call, kept: Sequence[Any] = kept) -> None:
            call()

        return launch

    return build
