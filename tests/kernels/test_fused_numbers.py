"""Fused kernels: built for the host they have the bits of the unfused ones; compiled for GPUs, nothing is contracted between operations."""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import streamscope as ss
from streamscope.kernels.compile.batch import compile_kernel
from streamscope.kernels.elementwise.fused_source import APART, ROUNDED

pytestmark = pytest.mark.slow

SIZE = 203
HOST_ROUNDED = "inline float rounded(float value) { return (float)(_Float16)value; }\n"
HOST_APART = "inline float apart(float value) { return value; }\ninline double apart(double value) { return value; }\n"
# The low 9 bits of an instruction of 16 bytes, in Volta and all since.
OPCODES = {0x020: "FMUL", 0x021: "FADD", 0x023: "FFMA", 0x028: "DMUL", 0x029: "DADD", 0x02B: "DFMA"}

fma = ss.elementwise("y = a * b + c", name="fma")


def chain(x, y):
    return ss.ops.relu((x + y) * 1.5 - x) / (y * y + 1)


def dtypes(x, y):
    small = ss.ops.floor_divide(x, 0.25) > y
    return ss.ops.add_n(x, small, 2, y) * small, ss.ops.square(x) - ss.ops.sin(y)


def broadcasting(x, y):
    return ss.ops.maximum(ss.ops.tanh(x + y), y) * x


def adding(x, y):
    total = ss.ops.multiply(x, y)
    ss.ops.multiply(x, x, out=total, request="add")
    return ss.ops.relu(total)


def updating(x, y):
    """Its input y is written beside the result."""
    y = ss.ops.add(y * 1.0, y, out=y) if y.dtype == "float16" else fma(y, 0.9, x, out=y)
    return ss.ops.tanh(y) * x, y


def gradients(x, y):
    dx, dy = ss.ops.divide.gradient(ss.ops.tanh(x), x, y)
    return dx * 2 + dy


def choosing(x, y):
    return ss.ops.where(ss.ops.clip(x, -9, y) > 0.5, (x * 1.3).astype("float16"), y).astype("float64") + x.astype("bool")


def whole_numbers(x, y):
    return ss.ops.bitwise_xor(x * x + 100, y) // 3 - x


def values(dtype, shape=(SIZE,), seed=0):
    return (np.random.default_rng(seed).standard_normal(shape) * 30).astype(dtype)


CASES = {
    **{
        f"{f.__name__} {t}": (f, (values(t), values(t, seed=1)))
        for t in ("float16", "float32", "float64")
        for f in (chain, gradients, adding, updating)
    },
    "dtypes": (dtypes, (values("float16"), values("float32", seed=1))),
    "broadcasting": (broadcasting, (values("float16", (7, 29)), values("float32", (29,), 1))),
    "a whole array and one number": (broadcasting, (values("float16", (7, 29)), values("float16", (1,), 1))),
    "choosing": (choosing, (values("float32"), values("float16", seed=1))),
    "int8": (whole_numbers, (values("int8"), values("int8", seed=1))),
    "int64": (whole_numbers, (values("int64"), values("int8", seed=1))),
}


@pytest.fixture(scope="module")
def programs(new_bench, bound_program):
    bench = new_bench()
    made = {
        (name, fuse): bound_program(bench, ss.program(function, fuse=fuse), arrays)
        for name, (function, arrays) in CASES.items()
        for fuse in (False, True)
    }
    if hasattr(bench, "sources"):  # for the host, which knows no PTX
        bench.sources = {
            asked: replace(asked, code=asked.code.replace(ROUNDED, HOST_ROUNDED).replace(APART, HOST_APART)) for asked in bench.sources
        }
    bench.finish()
    return made


@pytest.mark.parametrize("name", CASES)
def test_fused_kernels_have_the_bits_of_unfused_ones(programs, name):
    one, other = programs[name, True], programs[name, False]
    assert len(one.calls) < len(other.calls)
    for found, expected in zip(one.run(), other.run(), strict=True):
        assert found.dtype == expected.dtype
        numbers = ~np.isnan(expected)
        assert numbers.any()
        np.testing.assert_array_equal(np.isnan(found), ~numbers)
        assert found[numbers].tobytes() == expected[numbers].tobytes()


def instructions(source, architecture):
    """Count the floating-point instructions in the machine code of a kernel."""
    cubin = compile_kernel(source, architecture).image
    (table,), (size, count, strings) = struct.unpack_from("<Q", cubin, 40), struct.unpack_from("<HHH", cubin, 58)
    sections = [struct.unpack_from("<IIQQQQ", cubin, table + index * size) for index in range(count)]
    found: Counter[str] = Counter()
    for name, _, _, _, offset, length in sections:
        if cubin[sections[strings][4] + name :].startswith(b".text."):
            words = (struct.unpack_from("<Q", cubin, at)[0] & 0x1FF for at in range(offset, offset + length, 16))
            found.update(OPCODES[word] for word in words if word in OPCODES)
    return found


@pytest.fixture
def machine_code(traced_sources):
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC's bindings are not installed")

    def of(function, *arrays, architecture="sm_90"):
        (source,) = traced_sources(ss.program(function, fuse=True), *arrays)
        return instructions(source, architecture)

    return of


A = np.ones(1024, np.float32)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize(("dtype", "letter"), [("float32", "F"), ("float64", "D")])
def test_a_product_and_a_sum_are_contracted_within_an_operation_only(machine_code, architecture, dtype, letter):
    a = A.astype(dtype)
    inside = machine_code(fma, a, a, a, architecture=architecture)
    assert (inside[f"{letter}FMA"] > 0, inside[f"{letter}MUL"]) == (True, 0)  # so these opcodes are what we take them for
    between = machine_code(lambda a, b, c: a * b + c, a, a, a, architecture=architecture)
    assert between[f"{letter}FMA"] == 0
    assert between[f"{letter}MUL"] == inside[f"{letter}FMA"]


def test_a_product_is_not_contracted_behind_what_only_passes_it_on(machine_code):
    same = ss.elementwise("y = x", name="same")
    assert machine_code(lambda a, b: same(a * b) + b, A, A)["FFMA"] == 0


def test_half_is_rounded_between(machine_code):
    half = A.astype(np.float16)
    assert machine_code(lambda a, b: a * b + b, half, half)["FFMA"] == 0


def test_contraction_inside_an_operation_does_not_depend_on_its_neighbours(machine_code):
    """Alone the square is a multiplication and the rest is contracted; one must not take the other's product."""
    found = machine_code(lambda a, b: fma(a, a, b) * ss.ops.square(a), A, A)
    width = 4
    assert (found["FFMA"], found["FMUL"]) == (width, 2 * width)


def test_sums_alone_cost_nothing_more(machine_code):
    three, two = (machine_code(lambda a, b, n=n: sum([b] * n, a), A, A) for n in (3, 2))
    assert three["FADD"] - two["FADD"] == 4  # one for each element of a vector


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
def test_every_case_compiles(traced_sources, compiled_together, architecture):
    cases = CASES.values()
    sources = [source for function, arrays in cases for source in traced_sources(ss.program(function, fuse=True), *arrays)]
    assert list(compiled_together(sources, architecture))
