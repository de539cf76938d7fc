"""Streams that PyTorch code is captured on, each with memory of its own for the workspaces of cuBLAS.

PyTorch keeps a workspace for each thread and stream. It gives all of them back when somebody clears them, as torch.compile does with
``mode="reduce-overhead"``; captured products would then write to memory that others got. In a pool of its own, nobody else gets it. The
streams are none of PyTorch's, which it hands out in turn: another user of the stream would share the workspace with replays elsewhere.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

from streamscope.interrupts import deferred, when_gone
from streamscope.kernels.library.libraries import libraries


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
        """Let what the calling thread allocates in the block come from the pool."""
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
