"""The reduction kernels' registers: what is under way must not spill to memory, or the loads that it saves are paid for there."""

from __future__ import annotations

import pytest

from streamscope.kernels.compile.cubin import resources_of
from streamscope.kernels.reduce.broadcast_sum import fresh_sums
from streamscope.kernels.reduce.reduction_plan import checked_axes, plan_reduction, reduced_shape
from streamscope.kernels.signature import Parameter, Signature
from streamscope.ops import reductions
from streamscope.ops.reductions import norm_of_order
from streamscope.ops.softmaxes import _kernel
from streamscope.program.variable import ArraySpec

pytest.importorskip("cuda.bindings.nvrtc")

from streamscope.kernels.compile.nvrtc import compile_unit

DTYPES = ["int8", "uint8", "bool", "int16", "int32", "int64", "float16", "float32", "float64"]
LAYOUTS = [
    ((4096, 4096), 1),
    ((4096, 4096), 0),
    ((2**24,), None),
    ((64, 512, 512), 1),
    ((64, 33, 4096), (0, 2)),
    ((4096, 4097), 0),
    ((4096, 333), 1),
    ((4096, 7, 33), 1),
]
NORMS = [1.0, 2.0, float("inf")]  # of other orders, pow has a frame of its own
MOST_BYTES = 32
"""Of a thread: a few counters of those outside of loops."""


def stack_bytes(source):
    image, log = compile_unit(source.code, source.name, "sm_90")
    assert image is not None, log
    ((_, resources),) = resources_of(image).items()
    return resources.stack_bytes


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["sum", "mean", "prod", "nansum", "max", "any", "argmax", *NORMS])
def test_reductions_do_not_spill(name, dtype):
    operator = getattr(reductions, name) if isinstance(name, str) else norm_of_order(name)
    for shape, axis in LAYOUTS:
        if isinstance(axis, tuple) and operator.reducer.located:
            continue
        axes, x = checked_axes(operator.__name__, shape, axis), ArraySpec(shape, dtype)
        result = ArraySpec(reduced_shape(shape, axes, keepdims=False), operator.result_dtype(x.dtype))
        for step in plan_reduction(operator.reducer, x, result, axes).steps:
            assert stack_bytes(step.source) <= MOST_BYTES, step.source.name


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "softmax_gradient", "log_softmax_gradient"])
def test_softmax_does_not_spill(name, dtype):
    for columns in (1024, 4096, 8192, 16_384, 32_768, 12_001, 16_383, 32_767):
        source = _kernel(name, ArraySpec((64, columns), dtype), 1, 2 if "gradient" in name else 1, aligned=True).source
        assert stack_bytes(source) <= MOST_BYTES + 16, source.name


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("expression", ["dy", "dy * a", "dy * a / hypot(a, b)"])
def test_sums_over_broadcast_axes_do_not_spill(expression, dtype):
    names = [name for name in ("dy", "a", "b") if name in expression]
    signature = Signature("gradient", tuple(Parameter(name, dtype, dtype) for name in names), dtype, expression, dtype)
    for walked, target in (((4096, 4096), (4096,)), ((4096, 4097), (4097,)), ((4096, 4096), (4096, 1)), ((64, 256, 33, 4), (256, 1, 1))):
        for kernel in fresh_sums(signature, (*[walked] * len(names), target)):
            assert stack_bytes(kernel.source) <= MOST_BYTES, kernel.source.name
