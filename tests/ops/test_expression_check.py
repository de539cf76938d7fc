"""Expressions that are certainly wrong are told with the place; those that a compiler takes are left alone."""

from __future__ import annotations

import re
import sys
from unittest.mock import ANY

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamscope as ss
from streamscope.errors import ProgramError
from streamscope.ops import known_functions
from streamscope.ops.expression_check import mistake_in
from streamscope.ops.expressions import mistake_for
from streamscope.ops.tokens import WORDS_OF_TYPES
from streamscope.rtc.nvrtc import compile_unit, supported_architectures
from streamscope.rtc.signature import KEYWORDS

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
        ("x > 0 ? x", 6, "'?' has no ':'"),
        ("x > 0 ? x > 1 ? 1 : 2", 6, "'?' has no ':'"),
        ("exp(x ? 1) + (x)", 6, "'?' has no ':'"),
        ("x > 0 : x", 6, "':' has no '?'"),
        ("(x ? 1 : 2 : 3)", 11, "':' has no '?'"),
        ("x + int", 4, "'int' is a type, not a value"),
        ("(x & 1) + unsigned", 10, "'unsigned' is a type"),
        ("x * T + 1", 4, "'T' is a type"),
        ("max(x, float)", 7, "'float' is a type"),
        ("x + sizeof", 10, "missing at the end"),
        ("(sizeof) + x", 7, "missing before ')'"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(expression, position, problem):
    mistake = mistake_in(expression) or mistake_for(expression, (("x", np.dtype(np.int32)),))
    assert problem in mistake.problem
    assert mistake.position == position
    assert mistake.hint
    with pytest.raises(ProgramError) as caught:
        ss.elementwise(f"y = {expression}")
    assert caught.value.message.endswith(f"\n    {expression}\n    {' ' * position}^")


@pytest.mark.parametrize(
    ("expression", "position", "hint"),
    [
        ("foo(x)", 0, "define it in functions="),
        ("1 + tahn (x)", 4, "did you mean tanh?"),
        ("arctan(x)", 0, "did you mean atan?"),
        ("power(x, 2)", 0, "did you mean pow?"),
        ("x(2)", 0, "x is an operand; write x * (...) for a product"),
    ],
)
def test_unknown_functions_are_told_with_what_may_be_meant(expression, position, hint):
    with pytest.raises(ProgramError, match="CUDA has no function") as caught:
        ss.elementwise(f"y = {expression}", operands=["x"])
    assert caught.value.message.endswith(f"\n    {expression}\n    {' ' * position}^")
    assert caught.value.hint == hint


@pytest.mark.parametrize("function", ["__sinf", "__popc", "normcdff", "clock64", "own", "float", "T", "whole_modulo"])
def test_functions_that_cuda_may_have_are_let_through(function):
    ss.elementwise(f"y = {function}(x)", functions="#define own(x) x" if function == "own" else "")


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
    operator = ss.elementwise(f"y = {expression}", functions="#define unused")
    assert operator.definition.operands == ("x",)
    if "rounded" not in expression:
        assert ss.elementwise(f"y = {expression}").definition.operands == ("x",)


def test_what_is_like_a_template_names_operands():
    assert ss.elementwise("y = x < T(a) && b > (c)").definition.operands == ("x", "a", "b", "c")


def test_without_nvrtc_only_what_it_certainly_lacks_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    known_functions._declares.cache_clear()
    supported_architectures.cache_clear()
    ss.elementwise("y = __some_new_one(x)")
    with pytest.raises(ProgramError, match="no function clock63"):
        ss.elementwise("y = clock63(x)")


def test_nvrtc_is_asked_again_once_it_is_there(monkeypatch):
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC's bindings are not installed")
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "cuda.bindings", None)
        supported_architectures.cache_clear()
        ss.elementwise("y = __still_none(x)")
    with pytest.raises(ProgramError, match="no function __still_none"):
        ss.elementwise("y = __still_none(x)")


def test_nvrtc_is_asked_for_an_architecture_that_it_has(monkeypatch):
    asked = []
    monkeypatch.setattr(known_functions, "supported_architectures", lambda: ("sm_90", "sm_999"))
    monkeypatch.setattr(known_functions, "compile_unit", lambda *arguments: (asked.append(arguments[2]), ""))
    known_functions._declares.cache_clear()
    known_functions._nvrtc_declares("__one")
    known_functions._declares.cache_clear()
    assert asked == ["sm_999"]


def test_cuda_has_the_functions_that_are_taken_for_its_own():
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC's bindings are not installed")
    asked = "\n".join(f"using ::{name};" for name in sorted(known_functions._CUDA))
    assert compile_unit(f"namespace asked {{\n{asked}\n}}", "asked", "sm_90") == (ANY, "")


def test_who_gives_a_reference_answers_for_the_functions():
    ss.elementwise("y = foo(x)", reference=np.negative)


@pytest.mark.parametrize(
    ("gradient", "said"),
    [
        ("dy *", r"missing at the end\n    dy \*\n        \^"),
        ("x ? dy", r"'\?' has no ':'\n    x \? dy\n      \^"),
        ("dy * foo(x)", r"no function foo\n    dy \* foo\(x\)\n         \^"),
        ("dy * 08", r"makes it octal\n    dy \* 08\n         \^"),
        ("exp(dy, x)", r"exp takes 1 argument, got 2\n    exp\(dy, x\)\n    \^"),
        ("dy % 2", r"% for whole numbers only, not for float32\n    dy % 2\n       \^"),
        ("dy & 1", r"& for whole numbers only, not for float32\n    dy & 1\n       \^"),
    ],
)
def test_a_gradient_is_looked_at_too(gradient, said):
    with pytest.raises(ProgramError, match=rf"^ss\.elementwise 'y', gradient of x: .*{said}"):
        ss.elementwise("y = x * x", gradient={"x": gradient})


@pytest.mark.parametrize(
    ("expression", "sign", "hint"),
    [
        ("x % 2.5", "%", "fmod"),
        ("x % (a + 1e3)", "%", "fmod"),
        ("x & 1.f", "&", "&& is logical"),
        ("~(x / 2.0)", "~", "! is logical"),
        ("sqrt(x) ^ 2", "^", "pow"),
        ("(float)x << 2", "<<", "ldexp"),
    ],
)
def test_operators_of_whole_numbers_beside_others(expression, sign, hint):
    with pytest.raises(ProgramError, match=f"C\\+\\+ has {re.escape(sign)} for whole numbers only, not for float(32|64)") as caught:
        ss.elementwise(f"y = {expression}")
    assert caught.value.message.endswith(f"\n    {expression}\n    {' ' * expression.index(sign)}^")
    assert hint in caught.value.hint


@pytest.mark.parametrize("sign", ["%", "&", "|", "^", "<<", ">>"])
def test_what_operators_of_whole_numbers_are_applied_to(sign):
    operator = ss.elementwise(f"y = x {sign} a")
    whole, half = np.ones(3, np.int16), np.ones(3, np.float16)
    ss.program(operator).trace(whole, whole)
    with pytest.raises(ProgramError, match=rf"(?s)'y' of x float32, a float32: .*, not for float32\n    x {re.escape(sign)} a\n      \^"):
        ss.program(operator).trace(half, np.ones(3, np.float32))
    with pytest.raises(ProgramError, match=r"of x float64, a float64: .* not for float64"):
        ss.program(lambda x: operator(x, 2.5)).trace(whole)
    with pytest.raises(ProgramError, match=r"of x float16, a float16: .* not for float32"):
        operator.source("float16", 2)


def test_a_gradient_is_checked_where_it_is_applied():
    operator = ss.elementwise("y = x * a", gradient={"x": "dy * a", "a": "dy * (x & 1)"})
    x = np.ones(3, np.float32)
    ss.program(operator).trace(x, x)
    ss.program(lambda x: operator.gradient(x, x, 2)).trace(x)
    operator.source("float32", "float32", gradient_of="x")
    with pytest.raises(ProgramError, match=r"gradient of a of x float32, a float32: .*not for float32\n    dy \* \(x & 1\)"):
        operator.source("float32", "float32", gradient_of="a")
    with pytest.raises(ProgramError, match=r"'y', gradient of a of x float32, a float32: .*not for float32\n    dy \* \(x & 1\)"):
        ss.program(operator.gradient).trace(x, x, x)

    def recovering(dy, x, a):
        with pytest.raises(ProgramError, match="gradient of a"):
            operator.gradient(dy, x, a)
        return dy + x

    assert [operation.name for operation in ss.program(recovering).trace(x, x, x).operations] == ["add"]


@pytest.mark.parametrize("space", ["\t", "\n", "\r\n", "\v", "\f", " "])
def test_carets_stand_below_the_place_whatever_space_there_is(space):
    with pytest.raises(ProgramError) as caught:
        ss.elementwise(f"y = x{space}+{space}/")
    shown, caret = caught.value.message.split("\n")[1:]
    assert shown.isprintable()
    assert shown[caret.index("^")] == "/"


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


def test_words_of_cpp_are_refused_or_have_a_meaning():
    meant = {"false", "sizeof", "static_cast", "true", "char16_t", "char32_t"} | WORDS_OF_TYPES
    for word in KEYWORDS | {"concept", "requires", "goto"}:
        mistake = mistake_in(f"x + {word}")
        refused = mistake is not None and repr(word) in mistake.problem
        assert refused == (word not in meant), word
