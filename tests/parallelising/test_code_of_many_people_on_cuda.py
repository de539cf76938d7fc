"""PyTorch code as many people write it, in surroundings as they are: what is right, refused with what to do, and left as it was."""

from __future__ import annotations

import copy

import pytest

import streamscope as ss
from streamscope.errors import EngineError, ProgramError

pytestmark = pytest.mark.gpu


def parallelise(function, *inputs, **keywords):
    return ss.parallelise(function, *inputs, progress=False, check=0, **keywords)


def step_of(torch, model, optimiser):
    def step(x):
        optimiser.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimiser.step()
        return loss.detach()

    return step


@pytest.fixture
def x(torch):
    torch.manual_seed(0)
    return torch.randn(8, 16, device="cuda")


@pytest.fixture
def model(torch):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)).cuda()


def test_batch_norms_of_larger_images_work_after_a_step_of_small_ones_was_captured(torch):
    """A limit of shared memory that we set on cuDNN's kernel stayed for ever, and its next launch that needed more failed."""
    nn = torch.nn

    def net(channels):
        return nn.Sequential(
            nn.Conv2d(3, channels, 3), nn.BatchNorm2d(channels), nn.ReLU(), nn.Conv2d(channels, 8, 3), nn.BatchNorm2d(8)
        ).cuda()

    small = net(16)
    step = step_of(torch, small, torch.optim.SGD(small.parameters(), lr=0.01))
    parallelise(step, torch.randn(2, 3, 16, 16, device="cuda"))
    for size, channels in ((75, 80), (149, 32), (35, 192), (224, 64), (7, 512)):
        large = net(channels)
        large(torch.randn(4, 3, size, size, device="cuda")).square().mean().backward()
    torch.cuda.synchronize()


def test_lengths_in_host_memory_are_constants(torch):
    rnn = torch.nn.utils.rnn
    layers = torch.nn.LSTM(16, 16, batch_first=True).cuda()

    def function(x, lengths):
        out, (hidden, _) = layers(rnn.pack_padded_sequence(x, lengths, batch_first=True))
        return rnn.pad_packed_sequence(out, batch_first=True), hidden

    lengths = torch.tensor([7, 5, 2])
    with torch.no_grad():
        fast = parallelise(function, torch.randn(3, 7, 16, device="cuda"), lengths)
        for _ in range(3):
            x = torch.randn(3, 7, 16, device="cuda")
            ((padded, again), hidden), wanted = fast(x, lengths), function(x, lengths)
            assert torch.equal(padded, wanted[0][0])
            assert torch.equal(hidden, wanted[1])
            assert torch.equal(again, lengths)
        with pytest.raises(ProgramError, match=r"lengths is tensor\(\[7, 5, 3\]\), not tensor\(\[7, 5, 2\]\)"):
            fast(x, torch.tensor([7, 5, 3]))


@pytest.mark.parametrize("rate", ["number", "tensor"])
def test_a_scheduler_changes_the_rate_between_calls(torch, x, model, rate):
    twin = copy.deepcopy(model)
    sides = []
    for one in (model, twin):
        lr = 0.1 if rate == "number" else torch.tensor(0.1, device="cuda")
        optimiser = torch.optim.SGD(one.parameters(), lr=lr, fused=True)
        sides.append((step_of(torch, one, optimiser), torch.optim.lr_scheduler.ExponentialLR(optimiser, 0.5)))
    (step, schedule), (wanted, wanted_schedule) = sides
    fast = parallelise(step, x)
    assert torch.equal(fast(x), wanted(x))
    schedule.step()
    wanted_schedule.step()
    if rate == "number":
        with pytest.raises(ProgramError, match=r"lr of SGD is 0\.05, and 0\.1 was captured"):
            fast(x)
        return
    for _ in range(2):
        assert torch.equal(fast(x), wanted(x))
    assert all(map(torch.equal, model.parameters(), twin.parameters()))


def test_a_scheduler_inside_the_function_is_refused(torch, x, model):
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule, step = torch.optim.lr_scheduler.ExponentialLR(optimiser, 0.5), step_of(torch, model, optimiser)

    def both(x):
        loss = step(x)
        schedule.step()
        return loss

    with pytest.raises(ProgramError, match="changes a number of its optimiser in each call: lr of SGD is"):
        parallelise(both, x)


def test_an_optimiser_that_counts_on_the_host_is_refused_and_stays_as_it_was(torch, x, model):
    optimiser = torch.optim.Adam(model.parameters())
    step = step_of(torch, model, optimiser)
    step(x)
    before = copy.deepcopy((model.state_dict(), optimiser.state_dict()))
    with pytest.raises(EngineError, match="capturable") as caught:
        parallelise(step, x)
    assert "capturable=True" in caught.value.hint
    after = model.state_dict(), optimiser.state_dict()
    assert all(map(torch.equal, before[0].values(), after[0].values()))
    for number, state in before[1]["state"].items():
        assert all(torch.equal(value, after[1]["state"][number][name]) for name, value in state.items())


def test_what_the_first_call_wrote_and_left_the_same_is_put_back(torch, x):
    rate, weight = torch.ones((), device="cuda"), torch.full((1024,), 3.0, device="cuda")

    def step(x):
        weight.mul_(rate)
        rate.mul_(2)
        return weight.sum() + x.sum()

    parallelise(step, x)
    assert rate.item() == 1
    assert weight.unique().tolist() == [3]


def test_sparse_gradients_and_modules_without_weights_yet_may_be_about(torch, x):
    table, lazy = torch.nn.Embedding(10, 4, sparse=True, device="cuda"), torch.nn.LazyLinear(4, device="cuda")
    table(torch.tensor([1, 2], device="cuda")).sum().backward()
    fast = parallelise(lambda x: x.tanh() + 1, x)
    assert torch.equal(fast(x), x.tanh() + 1)
    assert table.weight.grad.is_sparse
    with torch.no_grad():
        fast = parallelise(lazy, x)
        assert torch.equal(fast(x), lazy(x))


# PyTorch warns of it once in a process; as an error that would hide what a user gets.
@pytest.mark.filterwarnings("ignore:The AccumulateGrad")
def test_a_loss_that_is_alive_is_named_and_without_it_the_next_try_works_though_the_error_is_kept(torch, x, model):
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = model(x).square().mean()
    loss.backward()
    with pytest.raises(EngineError) as caught:  # Kept, as IPython does.
        parallelise(step_of(torch, model, optimiser), x)
    assert "del loss" in caught.value.hint
    del loss
    parallelise(step_of(torch, model, optimiser), x)


def test_a_cache_that_grows_is_refused(torch):
    cache = {}

    def step(x):
        cache["x"] = torch.cat([cache["x"], x]) if "x" in cache else x
        return cache["x"] * 1

    with pytest.raises(ProgramError, match="results of other shapes"):
        parallelise(step, torch.ones(1, 4, device="cuda"))


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda torch, x: x * torch.tensor(2.0, device="cuda"), "torch.full"),
        (lambda torch, x: torch.linalg.cholesky(x @ x.mT + 8 * torch.eye(8, device="cuda")), ""),
        (lambda torch, x: x[x > 0], "x[mask]"),
    ],
)
def test_refusals_leave_everything_working(torch, x, function, said):
    with pytest.raises(EngineError) as caught:
        parallelise(lambda x: function(torch, x), x)
    assert said in caught.value.hint
    del caught
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    noise = torch.nn.functional.dropout
    fast = parallelise(lambda x: noise(x, 0.5), x)
    torch.manual_seed(1)
    found = fast(x)
    torch.manual_seed(1)
    assert torch.equal(found, noise(x, 0.5))


def test_frozen_objects_are_state_too(torch, x, model):
    import gc

    step = step_of(torch, model, torch.optim.SGD(model.parameters(), lr=0.1))
    before = [one.detach().clone() for one in model.parameters()]
    gc.freeze()
    try:
        parallelise(step, x)
    finally:
        gc.unfreeze()
    assert all(map(torch.equal, model.parameters(), before))
