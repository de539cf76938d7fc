"""What all element-wise operators have in common: dtypes, broadcasting, numbers, requests, Python's operators; by their references."""

from __future__ import annotations

import operator as python
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps
from tests.counting import calls_of

import streamscope as ss
from streamscope.errors import ProgramError
from streamscope.kernels.expression.promotion import promote
from streamscope.ops.operators import OPERATORS
from streamscope.program.reference import run_reference
from streamscope.program.tracer import is_operator

DTYPES = ["float16", "float32", "float64", "int8", "uint8", "int16", "int32", "int64", "uint64", "bool"]
NUMPYS = {name: operator for name, operator in OPERATORS.items() if operator.definition.reference is operator.definition.like}


@given(st.data())
def test_dtypes_are_numpys(data):
    operator = NUMPYS[data.draw(st.sampled_from(sorted(NUMPYS)))]
    function = operator.definition.like
    operands = [
        data.draw(st.one_of(st.sampled_from(DTYPES).map(lambda dtype: np.ones(2, dtype)), st.sampled_from([1, 1.0, True, np.float32(1)])))
        for _ in operator.definition.operands
    ]
    arrays = [operand for operand in operands if isinstance(operand, np.ndarray)]
    if not arrays:
        return
    try:
        with np.errstate(all="ignore"):
            expected = function(*operands)
    except TypeError:
        expected = None

    def program(*variables):
        left = iter(variables)
        return operator(*(next(left) if isinstance(operand, np.ndarray) else operand for operand in operands))

    if expected is None:
        with pytest.raises(ProgramError, match=r"dtypes .* do not fit"):
            ss.program(program).trace(*arrays)
        return
    traced = ss.program(program).trace(*arrays)
    assert traced.variables[traced.outputs[0]].spec.dtype == expected.dtype
    (result,) = run_reference(traced, arrays)
    np.testing.assert_allclose(result, expected, rtol=1e-3)


@given(nps.mutually_broadcastable_shapes(num_shapes=2, max_dims=4, max_side=4, min_side=0))
def test_broadcasting_is_numpys(shapes):
    a, b = (np.arange(np.prod(shape), dtype=np.float32).reshape(shape) for shape in shapes.input_shapes)
    program = ss.program(ss.ops.subtract).trace(a, b)
    assert program.variables[program.outputs[0]].spec.shape == shapes.result_shape
    np.testing.assert_array_equal(run_reference(program, [a, b])[0], a - b)


PYTHONS = [
    python.add, python.sub, python.mul, python.truediv, python.floordiv, python.mod, python.pow,
    python.lt, python.le, python.gt, python.ge, python.eq, python.ne,
]  # fmt: skip
BITS = [python.and_, python.or_, python.xor, python.lshift, python.rshift]


@pytest.mark.parametrize("function", PYTHONS + BITS)
def test_python_operators(evaluate, function):
    dtype = np.int32 if function in BITS else np.float32
    a, b = np.array([1, 5, 7, 3], dtype), np.array([2, 5, 3, 4], dtype)
    for program, expected in [
        (function, function(a, b)),
        (lambda a, b: function(a, 2), function(a, 2)),
        (lambda a, b: function(2, b), function(2, b)),
    ]:
        result = evaluate(program, a, b)
        np.testing.assert_allclose(result, expected, rtol=1e-6)
        assert result.dtype == expected.dtype


@pytest.mark.parametrize(("function", "dtype"), [(python.neg, "f4"), (python.abs, "f4"), (python.invert, "i4"), (python.invert, "?")])
def test_python_operators_of_one_operand(evaluate, function, dtype):
    x = np.array([1, 0, 1], dtype)
    np.testing.assert_array_equal(evaluate(function, x), function(x))


def test_a_comparison_is_a_variable_that_nothing_branches_on():
    with pytest.raises(ProgramError, match="branches on the value of 'equal_0'"):
        ss.program(lambda x: x if x == 1 else -x).trace(np.ones(3))


@pytest.mark.parametrize(
    ("function", "dtype", "expected"),
    [
        (lambda x: x + 1, "int8", "int8"),
        (lambda x: x + 1.5, "int8", "float64"),
        (lambda x: x * 0.1, "float16", "float16"),
        (lambda x: x + True, "int8", "int8"),
        (lambda x: x + np.float64(1), "float32", "float64"),
        (lambda x: x + np.int8(1), "float32", "float32"),
        (lambda x: x / 2, "int32", "float64"),
        (lambda x: x + 1, "bool", "int64"),
        (ss.ops.exp, "int8", "float16"),
        (ss.ops.erf, "float16", "float16"),
        (ss.ops.gamma, "int32", "float64"),
        (ss.ops.relu, "int32", "int32"),
        (lambda x: x < 2, "float16", "bool"),
    ],
)
def test_promotion(evaluate, function, dtype, expected):
    assert evaluate(function, np.ones(3, dtype)).dtype == expected


def test_a_number_is_rounded_to_half_first(evaluate):
    x = np.array([3], np.float16)
    np.testing.assert_array_equal(evaluate(lambda x: x * 0.1, x), x * np.float16(0.1))


@pytest.mark.parametrize(
    ("function", "dtype", "said"),
    [
        (lambda x: x + 300, "uint8", r"add: 300 does not fit uint8.*another dtype, by x.astype\(...\), or a floating-point number"),
        (lambda x: x < -1, "uint8", r"less: -1 does not fit uint8"),
        (lambda x: x * 10**400, "float32", r"multiply: 10+\.\.\.0+ does not fit float32"),
        (lambda x: x * -(10**5000), "int64", r"multiply: <int.* does not fit int64"),
        (lambda x: x**-1, "int32", r"power: whole numbers to the power of -1.*floating-point exponent"),
        (lambda x: -x, "bool", r"negative: dtypes bool do not fit"),
        (lambda x: x - x, "bool", r"subtract: dtypes bool, bool do not fit"),
        (lambda x: x & 1, "float32", r"bitwise_and: dtypes float32, int do not fit"),
        (lambda x: ss.ops.ldexp(x, x), "float32", r"ldexp: dtypes float32, float32 do not fit"),
        (lambda x: ss.ops.gcd(x, 2), "float32", r"gcd: dtypes float32, int do not fit"),
        (lambda x: ss.ops.add(x, 1, request="sub"), "float32", r"request='sub' is unknown.*write, add, null"),
        (lambda x: ss.ops.add(x, 1, request="add"), "float32", r"request='add' needs a variable.*out="),
        (lambda x: ss.ops.add(x, 1, 2), "float32", r"add: it takes 2 operands \(a, b\), got 3 at test_operators\.py:\d+$"),
        (lambda x: ss.ops.add(1, 2), "float32", r"add: all operands are numbers"),
        (lambda x: ss.ops.add(x, [1, 2]), "float32", r"add at .* got a list instead of a variable"),
        (lambda x: x + 1j, "float32", r"add at .* got a complex instead of a variable"),
        (lambda x: ss.ops.add(x, x, out=ss.empty(4)), "float32", r"out= of add .* is float32\[4\], but the result is float32\[3\]"),
    ],
)
def test_misuse(function, dtype, said):
    with pytest.raises(ProgramError, match=said) as caught:
        ss.program(function).trace(np.ones(3, dtype))
    followed = re.search(r"x\.astype\('(\w+)'\)", str(caught.value))
    if followed is not None:
        ss.program(function).trace(np.ones(3, followed[1]))


def test_whole_numbers(evaluate):
    a = np.array([7, -7, 7, -7, 5, -128, 0, 2, -1, 2], np.int8)
    b = np.array([2, 2, -2, -2, 0, -1, 0, -1, -3, 7], np.int8)
    results = evaluate(lambda a, b: (a // b, a % b, ss.ops.fmod(a, b), a**b, a << b, a >> b), a, b)
    expected = [
        [3, -4, -4, 3, 0, -128, 0, -2, 0, 0],
        [1, 1, -1, -1, 0, 0, 0, 0, -1, 2],
        [1, -1, 1, -1, 0, 0, 0, 0, -1, 2],
        [49, 49, 0, 0, 1, 0, 1, 0, -1, -128],
        [28, -28, 0, 0, 5, 0, 0, 0, 0, 0],
        [1, -2, 0, -1, 5, -1, 0, 0, -1, 0],
    ]
    for result, values in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, values)


def test_requests(evaluate):
    def program(x, y):
        ss.ops.multiply(x, 3, out=y, request="add")
        ss.ops.add(x, x, out=y, request="null")
        return y

    x, y = np.array([1, 2], np.float16), np.array([10, 20], np.float16)
    np.testing.assert_array_equal(evaluate(program, x, y), [13, 26])
    traced = ss.program(program).trace(x, y)
    (operation,) = traced.operations
    assert (operation.reads, operation.writes) == ((0, 1), (1,))
    assert operation.attributes == {"scalars": {"b": 3}, "request": "add"}


def test_adding_to_half_rounds_once(evaluate):
    # Beside 2048, halves are 2 apart: a product a little above 1 takes the sum to 2050; rounded first to 1, it would leave 2048.
    x, y = np.array([1.0009765625], np.float16), np.array([2048], np.float16)
    z = np.array([0.99951171875], np.float16)
    assert float(x[0]) * float(z[0]) > 1
    assert x[0] * z[0] == 1
    np.testing.assert_array_equal(evaluate(lambda x, z, y: ss.ops.multiply(x, z, out=y, request="add"), x, z, y), [2050])


def test_null_checks_its_operands():
    with pytest.raises(ProgramError, match="do not broadcast"):
        ss.program(lambda x, y: ss.ops.add(x, y, out=x, request="null")).trace(np.ones(3), np.ones(4))


def test_gradients_of_add_n_and_bias_add(evaluate):
    dy, row = np.arange(12.0).reshape(3, 4), np.ones(4)
    first, second, third = evaluate(ss.ops.add_n.gradient, dy, dy, row, row)
    np.testing.assert_array_equal(first, dy)
    np.testing.assert_array_equal(second, dy.sum(axis=0))
    np.testing.assert_array_equal(third, second)
    for gradient in evaluate(ss.ops.add_n.gradient, *[row] * 41):
        np.testing.assert_array_equal(gradient, row)
    dx, dbias = evaluate(ss.ops.bias_add.gradient, dy, dy, row)
    np.testing.assert_array_equal(dx, dy)
    np.testing.assert_array_equal(dbias, dy.sum(axis=0))
    with pytest.raises(ProgramError, match="bias_add: bias of shape"):
        evaluate(ss.ops.bias_add.gradient, dy, dy, np.ones(3))


@pytest.mark.parametrize(
    ("out", "expected"),
    [
        (lambda d, x, y: (d, None), (3, 2)),  # y's is computed first, since it reads d
        (lambda d, x, y: (None, d), (3, 2)),
        (lambda d, x, y: (y, x), (3, 2)),
        (lambda d, x, y: (None, None), (3, 2)),
    ],
)
def test_gradients_may_go_to_operands(evaluate, out, expected):
    d, x, y = (np.full(3, value) for value in (1.0, 2.0, 3.0))
    for found, value in zip(evaluate(lambda *of: ss.ops.multiply.gradient(*of, out=out(*of)), d, x, y), expected, strict=True):
        np.testing.assert_array_equal(found, np.full(3, value))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (lambda d, x, y: {"out": (x, y)}, "out= names operands that other gradients read"),
        (lambda d, x, y: {"out": d}, "out= names 1 variable for 2 gradients"),
        (lambda d, x, y: {"out": (d, d)}, "out= names one variable for two gradients"),
        (lambda d, x, y: {"out": (d,)}, "out= names 1 variable for 2 gradients"),
        (lambda d, x, y: {"request": "take"}, "request='take' is unknown"),
        (lambda d, x, y: {"request": "null"}, "request='null' needs a variable"),
    ],
)
def test_gradients_that_cannot_go_where_they_should(options, problem):
    d = np.ones(3)
    with pytest.raises(ProgramError, match=problem):
        ss.program(lambda *of: ss.ops.multiply.gradient(*of, **options(*of))).trace(d, d, d)


def test_null_leaves_where_a_gradient_would_go(evaluate, launches):
    x, before = np.full(3, 2.0), np.full(3, 99.0)

    def function(d, x, out):
        assert ss.ops.exp.gradient(d, x, out=out, request="null") is out
        return out * 1.0

    np.testing.assert_array_equal(evaluate(function, x, x, before), before)
    assert len(launches(function, x, x, before)) == 1


@pytest.mark.parametrize(
    ("operator", "operands", "expected"),
    [
        (ss.ops.divide, (1e30, 1e20), (1e-20, -1e-10)),  # b * b would overflow
        (ss.ops.divide, (1e-30, 1e-23), (1e23, -1e16)),
        (ss.ops.arctan2, (1e-23, 1e-23), (5e22, -5e22)),
        (ss.ops.arctan2, (3e30, 4e30), (1.6e-31, -1.2e-31)),
        (ss.ops.arcsinh, (1e20,), (1e-20,)),
        (ss.ops.arccosh, (1e20,), (1e-20,)),
        (ss.ops.power, (0.0, 0.0), (0.0, 0.0)),
        (ss.ops.power, (0.0, 1.0), (1.0, 0.0)),
        (ss.ops.power, (2.0, 3.0), (12.0, 8 * np.log(2.0))),
    ],
)
def test_gradients_of_large_and_small_numbers(evaluate, operator, operands, expected):
    arrays = [np.full(1, value, np.float32) for value in (1.0, *operands)]
    found = evaluate(operator.gradient, *arrays)
    np.testing.assert_allclose([array[0] for array in found] if len(operands) > 1 else found, expected, rtol=1e-6)


def test_requests_of_add_n_and_bias_add(evaluate):
    row, before = np.ones(4), np.full(4, 10.0)
    np.testing.assert_array_equal(evaluate(lambda a, b: ss.ops.add_n(a, a, a, out=b, request="add"), row, before), before + 3)
    np.testing.assert_array_equal(evaluate(lambda a, b: ss.ops.add_n(*[a] * 70, out=b, request="add"), row, before), before + 70)
    np.testing.assert_array_equal(evaluate(lambda a, b: ss.ops.bias_add(a, a, out=b, request="add"), row, before), before + 2)


def test_add_n(evaluate):
    arrays = [np.full(3, index, np.float16) for index in range(70)]
    np.testing.assert_array_equal(evaluate(ss.ops.add_n, *arrays), np.full(3, sum(range(70)), np.float16))
    np.testing.assert_array_equal(evaluate(lambda *xs: ss.ops.add_n(*xs, out=xs[69]), *arrays), np.full(3, sum(range(70)), np.float16))
    np.testing.assert_array_equal(evaluate(ss.ops.add_n, arrays[4]), arrays[4])
    # Half is added up in float: 2049 additions of 1 to 2048 one by one would leave 2048.
    ones = [np.full(1, 2048, np.float16), *[np.ones(1, np.float16)] * 4]
    np.testing.assert_array_equal(evaluate(ss.ops.add_n, *ones), [2052])
    with pytest.raises(ProgramError, match="add_n: nothing to add"):
        evaluate(lambda x: ss.ops.add_n(), arrays[0])


def test_every_name_is_listed():
    public = {name for name in dir(ss.ops) if name in OPERATORS}
    assert public == set(OPERATORS)
    assert all(getattr(ss.ops, name) is operator and operator.__name__ == name for name, operator in OPERATORS.items())


def test_promotion_of_more_operands_than_the_function_has():
    assert promote("add_n", np.add, [np.dtype("float16"), int, np.dtype("int8")]).result == "float16"


def test_to_trace_an_operation_is_as_much_work_in_a_long_program():
    def trace(count):
        def chain(x):
            for _ in range(count):
                x = x * 2.0 + x
            return x

        ss.program(chain).trace(np.ones((3, 4), np.float32))

    trace(1)
    assert calls_of(trace, 400) < 5 * calls_of(trace, 100)


def test_every_name_of_ops_is_marked_as_an_operator():
    assert [name for name in ss.ops.__all__ if not is_operator(getattr(ss.ops, name))] == []


def test_what_is_made_of_operators_is_one_and_a_plain_function_is_not():
    assert is_operator(ss.ops.softmax.gradient)
    assert is_operator(ss.program(lambda x: x + x))
    assert is_operator(ss.host_function(lambda x: x))
    assert is_operator(ss.elementwise("y = x / 2"))
    assert is_operator(ss.operator(lambda x, y: None, reads=["x"], writes=["y"]))
    assert not any(map(is_operator, (lambda x: x + x, np.add, "add".upper, None)))


def test_an_operator_pushed_with_host_variables_is_no_host_function():
    with ss.Engine("sync", device="simulated") as engine:
        x = engine.variable(np.ones(3), place="host")
        engine.push(np.negative, reads=(x,), writes=(x,))
        assert list(engine.read(x)) == [-1, -1, -1]
        engine.push(ss.ops.negative, reads=(x,), writes=(x,))
        with pytest.raises(ProgramError, match="host memory"):
            engine.wait_all()
