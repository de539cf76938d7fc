"""What a printed program shows of its operations."""

from __future__ import annotations

import numpy as np
import pytest

import streamscope as ss


def test_a_printed_program_shows_numbers_and_options():
    program = ss.program(lambda x: ss.ops.sum((x * 2) ** 0.5, 1, keepdims=True)).trace(np.ones((2, 3), np.float32))
    lines = [line.split("#")[0].split(" = ")[-1].strip() for line in str(program).splitlines()[1:]]
    assert lines == ["multiply(%0:float32[2, 3], b=2)", "power(%1:float32[2, 3], b=0.5)", "sum(%2:float32[2, 3], axis=1, keepdims=True)"]


@pytest.mark.parametrize("number", [np.float32(2), np.float64(3), np.float16(0.5), np.int64(7), np.uint8(7), np.bool_(True)])
def test_a_printed_program_shows_numbers_of_numpy_as_pythons(number):
    program = ss.program(lambda x: ss.ops.multiply(x, number)).trace(np.ones(3))
    assert f"multiply(%0:float64[3], b={number.item()!r})" in str(program)


@pytest.mark.parametrize(("axis", "shown"), [(np.int64(1), "1"), ((np.int64(0), 1), "(0, 1)"), ([np.int32(1)], "[1]")])
def test_a_printed_program_shows_axes_of_numpy_as_pythons(axis, shown):
    program = ss.program(lambda x: ss.ops.sum(x, axis, keepdims=np.bool_(False))).trace(np.ones((2, 3)))
    assert f"sum(%0:float64[2, 3], axis={shown}, keepdims=False)" in str(program)
