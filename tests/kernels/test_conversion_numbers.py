"""The kernels of astype between all dtypes, of numbers that both have."""

from __future__ import annotations

import itertools

import numpy as np

from streamscope.program.variable import SUPPORTED_DTYPES

NUMBERS = {"b": [0, 1], "u": [0, 1, 7, 100], "i": [-100, -1, 0, 1, 7, 100], "f": [-100.5, -1, -0.25, 0, 0.75, 1, 99.9]}
SPECIAL = [np.nan, np.inf, -np.inf, 1e-7, 3e5]


def numbers(source, target):
    """Return numbers of one dtype that have a meaning in another, over and over, so that vectors and single elements are converted."""
    kinds = np.dtype(source).kind, np.dtype(target).kind
    values = NUMBERS["u" if kinds == ("i", "u") else kinds[0]]
    if kinds == ("f", "u"):
        values = np.abs(values)
    with np.errstate(over="ignore"):
        return np.resize([*values, *(SPECIAL if kinds in (("f", "f"), ("f", "b")) else [])], 203).astype(source)


def test_every_dtype_becomes_every_other(new_bench, bound_program):
    bench = new_bench()
    cases = [(target, numbers(source, target)) for source, target in itertools.product(SUPPORTED_DTYPES, repeat=2)]
    made = [bound_program(bench, lambda x, target=target: x.astype(target), [x]) for target, x in cases]
    bench.finish()
    for program, (target, x) in zip(made, cases, strict=True):
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(program.run()[0], x.astype(target), err_msg=f"{x.dtype} to {target}")
