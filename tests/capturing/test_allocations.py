"""What was allocated around an address, from an allocator's history."""

from __future__ import annotations

import gc
import itertools
import sys
import weakref
from contextlib import contextmanager
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from streamscope.capturing.allocations import Allocated, arrays_memory_behind, known_objects, most_in_use
from streamscope.capturing.memory import united

REGIONS = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)).map(lambda one: (one[0], one[0] + one[1])), max_size=12)


@given(REGIONS)
def test_united_regions_are_apart_and_hold_the_same_bytes(regions):
    found = united(regions)
    assert found == sorted(found)
    assert all(one[1] <= other[0] for one, other in itertools.pairwise(found))
    assert {byte for one in found for byte in range(*one)} == {byte for one in regions for byte in range(*one)}


@given(REGIONS)
def test_each_allocation_lies_whole_in_what_is_around_its_addresses(regions):
    allocated = Allocated(regions, pools=[(0, 100)])
    for start, end in regions:
        for address in range(start, end):
            found = allocated.around(address)
            assert found[0] <= start
            assert end <= found[1]


def test_memory_that_was_used_twice_is_one_and_an_address_between_stands_for_the_pool():
    allocated = Allocated([(0, 512), (256, 1024)], [(2048, 2560)], [(0, 4096), (8192, 9000)])
    assert allocated.around(100) == (0, 1024)
    assert allocated.around(2100) == (2048, 2560)
    assert allocated.around(1500) == (0, 4096)


class FakeArray:
    """An array of CuPy's, or a tensor of PyTorch's, whose memory begins at an address."""

    is_cuda, layout = True, "strided"

    def __init__(self, start, nbytes):
        device = SimpleNamespace(type="cuda")
        self.memory = SimpleNamespace(ptr=start, size=nbytes, data_ptr=lambda: start, nbytes=lambda: nbytes, device=device)
        self.data = SimpleNamespace(mem=self.memory)

    def untyped_storage(self):
        if self.memory is None:
            raise RuntimeError("Cannot access data pointer of Storage that is invalid!")
        return self.memory


class FakeTensor(FakeArray):
    """A tensor."""


class UsersTensor(FakeTensor):
    """A tensor whose class has functions of its own, which refuse; unless PyTorch is told not to ask them."""

    asked = True

    @property
    def is_cuda(self):
        if UsersTensor.asked:
            raise KeyError("is_cuda")
        return True


@contextmanager
def not_asked():
    UsersTensor.asked = False
    try:
        yield
    finally:
        UsersTensor.asked = True


def test_memory_of_arrays_that_only_kernels_read_is_found_by_the_addresses_in_their_arguments(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(ndarray=FakeArray))
    torch = SimpleNamespace(Tensor=FakeTensor, strided="strided", _C=SimpleNamespace(DisableTorchFunctionSubclass=not_asked))
    monkeypatch.setitem(sys.modules, "torch", torch)
    read, view, tensor, weights, sparse, host, left, empty = (
        kind(*where)
        for kind, *where in [
            (FakeArray, 4096, 512), (FakeArray, 4096, 512), (FakeTensor, 8192, 512), (UsersTensor, 9216, 512),
            (FakeTensor, 10240, 512), (FakeTensor, 11264, 512), (FakeArray, 5120, 512), (FakeArray, 12288, 0),
        ]
    )  # fmt: skip
    sparse.layout, host.is_cuda, view.data.mem = "sparse", False, read.memory
    note, compilers = FakeTensor(8192, 512), FakeTensor(9216, 512)
    note.memory, compilers.memory.device.type = None, "meta"
    found = arrays_memory_behind([4100, 7, 4600, 8192, 8703, 9500, 10240, 11264, 5119, 5632, 12288])
    assert {id(one) for one in found} == {id(one.memory) for one in (read, tensor, weights)}
    assert len(found) == 3
    assert not {id(left.memory), id(empty.memory)} & {id(one) for one in found}


def test_what_the_garbage_collector_was_told_to_set_aside_is_found_too_and_what_comes_later_can_be_collected():
    array = FakeArray(4096, 512)
    gc.freeze()
    assert not any(one is array for one in gc.get_objects())
    ring = [FakeArray(8192, 512)]
    ring.append(ring)
    gone = weakref.ref(ring[0])
    assert any(one is array for one in known_objects())
    del ring
    gc.collect()
    assert gone() is None


EVENTS = st.lists(st.tuples(st.sampled_from(["alloc", "free_requested", "free_completed"]), st.integers(0, 4)), max_size=30)


@given(EVENTS)
def test_most_in_use_is_the_most_that_is_in_use_after_any_event(drawn):
    events, in_use, most = [], {}, 0
    for action, address in drawn:
        if action == "alloc" and address in in_use:
            continue  # No allocator hands out what is in use.
        nbytes = 100 * (address + 1)
        events.append((action, address, nbytes))
        if action == "alloc":
            in_use[address] = nbytes
        elif action == "free_completed":
            in_use.pop(address, None)
        most = max(most, sum(in_use.values()))
    assert most_in_use(events) == most
