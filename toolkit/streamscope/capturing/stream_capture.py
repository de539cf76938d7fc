"""Running a function under stream capture, through CuPy or PyTorch, with no memory used twice; observations meanwhile."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from streamscope.capturing.allocations import (
    Allocated,
    PrivatePool,
    TorchHistory,
    pieces_of_arrays,
    pools_of,
    torch_history,
    torch_segments,
)
from streamscope.capturing.cupy_captures import CupyProducts, CupyUploads
from streamscope.capturing.evidence import node_memories, workspaces_apart
from streamscope.capturing.host_constants import HostConstants
from streamscope.capturing.jax_arrays import jax_refused
from streamscope.capturing.memory import AddressRange, MemoryHeld, NodeMemory, united
from streamscope.capturing.nodes import GrowingGraph, LaunchableNode, read_nodes, without_internals
from streamscope.capturing.operators import BESIDE, Operator, OperatorLog, Parting, PlainOperators, listening, tensors_in
from streamscope.capturing.side_streams import WORKSPACES, WORKSPACES_BYTES, SideStream, product_threads
from streamscope.capturing.triton_kernels import TritonKernels
from streamscope.devices.cuda.captures import CAPTURES
from streamscope.devices.cuda.streams import ForeignStream
from streamscope.interrupts import nothing_collected, when_gone
from streamscope.job import gathered
from streamscope.kernels.library.libraries import libraries

CAPTURES_AT_MOST = 3
"""How often a function is captured, if another thread runs beside its operators."""


@dataclass(frozen=True, kw_only=True)
class Taken:
    """A captured graph, and observations while the function ran."""

    graph: int
    """Its address."""
    result: Any
    """Results of the function."""
    kept: list[Any]
    """Objects that must live as long as the graph."""
    own: list[AddressRange]
    """Memory that is the capture's own: its content does not outlive a run."""
    allocated: Allocated
    operators: list[Operator]
    """Those of PyTorch that launched something, and CuPy's matrix products."""
    memory: MemoryHeld
    uploads: int = 0
    """NumPy arrays that the function has handed to CuPy."""
    constants: int = 0
    """Arrays in host memory that the function has made of constants alone, and put on the device."""
    parting: Parting | None = None
    """Where the capture left the path of a plain call."""
    heard: bool = False
    """Whether operators of a plain call were heard, so that the capture's could be compared."""


def take(
    function: Callable[..., Any], inputs: Sequence[Any], results: Sequence[Any], extra_bytes: int | None, restore: Callable[[], object]
) -> tuple[Taken, list[LaunchableNode], list[NodeMemory]]:
    """Capture a function, and return its nodes with the accesses of each.

    ``inputs`` and ``results``: its arguments, and its results of an earlier call.
    ``extra_bytes``: memory that the capture may keep beyond the peak of a plain call.
    ``restore``: restores the inputs before the function is called again.
    """
    through = _taken_through_torch if _uses_torch(function, inputs, results, restore) else taken_through_cupy

    def understood(apart: Mapping[int, int]) -> tuple[Taken, list[LaunchableNode], list[NodeMemory]]:
        def captured() -> Taken:
            # The streams of captures wait for no other, and what was called before may still run on the user's.
            libraries().runtime.deviceSynchronize()
            return through(function, inputs, extra_bytes, apart)

        taken = undisturbed(captured, restore)
        nodes = read_nodes(taken.graph, {node: f"{one.name} at {one.line.where}" for one in taken.operators for node in one.nodes})
        nodes = [without_internals(one, taken.allocated.is_known) for one in nodes]
        return taken, nodes, node_memories(nodes, taken.operators, taken.allocated, TritonKernels())

    taken, nodes, memories = understood({})
    sharing = workspaces_apart(nodes, taken.operators, memories, tuple(one.node.after for one in nodes), WORKSPACES)
    # One plan for all ranks: what a rank shares depends on where its memory lies.
    apart = {call: workspace for ranks in reversed(gathered("looking at workspaces", [*sharing.items()])) for call, workspace in ranks}
    if not apart or (extra_bytes is not None and extra_bytes < WORKSPACES_BYTES):
        return taken, nodes, memories
    del taken, nodes, memories  # What it returned may keep nodes of a backward pass, which belong to the stream of that capture.
    restore()
    return understood(apart)


def casting_each_time(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that casts its weights in each call, also inside one ``torch.autocast`` block, in which PyTorch keeps the casts.

    A capture without a cast would read one that was made before, whatever the weight holds by now.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return function

    def casting(*inputs: Any) -> Any:
        keeps = torch.is_autocast_cache_enabled()
        try:
            torch.set_autocast_cache_enabled(False)
            torch.clear_autocast_cache()
            return function(*inputs)
        finally:
            torch.clear_autocast_cache()  # What a block inside the function has kept belongs to the capture.
            torch.set_autocast_cache_enabled(keeps)

    return casting


def undisturbed(through: Callable[[], Taken], restore: Callable[[], object]) -> Taken:
    """Return a capture during whose operators no other thread ran or, where one always does, the last of a few.

    A thread that runs by chance has most often nothing to do with the capture, and does not come again. It may come during another
    operator, as NCCL's threads do each second. So an operator counts as undisturbed if it launched as many nodes in one of the captures,
    while no other thread ran.
    """
    alone: dict[tuple[int, str, int], str] = {}
    taken = _known_alone(through(), alone)
    for _ in range(CAPTURES_AT_MOST - 1):
        # All ranks capture as often: NCCL may register memory with its peers meanwhile.
        if not any(gathered("capturing", any(one.why_unknown == BESIDE for one in taken.operators))):
            break
        del taken  # As in `take`.
        restore()
        taken = _known_alone(through(), alone)
    return taken


def _known_alone(taken: Taken, alone: dict[tuple[int, str, int], str]) -> Taken:
    """Note the operators of a capture that no other thread ran beside, and clear those that are noted of earlier ones."""
    alone |= {(one.call, one.name, len(one.nodes)): one.why_unknown for one in taken.operators if one.why_unknown != BESIDE}

    def known(one: Operator) -> Operator:
        key = one.call, one.name, len(one.nodes)
        return replace(one, why_unknown=alone[key]) if one.why_unknown == BESIDE and key in alone else one

    return replace(taken, operators=list(map(known, taken.operators)))


def _uses_torch(function: Callable[..., Any], inputs: Sequence[Any], results: Sequence[Any], restore: Callable[[], object]) -> bool:
    """Tell whether PyTorch's allocator must know of a capture: arrays are PyTorch's, there are none, or its operators touch the device."""
    torch, arrays = sys.modules.get("torch"), (*inputs, *results)
    if torch is None or not torch.cuda.is_initialized():
        return False
    if not arrays or any(isinstance(one, torch.Tensor) for one in arrays):
        return True
    found = False

    def hear(operator: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        nonlocal found
        result = operator(*args, **keywords)
        found |= any(one.is_cuda for one in tensors_in([*args, *keywords.values(), result]))
        return result

    with listening(hear):
        function(*inputs)
    restore()
    return found


def taken_through_cupy(function: Callable[..., Any], inputs: Sequence[Any], extra_bytes: int | None, apart: object = None) -> Taken:
    """Capture with memory from a pool of its own, warmed so that the capture allocates nothing."""
    plain, pool, stream = PrivatePool(), PrivatePool(), libraries().cupy.cuda.Stream(non_blocking=True)
    products, uploads = CupyProducts(), CupyUploads()
    with stream, products.through():
        with plain.plain():
            function(*inputs)
        budget_bytes = plain.nbytes + _room(extra_bytes)
        # Once without a capture: afterwards the pool has all blocks that the capture asks for.
        with pool.keeping(budget_bytes):
            function(*inputs)
            stream.synchronize()
        with pool.keeping(budget_bytes) as made, nothing_collected(), _captured(stream.ptr) as graphs, uploads.constant(), jax_refused():
            result = function(*inputs)
    allocated = Allocated(made, pieces_of_arrays(), pool.own)
    kept, own = [_RawGraph(graphs[0]), pool, stream, products, uploads], [*pool.own, *products.workspaces]
    memory = MemoryHeld(plain.nbytes, tuple(united(made)))
    return Taken(
        graph=graphs[0],
        result=result,
        kept=kept,
        own=own,
        allocated=allocated,
        operators=products.operators,
        memory=memory,
        uploads=len(uploads.arrays),
    )


def _taken_through_torch(function: Callable[..., Any], inputs: Sequence[Any], extra_bytes: int | None, apart: Mapping[int, int]) -> Taken:
    """Capture through PyTorch, whose allocator must know; CuPy launches on the same stream. ``apart``: workspaces of some calls."""
    import torch

    lent, pool = SideStream(), PrivatePool()
    side = lent.stream
    lent.make_ready()
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    room, products, uploads = _room(extra_bytes), CupyProducts(), CupyUploads()
    with libraries().cupy.cuda.Stream.from_external(ForeignStream(side.cuda_stream)), products.through():
        with torch.cuda.stream(side), pool.keeping(room):
            plain, heard = _plain_call(function, inputs)
            for generator in heard.generators:
                graph.register_generator_state(generator)
        with contextlib.ExitStack() as stack:
            threads = stack.enter_context(product_threads(lent)) if apart else None
            # The capture's stream waits for no other, and the plain call may still be running.
            torch.cuda.synchronize()
            made = stack.enter_context(pool.keeping(room))
            history = stack.enter_context(torch_history())
            stack.enter_context(nothing_collected())
            stack.enter_context(warnings.catch_warnings())
            warnings.filterwarnings("ignore", "The CUDA Graph is empty")  # We say so ourselves.
            stack.enter_context(torch.cuda.stream(side))  # PyTorch leaves the stream current if a capture cannot be ended.
            CAPTURES.begun(side.cuda_stream)
            try:
                with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
                    # Inside the capture: only now does the stream have a graph.
                    growing, budget_bytes = GrowingGraph(side.cuda_stream), plain.most_bytes + room
                    log = OperatorLog(growing, history.counts, heard, budget_bytes, apart, threads)
                    with log.listening(), uploads.constant(), jax_refused():
                        result = function(*inputs)
            except BaseException:
                with contextlib.suppress(RuntimeError):  # Where the device is lost, the user's error says why.
                    _mend_torch(graph, lent, heard.generators)
                raise
            finally:
                CAPTURES.ended(side.cuda_stream)
    segments = (each for each in torch_segments() if tuple(each["segment_pool_id"]) == tuple(graph.pool()))
    own = [*pool.own, *products.workspaces, *pools_of(segments)]
    allocated = Allocated(history.made, (*history.held, *made, *pieces_of_arrays()), (*history.pools, *pool.own))
    memory = MemoryHeld(plain.most_bytes, tuple(united((*history.made, *made))))
    kept = [graph, pool, lent, log.kept, log.from_outside, products, uploads, heard.constants, *heard.generators]
    operators = [*log.operators, *products.operators]
    return Taken(
        graph=graph.raw_cuda_graph(),
        result=result,
        kept=kept,
        own=own,
        allocated=allocated,
        operators=operators,
        memory=memory,
        uploads=len(uploads.arrays),
        constants=heard.constants.lent_out,
        parting=log.parting,
        heard=bool(heard.heard),
    )


def _plain_call(function: Callable[..., Any], inputs: Sequence[Any]) -> tuple[TorchHistory, PlainOperators]:
    """Return the allocations of a plain call and its operators; libraries have allocated their memory of a stream before."""
    function(*inputs)
    with torch_history() as plain:
        heard = PlainOperators(plain.counts, HostConstants())
        with listening(heard.run):
            function(*inputs)
    heard.learn(plain.made)
    heard.constants.plain_call_ended()
    return plain, heard


def _mend_torch(broken: Any, lent: SideStream, generators: Iterable[Any]) -> None:
    """Let PyTorch's allocator and generators go on after a capture that CUDA broke: PyTorch 2.11 leaves them waiting for its end.

    All random numbers would be refused from then on ("Offset increment outside graph capture"). An empty capture has an end.
    """
    import torch

    with contextlib.suppress(RuntimeError, AttributeError):  # Its capture ended as it should.
        torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), broken.pool())  # noqa: SLF001 — as PyTorch's compiler does
    whole = torch.cuda.CUDAGraph(keep_graph=True)
    for generator in generators:
        whole.register_generator_state(generator)
    with torch.cuda.graph(whole, stream=lent.stream, capture_error_mode="thread_local"):
        pass


def _room(extra_bytes: int | None) -> int:
    """Return the bytes that a capture may keep beyond the peak of a plain call; by default, half of the free memory."""
    return int(libraries().runtime.memGetInfo()[0] // 2) if extra_bytes is None else extra_bytes


@contextlib.contextmanager
def _captured(stream: int) -> Iterator[list[int]]:
    runtime = libraries().runtime
    graphs: list[int] = []
    # Before it begins: what another thread destroys in between would break it.
    CAPTURES.begun(stream)
    try:
        # Thread-local: other threads may go on to allocate and to wait without breaking it.
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
