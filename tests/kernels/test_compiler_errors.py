"""What does not compile of an operator of one line is told by the user's line, not by the generated source."""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest
from tests.sources import source_of

import streamscope as ss
from streamscope.errors import CompilationError

X = np.ones((4, 4), np.float32)


def refused(function, *inputs, fuse=False):
    """Return why a kernel of a program does not compile."""
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC's bindings are not installed")
    with pytest.raises(CompilationError) as caught:
        ss.warm(ss.program(function, fuse=fuse), *inputs, device="simulated", progress=False)
    assert "__global__" not in caught.value.message
    return caught.value


def next_line():
    """Return where the line after the caller's is."""
    return f"test_compiler_errors.py:{inspect.currentframe().f_back.f_lineno + 1}"


def test_what_does_not_compile_is_told_by_the_users_line():
    place = next_line()
    bad = ss.elementwise("y = 2 * undeclared(x) + (x).part", name="bad", reference=np.negative)
    error = refused(lambda x: (bad(x), ss.ops.relu(x)), X)
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
    assert "source(*inputs)" in error.hint


def test_what_does_not_compile_of_whole_numbers_is_told_by_the_users_line():
    place = next_line()
    bad = ss.elementwise("y = x + 2 * undeclared(-x, 3) - undeclared(x)", name="bad", reference=np.positive)
    assert refused(bad, X.astype(np.int32)).message.splitlines()[1:] == [
        'error: identifier "undeclared" is undefined',
        f"    {place} | x + 2 * undeclared(-x, 3) - undeclared(x)",
        f"    {' ' * len(place)} |         ^",
    ]


def kernel_of(operator):
    return re.search(r"__launch_bounds__\(\d+\)\n(\w+)\(", source_of(operator, "float32"))[1]


def test_what_does_not_compile_of_a_gradient_or_a_fused_kernel_is_told_by_its_expression():
    place = next_line()
    bad = ss.elementwise("z = x", name="bad", gradient={"x": "dz * undeclared(z)"}, reference=np.positive)
    assert f"\n    {place} | dy * undeclared(z)\n" in refused(bad.gradient, X, X).message
    place = next_line()
    bad = ss.elementwise("y = undeclared(x) * 3", name="bad", reference=np.positive)
    assert f"\n    {place} | undeclared(x) * 3\n" in refused(lambda x: bad(ss.ops.relu(x)) + 1, X, fuse=True).message


def test_of_several_that_do_not_compile_the_first_is_told():
    one, two = (ss.elementwise(f"y = undeclared({name})", name=name, reference=np.positive) for name in ("one", "two"))
    error = refused(lambda x: (one(x), two(x)), X)
    assert error.message.startswith("2 kernels did not compile (one_float32")
    assert "source(*inputs)" in error.hint


@pytest.mark.parametrize(
    ("expression", "column"),
    [
        ("x +", 3),
        ("(x + 1", 6),
        ("x > 0 ? x", 9),
        ("x ** 2", 5),
        ("x + foo(x)", 4),
        ("x % 2.5f", 4),
        ("fmax(x, 0.0)", 0),
        ("x + 08", 5),
        ("x[0]", 0),
        ("x + int", 4),
        ("std::sqrt(x)", 5),
    ],
)
def test_an_expression_that_is_wrong_is_told_with_its_place(expression, column):
    place = next_line()
    wrong = ss.elementwise(f"y = {expression}", name="wrong")
    message = refused(wrong, X).message
    assert message.startswith(f'ss.elementwise("y = {expression}") at {place}: kernel \'wrong_float32')
    assert f"\n    {place} | {expression}\n    {' ' * len(place)} | {' ' * column}^" in message


def test_what_does_not_compile_inside_our_own_functions_is_told_with_the_users_line():
    place = next_line()
    wrong = ss.elementwise("y = 2 * modulo(&x, &x)", name="wrong", reference=np.positive)
    assert refused(wrong, X).message.startswith(f'ss.elementwise("y = 2 * modulo(&x, &x)") at {place}: kernel')
