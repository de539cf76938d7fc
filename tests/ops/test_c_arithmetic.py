"""NumPy computes as CUDA's device code does: conversions, common types, division, shifts."""

from __future__ import annotations

import math
import operator

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import streamscope as ss
from streamscope.errors import NoDeviceError
from streamscope.kernels.compile.nvrtc import compile_unit, supported_architectures
from streamscope.kernels.expression.c_arithmetic import alike, chosen, converted, divided, promoted, shifted_left, shifted_right
from streamscope.kernels.expression.expressions import compiled
from streamscope.kernels.expression.functions import functions_source

WHOLE = ["int8", "uint8", "int16", "int32", "int64", "uint32", "uint64"]
NUMBERS = st.floats(width=32) | st.floats() | st.integers(-(2**66), 2**66).map(float)


def as_cuda_converts(value, dtype, floating="float64"):
    """Return what `cvt.rzi` to at least 32 bits, and then the low bits, make of a number."""
    wide = np.iinfo(f"{dtype.kind}{max(4, dtype.itemsize)}")
    if math.isnan(value):
        bits = 0 if wide.bits == 32 and floating != "float64" else 2 ** (wide.bits - 1)
    elif math.isinf(value):
        bits = wide.max if value > 0 else wide.min
    else:
        bits = min(max(math.trunc(value), wide.min), wide.max)
    low = bits % 2 ** (8 * dtype.itemsize)
    return low - 2 ** (8 * dtype.itemsize) if low > np.iinfo(dtype).max else low


@given(st.sampled_from(WHOLE), st.lists(NUMBERS, min_size=1, max_size=5), st.sampled_from(["float32", "float64"]))
def test_floats_become_whole_as_on_the_device(name, values, floating):
    dtype = np.dtype(name)
    with np.errstate(over="ignore"):
        array = np.array(values).astype(floating)
    found = converted(array, dtype)
    assert found.dtype == dtype
    assert found.tolist() == [as_cuda_converts(float(value), dtype, floating) for value in array]
    assert [converted(value, dtype).item() for value in array] == found.tolist()


def test_other_conversions():
    x = np.array([np.nan, np.inf, 0.0, -0.5])
    assert converted(x, np.dtype(np.bool_)).tolist() == [True, True, False, True]
    assert converted(np.array([300, -1]), np.dtype(np.uint8)).tolist() == [44, 255]
    assert converted(np.array([1e300]), np.dtype(np.float32)).tolist() == [np.inf]


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [
        ("int8", "uint8", "int32"),
        ("bool", "bool", "int32"),
        ("int32", "uint32", "uint32"),
        ("int64", "uint32", "int64"),
        ("int64", "uint64", "uint64"),
        ("int64", "float32", "float32"),
        ("float32", "float64", "float64"),
    ],
)
def test_common_types(one, other, common):
    arrays = np.ones(2, one), np.ones(2, other)
    assert {array.dtype.name for array in alike(*arrays)} == {common}
    assert chosen(np.array([True, False]), *arrays).dtype == (common if one != other else one)


@pytest.mark.parametrize(("name", "as_int"), [("uint8", True), ("bool", True), ("int64", False), ("float32", False)])
def test_of_one_value_only_short_ones_are_promoted(name, as_int):
    assert promoted(np.ones(1, name)).dtype.name == ("int32" if as_int else name)


@given(*[st.integers(-(2**31), 2**31 - 1)] * 2)
def test_division_is_towards_zero(a, b):
    exact = 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    assert divided(np.array([a], np.int32), np.array([b], np.int32))[0] == np.array(exact).astype(np.int32)


@pytest.mark.parametrize(("shift", "plain"), [(shifted_left, operator.lshift), (shifted_right, operator.rshift)])
def test_shifts_by_the_width_or_more_leave_nothing_but_the_sign(shift, plain):
    for count in (0, 1, 31):
        assert shift(np.array([-5], np.int32), np.int64(count))[0] == np.array([plain(-5, count)]).astype(np.int32)[0]
    nothing = [0, -1 if shift is shifted_right else 0]
    for count in (32, 2**33, -1):
        found = shift(np.array([5, -5], np.int16), np.array(count))
        assert (found.dtype, found.tolist()) == (np.dtype(np.int32), nothing)


CTYPES = {
    "int8": ("signed char",),
    "int32": ("int",),
    "uint32": ("unsigned",),
    "uint64": ("unsigned long", "unsigned long long"),
    "float32": ("float",),
    "float64": ("double",),
}


def assert_nvrtc_gives(expression, dtype):
    """Assert that NVRTC, where there is one, gives an expression of a float ``x`` the type of a dtype."""
    try:
        architecture = supported_architectures()[-1]
    except NoDeviceError:
        return
    alike = "template <class A, class B> struct alike { static const bool value = false; };\n"
    alike += "template <class A> struct alike<A, A> { static const bool value = true; };\ntypedef float T;\n"
    found = f"__device__ void test(float x) {{ auto found = {expression};\n"
    same = " || ".join(f"alike<decltype(found), {each}>::value" for each in CTYPES.get(dtype, (dtype,)))
    asserted = f'static_assert({same}, "another type"); }}'
    image, log = compile_unit(functions_source([expression]) + alike + found + asserted, "types", architecture)
    assert image is not None, log


@pytest.mark.parametrize(
    ("expression", "expected", "dtype"),
    [
        ("(int)x", [-2, 2], "int32"),
        ("(unsigned char)x + 0", [0, 2], "int32"),
        ("(unsigned long long)(long)x >> 60", [15, 0], "uint64"),
        ("int(x) % 2", [0, 0], "int32"),
        ("T(x / 2) * 2", [-2.5, 2.5], "float32"),
        ("(T)1 / 2", 0.5, "float32"),
        ("-(double)x", [2.5, -2.5], "float64"),
        ("(x > 0) + (x < 9)", [1, 2], "int32"),
        ("(x > 0) * x", [0, 2.5], "float32"),
        ("x * 2", [-5, 5], "float32"),
        ("x * 2.0", [-5, 5], "float64"),
        ("x > 0 ? 1 : 2u", [2, 1], "uint32"),
        ("floor(x)", [-3, 2], "float32"),
        ("floor(7 / 2 * 1.0)", 3, "float64"),
        ("isnan(x) + (x > 0)", [0, 1], "int32"),
        ("sign((signed char)x)", [-1, 1], "int8"),
        ("ldexp(x, 3ull)", [-20, 20], "float32"),
        ("ldexp(x, 0x100000003)", [-20, 20], "float32"),
        ("scale_by_power(x, 1ull << 63)", [-np.inf, np.inf], "float32"),
        ("scale_by_power(x, -3000000000)", [-0.0, 0], "float32"),
        ("half_cos(0.0)", 1, "float32"),
        ("pow(x, 2)", [6.25, 6.25], "float32"),
        ("fmax(x, 0)", [0, 2.5], "float32"),
        ("abs(-7)", 7, "int32"),
        ("max(x, 0.0f)", [0, 2.5], "float32"),
        ("ldexp(x, 3)", [-20, 20], "float32"),
        ("::fabs(x)", [2.5, 2.5], "float32"),
        ("static_cast<int>(x) / 2.0f", [-1, 1], "float32"),
        ("static_cast<T>(1) / 2", 0.5, "float32"),
        ("(T(0.5) + x) * 2", [-4, 6], "float32"),
        ("1 / (float(1.5) + x) * (T(2)) + (int(x))", [-4, 2.5], "float32"),
        ("(unsigned int)(x > 0) - (int)T(1.5)", [2**32 - 1, 0], "uint32"),
        ("-static_cast<unsigned char>(x + 3.5f)", [-1, -6], "int32"),
        ("(size_t)x + 1", [1, 3], "uint64"),
        ("x > 2 ? 1 : x < 0 ? 2 : 3u", [2, 1], "uint32"),
        ("10 - 2 - 3 * 2 % 4 - 1", 5, "int32"),
        ("1 + 2 * 3 << 1 < 15 == true", True, "bool"),
    ],
)
def test_types_in_expressions(expression, expected, dtype):
    assert_nvrtc_gives(expression, dtype)
    with np.errstate(over="ignore", under="ignore"):
        found = compiled(expression)({"x": np.array([-2.5, 2.5], np.float32), "T": np.dtype(np.float32)})
    assert (found.dtype.name, found.tolist()) == (dtype, expected)


SINGLES = st.floats(-(2.0**60), 2.0**60, width=32)


@given(SINGLES, SINGLES, SINGLES)
@example(1 + 2.0**-12, 1 + 2.0**-12, -1.0)
def test_fmaf_keeps_the_product_whole(a, b, c):
    values = {name: np.array([value], np.float32) for name, value in zip("abc", (a, b, c), strict=True)}
    with np.errstate(all="ignore"):
        expected = np.float32(float(values["a"][0]) * float(values["b"][0]) + float(values["c"][0]))
        for expression in ("fmaf(a, b, c)", "fma(a, b, c)"):
            (found,) = compiled(expression)(values)
            assert found.dtype == np.float32
            assert found == expected


@pytest.mark.parametrize(
    ("expression", "function"),
    [
        ("expf(x)", np.exp),
        ("tanhf(x)", np.tanh),
        ("powf(x, 3)", lambda x: np.power(x, np.float32(3))),
        ("fmaxf(x, 0.25)", lambda x: np.fmax(x, np.float32(0.25))),
        ("fminf(x, 1)", lambda x: np.fmin(x, np.float32(1))),
        ("rsqrtf(x)", lambda x: 1 / np.sqrt(x)),
        ("sqrtf(x)", np.sqrt),
        ("ldexpf(x, 3.5)", lambda x: x * 8),
        ("signbit(x) * 1.0f", lambda x: np.signbit(x).astype(np.float32)),
    ],
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32])
def test_functions_of_float_take_floats_of_whatever_there_is(expression, function, dtype):
    x = np.array([-2.1, -0.0, 0.1, 0.3, 7], np.float64).astype(dtype)
    if "signbit" in expression and dtype == np.int32:
        x = x.astype(np.float64)
    with np.errstate(all="ignore"):
        found = compiled(expression)({"x": x})
        np.testing.assert_array_equal(found, function(x.astype(np.float32)))
    assert found.dtype == np.float32


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_fma_of_infinities_and_nan(dtype):
    x, a, b = np.array(
        [[np.inf, 1, -np.inf], [np.inf, -1, 1], [0, np.inf, 1], [9, 9, -np.inf], [np.nan, 1, 1], [3, np.inf, -np.inf]], dtype
    ).T
    with np.errstate(all="ignore"):
        found = compiled("fma(x, a, b)")({"x": x, "a": a, "b": b})
    np.testing.assert_array_equal(found, np.array([np.nan, -np.inf, np.nan, -np.inf, np.nan, np.nan], dtype))


CONVERTING = ["y = x * 1e10", "y = x * 2.5 + 0.3", "y = x / 0.0", "y = x * 1e30f", "y = T(x * 1.5f) + 1", "y = x * 70.7f"]


def special(dtype):
    limits = np.iinfo(dtype)
    return np.array([limits.min, limits.max, 0, 1, 3, 100, limits.max // 2 + 1], dtype)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64"])
def test_what_is_stored_as_whole_is_converted_as_on_the_device(evaluate, dtype):
    found = evaluate(ss.elementwise("y = x / 0.0"), special(dtype))
    no_number, most, least = (as_cuda_converts(value, np.dtype(dtype)) for value in (np.nan, np.inf, -np.inf))
    assert found.tolist() == [least if x < 0 else most if x > 0 else no_number for x in special(dtype).tolist()]


@pytest.mark.gpu
@pytest.mark.parametrize("line", CONVERTING)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64"])
def test_a_gpu_converts_alike(evaluate, line, dtype):
    convert, x = ss.elementwise(line), special(dtype)
    prepared = ss.prepare(ss.program(convert).trace(x), engine="async", device=ss.open_device("cuda"))
    prepared.load([x])
    prepared.run()
    prepared.wait()
    np.testing.assert_array_equal(prepared.outputs()[0], evaluate(convert, x))
