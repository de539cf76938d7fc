"""The PyTorch operators of a capture: which nodes each of them launched, the memory of its tensors, the module and line it came from."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType, MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from streamscope.capturing.allocations import TorchCounts
from streamscope.capturing.communication import communication_of, kind_of
from streamscope.capturing.memory import AddressRange, Kept
from streamscope.capturing.nodes import GrowingGraph
from streamscope.capturing.side_streams import ProductThreads
from streamscope.devices.cuda.gate import WATCHDOG
from streamscope.devices.graph_node import Communication
from streamscope.job import THREAD
from streamscope.program.user_line import UserLine, UserLines
from streamscope.tracebacks import is_ours

if TYPE_CHECKING:
    from streamscope.capturing.host_constants import HostConstants

_THREADS = "/proc/self/task"
"""A folder for each thread of this process, also of those that Python does not know."""
_LAUNCHES_NOTHING = re.compile(r"(cuda(-EvtHandlr|[0-9a-f]{8,11})|pt_nccl_\w*|pt_tcpstore\w*|NCCL [\w /]*)\n")
"""Names of threads of the CUDA driver (``"cuda-EvtHandlr"``, ``"cuda00001400006"``; others may call theirs ``"cuda-worker"``), of process
groups, which watch, and of NCCL, whose proxies launch on streams of their own that no capture has."""
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
            ours = any(one.native_id == thread and one.name in (WATCHDOG, THREAD) for one in threading.enumerate())
            self._launches[thread] = not (ours or _LAUNCHES_NOTHING.fullmatch(name))
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


Heard = tuple[Any, tuple[tuple[tuple[int, ...], Any], ...]]
"""An operator, and shape and dtype of each floating-point tensor that it is given: a call has to repeat these."""


def _heard(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Heard:
    given = tensors_in([*args, *kwargs.values()])
    return function, tuple((tuple(one.shape), one.dtype) for one in given if one.is_floating_point())


class PlainOperators:
    """Notes each operator of a plain call with its temporaries, and the generators that users' operators draw from."""

    def __init__(self, counts: TorchCounts, constants: HostConstants) -> None:
        self.generators: list[Any] = []
        """Each once; PyTorch's own is not among them."""
        self.heard: list[Heard] = []
        self.constants = constants
        self._counts = counts
        self._calls: list[tuple[range, tuple[int, ...]]] = []
        self._sizes: list[tuple[int, ...]] = []

    def run(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call an operator, and note which allocations were made meanwhile."""
        torch = sys.modules["torch"]
        self.heard.append(_heard(function, args, kwargs))
        for value in (*args, *kwargs.values()):
            if isinstance(value, torch.Generator) and value.device.type == "cuda":
                # An operator is given another Python object of the same generator.
                known = {one._cdata for one in (*torch.cuda.default_generators, *self.generators)}  # noqa: SLF001 — PyTorch's address of it
                self.generators += [] if value._cdata in known else [value]  # noqa: SLF001
        self.constants.lent(len(self._calls), function, args, kwargs)
        before = self._counts.now().allocations
        result = function(*args, **kwargs)
        after = self._counts.now().allocations
        self.constants.note(function, args, kwargs, result)
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


_TRUSTED = ("aten", "prims")
"""Operators whose schemas name their outputs; of others, inputs count as written too."""
_OF_FSDP2 = ("fsdp::split_with_sizes_copy", "fsdp::chunk_cat")
"""Those of FSDP2 that call one operator of PyTorch's, ``out`` included: copies between its flat buffers and tensors."""
BESIDE = "another thread ran while its operator did, and may have launched it"
_WRITTEN_ANYWAY = ("running_mean", "running_var", "dropout_state")
"""Arguments that batch norms and recurrent networks change, though their schemas do not say so."""


_SENT = "input"
"""How the arguments of collectives begin that are only read, by their documentation; a change that is seen says otherwise."""


@dataclass(frozen=True)
class Placed:
    """Where a tensor lies in device memory, and how; the tensor itself need not live."""

    start: int
    dtype: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, tensor: Any) -> Placed:
        """Note a tensor."""
        return cls(tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()))

    def tensor(self) -> Any:
        """Return the tensor, as it is now."""
        nbytes = self.dtype.itemsize
        strides = tuple(nbytes * stride for stride in self.strides)
        kind = {1: "|i1", 16: "<c16"}.get(nbytes, f"<i{nbytes}")
        memory = {"shape": self.shape, "strides": strides, "typestr": kind, "data": (self.start, False), "version": 3}
        found = sys.modules["torch"].as_tensor(SimpleNamespace(__cuda_array_interface__=memory), device="cuda")
        return found.view(self.dtype)


def results_of(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> list[Any]:
    """Return the tensors of real numbers on the device that an operator computes: the first of its results or, without any, what it writes.

    Further results are often notes for a backward pass, which nobody has to write whole.
    """
    found = list(tensors_in(result))[:1] or [tensor for tensor, written in written_by(function, args, kwargs) if written]
    return [one for one in found if one.is_cuda and one.is_floating_point() and one.numel() and one.layout is sys.modules["torch"].strided]


@dataclass(frozen=True)
class Parting:
    """The first operator that a capture calls and a plain call does not."""

    called: str
    """The operator of the plain call in its place; empty where that had ended."""
    captured: str
    """Empty where the capture had ended."""
    where: str = ""
    """The capture's module and line."""

    def __str__(self) -> str:
        where = f" ({self.where})" if self.where else ""
        if self.called == self.captured:
            return f"{self.captured} of arrays of other shapes or dtypes than in a plain call{where}"
        if not self.captured:
            return f"without {self.called}, which a plain call goes on with"
        return f"{self.captured}{where} " + (f"where a plain call calls {self.called}" if self.called else "after the end of a plain call")


@dataclass(frozen=True)
class Operator:
    """A PyTorch operator that launched something."""

    name: str
    """As PyTorch writes it: ``"aten.addmm.default"``."""
    module: str
    """The path of the module that called it in the outermost one, as ``layer3.0.conv1``; of a backward pass, that of the forward pass, or
    ``backward`` where it is not known. Empty outside modules."""
    line: UserLine
    """The user's."""
    nodes: tuple[int, ...]
    """Handles of its launches."""
    reads: tuple[AddressRange, ...]
    writes: tuple[AddressRange, ...]
    """The extents of its tensors; one that is written counts as read, too."""
    allocated: range
    """Which of the allocations since the capture began were made while it ran: the first is 0."""
    why_unknown: str = ""
    """Why its tensors are not all that it touches; empty where they are."""
    call: int = 0
    """Its number among all calls of operators, those that launch nothing too."""
    trusted: bool = True
    """Whether its schema names all accesses; the code of another one may use memory that no argument shows."""
    communication: Communication | None = None
    """The collective that it is."""
    results: tuple[Placed, ...] = ()
    """Where its results lie, see `results_of`."""

    @property
    def named(self) -> str:
        """Its name with module and line: ``"aten.addmm.default (layer1.0, model.py:12)"``."""
        return f"{self.name} ({_place(self.module, self.line)})"


def _place(module: str, line: UserLine) -> str:
    return ", ".join(filter(None, (module, line.where)))


class OperatorLog:
    """Lists the operators of a capture while it goes on, and keeps their tensors' memory, so that none is used twice.

    ``budget_bytes``: how much of the capture's allocations may be kept.
    ``apart``: calls that go through ``threads``, by their number, with the workspace of each.
    """

    def __init__(
        self,
        graph: GrowingGraph,
        counts: TorchCounts,
        plain: PlainOperators,
        budget_bytes: int,
        apart: Mapping[int, int] = MappingProxyType({}),
        threads: ProductThreads | None = None,
    ) -> None:
        self.operators: list[Operator] = []
        self.kept, self.from_outside = Kept(budget_bytes, _is_free), dict[int, Any]()
        self._graph, self._counts, self._budget_bytes = graph, counts, budget_bytes
        self._plain, self._calls, self._apart, self._threads = plain, 0, apart, threads
        self._parting: Parting | None = None
        self._places = _Places()
        self._others = OtherThreads(threads.numbers if threads is not None else ())

    @property
    def parting(self) -> Parting | None:
        """Where the capture, now that it is over, first left the path of the plain call; None where it kept to it."""
        ended = self._calls < len(self._plain.heard)
        return self._parting or (Parting(str(self._plain.heard[self._calls][0]), "") if ended else None)

    def _compare(self, heard: Heard) -> None:
        """Note the first operator that is another one than in the plain call."""
        before = self._plain.heard
        if self._parting is None and (self._calls >= len(before) or before[self._calls] != heard):
            called = str(before[self._calls][0]) if self._calls < len(before) else ""
            self._parting = Parting(called, str(heard[0]), _place(*self._places.here()))

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Hear of every operator in the block, in threads of autograd as well."""
        with _inductors_buffers_kept(self.keep), listening(self.run):
            yield

    def keep(self, tensors: Iterable[Any]) -> None:
        """Keep the memory of new tensors.

        It does not keep the tensors: autograd takes over a gradient that nobody else holds, and else copies it.
        """
        for key, storage in storages_in(tensors):
            if key not in self.from_outside and key not in self.kept:
                self.kept.add(key, storage, storage.nbytes())

    def _keep_given(self, tensors: Iterable[Any]) -> None:
        """Keep the memory of operators' arguments: memory that is not kept yet is not the capture's own."""
        for key, storage in storages_in(tensors):
            if key not in self.kept:
                self.from_outside.setdefault(key, storage)

    def run(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call an operator, and note its launches."""
        self._compare(_heard(function, args, kwargs))
        asked, args = args, self._plain.constants.lent(self._calls, function, args, kwargs)
        given = tuple(written_by(function, args, kwargs))
        self._keep_given(tensor for tensor, _ in given)
        # Before the call, which may give a tensor other memory.
        touched = [(_extent(tensor), written) for tensor, written in given]
        # Read before and after: a thread that took processor time meanwhile may have launched some of the nodes.
        others_ns = self._others.times_ns()
        nodes, counts = self._graph.count(), self._counts.now()
        workspace, threads = self._apart.get(self._calls), self._threads
        result = function(*args, **kwargs) if workspace is None or threads is None else threads.call(workspace, function, args, kwargs)
        self._plain.constants.note(function, asked, kwargs, result)
        after, outputs = self._counts.now(), list(tensors_in(result))
        self.keep(outputs)
        launched = self._graph.since(nodes)
        if launched:
            alone = others_ns == self._others.times_ns()
            touched += [(_extent(tensor), True) for tensor in outputs]
            touched += [(_extent(tensor), True) for tensor, written in given if written]  # It may lie elsewhere now.
            module, line = self._places.here()
            self.operators.append(
                Operator(
                    str(function),
                    module,
                    line,
                    launched,
                    tuple(dict.fromkeys(one for extents, written in touched if not written for one in extents or ())),
                    tuple(dict.fromkeys(one for extents, written in touched if written for one in extents or ())),
                    range(counts.allocations, after.allocations),
                    _why_unknown(function, touched) if alone else BESIDE,
                    self._calls,
                    is_trusted(function),
                    communication_of(str(function), (*args, *kwargs.values()), max((one.nbytes for one, _ in given), default=0)),
                    tuple(map(Placed.of, results_of(function, args, kwargs, result))),
                )
            )
        elif self._places.differentiates:
            self._places.note()
        self._hold_workspaces(after.freed_bytes - counts.freed_bytes)
        return result

    def _hold_workspaces(self, freed_bytes: int) -> None:
        """Take the temporaries that an operator gave back, so that no other gets them.

        The allocator hands out the smallest piece that fits. So the same sizes in the same order lead to the same pieces.
        """
        sizes = self._plain.of(self._calls)
        self._calls += 1
        if 0 < freed_bytes <= self._budget_bytes - self.kept.nbytes:
            torch = sys.modules["torch"]
            wanted = sizes if 0 < sum(sizes) <= freed_bytes else [freed_bytes]
            self.keep([torch.empty(nbytes, dtype=torch.uint8, device="cuda") for nbytes in wanted])


def _why_unknown(function: Any, touched: Iterable[tuple[tuple[AddressRange, ...] | None, bool]]) -> str:
    return "" if all(extents is not None for extents, _ in touched) else f"{function} has a tensor that is not strided"


class _Places:
    """Says which module and which of the user's lines called an operator; of a backward pass, those of the forward pass."""

    def __init__(self) -> None:
        import torch

        self._current_node: Callable[[], Any] = getattr(torch._C, "_current_autograd_node", lambda: None)  # noqa: SLF001 — no public way
        self._next_number: Callable[[], int] = getattr(torch._C._autograd, "_get_sequence_nr", lambda: 0)  # noqa: SLF001 — as above
        self._forward: dict[int, tuple[str, UserLine]] = {}
        self._names: dict[int, tuple[Any, dict[int, str]]] = {}
        self._lines = UserLines()

    @property
    def differentiates(self) -> bool:
        """Whether an operator that launched nothing may belong to a node of autograd whose place is still to be noted."""
        return self._next_number() - 1 not in self._forward

    def note(self) -> None:
        """Note where the forward pass is, for the node of autograd that was made last."""
        self.here()

    def here(self) -> tuple[str, UserLine]:
        """Return the module's path and the line."""
        node = self._current_node()
        if node is not None:
            return self._forward.get(node._sequence_nr(), ("backward", self._from_frames()[1]))  # noqa: SLF001 — no public way
        place = self._from_frames()
        # Autograd makes its node, and gives it the next number, before it calls the operator.
        self._forward.setdefault(self._next_number() - 1, place)
        return place

    def _from_frames(self) -> tuple[str, UserLine]:
        # By frames and not by hooks on modules: those would make torch.compile compile anew.
        last = sys._getframe(1)  # noqa: SLF001 — as in `user_line`
        frame: FrameType | None = last
        line, modules = None, []
        while frame is not None:
            name = frame.f_globals.get("__name__", "")
            if name == "torch.nn.modules.module" and frame.f_code.co_name == "_call_impl":
                modules.append(frame.f_locals["self"])
            if line is None and name.partition(".")[0] != "torch" and not is_ours(name):
                line = self._lines.of(frame)
            last, frame = frame, frame.f_back
        return (self._path(modules[0], modules[-1]) if modules else ""), line or self._lines.of(last)

    def _path(self, module: Any, outermost: Any) -> str:
        known = self._names.get(id(outermost))
        if known is None:
            known = self._names[id(outermost)] = outermost, {id(one): path for path, one in outermost.named_modules()}
        return known[1].get(id(module), "") or type(module).__name__


@contextlib.contextmanager
def _inductors_buffers_kept(keep: Callable[[Iterable[Any]], None]) -> Iterator[None]:
    """Keep allocations of compiled functions, which no dispatch mode sees."""
    codecache = sys.modules.get("torch._inductor.codecache")
    modules = [one for one in getattr(getattr(codecache, "PyCodeCache", None), "modules", []) if hasattr(one, "empty_strided_cuda")]
    before = [one.empty_strided_cuda for one in modules]

    def kept(allocate: Callable[..., Any]) -> Callable[..., Any]:
        def empty_strided(*args: Any, **kwargs: Any) -> Any:
            tensor = allocate(*args, **kwargs)
            keep([tensor])
            return tensor

        return empty_strided

    try:
        for one, allocate in zip(modules, before, strict=True):
            one.empty_strided_cuda = kept(allocate)
        yield
    finally:
        for one, allocate in zip(modules, before, strict=True):
            one.empty_strided_cuda = allocate


def written_by(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[Any, bool]]:
    """Yield the tensors that an operator is called with, and whether it writes them."""
    written = _written(function)
    names = [*written]
    for name, value in (*zip(names, args, strict=False), *kwargs.items()):
        for tensor in tensors_in(value):
            yield tensor, written.get(name, True)


def is_trusted(function: Any) -> bool:
    """Tell an operator of PyTorch's own, whose schema names its outputs."""
    name = function._schema.name  # noqa: SLF001 — no public way
    return name in _OF_FSDP2 or name.partition("::")[0] in _TRUSTED


@cache
def _written(function: Any) -> dict[str, bool]:
    """Tell for each argument of an operator whether it is written."""
    schema = function._schema  # noqa: SLF001 — no public way
    trusted, sends = is_trusted(function), kind_of(str(function))
    return {
        one.name: (not trusted and not (sends and one.name.startswith(_SENT)))
        or one.name in _WRITTEN_ANYWAY
        or (one.alias_info is not None and one.alias_info.is_write)
        for one in schema.arguments
    }


def _is_free(storage: Any) -> bool:
    return bool(sys.modules["torch"]._C._storage_Use_Count(storage._cdata) == 1)  # noqa: SLF001 — no public way


def _extent(tensor: Any) -> tuple[AddressRange, ...] | None:
    """Return where a tensor's elements lie in device memory; None where it has no strides."""
    torch = sys.modules["torch"]
    if tensor.layout is not torch.strided or tensor.is_nested or tensor.device.type == "meta":
        return None
    if not tensor.is_cuda or tensor.numel() == 0:
        return ()
    start = tensor.data_ptr()
    last = sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return ((start, start + (last + 1) * tensor.element_size()),)
