"""Kernels of softmax, log-softmax and their gradients: how threads share rows, and the values for ``cuda/softmax.cuh``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from streamscope.kernels.cuda import fill, pieces
from streamscope.kernels.form import THREADS
from streamscope.kernels.reduce.reduction_kernels import across_source
from streamscope.kernels.rows import RowForm, each, over_kept, rows_kernel, written
from streamscope.kernels.source import COMPUTE, INFINITY, STORAGE, KernelSource, loaded, named_source, stored, vector_types


@dataclass(frozen=True)
class _RowFunction:
    """Code that joins over a row, and code of each element."""

    inputs: tuple[str, ...]
    """Names of the arrays."""
    accumulator: str
    """CUDA source of ``acc_t`` with ``identity``, ``term`` (of one element), ``joined`` and ``shuffled``: values that one reading of a row
    joins."""
    value: str
    """CUDA expression of a result, from the inputs' elements and the joined ``row``."""
    kept: str = ""
    """Code that updates the kept x meanwhile."""
    staged: str = ""
    """If given, a row that is kept in registers is joined in two steps: first the ``largest`` of x, then the sum of this expression of
    x."""
    closing: str = ""
    """Code that runs once on the ``total`` of the second step."""
    closed: str = ""
    """The result, from the kept x and that ``closing``."""


_CUDA = pieces("softmax")
_MAXIMUM_AND_SUM = _CUDA["maximum_and_sum"]


def _sum_of(term: str) -> str:
    return fill(_CUDA["sum"], term=term)


_ROW_FUNCTIONS: Mapping[str, _RowFunction] = {
    "softmax": _RowFunction(("x",), _MAXIMUM_AND_SUM, "exp(x - row.m) / total(row)", "exp(x - largest)", "x", "1 / total", "x * closing"),
    "log_softmax": _RowFunction(
        ("x",), _MAXIMUM_AND_SUM, "x - row.m - log(total(row))", "x - largest", "exp(x)", "log(total)", "x - closing"
    ),
    "softmax_gradient": _RowFunction(("dy", "y"), _sum_of("dy * y"), "y * (dy - row)"),
    "log_softmax_gradient": _RowFunction(("dy", "y"), _sum_of("dy"), "dy - exp(y) * row"),
}
"""Kinds of kernels; the gradients take the incoming gradient and the result."""


@lru_cache(maxsize=1024)
def softmax_source(function: str, dtype: str, form: RowForm, *, accumulate: bool = False) -> KernelSource:
    """Return the kernel of one of `_ROW_FUNCTIONS` along the last axis: ``(inputs..., out, rows, columns)``, which writes or adds."""
    role = _ROW_FUNCTIONS[function]
    width, lanes = form.width, form.lanes
    joins = across_source("across", "acc_t", "joined(value, shuffled(value, offset))", "joined", lanes)
    body = _kept if form.items else _read_twice
    if role.staged and form.items:
        body = _kept_in_two_steps
        shuffled = "__shfl_xor_sync(0xffffffffu, value, offset)"
        joins = across_source("across_larger", "real", f"larger(value, {shuffled})", "larger", lanes)
        joins += across_source("across_sum", "real", f"sum(value, {shuffled})", "sum", lanes)
    kernel = rows_kernel(dtype, form, _parameters(role, dtype), role.inputs, body(role, dtype, form, accumulate=accumulate))
    code = f"{_arithmetic(role, dtype)}\n{joins}\n{kernel}"
    return named_source(f"{function}_{dtype}{'_to' * accumulate}_x{width}_lanes{lanes}", code)


@lru_cache(maxsize=1024)
def softmax_columns_source(function: str, dtype: str, *, accumulate: bool = False) -> KernelSource:
    """Return the kernel along an axis with others behind it: ``(inputs..., out, rows, columns, inner)``, a thread for each line."""
    role, place = _ROW_FUNCTIONS[function], "first + i * inner"
    target, value = f"out[{place}]", f"value(row, {', '.join(f'{name}_i' for name in role.inputs)})"
    kernel = fill(
        _CUDA["columns"],
        threads=THREADS,
        parameters=_parameters(role, dtype),
        elements=", ".join(loaded(dtype, f"{name}[{place}]") for name in role.inputs),
        items=" ".join(f"const real {name}_i = {loaded(dtype, f'{name}[{place}]')};" for name in role.inputs),
        write=stored(dtype, target, f"{loaded(dtype, target)} + {value}" if accumulate else value),
    )
    return named_source(f"{function}_{dtype}{'_to' * accumulate}_columns", f"{_arithmetic(role, dtype)}\n{kernel}")


@lru_cache(maxsize=64)
def _arithmetic(role: _RowFunction, dtype: str) -> str:
    arithmetic = fill(
        _CUDA["arithmetic"],
        real=COMPUTE[dtype],
        power=_CUDA["half_power" if dtype == "float16" else "power"],
        accumulator=fill(role.accumulator, infinite=INFINITY[dtype]),
        inputs=", ".join(f"real {name}" for name in role.inputs),
        value=role.value,
    )
    return f"{vector_types(dtype)}{arithmetic}"


def _parameters(role: _RowFunction, dtype: str) -> str:
    return ", ".join(f"const {STORAGE[dtype]}* {name}" for name in role.inputs) + f", {STORAGE[dtype]}* out"


def _kept(role: _RowFunction, dtype: str, form: RowForm, *, accumulate: bool) -> str:
    """Return statements that read a row into registers, join it and write it."""
    elements = ", ".join(loaded(dtype, f"{name}_kept[i].item[k]") for name in role.inputs)
    loads = " ".join(f"{name}_kept[i] = fetched<{form.width}>({name}_row + at);" for name in role.inputs)
    return fill(
        _CUDA["kept"],
        declared="\n".join(f"vector<{STORAGE[dtype]}, {form.width}> {name}_kept[{form.items}];" for name in role.inputs),
        load=over_kept(form, loads),
        join=over_kept(form, each(form, f"row = joined(row, term({elements}));")),
        write=over_kept(form, written(dtype, form, f"value(row, {elements})", accumulate=accumulate)),
    )


def _kept_in_two_steps(role: _RowFunction, dtype: str, form: RowForm, *, accumulate: bool) -> str:
    """Return statements for a row in registers: its maximum, then a sum, so that each element is raised to a power once only."""
    kept = f"kept[i * {form.width} + k]"
    load = f"const vector<{STORAGE[dtype]}, {form.width}> x = fetched<{form.width}>(x_row + at);\n"
    take = each(form, f"{{ {kept} = {loaded(dtype, 'x.item[k]')}; row.m = larger(row.m, {kept}); }}")
    step = each(form, f"{{ real& x = {kept}; x = {role.kept.replace('exp', 'power')}; row.s += {role.staged.replace('exp', 'power')}; }}")
    return fill(
        _CUDA["kept_in_two_steps"],
        count=form.items * form.width,
        load=over_kept(form, load + take),
        step=over_kept(form, step),
        closing=role.closing,
        write=over_kept(form, written(dtype, form, f"({role.closed.replace('x', kept)})", accumulate=accumulate)),
    )


def _read_twice(role: _RowFunction, dtype: str, form: RowForm, *, accumulate: bool) -> str:
    """Return statements that read a row to join it, and again, from the cache if it is there still, to write it."""
    vector, elements = f"vector<{STORAGE[dtype]}, {form.width}>", ", ".join(loaded(dtype, f"{name}_i.item[k]") for name in role.inputs)
    return fill(
        _CUDA["read_twice"],
        width=form.width,
        of_turn=form.lanes * form.width,
        load=" ".join(f"const {vector} {name}_i = fetched<{form.width}>({name}_row + at);" for name in role.inputs),
        join=f"\n{each(form, f'row = joined(row, term({elements}));')}",
        write=written(dtype, form, f"value(row, {elements})", accumulate=accumulate),
    )
