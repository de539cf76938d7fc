"""Thousands of operations, and nothing grows; `benchmarks/soak.py` does a million on a GPU."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from streamscope.devices.simulated import SimulatedDevice

OPERATIONS = 20_000


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
    # The simulated device keeps a log of all that ran, so host memory does grow there.
    assert {key: value for key, value in result["grew"].items() if key != "host_bytes"} == {"threads": 0, "events": 0, "files": 0}


def test_growth_is_noticed(soak):
    device = SimulatedDevice()
    kept = []

    def leaking() -> int:
        kept.append(device.event())
        return 1000

    assert not soak.soak(device, leaking, OPERATIONS)["flat"]
