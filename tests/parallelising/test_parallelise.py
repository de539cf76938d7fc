"""`ss.parallelise` without a GPU: stand-ins for what captures."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from tests.parallelising.like_cupy import filled

from streamscope.errors import DeviceError, HungError, ProgramError
from streamscope.parallelising import parallelise as module
from streamscope.parallelising.calls import Calls, other_mode
from streamscope.parallelising.parallelised import Parallelised


@pytest.mark.parametrize(("error", "put_back"), [(HungError, False), (DeviceError, True)])
@pytest.mark.parametrize("where", ["prove", "plain_call_us"])
def test_nothing_waits_for_a_device_that_hangs(monkeypatch, error, put_back, where):
    """To put state back is to wait for the device: for ever after a hang, and due after any other error."""
    seen = []

    def failing(*_):
        raise error("it does not end")

    found = SimpleNamespace(plain_call_us=failing if where == "plain_call_us" else float)
    monkeypatch.setattr(module, "open_device", lambda name: None)
    monkeypatch.setattr(module, "KeptState", lambda: SimpleNamespace(called=None, put_back=lambda: seen.append("waits")))
    monkeypatch.setattr(module, "captured", lambda *_: (found, [], None, None))
    monkeypatch.setattr(module, "_chosen", failing if where == "prove" else lambda *_: (None, None, None))
    with pytest.raises(error):
        module.parallelise(abs, filled(1), progress=False)
    assert bool(seen) == put_back


def test_a_capture_that_another_thread_puts_first_does_not_run_with_arguments_of_the_one_before():
    """The other thread comes between the question whether the first capture knows the arguments, and its run."""

    class Call:
        mode = (None, "off")

        def __init__(self, name):
            self.name = name

        def bare(self, inputs):
            fast._captures = tuple(reversed(fast._captures))
            return inputs

        def run(self, arrays):
            return self.name, arrays

    fast = Parallelised(abs, Calls(abs), "step", None, recaptures=True)
    fast._captures = tuple(SimpleNamespace(call=Call(name)) for name in ("first", "other"))
    assert fast(3) == ("first", (3,))


def test_a_module_that_trains_now_is_not_the_one_that_was_captured():
    class Module:
        training = False

        def forward(self, x):
            return x

        def __call__(self, x):
            return x

    module = Module()
    fast = Parallelised(module, Calls(module), "net", None, recaptures=False)
    call = SimpleNamespace(mode=Calls(module).mode(), bare=lambda inputs: inputs, run=len)
    fast._captures = (SimpleNamespace(call=call),)
    assert fast(3, 4) == 2
    module.training = True
    with pytest.raises(ProgramError, match="net: the module's 'training' is True, and False was captured"):
        fast(3)


def test_autocast_is_part_of_the_mode(monkeypatch):
    casts = SimpleNamespace(on=False)
    torch = SimpleNamespace(is_autocast_enabled=lambda: casts.on, get_autocast_dtype=lambda kind: "torch.bfloat16", Tensor=int)
    monkeypatch.setitem(sys.modules, "torch", torch)
    calls = Calls(abs)
    before, casts.on = calls.mode(), True
    assert other_mode(before, calls.mode()) == "autocast is torch.bfloat16, and off was captured"
    assert other_mode(before, before) == ""
