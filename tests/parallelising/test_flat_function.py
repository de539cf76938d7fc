"""A function of trees as one of arrays alone, and which of its inputs it changes."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest
from tests.parallelising.like_cupy import Like, filled

from streamscope.capturing import state
from streamscope.capturing.memory import Access, Evidence, NodeMemory
from streamscope.errors import EngineError, OutOfMemoryError, ProgramError
from streamscope.parallelising import device_arrays, flat_function
from streamscope.parallelising.calls import Calls
from streamscope.parallelising.captured_call import Slot
from streamscope.parallelising.flat_function import FlatFunction
from streamscope.parallelising.trees import taken_apart


@pytest.fixture(autouse=True)
def anywhere(monkeypatch):
    """Arrays may lie anywhere, and are compared as NumPy does."""
    monkeypatch.setattr(device_arrays, "check_on_device", lambda what, path, array: None)
    monkeypatch.setattr(device_arrays, "holds_the_same", lambda one, other: bool((one.values == other.values).all()))
    monkeypatch.setattr(state, "bytes_at", lambda start, end: np.frombuffer(ctypes.string_at(start, end - start), np.uint8))


def flat_of(function, **arguments):
    arrays, tree = taken_apart(arguments, device_arrays.is_array)
    return FlatFunction(function, Calls(function), tree), arrays


def test_it_is_called_with_its_tree_and_returns_arrays_alone():
    def function(batch, *, shift):
        return {"sum": Like(batch["x"].values + shift.values), "same": batch["x"], "rate": 0.5}

    flat, arrays = flat_of(function, batch={"x": filled(1)}, shift=filled(2))
    found = flat(*arrays)
    assert [each.values[0] for each in found] == [3, 1]
    assert flat.returned.given == {1: 0}


def test_what_is_returned_beside_arrays_must_stay():
    count = iter(range(9))
    flat, arrays = flat_of(lambda x: (x, next(count)), x=filled(1))
    flat(*arrays)
    with pytest.raises(ProgramError, match=r"its result\[1\] is 1, not 0"):
        flat(*arrays)


def test_of_all_optimisers_those_that_step_are_kept_with_the_numbers_of_the_capture(monkeypatch):
    steps, other = (SimpleNamespace(param_groups=[{"lr": 0.1}]) for _ in range(2))
    captures = SimpleNamespace(active=False)

    def capture(flat, *arrays, **options):
        captures.active = True
        flat(*arrays)
        captures.active = False
        return SimpleNamespace(memories=[])

    replaced = {
        "CAPTURES": captures,
        "capture": capture,
        "optimisers": lambda: [steps, other],
        "_with_evidence": lambda slots, found: slots,
    }
    replaced["that_step"] = lambda given, memories: [each for each in given if each.optimiser is steps]
    for name, stand_in in replaced.items():
        monkeypatch.setattr(flat_function, name, stand_in)
    x, function = filled(1), lambda x: x
    _, _, flat = flat_function.captured(function, Calls(function), {"x": x}, "step", None, lambda: None)
    captures.active = True  # In another thread.
    steps.param_groups[0]["lr"] = 0.2
    flat(x)
    assert [(one.optimiser, one.numbers) for one in flat.given] == [(steps, [{"lr": 0.1}])]
    assert flat.optimisers == []


@pytest.mark.parametrize("writes", [True, False])
def test_a_function_that_writes_to_numbers_in_host_memory_is_refused(writes):
    def function(x, steps):
        steps[0] += writes
        return x

    given = np.array(3)
    flat, arrays = flat_of(function, x=filled(1), steps=[given])
    if writes:
        with pytest.raises(ProgramError, match="writes to numbers that it is given in host memory"):
            flat(*arrays)
    else:
        assert flat(*arrays) == tuple(arrays)
    assert given == 3


@pytest.mark.parametrize("changes", [True, False])
def test_an_input_that_the_function_changes_stays_where_it_is(changes):
    def function(x, cache):
        if changes:
            cache.values += 1
        return x

    x, cache = filled(1), filled(5)
    flat, arrays = flat_of(function, x=x, cache=cache)
    kept, slot = flat_function._tried(flat, ["x", "cache"], arrays)
    assert kept.own
    assert kept.memory is not x
    assert (slot.memory is cache, slot.own, slot.changed) == (changes, not changes, changes)
    assert cache.values[0] == 5  # It was called on copies.


@pytest.mark.parametrize(("start", "writes", "changed"), [(0, True, True), (0, False, False), (10_000, True, False)])
def test_memory_that_a_node_may_write_counts_as_changed(start, writes, changed):
    memory = filled(1)
    first, _ = device_arrays.extent(memory)
    access = Access(first + start, first + start + 8, True, writes, Evidence.POINTER)
    found = SimpleNamespace(memories=[NodeMemory((access,))])
    (slot,) = flat_function._with_evidence([Slot("x", memory, own=True, changed=False)], found)
    assert slot.changed == changed


def test_where_nothing_is_known_of_a_node_each_input_counts_as_changed():
    slots = [Slot("x", filled(1), own=True, changed=False), Slot("y", filled(2), own=True, changed=False)]
    nothing = SimpleNamespace(memories=[NodeMemory(()), NodeMemory((), "its source is not known")])
    assert all(slot.changed for slot in flat_function._with_evidence(slots, nothing))
    known = SimpleNamespace(memories=[NodeMemory(())])
    assert not any(slot.changed for slot in flat_function._with_evidence(slots, known))


@pytest.mark.parametrize(("byte", "changed"), [(-1, False), (0, True), (8 * 4 - 1, True), (8 * 4, False)])
@pytest.mark.parametrize("why", ["", "its parameter 0 holds an address, and its type does not say what for"])
def test_an_input_that_an_address_in_an_unknown_nodes_memory_leads_to_counts_as_changed(byte, changed, why):
    """Arrays of four doubles, and an array of pointers that the node reads."""
    slots = [Slot("x", filled(1), own=True, changed=False), Slot("y", filled(2), own=True, changed=False)]
    first, _ = device_arrays.extent(slots[1].memory)
    table = np.array([3, first + byte, 5], np.uint64)
    access = Access(table.ctypes.data, table.ctypes.data + table.nbytes, True, False, Evidence.PROTOTYPE)
    found = SimpleNamespace(memories=[NodeMemory((access,), why)])
    assert [slot.changed for slot in flat_function._with_evidence(slots, found)] == [False, changed and bool(why)]


def test_an_error_of_the_function_names_its_line():
    def impatient():
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    with pytest.raises(RuntimeError) as caught:
        impatient()
    said = EngineError("cannot be captured", hint="leave out what waits")
    error = flat_function._not_capturable("step", caught.value, said)
    assert type(error) is EngineError
    assert error.message.startswith("step cannot be captured at test_flat_function.py:")
    assert error.message.endswith(
        'raise RuntimeError("operation not permitted when stream is capturing\\nand more"): '
        "operation not permitted when stream is capturing"
    )
    assert error.hint == "leave out what waits"
    held = flat_function._not_capturable("step", caught.value, said, ["ids", "batch.lengths"]).hint
    assert held == "leave out what waits; and move to the GPU what is needed there: ids and batch.lengths lie in host memory"
    short = flat_function._not_capturable("step", MemoryError("out of memory"), said)
    assert type(short) is OutOfMemoryError
    assert "memory_limit=" in short.hint
