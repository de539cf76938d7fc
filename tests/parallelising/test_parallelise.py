"""`ss.parallelise` without a GPU: stand-ins for what captures."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
from tests.parallelising.like_cupy import filled
from tests.test_job import run

from streamscope.errors import DeviceError, HungError, OutOfMemoryError, ProgramError
from streamscope.measuring.elimination import Elimination, paired_ratios
from streamscope.parallelising import parallelise as module
from streamscope.parallelising import parallelised
from streamscope.parallelising.calls import PLAIN_MODE, Calls, other_mode
from streamscope.parallelising.captured_call import MISSED, CapturedCall
from streamscope.parallelising.parallelised import Parallelised
from streamscope.progress import Steps, silent


class Stub(CapturedCall):
    """A captured call, some of whose methods are others."""

    def __init__(self, mode=PLAIN_MODE, **others):
        self.mode = mode
        self.__dict__.update(others)


@pytest.mark.parametrize(("error", "put_back"), [(HungError, False), (DeviceError, True)])
@pytest.mark.parametrize("where", ["prove", "plain_call_us"])
def test_nothing_waits_for_a_device_that_hangs(monkeypatch, error, put_back, where):
    """To put state back is to wait for the device: for ever after a hang, and due after any other error."""
    seen = []

    def failing(*_):
        raise error("it does not end")

    found = SimpleNamespace(plain_call_us=failing if where == "plain_call_us" else float, generators=[])
    monkeypatch.setattr(module, "open_device", lambda name: None)
    monkeypatch.setattr(module, "KeptState", lambda _: SimpleNamespace(called=None, draws_from=len, put_back=lambda: seen.append("waits")))
    monkeypatch.setattr(module, "captured", lambda *_: (found, [], None))
    monkeypatch.setattr(module, "_chosen", failing if where == "prove" else lambda *_: (None, None, None))
    with pytest.raises(error):
        module.parallelise(abs, filled(1), progress=False)
    assert bool(seen) == put_back


def test_a_capture_that_another_thread_puts_first_does_not_run_with_arguments_of_the_one_before():
    """The other thread comes between the question whether the first capture knows the arguments, and its run."""

    class Call(Stub):
        def arrays_of(self, arguments):
            fast._captures = tuple(reversed(fast._captures))
            return list(arguments.values())

        def run(self, arrays):
            return self.name, arrays

    fast = Parallelised(abs, Calls(abs), "step", None, recaptures=True)
    fast._captures = tuple(SimpleNamespace(call=Call(name=name), quickly=lambda *_: MISSED) for name in ("first", "other"))
    assert fast(3) == ("first", [3])


def test_a_module_that_trains_now_is_not_the_one_that_was_captured():
    class Module:
        training = False

        def forward(self, x):
            return x

        def __call__(self, x):
            return x

    module = Module()
    fast = Parallelised(module, Calls(module), "net", None, recaptures=False)
    call = Stub(mode=Calls(module).mode(), arrays_of=len, run=lambda count: count)
    fast._captures = (SimpleNamespace(call=call, quickly=lambda *_: MISSED),)
    assert fast(3) == 1
    module.training = True
    with pytest.raises(
        ProgramError, match=r"net: the module's 'training' is True, and False was captured \(call its \.train\(\) or \.eval\(\)"
    ):
        fast(3)


def test_autocast_is_part_of_the_mode(monkeypatch):
    casts = SimpleNamespace(on=False)
    torch = SimpleNamespace(
        is_autocast_enabled=lambda: casts.on, get_autocast_dtype=lambda kind: "torch.bfloat16", is_grad_enabled=lambda: True, Tensor=int
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    calls = Calls(abs)
    before, casts.on = calls.mode(), True
    assert other_mode(before, calls.mode()) == (
        "autocast is torch.bfloat16, and off was captured", "call it with autocast as it was captured",
    )  # fmt: skip
    assert other_mode(before, before) == ("", "")


def test_a_call_with_gradients_off_is_not_like_one_with_gradients_on(monkeypatch):
    """Code may ask for the mode, and libraries take other kernels: so such a call is refused or captured anew, like another shape."""
    on = [False]
    torch = SimpleNamespace(is_autocast_enabled=lambda: False, is_grad_enabled=lambda: on[0], Tensor=int)
    monkeypatch.setitem(sys.modules, "torch", torch)
    made = []

    def make(arguments):
        made.append(calls.mode())
        call = Stub(
            mode=made[-1],
            arrays_of=lambda found: [len(made)],
            run=list,
            free_stream=int,
        )
        return SimpleNamespace(call=call, quickly=lambda *_: MISSED, captured=SimpleNamespace(communicates=False))

    calls = Calls(abs)
    for recaptures in (False, True):
        on[0] = False
        fast = Parallelised(abs, calls, "net", make, recaptures=recaptures)
        fast.add({})
        assert fast(3) == [len(made)]
        on[0] = True
        if recaptures:
            assert fast(3) == [len(made)]
            assert made[-2:] == [(None, "off", False), (None, "off", True)]
            assert fast.captures == 2
        else:
            with pytest.raises(ProgramError, match=r"net: torch.is_grad_enabled\(\) is True, and False was captured") as caught:
                fast(3)
            assert "torch.no_grad()" in caught.value.hint
            assert "recapture" in caught.value.hint


def test_ranks_capture_anew_together_if_a_capture_has_collectives_and_each_by_itself_if_none_has(monkeypatch):
    """A rank alone that had another batch waited for the others, which never came."""
    said, kinds = [], iter([False, False, True, False])

    @contextmanager
    def joined(what, timeout_s):
        said.append(what)
        yield

    monkeypatch.setattr(parallelised, "joined", joined)

    def make(arguments):
        call = Stub(mode=calls.mode(), arrays_of=lambda given: [given] if given == arguments else None, run=list, free_stream=int)
        return SimpleNamespace(call=call, quickly=lambda *_: MISSED, captured=SimpleNamespace(communicates=next(kinds)))

    calls = Calls(abs)
    fast = Parallelised(abs, calls, "net", make, recaptures=True)
    for number in range(4):
        fast.add(calls.arguments((number,), {})) if number in (0, 2) else fast(number)
        assert fast.captures == number + 1
    assert said == ["calling net"]


def test_memory_that_runs_out_anywhere_is_told_as_that(monkeypatch):
    """PyTorch's error came through where state was compared, or inputs of the proof were made."""

    def full(*_):
        raise MemoryError("CUDA out of memory. Tried to allocate 16.00 MiB\nand more")

    monkeypatch.setattr(module, "open_device", lambda name: None)
    monkeypatch.setattr(module, "KeptState", full)
    with pytest.raises(
        OutOfMemoryError, match=r"device memory ran out, parallelising abs: CUDA out of memory\. Tried to allocate 16"
    ) as caught:
        module.parallelise(abs, filled(1), progress=False)
    assert "memory_limit=" in caught.value.hint


@dataclass
class HotTimer:
    """Times replays on a GPU at its power limit, whose clocks follow what ran in the last 20 ms, and that gets slower all the while."""

    clocks: dict[str, float]
    alone_ns: float
    slower: float

    def replay_ns(self):
        ns = self.alone_ns * self.clocks["slower"] * self.clocks["drift"]
        share = min(1.0, ns / 2e7)
        self.clocks["slower"] += share * (self.slower - self.clocks["slower"])
        self.clocks["drift"] += ns / 1e11
        return ns


@pytest.mark.parametrize("alone_ns", [1e6, 1e7])
def test_orders_are_timed_at_the_clocks_that_a_loop_of_each_leaves(alone_ns, monkeypatch):
    """On both ranks of a job. At the same clocks, one order would be 10 % faster than the other; at its own it is 1 %."""
    monkeypatch.setattr(module, "_Timer", lambda timer: timer)

    def chosen(job):
        clocks = {"slower": 1.0, "drift": 1.0 + job.rank / 100}
        times = {"graph": alone_ns, "graph-dual": 0.9 * alone_ns}
        timers = {name: HotTimer(clocks, ns, 1.1 if ns < alone_ns else 1.0) for name, ns in times.items()}
        admitted = {name: SimpleNamespace(prepared=timer) for name, timer in timers.items()}
        selection = SimpleNamespace(admitted=admitted, elimination=lambda: Elimination(tuple(timers)), choice=lambda found: found)
        return module._timed(selection, Steps(silent, 200))

    found, other = run(chosen, chosen)
    assert found.times_ns == other.times_ns
    assert found.remaining == other.remaining == ("graph",)
    assert np.median(paired_ratios(found.times_ns["graph-dual"], found.times_ns["graph"])) == pytest.approx(0.99, rel=2e-3)
