"""Values that a function makes in host memory: which of them are constants. PyTorch's device without memory stands for a GPU."""

from __future__ import annotations

import random

import numpy as np
import pytest

from streamscope.capturing.host_constants import HostConstants
from streamscope.capturing.operators import listening

torch = pytest.importorskip("torch")
LENGTHS = torch.tensor([3, 1, 2])


def lent(function):
    """Return how many constants a capture of a function would need, and the devices of what each operator was given in it."""
    constants, given = HostConstants("meta"), []

    def hear(operator, args, kwargs):
        number = len(given)
        given.append(str(operator))
        used = constants.lent(number, operator, args, kwargs)
        result = operator(*used, **kwargs)
        constants.note(operator, args, kwargs, result)
        return result

    for _ in range(2):
        given.clear()
        with listening(hear):
            function(torch.ones(8, 8, device="meta"))
        constants.plain_call_ended()
    return constants.lent_out


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.hann_window(8).to(x),
        lambda x: x * (~torch.zeros(8, 8).to(device=x.device, dtype=torch.bool)),
        lambda x: x + (torch.arange(8) * 4 + torch.linspace(0, 1, 8)).cumsum(0).to(x.device),
        lambda x: x.copy_(torch.full((8, 8), 2.0).tril_()),
        lambda x: x[torch.arange(8).flip(0)],
        lambda x: x[:, torch.arange(3)],
        lambda x: torch.cat([torch.zeros(1), torch.ones(7)]).expand(8, 8).to(x.device),
        lambda x: torch.rand([]) + torch.zeros(8).to(x.device).sum(),  # as layers that are skipped at random draw
        lambda x: torch.eye(8).mul_(torch.arange(8)).type_as(x),
    ],
)
def test_what_operators_make_of_constants_alone_is_copied_once(function):
    assert lent(function) == 1


@pytest.mark.parametrize(
    "function",
    [
        lambda x: LENGTHS.to(x.device),
        lambda x: (LENGTHS * 2).to(x.device),
        lambda x: torch.zeros(3).add_(LENGTHS).to(x.device),
        lambda x: torch.arange(3).where(LENGTHS > 1, 0).to(x.device),
        lambda x: torch.full((3,), LENGTHS.max().item()).to(x.device),
        lambda x: torch.rand(8).to(x.device),
        lambda x: torch.zeros(8).normal_().to(x.device),
        lambda x: torch.ones(8).bernoulli().to(x.device),
        lambda x: torch.full((8,), random.randint(0, 0)).to(x.device),
        lambda x: torch.full((8,), 0 * np.random.random()).to(x.device),  # noqa: NPY002
        lambda x: torch.full((8,), torch.randint(0, 1, (1,)).tolist()[0]).to(x.device),
        lambda x: torch.full((8,), torch.rand([]).item() * 0).to(x.device),
        lambda x: torch.full((8,), float(LENGTHS.numpy()[0])).to(x.device),
        lambda x: torch.from_numpy(np.hanning(8)).to(x.device),
        lambda x: torch.tensor([1.0, 2.0]).to(x.device),
        lambda x: torch.empty(8).to(x.device),
        lambda x: torch.empty_like(torch.zeros(8)).to(x.device),
    ],
)
def test_arguments_state_random_numbers_and_other_libraries_are_unknown(function):
    assert lent(function) == 0


def test_what_numpy_may_have_written_to_is_unknown():
    def through_numpy(x):
        mask = torch.ones(8)
        mask.numpy()[0] *= 1
        return mask.to(x.device)

    def by_dlpack(x):
        mask = torch.ones(8)
        np.from_dlpack(mask)[1:] = 3
        return mask.to(x.device)

    assert lent(through_numpy) == 0
    assert lent(by_dlpack) == 0


def test_values_that_are_others_in_each_call_are_no_constants():
    counted = iter(range(10))
    assert lent(lambda x: torch.full((8,), float(next(counted))).to(x.device)) == 0


def test_a_view_of_a_constant_shares_what_is_written_to_it():
    def written(x):
        mask = torch.zeros(8)
        mask[2:].add_(LENGTHS[0])
        return mask.to(x.device)

    assert lent(written) == 0
