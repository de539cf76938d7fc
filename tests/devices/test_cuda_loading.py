"""Loading of compiled kernels: each machine code once, and nobody waits for another's."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from streamscope.devices.cuda.device import CudaDevice
from streamscope.kernels.compile.cubin import Cubin
from streamscope.kernels.source import KernelSource

A, B, C = (KernelSource(name, "") for name in "abc")
FIRST, SECOND = (Cubin(image, "sm_90", "13.0", 1, 1) for image in (b"first", b"second"))


@pytest.fixture
def device(monkeypatch):
    """As much of a CUDA device as loading needs; what is loaded is a list of its own."""
    device = CudaDevice.__new__(CudaDevice)
    device._cache, device._cache_lock = {}, threading.RLock()
    device._modules, device._cubins, device._loading, device._images, device.gpus = {}, {}, {}, {}, 1
    monkeypatch.setattr(device, "_loaded", lambda cubin, *_: [cubin], raising=False)
    return device


def test_kernels_of_one_machine_code_are_loaded_once(device):
    device.load({A: FIRST, B: FIRST, C: SECOND})
    assert device.module(A) is device.module(B)
    assert device.module(C) == [SECOND]


def test_while_one_is_loaded_others_are_and_plans_are_made(device, monkeypatch):
    begun, free = threading.Event(), threading.Event()

    def loaded(cubin, *_):
        if cubin is FIRST:
            begun.set()
            assert free.wait(30)
        return [cubin]

    monkeypatch.setattr(device, "_loaded", loaded)
    with ThreadPoolExecutor(2) as pool:
        slow = [pool.submit(device.load, {kernel: FIRST}) for kernel in (A, B)]
        assert begun.wait(30)
        device.load({C: SECOND})
        assert device.cached("plan", lambda: "made") == "made"
        assert not any(each.done() for each in slow)
        free.set()
    assert [each.result() for each in slow] == [None, None]
    assert device.module(A) is device.module(B)


def test_what_failed_to_load_is_tried_again(device, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(device, "_loaded", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            device.load({A: FIRST})
    device.load({A: FIRST})
    assert device.module(A) == [FIRST]


def test_each_gpu_loads_machine_code_when_it_first_needs_it(device, monkeypatch):
    loads = []
    monkeypatch.setattr(device, "_loaded", lambda cubin, gpu, _: loads.append((cubin, gpu)) or [cubin, gpu])
    device.gpus = 2
    device.load({A: FIRST, B: FIRST})
    assert loads == [(FIRST, 0)]
    assert device.module(A, 1) is device.module(B, 1) is not device.module(A)
    assert loads == [(FIRST, 0), (FIRST, 1)]


def test_ctrl_c_waits_until_the_libraries_are_imported(tmp_path):
    """In the middle, it left CuPy half imported: each later call said that a module has no attribute, to the end of the process."""
    for package in ("cupy", "cuda/bindings", "cupy_backends/cuda/api"):
        (tmp_path / package).mkdir(parents=True)
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / "cupy" / "__init__.py").write_text("import signal; signal.raise_signal(signal.SIGINT); whole = True")
    for name in ("cuda/bindings/driver", "cupy_backends/cuda/api/driver", "cupy_backends/cuda/api/runtime"):
        (tmp_path / f"{name}.py").touch()
    code = """
import sys
from streamscope.kernels.library.libraries import libraries
try:
    libraries()
except KeyboardInterrupt:
    print(sys.modules["cupy"].whole, "cupy_backends.cuda.api.runtime" in sys.modules)
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["True", "True"]
