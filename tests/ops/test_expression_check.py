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
from streamscope.kernels.compile.nvrtc import compile_unit, supported_architectures
from streamscope.kernels.expression import mistakes
from streamscope.kernels.expression.expressions import mistake_for
from streamscope.kernels.expression.mistakes import mistake_in
from streamscope.kernels.expression.tokens import KEYWORDS, WORDS_OF_TYPES

NAMES, NUMBERS = st.sampled_from(["x", "a", "T(x)", "x1", "_b"]), st.sampled_from(["1", "2.5f", ".5", "1e-3", "0x1F", "3u", "1.5e+4f"])
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
        ("- / x", 2, "missing before '/'"),
        ("x,", 1, "',' stands outside the arguments"),
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
        ("*(&x + 1)", 0, "'*' before an operand follows a pointer"),
        ("(&x)[100]", 1, "'&' before an operand takes an address"),
        ("x + *x", 4, "follows a pointer"),
        ("(long long)&x", 11, "takes an address"),
        ("(int)(float)*x", 12, "follows a pointer"),
        ("atomicAdd(&x, 1)", 10, "takes an address"),
        ("sizeof *x", 7, "follows a pointer"),
        ("x, 2", 1, "',' stands outside the arguments"),
        ("(x, 2) * 3", 2, "',' stands outside the arguments"),
        ("max(x, (x, 2))", 9, "',' stands outside the arguments"),
        ("max(x ? 1, 2 : 3, 4)", 9, "',' stands outside the arguments"),
        ("static_cast<int>(x, 2)", 18, "',' stands outside the arguments"),
        ("x > (x, 2)", 6, "',' stands outside the arguments"),
        ("x + (int)", 9, "missing at the end"),
        ("(g)(x)", 3, "operator is missing before '('"),
        ("x > 0 ? x : ((g))(x)", 17, "operator is missing before '('"),
        ("(exp)(x)", 5, "operator is missing before '('"),
        ("(::exp)(x)", 7, "operator is missing before '('"),
        ("(int)(g)(x)", 8, "operator is missing before '('"),
        ("(x + 1)(a)", 7, "operator is missing before '('"),
        ("exp(x)(a)", 6, "operator is missing before '('"),
        ("T(x)(a)", 4, "operator is missing before '('"),
        ("(T)(x)(a)", 6, "operator is missing before '('"),
        ("sizeof(int)(x)", 11, "operator is missing before '('"),
        ("2(x)", 1, "operator is missing before '('"),
        ("(x) a", 4, "operator is missing before 'a'"),
        ("(x) int(a)", 4, "operator is missing before 'int'"),
        ("x ! 1", 2, "operator is missing before '!'"),
        ("x ~ a", 2, "operator is missing before '~'"),
        ("() && x", 1, "missing before ')'"),
        ("sizeof x * float", 11, "'float' is a type"),
        ("sizeof() * x", 7, "missing before ')'"),
        ("x < sizeof T", 11, "sizeof takes a type in parentheses"),
        ("static_cast<g>(x)", 0, "static_cast has no type"),
        ("static_cast<int> x", 0, "static_cast has no type, or nothing to convert"),
        ("max(x < 3, float > (x))", 11, "'float' is a type"),
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
    "expression", ["x & a", "x * a", "(x) & (a)", "(x) * a", "sizeof(int) * x + a", "max(x & 1, 2 * a)", "T(x) * (int)a"]
)
def test_products_and_bits_are_no_pointers(expression):
    assert ss.elementwise(f"y = {expression}").definition.operands == ("x", "a")


@pytest.mark.parametrize(
    ("expression", "position", "hint"),
    [
        ("foo(x)", 0, "define it in functions=, or call it there"),
        ("1 + tahn (x)", 4, "did you mean tanh?"),
        ("arctan(x)", 0, "did you mean atan?"),
        ("power(x, 2)", 0, "did you mean pow?"),
        ("exp(x) * x(x)", 9, "x is an operand; write x * (...) for a product"),
        ("x(2)", 0, "x is an operand; write x * (...) for a product"),
    ],
)
def test_unknown_functions_are_told_with_what_may_be_meant(expression, position, hint):
    with pytest.raises(ProgramError, match="CUDA's math has no function") as caught:
        ss.elementwise(f"y = {expression}", operands=["x"])
    assert caught.value.message.endswith(f"\n    {expression}\n    {' ' * position}^")
    assert caught.value.hint == hint


def test_an_operand_is_not_called_whoever_answers_for_functions():
    for options in ({}, {"reference": np.negative}):
        with pytest.raises(ProgramError, match=r"exp is an operand, and is called too\n    exp\(exp\)\n    \^"):
            ss.elementwise("y = exp(exp)", **options)
    ss.elementwise("y = ::exp(exp)")


@pytest.mark.parametrize("function", ["__sinf", "__popc", "normcdff", "own", "float", "T", "whole_modulo"])
def test_functions_that_cuda_may_have_are_let_through(function):
    ss.elementwise(f"y = {function}(x)", functions="#define own(x) x" if function == "own" else "")


OWN_TEMPLATE = "template <typename A, typename B = A> __device__ A rounded(float x) { return A(x); }\n"
OWN_NAMESPACE = "namespace std { __device__ float sqrt(float x) { return x; } namespace numbers { __device__ constexpr float pi = 3; } }\n"


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
    operator = ss.elementwise(f"y = {expression}", functions=f"{OWN_TEMPLATE}{OWN_NAMESPACE}")
    assert operator.definition.operands == ("x",)
    if "rounded" not in expression and "std" not in expression:
        assert ss.elementwise(f"y = {expression}").definition.operands == ("x",)


def test_what_is_like_a_template_names_operands():
    assert ss.elementwise("y = x < T(a) && b > (c)").definition.operands == ("x", "a", "b", "c")


TAKEN = [
    *(
        "__sinf(x)",
        "x * __popc(x)",
        "normcdff(x)",
        "sinf(x)",
        "::exp(x)",
        "exp (x)",
        "(int)(x)",
        "(T)(x)",
        "T(x)",
        "(unsigned long long)(x)",
    ),
    *("static_cast<int>(x)", "sizeof(x) * x", "sign<float>(x)", "maximum<T>(x, x)", "g < 3 > (x)"),
]
REFUSED = [
    *("clock64(x)", "__some_new_one(x)", "x + __trap()", "__nanosleep(x)"),
    *("g<int>(x)", "g<int, float>(x)", "x + g<unsigned int>(x) * 2", "atomicAdd<int>(x, 1)", "clock64<int>(x)", "x + g<T>"),
    *(
        "sizeof(g<int>(x)) * x",
        "exp<float>(x)",
        "abs<int>(x)",
        "fmax<float>(x, x)",
        "max(x, g<int>(x))",
        "max(x < T, x)",
        "max(x < 3, float > (x))",
    ),
    *("(g)(x)", "((g))(x)", "(exp)(x)", "-(g)(x)", "(int)(g)(x)", "(x)(x)", "exp(x)(x)", "(x ? exp : sin)(x)"),
    *("::atomicAdd(x, 1)", "::g<int>(x)", "std::f(x)", "std :: sqrt(x)", "b::c(x) + x", "::b::c(x)", "a::b<int>(x)", "std::exp<float>(x)"),
    *("x * std::numbers::pi", "x + ::warpSize", "::sign(x)", "wrapping::of(x)", "int::f(x)", "exp::f(x)", "g<int>::x + x"),
    *("x.f(x)", "(x).f(x)", "exp(x).f(x)", "exp(x).part", "exp(x)[0]", "(x)[0]", "T(x)->f(x)"),
    *("decltype(x)(x)", "__typeof__(x)(x)", "[](int q){return q;}(x)", "[x](x)", "({ x; })", "sizeof...(x)", "sizeof(int)(x)"),
    *(
        "asm(x)",
        "__asm__(x)",
        "new int(x)",
        "delete x",
        "throw x",
        "x ? throw x : x",
        "exp(exp)",
        "exp(x) + exp",
        "sizeof x < T",
        "static_cast<g>(x)",
        "static_cast<int> x",
    ),
]


def refused():
    found = []
    for expression in [*TAKEN, *REFUSED]:
        try:
            ss.elementwise(f"y = {expression}")
        except ProgramError:
            found.append(expression)
    return found


def test_with_and_without_nvrtc_the_same_is_refused(monkeypatch):
    with_nvrtc = refused()
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    supported_architectures.cache_clear()
    assert refused() == with_nvrtc == REFUSED


def test_what_is_taken_compiles():
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC's bindings are not installed")
    operators = [ss.elementwise(f"y = {expression}", name=f"taken_{at}") for at, expression in enumerate(TAKEN)]
    x = np.ones(4, np.float32)
    program = ss.program(lambda x: [operator(*[x] * len(operator.definition.operands)) for operator in operators])
    ss.warm(program, x, device="simulated", progress=False)


@pytest.mark.parametrize(
    ("expression", "position", "kind", "hint"),
    [
        ("1 + g<int>(x)", 4, "function template g", "define it in functions=, or call it there"),
        ("exp<float>(x)", 0, "function template exp", "write exp(...)"),
        ("std::sqrt(x)", 0, "function std::sqrt", "write sqrt(...)"),
        ("::sign(x)", 0, "function ::sign", "write sign(...)"),
        ("x * std::numbers::pi", 4, "name std::numbers::pi", "define it in functions=, or call it there"),
    ],
)
def test_templates_and_names_of_namespaces_are_looked_up_too(expression, position, kind, hint):
    with pytest.raises(ProgramError, match=f"CUDA's math has no {kind}\n") as caught:
        ss.elementwise(f"y = {expression}")
    assert caught.value.message.endswith(f"\n    {expression}\n    {' ' * position}^")
    assert caught.value.hint == hint
    with pytest.raises(ProgramError, match=f"gradient of x: CUDA's math has no {kind}\n"):
        ss.elementwise("y = x * 2", gradient={"x": f"dy * ({expression})"})
    ss.elementwise(f"y = {expression}", reference=np.negative)


def test_own_functions_are_called_as_templates_and_from_namespaces_and_may_give_what_has_parts():
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC's bindings are not installed")
    own = "struct two { float first, last[2]; };\nnamespace own { __device__ inline two pair(float x) { return {x, {x, x}}; } }\n"
    used = ss.elementwise("y = rounded<int>(x) + own::pair(x).first + own::pair(x).last[1]", functions=f"{OWN_TEMPLATE}{own}")
    ss.warm(ss.program(used), np.ones(4, np.float32), device="simulated", progress=False)


def test_what_takes_no_number_is_refused_whoever_answers_for_it():
    for options in ({}, {"reference": np.negative}):
        with pytest.raises(ProgramError, match=r"__trap\(\) takes no number\n    x > 0 \? x : __trap\(\)\n                \^"):
            ss.elementwise("y = x > 0 ? x : __trap()", **options)
    ss.elementwise("y = x * pi()", functions="__device__ float pi() { return 3.14159265f; }")


def test_cuda_has_the_functions_that_are_taken_for_its_own():
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC's bindings are not installed")
    asked = "\n".join(f"using ::{name};" for name in sorted(mistakes._CUDA))
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
    with pytest.raises(ProgramError, match=r"of x int16, a float64: .* not for float64"):
        ss.program(lambda x: operator(x, 2.5)).trace(whole)
    with pytest.raises(ProgramError, match=r"of x float16, a int64: .* not for float32"):
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
