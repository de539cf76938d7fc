"""Source of softmax and log-softmax kernels and their gradients, each in one pass over memory where a row fits the registers.

Each is: join something over a row, then map every element. Softmax joins maximum and sum together (Milakov and Gimelshein, "Online
normalizer calculation for softmax", 2018); the gradients join a sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamscope.kernels.named_source import PLACE_OF_NAME, named_source
from streamscope.kernels.reduce.reduction_source import THREADS, across_source
from streamscope.kernels.source import KernelSource
from streamscope.kernels.types_source import COMPUTE, STORAGE, VECTORS, conversions_source, loaded, stored


@dataclass(frozen=True)
class RowFunction:
    """What is joined over a row, and what each element becomes.

    Attributes
    ----------
    inputs : tuple of str
        Names of the arrays.
    accumulator : str
        CUDA source of ``acc_t`` with ``identity``, ``term`` (of one element), ``joined`` and ``shuffled``: what one reading of a row joins.
    value : str
        CUDA expression of a result, from the inputs' elements and the joined ``row``.
    staged : str, optional
        If given, a row that is kept in registers is joined in two steps: first the ``largest`` of x, then the sum of this expression of x.
    kept : str, optional
        What becomes of the kept x meanwhile.
    closing : str, optional
        What is computed once from the ``total`` of the second step.
    closed : str, optional
        The result, from the kept x and that ``closing``.
    """

    inputs: tuple[str, ...]
    accumulator: str
    value: str
    kept: str = ""
    staged: str = ""
    closing: str = ""
    closed: str = ""


_MAXIMUM_AND_SUM = """\
struct acc_t { real m, s; };  // maximum, and the sum of exp(x - m)
__device__ inline real scale(real from, real to) { return from == to ? real(1) : exp(from - to); }
__device__ inline acc_t identity() { return {-INFINITE, 0}; }
__device__ inline acc_t term(real x) { return {x, 1}; }
__device__ inline acc_t joined(acc_t a, acc_t b)
{
    const real m = larger(a.m, b.m);
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
    "softmax": RowFunction(("x",), _MAXIMUM_AND_SUM, "exp(x - row.m) / total(row)", "exp(x - largest)", "x", "1 / total", "x * closing"),
    "log_softmax": RowFunction(
        ("x",), _MAXIMUM_AND_SUM, "x - row.m - log(total(row))", "x - largest", "exp(x)", "log(total)", "x - closing"
    ),
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
        Threads that share a row: a power of two up to `MOST_THREADS`.
    items : int
        Loads of a thread that it keeps in registers; 0 if the row is too long for that and is read twice.
    """

    width: int
    lanes: int
    items: int

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return max(THREADS, self.lanes)


MOST_THREADS = 1024
MOST_KEPT = {THREADS: 16, 512: 32, MOST_THREADS: 32}
"""Registers that a thread has for elements of a row, over all inputs, by the threads that share it. Few keep more threads busy, so a row
is spread over `THREADS` first; of longer rows a thread keeps more."""


def row_form(columns: int, itemsize: int, inputs: int, *, aligned: bool) -> RowForm:
    """Return a good form for rows of so many elements."""
    width = 16 // itemsize if aligned and columns % (16 // itemsize) == 0 else 1
    loads = -(-columns // width)
    lanes = min(32, 1 << (loads - 1).bit_length())

    def kept() -> int:
        return -(-loads // lanes) * width * inputs * max(1, itemsize // 4)

    for most_lanes, registers in MOST_KEPT.items():
        # Places of single elements take registers too, which are few then.
        most_kept = registers // 2 if width == 1 and most_lanes == MOST_THREADS else registers
        while kept() > most_kept and lanes < most_lanes:
            lanes *= 2
        if kept() <= most_kept:
            return RowForm(width, lanes, -(-loads // lanes))
    return RowForm(width, THREADS, 0)


def softmax_source(function: str, dtype: str, form: RowForm, *, accumulate: bool = False) -> KernelSource:
    """Return the kernel of one of `ROW_FUNCTIONS` along the last axis: ``(inputs..., out, rows, columns)``, which writes or adds."""
    role = ROW_FUNCTIONS[function]
    width, lanes = form.width, form.lanes
    rows = "\n".join(f"    const {STORAGE[dtype]}* {name}_row = {name} + row_index * columns;" for name in role.inputs)
    body, joins = (
        _read_twice if form.items == 0 else _kept,
        across_source("across", "acc_t", "joined(value, shuffled(value, offset))", "joined", lanes),
    )
    if role.staged and form.items:
        body = _kept_in_two_steps
        shuffled = "__shfl_xor_sync(0xffffffffu, value, offset)"
        joins = across_source("across_larger", "real", f"larger(value, {shuffled})", "larger", lanes)
        joins += across_source("across_sum", "real", f"sum(value, {shuffled})", "sum", lanes)
    code = f"""{_pieces(role, dtype)}
{joins}
extern "C" __global__ void __launch_bounds__({form.threads})
{PLACE_OF_NAME}({_parameters(role, dtype)}, long long rows, long long columns)
{{
    const int lane = threadIdx.x % {lanes};
    const long long task = (long long)blockIdx.x * {form.threads // lanes} + threadIdx.x / {lanes};
    // Threads past the last row work on it too, since their warp waits for them, and leave nothing.
    const bool valid = task < rows;
    const long long row_index = valid ? task : rows - 1, loads = columns / {width};
{rows}
    {STORAGE[dtype]}* target = out + row_index * columns;
{body(role, dtype, form, accumulate=accumulate)}
}}
"""
    return named_source(f"{function}_{dtype}{'_to' * accumulate}_x{width}_lanes{lanes}", code)


def softmax_columns_source(function: str, dtype: str, *, accumulate: bool = False) -> KernelSource:
    """Return the kernel along an axis with others behind it: ``(inputs..., out, rows, columns, inner)``, a thread for each line."""
    role = ROW_FUNCTIONS[function]
    elements = ", ".join(loaded(dtype, f"{name}[first + i * inner]") for name in role.inputs)
    lets = " ".join(f"const real {name}_i = {loaded(dtype, f'{name}[first + i * inner]')};" for name in role.inputs)
    target, value = "out[first + i * inner]", f"value(row, {', '.join(f'{name}_i' for name in role.inputs)})"
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
        {stored(dtype, target, f"{loaded(dtype, target)} + {value}" if accumulate else value)}
    }}
}}
"""
    return named_source(f"{function}_{dtype}{'_to' * accumulate}_columns", code)


def _pieces(role: RowFunction, dtype: str) -> str:
    infinite = "__longlong_as_double(0x7ff0000000000000LL)" if dtype == "float64" else "__int_as_float(0x7f800000)"
    inputs = ", ".join(f"real {name}" for name in role.inputs)
    return f"""{conversions_source((dtype,))}{VECTORS}typedef {COMPUTE[dtype]} real;
__device__ inline real larger(real a, real b) {{ return fmax(a, b); }}  // a NaN is noticed in the sum
__device__ inline real sum(real a, real b) {{ return a + b; }}
{_HALF_POWER if dtype == "float16" else "__device__ inline real power(real x) { return exp(x); }"}
{role.accumulator.replace("INFINITE", infinite)}\
__device__ inline real value(acc_t row, {inputs}) {{ return {role.value}; }}
"""


_HALF_POWER = """\
// Half needs no more digits than the instruction gives, and a kernel waits for exp.
__device__ inline real power(real x)
{
    x *= real(1.4426950408889634);
#ifdef __CUDA_ARCH__
    asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(x));
    return x;
#else
    return exp2(x);
#endif
}"""


def _parameters(role: RowFunction, dtype: str) -> str:
    return ", ".join(f"const {STORAGE[dtype]}* {name}" for name in role.inputs) + f", {STORAGE[dtype]}* out"


def _kept(role: RowFunction, dtype: str, form: RowForm, *, accumulate: bool) -> str:
    """Return statements that read a row into registers, join it and write it."""
    elements = ", ".join(loaded(dtype, f"{name}_kept[i].item[k]") for name in role.inputs)
    declared = "\n".join(f"    vector<{STORAGE[dtype]}, {form.width}> {name}_kept[{form.items}];" for name in role.inputs)
    loads = " ".join(f"{name}_kept[i] = fetched<{form.width}>({name}_row + at);" for name in role.inputs)
    return f"""{declared}
    acc_t row = identity();
{_over_kept(form, loads)}
{_over_kept(form, _each(form, f"row = joined(row, term({elements}));"))}
    row = across(row);
    if (!valid) return;
{_over_kept(form, _written(dtype, form, f"value(row, {elements})", accumulate=accumulate))}"""


def _kept_in_two_steps(role: RowFunction, dtype: str, form: RowForm, *, accumulate: bool) -> str:
    """Return statements for a row in registers: its maximum, then a sum, so that each element is raised to a power once only."""
    kept = f"kept[i * {form.width} + k]"
    load = f"const vector<{STORAGE[dtype]}, {form.width}> x = fetched<{form.width}>(x_row + at);"
    take = _each(form, f"{{ {kept} = {loaded(dtype, 'x.item[k]')}; row.m = larger(row.m, {kept}); }}")
    step = _each(form, f"{{ real& x = {kept}; x = {role.kept.replace('exp', 'power')}; row.s += {role.staged.replace('exp', 'power')}; }}")
    return f"""    real kept[{form.items * form.width}];
    acc_t row = identity();
{_over_kept(form, load + take)}
    const real largest = across_larger(row.m);
    row.s = 0;
{_over_kept(form, step)}
    const real total = across_sum(row.s), closing = {role.closing};
    if (!valid) return;
{_over_kept(form, _written(dtype, form, f"({role.closed.replace('x', kept)})", accumulate=accumulate))}"""


def _read_twice(role: RowFunction, dtype: str, form: RowForm, *, accumulate: bool) -> str:
    """Return statements that read a row to join it, and again, from the cache if it is there still, to write it."""
    elements = ", ".join(loaded(dtype, f"{name}_i.item[k]") for name in role.inputs)
    loads = " ".join(
        f"const vector<{STORAGE[dtype]}, {form.width}> {name}_i = fetched<{form.width}>({name}_row + at);" for name in role.inputs
    )
    loop = f"    #pragma unroll 4\n    for (long long at = lane * {form.width}; at < columns; at += {form.lanes * form.width}) {{"
    return f"""    acc_t row = identity();
{loop}
        {loads}
        {_each(form, f"row = joined(row, term({elements}));")}
    }}
    row = across(row);
    if (!valid) return;
{loop}
        {loads}
        {_written(dtype, form, f"value(row, {elements})", accumulate=accumulate)}
    }}"""


def _over_kept(form: RowForm, statements: str) -> str:
    """Return a loop over a thread's loads of a row, with ``at`` the first element of each."""
    return f"""    #pragma unroll
    for (int i = 0; i < {form.items}; ++i) {{
        if (lane + i * {form.lanes} >= loads) continue;
        const long long at = (lane + i * {form.lanes}) * {form.width};
        {statements.lstrip()}
    }}"""


def _each(form: RowForm, statement: str) -> str:
    return f"\n        #pragma unroll\n        for (int k = 0; k < {form.width}; ++k) {statement}"


def _written(dtype: str, form: RowForm, value: str, *, accumulate: bool) -> str:
    start = f" = fetched<{form.width}>(target + at)" if accumulate else ""
    total = f"{loaded(dtype, 'result.item[k]')} + {value}" if accumulate else value
    each = _each(form, f"{{ {stored(dtype, 'result.item[k]', total)} }}")
    return f"vector<{STORAGE[dtype]}, {form.width}> result{start};{each}\n        put(target + at, result);"
