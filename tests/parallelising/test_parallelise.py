"""`ss.parallelise` without a GPU: stand-ins for what captures."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.parallelising.like_cupy import filled

from streamscope.errors import DeviceError, HungError
from streamscope.parallelising import parallelise as module
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
        def __init__(self, name):
            self.name = name

        def bare(self, inputs):
            fast._captures = tuple(reversed(fast._captures))
            return inputs

        def run(self, arrays):
            return self.name, arrays

    fast = Parallelised(abs, None, "step", None, recaptures=True)
    fast._captures = tuple(SimpleNamespace(call=Call(name)) for name in ("first", "other"))
    assert fast(3) == ("first", (3,))
