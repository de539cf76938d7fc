"""Whole numbers that overflow, are divided by zero or shifted too far: defined as in NumPy, in every kernel, fused or not.

The build for the host tells what C++ leaves undefined (see `conftest`); on GPUs the numbers show what the compiler made of it.
"""

from __future__ import annotations

import operator
import random
import re

import numpy as np
import pytest
from tests.sources import source_of

import streamscope as ss
from streamscope.kernels.compile.nvrtc import compile_unit
from streamscope.program.reference import run_reference

SIGNED = ["int32", "int64"]
WIDE = [*SIGNED, "uint64"]


def extremes(dtype, count=2):
    """Return every pair of numbers between which something overflows, or not quite."""
    limits = np.iinfo(dtype)
    root = int(np.sqrt(float(limits.max)))
    some = [0, 1, -1, 2, -2, 3, 7, limits.bits - 1, limits.bits, root, root + 1, -root - 1, limits.max // 2 + 1]
    some += [limits.min, limits.min + 1, limits.max, limits.max - 1]
    some = [each for each in some if each >= limits.min]
    return [each.ravel().copy() for each in np.meshgrid(*[np.array(some, dtype)] * count)]


FUSED = {
    "(x + 1) > x": lambda x, y: (x + 1) > x,
    "(x - y) < x": lambda x, y: (x - y) < x,
    "(x * 2) // 2": lambda x, y: (x * 2) // 2,
    "relu(square(x))": lambda x, y: ss.ops.relu(ss.ops.square(x)),
    "sqrt(relu(x * x))": lambda x, y: ss.ops.sqrt(ss.ops.relu(x * x)),
    "sign(abs(x))": lambda x, y: ss.ops.sign(ss.ops.abs(x)),
    "-x > 0": lambda x, y: ss.ops.relu(-x) + (-x > 0),
    "add_n": lambda x, y: ss.ops.add_n(x, y, x, y, 1) > x,
    "added to": lambda x, y: ss.ops.add(x, y, out=x + 1, request="add") > y,
    "shifts": lambda x, y: (x << y) >> y,
    "quotients": lambda x, y: (x // y) * y + x % y - ss.ops.fmod(x, y),
    "power": lambda x, y: ss.ops.abs(ss.ops.power(x, y & 7)) > 0,
    "divisors": lambda x, y: ss.ops.lcm(x, y) + ss.ops.gcd(x, y),
}


def random_program(seed, length=7):
    """Return a program of whole numbers as a function of the library that computes it, which may be NumPy, and two arrays."""
    choose = random.Random(seed)
    binary = "add subtract multiply floor_divide mod fmod left_shift right_shift maximum minimum bitwise_xor gcd".split()  # noqa: SIM905
    unary = "negative abs square sign bitwise_not".split()  # noqa: SIM905
    steps = []
    for number in range(2, 2 + length):
        latest = number - 1  # so that all are needed
        names = (unary, [latest]) if choose.random() < 0.3 else (binary, choose.sample([latest, choose.randrange(number)], 2))
        steps.append((choose.choice(names[0]), names[1]))

    def compute(library, x, y):
        values = [x, y]
        for name, operands in steps:
            values.append(getattr(library, name)(*(values[each] for each in operands)))
        return library.greater(values[-1], x), values[-1]

    return compute


RANDOM = range(24)


@pytest.fixture(scope="module")
def programs(new_bench, bound_program):
    bench = new_bench()
    cases = {(name, dtype): (function, extremes(dtype)) for name, function in FUSED.items() for dtype in WIDE}
    cases |= {(seed, WIDE[seed % len(WIDE)]): (in_streamscope(random_program(seed)), extremes(WIDE[seed % len(WIDE)])) for seed in RANDOM}
    made = {
        (*case, fuse): bound_program(bench, ss.program(function, fuse=fuse), arrays)
        for case, (function, arrays) in cases.items()
        for fuse in (False, True)
    }
    bench.finish()
    return made


def in_streamscope(compute):
    return lambda x, y: compute(ss.ops, x, y)


@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize("name", FUSED)
def test_what_overflows_is_numpys_fused_or_not(programs, name, dtype):
    fused, unfused = programs[name, dtype, True], programs[name, dtype, False]
    assert len(fused.calls) < len(unfused.calls)
    (expected,) = run_reference(unfused.program, extremes(dtype))
    for (found,) in (unfused.run(), fused.run()):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("seed", RANDOM)
def test_random_programs_of_whole_numbers_are_numpys_fused_or_not(programs, seed):
    dtype = WIDE[seed % len(WIDE)]
    with np.errstate(all="ignore"):
        expected = random_program(seed)(np, *extremes(dtype))
    for fuse in (False, True):
        for found, each in zip(programs[seed, dtype, fuse].run(), expected, strict=True):
            assert found.dtype == each.dtype
            np.testing.assert_array_equal(found, each)


def test_numbers_with_a_sign_are_compared_with_those_without_one(differing):
    x, y = (each.ravel() for each in np.meshgrid(extremes("int64", 1)[0], extremes("uint64", 1)[0]))
    compares = (ss.ops.less, ss.ops.less_equal, ss.ops.equal, ss.ops.not_equal, ss.ops.greater, ss.ops.greater_equal)

    def compared(x, y):
        return *(compare(x, y) for compare in compares), *(compare(y, x) for compare in compares), compares[0](x + 1, y) & (y - 1 > x)

    assert differing({f"fused: {fuse}": (ss.program(compared, fuse=fuse), x, y) for fuse in (False, True)}) == []


def reduced(x, y):
    return (
        *(operator(x, axis=axis) for operator in (ss.ops.sum, ss.ops.prod, ss.ops.nansum) for axis in (0, 1, None)),
        ss.ops.max(x, axis=1, out=y, request="add"),
    )


@pytest.fixture(scope="module")
def reductions(new_bench, bound_program):
    bench = new_bench()
    made = {}
    for dtype in ("int8", "uint8", "int16", *WIDE):
        limits = np.iinfo(dtype)
        x = np.random.default_rng(0).choice(np.array([limits.min, limits.max, max(-3, limits.min), 5], dtype), (63, 34))
        made[dtype] = bound_program(bench, reduced, [x, np.full(63, limits.max, dtype)])
    bench.finish()
    return made


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", *WIDE])
def test_reductions_that_overflow_are_numpys(reductions, dtype):
    program = reductions[dtype]
    inputs = [program.bench.read(program.memory[variable]).copy() for variable in program.program.inputs]
    for found, expected in zip(program.run(), run_reference(program.program, inputs), strict=True):
        np.testing.assert_array_equal(found, expected)


def wrapped(value, bits):
    return (value + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


def quotient(a, b):
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def random_line(seed, bits, depth=4):
    """Return an expression of x and y in C++, and the function of Python's whole numbers that it must be."""
    choose = random.Random(seed)
    signs = {
        "+": operator.add,
        "-": operator.sub,
        "*": operator.mul,
        "/": quotient,
        "%": lambda a, b: a - quotient(a, b) * b if b else 0,
        "<<": lambda a, b: a << b if 0 <= b < bits else 0,
        ">>": lambda a, b: a >> (b if 0 <= b < bits else bits),
        "^": operator.xor,
    }

    def made(depth):
        kind = choose.random() if depth else 1
        if kind < 0.65:
            sign = choose.choice(list(signs))
            (one, a), (other, b) = made(depth - 1), made(depth - 1)
            text = f"({one}) {sign} ({other})"
            return text, lambda x, y: wrapped(signs[sign](a(x, y), b(x, y)), bits)
        if kind < 0.75:
            text, a = made(depth - 1)
            return f"-({text})", lambda x, y: wrapped(-a(x, y), bits)
        if kind < 0.85:
            (one, a), (other, b) = made(depth - 1), made(depth - 1)
            return f"({one}) + 1 > ({one}) ? ({other}) : x", lambda x, y: b(x, y) if wrapped(a(x, y) + 1, bits) > a(x, y) else x
        return choose.choice([("x", lambda x, y: x), ("y", lambda x, y: y), ("3" + "ll" * (bits == 64), lambda x, y: 3)])

    text, compute = made(depth)
    return f"({text}) + x - y + x", lambda x, y: wrapped(compute(x, y) + x - y + x, bits)


LINES = {
    "a + 1 > a": lambda a, b: a + 1 > a,
    "a * 2 / 2": lambda a, b: np.trunc((a * 2) / 2.0).astype(a.dtype),
    "-a > 0": lambda a, b: -a > 0,
    "a << b": np.left_shift,
    "a >> b": np.right_shift,
    "a % b": np.fmod,
    "a / b": lambda a, b: (
        np.where(a == np.iinfo(a.dtype).min, b == -1, 0) * a
        + np.where((a == np.iinfo(a.dtype).min) & (b == -1), 0, np.floor_divide(a, b) + ((np.fmod(a, b) != 0) & ((a < 0) != (b < 0))))
    ),
    "abs(a - b) + a": lambda a, b: np.abs(a - b) + a,
    "(short)(a + b) - b": lambda a, b: (a + b).astype(np.int16) - b,
    "(b > 0 ? a : b) * 2147483647 * b": lambda a, b: np.where(b > 0, a, b) * a.dtype.type(2147483647) * b,
}


@pytest.fixture(scope="module")
def lines(new_bench, bound_program):
    bench = new_bench()
    made = {}
    for dtype in SIGNED:
        for number, text in enumerate(LINES):
            line = ss.elementwise(f"y = {text}", name=f"line_{number}", operands=["a", "b"])
            made[text, dtype] = bound_program(bench, line, extremes(dtype))
    for seed in RANDOM:
        dtype = SIGNED[seed % len(SIGNED)]
        line = ss.elementwise(f"z = {random_line(seed, np.iinfo(dtype).bits)[0]}", name=f"line_{seed}", operands=["x", "y"])
        made[seed] = bound_program(bench, line, extremes(dtype))
    bench.finish()
    return made


@pytest.mark.parametrize("dtype", SIGNED)
@pytest.mark.parametrize("text", LINES)
def test_one_lines_of_whole_numbers_are_numpys(lines, text, dtype):
    inputs = extremes(dtype)
    (found,) = lines[text, dtype].run()
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(found, np.asarray(LINES[text](*inputs)).astype(dtype))
    np.testing.assert_array_equal(found, run_reference(lines[text, dtype].program, inputs)[0])


@pytest.mark.parametrize("seed", RANDOM)
def test_random_lines_of_whole_numbers_wrap(lines, seed):
    dtype = SIGNED[seed % len(SIGNED)]
    _, compute = random_line(seed, np.iinfo(dtype).bits)
    inputs = extremes(dtype)
    (found,) = lines[seed].run()
    assert found.tolist() == [compute(int(x), int(y)) for x, y in zip(*inputs, strict=True)]
    np.testing.assert_array_equal(found, run_reference(lines[seed].program, inputs)[0])


def ptx(source):
    """Return what NVRTC makes of a source, as text."""
    nvrtc = pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC's bindings are not installed")
    program = nvrtc.nvrtcCreateProgram(source.code.encode(), b"kernel.cu", 0, [], [])[1]
    (status,) = nvrtc.nvrtcCompileProgram(program, 2, [b"--gpu-architecture=compute_90", b"--std=c++17"])
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS
    text = bytes(nvrtc.nvrtcGetPTXSize(program)[1])
    nvrtc.nvrtcGetPTX(program, text)
    return text.decode()


def instructions(source):
    """Return what the threads of a kernel do."""
    return re.findall(r"^\t([a-z][\w.]*)\s[^\n]*;$", ptx(source), re.MULTILINE)


X = np.ones(1024, np.int32)


@pytest.mark.parametrize("function", [lambda x: (x + 1) > x, ss.elementwise("y = x + 1 > x"), lambda x: ss.ops.sign(ss.ops.abs(x)) >= 0])
def test_a_compiler_for_gpus_cannot_take_it_that_nothing_overflows(traced_sources, function):
    (source,) = traced_sources(ss.program(function, fuse=True), X)
    assert any(each.startswith("ld.global") for each in instructions(source))


@pytest.mark.parametrize("name", ["add", "subtract", "multiply"])
def test_to_wrap_costs_no_instruction(traced_sources, name):
    """Unsigned numbers never overflow, so their kernel has all that is needed."""
    (source,) = traced_sources(getattr(ss.ops, name), X, X)
    plain = source.code.replace(*re.findall(r"return (.*);  // (.*)\n", source.code)[0])
    assert plain != source.code
    assert sorted(instructions(source)) == sorted(instructions(type(source)(source.name, plain)))


def test_nothing_is_warned_of():
    lines = [
        "x / 3u % 2u >> 1u << x",
        "-x / x % x >> x << 2",
        "(x > 2) * true - false",
        "(unsigned char)x * (unsigned long long)x / 3 >> 1",
        "abs((unsigned char)x) + abs(x > 0) + abs(x)",
    ]
    for text in lines:
        image, log = compile_unit(source_of(ss.elementwise(f"y = {text}"), "int32"), "line", "sm_90")
        assert image is not None
        assert log == ""
