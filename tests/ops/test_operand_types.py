"""Functions of CUDA give in NumPy the types that NVRTC gives them."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from tests.ops.conftest import has_reference
from tests.sources import source_of

import streamscope as ss
from streamscope.kernels.compile.nvrtc import compile_unit
from streamscope.kernels.expression.functions import FUNCTIONS, NAMES, argument_count, functions_source, numpy_function

TYPES = {
    "bool": "bool",
    "int8": "signed char",
    "uint16": "unsigned short",
    "int32": "int",
    "uint32": "unsigned",
    "int64": "long long",
    "uint64": "unsigned long long",
    "float32": "float",
    "float64": "double",
}
DTYPES = {name: np.dtype(name) for name in TYPES}
PROBES = """\
template <class A, class B> struct alike { static const bool value = false; };
template <class A> struct alike<A, A> { static const bool value = true; };
template <class A> __device__ A made();
struct none {};
template <class... A> __device__ none found(...);
"""


def numpy_result(name, dtypes):
    values = [np.zeros(1, dtype) for dtype in dtypes]
    with np.errstate(all="ignore"):
        return numpy_function(name)(*values).dtype


def assertion(name, dtypes):
    """Return NVRTC's assertion that a call has its type in NumPy, or does not compile."""
    result = TYPES[numpy_result(name, dtypes).name]
    found = f"decltype(found<{', '.join(TYPES[each] for each in dtypes)}>(0))"
    return f'static_assert(alike<{found}, none>::value || alike<{found}, {result}>::value, "{name}{dtypes} is no {result}");\n'


@pytest.mark.parametrize("name", sorted(NAMES - set(FUNCTIONS)))
def test_cudas_own_functions_give_what_nvrtc_gives(name):
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC's bindings are not installed")
    count = argument_count(name)
    types = "ABC"[:count]
    probe = (
        f"template <{', '.join(f'class {each}' for each in types)}> __device__ auto found(int)"
        f" -> decltype({name}({', '.join(f'made<{each}>()' for each in types)}));\n"
    )
    assertions = "".join(assertion(name, dtypes) for dtypes in itertools.product(TYPES, repeat=count))
    image, log = compile_unit(PROBES + probe + assertions, "probe", "sm_90")
    assert image is not None, re.findall('failed with (".*")', log) or log


@pytest.mark.parametrize("name", sorted(NAMES & set(FUNCTIONS)))
def test_our_functions_give_what_nvrtc_gives(name):
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC's bindings are not installed")
    for dtype in ("float32", "float64"):
        arguments = ", ".join([f"({TYPES[dtype]})1"] * argument_count(name))
        check = f'static_assert(alike<decltype(y), {TYPES[numpy_result(name, [dtype] * argument_count(name)).name]}>::value, "");'
        kernel = f"__global__ void kernel(double* out) {{ auto y = {name}({arguments}); {check} *out = y; }}"
        image, log = compile_unit(functions_source([name]) + PROBES + kernel, "probe", "sm_90")
        assert image is not None, log


F, D, N = (np.dtype(name) for name in ("float32", "float64", "int32"))


@pytest.mark.parametrize(
    ("expression", "dtype"),
    [
        ("max(x, T(0))", F),
        ("fmax(x, 0)", F),
        ("pow(x, 2)", F),
        ("max(x, 0.0)", F),
        ("max(x, true)", N),
        ("maximum(sign(x), x)", np.dtype("int8")),
        ("minimum(isnan((float)x), 1)", N),
        ("fmin(half_cos(x), 1.0f)", D),
        ("exp((float)(x > 0))", F),
        ("x > 0 ? maximum(x, T(1)) : ldexp(x, 1.5)", D),
    ],
)
def test_arguments_that_cuda_takes(expression, dtype):
    operator = ss.elementwise(f"y = {expression}", like=np.positive)
    source = source_of(operator, dtype)
    assert has_reference(ss.program(operator).trace(np.ones(3, dtype)))
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC's bindings are not installed")
    image, log = compile_unit(source, "kernel", "sm_90")
    assert image is not None, log
