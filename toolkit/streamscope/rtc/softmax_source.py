"""Source of the softmax kernel."""

from __future__ import annotations

from streamscope.rtc.source import KernelSource
from streamscope.rtc.types_source import types_source

THREADS = 256


def softmax_source(dtype: str) -> KernelSource:
    """Return the kernel of softmax over rows: one block a row, three passes over it (maximum, sum, write)."""
    name = f"softmax_{dtype}"
    code = f"""{types_source(dtype)}
struct maximum {{ __device__ static compute_t join(compute_t a, compute_t b) {{ return a < b || b != b ? b : a; }} }};
struct sum {{ __device__ static compute_t join(compute_t a, compute_t b) {{ return a + b; }} }};

// Joins one value of each thread of the block; every thread gets the result.
template <typename Reducer>
__device__ compute_t reduce(compute_t value, compute_t* shared)
{{
    for (int offset = 16; offset > 0; offset /= 2)
        value = Reducer::join(value, __shfl_xor_sync(0xffffffffu, value, offset));
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
    __syncthreads();
    value = shared[0];
    for (int warp = 1; warp < {THREADS} / 32; ++warp) value = Reducer::join(value, shared[warp]);
    __syncthreads();
    return value;
}}

extern "C" __global__ void __launch_bounds__({THREADS})
{name}(const storage_t* x, storage_t* out, long long columns)
{{
    __shared__ compute_t shared[{THREADS} / 32];
    const storage_t* row = x + blockIdx.x * columns;
    storage_t* target = out + blockIdx.x * columns;
    // Threads past the end of a short row start from its first element, which changes no maximum.
    compute_t largest = load(row[0]);
    for (long long i = threadIdx.x; i < columns; i += {THREADS}) largest = maximum::join(largest, load(row[i]));
    largest = reduce<maximum>(largest, shared);
    compute_t total = 0;
    for (long long i = threadIdx.x; i < columns; i += {THREADS}) total += exp(load(row[i]) - largest);
    total = reduce<sum>(total, shared);
    for (long long i = threadIdx.x; i < columns; i += {THREADS}) store(target[i], exp(load(row[i]) - largest) / total);
}}
"""
    return KernelSource(name, code)
