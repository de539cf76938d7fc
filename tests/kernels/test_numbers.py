"""The numbers of every element-wise operator in every dtype: the generated source, built for the host, against NumPy and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from tests.operator_numbers import domain_of, ulp_of

import streamscope as ss
from streamscope.errors import ProgramError
from streamscope.kernels.compile.nvrtc import compile_unit
from streamscope.kernels.expression.functions import functions_source
from streamscope.kernels.expression.promotion import promote
from streamscope.ops.operators import OPERATORS
from streamscope.program.reference import run_reference

pytestmark = pytest.mark.slow

FLOATS = ["float16", "float32", "float64"]
DTYPES = [*FLOATS, "int8", "uint8", "int16", "int32", "int64", "uint64", "bool"]
SIZE = 203  # no vector width divides it
# NumPy's vectorised functions, the reference of float64, are off by up to so many units in the last place.
NUMPY_ULP = 4


def takes(name, dtype):
    definition = OPERATORS[name].definition
    try:
        promote(name, definition.like, [np.dtype(dtype)] * len(definition.operands))
    except ProgramError:
        return False
    return not (name == "ldexp" and dtype in FLOATS)


CASES = [(name, dtype) for name in OPERATORS for dtype in DTYPES if takes(name, dtype)]


def ordinary(name, dtype, seed=0):
    """Return values from the operator's domain."""
    generator = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return generator.uniform(*domain_of(name), SIZE).astype(dtype)
    if dtype == "bool":
        return generator.integers(0, 2, SIZE).astype(dtype)
    limits = np.iinfo(dtype)
    low, high = max(limits.min, -40), min(limits.max, 40)
    values = generator.integers(low, high, SIZE, endpoint=True).astype(dtype)
    values[::3] = generator.integers(limits.min, limits.max, SIZE, dtype=dtype, endpoint=True)[::3]
    return values


def special(dtype):
    if np.dtype(dtype).kind == "f":
        limits = np.finfo(dtype)
        return np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1, -1, 0.5, -2.5, 3, limits.max, limits.min, limits.tiny], dtype)
    if dtype == "bool":
        return np.array([False, True])
    limits = np.iinfo(dtype)
    return np.array(sorted({limits.min, limits.max, 0, 1, 2, 7, 8, limits.bits, *([-1, -2] if limits.min < 0 else [])}), dtype)


def operands(name, dtype):
    """Return values of the domain, and every pair of special values."""
    count = len(OPERATORS[name].definition.operands)
    extremes = np.meshgrid(*[special(dtype)] * count)
    return [np.concatenate([ordinary(name, dtype, seed), each.ravel()]) for seed, each in enumerate(extremes)]


@pytest.fixture(scope="module")
def programs(new_bench, bound_program):
    bench = new_bench()
    made = {(name, dtype): bound_program(bench, OPERATORS[name], operands(name, dtype)) for name, dtype in CASES}
    bench.finish()
    return made


def exact(name, arrays, result):
    """Return the result in the widest precision that the reference has."""
    definition = OPERATORS[name].definition
    taken = promote(name, definition.like, [array.dtype for array in arrays]).taken
    wide = [a.astype(np.float64 if t.kind == "f" else t) for a, t in zip(arrays, taken, strict=True)]
    with np.errstate(all="ignore"):
        return np.asarray(definition.reference(*wide)).astype(np.float64 if result.dtype.kind == "f" else result.dtype)


def off_by(result, expected):
    """Return how far results are from the exact ones, in units in the last place of the result's dtype; NaN and infinities must agree."""
    with np.errstate(all="ignore"):
        rounded = expected.astype(result.dtype)
    np.testing.assert_array_equal(np.isnan(result), np.isnan(rounded))
    finite = np.isfinite(result) & np.isfinite(rounded)
    # A result may be rounded to infinity on one side only, from a neighbour of the largest number.
    beside = np.isinf(result) != np.isinf(rounded)
    assert (np.abs(np.where(np.isinf(result), rounded, result)[beside]) > np.finfo(result.dtype).max * 0.999).all()
    np.testing.assert_array_equal(result[~finite & ~beside], rounded[~finite & ~beside])
    with np.errstate(over="ignore"):  # beyond the largest number there is no next one
        unit = np.nan_to_num(np.spacing(np.abs(rounded[finite])).astype(np.float64), posinf=np.inf)
    return np.abs(result[finite].astype(np.float64) - expected[finite]) / unit


@pytest.mark.parametrize("name", OPERATORS)
def test_values(programs, name):
    for dtype in (dtype for operator, dtype in CASES if operator == name):
        try:
            check_values(programs, name, dtype)
        except AssertionError as error:
            raise AssertionError(f"{name} of {dtype}") from error


def check_values(programs, name, dtype):
    program = programs[name, dtype]
    arrays = operands(name, dtype)
    (result,) = program.run()
    (reference,) = run_reference(program.program, arrays)
    assert result.dtype == reference.dtype
    if result.dtype.kind != "f":
        np.testing.assert_array_equal(result, reference)
        return
    definition = OPERATORS[name].definition
    allowed = 0.5 + ulp_of(name) / 8192 if result.dtype == np.float16 else ulp_of(name)
    if definition.half is not None and result.dtype == np.float16:
        allowed = 0.52
    allowed += NUMPY_ULP if result.dtype == np.float64 else 0.5
    within = slice(0, SIZE)
    expected = exact(name, arrays, result)
    assert off_by(result[within], expected[within]).max() <= allowed
    # Among the special values, a function may be near a zero or a pole: NaN, infinities and signs of zero must agree, the rest roughly.
    ends = slice(SIZE, None)
    off_by(result[ends], reference[ends])
    finite = np.isfinite(result) & np.isfinite(reference)
    np.testing.assert_allclose(result[finite], reference[finite], rtol=1e-5 if result.dtype != np.float16 else 2e-3, atol=1e-5)


HALVES = np.arange(2**16, dtype=np.uint16).view(np.float16)


@pytest.fixture(scope="module")
def of_all_halves(new_bench, bound_program):
    bench = new_bench()
    names = [name for name, operator in OPERATORS.items() if operator.definition.half is not None]
    made = {name: bound_program(bench, OPERATORS[name], [HALVES]) for name in names}
    bench.finish()
    return made


@pytest.mark.parametrize("name", ["cos", "erf", "log1p", "sigmoid", "sin"])
def test_what_is_computed_for_half_apart_has_all_its_digits(of_all_halves, name):
    """For each of the 65,536 numbers that there are."""
    (result,) = of_all_halves[name].run()
    with np.errstate(all="ignore"):
        expected = OPERATORS[name].definition.reference(HALVES.astype(np.float64))
    assert off_by(result, expected).max() < 0.52
    zeros = HALVES == 0
    np.testing.assert_array_equal(np.signbit(result[zeros]), np.signbit(expected[zeros]))
    assert sorted(of_all_halves) == ["cos", "erf", "log1p", "sigmoid", "sin"]


def in_place(a, b):
    ss.ops.add(a, b, out=a)
    ss.ops.multiply(a, a, out=b)
    ss.ops.relu(a, out=a)
    ss.ops.subtract(b, a, out=b, request="add")
    return a, b


def in_place_broadcast(a, b):
    ss.ops.multiply(a, b, out=a)
    ss.ops.add_n(a, b, a, out=a)
    return a


NUMBERS = {
    "float32": lambda x: (x + 1, 1 - x, x * 0.1, 2.0 / x, x**2, 2**x, x > 0.5, ss.ops.maximum(x, 1), ss.ops.smooth_l1(x, 0.5)),
    "float16": lambda x: (x + 1, 1 - x, x * 0.1, 2.0 / x, x > 0.5, ss.ops.minimum(0.1, x)),
    "int8": lambda x: (x + 1, 1 - x, x * 3, 2.0 / x, x // 2, 7 % x, x << 1, x == 3, x + 0.5),
    "bool": lambda x: (x + 1, x | True, x * 0.5, x ^ np.True_),
}


@pytest.fixture(scope="module")
def more_programs(new_bench, bound_program):
    bench = new_bench()
    made = []
    for dtype in FLOATS:
        a, b = ordinary("add", dtype), ordinary("add", dtype, 1)
        made += [(bound_program(bench, in_place, [a, b]), [a, b])]
        made += [(bound_program(bench, in_place_broadcast, [a.reshape(7, 29), b[:29]]), [a.reshape(7, 29), b[:29]])]
        made += [(bound_program(bench, ss.ops.add_n, [a] * 40), [a] * 40)]
        made += [(bound_program(bench, ss.ops.exp, [a[0].reshape(())]), [a[0].reshape(())])]
    for dtype, function in NUMBERS.items():
        x = ordinary("power" if dtype != "int8" else "add", dtype)
        made += [(bound_program(bench, function, [x]), [x])]
    leaky = ss.elementwise("y = x > 0 ? x : a * x")
    arrays = [ordinary("add", "float32"), np.full(1, 0.25, np.float16)]
    made += [(bound_program(bench, lambda x, a: (leaky(x, a), leaky(x, 0.1)), arrays), arrays)]
    bench.finish()
    return made


def test_in_place_with_numbers_and_of_one_line(more_programs):
    for program, arrays in more_programs:
        for result, expected in zip(program.run(), run_reference(program.program, arrays), strict=True):
            assert result.dtype == expected.dtype
            np.testing.assert_allclose(result, expected, rtol=2e-3 if result.dtype == np.float16 else 1e-6, err_msg=str(program.program))


EXPONENTS = {
    "3ull": 8,
    "(1ull << 63)": np.inf,
    "4294967295u": np.inf,
    "(unsigned char)3": 8,
    "-3000000000": 0,
    "3000000000": np.inf,
    "-2": 0.25,
}


def test_exponents_of_any_whole_type(new_bench, bound_program):
    bench = new_bench()
    x = np.ones(5, np.float32)
    operators = [ss.elementwise(f"y = scale_by_power(x, {exponent})", name=f"scaled_{n}") for n, exponent in enumerate(EXPONENTS)]
    made = [bound_program(bench, operator, [x]) for operator in operators]
    bench.finish()
    assert [program.run()[0].tolist() for program in made] == [[expected] * 5 for expected in EXPONENTS.values()]
    assert [run_reference(program.program, [x])[0].tolist() for program in made] == [[expected] * 5 for expected in EXPONENTS.values()]


def test_no_exponent_is_warned_of():
    pytest.importorskip("cuda.bindings.nvrtc")
    kinds = ["bool", "char", "unsigned char", "short", "unsigned short", "int", "unsigned", "long long", "unsigned long long"]
    calls = " + ".join(f"scale_by_power(x, ({kind})3)" for kind in kinds)
    code = f"{functions_source([calls])}__device__ void test(float x, double* y) {{ *y = {calls}; }}"
    image, log = compile_unit(code, "exponents", "sm_90")
    assert image is not None
    assert log == ""


WHOLE_LINES = {
    "odd": "y = (k & 1) ? x : 0",
    "both": "y = (k & 1) * x + k * x",
    "shifted": "y = (k >> 1) / 2 + (x > 0 ? x : k)",
    "single": "y = fmaxf(x, k % 3) - fmaf(x, 3, 0.125f)",
    "sign": "y = signbit(x - 1.0f) ^ (int)k",
}


@pytest.mark.parametrize(("whole", "floating"), [("int8", "float16"), ("int32", "float32"), ("int64", "float32")])
def test_lines_of_whole_and_floating_operands_give_what_numpy_does(new_bench, bound_program, whole, floating):
    gradient = {"x": "(k & 1) ? dy : 2 * dy"}
    lines = [ss.elementwise(line, name=name, operands=["k", "x"], gradient=gradient) for name, line in WHOLE_LINES.items()]
    random = np.random.default_rng(1)
    k, x = random.integers(0, 100, SIZE).astype(whole), (random.integers(-99, 99, SIZE) / 8).astype(floating)
    bench = new_bench()
    odd = lines[0]
    program = bound_program(
        bench, lambda k, x: (*(line(k, x) for line in lines), odd(k, 2.5), odd(5, x), odd.gradient(x * k, k, x)[1]), [k, x]
    )
    bench.finish()
    for found, expected in zip(program.run(), run_reference(program.program, [k, x]), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
