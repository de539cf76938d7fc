"""Arrays of PyTorch, on the host here: what tells them apart."""

from __future__ import annotations

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


@pytest.mark.filterwarnings("ignore:torch.quantize", "ignore:The PyTorch API of nested")
def test_tensors_whose_elements_do_not_lie_in_rows_are_refused_with_what_can_be_passed(torch, monkeypatch):
    monkeypatch.setattr(device_arrays, "on_host", lambda array: False)
    x = torch.eye(2)
    for array, said, hint in (
        (torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), "a quantized tensor", ".int_repr()"),
        (torch.nested.nested_tensor([x, x[:1]]), "a nested tensor", ".unbind()"),
        (torch.nested.nested_tensor([x, x[:1]], layout=torch.jagged), "a nested tensor", ".unbind()"),
        (x.to_sparse(), "a sparse tensor", "indices and values"),
    ):
        with pytest.raises(ProgramError, match=f"step: x is {said}") as caught:
            check_on_device("step", "x", array)
        assert hint in caught.value.hint


def test_arrays_of_jax_are_refused_by_name():
    kind = type("ArrayImpl", (), {"__module__": "jaxlib._jax", "__cuda_array_interface__": {}})
    with pytest.raises(ProgramError, match=r"x is an array of JAX's, which launches on streams of its own .*torch\.from_dlpack"):
        check_on_device("step", "x", kind())
