"""Source of softmax and log-softmax kernels and their gradients, each in one pass over memory where a row fits the registers.

Each is: join something over a row, then map every element. Softmax joins maximum and sum together (Milakov and Gimelshein, "Online
normalizer calculation for softmax", 2018); the gradients join a sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamscope.rtc.named_source import PLACE_OF_NAME, named_source
from streamscope.rtc.source import KernelSource
from streamscope.rtc.types_source import COMPUTE, STORAGE, conversions_source, loaded, stored

THREADS = 256


@dataclass(frozen=True)
class RowFunction:
    """What is joined over a row, and what each element becomes.

    Attributes
    ----------
    inputs : tuple of str
        Names of the arrays.
    accumulator : str
        CUDA source of ``acc_t`` with ``identity``, ``term`` (of one element), ``joined`` and ``shuffled``.
    value : str
        CUDA expression of a result, from the inputs' elements and the joined ``row``.
    """

    inputs: tuple[str, ...]
    accumulator: str
    value: str


_MAXIMUM_AND_SUM = """\
struct acc_t { real m, s; };  // maximum, and the sum of exp(x - m)
__device__ inline real scale(real from, real to) { return from == to ? real(1) : exp(from - to); }
__device__ inline acc_t identity() { return {-INFINITE, 0}; }
__device__ inline acc_t term(real x) { return {x, 1}; }
__device__ inline acc_t joined(acc_t a, acc_t b)
{
    const real m = a.m < b.m || b.m != b.m ? b.m : a.m;
    return {m, a.s * scale(a.m, m) + b.s * scale(b.m, m)};
}
__device__ inline acc_t shuffled(acc_t a, int offset)
{
    return {__shfl_xor_sync(0xffffffffu, a.m, offset), __shfl_xor_sync(0xffffffffu, a.s, offset)};
}
// A row whose maximum is infinite has no softmax.
__device__ inline real total(acc_t a) { return a.m - a.m == 0 ? a.s : a.m - a.m; }
"""


def _sum_of(term: str) -> str:
    return f"""\
typedef real acc_t;
__device__ inline acc_t identity() {{ return 0; }}
__device__ inline acc_t term(real dy, real y) {{ return {term}; }}
__device__ inline acc_t joined(acc_t a, acc_t b) {{ return a + b; }}
__device__ inline acc_t shuffled(acc_t a, int offset) {{ return __shfl_xor_sync(0xffffffffu, a, offset); }}
"""


ROW_FUNCTIONS: Mapping[str, RowFunction] = {
    "softmax": RowFunction(("x",), _MAXIMUM_AND_SUM, "exp(x - row.m) / total(row)"),
    "log_softmax": RowFunction(("x",), _MAXIMUM_AND_SUM, "x - row.m - log(total(row))"),
    "softmax_gradient": RowFunction(("dy", "y"), _sum_of("dy * y"), "y * (dy - row)"),
    "log_softmax_gradient": RowFunction(("dy", "y"), _sum_of("dy"), "dy - exp(y) * row"),
}
"""What the kernels compute; the gradients take the incoming gradient and the result."""


@dataclass(frozen=True)
class RowForm:
    """How threads share the rows.

    Attributes
    ----------
    width : int
        Elements that a thread loads at once.
    lanes : int
        Threads that share a row: a power of two up to 32, or `THREADS`.
    items : int
        Loads of a thread that it keeps in registers; 0 if the row is too long for that and is read twice.
    """

    width: int
    lanes: int
    items: int


LONGEST_KEPT_BYTES = 128
"""Bytes of a row that a thread keeps in registers."""


def row_form(columns: int, itemsize: int, inputs: int, *, aligned: bool) -> RowForm:
    """Return a good form for rows of so many elements."""
    width = 16 // itemsize if aligned and columns % (16 // itemsize) == 0 else 1
    loads = -(-columns // width)
    most = max(1, LONGEST_KEPT_BYTES // (width * itemsize * inputs))
    lanes = min(32, 1 << (loads - 1).bit_length()) if loads <= 32 * most else THREADS
    items = -(-loads // lanes)
    return RowForm(width, lanes, items if items <= most else 0)


def softmax_source(function: str, dtype: str, form: RowForm) -> KernelSource:
    """Return the kernel of one of `ROW_FUNCTIONS` along the last axis: ``(inputs..., out, rows, columns)``."""
    role = ROW_FUNCTIONS[function]
    width, lanes = form.width, form.lanes
    packs = "\n".join(f"    const pack* {name}_row = (const pack*)({name} + row_index * columns);" for name in role.inputs)
    code = f"""{_pieces(role, dtype)}
struct alignas(sizeof({STORAGE[dtype]}) * {width}) pack {{ {STORAGE[dtype]} item[{width}]; }};

extern "C" __global__ void __launch_bounds__({THREADS})
{PLACE_OF_NAME}({_parameters(role, dtype)}, long long rows, long long columns)
{{
    const int lane = threadIdx.x % {lanes};
    const long long task = (long long)blockIdx.x * {THREADS // lanes} + threadIdx.x / {lanes};
    // Threads past the last row work on it too, since their warp waits for them, and leave nothing.
    const bool valid = task < rows;
    const long long row_index = valid ? task : rows - 1, packs = columns / {width};
{packs}
    pack* target = (pack*)(out + row_index * columns);
    acc_t row = identity();
{_kept(role, dtype, form) if form.items else _read_twice(role, dtype, form)}
}}
"""
    return named_source(f"{function}_{dtype}_x{width}_lanes{lanes}", code)


def softmax_columns_source(function: str, dtype: str) -> KernelSource:
    """Return the kernel along an axis with others behind it: ``(inputs..., out, rows, columns, inner)``, a thread for each line."""
    role = ROW_FUNCTIONS[function]
    elements = ", ".join(loaded(dtype, f"{name}[first + i * inner]") for name in role.inputs)
    lets = " ".join(f"const real {name}_i = {loaded(dtype, f'{name}[first + i * inner]')};" for name in role.inputs)
    code = f"""{_pieces(role, dtype)}
extern "C" __global__ void __launch_bounds__({THREADS})
{PLACE_OF_NAME}({_parameters(role, dtype)}, long long rows, long long columns, long long inner)
{{
    const long long line = (long long)blockIdx.x * {THREADS} + threadIdx.x;
    if (line >= rows * inner) return;
    const long long first = line / inner * columns * inner + line % inner;
    acc_t row = identity();
    #pragma unroll 4
    for (long long i = 0; i < columns; ++i) row = joined(row, term({elements}));
    #pragma unroll 4
    for (long long i = 0; i < columns; ++i) {{
        {lets}
        {stored(dtype, "out[first + i * inner]", f"value(row, {', '.join(f'{name}_i' for name in role.inputs)})")}
    }}
}}
"""
    return named_source(f"{function}_{dtype}_columns", code)


def _pieces(role: RowFunction, dtype: str) -> str:
    infinite = "__longlong_as_double(0x7ff0000000000000LL)" if dtype == "float64" else "__int_as_float(0x7f800000)"
    inputs = ", ".join(f"real {name}" for name in role.inputs)
    return f"""{conversions_source((dtype,))}typedef {COMPUTE[dtype]} real;
{role.accumulator.replace("INFINITE", infinite)}\
__device__ inline real value(acc_t row, {inputs}) {{ return {role.value}; }}
"""


def _parameters(role: RowFunction, dtype: str) -> str:
    return ", ".join(f"const {STORAGE[dtype]}* {name}" for name in role.inputs) + f", {STORAGE[dtype]}* out"


def _kept(role: RowFunction, dtype: str, form: RowForm) -> str:
    """Return statements that read a row into registers, join it and write it."""
    items, width, lanes = form.items, form.width, form.lanes
    declared = "\n".join(f"    pack {name}_kept[{items}];" for name in role.inputs)
    loads = "\n".join(f"        {name}_kept[i] = {name}_row[lane + i * {lanes}];" for name in role.inputs)
    elements = ", ".join(loaded(dtype, f"{name}_kept[i].item[k]") for name in role.inputs)
    return f"""{declared}
    #pragma unroll
    for (int i = 0; i < {items}; ++i) {{
        if (lane + i * {lanes} >= packs) continue;
{loads}
    }}
    #pragma unroll
    for (int i = 0; i < {items}; ++i) {{
        if (lane + i * {lanes} >= packs) continue;
        #pragma unroll
        for (int k = 0; k < {width}; ++k) row = joined(row, term({elements}));
    }}
{_join(lanes)}
    if (!valid) return;
    #pragma unroll
    for (int i = 0; i < {items}; ++i) {{
        if (lane + i * {lanes} >= packs) continue;
        pack result;
        #pragma unroll
        for (int k = 0; k < {width}; ++k) {{ {stored(dtype, "result.item[k]", f"value(row, {elements})")} }}
        target[lane + i * {lanes}] = result;
    }}"""


def _read_twice(role: RowFunction, dtype: str, form: RowForm) -> str:
    """Return statements that read a row to join it, and again, from the cache if it is there still, to write it."""
    width, lanes = form.width, form.lanes
    loads = " ".join(f"const pack {name}_i = {name}_row[i];" for name in role.inputs)
    elements = ", ".join(loaded(dtype, f"{name}_i.item[k]") for name in role.inputs)
    return f"""    #pragma unroll 4
    for (long long i = lane; i < packs; i += {lanes}) {{
        {loads}
        #pragma unroll
        for (int k = 0; k < {width}; ++k) row = joined(row, term({elements}));
    }}
{_join(lanes)}
    if (!valid) return;
    #pragma unroll 4
    for (long long i = lane; i < packs; i += {lanes}) {{
        {loads}
        pack result;
        #pragma unroll
        for (int k = 0; k < {width}; ++k) {{ {stored(dtype, "result.item[k]", f"value(row, {elements})")} }}
        target[i] = result;
    }}"""


def _join(lanes: int) -> str:
    """Return statements after which ``row`` is joined over all threads that share a row."""
    warp = f"    for (int offset = {min(lanes, 32) // 2}; offset > 0; offset /= 2) row = joined(row, shuffled(row, offset));"
    if lanes <= 32:
        return warp
    return f"""{warp}
    __shared__ acc_t shared[{THREADS // 32}];
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = row;
    __syncthreads();
    row = shared[0];
    for (int warp = 1; warp < {THREADS // 32}; ++warp) row = joined(row, shared[warp]);"""
