"""Arrays in any dtype: copies of them and their values in NumPy, with tensors on the host in the place of those on a GPU."""

from __future__ import annotations

import numpy as np
import pytest

from streamscope.capturing.arrays import allowed, copy_of, copyable, fetched, fill, is_one_piece, restore
from streamscope.parallelising.device_arrays import copied, copier, fresh_copies, holds_the_same
from streamscope.parallelising.proving import made_like

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support")

DTYPES = sorted({one for one in vars(torch).values() if isinstance(one, torch.dtype) and "q" not in str(one)}, key=str)


def bits(tensor):
    return tensor.contiguous().view(torch.uint8).numpy().tobytes()


def of(dtype, seed=0):
    """Every second byte pattern of a dtype at random, in a matrix whose rows are apart."""
    raw = np.random.default_rng(seed).integers(0, 120, (6, 8 * dtype.itemsize), np.uint8)  # None of them is infinite or not a number.
    return torch.from_numpy(raw % 2 if dtype is torch.bool else raw).view(dtype)[::2]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_copies_of_every_dtype_have_its_bits(dtype):
    array = of(dtype)
    before = bits(copyable(array))
    for copy in (copy_of(array), copied(array), *fresh_copies([array]), *fresh_copies([array, array])):
        assert copy.dtype == dtype
        assert bits(copyable(copy)) == before
        assert holds_the_same(copy, array)
    other = of(dtype, seed=1)
    assert not holds_the_same(other, array)
    copier([other])([array])
    assert holds_the_same(other, array)
    first, second = of(dtype, seed=1), of(dtype, seed=2)
    copier([first, second])([array, array])
    assert holds_the_same(first, second)
    restore([(array, of(dtype, seed=1))])
    assert bits(copyable(array)) != before


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_values_of_every_dtype_go_to_numpy_and_back(dtype):
    array, same = of(dtype), torch.empty_like(of(dtype))
    values = fetched(array)
    assert values.shape == array.shape or values.dtype.kind in "ui"
    fill(same, values)
    assert holds_the_same(same, array)
    assert np.array_equal(fetched(same), values, equal_nan=values.dtype.kind in "fc")
    limit = allowed(array, values)
    assert limit.shape == ()
    assert (limit > 0) == (values.dtype.kind in "fc" and bool(np.any(values)))


@pytest.mark.parametrize(
    ("name", "numbers", "held"),
    [
        ("float8_e4m3fn", [0.5, -448, 1.125], "float32"),
        ("float8_e5m2", [0.5, -57344, 1.25], "float32"),
        ("bfloat16", [0.5, -3.0, 1.0078125], "float32"),
        ("complex32", [0.5 + 1j, -2j, 3], "complex64"),
        ("uint16", [0, 1, 65535], "uint16"),
        ("bool", [True, False], "bool"),
    ],
)
def test_values_are_exact(name, numbers, held):
    values = fetched(torch.tensor(numbers).to(getattr(torch, name)))
    assert values.dtype == held
    assert values.tolist() == numbers


@pytest.mark.parametrize("name", ["complex32", "complex64"])
def test_what_is_conjugated_as_it_is_read_is_copied_as_it_is_read(name):
    array = torch.tensor([1 + 2j, 3 - 4j]).to(getattr(torch, name)).conj()
    assert array.is_conj()
    for copy in (copy_of(array), copied(array), *fresh_copies([array]), *fresh_copies([array, array])):
        assert fetched(copy).tolist() == [1 - 2j, 3 + 4j]
        assert holds_the_same(copy, array)
    for others in ([torch.zeros_like(copy)], [torch.zeros_like(copy), torch.zeros_like(copy)]):
        copier(others)([array for _ in others])
        assert [fetched(other).tolist() for other in others] == [[1 - 2j, 3 + 4j] for _ in others]
    fill(array, np.array([5j, 6], "complex64"))
    assert fetched(array).tolist() == [5j, 6]
    restore([(array, copy)])
    assert fetched(array).tolist() == [1 - 2j, 3 + 4j]


def test_several_numbers_in_a_byte_are_that_byte():
    packed = torch.tensor([0x12, 0xFE], dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    assert fetched(packed).tolist() == [0x12, 0xFE]
    assert allowed(packed, fetched(packed)) == 0


def test_values_made_like_the_largest_stay_numbers():
    array = torch.full((64,), 448.0).to(torch.float8_e4m3fn)
    fill(array, made_like(fetched(array), np.random.default_rng(0)))
    assert np.isfinite(fetched(array)).all()
    fill(array.view(torch.float8_e5m2), np.full(64, -np.inf, "float32"))
    assert np.isneginf(fetched(array.view(torch.float8_e5m2))).all()


def test_two_units_in_the_last_place_of_the_largest_are_allowed():
    assert allowed(torch.zeros(2, dtype=torch.float8_e4m3fn), np.array([1.0, -16.0], "float32")) == 2 * 0.125 * 16
    assert allowed(torch.zeros(2), np.array([1.0, -16.0], "float32")) == pytest.approx(2e-3 * 16)


def test_a_matrix_turned_round_is_not_in_one_piece():
    matrix = torch.zeros(2, 3, dtype=torch.float8_e5m2)
    assert is_one_piece(matrix)
    assert not is_one_piece(matrix.T)
    assert not is_one_piece(matrix[:0])
