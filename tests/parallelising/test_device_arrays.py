"""Arrays of PyTorch, on the host here: what tells them apart."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from streamscope.capturing.arrays import fetched
from streamscope.errors import ProgramError
from streamscope.parallelising import device_arrays
from streamscope.parallelising.device_arrays import check_on_device, holds_the_same, place


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
    assert fetched(x.conj()).tolist() == [1 - 2j, 3 + 4j]
    assert fetched(x.conj().imag).tolist() == [-2, 4]
    assert fetched(torch.tensor([0.5], dtype=torch.bfloat16)).tolist() == [0.5]


def test_a_view_that_conjugates_or_negates_is_another_array_at_the_same_place(torch):
    x = torch.tensor([1 + 2j, 3 - 4j])
    assert place(x) != place(x.conj())
    assert place(x) == place(x.conj().conj())
    assert place(x.imag) != place(x.conj().imag)
    assert place(x.real) == place(x.conj().real)


def test_quantized_tensors_are_refused_with_what_can_be_passed(monkeypatch):
    monkeypatch.setattr(device_arrays, "on_host", lambda array: False)
    monkeypatch.setattr(device_arrays, "is_tensor", lambda array: True)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(strided="strided"))
    with pytest.raises(ProgramError, match="step: x is a quantized tensor") as caught:
        check_on_device("step", "x", SimpleNamespace(layout="strided", is_quantized=True))
    assert "x.int_repr()" in caught.value.hint
