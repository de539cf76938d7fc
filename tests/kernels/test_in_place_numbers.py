"""Kernels that write parts of arrays, built for the host or on a GPU, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.slow

PARTS = {
    "tail": lambda x: x[1:],
    "aligned rows": lambda x: x[64:128],
    "columns": lambda x: x[:, 3:],
    "wide columns": lambda x: x[:, 16:64],
    "every second": lambda x: x[:, ::2],
    "backwards": lambda x: x[::-1, ::-3],
    "turned": lambda x: x.T,
    "turned part": lambda x: x[5:, 7:].T,
    "in other axes": lambda x: x.reshape(5, 30, 96).swapaxes(0, 2)[1::2],
    "one": lambda x: x[1, 2, ...],
    "column": lambda x: x[:, 5],
    "none": lambda x: x[3:3],
}


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_parts_are_written_and_the_rest_stays(differing, dtype):
    x = (np.arange(150 * 96) % 117).reshape(150, 96).astype(dtype)

    def updated(part):
        def function(x):
            PARTS[part](x).__iadd__(1)
            return x

        return function

    def added(part):
        """Return a function in which what is added is itself another part, so that it is copied to this one."""

        def function(x):
            values = x * 2
            view = PARTS[part](x)
            view += PARTS[part](values)
            view -= view[::-1] if view.shape else 1
            return x, values

        return function

    def of_another_dtype(x, wide):
        x[1:, ::2] += wide[1:, ::2]
        x.T[3:] *= wide.T[3:]
        return x

    cases = {f"{part} {name}": (make(part), x) for part in PARTS for name, make in (("updated", updated), ("added", added))}
    cases["of another dtype"] = of_another_dtype, x, x.astype("int64" if dtype == "int8" else "float64")
    assert differing(cases) == []
