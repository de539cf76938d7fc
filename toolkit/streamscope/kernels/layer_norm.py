"""Kernels of layer normalization and its gradient: the values for ``cuda/layer_norm.cuh``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from streamscope.kernels.cuda import fill, pieces
from streamscope.kernels.reduce.reduction_kernels import across_source
from streamscope.kernels.rows import RowForm, each, over_kept, rows_kernel, written
from streamscope.kernels.source import COMPUTE, STORAGE, KernelSource, loaded, named_source, vector_types

_CUDA = pieces("layer_norm")

INPUTS = {"layer_norm": ("x",), "layer_norm_gradient": ("dy", "x")}
"""By kernel, the arrays that have rows; weight and bias are one row each, which all have in common."""
_SUMS = {"layer_norm": 1, "layer_norm_gradient": 2}


@lru_cache(maxsize=1024)
def layer_norm_source(function: str, dtype: str, form: RowForm, shared: tuple[str, ...]) -> KernelSource:
    """Return one of the kernels along the last axis: ``(inputs..., shared..., out, eps, rows, columns)``.

    ``shared`` names those of weight and bias that there are.
    """
    inputs = INPUTS[function]
    names = (*inputs, *shared)
    arithmetic = fill(_CUDA["arithmetic"], real=COMPUTE[dtype], count=_SUMS[function]) + fill(
        _CUDA[function],
        elements=", ".join(f"real {name}" for name in names),
        scaled=" * weight" if "weight" in shared else "",
        **({"shifted": " + bias" if "bias" in shared else ""} if function == "layer_norm" else {}),
    )
    shuffled = "sum(value, shuffled(value, offset))"
    joins = "".join(across_source(name, "sums", shuffled, "sum", form.lanes) for name in ("across", "across_again"))
    parameters = ", ".join([*(f"const {STORAGE[dtype]}* {name}" for name in names), f"{STORAGE[dtype]}* out", "real eps"])
    body = (_kept if form.items else _read_again)(inputs, shared, dtype, form)
    code = f"{vector_types(dtype)}{arithmetic}\n{joins}\n{rows_kernel(dtype, form, parameters, inputs, body)}"
    with_shared = "".join(f"_{name}" for name in shared)
    return named_source(f"{function}{with_shared}_{dtype}_x{form.width}_lanes{form.lanes}", code)


def _fetched(dtype: str, form: RowForm, names: Sequence[str], ending: str) -> str:
    """Return statements that load vectors of some arrays, or of their rows."""
    vector = f"const vector<{STORAGE[dtype]}, {form.width}>"
    return "\n".join(f"{vector} {name}_i = fetched<{form.width}>({name}{ending} + at);" for name in names)


def _kept(inputs: Sequence[str], shared: Sequence[str], dtype: str, form: RowForm) -> str:
    elements = ", ".join(
        [*(loaded(dtype, f"{name}_kept[i].item[k]") for name in inputs), *(loaded(dtype, f"{name}_i.item[k]") for name in shared)]
    )
    from_shared = _fetched(dtype, form, shared, "")
    loads = "\n".join(f"{name}_kept[i] = fetched<{form.width}>({name}_row + at);" for name in inputs)

    def walked(statements: str) -> str:
        return over_kept(form, f"{from_shared}\n{statements}" if from_shared else statements)

    return fill(
        _CUDA["kept"],
        declared="\n".join(f"vector<{STORAGE[dtype]}, {form.width}> {name}_kept[{form.items}];" for name in inputs),
        load=over_kept(form, loads),
        first=walked(each(form, f"first = sum(first, first_of({elements}));")),
        second=walked(each(form, f"second = sum(second, second_of(mean, {elements}));")),
        write=walked(written(dtype, form, f"value(row, {elements})", accumulate=False)),
    )


def _read_again(inputs: Sequence[str], shared: Sequence[str], dtype: str, form: RowForm) -> str:
    elements = ", ".join(loaded(dtype, f"{name}_i.item[k]") for name in (*inputs, *shared))
    return fill(
        _CUDA["read_again"],
        width=form.width,
        of_turn=form.lanes * form.width,
        load="\n".join(filter(None, (_fetched(dtype, form, inputs, "_row"), _fetched(dtype, form, shared, "")))),
        first=each(form, f"first = sum(first, first_of({elements}));"),
        second=each(form, f"second = sum(second, second_of(mean, {elements}));"),
        write=written(dtype, form, f"value(row, {elements})", accumulate=False),
    )
