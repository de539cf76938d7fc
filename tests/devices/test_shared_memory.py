"""The limit of a kernel's shared memory, with a driver that has its rule: a limit of the function goes before one of the kernel."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from streamscope.devices.cuda import graph_nodes
from streamscope.devices.cuda.graph_nodes import make_room

ALL_BYTES, STATIC_BYTES = 232_448, 1_024


class Driver:
    """A driver with one kernel. Libraries set its limit through the runtime, which sets the kernel's and not the function's."""

    def __init__(self):
        self.kernels, self.functions = 49_152, None

    def get(self, attribute, function=1):
        return 0, STATIC_BYTES if attribute == "static" else self.kernels if self.functions is None else self.functions

    def set(self, function, attribute, value):
        assert attribute == "dynamic"
        assert value + STATIC_BYTES <= ALL_BYTES
        self.functions = value
        return (0,)

    def library_launches(self, nbytes):
        self.kernels = nbytes
        return nbytes <= self.get("dynamic")[1]


@pytest.fixture
def driver(monkeypatch):
    found = Driver()
    cuda = SimpleNamespace(
        CUfunction_attribute=SimpleNamespace(
            CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="dynamic", CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES="static"
        ),
        CUdevice_attribute=SimpleNamespace(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN="all"),
        cuFuncGetAttribute=found.get,
        cuFuncSetAttribute=found.set,
        cuCtxGetDevice=lambda: (0, 3),
        cuDeviceGetAttribute=lambda attribute, device: (0, {("all", 3): ALL_BYTES}[attribute, device]),
    )
    monkeypatch.setattr(graph_nodes, "libraries", lambda: SimpleNamespace(cuda=cuda))
    return found


def test_a_library_can_launch_its_kernel_with_more_than_any_node_has(driver):
    """cuDNN's batch norm failed after a training step of smaller images had been captured, in plain calls, to the end of the process."""
    assert driver.library_launches(1_000)
    assert make_room(1, 60_000)
    for nbytes in (100_000, 1_000, ALL_BYTES - STATIC_BYTES):
        assert driver.library_launches(nbytes)
    assert not make_room(1, ALL_BYTES - STATIC_BYTES)


def test_where_there_is_room_nothing_is_set(driver):
    assert driver.library_launches(60_000)
    assert not make_room(1, 60_000)
    assert driver.functions is None
