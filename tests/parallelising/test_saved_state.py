"""State that a function changes is put back, with NumPy's memory in the place of the device's."""

from __future__ import annotations

import gc
import sys
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamscope.parallelising import saved_state
from streamscope.parallelising.saved_state import KeptState


class Generator:
    """Random numbers, of which only the state counts."""

    def __init__(self, state=0):
        self.state = state
        self._cdata = id(self)

    def get_state(self):
        return self.state

    def set_state(self, state):
        self.state = state


@pytest.fixture
def world(monkeypatch):
    """Memory that Python knows of, by its address; how much more is free; and a generator of random numbers."""
    found = SimpleNamespace(memory={}, written={}, free=2**40, random=Generator())
    runtime = SimpleNamespace(deviceSynchronize=lambda: None)
    monkeypatch.setattr(saved_state, "libraries", lambda: SimpleNamespace(runtime=runtime))
    monkeypatch.setattr(
        saved_state,
        "live_memory",
        lambda without=(): {(at, at + len(values)): (values, found.written.get(at, 0)) for at, values in found.memory.items()},
    )
    monkeypatch.setattr(saved_state, "_free_bytes", lambda: found.free)

    monkeypatch.setattr(saved_state, "generators_of", lambda kept: [found.random])
    return found


def filled(*values):
    return np.array(values, np.uint8)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.integers(0, 9), st.integers(0, 250), min_size=1), st.sets(st.integers(0, 9)), st.integers(1, 4))
def test_what_is_changed_is_put_back_and_nothing_else_is_touched(world, values, changed, calls):
    world.memory = {100 * number: filled(value, value + 1) for number, value in values.items()}
    wanted = {at: each.copy() for at, each in world.memory.items()}
    state = KeptState()
    for call in range(calls):
        for number in changed & values.keys():
            world.memory[100 * number] += 1
        world.random.state += 1
        if call == 0:
            state.called()
    aside = next(iter(values.keys() - changed), None)
    if aside is not None:
        world.memory[100 * aside][0] = 255  # By somebody else.
        wanted[100 * aside][0] = 255
    assert state.put_back() == ""
    assert all((world.memory[at] == each).all() for at, each in wanted.items())
    assert world.random.state == 0


def test_what_the_first_call_wrote_and_left_the_same_is_put_back_too(world):
    """A step that is less than the last digit of a weight changes it only after some calls."""
    world.memory, world.written = {0: filled(10), 100: filled(20)}, {0: 3, 100: 3}
    state = KeptState()
    world.written[0] += 1
    state.called()
    for at in (0, 100):
        world.memory[at] += 1
    state.put_back()
    assert (world.memory[0][0], world.memory[100][0]) == (10, 21)


def test_what_cannot_be_compared_since_memory_has_run_out_counts_as_changed(world, monkeypatch):
    monkeypatch.setattr(saved_state, "PIECE", 2)

    class Full(np.ndarray):
        def __ne__(self, other):
            if self[0] == 77:
                raise MemoryError("CUDA out of memory")
            return super().__ne__(other)

    saved = {
        at: (np.array(values, np.uint8).view(Full), np.array(values, np.uint8)) for at, values in enumerate(([1, 2, 3], [1, 2, 77], []))
    }
    assert saved_state.changed_of(saved).keys() == {1}
    saved[0][0][2] = 9
    assert saved_state.changed_of(saved).keys() == {0, 1}


@pytest.mark.parametrize("room", range(4))
def test_where_a_copy_does_not_fit_nothing_is_put_back_and_that_is_told(world, monkeypatch, room):
    def copy(memory):
        nonlocal room
        room -= 1
        if room < 0:
            raise MemoryError("CUDA out of memory")
        return memory.copy()

    monkeypatch.setattr(saved_state, "memory_copy", copy)
    world.memory = {0: filled(10), 100: filled(20)}
    state = KeptState()
    for at in (0, 100):
        world.memory[at] += 1
    state.called()
    assert "too little device memory" in state.put_back()
    assert (world.memory[0][0], world.memory[100][0]) == (11, 21)


def test_a_generator_that_turns_up_later_is_as_it_was_then_and_one_that_was_known_as_it_was_before(world):
    world.random.state = 3
    state = KeptState()
    own = Generator(5)
    world.random.state = 4
    state.draws_from([world.random, own])
    world.random.state, own.state = 8, 9
    state.put_back()
    assert (world.random.state, own.state) == (3, 5)


@pytest.fixture
def own(monkeypatch):
    """The class of generators of PyTorch's: on a GPU, and unknown to the garbage collector, as those are."""

    class Own:
        __slots__ = ("_cdata", "device", "state")
        get_state, set_state = Generator.get_state, Generator.set_state

        def __init__(self, state, kind="cuda"):
            self.state, self.device, self._cdata = state, SimpleNamespace(type=kind), id(self)

        def seen(self):
            """The same generator, as an operator is given it."""
            return SimpleNamespace(_cdata=self._cdata, get_state=self.get_state, set_state=self.set_state)

    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(Generator=Own))
    # Those that are new: all that these tests keep alive would take seconds, and is looked at in test_allocations.py.
    gc.freeze()
    monkeypatch.setattr(saved_state, "known_objects", gc.get_objects)
    return Own


def test_generators_of_the_users_own_are_as_before_the_first_call_whatever_holds_them(world, own):
    closed, bound, attribute, deep, argument, aside = (own(number) for number in range(6))
    kept = [lambda: closed, partial(max, key=bound), SimpleNamespace(random=attribute), (1, {"deep": (deep,)}), (aside,)]
    state = KeptState({"x": 1, "generator": argument})
    drawn = [closed, bound, attribute, deep, argument]
    for one in (*drawn, aside):
        one.state = 8
    state.called()
    state.draws_from([world.random, *(one.seen() for one in drawn)])  # Known only after the capture.
    for one in drawn:
        one.state = 9
    state.put_back()
    assert [one.state for one in drawn] == [0, 1, 2, 3, 4]
    assert aside.state == 8, f"somebody else's draws are left alone: {kept}"


def test_generators_are_found_once_and_those_of_the_host_are_left_alone(own):
    one, host = own(1), own(2, "cpu")
    kept = [one, (one, host), {"again": one}]
    assert [each for each in saved_state.generators_held(kept) if each in (one, host)] == [one]


def test_state_that_the_first_call_makes_and_later_calls_go_on_with_is_as_after_that_call(world):
    world.memory = {0: filled(10)}
    state = KeptState()
    world.memory[0] += 1
    world.memory[100] = filled(1)  # An optimiser's moments.
    state.called()
    world.memory[0] += 5
    world.memory[100] += 5
    assert "as after one call" in state.put_back()
    assert (world.memory[0][0], world.memory[100][0]) == (11, 1)


def test_what_the_first_call_makes_and_nobody_changes_again_is_no_state(world):
    world.memory = {0: filled(10)}
    state = KeptState()
    world.memory[0] += 1
    world.memory[100] = filled(1)  # A table that is worked out once.
    state.called()
    world.memory[0] += 5
    assert state.put_back() == ""
    assert (world.memory[0][0], world.memory[100][0]) == (10, 1)


def test_where_memory_is_short_nothing_is_saved_and_that_is_told(world):
    world.memory, world.free = {0: filled(10)}, 0
    state = KeptState()
    world.memory[0] += 1
    state.called()
    assert "too little device memory" in state.put_back()
    assert world.memory[0][0] == 11


@pytest.fixture
def tensors(monkeypatch):
    """The class of tensors of PyTorch's, as far as their memory is asked for."""

    class Tensor:
        layout, is_leaf, grad, _version = "strided", True, None, 0

        def __init__(self, address, nbytes=8, device="cuda", index=0, shared=False):
            self.address, self.nbytes, self.is_cuda = address, nbytes, device == "cuda"
            self.device, self.shared = SimpleNamespace(type=device, index=index), shared

        def is_inference(self):
            return False

        def untyped_storage(self):
            if self.address is None:
                raise RuntimeError("no storage")
            return SimpleNamespace(device=self.device, data_ptr=self.start, nbytes=lambda: self.nbytes, is_shared=lambda: self.shared)

        def start(self):
            assert self.device.type != "meta", "PyTorch warns of whoever asks"
            return self.address

        def set_(self, storage):
            return self

    torch = SimpleNamespace(Tensor=Tensor, strided="strided", uint8=0, empty=lambda *_, **__: Tensor(0))
    torch._C = SimpleNamespace(DisableTorchFunctionSubclass=nullcontext)
    monkeypatch.setitem(sys.modules, "torch", torch)
    found = SimpleNamespace(cupy=SimpleNamespace(ndarray=SimpleNamespace), runtime=SimpleNamespace(getDevice=lambda: 0))
    monkeypatch.setattr(saved_state, "libraries", lambda: found)
    return Tensor


def found_among(monkeypatch, objects):
    monkeypatch.setattr(saved_state, "known_objects", lambda: objects)
    return {region: written for region, (_, written) in saved_state.live_memory().items()}


def test_tensors_of_any_class_that_lie_in_memory_are_found(monkeypatch, tensors):
    class Own(tensors):
        pass

    class Unmade(tensors):
        """A parameter of a module that waits for its first input."""

        def untyped_storage(self):
            raise ValueError("Attempted to use an uninitialized parameter")

    sparse, table, view = tensors(40), tensors(50), tensors(50)
    sparse.layout, table.grad, table._version, view._version = "sparse", sparse, 2, 2
    objects = [tensors(10), Own(30), Own(0), Own(None), Unmade(60), table, view]  # Own(0) and Own(None) wrap others.
    assert found_among(monkeypatch, objects) == {(10, 18): 0, (30, 38): 0, (50, 58): 4}


def test_numbers_on_the_host_are_found_and_data_there_are_not(monkeypatch, tensors):
    steps = [tensors(16 * number, device="cpu") for number in range(1, 4)]
    assert found_among(monkeypatch, [*steps, tensors(400, 17, "cpu"), tensors(500, device="meta")]).keys() == {(16, 24), (32, 40), (48, 56)}
    assert found_among(monkeypatch, [steps[0], tensors(64, device="cpu", shared=True)]).keys() == {(16, 24)}, "other processes write it"
    monkeypatch.setattr(saved_state, "MOST_NUMBERS", 2)
    assert found_among(monkeypatch, [*steps, tensors(600)]).keys() == {(600, 608)}


def test_what_lies_on_another_gpu_is_left_alone(monkeypatch, tensors):
    def array(device):
        memory = SimpleNamespace(ptr=100 + 100 * device, size=8)
        return SimpleNamespace(device=SimpleNamespace(id=device), data=SimpleNamespace(mem=memory))

    monkeypatch.setattr(saved_state, "_of_array", lambda one: ((one.data.mem.ptr, one.data.mem.ptr + 8), one))
    assert found_among(monkeypatch, [tensors(10), tensors(30, index=1), array(0), array(1)]).keys() == {(10, 18), (100, 108)}
