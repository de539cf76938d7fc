"""Operators of the user's own from one line of CUDA."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamscope as ss
from streamscope.errors import CompilationError, ProgramError
from streamscope.ops.expressions import compiled, names_in
from streamscope.ops.operand_types import UnknownExpressionError
from streamscope.program.reference import has_reference

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
    assert "leaky_relu_float32_x4_" in leaky.source("float32", 0.5)


def test_operands_in_another_order_and_other_dtypes(evaluate):
    scaled = ss.elementwise("z = b * sqrt(x)", operands=["x", "b"], like=np.arctan2)
    np.testing.assert_allclose(evaluate(scaled, np.array([4, 9]), np.array([2.0, 1.0])), [4, 3])
    above = ss.elementwise("y = a > b", like=np.less)
    assert evaluate(above, np.ones(2), np.zeros(2)).dtype == np.bool_


def test_what_cannot_be_evaluated_here_runs_on_cuda_only():
    for operator in [
        ss.elementwise("y = __sinf(x)"),
        ss.elementwise("y = twice(x)", functions="__device__ float twice(float x) { return 2 * x; }\n"),
    ]:
        assert not has_reference(ss.program(operator).trace(np.ones(3, np.float32)))
    assert has_reference(ss.program(ss.elementwise("y = __sinf(x)", reference=np.sin)).trace(np.ones(3)))


@pytest.mark.parametrize(
    ("line", "options", "said"),
    [
        ("x + 1", {}, r"'x \+ 1' is no assignment.*y = a \* x \+ b"),
        ("y == x", {}, "is no assignment"),
        ("y = 1", {}, "has no operands"),
        ("y = x + y", {}, "'y' is the result and an operand"),
        ("y = n * x", {}, "'n' cannot be a name of an operand"),
        ("y = a * x", {"operands": ["x"]}, "a is no operand.*operands are x"),
        ("y = a * x", {"operands": ["x", "x", "a"]}, "not different"),
        ("y = a * x", {"gradient": {"b": "dy"}}, "gradient of b, which is no operand"),
        ("y = a * x", {"gradient": {"a": "dz * x"}}, "the gradient of a names dz.*it may name a, dy, x, y"),
        ("y = x", {"name": "not a name"}, "is no identifier"),
        ("y = request * x", {}, "'request' cannot be a name of an operand"),
        ("y = M_PI * x", {}, "'M_PI' is a number in C.*write its digits"),
        ("y = x[0]", {}, "x is one number"),
        ("y = x + a.y", {}, "a is one number"),
        ("y = np.exp(x)", {}, r"np is one number.*have no module: exp\(x\)"),
        ("y = x * x", {"gradient": {"x": "2 * x"}}, r"the gradient of x does not name dy.*dy \* \(2 \* x\)"),
        ("y = x * x", {"like": np.divmod}, "like=.* is not a NumPy function with dtypes"),
    ],
)
def test_misuse(line, options, said):
    with pytest.raises(ProgramError, match=said):
        ss.elementwise(line, **options)


FILES = {
    "include": '#include "FILE"\n',
    "system": "#include <cuda_fp16.h>\n",
    "spaces": "  #  \t include<FILE>",
    "digraph": '%: include "FILE"',
    "trigraph": '??=include "FILE"',
    "continued": '#\\\ninc\\\r\nlude "FILE"',
    "behind a comment": '__device__ float unused; /* of two\n lines */ # /* so */ include "FILE"',
    "behind a text": 'constexpr int a = sizeof("/*"), b = 1\'000 + \'"\';\n#include "FILE" // */ "',
    "behind a raw text": 'constexpr int a = sizeof(R"x(\n)" )x");\n#include "FILE" // )"',
    "by a macro": '#define NAME "FILE"\n#include NAME',
    "next": '#include_next "FILE"',
    "import": '#import "FILE"',
    "embed": 'const char a[] = {\n#embed "FILE"\n};',
    "asked for": '#if __has_include ("FILE")\n#define SIGN -\n#endif',
}


@pytest.mark.parametrize("functions", FILES.values(), ids=FILES)
def test_functions_read_no_file(tmp_path, functions):
    """The cache could not tell when it changes."""
    by = "(#(include(_next)?|import|embed)|__has_include)"
    said = rf"ss.elementwise 'y': functions= reads a file, by {by} \(write the functions' source itself"
    with pytest.raises(ProgramError, match=said):
        ss.elementwise("y = foo(x)", functions=functions.replace("FILE", str(tmp_path / "h.h")))


@pytest.mark.parametrize(
    "functions",
    [
        "// #include <math.h>\n// or \\\n#include <math.h>\n",
        "/*\n#include <math.h>\n*/",
        'constexpr int a = sizeof("#include"), b = sizeof(R"(\n#include <math.h>\n)");',
        "#define include(x) #x\n#define text include(include)",
        "#define includes\n#pragma once_included\n#undef include\n#\n#if 0\n#endif",
        "__device__ float include(float embed)\n{\n    return embed\n    % embed;\n}",
    ],
)
def test_functions_may_mention_files(functions):
    assert ss.elementwise("y = foo(x)", functions=f"__device__ float foo(float x) {{ return x; }}\n{functions}")


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
    with pytest.raises(ProgramError, match="is no assignment"):
        ss.elementwise(line)


def test_operators_without_a_gradient():
    for apply in (ss.elementwise("y = x * x").gradient, ss.isnan.gradient):
        with pytest.raises(ProgramError, match="it has no gradient"):
            ss.program(apply).trace(np.ones(3), np.ones(3))


def test_a_gradient_must_fit():
    with pytest.raises(ProgramError, match=r"the result's gradient has shape \(4,\), the result \(3,\)"):
        ss.program(ss.exp.gradient).trace(np.ones(4), np.ones(3))
    with pytest.raises(ProgramError, match="the result's gradient is int32"):
        ss.program(ss.exp.gradient).trace(np.ones(3, np.int32), np.ones(3))


def test_operands_that_are_numbers_or_whole_have_no_gradient():
    kept = []
    ss.program(lambda dy, x: kept.append(ss.multiply.gradient(dy, x, 2.0)) or dy).trace(np.ones(3), np.ones(3))
    ss.program(lambda dy, x, n: kept.append(ss.ldexp.gradient(dy, x, n)) or dy).trace(np.ones(3), np.ones(3), np.ones(3, np.int32))
    for first, second in kept:
        assert first is not None
        assert second is None


def test_a_gradient_reads_only_what_it_needs():
    program = ss.program(lambda dy, a, b: (*ss.add.gradient(dy, a, b), *ss.multiply.gradient(dy, a, b))).trace(*[np.ones(3)] * 3)
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


@pytest.mark.parametrize("expression", ["f(a)", "a +", "a b", "(a", "a ? b", "a[0]", "a = b", "", "exp(a", "a.x", "@"])
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


X = np.ones((4, 4), np.float32)


def refused(function, *inputs, fuse=False):
    """Return why a kernel of a program does not compile."""
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC's bindings are not installed")
    with pytest.raises(CompilationError) as caught:
        ss.program(function, fuse=fuse).compile(*inputs, device="simulated", progress=False)
    assert "__global__" not in caught.value.message
    return caught.value


def next_line():
    """Return where the line after the caller's is."""
    return f"test_one_line.py:{inspect.currentframe().f_back.f_lineno + 1}"


def test_what_does_not_compile_is_told_by_the_users_line():
    place = next_line()
    bad = ss.elementwise("y = 2 * undeclared(x) + (x).part", name="bad", reference=np.negative)
    error = refused(lambda x: (bad(x), ss.relu(x)), X)
    message = error.message.splitlines()
    assert message[0].startswith(f'ss.elementwise("y = 2 * undeclared(x) + (x).part") at {place}: kernel \'bad_float32')
    assert message[0].endswith("did not compile for sm_90")
    assert message[1:4] == [
        'error: identifier "undeclared" is undefined',
        f"    {place} | 2 * undeclared(x) + (x).part",
        f"    {' ' * len(place)} |     ^",
    ]
    assert "class type" in message[4]
    assert message[5:] == [message[2], f"    {' ' * len(place)} |                     ^"]
    assert "source()" in error.hint


def test_what_does_not_compile_of_whole_numbers_is_told_by_the_users_line():
    place = next_line()
    bad = ss.elementwise("y = x + 2 * undeclared(-x, 3) - undeclared(x)", name="bad", reference=np.positive)
    assert refused(bad, X.astype(np.int32)).message.splitlines()[1:] == [
        'error: identifier "undeclared" is undefined',
        f"    {place} | x + 2 * undeclared(-x, 3) - undeclared(x)",
        f"    {' ' * len(place)} |         ^",
    ]


FUNCTIONS = "__device__ inline float twice(float x)\n{\n    int unused;\n    return 2 * z;\n}"


def test_what_does_not_compile_of_functions_is_told_by_their_line():
    bad = ss.elementwise("y = twice(x)", functions=FUNCTIONS)
    assert refused(bad, X).message.splitlines()[1:] == [
        'error: identifier "z" is undefined',
        "    functions=, line 4 |     return 2 * z;",
        "                       |                ^",
    ]


def test_what_does_not_compile_of_a_gradient_or_a_fused_kernel_is_told_by_its_expression():
    place = next_line()
    bad = ss.elementwise("z = x", name="bad", gradient={"x": "dz * undeclared(z)"}, reference=np.positive)
    assert f"\n    {place} | dy * undeclared(z)\n" in refused(bad.gradient, X, X).message
    place = next_line()
    bad = ss.elementwise("y = undeclared(x) * 3", name="bad", reference=np.positive)
    assert f"\n    {place} | undeclared(x) * 3\n" in refused(lambda x: bad(ss.relu(x)) + 1, X, fuse=True).message


def test_of_several_that_do_not_compile_the_first_is_told():
    one, two = (ss.elementwise(f"y = undeclared({name})", name=name, reference=np.positive) for name in ("one", "two"))
    error = refused(lambda x: (one(x), two(x)), X)
    assert error.message.startswith("2 kernels did not compile (one_float32")
    assert "source()" in error.hint


def test_gradients_of_a_line_may_be_returned_as_they_are(evaluate):
    leaky = ss.elementwise(LEAKY, gradient={"x": "x > 0 ? dy : a * dy"})
    x, a = np.array([1, -2], np.float32), np.array([0.5, 0.5], np.float32)
    (found,) = evaluate(lambda x, a: leaky.gradient(x, x, a), x, a)
    np.testing.assert_array_equal(found, [1, -1])


def test_a_line_of_functions_that_is_like_the_expression_is_told_as_theirs():
    pytest.importorskip("cuda.bindings.nvrtc")
    operator = ss.elementwise("y = a", operands=["a"], functions="__device__ float h(float q) {\n  return a;\n}\n", reference=np.copy)
    with pytest.raises(CompilationError, match=r"functions=, line 2 \|   return a;"):
        ss.warm(ss.program(operator), np.ones(3, np.float32), architecture="sm_90", progress=False)


def test_long_sums_and_chains_are_evaluated(evaluate):
    x = np.array([1, -1], np.int32)
    many = 3000
    for expression, expected in [
        (" + ".join(["x"] * many), [many, -many]),
        (" - ".join(["x * 2"] * many), [2 * (2 - many), -2 * (2 - many)]),
        ("!" * many + "x", [1, 1]),
        ("-" + " -" * (many - 1) + "x", [1, -1]),
        ("x > 1 ? 5 : " * many + "x", [1, -1]),
    ]:
        assert evaluate(ss.elementwise(f"y = {expression}", name="long_one"), x).tolist() == expected


@pytest.mark.parametrize(
    "expression", ["(" * 3000 + "x" + ")" * 3000, "fabs(" * 3000 + "x" + ")" * 3000, "x ? (" * 3000 + "x" + ") : x" * 3000]
)
def test_what_is_nested_too_deeply_runs_on_cuda_only(expression):
    with pytest.raises(UnknownExpressionError, match="nested too deeply"):
        compiled(expression)
    deep = ss.elementwise(f"y = {expression}", gradient={"x": f"dy * {expression}"})
    x = np.ones(3, np.float32)
    assert not has_reference(ss.program(deep).trace(x))
    assert not has_reference(ss.program(deep.gradient).trace(x, x))


@pytest.mark.parametrize(
    ("functions", "bracket"),
    [
        ("__device__ float f(float a) { return a*2;", "{"),
        ("__device__ float f(float a) { return (a*2; }", "}"),
        ("__device__ float f(float a) { return a*2; } }", "}"),
        ("}", "}"),
    ],
)
def test_a_bracket_without_a_partner_among_the_functions(functions, bracket):
    with pytest.raises(ProgramError, match=f"in functions=, '{bracket}' has no partner"):
        ss.elementwise("y = f(x)", functions=functions, reference=lambda x: x)


@pytest.mark.parametrize(
    "functions",
    [
        "// {\n__device__ float f(float a) { return a + '(' - 40; }",
        "#define END }\n#define BEGIN {\n__device__ float f(float a) BEGIN return a; END",
        "%:ifdef NEVER\n__device__ float f(float a) {\n%:else\n__device__ float f(float a, int b = 1) {\n%:endif\nreturn a; }",
        "__device__ float f(float a) { int b[3:>; return a; }",
        "#if 1\n__device__ float f(float a) {\n#else\n__device__ float f(float a, int b = 1) {\n#endif\nreturn a; }",
    ],
)
def test_brackets_that_have_partners_where_it_counts(functions):
    assert ss.elementwise("y = f(x)", functions=functions, reference=lambda x: x).__name__ == "y"
