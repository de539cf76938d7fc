"""The memory that engines hold for a program, and what is said when there is not enough."""

from __future__ import annotations

import gc
from dataclasses import replace

import numpy as np
import pytest

import streamscope as ss
from streamscope.devices.cost_model import CostModel
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engine_entry import ENGINES
from streamscope.engines.prepared import prepare_traced
from streamscope.errors import OutOfMemoryError
from streamscope.ops import add, relu
from streamscope.ops.host import to_device
from streamscope.tracing import program

X = np.arange(256, dtype=np.float64)  # 2 KiB


def device_with(nbytes: int) -> SimulatedDevice:
    return SimulatedDevice(replace(CostModel.load(), memory_gb=nbytes / 1e9))


@program
def step(x):
    return relu(add(x, x))


@program
def copied(x):
    x = to_device(x)
    return add(x, x)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_variables_of_a_program_are_counted(engine):
    memory = prepare_traced(step.trace(X), engine, SimulatedDevice()).memory
    assert memory == {"variables_bytes": 3 * 2048, "device_bytes": 3 * 2048, "host_bytes": 0}


def test_page_locked_memory_is_not_device_memory():
    memory = prepare_traced(copied.trace(X), "async", SimulatedDevice()).memory
    assert memory == {"variables_bytes": 2 * 2048, "device_bytes": 2 * 2048, "host_bytes": 2048}


def test_what_streams_hold_is_added_up():
    """As CUDA counts it, with a stand-in for the workspaces that the model has none of."""

    class WithWorkspaces(SimulatedDevice):
        def memory_of(self, streams):
            return {"workspaces_bytes": 100 * len(list(streams)), "temporaries_bytes": 7}

    prepared = prepare_traced(copied.trace(X), "async", WithWorkspaces())
    assert len(prepared.streams) == 2
    assert prepared.memory == {
        "variables_bytes": 4096, "workspaces_bytes": 200, "temporaries_bytes": 7, "device_bytes": 4303, "host_bytes": 2048,
    }  # fmt: skip


def test_a_comparison_keeps_and_shows_it(tmp_path):
    runs = ss.compare(copied, X, engines="async,graph", device="simulated", progress=False)
    runs.save(tmp_path)
    for shown in (runs, ss.load_comparison(tmp_path)):
        assert [run.trace.info.memory["device_bytes"] for run in shown.values()] == [4096, 4096]
        assert [m.device_memory_bytes for m in shown.metrics.values()] == [4096, 4096]
        assert shown.to_dict()["engines"]["graph"]["memory"] == {"variables_bytes": 4096, "device_bytes": 4096, "host_bytes": 2048}
    assert "device memory, MiB" in str(runs)
    assert "device memory, MiB" in runs._repr_html_()
    page = runs.report(tmp_path / "report.html").read_text()
    assert "device memory, MiB" in page
    assert "variables 0.004 MiB, on the device in all 0.004 MiB, page-locked on the host 0.002 MiB" in page


def test_a_variable_that_does_not_fit_is_named_by_the_operation_that_makes_it():
    with pytest.raises(OutOfMemoryError) as caught:
        prepare_traced(step.trace(X), "async", device_with(5000))
    assert caught.value.message.startswith("relu (operation 1, test_memory.py:")
    assert "needs 2,048 bytes of device memory for float64[256], after 4,096 for the variables before it" in caught.value.message
    assert "a block takes 2,048 bytes and 904 of 5,000 are free" in caught.value.message


def test_an_input_that_does_not_fit_is_named():
    with pytest.raises(OutOfMemoryError, match=r"input 'x' needs 2,048 bytes of device memory for float64\[256\], after 0"):
        prepare_traced(step.trace(X), "graph", device_with(1000))


def test_workspace_that_does_not_fit_is_named_by_its_operation():
    class Full(SimulatedDevice):
        def bind(self, launch, reads, writes, stream):
            if launch.name == "relu":
                raise OutOfMemoryError("allocating 1,000 bytes of workspace")
            return super().bind(launch, reads, writes, stream)

    with pytest.raises(OutOfMemoryError, match=r"^relu \(operation 1, test_memory.py:\d+\) cannot be prepared: allocating 1,000 bytes"):
        prepare_traced(step.trace(X), "graph", Full())


def test_the_device_is_as_good_as_new_after_it_ran_out():
    device = device_with(7000)
    kept = prepare_traced(step.trace(X), "async", device)
    with pytest.raises(OutOfMemoryError):
        prepare_traced(step.trace(X), "async", device)
    kept.load([X])
    kept.run()
    np.testing.assert_array_equal(kept.outputs()[0], 2 * X)
    del kept
    gc.collect()
    assert prepare_traced(step.trace(X), "graph", device).memory["device_bytes"] == 6144
