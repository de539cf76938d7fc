"""What the sources of reduction kernels share.

There are three kernels: *rows*, where the innermost axis is reduced, *columns*, where it is kept, and *short*, for many pieces of either
kind that fit into shared memory. Long reductions of few results are split among blocks: a first kernel, of rows or columns, leaves
accumulators, laid out as [splits, results], and a second one, of columns, joins them.
No kernel uses atomics, so a result is the same each time.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from streamscope.kernels.elementwise.wrapping_source import added
from streamscope.kernels.layout import INDEX32_LIMIT
from streamscope.kernels.reduce.reducers_source import BYTES, Reducer, reducer_source
from streamscope.kernels.types_source import STORAGE, VECTORS, conversions_source, loaded, stored

THREADS = 256
INDEX32_COUNT = INDEX32_LIMIT - THREADS * 8
"""Reductions of so many elements count them with 64 bits: counters run over the end, by the loads of a block at most."""
BYTES_WIDTH = 16
"""Elements of a vector of bytes, which take more instructions than loads: its kernels have `Room` of their own."""


@dataclass(frozen=True)
class Room:
    """What the threads of a kernel get of a multiprocessor.

    Attributes
    ----------
    loads : int
        Loads of a thread that are under way at once. The last of all are masked, not looped over: one after the other they take longer.
    blocks : int
        Blocks that a multiprocessor has room for, each thread having the registers that its loads need.
    """

    loads: int
    blocks: int


_LEAST = """\
__device__ inline long long least(long long a, long long b) { return a < b ? a : b; }
// What is loaded waits in words: of a vector of bytes, each byte would take a register.
template <int W, typename E> struct waiting
{
    typename words<sizeof(E) * W>::type whole;
    __device__ inline void fetch(const E* from) { whole = *reinterpret_cast<const typename words<sizeof(E) * W>::type*>(from); }
    __device__ inline void fill(E value)
    {
        #pragma unroll
        for (int k = 0; k < W; ++k) reinterpret_cast<E*>(&whole)[k] = value;
    }
    __device__ inline void keep(vector<E, W>* to) const { *reinterpret_cast<typename words<sizeof(E) * W>::type*>(to) = whole; }
    __device__ inline unsigned word(int number) const { return reinterpret_cast<const unsigned*>(&whole)[number]; }
    __device__ inline vector<E, W> values() const { return *reinterpret_cast<const vector<E, W>*>(&whole); }
};
"""


class Stage(Enum):
    """What a kernel reads and leaves."""

    WHOLE = "whole"
    """Elements to results."""
    PARTIAL = "partial"
    """Elements to accumulators."""
    FINAL = "final"
    """Accumulators to results."""


def accumulator_bytes(reducer: Reducer, dtype: str, *, far: bool = False) -> int:
    """Return the size of an accumulator in memory."""
    value = {"float": 4, "int": 4, "double": 8, "long long": 8}[reducer.value_type(dtype)]
    if not reducer.located:
        return value
    return 16 if far else 2 * value


def prelude(reducer: Reducer, dtype: str, result: str, *, far: bool) -> str:
    """Return what stands before a kernel: the types, and how elements are joined."""
    return conversions_source((dtype, result)) + VECTORS + _LEAST + reducer_source(reducer, dtype, far=far)


def axis_parameters(role: str, count: int) -> str:
    """Return the parameters of a function that say extent and stride of each axis."""
    return "".join(f", long long {role}_extent_{axis}, long long {role}_stride_{axis}" for axis in range(count))


def axis_names(role: str, count: int) -> str:
    """Return the arguments for them."""
    return "".join(f", {role}_extent_{axis}, {role}_stride_{axis}" for axis in range(count))


def offset_function(role: str, count: int) -> str:
    """Return a function from the index of an element, counted over some axes, to its distance from their first element."""
    steps = [
        f"    offset += index % {role}_extent_{axis} * {role}_stride_{axis};\n    index /= {role}_extent_{axis};\n"
        for axis in range(count - 1, 0, -1)
    ]
    last = f"    return offset + index * {role}_stride_0;\n" if count else "    return offset;\n"
    parameters = axis_parameters(role, count)
    return (
        f"__device__ inline long long {role}_offset(long long index{parameters})\n{{\n    long long offset = 0;\n{''.join(steps)}{last}}}\n"
    )


def out_type(stage: Stage, result: str) -> str:
    """Return the C++ type of what a kernel leaves."""
    return "acc_t" if stage is Stage.PARTIAL else STORAGE[result]


def write(stage: Stage, result: str, index: str, value: str, count: str, *, add: bool) -> str:
    """Return the statement that leaves the accumulator ``value`` of ``count`` elements, finished or not."""
    if stage is Stage.PARTIAL:
        return f"out[{index}] = {value};"
    finished = f"finished({value}, {count})"
    whole = added(result, loaded(result, f"out[{index}]"), finished) if add else finished
    return stored(result, f"out[{index}]", whole)


def taken(dtype: str, width: int, *, load: str = "b", item: str = "k") -> str:
    """Return the C++ expression for an element of a load that is under way, ``batch[load]``: of bytes, in 32 bits."""
    if dtype in BYTES and width % 4 == 0:
        return f"byte_of(batch[{load}].word({item} / 4), {item} % 4)"
    return loaded(dtype, f"batch[{load}].values().item[{item}]")


def across_source(name: str, kind: str, shuffled: str, join: str, lanes: int) -> str:
    """Return a function, to be called once, that joins a value of each thread that shares a row; all of them get the result."""
    warp = f"    for (int offset = {min(lanes, 32) // 2}; offset > 0; offset /= 2) value = {shuffled};"
    block = f"""
    __shared__ {kind} shared[{max(THREADS, lanes) // 32}];
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
    __syncthreads();
    const int first = threadIdx.x / {lanes} * {lanes // 32};
    value = shared[first];
    for (int warp = 1; warp < {lanes // 32}; ++warp) value = {join}(value, shared[first + warp]);"""
    return f"__device__ inline {kind} {name}({kind} value)\n{{\n{warp}{block if lanes > 32 else ''}\n    return value;\n}}\n"
