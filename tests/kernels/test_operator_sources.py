"""Every generated element-wise kernel compiles, for three generations of GPUs; and what their sources look like."""

from __future__ import annotations

import re

import numpy as np
import pytest
from tests.combinations import THOROUGH
from tests.sources import source_of

import streamscope as ss
from streamscope.errors import ProgramError
from streamscope.kernels.source import KernelSource
from streamscope.ops.operators import OPERATORS

pytestmark = pytest.mark.slow

FLOATS = ["float16", "float32", "float64"]
WIDE, NARROW = ["int32", "int64", "uint64"], ["bool", "int8", "uint8", "int16"]
WHOLE = [*WIDE, *NARROW]


def operators():
    """Yield every operator in the floating dtypes that it takes, and in two of the others in turn, one of them of 32 bits or more.

    The compiler takes whole numbers of fewer bits, and bool, for an int in every expression, so one does for all. Half is computed as
    float, but where an operator has a way of its own.
    """
    for number, operator in enumerate(OPERATORS.values()):
        count = len(operator.definition.operands)
        taken = WHOLE if THOROUGH else [WIDE[number % len(WIDE)], NARROW[number % len(NARROW)]]
        for dtype in [*floats(number, operator), *taken]:
            try:
                yield source_of(operator, *[dtype] * count)
            except ProgramError:
                continue


def floats(number, operator):
    """Return the floating dtypes that an operator is compiled in: half is loaded and stored by the same code in all of them."""
    return FLOATS if THOROUGH or operator.definition.half is not None or number % 6 == 0 else ["float32", "float64"]


def forms():
    """Yield other forms: broadcasting of all kinds, mixed dtypes, several vectors in flight, sums, numbers."""
    for first, second in [("float32", "float32"), ("float16", "float64"), ("int8", "float16")]:
        for shapes in [
            [(64, 64), (64,)],
            [(64, 63), (63,)],
            [(64, 64), (64, 1)],
            [(8, 1, 8), (1, 4, 1)],
            [(64,), ()],
            [(2**16, 2**16), (2**16,)],
        ]:
            for request in ("write", "add"):
                for items in (1, 2):
                    yield source_of(ss.ops.multiply, first, second, shapes=shapes, request=request, items=items)
    yield from (source_of(ss.ops.power, 2.0, dtype) for dtype in FLOATS)
    yield from (
        source_of(compare, *dtypes) for compare in (ss.ops.less, ss.ops.equal) for dtypes in (("int64", "uint64"), ("uint64", "int64"))
    )
    yield source_of(ss.ops.round, "bool")


def gradients(traced_sources):
    """Yield the gradient of every operator that has one, in the floating dtypes."""
    for number, operator in enumerate(OPERATORS.values()):
        count = len(operator.definition.operands)
        for dtype in floats(number, operator):
            row = np.ones(8, "int32" if operator.__name__ == "ldexp" else dtype)
            arrays = [np.ones((4, 8), dtype), *[row] * (count - 1)]
            if operator.definition.gradient is not None:
                yield from traced_sources(gradient_of(operator), np.ones((4, 8), dtype), *arrays)


def gradient_of(operator):
    def function(dy, *operands):
        results = operator.gradient(dy, *operands)
        return tuple(each for each in (results if isinstance(results, tuple) else [results]) if each is not None)

    return function


@pytest.fixture(scope="module")
def sources(traced_sources):
    codes = {*operators(), *forms(), *(source.code for source in gradients(traced_sources))}
    return sorted(codes)


def name_of(code):
    (name,) = re.findall(r"\)\n(\w+)\(", code)
    return name


# All for the GPU at hand, a share of them for its neighbours: the sources are the same, and few functions have code for one generation.
@pytest.mark.parametrize(("architecture", "share"), [("sm_80", 16), ("sm_90", 1), ("sm_100", 16)])
def test_every_kernel_compiles(sources, compiled_together, architecture, share):
    assert list(compiled_together([KernelSource(name_of(code), code) for code in sources[::share]], architecture))


def test_names_are_unique_and_of_their_content(sources):
    names = [name_of(code) for code in sources]
    assert len(set(names)) == len(sources) > 500
    assert all(re.fullmatch(r"[a-z0-9_]+_[0-9a-f]{8}", name) for name in names)


def test_a_source_is_readable():
    assert re.sub(r"_x4_[0-9a-f]{8}", "_x4_NAME", source_of(ss.ops.sigmoid, "float32")).endswith(PLAIN)
    code = source_of(ss.ops.add, "float16", "float32", shapes=[(4, 8), (8,)])
    assert "const half_t* in_a, const float* in_b, float* out, long long size, layout at)" in code
    assert "value(load(held_in_a.item[3]), held_in_b.item[3])" in code


PLAIN = """\
template <typename T> __device__ inline T sigmoid(T a) { return 1 / (1 + exp(-a)); }
__device__ inline float value(float x)
{
    return sigmoid(x);
}

extern "C" __global__ void __launch_bounds__(256)
sigmoid_float32_x4_NAME(const float* in_x, float* out, long long size)
{
    const long long n = ((long long)blockIdx.x * 256 + threadIdx.x) * 4;
    if (n >= size) return;
    const vector<float, 4> held_in_x = fetched<4>(in_x + n);
    vector<float, 4> results;
    results.item[0] = value(held_in_x.item[0]);
    results.item[1] = value(held_in_x.item[1]);
    results.item[2] = value(held_in_x.item[2]);
    results.item[3] = value(held_in_x.item[3]);
    put(out + n, results);
}
"""


@pytest.mark.parametrize(
    ("of", "arguments", "options"),
    [
        (ss.ops.add, ("float32", "float32"), {}),
        (ss.ops.add, ("float32", "float16"), {}),
        (ss.ops.add, ("float32", 1.0), {}),
        (ss.ops.add, ("float32", "float32"), {"request": "add"}),
        (ss.ops.add, ("float32", "float32"), {"items": 2}),
        (ss.ops.add, ("float32", "float32"), {"shapes": [(4, 8), (8,)]}),
        (ss.ops.add, ("float32", "float32"), {"shapes": [(4, 7), (7,)]}),
        (ss.ops.subtract, ("float32", "float32"), {}),
    ],
)
def test_what_a_source_depends_on(of, arguments, options):
    code = source_of(of, *arguments, **options)
    plain = source_of(ss.ops.add, "float32", "float32")
    assert (code == plain) == (of is ss.ops.add and arguments == ("float32", "float32") and not options)
    assert code == source_of(of, *arguments, **options)


def test_a_new_shape_or_number_needs_no_new_kernel():
    assert source_of(ss.ops.add, "float32", "float32", shapes=[(4, 8), (8,)]) == source_of(
        ss.ops.add, "float32", "float32", shapes=[(9, 64), (64,)]
    )
    assert source_of(ss.ops.add, "float32", 1.0) == source_of(ss.ops.add, "float32", 2)


def test_the_source_of_a_gradient():
    code = source_of(ss.ops.multiply, "float32", "float16", shapes=[(4, 8), (8,)], gradient_of="b")
    assert "multiply_gradient_b_float32_float32_float16_sum_beside_" in code
    assert "return dy * a;" in code
    in_parts = source_of(ss.ops.multiply, "float32", "float32", shapes=[(4096, 8), (8,)], gradient_of="b")
    assert in_parts.index("multiply_gradient_b_float32_sum_") < in_parts.index("multiply_gradient_b_parts_float32_sum_")
    assert "return dy * y * sigmoid(-x);" in source_of(ss.ops.sigmoid, "float32", gradient_of="x")
