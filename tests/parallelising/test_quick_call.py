"""What the quick path of a call compares."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.parallelising.like_cupy import Like

from streamscope.errors import DeviceError
from streamscope.parallelising import device_arrays, quick_call
from streamscope.parallelising.calls import Calls
from streamscope.parallelising.device_arrays import key
from streamscope.parallelising.quick_call import Addresses, Arranger, Copying, address_reader, alike
from streamscope.parallelising.trees import taken_apart


def reader(memory, *others, copied=True):
    return address_reader(memory, sorted(map(device_arrays.extent, (memory, *others))), copied=copied)


views = st.sampled_from([np.s_[:2, :3], np.s_[:3, :2], np.s_[2:4, 1:4], np.s_[:2, 2::-1], np.s_[:4:2, :3], np.s_[:2, :6:2], np.s_[0, :3]])


@given(views, views, st.booleans(), st.sampled_from(["f4", "i4"]))
def test_a_reader_takes_arrays_of_the_same_layout_that_lie_free_and_no_others(kept, passed, turned, dtype):
    memory = Like(np.zeros((4, 6), "f4")[kept].copy())
    values = np.zeros((4, 6), dtype)[passed]
    array = Like(values.T if turned else values)
    same_kind = key(array) == key(memory) and array.strides == memory.strides
    assert reader(memory)(array) == (array.data.ptr if same_kind else None)
    assert reader(memory, Like(array.values[-1:]))(array) is None  # Another argument's memory, in which it ends.
    assert reader(memory, copied=False)(array) is None
    assert reader(memory, copied=False)(memory) == memory.data.ptr


def test_a_reader_takes_tensors_of_the_same_layout_and_no_others(torch):
    rows = torch.zeros(4, 6)
    for memory, taken, refused in (
        (rows, [rows + 1, torch.nn.Parameter(rows + 1)], [rows.t().contiguous().t(), rows.half(), rows[:2], rows.expand(1, 4, 6), 3.0]),
        (rows.t(), [(rows + 1).t()], [rows.reshape(6, 4), rows]),
        (rows[:, :0], [torch.zeros(4, 0)], [torch.zeros(0, 4)]),
        (torch.zeros(3, 1), [torch.ones(3, 2)[:, 1:].contiguous(), torch.ones(1, 3).t()], [torch.ones(3, 2)[:, 1:]]),
        (torch.zeros(3, dtype=torch.complex64), [torch.ones(3) + 1j], [(torch.ones(3) + 1j).conj()]),
        (torch.zeros(1), [torch.ones(1)], [(torch.ones(1) + 1j).conj().imag]),
        (torch.zeros(3, dtype=torch.complex64).conj(), [], [torch.ones(3) + 1j, (torch.ones(3) + 1j).conj()]),
    ):
        read = reader(memory)
        assert [read(array) for array in taken] == [array.data_ptr() for array in taken]
        assert [read(array) for array in refused] == [None] * len(refused)


def test_addresses_are_told_of_all_tensors_that_fit_whatever_was_asked_before(torch, monkeypatch):
    """The guards of PyTorch are those of the last tensors that fitted."""
    memories = [torch.zeros(4, 6), torch.zeros(3, dtype=torch.complex64)]
    told = Addresses(memories, [True, True], sorted(map(device_arrays.extent, memories)))
    fitting = [torch.ones(4, 6), torch.nn.Parameter(torch.ones(4, 6)), memories[0]]
    other = [torch.ones(4, 6).half(), torch.ones(6, 4).t(), torch.ones(6, 4), torch.ones(4, 6)._neg_view(), memories[0].view(-1)[4:16]]
    z = torch.ones(3, dtype=torch.complex64)
    for first in [*fitting, *other, *fitting, *other]:
        for second in (z, z.conj(), memories[1]):
            fits = any(first is one for one in fitting) and not second.is_conj()
            pair = first.data_ptr() if first.layout is torch.strided else 0, second.data_ptr()
            assert told.read([first, second]) == (pair if fits else None)
            assert fits or not told.alike(first, second) or pair not in told.known


def test_guards_tell_whatever_a_call_has_to_compare(torch):
    x, z = torch.zeros(4, 6), torch.zeros(3, dtype=torch.complex64)
    check = alike([x, z])
    if check is None:
        pytest.skip(f"guards of PyTorch {torch.__version__} are not used")
    assert check(torch.ones(4, 6), torch.ones(3) + 1j)
    for one in (x.half(), x.int(), x[:3], x.t().contiguous().t(), x[:, ::2], x.to("meta"), x._neg_view(), x.to_sparse(), 3.0):
        assert not check(one, z)
    assert not check(x, z.conj())
    assert alike([torch.Tensor._make_subclass(type("Own", (torch.Tensor,), {}), x)]) is None


class Graph:
    """A graph, or one with the kernel that copies before its nodes, by the host: its arguments count from when they are read anew."""

    def __init__(self, whole=None, cleared=()):
        self.sets, self.whole, self.cleared = 0, whole, cleared

    def first_sets(self, written):
        return [(each.ctypes.data, each.ctypes.data + each.nbytes) for each in self.cleared]

    def behind(self, kernel, blocks, threads, arguments, written):
        copy = Graph(self)
        copy.table, copy.values = (ctypes.c_void_p.from_address(ctypes.c_void_p.from_address(arguments + 8 * n).value) for n in range(2))
        copy.pieces = np.ctypeslib.as_array((ctypes.c_uint64 * 4 * blocks).from_address(copy.table.value)).tolist()
        return copy, copy.read_anew

    def read_anew(self):
        self.whole.sets += 1
        arrays = 1 + max(array for array, *_ in self.pieces)
        self.sources = list((ctypes.c_uint64 * arrays).from_address(ctypes.addressof(self.values)))
        return 0

    def launch_on(self, stream):
        for array, target, first, size in self.pieces:
            if self.sources[array]:
                ctypes.memmove(target + first, self.sources[array] + first, size)
            else:
                assert first == 0
                ctypes.memset(target, 0, size)


@pytest.fixture
def on_host(monkeypatch):
    kernel = SimpleNamespace(kernel=SimpleNamespace(ptr=1))
    lib = SimpleNamespace(cupy=SimpleNamespace(asarray=Like, RawKernel=lambda source, name: kernel))
    monkeypatch.setattr(quick_call, "libraries", lambda: lib)


def launch(copying, addresses):
    (copying.launches.get(addresses) or copying.set(addresses))(0)


@pytest.mark.parametrize("cleared", [[], [1], [8193, 40_000]])
@pytest.mark.parametrize("sizes", [[1], [0], [8192, 0, 8193], [50_000, 3, 0, 100]])
def test_all_bytes_are_copied_or_cleared_and_addresses_set_where_they_are_new(on_host, sizes, cleared):
    """Those of two buffers, which take turns, are set once."""
    random, targets = np.random.default_rng(0), [np.zeros(size, np.uint8) for size in sizes]
    graph = Graph(cleared=[np.ones(size + 1, np.uint8)[:-1] for size in cleared])
    copying = Copying([(each.ctypes.data, each.ctypes.data + each.nbytes) for each in targets], graph)
    first, second, third = ([random.integers(1, 99, size + 1, np.uint8) for size in sizes] for _ in range(3))
    for given_arrays, sets in ((first, 1), (first, 1), (second, 2), (first, 2), (third, 3), (second, 3), (first, 4)):
        given_arrays[0] += 1
        launch(copying, tuple(each.ctypes.data for each in given_arrays))
        assert all(np.array_equal(target, given_array[:-1]) for target, given_array in zip(targets, given_arrays, strict=True))
        assert not any(each.any() or not each.base[-1] for each in graph.cleared)
        assert graph.sets == sets
        for each in graph.cleared:
            each[:] = 1


@pytest.mark.parametrize("status", [None, 1])
def test_after_ctrl_c_or_an_error_while_addresses_are_set_they_are_set_again(on_host, status):
    target, (one, other), graph = np.zeros(4), np.ones((2, 4)), Graph()
    copying = Copying([(target.ctypes.data, target.ctypes.data + 32)], graph)

    def fails(addresses):
        for copy in copying._copies:
            right, copy.read_anew = copy.read_anew, lambda: 1 if status else (_ for _ in ()).throw(KeyboardInterrupt)
            copy.right = right
        with pytest.raises(DeviceError if status else KeyboardInterrupt):
            launch(copying, addresses)
        for copy in copying._copies:
            copy.read_anew = copy.right

    for array in (one, other):
        launch(copying, (array.ctypes.data,))
    fails((target.ctypes.data,))
    for array in (one, other, one):
        np.add(array, 1, out=array)
        launch(copying, (array.ctypes.data,))
        assert np.array_equal(target, array)


def test_a_call_gives_one_array_in_each_of_its_places_and_values_as_captured(monkeypatch):
    monkeypatch.setattr(quick_call, "is_array", lambda value: isinstance(value, Like))
    one, other = (Like(np.zeros(3, "f4")) for _ in range(2))
    calls = Calls(lambda x, y, options, scale=1.0: x)
    captured = {"lr": 0.1, "epoch": 0, "clip": False}
    _, tree = taken_apart(calls.arguments((one, one, captured), {}), quick_call.is_array)
    arranged = Arranger(tree, 1, calls)
    assert arranged((other, other, {"lr": 0.1, "epoch": 0, "clip": False}), {"scale": 1.0}) == [other]
    different = ({"lr": 0.2}, {"epoch": 1}, {"epoch": False}, {"epoch": -0.0}, {"clip": 0}, {"warm": 1})
    refused = [(other, other, captured | changed) for changed in different] + [(other, other, dict(reversed(captured.items())))]
    refused += [(None, other, captured), (other, None, captured), (other, one, captured)]
    assert [arranged(arguments, {}) for arguments in refused] == [None] * len(refused)
    assert arranged((other, other, captured), {"scale": 1}) is None
