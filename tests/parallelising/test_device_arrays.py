"""Arrays of PyTorch, on the host here: what tells them apart."""

from __future__ import annotations

import pytest

from streamscope.capturing.function import on_host
from streamscope.errors import ProgramError
from streamscope.parallelising import device_arrays
from streamscope.parallelising.device_arrays import check_on_device, holds_the_same, place


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def test_views_that_conjugate_or_negate_hold_what_is_read(torch):
    x = torch.tensor([1 + 2j, 3 - 4j])
    for view in (x.conj(), x.conj().imag):
        assert holds_the_same(view, view.clone())
        assert place(view) != place(view.clone())
    assert not holds_the_same(x, x.conj())
    assert not holds_the_same(x.imag, x.conj().imag)
    assert holds_the_same(x.real, x.conj().real)


def test_the_host_gets_what_is_read(torch):
    x = torch.tensor([1 + 2j, 3 - 4j])
    assert on_host(x.conj()).tolist() == [1 - 2j, 3 + 4j]
    assert on_host(x.conj().imag).tolist() == [-2, 4]
    assert on_host(torch.tensor([0.5], dtype=torch.bfloat16)).tolist() == [0.5]


def test_a_view_that_conjugates_or_negates_is_another_array_at_the_same_place(torch):
    x = torch.tensor([1 + 2j, 3 - 4j])
    assert place(x) != place(x.conj())
    assert place(x) == place(x.conj().conj())
    assert place(x.imag) != place(x.conj().imag)
    assert place(x.real) == place(x.conj().real)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_dtypes_that_numpy_lacks_are_refused_with_what_can_be_passed(torch, monkeypatch, name):
    monkeypatch.setattr(device_arrays, "on_host", lambda array: False)
    with pytest.raises(ProgramError, match=rf"step: x is {name}\[4\] on cpu") as caught:
        check_on_device("step", "x", torch.zeros(4, dtype=getattr(torch, name)))
    assert "x.view(torch.uint8)" in caught.value.hint


def test_dtypes_whose_values_numpy_can_hold_are_none_of_these(torch):
    held = (torch.float16, torch.bfloat16, torch.float64, torch.bool, torch.int8, torch.uint16, torch.complex64)
    assert all(map(device_arrays._has_numpy, held))
