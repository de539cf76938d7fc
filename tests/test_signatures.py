"""Functions whose annotations name types that only type checkers import."""

import numpy as np
import pytest

import streamscope as ss
from streamscope.signatures import signature_of

# Without `from __future__ import annotations`: from Python 3.14 on, an annotation is evaluated when it is asked for.
ANNOTATED = """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from nowhere import Array
def step(x: {quote}Array{quote}, w: {quote}Array{quote} = 2.0) -> {quote}Array{quote}:
    return x * w
"""


@pytest.fixture
def step():
    import sys

    made = {}
    exec(ANNOTATED.format(quote="" if sys.version_info >= (3, 14) else "'"), made)
    return made["step"]


def test_a_signature_evaluates_no_annotation(step):
    assert list(signature_of(step).parameters) == ["x", "w"]
    assert signature_of(step).parameters["w"].default == 2.0


def test_such_a_function_is_traced_and_compared(step):
    x = np.ones(4, np.float32)
    assert len(ss.program(step).trace(x, x).operations) == 1
    assert ss.compare(step, x, x, engines="async", device="simulated", progress=False).verdict
