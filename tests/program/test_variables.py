"""Shapes and dtypes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

import streamscope as ss
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


class Quantity(np.ndarray):
    """A user's subclass, which may override any operator."""


MASKED = np.ma.array([1.0, 2.0], mask=[False, True])
SUBCLASSES = [
    (np.ones((2, 2)).view(np.matrix), r"np\.matrix has a matrix product for \*, .*np\.asarray"),
    (MASKED, r"a masked array would lose its mask .*array\.filled"),
    (np.ones(2).view(Quantity), r"Quantity is a subclass of NumPy's arrays, and its operators may have another meaning .*np\.asarray"),
]


@pytest.mark.parametrize(("values", "said"), SUBCLASSES, ids=["matrix", "masked", "another"])
def test_subclasses_whose_operators_may_mean_something_else_are_refused(values, said):
    plain = np.asarray(values)
    with ss.Engine(device="simulated") as engine:
        for use in (
            lambda: ss.program(lambda x: x * x).trace(values),
            lambda: ss.audit(ss.program(lambda x: x * x).trace(plain), values, device="simulated"),
            lambda: engine.run(ss.program(lambda x: x * x), values),
            lambda: engine.variable(values),
            lambda: engine.write(engine.variable(plain), values),
        ):
            with pytest.raises(ProgramError, match=said):
                use()


def test_a_host_function_that_returns_a_masked_array():
    masked = ss.host_function(lambda x: np.ma.masked_less(x, 1))
    with ss.Engine(device="simulated") as engine, pytest.raises(ProgramError, match="returned a masked array, which would lose its mask"):
        engine.run(ss.program(masked), np.zeros(3))


def test_subclasses_of_numpys_that_mean_the_same_are_taken(tmp_path):
    mapped = np.memmap(tmp_path / "values", dtype="float32", mode="w+", shape=(3,))
    for values in (mapped, np.ones(3).view(np.recarray)):
        with ss.Engine(device="simulated") as engine:
            np.testing.assert_array_equal(engine.run(ss.program(lambda x: x * 2), values), np.asarray(values) * 2)
