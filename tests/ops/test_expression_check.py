"""Expressions that are certainly wrong are told with the place; those that a compiler takes are left alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamscope as ss
from streamscope.errors import ProgramError
from streamscope.ops.expression_check import mistake_in

NAMES, NUMBERS = st.sampled_from(["x", "a", "T", "x1", "_b"]), st.sampled_from(["1", "2.5f", ".5", "1e-3", "0x1F", "3u", "1.5e+4f"])
SIGNS = ("+", "-", "*", "/", "%", "&", "|", "^", "<", ">", "<<", ">>", "&&", "||", "==", "!=", "<=", ">=")
expressions = st.recursive(
    NAMES | NUMBERS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(SIGNS), inner).map(" ".join),
        st.tuples(st.sampled_from("-!~"), inner).map(lambda pair: pair[0] + "(" + pair[1] + ")"),
        st.tuples(inner, inner, inner).map(lambda parts: f"{parts[0]} ? {parts[1]} : {parts[2]}"),
        st.lists(inner, max_size=3).map(lambda parts: f"f({', '.join(parts)})"),
        inner.map(lambda part: f"(int)({part})"),
        inner.map(lambda part: f"(unsigned long long)x + ({part})"),
        inner.map(lambda part: f"std::g<float>({part})"),
    ),
    max_leaves=8,
)


@given(expressions)
def test_what_is_right_is_left_alone(expression):
    assert mistake_in(expression) is None


@pytest.mark.parametrize(
    ("expression", "position", "problem"),
    [
        ("x +", 3, "missing at the end"),
        ("* / x", 2, "missing before '/'"),
        ("x,", 2, "missing at the end"),
        ("x a", 2, "operator is missing before 'a'"),
        ("2 x", 2, "operator is missing before 'x'"),
        ("x ** 2", 2, "no operator **"),
        ("(x + 1", 0, "'(' is not closed"),
        ("x + 1)", 5, "')' closes nothing"),
        ("f(x]", 3, "']' closes nothing"),
        ("x; z = 3", 1, "';' has no place"),
        ("x // why", 2, "'//' has no place"),
        ("x /* a", 2, "'/*' has no place"),
        ("x } garbage {", 2, "'}' has no place"),
        ("x = 3", 2, "'=' changes an operand"),
        ("x += 3", 2, "'+=' changes"),
        ("x++", 1, "'++' changes"),
        ("x > 0 and x < 1", 6, "spelt in letters"),
        ("x if x > 0 else 0", 2, "'if' has no place"),
        ("class + 1", 0, "word of C++"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(expression, position, problem):
    mistake = mistake_in(expression)
    assert problem in mistake.problem
    assert mistake.position == position
    assert mistake.hint
    with pytest.raises(ProgramError) as caught:
        ss.elementwise(f"y = {expression}")
    assert caught.value.message.endswith(f"\n    {expression}\n    {' ' * position}^")


def test_a_gradient_is_looked_at_too():
    with pytest.raises(ProgramError, match=r"missing at the end\n    dy \*\n        \^"):
        ss.elementwise("y = x * x", gradient={"x": "dy *"})


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
                "functions": [5, None],
            }.items()
            for value in values
        ),
    ],
)
def test_wrong_arguments(arguments, options):
    with pytest.raises(ProgramError, match=r"ss\.elementwise"):
        ss.elementwise(*arguments, **options)


def test_functions_end_where_the_kernel_begins():
    operator = ss.elementwise("y = twice(x)", functions="template <class T> __device__ T twice(T x) { return x + x; }  // doubled")
    assert "// doubled\n" in operator.source("float32")
