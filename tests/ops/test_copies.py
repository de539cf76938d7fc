from __future__ import annotations

import numpy as np
import pytest

import streamscope as ss
from streamscope.program.launch import LaunchKind


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "int64", "bool"])
def test_there_and_back(evaluate, dtype):
    x = np.arange(6).reshape(2, 3).astype(dtype)
    result = evaluate(lambda x: ss.ops.to_host(ss.ops.to_device(x)), x)
    np.testing.assert_array_equal(result, x)
    assert result.dtype == dtype


def test_cost_is_the_bytes_on_the_bus():
    x = np.ones((10, 3), np.float64)
    copy_in, copy_out = ss.program(lambda x: ss.ops.to_host(ss.ops.to_device(x))).trace(x).launches()
    assert (copy_in.kind, copy_in.cost.bytes) == (LaunchKind.COPY_IN, 240)
    assert (copy_out.kind, copy_out.cost.bytes) == (LaunchKind.COPY_OUT, 240)
    assert copy_in.cost.flops == copy_out.cost.flops == 0
