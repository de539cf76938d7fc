"""Functions of PyTorch and CuPy on a GPU that is not the first one."""

from __future__ import annotations

import pytest

import streamscope as ss
from streamscope.errors import ProgramError

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def two_gpus(cupy):
    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("needs two GPUs")
    with cupy.cuda.Device(0):  # Whatever a test makes current, the next one begins with the first.
        yield


def branches(x):
    return [(x * k) @ x + k for k in range(3)]


def parallelised(function, *inputs):
    return ss.parallelise(function, *inputs, progress=False, check=2)


def test_the_gpu_that_pytorch_has_made_current_counts(torch):
    torch.cuda.set_device(1)
    try:
        x = torch.randn(64, 64, device="cuda")
        fast = parallelised(branches, x)
        assert torch.cuda.current_device() == 1
        for found, wanted in zip(fast(x + 1), branches(x + 1), strict=True):
            assert found.device.index == 1
            assert torch.equal(found, wanted)
        assert ss.capture(branches, x).bound().capture_us > 0
        ss.compare(fast, engines="graph,graph-dual", repeats=3, progress=False)
        assert torch.cuda.current_device() == 1
    finally:
        torch.cuda.set_device(0)


def test_a_call_runs_on_the_gpu_of_its_arrays_whichever_is_current(torch):
    with torch.cuda.device(1):
        x = torch.randn(64, 64, device="cuda")
        fast = parallelised(branches, x)
        wanted = branches(x * 2)
    side = torch.cuda.Stream(device=1)
    assert torch.cuda.current_device() == 0
    for found, expected in zip(fast(x * 2), wanted, strict=True):
        assert torch.equal(found, expected)
    with torch.cuda.stream(side):
        assert all(map(torch.equal, fast(x * 2), wanted))
    for turned in fast(x.t() * 2), fast((x * 2).t().contiguous()):
        assert all(map(torch.equal, turned, branches(x.t().contiguous() * 2)))
    assert torch.cuda.current_device() == 0


def test_the_gpu_that_cupy_has_made_current_counts(cupy):
    with cupy.cuda.Device(1):
        x = cupy.arange(4096.0).reshape(64, 64)
        fast = parallelised(branches, x)
        wanted = branches(x + 1)
    with cupy.cuda.Device(1):
        assert all((found == expected).all() for found, expected in zip(fast(x + 1), wanted, strict=True))
        y = x + 1
    assert all(found.device.id == 1 for found in fast(y))
    assert cupy.cuda.runtime.getDevice() == 0


def test_arrays_on_a_gpu_that_is_not_current_or_on_two_are_refused(torch):
    here, there = torch.ones(8, device="cuda:0"), torch.ones(8, device="cuda:1")
    with pytest.raises(ProgramError, match="x lies on GPU 1, and GPU 0 is the current one"):
        parallelised(branches, there)
    with pytest.raises(ProgramError, match="y lies on GPU 1, and GPU 0 is the current one"):
        parallelised(lambda x, y: x + 1, here, there)
    fast = parallelised(lambda x: x + 1, here)
    with pytest.raises(ProgramError, match=r"x is float32\[8\] on cuda:1, and float32\[8\] on cuda:0 was captured"):
        fast(there)
