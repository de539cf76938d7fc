"""Reductions of short pieces, from a build of the generated source for the host, against NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.kernels.reduction_runs import TOLERANCE, expected_of, fenced, numbers, plan_of, run

from streamscope.kernels.reduce import reduction_plan
from streamscope.kernels.reduce.reduction_plan import plan_reduction

pytestmark = pytest.mark.slow

SHORT = [((700, 3), 1), ((300, 49), 1), ((50, 333), 1), ((9, 701), 1), ((400, 3, 5), 1), ((100, 7, 33), 1), ((5, 2, 3), 1)]
FULL = [((8200, 3), 1), ((1100, 3, 7), 1)]
"""One multiprocessor takes as many pieces at once as fit."""


# One multiprocessor's blocks are full and those of 132 are small, which the names of the dtypes do not change: each does with one of them.
@pytest.mark.parametrize(
    ("dtype", "multiprocessors"),
    [("float16", 1), ("float32", 132), ("float64", 132), ("int8", 1), ("uint8", 132), ("int64", 1)],
)
def test_short_pieces_anywhere_in_full_blocks_and_in_small_ones(build, monkeypatch, dtype, multiprocessors):
    monkeypatch.setattr(reduction_plan, "MULTIPROCESSORS", multiprocessors)
    plan_reduction.cache_clear()
    plans = [
        (name, *layout, *plan_of(name, dtype, *layout))
        for layout in [*SHORT, *FULL * (multiprocessors == 1)]
        for name in ("sum", "prod", "argmin", "max")
    ]
    plan_reduction.cache_clear()
    bench = build({kernel.source: kernel.source for *_, plan, _ in plans for kernel in plan.kernels})
    for name, shape, axis, plan, result in plans:
        assert "_short_" in plan.kernels[0].source.name
        count = math.prod(shape)
        memory = numbers((count + 20,), dtype, name)
        for offset, at_end in ((0, False), (0, True), (1, True), (7, False)):
            x = fenced(memory[: offset + count], at_end=at_end)[offset:].reshape(shape)
            got = run(bench, plan, x.ctypes.data, np.full(result.shape, 77, result.dtype))
            expected = expected_of(name, x, axis)
            if result.dtype.kind == "f":
                np.testing.assert_allclose(got, expected, rtol=TOLERANCE[dtype] * 5, atol=TOLERANCE[dtype] * 40, err_msg=f"{name} {shape}")
            else:
                np.testing.assert_array_equal(got, expected.astype(result.dtype), err_msg=f"{name} {shape}")
