"""The quick path of a call: its comparisons are bound beforehand, arrays are told by integers, and its one launch copies them, too."""

from __future__ import annotations

import ctypes
import sys
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, cast

import numpy as np

from streamscope.capturing.arrays import is_tensor
from streamscope.devices.cuda.bench import PackedArguments
from streamscope.devices.cuda.graph import CudaGraph
from streamscope.errors import DeviceError, ProgramError
from streamscope.kernels.cuda import fill, pieces
from streamscope.kernels.library.libraries import libraries
from streamscope.parallelising.calls import Calls
from streamscope.parallelising.device_arrays import extent, is_array, place
from streamscope.parallelising.trees import Array, Matcher, Tree, matcher, parts_of, tuple_of

_COUNTS = (1, 4, 16, 64)
"""For how many arrays there are kernels. Their addresses are its arguments, and more of them take longer to launch."""
_COPIES = 2
"""Graphs behind a kernel that copies."""
MOST_COPIED = _COUNTS[-1]
"""Arrays that one launch copies."""
COPYING_THREADS, _LEAST_PIECE, _MOST_PIECES = 256, 1 << 13, 2048
"""Of a block, which copies a piece of at least so many bytes; the pieces of all arrays together are about so many at most.
What is set to zero has further ones."""

_MOST_PATTERNS = 64
"""Ways to write a call that are known at a time."""
_MOST_KNOWN = 4096
"""Addresses of arguments that are known at a time."""
_END = 2**64
"""Behind all addresses."""
_Regions = Sequence[tuple[int, int]]
"""Where regions of memory begin and end."""


class Arranger:
    """Finds the arrays of a call in the order of the captured ones; None where the call is another one."""

    def __init__(self, tree: Tree, arrays: int, calls: Calls) -> None:
        self._count = arrays
        self._pattern = lru_cache(_MOST_PATTERNS)(partial(_pattern, tree, arrays, calls))
        self.straight = arrays if self._pattern(arrays) == () else -1
        """How many positional arguments a call has if those are the arrays, and all others have their defaults; -1 if that cannot be."""

    def __call__(self, inputs: Sequence[Any], keywords: Mapping[str, Any]) -> Sequence[Any] | None:
        """Return the arrays of a call with these arguments."""
        match = self._pattern(len(inputs), *keywords)
        values = (*inputs, *keywords.values()) if keywords else inputs
        if not match:
            return match if match is None else values
        arrays: list[Any] = [None] * self._count
        return arrays if match(values, arrays) else None


def _anything(value: Any) -> bool:
    """Take a value for an array: whoever reads its address finds out."""
    return True


def _pattern(tree: Tree, arrays: int, calls: Calls, count: int, *names: str) -> Matcher | tuple[()] | None:
    """Return what tells the values of a call that is written with ``count`` arguments and further ones by name.

    An empty tuple, if they are the arrays, each once and in their order. None if no such call is like the captured one, whose arguments are
    a ``tree``.
    """
    marks = [object() for _ in range(count + len(names))]
    try:
        arguments = calls.arguments(marks[:count], dict(zip(names, marks[count:], strict=True)))
    except ProgramError:
        return None
    numbers = {id(mark): number for number, mark in enumerate(marks)}
    given: list[Any] = [None] * len(marks)

    def place_marks(value: Any, part: Tree) -> bool:
        if id(value) in numbers:
            given[numbers[id(value)]] = part
            return True
        if isinstance(value, tuple | dict):  # All arguments, or those of a function that takes any number of them.
            held, parts = value if isinstance(value, dict) else dict(enumerate(value)), parts_of(part)
            return list(held) == list(parts) and all(map(place_marks, held.values(), parts.values()))
        return matcher(part, is_array)(value, [None] * arrays)  # A default.

    if not place_marks(arguments, tree):
        return None
    return () if given == [Array(number) for number in range(arrays)] else matcher(tuple_of(given), _anything)


class Addresses:
    """Tells the addresses of arrays like some memories.

    ``copied``: for each memory whether arrays that lie elsewhere may be copied to it.
    ``regions``: memory that captured code uses, which no array that is copied may overlap; sorted and apart.
    """

    def __init__(self, memories: Sequence[Any], copied: Sequence[bool], regions: _Regions) -> None:
        self._readers = [address_reader(memory, regions, copied=each) for memory, each in zip(memories, copied, strict=True)]
        self._tensors = bool(memories) and all(map(is_tensor, memories))
        self.data_ptr: Any = sys.modules["torch"].Tensor.data_ptr if self._tensors else None
        self.alike: Callable[..., bool] = _unlike
        """Tells tensors whose `data_ptr` is all that is to be asked: they are like the last ones that `read` has taken."""
        self.known: set[tuple[int, ...]] = set()
        """What `read` has returned. Memory of the capture never moves. So what lies beside it once, always does."""

    def read(self, arrays: Sequence[Any]) -> tuple[int, ...] | None:
        """Return the addresses of arrays; None where a call cannot take their bytes."""
        found = tuple(address for read, array in zip(self._readers, arrays, strict=True) if (address := read(array)) is not None)
        if len(found) < len(self._readers):
            return None
        if len(self.known) == _MOST_KNOWN:
            self.known.clear()
        self.known.add(found)
        if self._tensors:
            self.alike = alike(arrays) or _unlike
        return found


def _unlike(*arrays: Any) -> bool:
    """Tell arrays that are like others, of which nothing is known."""
    return False


def address_reader(memory: Any, taken: _Regions, *, copied: bool) -> Callable[[Any], int | None]:
    """Return a function that tells the address of an array like some memory; None of one that a call cannot take as bytes.

    It compares library, shape, dtype, GPU and strides, and asks whether the array lies in memory that captured code uses.

    ``taken``: regions of that memory, sorted and apart.
    ``copied``: whether arrays that lie elsewhere may be copied to the memory.
    """
    own, shape, dtype = place(memory)[0], memory.shape, memory.dtype
    low, high = extent(memory)
    low, high, copied = low - own, high - own, copied and high - low == memory.nbytes
    starts, ends = zip(*taken, (_END, _END), strict=True)

    def free(address: int) -> int | None:
        """Return the address of an array that lies elsewhere than the memory."""
        return address if copied and starts[bisect_right(ends, address + low)] >= address + high else None

    if not is_tensor(memory):
        strides, gpu, array_type = memory.strides, memory.device.id, type(memory)

        def of_array(array: Any) -> int | None:
            if type(array) is array_type and array.shape == shape and array.dtype == dtype and array.strides == strides:
                address: int = array.data.ptr
                if array.device.id == gpu:
                    return address if address == own else free(address)
            return None

        return of_array

    stride, device, tensor = memory.stride(), memory.device, sys.modules["torch"].Tensor
    in_rows, conjugates = memory.is_contiguous(), dtype.is_complex
    if memory.is_conj() or memory.is_neg():
        return lambda array: None

    def of_tensor(array: Any) -> int | None:
        if (
            isinstance(array, tensor)
            and array.dtype is dtype
            and array.shape == shape
            and (array.is_contiguous() if in_rows else array.stride() == stride)
            and array.device == device
            and not array.is_neg()
            and not (conjugates and array.is_conj())
        ):
            address: int = array.data_ptr()
            return address if address == own else free(address)
        return None

    return of_tensor


_KNOWN_GUARDS = range(11, 14)
"""Minor versions of PyTorch 2 whose guards have been tried."""


def alike(tensors: Sequence[Any]) -> Callable[..., bool] | None:
    """Return a function that tells whether tensors are like these: class, dtype, GPU, shape, strides, and how their elements are read.

    It is the one by which `torch.compile` tells calls, since one function in C++ takes a fifth of the time of all questions. None where
    this PyTorch's is not known.
    """
    torch = sys.modules["torch"]
    major, minor, *_ = torch.__version__.split(".")
    if major != "2" or int(minor) not in _KNOWN_GUARDS or any(type(one) not in (torch.Tensor, torch.nn.Parameter) for one in tensors):
        return None
    guards = torch._C._dynamo.guards.TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None)  # noqa: SLF001
    return cast("Callable[..., bool]", guards.check)


Launch = Callable[[int], None]
"""Puts a graph on a stream that is known by its address."""


class Copying:
    """Copies into arrays that have no gaps, from wherever others of the same layout lie, and runs a graph then: both in one launch.

    The graph gets a kernel before its nodes, whose arguments are addresses. It also does the small sets with which the graph begins: as
    nodes beside the kernel, they made a transformer's graph up to 8 µs longer. There are two such graphs, so addresses that take turns,
    as those of two buffers, are set once: what is set is uploaded with the next launch, which makes that take longer.

    ``targets``: where the memory of each array begins and ends.
    ``graph``: what runs on these arrays.
    """

    def __init__(self, targets: _Regions, graph: CudaGraph) -> None:
        lib, nbytes = libraries(), sum(end - start for start, end in targets)
        self.cleared = graph.first_sets(targets)
        """Regions of memory that the kernel sets to zero while it copies, so no array that is copied may lie there."""
        size = max(_LEAST_PIECE, -(-nbytes // _MOST_PIECES // 16) * 16)
        most = next(most for most in _COUNTS if len(targets) <= most)
        parts = [
            (number, start, at - start, min(size, end - at))
            for number, (start, end) in enumerate(targets)
            for at in range(start, end, size)
        ]
        # Their source is the 0 behind the addresses of arrays. An offset would make an address of it, so the target has it.
        parts += [(most, at, 0, min(size, end - at)) for start, end in self.cleared for at in range(start, end, size)]
        parts = parts or [(0, 0, 0, 0)]
        self.launches: dict[Any, Launch] = {}
        """For addresses that are set: what copies from them and runs the graph. An array that is its target is left as it is."""
        table = lib.cupy.asarray(np.array(parts, np.uint64))
        text = pieces("moved_bytes")
        source = text["move"] + fill(text["copied_arguments"], most=most)
        self._kernel = lib.cupy.RawKernel(source, "copied_arguments").kernel
        arguments = [[table, (ctypes.c_uint64 * (most + 1))()] for _ in range(_COPIES)]
        self._copies = deque(_Copy(graph, self._kernel.ptr, len(parts), each, targets) for each in arguments)

    def set(self, addresses: tuple[int, ...]) -> Launch:
        """Set addresses in the graph in which they were set before all others, and return its launch."""
        copy = self._copies[0]
        self._copies.rotate(-1)
        # Unknown, should Ctrl-C come in the lines below.
        self.launches.pop(copy.addresses, None)
        copy.addresses = addresses
        copy.values[: len(addresses)] = addresses
        if copy.read_anew():
            raise DeviceError("setting the arguments of a kernel in a graph failed", hint="call it again")
        self.launches[addresses] = copy.graph.launch_on
        return copy.graph.launch_on


class _Copy:
    """A graph behind a kernel that copies."""

    def __init__(self, graph: CudaGraph, kernel: int, blocks: int, arguments: Sequence[Any], targets: _Regions) -> None:
        self.addresses: tuple[int, ...] | None = None
        self.values = arguments[1]
        self.arguments = PackedArguments(arguments)
        self.graph, self.read_anew = graph.behind(kernel, blocks, COPYING_THREADS, self.arguments.address, targets)
