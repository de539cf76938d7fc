"""Hearing of each PyTorch operator that a block of code calls, by a dispatch mode; their temporaries, learnt from a plain call."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any

from streamscope.capturing.allocations import TorchCounts
from streamscope.capturing.memory import AddressRange
from streamscope.devices.cuda.gate import WATCHDOG

_THREADS = "/proc/self/task"
"""A folder for each thread of this process, also of those that Python does not know."""
_OF_THE_DRIVER = re.compile(r"cuda(-EvtHandlr|[0-9a-f]{8,11})\n")
"""Names of the CUDA driver's threads: ``"cuda-EvtHandlr"``, ``"cuda00001400006"``. Others may call theirs ``"cuda-worker"``."""
_Hear = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
"""``hear(operator, arguments, keywords)`` calls an operator and returns its result."""


def listening(hear: _Hear) -> AbstractContextManager[object]:
    """Let a function call each operator of the block, and of autograd's threads that work for it.

    Those that only make views are among them. An operator that others are made of is not: they are. Compiled functions run compiled, and
    call other operators for the rest.
    """
    mode: AbstractContextManager[object] = _mode()(hear)
    return mode


class OtherThreads:
    """Tells whether unobserved threads ran meanwhile: their launches cannot be told from an operator's.

    A thread that launches something takes processor time, and one that waits takes none. Threads that Python does not know, as of a library
    in C++, are among them, but for the driver's own.

    ``ours``: threads that launch on orders, by the number that the system gives them.
    """

    def __init__(self, ours: Iterable[int] = ()) -> None:
        self._heard = {threading.get_native_id(), *ours}
        self._launches: dict[int, bool] = {}

    def times_ns(self) -> dict[int, int]:
        """Return the processor time of each thread that is not heard; the calling one is heard from now on."""
        # Autograd's threads call this, too, and what they launch is heard.
        self._heard.add(threading.get_native_id())
        threads = map(int, os.listdir(_THREADS))  # noqa: PTH208 — paths take twice the time, and each operator asks
        others = (one for one in threads if one not in self._heard and self._may_launch(one))
        return {one: _processor_time_ns(one) for one in others}

    def _may_launch(self, thread: int) -> bool:
        """Tell whether a thread may launch something: not our watchdog, nor the driver's threads, which wake up by themselves."""
        if thread not in self._launches:
            try:
                name = Path(_THREADS, str(thread), "comm").read_text(encoding="utf-8", errors="replace")
            except OSError:
                return True  # It has ended meanwhile.
            ours = any(one.native_id == thread and one.name == WATCHDOG for one in threading.enumerate())
            self._launches[thread] = not (ours or _OF_THE_DRIVER.fullmatch(name))
        return self._launches[thread]


def _processor_time_ns(thread: int) -> int:
    """Return the processor time of a thread, in ns; -1 of one that has ended."""
    try:
        # As `time.pthread_getcpuclockid` makes it, which must not be asked of a thread that may have ended.
        return time.clock_gettime_ns((~thread << 3) | 6)
    except OSError:
        return -1


def tensors_in(value: Any) -> Iterator[Any]:
    """Yield the tensors of an argument or result."""
    if isinstance(value, (tuple, list)):
        for one in value:
            yield from tensors_in(one)
    elif isinstance(value, sys.modules["torch"].Tensor):
        yield value


def storages_in(tensors: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    """Yield the memory of tensors on the device, with the identity of each piece."""
    for tensor in tensors:
        if tensor.is_cuda and tensor.layout is sys.modules["torch"].strided:
            storage = tensor.untyped_storage()
            yield storage._cdata, storage  # noqa: SLF001 — no public way


@cache
def _mode() -> type[Any]:
    """Return the dispatch mode's class; PyTorch is imported when a capture needs it."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    plain = (torch.Tensor, torch.nn.Parameter)

    class Listening(TorchDispatchMode):  # type: ignore[misc]  # PyTorch is not there when types are checked
        supports_higher_order_operators = True

        def __init__(self, hear: _Hear) -> None:
            super().__init__()
            self._hear = hear

        @classmethod
        def ignore_compile_internals(cls) -> bool:
            return True  # Else torch.compile would not run what it compiled.

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if any(each not in plain for each in types):
                return NotImplemented  # A tensor of another class calls operators on plain ones, which come here.
            if not hasattr(func, "_schema"):  # An operator of higher order calls others, out of our sight.
                return func(*args, **(kwargs or {}))
            return _in_parts(self._hear, func, args) if _splits(func, args) else self._hear(func, args, kwargs or {})

    return Listening


def _in_parts(hear: _Hear, function: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Run the backward pass of a convolution gradient by gradient, as it does itself, so that each node belongs to one of them."""
    *others, mask = args
    alone = ([at == wanted for at in range(len(mask))] for wanted in range(len(mask)))
    return tuple(hear(function, (*others, one), {})[at] if mask[at] else None for at, one in enumerate(alone))


def _splits(function: Any, args: tuple[Any, ...]) -> bool:
    """Tell whether a call asks for several gradients of a convolution that cuDNN computes apart, with no copies that both would need."""
    torch = sys.modules["torch"]
    if function is not torch.ops.aten.convolution_backward.default or len(args) != len(function._schema.arguments):  # noqa: SLF001 — no public way
        return False
    gradient, values, weight, *_, transposed, _, groups, mask = args
    plain = not transposed and groups == 1 and values.is_cuda and torch.backends.cudnn.is_acceptable(values)
    tensors = gradient, values, weight
    formats = [torch.contiguous_format] + ([torch.channels_last] if values.ndim == 4 else [])
    return plain and sum(mask) > 1 and any(all(one.is_contiguous(memory_format=each) for one in tensors) for each in formats)


class Workspaces:
    """Notes the temporaries of each operator of a plain call, and the generators that users' operators draw from."""

    def __init__(self, counts: TorchCounts) -> None:
        self.generators: list[Any] = []
        """Each once; PyTorch's own is not among them."""
        self._counts = counts
        self._calls: list[tuple[range, tuple[int, ...]]] = []
        self._sizes: list[tuple[int, ...]] = []

    def run(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call an operator, and note which allocations were made meanwhile."""
        torch = sys.modules["torch"]
        for value in (*args, *kwargs.values()):
            if isinstance(value, torch.Generator) and value.device.type == "cuda":
                # An operator is given another Python object of the same generator.
                known = {one._cdata for one in (*torch.cuda.default_generators, *self.generators)}  # noqa: SLF001 — PyTorch's address of it
                self.generators += [] if value._cdata in known else [value]  # noqa: SLF001
        before = self._counts.now().allocations
        result = function(*args, **kwargs)
        after = self._counts.now().allocations
        results = storages_in(tensors_in(result)) if after > before else ()
        self._calls.append((range(before, after), tuple(storage.data_ptr() for _, storage in results)))
        return result

    def learn(self, made: Sequence[AddressRange]) -> None:
        """Take the sizes from the allocator's events."""
        self._sizes = [
            tuple(end - start for start, end in (made[number] for number in numbers if number < len(made)) if start not in results)
            for numbers, results in self._calls
        ]

    def of(self, call: int) -> tuple[int, ...]:
        """Return how many bytes an operator allocated for itself each time, by its number among all calls; nothing where none is known."""
        return self._sizes[call] if call < len(self._sizes) else ()
