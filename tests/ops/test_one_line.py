"""Operators of the user's own from one line of CUDA."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ops.conftest import has_reference
from tests.sources import source_of

import streamscope as ss
from streamscope.errors import ProgramError
from streamscope.kernels.expression.expressions import compiled, names_in
from streamscope.kernels.expression.functions import UnknownExpressionError
from streamscope.ops.one_line import DEEPEST

LEAKY = "y = x > 0 ? x : a * x"


def test_one_line_is_an_operator(evaluate):
    leaky = ss.elementwise(LEAKY, name="leaky_relu", gradient={"x": "x > 0 ? dy : a * dy", "a": "x > 0 ? T(0) : dy * x"})
    x, a = np.array([[1, -2, 3], [-4, 5, -6]], np.float32), np.array([0.5, 0.25, 0.125], np.float16)
    results = evaluate(lambda x, a: (leaky(x, a), *leaky.gradient(x, x, a), leaky(x, 0.5)), x, a)
    assert [result.dtype.name for result in results] == ["float32", "float32", "float16", "float32"]
    np.testing.assert_array_equal(results[0], np.where(x > 0, x, a * x))
    np.testing.assert_array_equal(results[1], np.where(x > 0, x, a * x))
    np.testing.assert_array_equal(results[2], np.where(x > 0, 0, x * x).sum(axis=0))
    np.testing.assert_array_equal(results[3], np.where(x > 0, x, x / 2))
    assert "leaky_relu_float32_x4_" in source_of(leaky, "float32", 0.5)


def test_operands_in_another_order_and_other_dtypes(evaluate):
    scaled = ss.elementwise("z = b * sqrt(x)", operands=["x", "b"], like=np.arctan2)
    np.testing.assert_allclose(evaluate(scaled, np.array([4, 9]), np.array([2.0, 1.0])), [4, 3])
    above = ss.elementwise("y = a > b", like=np.less)
    assert evaluate(above, np.ones(2), np.zeros(2)).dtype == np.bool_


def test_what_cannot_be_evaluated_here_runs_on_cuda_only():
    assert not has_reference(ss.program(ss.elementwise("y = __sinf(x)")).trace(np.ones(3, np.float32)))
    assert has_reference(ss.program(ss.elementwise("y = __sinf(x)", reference=np.sin)).trace(np.ones(3)))


@pytest.mark.parametrize(
    ("line", "options", "said"),
    [
        ("x + 1", {}, r"'x \+ 1' is not an assignment.*y = a \* x \+ b"),
        ("y == x", {}, "is not an assignment"),
        ("y = 1", {}, "has no operands"),
        ("y = x + y", {}, "'y' is the result and an operand"),
        ("y = blockIdx * x", {}, "'blockIdx' cannot be a name of an operand"),
        ("y = a * x", {"operands": ["x"]}, "a is not an operand.*operands are x"),
        ("y = a * x", {"operands": ["x", "x", "a"]}, "not different"),
        ("y = a * x", {"gradient": {"b": "dy"}}, "gradient of b, which is not an operand"),
        ("y = a * x", {"gradient": {"a": "dz * x"}}, "the gradient of a names dz.*it may name a, dy, x, y"),
        ("y = x", {"name": "not a name"}, "must be an identifier"),
        ("y = x; z = 3", {}, "';' has no place in 'x; z = 3'"),
        ("y = x // twice", {}, "'//' has no place in"),
        ("y = x * x", {"gradient": {"x": "dy * x }"}}, "'y', gradient of x: '}' has no place in"),
        ("y = class + x", {}, "'class' cannot be a name of an operand"),
        ("y = x * x", {"gradient": {"x": "2 * x"}}, r"the gradient of x does not name dy.*dy \* \(2 \* x\)"),
        ("y = x * x", {"like": np.divmod}, "like=.* is not a NumPy function with dtypes"),
    ],
)
def test_misuse(line, options, said):
    with pytest.raises(ProgramError, match=said):
        ss.elementwise(line, **options)


@pytest.mark.parametrize(
    ("line", "expression"),
    [
        ("y = x + a", "x + a"),
        ("  y\n=\n x  +\ta ; \n", "x  + a"),
        ("y=x+a;", "x+a"),
        (f"y = x +{' ' * 20_000}a", f"x +{' ' * 20_000}a"),
        (f"{' ' * 20_000}y{' ' * 20_000}={' ' * 20_000}x + a{' ' * 20_000};{' ' * 20_000}", "x + a"),
    ],
)
def test_spaces_around_an_expression_mean_nothing(evaluate, line, expression):
    operator = ss.elementwise(line)
    assert operator.definition.expression == expression
    assert evaluate(operator, np.ones(2), np.ones(2)).tolist() == [2, 2]


@pytest.mark.parametrize("line", ["y =", "y = ", "y = ;", "y = \n ; ", f"y{' ' * 20_000}+ x"])
def test_an_assignment_of_nothing(line):
    with pytest.raises(ProgramError, match="is not an assignment"):
        ss.elementwise(line)


def test_operators_without_a_gradient():
    for apply in (ss.elementwise("y = x * x").gradient, ss.ops.isnan.gradient):
        with pytest.raises(ProgramError, match="it has no gradient"):
            ss.program(apply).trace(np.ones(3), np.ones(3))


def test_a_gradient_must_fit():
    with pytest.raises(ProgramError, match=r"the result's gradient has shape \(4,\), the result \(3,\)"):
        ss.program(ss.ops.exp.gradient).trace(np.ones(4), np.ones(3))
    with pytest.raises(ProgramError, match="the result's gradient is int32"):
        ss.program(ss.ops.exp.gradient).trace(np.ones(3, np.int32), np.ones(3))


def test_operands_that_are_numbers_or_whole_have_no_gradient():
    kept = []
    ss.program(lambda dy, x: kept.append(ss.ops.multiply.gradient(dy, x, 2.0)) or dy).trace(np.ones(3), np.ones(3))
    ss.program(lambda dy, x, n: kept.append(ss.ops.ldexp.gradient(dy, x, n)) or dy).trace(np.ones(3), np.ones(3), np.ones(3, np.int32))
    for first, second in kept:
        assert first is not None
        assert second is None


def test_a_gradient_reads_only_what_it_needs():
    program = ss.program(lambda dy, a, b: (*ss.ops.add.gradient(dy, a, b), *ss.ops.multiply.gradient(dy, a, b))).trace(*[np.ones(3)] * 3)
    assert [operation.reads for operation in program.operations] == [(0,), (0,), (0, 2), (0, 1)]


def test_names():
    assert names_in("x > 0 ? x : a * T(0.5) * exp(-b) + 1e5 * 0x1f + (float)c") == ["x", "a", "b", "c"]


# Each means in C what eval() makes of its Python form.
EXPRESSIONS = [
    ("a + b * c", "a + b * c"),
    ("(a + b) * c", "(a + b) * c"),
    ("a - b - c", "a - b - c"),
    ("-a * b", "-a * b"),
    ("a < b ? a : b < c ? b : c", "a if a < b else b if b < c else c"),
    ("a < b && b < c || a == c", "a < b and b < c or a == c"),
    ("(a > b) - (a < b)", "(a > b) - (a < b)"),
    ("!(a < b)", "not (a < b)"),
    ("fabs(a) + max(b, c)", "abs(a) + max(b, c)"),
    ("1.5f * a + .5 * b - 2e-1", "1.5 * a + .5 * b - 2e-1"),
]


@given(st.sampled_from(EXPRESSIONS), st.lists(st.integers(-9, 9), min_size=3, max_size=3))
def test_expressions_are_evaluated_as_c_does(expression, values):
    c_form, python_form = expression
    named = dict(zip("abc", map(float, values), strict=True))
    arrays = {name: np.array([value]) for name, value in named.items()}
    assert compiled(c_form)(arrays)[0] == eval(python_form, {}, named)


@given(st.integers(-50, 50), st.integers(-9, 9).filter(bool))
def test_whole_numbers_are_divided_towards_zero(a, b):
    values = {"a": np.array([a]), "b": np.array([b])}
    assert compiled("a / b")(values)[0] == int(a / b)
    assert compiled("a % b")(values)[0] == a - int(a / b) * b
    assert compiled("a << 2 | 1 ^ a & 3")(values)[0] == a << 2 | 1 ^ a & 3


@pytest.mark.parametrize("expression", ["f(a)", "a +", "a b", "(a", "a ? b", "a[0]", "a = b", "", "exp(a", "a.x", "@", "int", "exp(a, a)"])
def test_what_is_no_expression(expression):
    with pytest.raises(UnknownExpressionError):
        compiled(expression)


@pytest.mark.parametrize(
    ("line", "dtype", "x", "a", "expected"),
    [
        ("y = (x + a) / 2", np.int8, 100, 100, 100),  # 200 fits into C's int
        ("y = (x * a) >> 8", np.uint8, 200, 100, 78),
        ("y = -x + a", np.uint8, 3, 4, 1),
        ("y = (x << 10) >> 10", np.int8, 5, 0, 5),
        ("y = x * a / a", np.int16, 30000, 7, 30000),
        ("y = max(x, a)", np.float32, np.nan, 2.0, 2.0),  # CUDA's of two floats is fmaxf
        ("y = min(x, a)", np.float32, 2.0, np.nan, 2.0),
    ],
)
def test_short_numbers_are_promoted_as_in_c(evaluate, line, dtype, x, a, expected):
    operator = ss.elementwise(line, operands=["x", "a"])
    found = evaluate(operator, np.array([x], dtype), np.array([a], dtype))
    assert (found.dtype, found.tolist()) == (np.dtype(dtype), [expected])


def test_an_expression_need_not_name_all_operands(evaluate):
    x, a = np.ones((3, 1), np.float32), np.ones(4, np.float32)
    np.testing.assert_array_equal(evaluate(ss.elementwise("y = x", operands=["x", "a"]), x, a), np.ones((3, 4)))
    np.testing.assert_array_equal(evaluate(ss.elementwise("y = T(2)", operands=["x"]), a), [2, 2, 2, 2])


def test_the_type_of_arithmetic_is_that_of_the_first_operand(evaluate):
    scaled = ss.elementwise("y = T(1) / 3 * x + 0 * e", operands=["x", "e"], like=np.ldexp)
    (third,) = evaluate(scaled, np.ones(1, np.float32), np.ones(1, np.int32))
    assert third == np.float32(1) / np.float32(3)


ODD = "y = (k & 1) ? x : 0"


@pytest.mark.parametrize("whole", [np.int8, np.uint8, np.int16, np.int32, np.int64])
@pytest.mark.parametrize("floating", [np.float16, np.float32, np.float64])
def test_whole_numbers_stay_whole_beside_floating_ones_where_the_line_needs_it(evaluate, whole, floating):
    odd = ss.elementwise(ODD, gradient={"x": "(k & 1) ? dy : 0"})
    k, x = np.arange(-3, 4).astype(whole), np.linspace(-1, 1, 7).astype(floating)
    found, gradient = evaluate(lambda k, x: (odd(k, x), odd.gradient(odd(k, x), k, x)[1]), k, x)
    assert found.dtype == np.result_type(whole, floating)
    np.testing.assert_array_equal(found, np.where(k % 2 == 1, x, 0))
    np.testing.assert_array_equal(gradient, found.astype(floating))


def test_numbers_of_python_and_numpy_stay_whole_too(evaluate):
    odd, x, k = ss.elementwise(ODD), np.array([0.5, 2.5], np.float32), np.array([1, 2], np.int32)
    assert evaluate(lambda x: (odd(3, x), odd(4, x)), x)[0].tolist() == [0.5, 2.5]
    assert evaluate(lambda x: odd(np.int32(3), x), x).tolist() == [0.5, 2.5]
    assert evaluate(lambda k: odd(k, 2.5), k).tolist() == [2.5, 0]
    masked = ss.elementwise("y = (k & m) ? x : 0", operands=["k", "m", "x"])
    assert evaluate(lambda k, x: masked(k, 2, x), k, x).tolist() == [0, 2.5]
    assert "int m, double x" in source_of(masked, "int32", 2, "float32")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("y = (k & 1) * x + k * x", [4194304.5, 1.0]),  # k meets x in double, which NumPy makes of int32 and float32
        ("y = (k % 2 == 0 ? 0 : k) * x", [4194304.25, 0.75]),
        ("y = (k >> 1) / 2 + x", [4194304.25, 0.25]),  # the quotient is whole
        ("y = k / 2 + x", [8388608.75, 1.75]),  # no operator of whole numbers: all are double
        ("y = T(1) / 2 + (k & 1) - 1 + x", [0.75, 0.75]),  # T is double, too
        ("y = max((k & 1) * x, x)", [0.25, 0.25]),
    ],
)
def test_what_whole_numbers_and_floating_ones_make_together(evaluate, line, expected):
    k, x = np.array([2**24 + 1, 3], np.int32), np.full(2, 0.25, np.float32)
    found = evaluate(ss.elementwise(line, operands=["k", "x"]), k, x)
    assert (found.dtype, found.tolist()) == (np.dtype(np.float64), expected)


def test_gradients_of_a_line_may_be_returned_as_they_are(evaluate):
    leaky = ss.elementwise(LEAKY, gradient={"x": "x > 0 ? dy : a * dy"})
    x, a = np.array([1, -2], np.float32), np.array([0.5, 0.5], np.float32)
    (found,) = evaluate(lambda x, a: leaky.gradient(x, x, a), x, a)
    np.testing.assert_array_equal(found, [1, -1])


def test_long_sums_and_chains_are_evaluated(evaluate):
    x = np.array([1, -1], np.int32)
    many = 1300
    for expression, expected in [
        (" + ".join(["x"] * many), [many, -many]),
        (" - ".join(["x * 2"] * many), [2 * (2 - many), -2 * (2 - many)]),
        ("!" * DEEPEST + "x", [1, 1]),
        (" -" * DEEPEST + "x", [1, -1]),
        ("(" * DEEPEST + "x" + ")" * DEEPEST, [1, -1]),
        ("(int)" * DEEPEST + "x", [1, -1]),
        ("x > 1 ? 5 : " * many + "x", [1, -1]),
    ]:
        assert evaluate(ss.elementwise(f"y = {expression}", name="long_one"), x).tolist() == expected


@pytest.mark.parametrize(("opening", "closing"), [("(", ")"), ("abs(", ")"), ("x ? (", ") : x"), ("static_cast<int>(", ")")])
def test_what_is_nested_too_deeply_is_refused_before_a_compiler_sees_it(opening, closing):
    expression = opening * (DEEPEST + 1) + "x" + closing * (DEEPEST + 1)
    for line, gradient in [(f"y = {expression}", None), ("y = x * a", {"x": f"dy * {expression}"})]:
        with pytest.raises(ProgramError, match=f"nested {DEEPEST + 1} levels deep, and the most is {DEEPEST}"):
            ss.elementwise(line, operands=["x", "a"], gradient=gradient)


def test_what_is_nested_too_deeply_for_pythons_stack_is_unknown():
    with pytest.raises(UnknownExpressionError, match="nested too deeply"):
        compiled("(" * 3000 + "x" + ")" * 3000)


def test_a_sum_of_400_kb_is_refused_at_once():
    with pytest.raises(ProgramError, match=r"the expression has more than 8,000 words") as caught:
        ss.elementwise("y = " + " + ".join(["x"] * 100_000))
    assert len(caught.value.message) < 1000


@pytest.mark.parametrize(
    "expression",
    [
        "std::sqrt(x)",
        "std :: sqrt(x)",
        "::exp(x)",
        "x > 0 ? x : ::exp(x)",
        "x * std::numbers::pi",
        "static_cast<int>(x)",
        "static_cast<unsigned long long>(x) + static_cast<T>(1)",
        "(size_t)x",
        "size_t(x) / sizeof(T)",
        "x + sizeof x",
        "rounded<float>(x)",
        "rounded<int, const float>(x) < x",
    ],
)
def test_words_that_are_no_operands(expression):
    assert ss.elementwise(f"y = {expression}").definition.operands == ("x",)


def test_what_is_like_a_template_names_operands():
    assert ss.elementwise("y = x < T(a) && b > (c)").definition.operands == ("x", "a", "b", "c")


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ((5,), {}),
        ((None,), {}),
        *(
            (("y = x",), {argument: value})
            for argument, values in {
                "name": [5, ""],
                "operands": [3, "x"],
                "gradient": [["x"], {"x": 1}],
                "reference": [3],
                "like": ["exp", sum],
            }.items()
            for value in values
        ),
    ],
)
def test_wrong_arguments(arguments, options):
    with pytest.raises(ProgramError, match=r"ss\.elementwise"):
        ss.elementwise(*arguments, **options)


@pytest.mark.parametrize("sign", ["%", "&", "|", "^", "<<", ">>"])
def test_operators_of_whole_numbers_have_no_meaning_in_numpy_for_others(evaluate, sign):
    operator = ss.elementwise(f"y = x {sign} a")
    assert evaluate(operator, np.ones(3, np.int16), np.ones(3, np.int16)).dtype == np.int16
    with pytest.raises(ProgramError, match=f"C\\+\\+ has {re.escape(sign)} for whole numbers only, not for float32"):
        evaluate(operator, np.ones(3, np.float32), np.ones(3, np.float32))
