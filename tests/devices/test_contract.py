"""The contract of devices: each entry that opens here has all of the protocol, and runs and captures a program."""

from __future__ import annotations

import numpy as np
import pytest

import streamscope as ss
from streamscope.device_entry import DEVICES, DeviceEntry
from streamscope.devices.protocol import Device
from streamscope.doors import GuestWarning
from streamscope.errors import DeviceError, NoDeviceError
from streamscope.trace.info import DeviceInfo

X = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)
MEMBERS = [name for name in (*vars(Device), *Device.__annotations__) if not name.startswith("_")]


@pytest.fixture(params=DEVICES)
def device(request):
    try:
        return ss.open_device(request.param)
    except NoDeviceError:
        pytest.skip(f"no {request.param} device here")


def test_it_has_all_of_the_protocol_and_says_what_it_is(device):
    assert [name for name in MEMBERS if not hasattr(device, name)] == []
    assert isinstance(device.info, DeviceInfo)
    assert device.info.name
    assert 0 <= device.free_share() <= 1


def test_a_device_that_repeats_itself_exactly_keeps_a_log_and_does_so(device):
    assert not device.repeats_exactly or device.log is not None
    prepared = ss.prepare(lambda x: ss.ops.tanh(x) @ x, X, engine="graph", device=device, progress=False)
    prepared.capture()
    times_ns = []
    for _ in range(3):
        start_ns = device.now_ns()
        prepared.run()
        prepared.wait()
        times_ns.append(device.now_ns() - start_ns)
    if device.repeats_exactly:
        assert max(times_ns) - min(times_ns) <= 1, "the clock is rounded to whole ns"
    np.testing.assert_allclose(prepared.outputs()[0], np.tanh(X) @ X, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("engine", ["async", "graph"])
def test_events_order_streams_and_time_work(device, engine):
    runs = ss.compare(lambda x: ss.ops.exp(x) + x, X, engines=engine, device=device, repeats=2, progress=False)
    assert runs[engine].correct
    assert runs[engine].metrics.kernel_count >= 1
    start, end = (device.event(timing=True) for _ in range(2))
    stream = device.stream("test")
    stream.record(start)
    stream.record(end)
    device.synchronize()
    assert end.done()
    assert device.elapsed_ns(start, end) >= 0


def test_auto_opens_the_first_that_there_is_and_unknown_names_are_told():
    assert ss.open_device().info.kind in ("cuda", "simulated")
    with pytest.raises(DeviceError, match="unknown device 'abacus'") as caught:
        ss.open_device("abacus")
    assert caught.value.hint == "choose auto, cuda or simulated"


@pytest.mark.parametrize(("opened", "said"), [(lambda _: 1 / 0, "ZeroDivisionError"), (lambda _: None, "opens None, which is no device")])
def test_a_device_of_another_package_that_fails_keeps_auto_from_no_other(monkeypatch, opened, said):
    monkeypatch.setattr(DEVICES, "_guests", {"broken": DeviceEntry(name="broken", line="", open=opened, automatic=True)})
    monkeypatch.setitem(DEVICES._loaded, "cuda", DEVICES["simulated"])
    with pytest.warns(GuestWarning, match=f"device 'broken' of the package 'unknown' is left out: .*{said}"):
        assert ss.open_device().info.kind == "simulated"
    with pytest.raises(DeviceError, match=f"^the device 'broken' of the package 'unknown' .*{said}"):
        ss.open_device("broken")
