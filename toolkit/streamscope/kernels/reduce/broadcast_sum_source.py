"""Source of sums of an expression over the axes along which an operand was broadcast: the gradient of that operand.

A block computes some results, each by as many of its threads as it takes to have loads under way: threads beside each other in memory
load what lies beside each other, by vectors where all arrays allow it. Few results of many values are computed in parts, one a block,
which a second kernel of the same kind adds up. No kernel uses atomics, so a result is the same each time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from streamscope.kernels.form import THREADS
from streamscope.kernels.named_source import PLACE_OF_NAME, named_source
from streamscope.kernels.placing_source import placing_source
from streamscope.kernels.signature import RESULT, Parameter, Signature
from streamscope.kernels.source import KernelSource
from streamscope.kernels.types_source import COMPUTE, STORAGE, VECTORS, conversions_source, loaded, stored

BYTES_UNDER_WAY, OF_VECTORS = 32, 64
"""Of the array with the largest elements, that a thread waits for at once; elements one by one take a place in registers each."""


@dataclass(frozen=True)
class SumForm:
    """What the source depends on besides the signature.

    Attributes
    ----------
    lanes : int
        Threads of a block that share a result, a power of two; the block has so many fewer results (or vectors of them) than threads.
    beside : bool
        What lies beside each other in memory belongs to results beside each other; else to one result.
    width : int
        Elements of a vector that lie beside each other.
    runs : tuple of bool
        For each operand that is an array, whether a vector's elements are its own; else one stands for all of them.
    loads : int
        Vectors of each array that a thread loads at once.
    kept, summed : int
        Axes of the results, and axes that are summed over, after neighbours were merged.
    wide : bool
        Indices need 64 bits.
    """

    lanes: int
    beside: bool
    width: int
    runs: tuple[bool, ...]
    loads: int
    kept: int
    summed: int
    wide: bool

    @property
    def step(self) -> int:
        """Values of one result that one load brings."""
        return 1 if self.beside else self.width

    @property
    def results(self) -> int:
        """Results of one thread."""
        return self.width if self.beside else 1

    @property
    def across(self) -> int:
        """Results of one block."""
        return THREADS // self.lanes * self.results


@lru_cache(maxsize=4096)
def broadcast_sum_source(signature: Signature, form: SumForm) -> KernelSource:
    """Return the kernel.

    Its arguments are the operands in order, the result's pointer, the number of results, the number of values that each is the sum of,
    how many of them one block adds up (a multiple of the form's ``step``), how many blocks all results take (32 bits, the others 64), the
    layout of the results (all arrays are placed), and the layout of what is summed (all but the result are). Of results that are computed
    in parts, the second part of all of them lies behind the first.
    """
    operands = [parameter.argument for parameter in signature.arrays]
    pieces = [
        conversions_source(signature.dtypes),
        VECTORS if form.width > 1 else "",
        _in_namespace("kept", placing_source([*operands, RESULT], form.kept, wide=form.wide)),
        _in_namespace("summed", placing_source(operands, form.summed, wide=form.wide) + _loads_struct(signature, form)),
        signature.value_source(),
        _kernel(signature, form),
    ]
    where = "beside" if form.beside else "along"
    title = f"{signature.title}_sum_{where}_{form.lanes}_x{form.width}_{form.kept}d{form.summed}d"
    return named_source(title, "\n".join(piece for piece in pieces if piece))


def _in_namespace(name: str, code: str) -> str:
    return f"namespace {name} {{\n{code}}}\n"


def _runs(signature: Signature, form: SumForm) -> list[tuple[Parameter, bool]]:
    return list(zip(signature.arrays, form.runs, strict=True))


def _loads_struct(signature: Signature, form: SumForm) -> str:
    fields = [
        f"vector<{STORAGE[p.stored]}, {form.width}> {p.argument};" if run else f"{STORAGE[p.stored]} {p.argument};"
        for p, run in _runs(signature, form)
    ]
    return f"struct loads {{ {' '.join(fields)} }};\n"


def _fetches(signature: Signature, form: SumForm) -> str:
    for_all = [(p.argument, f"{p.argument} + from.{p.argument} + to.{p.argument}", run) for p, run in _runs(signature, form)]
    lines = [
        f"item[j].{name} = fetched<{form.width}>({place});" if run else f"item[j].{name} = *({place});" for name, place, run in for_all
    ]
    return "\n            ".join(lines)


def _values(signature: Signature, form: SumForm) -> str:
    """Return the arguments of ``value`` for element ``k`` of load ``j``."""
    runs = {parameter.name: run for parameter, run in _runs(signature, form)}
    each = (p.argument if p.scalar else loaded(p.stored, f"item[j].{p.argument}" + ".item[k]" * runs[p.name]) for p in signature.parameters)
    return ", ".join(each)


def _joined(form: SumForm, number: str) -> str:
    """Return the code that adds up what the threads of a result have: in shared memory, where there are several."""
    if form.lanes == 1:
        return ""
    over = f"for (int k = 0; k < {form.results}; ++k)"
    apart = THREADS // form.lanes if form.beside else 1
    return f"""
    __shared__ {number} partial[{form.results}][{THREADS}];
    {over} partial[k][threadIdx.x] = sum[k];
    __syncthreads();
    for (int half = {form.lanes // 2}; half > 0; half /= 2) {{
        if (row < half)
            {over} partial[k][threadIdx.x] += partial[k][threadIdx.x + half * {apart}];
        __syncthreads();
    }}
    {over} sum[k] = partial[k][threadIdx.x];"""


def _kernel(signature: Signature, form: SumForm) -> str:
    arguments = [f"{COMPUTE[p.taken] if p.scalar else f'const {STORAGE[p.stored]}*'} {p.argument}" for p in signature.parameters]
    arguments += [f"{STORAGE[signature.result]}* {RESULT}", "long long size", "long long count", "long long share", "unsigned tiles"]
    arguments += ["kept::layout outer", "summed::layout inner"]
    target = f"{RESULT}[from.{RESULT} + blockIdx.x / tiles * size + k]"
    result = stored(signature.result, target, f"{loaded(signature.result, target)} + sum[k]" if signature.accumulate else "sum[k]")
    number, groups, apart = COMPUTE[signature.result], THREADS // form.lanes, form.lanes * form.step
    column, row = ("%", "/") if form.beside else ("/", "%")
    of_thread = groups if form.beside else form.lanes
    return f"""\
extern "C" __global__ void __launch_bounds__({THREADS})
{PLACE_OF_NAME}({", ".join(arguments)})
{{
    const int column = threadIdx.x {column} {of_thread}, row = threadIdx.x {row} {of_thread};
    const long long n = ((long long)(blockIdx.x % tiles) * {groups} + column) * {form.results};
    const summed::index_t first = blockIdx.x / tiles * share, last = first + share < count ? first + share : count;
    const kept::offsets from = kept::place(n < size ? n : 0, outer);
    {number} sum[{form.results}] = {{}};
    for (summed::index_t i = first + row * {form.step}; i < last; i += {form.loads * apart}) {{
        summed::loads item[{form.loads}];
        #pragma unroll
        for (int j = 0; j < {form.loads}; ++j) {{
            const summed::index_t at = i + j * {apart};
            const summed::offsets to = summed::place(at < last ? at : i, inner);
            {_fetches(signature, form)}
        }}
        // What was loaded at once is added up by itself, so that few roundings follow each other.
        {number} half[{form.results}] = {{}};
        #pragma unroll
        for (int j = 0; j < {form.loads}; ++j)
            if (i + j * {apart} < last)
                #pragma unroll
                for (int k = 0; k < {form.width}; ++k) half[{"k" if form.beside else "0"}] += value({_values(signature, form)});
        for (int k = 0; k < {form.results}; ++k) sum[k] += half[k];
    }}{_joined(form, number)}
    if (row == 0 && n < size)
        for (int k = 0; k < {form.results}; ++k) {result}
}}
"""
