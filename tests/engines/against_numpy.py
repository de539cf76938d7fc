"""Functions under an engine, on a simulated device whose work comes late at random, beside NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import streamscope as ss
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engine_entry import ENGINES
from streamscope.engines.prepared import Prepared
from streamscope.program.reference import run_reference

RUNS = 2


def check_function(function: Callable[..., Any], inputs: Sequence[Any], engine: str, *, fuse: bool, late: int) -> None:
    """Check that a program of a function, run more than once, and its reference have the function's results; ``late`` is a seed."""
    program = ss.program(function, fuse=fuse).trace(*inputs)
    random = np.random.default_rng(late)
    device = SimulatedDevice(delays=lambda launch, stream: (float(random.choice([0, 0, 1e5])), float(random.uniform(1, 20))))
    prepared = Prepared(ENGINES[engine].plan(program, lambda launch: 1e5, 2), device)
    for _ in range(RUNS):
        prepared.load(inputs)
        prepared.run()
    prepared.wait()
    expected = function(*(array.copy() for array in inputs))
    for found, reference, right in zip(prepared.outputs(), run_reference(program, inputs), expected, strict=True):
        np.testing.assert_array_equal(reference, right)
        np.testing.assert_array_equal(found, right)
