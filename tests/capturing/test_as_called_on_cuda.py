"""Captured code beside a plain call on a GPU: no false alarm, and the operator that is another one; constants from the host."""

from __future__ import annotations

import numpy as np
import pytest

import streamscope as ss
from streamscope.errors import EngineError

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")


@pytest.fixture
def x():
    torch.manual_seed(0)
    return torch.randn(32, 32, device="cuda")


def captured_results(captured):
    prepared = ss.prepare(captured, engine="graph", device="cuda", progress=False)
    captured.clear_outputs()
    prepared.run()
    prepared.wait()
    return captured.outputs()


def test_plain_code_is_equal(x):
    found = ss.capture(lambda x: (x @ x).relu().softmax(-1), x).as_called
    assert (found.verdict, found.results, found.error) == ("equal", 1, 0)


def test_random_numbers_and_what_a_step_changes_are_no_false_alarm(x):
    model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.BatchNorm1d(32), torch.nn.Dropout(0.5), torch.nn.Linear(32, 4)).cuda()
    adam = torch.optim.Adam(model.parameters(), capturable=True)

    def step(x):
        adam.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        adam.step()
        return loss.detach(), torch.rand_like(loss)

    assert ss.capture(step, x).as_called.verdict in ("equal", "rounding")


def test_code_that_looks_whether_a_stream_captures_is_named(x):
    def watchful(x):
        y = x @ x
        if torch.cuda.is_current_stream_capturing():
            return y.mul(1.001)
        return y.sin()

    captured = ss.capture(watchful, x)
    found = captured.as_called
    assert found.verdict == "different"
    assert (found.parting.called, found.parting.captured) == ("aten.sin.default", "aten.mul.Tensor")
    assert "test_as_called_on_cuda.py" in found.parting.where
    assert str(found) in captured.certificate().sentences
    with pytest.raises(EngineError, match=r"another way, aten\.mul\.Tensor"):
        ss.parallelise(watchful, x, progress=False)


def test_another_way_to_equal_results_is_told_and_equal(x):
    found = ss.capture(lambda x: (x + 1).abs() if torch.cuda.is_current_stream_capturing() else (x + 1).abs().abs(), x).as_called
    assert found.verdict == "equal"
    assert "without aten.abs.default, which a plain call goes on with" in str(found)


def test_the_same_operators_with_other_numbers_name_the_first_result_that_differs(x):
    def watchful(x):
        y = (x @ x).cos()
        return y.mul(2.0 if torch.cuda.is_current_stream_capturing() else 1.0).add(1).sin()

    found = ss.capture(watchful, x).as_called
    assert (found.verdict, found.parting) == ("different", None)
    assert found.first.startswith("aten.mul.Tensor (test_as_called_on_cuda.py:")
    assert found.error > 0.01


def test_rounding_says_how_much_and_where(x):
    def watchful(x):
        y = x.cos()
        return y.mul(1 + 1e-6 if torch.cuda.is_current_stream_capturing() else 1.0).sin()

    fast = ss.parallelise(watchful, x, progress=False)
    found = fast.gain.as_called
    assert found.verdict == "rounding"
    assert 0 < found.error < 1e-5
    assert found.first.startswith("aten.mul.Tensor")
    assert str(found) in fast.verdict


def test_cupy_code_is_compared_by_its_results():
    import cupy

    found = ss.capture(lambda x: cupy.sin(x) @ x, cupy.ones((16, 16), np.float32)).as_called
    assert (found.verdict, found.results) == ("equal", 1)


def test_constants_that_each_call_makes_on_the_host_are_part_of_the_capture(x):
    def windowed(x):
        window = torch.hann_window(32).to(x)
        mask = ~torch.zeros(32, 32).to(device=x.device, dtype=torch.bool)
        window.mul_(2)  # The next run has to begin with the window again.
        torch.rand([])  # As layers that are left out at random in training draw, and in evaluation do not look at.
        return (x * window * mask)[torch.arange(31, -1, -1)]

    fast = ss.parallelise(windowed, x, progress=False)
    assert fast.gain.as_called.verdict == "equal"
    for _ in range(3):
        other = torch.randn_like(x)
        assert torch.equal(fast(other), windowed(other))
    assert any("3 arrays of constants" in one for one in fast.captured.certificate().notes)


@pytest.mark.parametrize(
    "made",
    [
        lambda: torch.rand(32),
        lambda: torch.from_numpy(np.hanning(32)),
        lambda: torch.tensor([1.0] * 32),
        lambda: torch.ones(32) * HELD,
        lambda: torch.full((32,), next(COUNTER)),
    ],
)
def test_other_values_from_the_host_are_refused_as_before(x, made):
    with pytest.raises(EngineError, match="pinned"):
        ss.capture(lambda x: x * made().to(x.device), x)


HELD = torch.ones(32)
COUNTER = iter(range(1_000_000))


def test_the_capture_gives_the_constants_again_and_again(x):
    captured = ss.capture(lambda x: x + torch.arange(32).to(x.device), x)
    for _ in range(2):
        assert np.array_equal(captured_results(captured)[0], captured.expected()[0])
