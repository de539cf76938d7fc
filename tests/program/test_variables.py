"""Shapes and dtypes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

from streamscope.errors import ProgramError
from streamscope.program.variable import SUPPORTED_DTYPES, ArraySpec


@given(nps.arrays(st.sampled_from(SUPPORTED_DTYPES), nps.array_shapes(min_dims=0, min_side=0, max_side=5)))
def test_a_spec_agrees_with_numpy(array):
    spec = ArraySpec(array.shape, array.dtype)
    assert (spec.shape, spec.dtype, spec.size, spec.nbytes) == (array.shape, array.dtype, array.size, array.nbytes)


def test_specs_of_equal_shape_and_dtype_are_equal():
    assert ArraySpec((2, 3), "float32") == ArraySpec([np.int64(2), 3], np.float32)
    assert ArraySpec((2, 3), "float32") != ArraySpec((3, 2), "float32")
    assert ArraySpec((2, 3), "float32") != ArraySpec((2, 3), "float16")


@pytest.mark.parametrize("shape", [(-1,), (2, -3), (1.0,), 5, ("2",), None])
def test_impossible_shapes(shape):
    with pytest.raises(ProgramError, match="shape"):
        ArraySpec(shape, "float32")


@pytest.mark.parametrize("dtype", ["complex128", "object", "float128", "U4", "nonsense"])
def test_impossible_dtypes(dtype):
    with pytest.raises(ProgramError, match=r"dtype .*use one of float16, float32"):
        ArraySpec((1,), dtype)
