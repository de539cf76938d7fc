"""Streams that PyTorch code is captured on, and threads that call its matrix products, with workspaces of cuBLAS that nobody shares.

PyTorch keeps a workspace for each thread and stream. It gives all of them back when somebody clears them, as torch.compile does with
``mode="reduce-overhead"``; captured products would then write to memory that others got. In a pool of its own, nobody else gets it. The
streams are none of PyTorch's, which it hands out in turn: another user of the stream would share the workspace with replays elsewhere.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from typing import Any

from streamscope.interrupts import deferred, when_gone
from streamscope.kernels.library.libraries import libraries

WORKSPACES = 4
"""How many there are beside those of this thread and autograd's, each of a thread."""
WORKSPACES_BYTES = WORKSPACES * 33 * 2**20
"""Largest workspaces of the threads on GPUs since Hopper: 32 MiB for cuBLAS and 1 MiB for its light version. PyTorch keeps them."""


class SideStream:
    """A stream, and the memory that libraries need on it; the next capture takes both over when this has gone."""

    def __init__(self) -> None:
        torch = sys.modules["torch"]
        free = _FREE.setdefault(torch.cuda.current_device(), [])
        try:
            self._parts = free.pop()
        except IndexError:
            own, pool = libraries().cupy.cuda.Stream(non_blocking=True), torch.cuda.MemPool()
            # Never destroyed, not even at the end of the process: PyTorch ends that with an abort if any capture has failed before.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(pool))
            self._parts = torch.cuda.ExternalStream(own.ptr), own, pool
        self.stream = self._parts[0]
        when_gone(self, partial(free.append, self._parts))

    @contextmanager
    def _allocating(self) -> Iterator[None]:
        """Let allocations of the calling thread in the block come from the pool."""
        with sys.modules["torch"].cuda.use_mem_pool(self._parts[2]):
            yield

    def products(self) -> None:
        """Multiply matrices in the calling thread, so that it has its workspaces."""
        torch = sys.modules["torch"]
        with torch.cuda.stream(self.stream), torch.inference_mode(mode=False), torch.no_grad(), self._allocating(), _not_deterministic():
            square = torch.ones(16, 16, device=self.stream.device)
            torch.cuda.current_stream().synchronize()  # Gives the thread its context, without which cuBLAS warns.
            torch.mm(square, square)
            torch.addmm(square[0], square, square)

    def make_ready(self) -> None:
        """Give this thread, and the one of autograd that works for it, their workspaces."""
        torch = sys.modules["torch"]
        self.products()
        with torch.cuda.stream(self.stream), torch.inference_mode(mode=False), torch.enable_grad():
            number = torch.ones((), device=self.stream.device, requires_grad=True)
            _in_autograds_thread().apply(number, self.products).backward()


@contextmanager
def _not_deterministic() -> Iterator[None]:
    """Let PyTorch multiply in the block where it would refuse to: products of ones are the same in any order."""
    torch = sys.modules["torch"]
    mode = torch.get_deterministic_debug_mode()
    with deferred():
        torch.set_deterministic_debug_mode(0)
        try:
            yield
        finally:
            torch.set_deterministic_debug_mode(mode)


_FREE: dict[int, list[tuple[Any, Any, Any]]] = {}
"""For each GPU the streams of captures that have gone, as PyTorch's and CuPy's objects, with their pools."""


@cache
def _in_autograds_thread() -> Any:
    """Return a function of autograd's that calls something in its backward pass."""
    function = sys.modules["torch"].autograd.Function

    class InBackward(function):  # type: ignore[misc, valid-type]  # PyTorch is not there when types are checked
        @staticmethod
        def forward(ctx: Any, number: Any, call: Callable[[], object]) -> Any:
            ctx.call = call
            return number.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            ctx.call()
            return gradient, None

    return InBackward


class ProductThreads:
    """Calls operators in one of a few threads, on one stream: matrix products of one thread share a workspace.

    ``executors``: each with one thread.
    """

    def __init__(self, executors: list[ThreadPoolExecutor], stream: Any) -> None:
        self._executors, self._stream = executors, stream
        self.numbers: set[int] = set()
        """Of the threads, as the system has them; each is known from its first call on."""

    def call(self, workspace: int, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call an operator with one of the workspaces, as it would be called in this thread."""
        inner = sys.modules["torch"]._C  # noqa: SLF001 — no public way, here and below
        keys = inner._dispatch_tls_local_include_set(), inner._dispatch_tls_local_exclude_set()  # noqa: SLF001 — as above
        return self._executors[workspace].submit(self._called, keys, function, args, kwargs).result()

    def _called(self, keys: tuple[Any, Any], function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        torch = sys.modules["torch"]
        # Known before it launches, so that `OtherThreads` does not take it for a stranger.
        self.numbers.add(threading.get_native_id())
        # A dispatch mode hears of an operator when autograd is done with it. A new thread does not know that.
        with torch.cuda.stream(self._stream), torch.no_grad(), torch._C._ForceDispatchKeyGuard(*keys):  # noqa: SLF001 — no public way
            return function(*args, **kwargs)


@contextmanager
def product_threads(lent: SideStream) -> Iterator[ProductThreads]:
    """Start the threads, whose workspaces on the stream are there when the block begins."""
    torch = sys.modules["torch"]
    with ExitStack() as stack:
        executors = [stack.enter_context(ThreadPoolExecutor(1)) for _ in range(WORKSPACES)]
        threads = ProductThreads(executors, lent.stream)
        lent.stream.wait_stream(torch.cuda.current_stream())
        for workspace in range(WORKSPACES):
            threads.call(workspace, lent.products, (), {})
        yield threads
