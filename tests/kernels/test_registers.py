"""The reduction kernels' registers: what is under way must not spill to memory, or the loads that it saves are paid for there."""

from __future__ import annotations

from itertools import product

import pytest
from tests.combinations import THOROUGH, in_pairs

from streamscope.kernels.compile.cubin import resources_of
from streamscope.kernels.reduce.broadcast_sum import fresh_sums
from streamscope.kernels.reduce.reduction_plan import checked_axes, plan_reduction, reduced_shape
from streamscope.kernels.signature import Parameter, Signature
from streamscope.ops import reductions
from streamscope.ops.reductions import norm_of_order
from streamscope.ops.softmaxes import _kernel
from streamscope.program.variable import ArraySpec

pytestmark = pytest.mark.slow

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
LIKE_OTHERS = ["uint8", "int16"]
"""Loaded as bytes, and computed in 32 bits as int32."""
NORMS = [1.0, 2.0, float("inf")]  # of other orders, pow has a frame of its own
MOST_BYTES = 32
"""Of a thread: a few counters of those outside of loops."""


@pytest.fixture(scope="module")
def spilling(compiled_together):
    """Return a function of sources that returns the kernels that take more of a thread's memory than so many bytes, with how many."""

    def found(sources, most):
        images = compiled_together(sources, "sm_90", optimized=True)
        taken = {name: each.stack_bytes for image in images for name, each in resources_of(image).items()}
        assert sorted(taken) == sorted({source.name for source in sources})
        return {name: count for name, count in taken.items() if count > most}

    return found


def reduction_cases():
    """Yield a sum, a place and a norm of scaled terms for every eighth layout; the others keep as many registers as one of them, and take
    turns. A dtype or an operator that spills does so in most layouts, and each layout has an eighth of all pairs.
    """
    computed = [dtype for dtype in DTYPES if dtype not in LIKE_OTHERS]
    most = [
        (name, dtype, layout)
        for (i, name), (j, dtype), (k, layout) in product(*map(enumerate, (("sum", "argmax", 2.0), computed, LAYOUTS)))
        if THOROUGH or (i + j + k) % 8 == 0
    ]
    rest = in_pairs(["sum", "mean", "prod", "nansum", "max", "any", "argmax", *NORMS], DTYPES if THOROUGH else computed, LAYOUTS)
    for name, dtype, (shape, axis) in dict.fromkeys([*most, *rest]):
        operator = getattr(reductions, name) if isinstance(name, str) else norm_of_order(name)
        if not (isinstance(axis, tuple) and operator.reducer.located):
            yield operator, ArraySpec(shape, dtype), checked_axes(operator.__name__, shape, axis)


def test_reductions_do_not_spill(spilling):
    sources = set()
    for operator, x, axes in reduction_cases():
        result = ArraySpec(reduced_shape(x.shape, axes, keepdims=False), operator.result_dtype(x.dtype))
        sources |= {kernel.source for kernel in plan_reduction(operator.reducer, x, result, axes).kernels}
    assert spilling(sources, MOST_BYTES) == {}


NAMES = ("softmax", "log_softmax", "softmax_gradient", "log_softmax_gradient")
COLUMNS = (1024, 4096, 8192, 16_384, 32_768, 12_001, 16_383, 32_767)


def test_softmax_does_not_spill(spilling):
    sources = {
        _kernel(name, ArraySpec((64, columns), dtype), 1, 2 if "gradient" in name else 1, aligned=True).source
        for dtype, columns, name in in_pairs(("float16", "float32", "float64"), COLUMNS, NAMES)
    }
    assert spilling(sources, MOST_BYTES + 16) == {}


def test_sums_over_broadcast_axes_do_not_spill(spilling):
    sources = set()
    for expression, dtype in product(("dy", "dy * a", "dy * a / hypot(a, b)"), ("float16", "float32", "float64")):
        names = [name for name in ("dy", "a", "b") if name in expression]
        signature = Signature("gradient", tuple(Parameter(name, dtype, dtype) for name in names), dtype, expression, dtype)
        for walked, target in (
            ((4096, 4096), (4096,)),
            ((4096, 4097), (4097,)),
            ((4096, 4096), (4096, 1)),
            ((64, 256, 33, 4), (256, 1, 1)),
        ):
            sources |= {kernel.source for kernel in fresh_sums(signature, (*[walked] * len(names), target))}
    assert spilling(sources, MOST_BYTES) == {}
