"""What we say that CUDA's functions take is what NVRTC takes."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from tests.ops.conftest import has_reference

import streamscope as ss
from streamscope.errors import ProgramError
from streamscope.kernels.compile.nvrtc import compile_unit
from streamscope.kernels.expression.functions import FUNCTIONS, NAMES, argument_count, functions_source, numpy_function, takes

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
    """Return what NVRTC asserts of a call: its type in NumPy, or that it is none."""
    declared = takes(name, [DTYPES[each] for each in dtypes])
    result = TYPES[numpy_result(name, dtypes).name] if declared else "none"
    types = ", ".join(TYPES[each] for each in dtypes)
    return f'static_assert(alike<decltype(found<{types}>(0)), {result}>::value, "{name}({types}) is no {result}");\n'


@pytest.mark.parametrize("name", sorted(NAMES - set(FUNCTIONS)))
def test_cudas_own_functions_take_what_nvrtc_takes_and_give_what_it_gives(name):
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
def test_our_functions_take_what_nvrtc_takes_and_give_what_it_gives(name):
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC's bindings are not installed")
    some = ["int8", "int32", "uint64", "float32", "float64"] if argument_count(name) == 1 else ["int32", "float32", "float64"]
    for dtypes in itertools.product(some, repeat=argument_count(name)):
        arguments = ", ".join(f"({TYPES[each]})1" for each in dtypes)
        compiles = takes(name, [DTYPES[each] for each in dtypes])
        check = (
            f"static_assert(alike<decltype(y), {TYPES[numpy_result(name, dtypes).name]}>::value, {chr(34)}{chr(34)});" if compiles else ""
        )
        kernel = f"__global__ void kernel(double* out) {{ auto y = {name}({arguments}); {check} *out = y; }}"
        image, log = compile_unit(functions_source([name]) + PROBES + kernel, "probe", "sm_90")
        assert (image is not None) == compiles, (dtypes, log)


F, D, N, L = (np.dtype(name) for name in ("float32", "float64", "int32", "int64"))


@pytest.mark.parametrize(
    ("expression", "dtype", "said", "hint"),
    [
        ("max(x, 0)", F, "max of float32 and int32", "numbers as 0.5f"),
        ("fmax(x, 0.0)", F, "fmax of float32 and float64 is ambiguous in CUDA", "0.5f, or as T(0.5)"),
        ("1 + fmin(x, 2.5)", F, "fmin of float32 and float64", "0.5f"),
        ("pow(x, 2.0)", F, "pow of float32 and float64", "0.5f"),
        ("pow(x, 3000000000)", F, "pow of float32 and int64", "convert the exponent: write (int)(...) or (float)(...)"),
        ("hypot(x, 1.0)", F, "hypot of float32 and float64", "0.5f"),
        ("atan2(1.0f, x)", D, "atan2 of float32 and float64", "make all arguments float"),
        ("maximum(x, 0)", F, "maximum takes two of one type, not float32 and int32", "0.5f"),
        ("maximum(x, 0)", L, "maximum takes two of one type, not int64 and int32", "(long long)"),
        ("exp(x > 0)", F, "exp of bool", "exp((float)(...))"),
        ("sqrt(x)", N, "sqrt of int32", "sqrt((float)(...))"),
        ("fabs(x)", N, "fabs of int32", "fabs((float)(...))"),
        ("isnan(x)", N, "isnan of int32", "isnan((float)(...))"),
        ("100 * sigmoid(x)", N, "sigmoid of int32", "sigmoid((float)(...))"),
        ("modulo(x, x)", N, "modulo of int32 and int32", "modulo((float)(...), ...)"),
        ("max(x, 0)", L, "max of int64 and int32", "(long long)"),
        ("abs(x + 0u)", N, "abs of uint32", "leave abs out"),
    ],
)
def test_arguments_that_cuda_does_not_take(expression, dtype, said, hint):
    operator = ss.elementwise(f"y = {expression}")
    apply = [lambda: operator.source(dtype), lambda: ss.program(operator).trace(np.ones(3, dtype))]
    for each in apply:
        with pytest.raises(ProgramError) as caught:
            each()
        caret = expression.index(re.match(r"\w+", said)[0])
        assert said in caught.value.message
        assert f"\n    {expression}\n    {' ' * caret}^" in caught.value.message
        assert hint in caught.value.hint


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
    source = operator.source(dtype)
    assert has_reference(ss.program(operator).trace(np.ones(3, dtype)))
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC's bindings are not installed")
    image, log = compile_unit(source, "kernel", "sm_90")
    assert image is not None, log


def test_arguments_in_gradients_are_looked_at_where_they_are_applied():
    operator = ss.elementwise("y = x * a", gradient={"x": "dy * fmax(a, 1.0)", "a": "fmax(dy, x) + fmax(y, x)"})
    double, single = np.ones(3), np.ones(3, np.float32)
    ss.program(operator.gradient).trace(double, double, double)
    ss.program(operator.gradient).trace(double, double, single)  # all are taken as double
    with pytest.raises(ProgramError, match=r"gradient of x of x float32, a float32: fmax of float32 and float64 is ambiguous"):
        ss.program(operator.gradient).trace(single, single, single)
    ss.program(lambda dy, a: operator.gradient(dy, 2.0, a)).trace(double, single)  # dy is converted to float


def test_functions_of_the_users_own_may_take_others():
    operator = ss.elementwise("y = fmax(x, 0.0)", functions="__device__ float fmax(float a, double b);")
    ss.program(operator).trace(np.ones(3, np.float32))
