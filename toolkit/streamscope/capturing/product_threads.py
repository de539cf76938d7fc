"""Threads that call matrix products in turn: PyTorch gives each thread and stream a workspace of cuBLAS, and those of one share it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import cycle
from typing import Any

from streamscope.capturing.side_streams import SideStream

COUNT = 4
WORKSPACES_BYTES = COUNT * 33 * 2**20
"""What their workspaces take at most on GPUs since Hopper: 32 MiB for cuBLAS and 1 MiB for its light version. PyTorch keeps them."""


class ProductThreads:
    """Calls operators in the next thread each time, on one stream.

    ``executors``: each with one thread.
    """

    def __init__(self, executors: list[ThreadPoolExecutor], stream: Any) -> None:
        self._executors, self._stream = cycle(executors), stream
        self.numbers: set[int] = set()
        """Of the threads, as the system has them; each is known from its first call on."""

    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call an operator, as it would be called in this thread."""
        inner = sys.modules["torch"]._C  # noqa: SLF001 — no public way, here and below
        keys = inner._dispatch_tls_local_include_set(), inner._dispatch_tls_local_exclude_set()  # noqa: SLF001 — as above
        return next(self._executors).submit(self._called, keys, function, args, kwargs).result()

    def _called(self, keys: tuple[Any, Any], function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        torch = sys.modules["torch"]
        self.numbers.add(threading.get_native_id())
        # A dispatch mode hears of an operator when autograd is done with it. A new thread does not know that.
        with torch.cuda.stream(self._stream), torch.no_grad(), torch._C._ForceDispatchKeyGuard(*keys):  # noqa: SLF001 — no public way
            return function(*args, **kwargs)


@contextmanager
def product_threads(lent: SideStream) -> Iterator[ProductThreads]:
    """Start the threads, whose workspaces on the stream are there when the block begins."""
    torch = sys.modules["torch"]
    with ExitStack() as stack:
        executors = [stack.enter_context(ThreadPoolExecutor(1)) for _ in range(COUNT)]
        threads = ProductThreads(executors, lent.stream)
        lent.stream.wait_stream(torch.cuda.current_stream())
        for _ in executors:
            threads.call(lent.products, (), {})
        yield threads
