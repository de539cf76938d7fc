"""Functions drawn at random, arrays without axes among what they compute, under every engine: as NumPy has them."""

from __future__ import annotations

import pytest
from tests.drawn_functions import drawn_function

import streamscope as ss


@pytest.mark.parametrize("fuse", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_drawn_functions_are_numpys_under_every_engine(seed, fuse):
    drawn = drawn_function(seed, steps=12)
    compared = ss.compare(ss.program(drawn.function, fuse=fuse), *drawn.inputs, device="simulated", repeats=1, progress=False)
    assert [engine for engine, run in compared.items() if not run.correct] == []
