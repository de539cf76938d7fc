"""What does not compile of an operator of one line is told by the user's line, not by the generated source."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

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


def test_what_does_not_compile_is_told_with_the_users_line():
    place = next_line()
    bad = ss.elementwise("y = 2 * undeclared(x) + (x).part", name="bad", reference=np.negative)
    error = refused(lambda x: (bad(x), ss.ops.relu(x)), X)
    head, *log = error.message.splitlines()
    assert head.startswith(f'ss.elementwise("y = 2 * undeclared(x) + (x).part") at {place}: kernel \'bad_float32')
    assert head.endswith("did not compile for sm_90:")
    assert log[0].endswith('error: identifier "undeclared" is undefined')
    assert (log[1].strip(), log[2].strip()) == ("return 2 * undeclared(x) + (x).part;", "^")
    assert log[1][log[2].index("^") :].startswith("undeclared")
    assert "source(*inputs)" in error.hint


def test_what_does_not_compile_of_a_gradient_or_a_fused_kernel_is_told_by_its_operator():
    place = next_line()
    bad = ss.elementwise("z = x", name="bad", gradient={"x": "dz * undeclared(z)"}, reference=np.positive)
    assert f'ss.elementwise("z = x") at {place}: ' in refused(bad.gradient, X, X).message
    place = next_line()
    bad = ss.elementwise("y = undeclared(x) * 3", name="bad", reference=np.positive)
    assert f'ss.elementwise("y = undeclared(x) * 3") at {place}: ' in refused(lambda x: bad(ss.ops.relu(x)) + 1, X, fuse=True).message


def test_of_several_that_do_not_compile_the_first_is_told():
    one, two = (ss.elementwise(f"y = undeclared({name})", name=name, reference=np.positive) for name in ("one", "two"))
    error = refused(lambda x: (one(x), two(x)), X)
    assert error.message.startswith("2 kernels did not compile (one_float32")
    assert "source(*inputs)" in error.hint
