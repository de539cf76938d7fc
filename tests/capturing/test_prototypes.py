"""What prototypes say about the memory behind a kernel's parameters."""

from __future__ import annotations

import pytest

from streamscope.capturing.prototypes import Role, roles_in_name, roles_in_source

VALUE, READ, WRITTEN, UNKNOWN = Role.VALUE, Role.READ, Role.WRITTEN, Role.UNKNOWN
BODY = "{ }"


def source(parameters: str, before: str = "", body: str = BODY) -> str:
    return f'#include <cupy/carray.cuh>\n{before}\nextern "C" __global__ void __launch_bounds__(256, 2) kernel({parameters}) {body}\n'


@pytest.mark.parametrize(
    ("declared", "role"),
    [
        ("const float* x", READ),
        ("float const* __restrict__ x", READ),
        ("const unsigned long long *x", READ),
        ("float* x", WRITTEN),
        ("float *const x", WRITTEN),
        ("volatile int* flags", WRITTEN),
        ("double x[]", WRITTEN),
        ("const double x[8]", READ),
        ("const complex<float>* x", READ),
        ("int n", VALUE),
        ("const unsigned int n", VALUE),
        ("unsigned", VALUE),
        ("long long int n = 3", VALUE),
        ("float4 f", VALUE),
        ("const CArray<float, 1, 1, 1> _raw_x", READ),
        ("CArray<complex<double>, 2, 1, 1> _raw_y", WRITTEN),
        ("CIndexer<2, 1> _ind", Role.INDEXER),
        ("float** x", UNKNOWN),
        ("const float* const* x", UNKNOWN),
        ("const float* x[]", UNKNOWN),
        ("void* x", UNKNOWN),
        ("Particle p", UNKNOWN),
        ("Particle* p", UNKNOWN),
        ("const float& x", UNKNOWN),
        ("void (*call)(int)", UNKNOWN),
        ("CArray<float*, 1> x", UNKNOWN),
    ],
)
def test_the_role_of_a_parameter(declared, role):
    assert roles_in_source(source(declared), "kernel") == (role,)
    assert roles_in_source(source(f"int n, {declared}, CIndexer<1, 1> i"), "kernel") == (VALUE, role, Role.INDEXER)


def test_a_kernel_without_parameters():
    assert roles_in_source(source(""), "kernel") == ()
    assert roles_in_source(source("void"), "kernel") == ()


@pytest.mark.parametrize("before", ["typedef float real;", "using real = float;", "#define real float"])
def test_a_name_of_the_source_for_a_number(before):
    assert roles_in_source(source("const real* x, real* y, real f", before), "kernel") == (READ, WRITTEN, VALUE)


@pytest.mark.parametrize("before", ["typedef float* real;", "#define real float*", "struct real { float* x; };", ""])
def test_a_name_that_may_be_a_pointer(before):
    assert roles_in_source(source("const real x", before), "kernel") == (UNKNOWN,)


def test_comments_are_not_read():
    text = source("const float* x, // float* y,\n float* z /* , int n */", "// __device__ int counter;\n/* __global__ void kernel(int) */")
    assert roles_in_source(text, "kernel") == (READ, WRITTEN)


@pytest.mark.parametrize(
    ("before", "why"),
    [
        ("__device__ int counter;", "variables"),
        ("__device__ float table[10];", "variables"),
        ("static __device__ int counter = 0;", "variables"),
        ("__device__ int counter{3};", "variables"),
        ("__constant__ float weights[3] = {1, 2, 3};", "variables"),
        ("__managed__ int counter;", "managed"),
        ("texture<float> t;", "textures"),
        ('#include "mine.cuh"', "includes"),
        ("#include <mine.cuh>", "includes"),
        ("#define const", "other meanings"),
    ],
)
def test_memory_that_no_parameter_leads_to(before, why):
    assert why in roles_in_source(source("const float* x", before), "kernel")


@pytest.mark.parametrize(
    "before",
    [
        "__device__ float twice(float x) { return 2 * x; }",
        "static __device__ __forceinline__ int other(int x);",
        "template <typename T> __device__ T same(T x) { T y = x; return y; }",
        "struct Sum { __device__ float operator()(float a, float b) const { return a + b; } };",
        "__device__ const float table[2] = {1, 2};",
        "static constexpr int width = 32;",
        "#include <cuda_fp16.h>",
    ],
)
def test_functions_and_constants_are_not_memory(before):
    assert roles_in_source(source("const float* x", before), "kernel") == (READ,)


def test_a_static_variable_of_a_function_is_memory():
    assert "variables" in roles_in_source(source("float* x", body="{ static int calls; x[0] = ++calls; }"), "kernel")


def test_numbers_in_memory_that_become_pointers():
    followed = source("const unsigned long long* table, float* y", body="{ y[0] = *(float*)table[0]; }")
    assert "makes pointers" in roles_in_source(followed, "kernel")
    wide = source("const float* x, float* y", body="{ float4 z = *(const float4*)x; *(float4*)y = z; }")
    assert roles_in_source(wide, "kernel") == (READ, WRITTEN)


def test_a_name_that_the_source_has_twice_or_never():
    text = source("const float* x")
    assert "0 prototypes" in roles_in_source(text, "other")
    assert "2 prototypes" in roles_in_source(text + "__global__ void kernel(int n);", "kernel")
    assert roles_in_source("__global__ void kernel(int);" + "__global__ void kernel(int) {}", "kernel") == (VALUE,)


def test_a_template_has_its_types_in_its_name():
    text = "template <typename T> __global__ void scale(const T* x, T* y, int n) { }"
    symbol = "void scale<float>(float const*, float*, int)"
    assert roles_in_source(text, symbol) == (READ, WRITTEN, VALUE)
    assert "variables" in roles_in_source("__device__ int counter;" + text, symbol)


def test_a_name_alone_says_nothing_about_variables_of_its_module():
    assert "source is not known" in roles_in_name("void mine::scale<float>(float const*, float*, int)")
    assert "no parameters" in roles_in_name("cupy_add__float32")


def test_libraries_that_have_no_variables():
    name = "void cub::detail::DeviceReduceKernel<Policy<(int)7>, int>(float const*, float*, int, GridEvenShare<int>, cub::Sum)"
    assert roles_in_name(name) == (READ, WRITTEN, VALUE, UNKNOWN, Role.HOLDER)


def test_cupys_reductions_by_cub_name_their_arrays():
    text = source("const void* _raw_in0, void* _raw_out0, const int _segment_size")
    assert roles_in_source(text, "kernel") == (READ, WRITTEN, VALUE)
