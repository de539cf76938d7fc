"""Opening a device: which GPUs are meant, and what is refused."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest

import streamscope as ss
from streamscope.device_entry import DEVICES, DeviceEntry, split_choice
from streamscope.devices import device_for
from streamscope.devices.cuda import gpus as module
from streamscope.devices.cuda.gpus import check_gpus, current_gpu, with_current
from streamscope.devices.simulated import SimulatedDevice
from streamscope.errors import DeviceError, NoDeviceError


@pytest.fixture
def opened(monkeypatch):
    """The arguments that open the CUDA device."""
    seen = []
    entry = DeviceEntry(name="cuda", line="", open=lambda gpus: seen.append(gpus) or SimulatedDevice(), automatic=True, numbered=True)
    monkeypatch.setitem(DEVICES._loaded, "cuda", entry)
    return seen


@pytest.mark.parametrize(
    ("choice", "gpus", "numbers"),
    [
        ("cuda", None, None),
        ("cuda", 1, None),
        ("cuda:0", None, (0,)),
        ("cuda:12", None, (12,)),
        ("cuda", np.int64(3), (0, 1, 2)),
        ("auto", 2, (0, 1)),
        ("cuda", [2, 0], (2, 0)),
        ("cuda", (3,), (3,)),
        ("cuda", range(1, 3), (1, 2)),
    ],
)
def test_the_gpus_that_are_meant(opened, choice, gpus, numbers):
    ss.open_device(choice, gpus=gpus)
    assert opened == [numbers]


def of_torch(index):
    return SimpleNamespace(is_cuda=True, device=SimpleNamespace(index=index))


def of_cupy(number):
    return SimpleNamespace(__cuda_array_interface__={}, device=SimpleNamespace(id=number))


@pytest.mark.parametrize(
    ("inputs", "choice", "gpus", "numbers"),
    [
        ([of_torch(1), np.ones(2)], "auto", None, (1,)),
        ([of_cupy(2), of_torch(2)], "cuda", None, (2,)),
        ([of_cupy(1), of_cupy(0)], "cuda", None, None),
        ([of_cupy(1)], "cuda:0", None, (0,)),
        ([of_cupy(1)], "cuda", 1, None),
        ([SimpleNamespace(is_cuda=False, device=SimpleNamespace(index=None)), np.ones(2)], "cuda", None, None),
    ],
)
def test_the_gpu_of_a_calls_arrays_is_meant_if_no_other_is_named(opened, inputs, choice, gpus, numbers):
    program = ss.program(lambda x: x * x).trace(np.ones(2))
    device_for(program, choice, gpus=gpus, inputs=inputs)
    assert opened == [numbers]


def test_arrays_on_a_gpu_that_we_cannot_use_leave_the_choice_to_auto(monkeypatch):
    def missing(gpus):
        raise NoDeviceError("CuPy is missing")

    entry = DeviceEntry(name="cuda", line="", open=missing, automatic=True, numbered=True)
    monkeypatch.setitem(DEVICES._loaded, "cuda", entry)
    program = ss.program(lambda x: x * x).trace(np.ones(2))
    assert device_for(program, "auto", inputs=[of_torch(1)]).info.simulated
    assert device_for(program, "auto", inputs=[SimpleNamespace(__cuda_array_interface__={})]).info.simulated
    with pytest.raises(NoDeviceError, match="CuPy is missing"):
        device_for(program, "cuda", inputs=[of_torch(1)])


@pytest.mark.parametrize(
    ("gpus", "said"),
    [
        *((gpus, f"gpus={gpus}: a host has 1 or more GPUs") for gpus in (0, -1)),
        ([], "gpus=[]: the list names no GPU"),
        ([-1], "gpus=[-1]: GPUs are numbered from 0 on"),
        *(
            (gpus, f"gpus={gpus!r} is neither a number of GPUs nor a list of their numbers")
            for gpus in (True, 2.0, "2", [0.0], [True, 0], {0, 1})
        ),
    ],
)
def test_what_names_no_gpus(opened, gpus, said):
    with pytest.raises(DeviceError, match=re.escape(said)) as caught:
        ss.open_device("cuda", gpus=gpus)
    assert caught.value.hint == "gpus=2, or gpus=[0, 2]"


@pytest.mark.parametrize(
    ("choice", "gpus", "said", "hint"),
    [
        ("cuda", [1, 1], r"gpus=\[1, 1\] has a GPU twice", "name each once"),
        (
            "cuda:1",
            2,
            "device='cuda:1' names one GPU, so gpus=2 cannot stand beside it",
            "device='cuda', gpus=2 opens GPU 0 and GPU 1; 'cuda:1' opens GPU 1 alone",
        ),
        ("cuda:", None, "unknown device 'cuda:'", "choose auto, cuda or simulated"),
        ("cuda:x", None, "unknown device 'cuda:x'", "choose auto, cuda or simulated"),
        ("simulated:1", None, "unknown device 'simulated:1'", "choose auto, cuda or simulated"),
        ("auto:1", None, "unknown device 'auto:1'", "choose auto, cuda or simulated"),
        ("simulated", 9, "gpus=9 is out of range", "1 to 8"),
        ("simulated", [0, 12], "there is no simulated GPU 12: a host has up to 8", "0 to 7"),
        ("simulated", 10**14, "gpus=100000000000000 is out of range", "1 to 8"),
    ],
)
def test_what_is_refused(opened, choice, gpus, said, hint):
    with pytest.raises(DeviceError, match=said) as caught:
        ss.open_device(choice, gpus=gpus)
    assert caught.value.hint == hint
    assert opened == []


def test_an_open_device_has_its_gpus_already():
    device = ss.open_device("simulated")
    with pytest.raises(DeviceError, match="gpus=2 stands beside a device that is open") as caught:
        ss.open_device(device, gpus=2)
    assert caught.value.hint == "open it with them, ss.open_device('simulated', gpus=2), or name it: device='simulated', gpus=2"


def test_the_hint_of_too_few_gpus_names_what_works():
    with pytest.raises(DeviceError, match="needs 2 GPUs, and simulated NVIDIA H200 has 1") as caught:
        ss.compare(lambda x: ss.ops.to_gpu(x, 1), np.ones(4), device=ss.open_device("simulated"), progress=False)
    assert caught.value.hint == "write device='simulated', gpus=2; ss.open_device takes both, too"


def test_a_device_of_another_package_with_fewer_gpus(monkeypatch):
    entry = DeviceEntry(name="single", line="", open=lambda gpus: SimulatedDevice())
    monkeypatch.setattr(DEVICES, "_guests", {"single": entry})
    with pytest.raises(DeviceError, match="has 1 GPU, not 2") as caught:
        ss.open_device("single", gpus=2)
    assert caught.value.hint == "device='simulated', gpus=2"


def test_more_gpus_than_there_are():
    check_gpus((0, 1), 2)
    with pytest.raises(DeviceError, match="GPUs 0 and 1 were asked for, and this machine has 1 GPU") as caught:
        check_gpus((0, 1), 1)
    assert caught.value.hint == "ask for fewer, or simulate a host: device='simulated', gpus=2"
    with pytest.raises(DeviceError, match="GPU 2 was asked for, and this machine has 2 GPUs"):
        check_gpus((2,), 2)


@pytest.fixture
def runtime(monkeypatch):
    """CUDA's current GPU, and the calls that changed it."""
    state = SimpleNamespace(now=2, chosen=[])

    def choose(index):
        state.now = index
        state.chosen.append(index)

    runtime = SimpleNamespace(getDevice=lambda: state.now, setDevice=choose)
    monkeypatch.setattr(module, "libraries", lambda: SimpleNamespace(runtime=runtime))
    return state


@pytest.mark.parametrize(("initialised", "expected"), [(True, 1), (False, 2)])
def test_pytorchs_current_gpu_counts_where_pytorch_uses_cuda(runtime, monkeypatch, initialised, expected):
    cuda = SimpleNamespace(is_initialized=lambda: initialised, current_device=lambda: 1)
    monkeypatch.setitem(module.sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert current_gpu() == expected
    monkeypatch.delitem(module.sys.modules, "torch")
    assert current_gpu() == 2


def test_a_call_runs_with_its_gpu_current_and_leaves_the_threads_own(runtime):
    seen = []
    with_current(2, lambda: seen.append(runtime.now))()
    assert (seen, runtime.chosen) == ([2], [])
    with_current(0, lambda: seen.append(runtime.now))()
    assert (seen, runtime.chosen, runtime.now) == ([2, 0], [0, 2], 2)
    with pytest.raises(ZeroDivisionError):
        with_current(1, lambda: 1 / 0)()
    assert runtime.now == 2


def test_a_choice_is_split_only_for_devices_that_are_numbered():
    assert split_choice("simulated:1") == ("simulated:1", None)
