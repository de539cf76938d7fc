"""Running a function under stream capture, through CuPy or PyTorch, with no memory used twice, and what was learnt meanwhile."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from streamscope.capturing.allocations import Allocated, PrivatePool, torch_history, torch_segments
from streamscope.capturing.growing_graph import GrowingGraph
from streamscope.capturing.memory import Region
from streamscope.capturing.operators import Operator, OperatorLog
from streamscope.devices.cuda.graph import CAPTURES
from streamscope.interrupts import when_gone
from streamscope.kernels.library.libraries import libraries


@dataclass(frozen=True)
class Taken:
    """A captured graph, and what was learnt while the function ran.

    Attributes
    ----------
    graph : int
        Its address.
    result : object
        What the function returned.
    kept : list
        What must live as long as the graph.
    own : list of Region
        Memory that is the capture's own: what is there does not outlive a run.
    allocated : Allocated
    operators : list of Operator
        Those of PyTorch that launched something.
    """

    graph: int
    result: Any
    kept: list[Any]
    own: list[Region]
    allocated: Allocated
    operators: list[Operator]


def taken_through_cupy(function: Callable[..., Any], inputs: Sequence[Any]) -> Taken:
    """Capture with memory from a pool of its own, warmed so that the capture allocates nothing."""
    pool, stream = PrivatePool(), libraries().cupy.cuda.Stream(non_blocking=True)
    with stream:
        with pool.keeping():
            function(*inputs)
            stream.synchronize()
        with pool.keeping() as made, _captured(stream.ptr) as graphs:
            result = function(*inputs)
    return Taken(graphs[0], result, [_RawGraph(graphs[0]), pool, stream], pool.own, Allocated(made, (), pool.own), [])


def taken_through_torch(function: Callable[..., Any], inputs: Sequence[Any]) -> Taken:
    """Capture through PyTorch, whose allocator must know; CuPy launches on the same stream."""
    import torch

    side, pool = torch.cuda.Stream(), PrivatePool()
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with libraries().cupy.cuda.Stream.from_external(_ForeignStream(side.cuda_stream)):
        with torch.cuda.stream(side), pool.keeping():
            function(*inputs)
        torch.cuda.synchronize()
        with warnings.catch_warnings(), pool.keeping() as made, torch_history() as history:
            warnings.filterwarnings("ignore", "The CUDA Graph is empty")  # We say so ourselves.
            CAPTURES.begun(side.cuda_stream)
            try:
                with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
                    log = OperatorLog(GrowingGraph(side.cuda_stream), history.counts, _room())
                    with log.listening():
                        result = function(*inputs)
            finally:
                CAPTURES.ended(side.cuda_stream)
    segments = (each for each in torch_segments() if tuple(each["segment_pool_id"]) == tuple(graph.pool()))
    own = [*pool.own, *((each["address"], each["address"] + each["total_size"]) for each in segments)]
    allocated = Allocated(history.made, (*history.held, *made), (*history.pools, *pool.own))
    return Taken(graph.raw_cuda_graph(), result, [graph, pool, side, log.kept], own, allocated, log.operators)


def _room() -> int:
    """Return how many bytes a capture may keep that a plain one would use again."""
    return int(libraries().runtime.memGetInfo()[0] // 2)


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


class _RawGraph:
    """Destroys a captured graph when nothing uses it any more, and no capture of the thread can be broken by that."""

    def __init__(self, graph: int) -> None:
        when_gone(self, partial(_destroy, partial(libraries().runtime.graphDestroy, graph)))


def _destroy(destroy: Callable[[], object]) -> None:
    with contextlib.suppress(Exception):
        CAPTURES.destroy(destroy)


@dataclass(frozen=True)
class _ForeignStream:
    """A stream of another library, as CUDA's stream protocol wants it."""

    pointer: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.pointer
