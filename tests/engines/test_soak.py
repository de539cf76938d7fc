"""Thousands of operations, and nothing grows; `benchmarks/soak.py` does a million on a GPU."""

from __future__ import annotations

import gc
import importlib
import statistics
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from streamscope.devices.simulated import SimulatedDevice

pytestmark = pytest.mark.slow

OPERATIONS = 6000


@pytest.fixture(scope="module")
def soak():
    with pytest.MonkeyPatch.context() as patch:  # as Python does for a script
        patch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
        return importlib.import_module("soak")


@pytest.mark.parametrize("how", ["async", "graph", "push"])
def test_nothing_grows(soak, how):
    device = SimulatedDevice()
    run = soak.pushing(device) if how == "push" else soak.running(device, how)
    result = soak.soak(device, run, OPERATIONS)
    assert result["operations"] == OPERATIONS
    # Pages of the whole process say little after so few operations; see the next test.
    assert {key: value for key, value in result["grew"].items() if key != "host_bytes"} == {"threads": 0, "events": 0, "files": 0}


@pytest.mark.parametrize("how", ["async", "graph", "push"])
def test_no_memory_is_kept_of_what_ran(soak, how):
    device = SimulatedDevice()
    run = soak.pushing(device) if how == "push" else soak.running(device, how)
    tracemalloc.start()
    try:
        taken = []
        for _ in range(6):
            run()
            gc.collect()
            taken.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    # 1,000 operations a run; a record of each would take 200 kB. A cache of Python's may grow in one of the runs.
    assert statistics.median(np.diff(taken[2:])) < 3000
    assert device.log == []


def test_growth_is_noticed(soak):
    device = SimulatedDevice()
    kept = []

    def leaking() -> int:
        kept.append(device.event())
        return 1000

    assert not soak.soak(device, leaking, OPERATIONS)["flat"]
