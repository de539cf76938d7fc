"""Numbers of optimisers, such as learning rates, that captured kernels keep: with a stand-in for PyTorch."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from tests.parallelising.test_parallelise import Stub

from streamscope.capturing.memory import Access, Evidence, NodeMemory
from streamscope.errors import ProgramError
from streamscope.parallelising.calls import Calls, Given, numbers_of, optimisers, that_step
from streamscope.parallelising.captured_call import MISSED
from streamscope.parallelising.parallelised import Parallelised


class Tensor:
    """A tensor at an address."""

    is_cuda, is_quantized, is_nested, layout = True, False, False, "strided"
    device = SimpleNamespace(type="cuda")

    def __init__(self, start):
        self.data_ptr = lambda: start


class Optimiser:
    """An optimiser of parameters at addresses."""

    def __init__(self, *starts, **numbers):
        self.param_groups = [{"params": [Tensor(start)], "rates": [1], **numbers} for start in starts]


class Momentum(Optimiser):
    """One of a class of its own."""


@pytest.fixture(autouse=True)
def torch(monkeypatch):
    torch = SimpleNamespace(Tensor=Tensor, strided="strided", is_autocast_enabled=bool, is_grad_enabled=bool)
    torch._C = SimpleNamespace(DisableTorchFunctionSubclass=nullcontext)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch.optim", SimpleNamespace(Optimizer=Optimiser))


@pytest.mark.parametrize(("lr", "betas"), [(np.float64(0.1), [0.9, np.float32(0.5)]), (np.array(0.1), (np.array(0.9), 0.5))])
def test_numbers_of_numpy_and_in_host_memory_and_lists_of_them_are_numbers_too(lr, betas):
    optimiser = Momentum(100, lr=lr, betas=betas)
    given = Given(optimiser, numbers_of(optimiser))
    assert given.changed() == ""
    optimiser.param_groups[0]["betas"] = (0.9, 0.5)
    assert given.changed() == "", "a scheduler writes a tuple of the same"
    if isinstance(lr, np.ndarray):
        lr *= 2  # In place, as a scheduler does.
    else:
        optimiser.param_groups[0]["lr"] = lr * 2
    assert given.changed() == "lr of Momentum is 0.2, and 0.1 was captured"


def test_parameters_and_their_names_are_no_numbers():
    assert numbers_of(Momentum(100, lr=0.1, param_names=["weight"])) == [{"rates": (1,), "lr": 0.1}]


def test_an_optimiser_whose_making_failed_is_none():
    half = Optimiser.__new__(Optimiser)
    assert not any(one is half for one in optimisers())


def test_all_optimisers_are_found_and_those_count_whose_parameters_are_written():
    one, other, none = Optimiser(100, lr=0.1), Momentum(200, 300, lr=0.1), Optimiser()
    found = optimisers()
    assert all(any(each is known for each in found) for known in (one, other, none))
    given = [Given(each, numbers_of(each)) for each in (one, other, none)]
    memories = [
        NodeMemory((Access(300, 304, False, True, Evidence.SCHEMA), Access(100, 104, True, False, Evidence.SCHEMA))),
        NodeMemory((Access(50, 100, False, True, Evidence.SCHEMA), Access(100, 100, False, True, Evidence.SCHEMA))),
    ]
    assert [each.optimiser for each in that_step(given, memories)] == [other]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"lr": 0.01}, "lr of Momentum is 0.01, and 0.1 was captured"),
        ({"betas": (0.9, 0.99)}, "betas of Momentum is (0.9, 0.99), and (0.9, 0.999) was captured"),
        ({"fused": True}, "fused of Momentum is True, and None was captured"),
        ({"initial_lr": 0.1}, ""),
        ({"rate": Tensor(0)}, ""),
        ({"lr": 0.1}, ""),
    ],
)
def test_a_number_that_has_changed_is_named_and_what_a_scheduler_adds_is_not(change, said):
    optimiser = Momentum(100, lr=0.1, betas=(0.9, 0.999), fused=None, rate=Tensor(0))
    given = Given(optimiser, numbers_of(optimiser))
    assert given.changed() == ""
    optimiser.param_groups[0].update(change)
    assert given.changed() == said


def test_a_tensor_in_the_place_of_a_number_and_another_group_are_changes():
    optimiser = Momentum(100, lr=0.1)
    given = Given(optimiser, numbers_of(optimiser))
    optimiser.param_groups[0]["lr"] = Tensor(0)
    assert given.changed().startswith("lr of Momentum is <")
    optimiser.param_groups.append({})
    assert given.changed() == "Momentum has 2 groups of parameters, and 1 when it was captured"


def test_a_call_after_a_scheduler_has_changed_the_rate_is_refused_and_says_what_to_do():
    optimiser, calls = Momentum(100, lr=0.1), Calls(abs)
    fast = Parallelised(abs, calls, "step", None, recaptures=False)
    call = Stub(calls.mode(), given=[Given(optimiser, numbers_of(optimiser))], arrays_of=len, run=lambda count: count)
    fast._captures = (SimpleNamespace(call=call, quickly=lambda *_: MISSED),)
    assert fast(3) == 1
    optimiser.param_groups[0]["lr"] *= 0.5
    with pytest.raises(ProgramError, match=r"step: lr of Momentum is 0\.05, and 0\.1 was captured") as caught:
        fast(3)
    assert "lr=torch.tensor" in caught.value.hint
    optimiser.param_groups[0]["lr"] = 0.1
    assert fast(3) == 1
