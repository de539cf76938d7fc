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


@pytest.mark.parametrize("before", ["struct real { float* x; };", ""])
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
        ("__device__ const float* table;", "variables"),
        ("static __device__ float* const* t;", "variables"),
        ("__device__ const Node node = {};", "variables"),
        ("__device__ int counter(3);", "variables"),
        ("__device__ struct { int calls; } s;", "variables"),
        ("static struct Counts { int calls; } s;", "variables"),
        ('#include "mathlib_globals.h"', "includes"),
        ('#include "cuda_runtime_mine.h"', "includes"),
        ('#include "cupy/../mine.h"', "includes"),
        ("#define MINE <mine.h>\n#include MINE", "includes"),
        ("#define float4 Node", "other meanings"),
        ('#include "mine.cuh"', "includes"),
        ("#include <mine.cuh>", "includes"),
        ("#define const", "other meanings"),
    ],
)
def test_memory_that_no_parameter_leads_to(before, why):
    assert why in roles_in_source(source("const float* x", before), "kernel")


@pytest.mark.parametrize(
    "read", ["tex2D<float>(t, 0, 0)", "tex1Dfetch<float>(t, 0)", "surf2Dread<float>(t, 0, 0)", "texCubemap<float>(t, 0, 0, 0)"]
)
def test_a_texture_that_is_passed_as_a_number_leads_to_memory(read):
    assert "textures" in roles_in_source(source("unsigned long long t, float* y", body=f"{{ y[0] = {read}; }}"), "kernel")


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


MAKING = [
    ("const float* x", "", "const_cast<float*>(x)[0] = 1;"),
    ("Node n", "struct __attribute__((packed)) Node { int count; float* p; };", "n.p[0] = 1;"),
    ("Node n", "#pragma pack(4)\nstruct Node { int count; float* p; };", "n.p[0] = 1;"),
    ("const float* x", "", "((float*)x)[0] = 1;"),
    ("const int* x", "", "atomicAdd((unsigned int* const)x, 1);"),
    ("const float* x", "", "const_cast<float&>(x[0]) = 1;"),
    ("const float* x", "", "((float&)x[0]) = 1;"),
    ("const float* x", "", 'asm("st.global.f32 [%0], 0f00000000;" :: "l"(x));'),
    ("const unsigned char* b", "struct Node { float* p; };", "reinterpret_cast<const Node*>(b)->p[0] = 1;"),
    ("const unsigned char* b", "", "((float**)b)[0][0] = 1;"),
    ("const double* b", "union Both { double number; float* p; };", "Both both; both.number = b[0]; both.p[0] = 1;"),
    ("const long long* b", "", "float* p; memcpy(&p, b, 8); p[0] = 1;"),
    ("const long long* b", "typedef float* fp;", "((fp)b[0])[0] = 1;"),
    ("const long long* b", "using fp = float*;", "((fp)b[0])[0] = 1;"),
    ("const long long* b", "#define fp float*", "((fp)b[0])[0] = 1;"),
    ("const long long* b", "", "__builtin_bit_cast(float*, b[0])[0] = 1;"),
    ("const unsigned int* b", "", "((float*)(b[0] + 0x100000000ull * b[1]))[0] = 1;"),
    ("const long long* b, float* y", "template <typename T> __device__ T made(T, long long v) { return (T)v; }", "made(y, b[0])[0] = 1;"),
    ("const long long* b, float* y", "", "((decltype(y))b[0])[0] = 1;"),
    ("const long long* b", "", "((cuda::std::add_pointer_t<float>)b[0])[0] = 1;"),
    ("const unsigned long long* table, float* y", "", "y[0] = *(float*)table[0];"),
    ("const float* x, float* y", "", "*(float4*)y = *(const float4*)x;"),
]


@pytest.mark.parametrize(("parameters", "before", "body"), MAKING)
def test_a_source_that_makes_pointers_is_not_trusted(parameters, before, body):
    assert "makes pointers" in roles_in_source(source(parameters, before, f"{{ {body} }}"), "kernel")


def test_templates_that_make_pointers_are_not_trusted():
    text = "template <typename T> __global__ void scale(const T* x) { ((T*)x)[0] = 1; }"
    assert "makes pointers" in roles_in_source(text, "void scale<float>(float const*)")


def test_cupys_own_reductions_are_trusted():
    shared = "__shared__ char _sdata_raw[512]; _type_reduce *_sdata = reinterpret_cast<_type_reduce*>(_sdata_raw);"
    text = source("const CArray<float, 1, 1, 1> _raw_in0", "typedef float _type_reduce;", f"{{ {shared} }}")
    assert roles_in_source(text, "kernel") == (READ,)
    index = "using i_idx_t = decltype(i); using a_idx_t = decltype(a)::index_t; i_idx_t cdim = static_cast<i_idx_t>(cdim_);"
    assert roles_in_source(source("CArray<float, 1, 1, 1> a", body=f"{{ {index} }}"), "kernel") == (WRITTEN,)


def test_products_are_no_pointers():
    body = "{ float z = (x[0]) * (x[1]) * n; bool few = n < 3 * n && (n & 3); y[0] = few ? z * -(x[2]) : float(n); }"
    assert roles_in_source(source("const float* x, float* y, int n", body=body), "kernel") == (READ, WRITTEN, VALUE)


@pytest.mark.parametrize("condition", ["#if 0", "#ifdef NEW", "#ifndef KERNEL"])
def test_a_prototype_that_depends_on_the_preprocessor(condition):
    text = f'{condition}\nextern "C" __global__ void kernel(const float* x) {{ }}\n#endif\n'
    assert "preprocessor" in roles_in_source(text, "kernel")
    named = source("real x", f"{condition}\ntypedef float real;\n#endif")
    assert roles_in_source(named, "kernel") == (UNKNOWN,)
    assert roles_in_source(source("const float* x", f"{condition}\n#define N 3\n#endif"), "kernel") == (READ,)


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


NDIMAGE = """
#include <cupy/carray.cuh>
typedef float X; typedef double W; typedef float Y;
template <class B, class A>
__device__ __forceinline__ typename std::enable_if<std::is_signed<B>::value, B>::type
cast(A a) {{ return (B)a; }}
template <class B, class A>
__device__ __forceinline__ typename std::enable_if<!std::is_signed<B>::value, B>::type
cast(A a) {{ return (a >= 0) ? (B)a : -(B)(-a); }}
extern "C" __global__ void {name}(const CArray<X, 1, 1, 1> x, const CArray<W, 1, 1, 1> w, CArray<Y, 1, 1, 1> _raw_y, CIndexer<1> _ind) {{
  CUPY_FOR(i, _ind.size()) {{
    const unsigned char* data = (const unsigned char*)&x[0];
    W sum = (W)0;
    for (int iw = 0; iw < 3; iw++) {{ int offset_0 = 4 * (i + iw); sum += cast<W>((*(X*)&data[offset_0])) * w[iw]; }}
    {more}
    _raw_y[i] = cast<Y>(sum);
  }}
}}
"""


def test_filters_of_cupyx_are_understood_and_what_looks_like_them_is_not():
    name = "cupyx_scipy_ndimage_correlate_1d_reflect_w3"
    assert roles_in_source(NDIMAGE.format(name=name, more=""), name) == (READ, READ, WRITTEN, Role.INDEXER)
    assert "makes pointers" in roles_in_source(NDIMAGE.format(name=name, more="*(X*)&data[0] = 1;"), name)
    assert "makes pointers" in roles_in_source(NDIMAGE.format(name="mine", more=""), "mine")
