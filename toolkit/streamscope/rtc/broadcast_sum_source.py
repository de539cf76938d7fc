"""Source of sums of an expression over the axes along which an operand was broadcast: the gradient of that operand, in one kernel.

A block computes 1 or 32 results. Where results lie beside each other in memory, threads beside each other add up results beside each
other; else all threads of a block share one result. No kernel uses atomics, so a result is the same each time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from streamscope.rtc.form import THREADS
from streamscope.rtc.named_source import PLACE_OF_NAME, named_source
from streamscope.rtc.placing_source import placing_source
from streamscope.rtc.signature import RESULT, Signature
from streamscope.rtc.source import KernelSource
from streamscope.rtc.types_source import COMPUTE, STORAGE, conversions_source, loaded, stored


@dataclass(frozen=True)
class SumForm:
    """What the source depends on besides the signature.

    Attributes
    ----------
    columns : int
        Results of one block: 1 or 32.
    kept, summed : int
        Axes of the results, and axes that are summed over, after neighbours were merged.
    wide : bool
        Indices need 64 bits.
    """

    columns: int
    kept: int
    summed: int
    wide: bool

    def blocks(self, results: int) -> int:
        """Return how many blocks compute so many results."""
        return -(-results // self.columns)


@lru_cache(maxsize=4096)
def broadcast_sum_source(signature: Signature, form: SumForm) -> KernelSource:
    """Return the kernel.

    Its arguments are the operands in order, the result's pointer, the number of results, the number of values that each is the sum of
    (both 64 bits), the layout of the results (all arrays are placed), and the layout of what is summed (all but the result are).
    """
    operands = [parameter.name for parameter in signature.arrays]
    pieces = [
        conversions_source(signature.dtypes),
        _in_namespace("kept", placing_source([*operands, RESULT], form.kept, wide=form.wide)),
        _in_namespace("summed", placing_source(operands, form.summed, wide=form.wide)),
        signature.value_source(),
        _kernel(signature, form),
    ]
    return named_source(f"{signature.title}_sum_{form.columns}_{form.kept}d{form.summed}d", "\n".join(piece for piece in pieces if piece))


def _in_namespace(name: str, code: str) -> str:
    return f"namespace {name} {{\n{code}}}\n"


def _kernel(signature: Signature, form: SumForm) -> str:
    arguments = [f"{COMPUTE[p.taken]} {p.name}" if p.scalar else f"const {STORAGE[p.stored]}* {p.name}" for p in signature.parameters]
    arguments += [
        f"{STORAGE[signature.result]}* {RESULT}",
        "long long size",
        "long long count",
        "kept::layout outer",
        "summed::layout inner",
    ]
    target, total = f"{RESULT}[from.{RESULT}]", "partial[column]"
    values = ", ".join(p.name if p.scalar else loaded(p.stored, f"{p.name}[from.{p.name} + to.{p.name}]") for p in signature.parameters)
    result = stored(signature.result, target, f"{loaded(signature.result, target)} + {total}" if signature.accumulate else total)
    number, rows = COMPUTE[signature.result], THREADS // form.columns
    return f"""\
extern "C" __global__ void __launch_bounds__({THREADS})
{PLACE_OF_NAME}({", ".join(arguments)})
{{
    __shared__ {number} partial[{THREADS}];
    const int column = threadIdx.x % {form.columns}, row = threadIdx.x / {form.columns};
    const long long n = (long long)blockIdx.x * {form.columns} + column;
    const kept::offsets from = kept::place(n < size ? n : 0, outer);
    {number} sum = 0;
    for (long long i = row; i < count; i += {rows}) {{
        const summed::offsets to = summed::place(i, inner);
        sum += value({values});
    }}
    partial[threadIdx.x] = sum;
    __syncthreads();
    for (int half = {rows // 2}; half > 0; half /= 2) {{
        if (row < half) partial[threadIdx.x] += partial[threadIdx.x + half * {form.columns}];
        __syncthreads();
    }}
    if (row == 0 && n < size) {result}
}}
"""
