"""Captured calls without a GPU: arrays like CuPy's in the memory of NumPy's, and "captured code" that is a Python function over them."""

from __future__ import annotations

import ctypes
import weakref
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.parallelising.like_cupy import Like, filled

from streamscope import forks
from streamscope.errors import EngineError, ProgramError
from streamscope.interrupts import Alive, deferred
from streamscope.parallelising import captured_call, device_arrays
from streamscope.parallelising.calls import PLAIN_MODE, Calls
from streamscope.parallelising.captured_call import MISSED, CapturedCall, Returned, Slot, overlapping
from streamscope.parallelising.device_arrays import is_array
from streamscope.parallelising.trees import taken_apart


class Copying:
    """As `quick_call.Copying`, by the host."""

    cleared = ()

    def __init__(self, targets, graph):
        self.targets, self.graph, self.launches = targets, graph, {}

    def set(self, addresses):
        def launch(stream):
            for (start, end), address in zip(self.targets, addresses, strict=True):
                ctypes.memmove(start, address, end - start)
            self.graph.launch_on(stream)

        return launch


@pytest.fixture(autouse=True)
def stream(monkeypatch):
    """The caller's stream, which a test may mark as captured, and what events are asked to do."""
    state = SimpleNamespace(captured=False, pointer=1, seen=[], gpu=0)

    class Event:
        def __init__(self, *, timing):
            assert not timing

        def record(self, stream):
            state.seen.append(("record", stream))

        def hold(self, stream):
            state.seen.append(("hold", stream))

        def synchronize(self):
            state.seen.append("waited")

    monkeypatch.setattr(captured_call, "CudaEvent", Event)
    monkeypatch.setattr(captured_call, "relaxed_captures", nullcontext)
    monkeypatch.setattr(captured_call, "Copying", Copying)
    there = device_arrays.Caller(lambda: state.gpu, lambda: state.pointer, lambda stream: state.captured)
    monkeypatch.setattr(device_arrays, "caller", lambda gpu, *, tensors: there)
    return state


def made(arguments, changed=(), *, fresh=True):
    """Return a captured call of ``total, cache = step(**arguments)``, which adds the arrays up and adds 1 to those that it changes."""
    arrays, tree = taken_apart(arguments, is_array)
    slots = [
        Slot(str(number), array if number in changed else array.copy(), own=number not in changed, changed=number in changed)
        for number, array in enumerate(arrays)
    ]
    total = filled(0)

    def launch(stream):
        total.values[...] = sum(slot.memory.values for slot in slots)
        for number in changed:
            slots[number].memory.values[...] += 1

    value = (total, [slots[number].memory for number in changed], "constant")
    results, returned = Returned.of(value, [slot.memory for slot in slots])
    return CapturedCall("step", tree, slots, returned, results, SimpleNamespace(launch_on=launch), fresh)


def run(call, arguments):
    arrays = call.arrays_of(arguments)
    assert arrays is not None
    return call.run(arrays)


def called(call, function, *inputs):
    """Run as a user's call does: by the quick path or, where that misses it, by the other one."""
    result = call.quick_path(Calls(function))(inputs, {})
    return run(call, Calls(function).arguments(inputs, {})) if result is MISSED else result


def test_what_may_be_changed_is_not_copied_back_to_an_array_that_repeats_its_elements():
    """As where some node is not understood: nobody could have written there, neither the function nor we."""
    call = made({"x": filled(1)})
    call = replace(call, slots=[replace(call.slots[0], changed=True)])
    expanded = Like(np.broadcast_to(np.float64(3), 4))  # NumPy refuses to write to it.
    assert run(call, {"x": expanded})[0].values.tolist() == [3.0] * 4
    assert run(call, {"x": filled(5)})[0].values.tolist() == [5.0] * 4


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=3), st.lists(st.lists(st.integers(-9, 9), min_size=3, max_size=3), max_size=4))
def test_calls_read_their_arguments_and_write_to_no_others(first, rounds):
    arguments = {str(number): filled(value) for number, value in enumerate(first)}
    call = made(arguments)
    kept = []
    for values in rounds:
        others = {str(number): filled(value) for number, value in enumerate(values[: len(first)])}
        total, _, constant = run(call, others)
        kept.append((total, sum(values[: len(first)])))
        assert constant == "constant"
        assert [each.values[0] for each in others.values()] == values[: len(first)]
    assert [each.values[0] for each in arguments.values()] == first
    assert all((total.values == wanted).all() for total, wanted in kept)


def test_what_is_changed_is_changed_in_the_argument_and_nowhere_else():
    arguments = {"x": filled(1), "cache": filled(10)}
    call = made(arguments, changed=(1,))
    total, (cache,), _ = run(call, arguments)
    assert cache is arguments["cache"]
    assert (total.values[0], cache.values[0]) == (11, 11)
    other = {"x": filled(2), "cache": filled(100)}
    total, (cache,), _ = run(call, other)
    assert cache is other["cache"]
    assert (total.values[0], cache.values[0], arguments["cache"].values[0]) == (102, 101, 11)


def test_static_results_are_the_memory_of_the_capture():
    arguments = {"x": filled(1)}
    call = made(arguments, fresh=False)
    (first, *_), (second, *_) = run(call, arguments), run(call, {"x": filled(5)})
    assert first is second
    assert first.values[0] == 5


def test_an_argument_that_is_the_memory_of_the_capture_is_not_copied():
    call = made({"x": filled(1)})
    memory = call.slots[0].memory
    memory.values[...] = 7
    total, *_ = run(call, {"x": memory})
    assert total.values[0] == 7
    memory.values[...] = np.arange(4)
    backwards, *_ = run(call, {"x": memory[::-1]})  # The same memory the other way round: copied, by way of a copy.
    assert backwards.values.tolist() == [3, 2, 1, 0]


def function(x, y=None, *, scale=1.0):
    """Stands for what is captured: only how it is called counts."""


@pytest.mark.parametrize(
    ("captured", "inputs", "named", "quick"),
    [
        (((filled(1),), {}), (filled(2),), {}, True),
        (((filled(1), filled(2)), {}), (filled(2), filled(3)), {}, True),
        (((), {"x": filled(1), "y": filled(2)}), (filled(2), filled(3)), {}, True),
        (((), {"x": filled(1), "y": filled(2)}), (), {"y": filled(2), "x": filled(3)}, True),
        (((filled(1),), {"scale": 2.0}), (filled(2),), {"scale": 2.0}, True),
        (((filled(1),), {"scale": 1.0}), (filled(2),), {}, True),
        ((([filled(1), (2, filled(3))],), {}), ([filled(1), (2, filled(4))],), {}, True),
        ((({"a": filled(1)}, 3), {}), ({"a": filled(5)}, 3), {}, True),
        (((filled(1),), {}), (filled(2, count=5),), {}, False),
        (((filled(1),), {}), (filled(2), filled(3)), {}, False),
        (((filled(1), filled(2)), {}), (filled(2),), {}, False),
        (((filled(1),), {}), (filled(2).values,), {}, False),
        (((filled(1),), {"scale": 2.0}), (filled(2),), {}, False),
        (((filled(1), 3), {}), (filled(2), 4), {}, False),
        (((filled(1), 1), {}), (filled(2), True), {}, False),
        ((([filled(1)],), {}), (filled(1),), {}, False),
        ((([filled(1)],), {}), ([filled(1), 2],), {}, False),
        (((filled(1),), {}), (filled(2),), {"other": 3}, False),
    ],
)
def test_a_call_written_like_the_captured_one_is_told_at_once_and_as_any_other(captured, inputs, named, quick):
    calls = Calls(function)
    call = made(calls.arguments(*captured))
    quickly = call.quick_path(calls)
    for _ in range(2):
        found = quickly(inputs, named)
        assert (found is not MISSED) == quick
    if quick:
        arrays = call.arrays_of(calls.arguments(inputs, named))
        assert found[0].values.tolist() == sum(each.values for each in arrays).tolist()
    elif set(named) <= {"scale"}:
        assert call.arrays_of(calls.arguments(inputs, named)) is None


def test_calls_of_functions_that_take_any_number_of_arguments_are_told_at_once():
    calls = Calls(lambda *inputs, scale=1.0, **named: None)
    call = made(calls.arguments((filled(1), [filled(2)], 3), {"z": filled(4), "a": filled(5)}))
    quickly = call.quick_path(calls)
    inputs = (filled(10), [filled(20)], 3)
    assert quickly(inputs, {"z": filled(40), "a": filled(50)})[0].values[0] == 120
    for others, named in [
        (inputs, {"a": filled(1), "z": filled(2)}),
        (inputs, {"z": filled(1)}),
        (inputs, {"z": filled(1), "a": filled(2), "scale": 2.0}),
        ((*inputs[:2], 4), {"z": filled(1), "a": filled(2)}),
        (inputs[:2], {"z": filled(1), "a": filled(2)}),
        ((*inputs, filled(1)), {"z": filled(1), "a": filled(2)}),
    ]:
        assert quickly(others, named) is MISSED


def test_the_same_array_twice_is_another_call():
    calls, x = Calls(function), filled(1)
    call = made(calls.arguments((x, x), {}))
    quickly = call.quick_path(calls)
    assert quickly((filled(1), filled(2)), {}) is MISSED
    assert call.arrays_of(calls.arguments((filled(1), filled(2)), {})) is None
    assert quickly((x, x), {}) is not MISSED


def test_arguments_that_shared_memory_with_one_that_is_changed_cannot_be_replaced():
    memory = np.zeros(8)
    call = made({"x": Like(memory[:4]), "y": Like(memory[2:6])}, changed=(0, 1))
    call.slots = [replace(slot, shared=True) for slot in call.slots]
    run(call, {"x": Like(memory[:4]), "y": Like(memory[2:6])})
    with pytest.raises(ProgramError, match="step: 0 and 1 shared memory with another argument"):
        run(call, {"x": filled(1), "y": filled(2)})


def updated(x, y):
    """What `updating` captures, in NumPy."""
    x += y
    y *= 2


def updating(x, y, *, changed=(0, 1), function=updated):
    """Return ``function(x, y)`` captured: as `ss.parallelise` does, in the arrays that it changes and in copies of the others."""
    arrays, tree = taken_apart({"x": x, "y": y}, is_array)
    kept = [number in changed for number in range(2)]
    slots = [
        Slot(name, array if own else array.copy(), own=not own, changed=own) for name, array, own in zip("xy", arrays, kept, strict=True)
    ]
    values = [slot.memory.values for slot in slots]
    return CapturedCall(
        "step", tree, slots, Returned(taken_apart(None, is_array)[1], {}), [], SimpleNamespace(launch_on=lambda stream: function(*values))
    )


def added_to(x, y):
    """Ping-pong: the first is written, the second read."""
    x[...] = y * 10


places = st.lists(st.tuples(st.integers(0, 12), st.sampled_from([1, -1])), min_size=2, max_size=2)


@given(places, st.lists(places, min_size=1, max_size=3), st.sampled_from([(updated, (0, 1)), (added_to, (0,))]))
def test_calls_with_arguments_anywhere_do_what_a_plain_call_does_or_are_refused(first, calls, step):
    """Arguments in one memory, over each other's slots, backwards: the whole memory is as after plain calls, or nothing has changed."""
    function, changed = step

    def taken(memory, spans):
        return [memory[start : start + 4][::way] for start, way in spans]

    memory = np.arange(1.0, 17.0)
    if set(range(first[0][0], first[0][0] + 4)) & set(range(first[1][0], first[1][0] + 4)):
        first = [(0, 1), (4, 1)]
    call = updating(*map(Like, taken(memory, first)), changed=changed, function=function)
    for spans in calls:
        wanted = memory.copy()
        function(*taken(wanted, spans))
        before = memory.copy()
        x, y = map(Like, taken(memory, spans))
        if abs(spans[0][0] - spans[1][0]) < 4:
            with pytest.raises(ProgramError, match="step: x and y share memory, the function changes it"):
                called(call, function, x, y)
            assert memory.tolist() == before.tolist()
        else:
            called(call, function, x, y)
            assert memory.tolist() == wanted.tolist()


def test_ping_pong():
    a, b = filled(1), filled(2)
    call = updating(a, b, changed=(0,), function=added_to)
    called(call, added_to, a, b)
    assert (a.values[0], b.values[0]) == (20, 2)
    called(call, added_to, b, a)
    assert (a.values[0], b.values[0]) == (20, 200)


def test_the_memory_of_the_capture_can_be_passed_the_other_way_round():
    call = made({"x": filled(1), "y": filled(5)})
    x, y = (slot.memory for slot in call.slots)
    memories = []
    call.graph.launch_on = lambda stream: memories.append((x.values[0], y.values[0]))
    run(call, {"x": y, "y": x})
    assert memories == [(5, 1)]


def test_an_array_that_changes_beside_the_copies_is_not_copied_with_them(monkeypatch):
    """As a static result that is passed on, and that the captured code first sets to zero."""
    call, result, other = made({"x": filled(1)}), filled(2), filled(3)
    monkeypatch.setattr(Copying, "cleared", [device_arrays.extent(result)])
    quickly = call.quick_path(Calls(lambda x: None))
    assert quickly((result,), {}) is MISSED
    assert quickly((other,), {})[0].values[0] == 3


def test_one_array_for_two_that_are_only_read_is_no_matter():
    call = made({"x": filled(1), "y": filled(5)})
    both = filled(3)
    total, *_ = run(call, {"x": both, "y": both})
    assert total.values[0] == 6


@pytest.mark.parametrize("ran", [True, False])
def test_an_exception_leaves_memory_that_was_not_passed_as_it_was(monkeypatch, ran):
    """Results that find no memory: the function has run, so its arguments have changed, and nothing else has."""
    mine, given = filled(1), filled(50)
    call = made({"cache": mine}, changed=(0,))

    def full(*_):
        raise MemoryError("out of memory")

    if ran:
        monkeypatch.setattr(captured_call, "fresh_copies", full)
    else:
        call.graph.launch_on = full
    with pytest.raises(MemoryError):
        run(call, {"cache": given})
    assert (mine.values[0], given.values[0]) == (1, 51 if ran else 50)


def test_a_call_of_another_kind_does_not_fit_and_says_why():
    call = made({"x": filled(1), "n": 3})
    for arguments, why, how in [
        (
            {"x": filled(1, count=5), "n": 3},
            "0 is float64[5] on GPU 0, and float64[4] on GPU 0 was captured",
            "pass arrays of the captured sh",
        ),
        (
            {"x": np.ones(4), "n": 3},
            "0 is float64[4] in NumPy, and float64[4] on GPU 0 was captured",
            "move it to the GPU before: cupy.asarray(0)",
        ),
        ({"x": Like(np.ones(4, "float32")), "n": 3}, "0 is float32[4] on GPU 0, and", "convert it before: 0.astype('float64')"),
        ({"x": filled(1), "n": 4}, "n is 4, not 3", "pass what was captured"),
        ({"x": filled(1)}, "the call has x, not x, n", "pass what was captured"),
        (
            {"n": 3, "x": filled(1)},
            "the call has its keys in the order 'n', 'x', not in the order 'x', 'n'",
            "pass the keys in the order 'x', 'n'",
        ),
    ]:
        assert call.arrays_of(arguments) is None
        found = call.why_not(arguments, PLAIN_MODE)
        assert found[0].startswith(why)
        assert found[1].startswith(how)


def test_nothing_runs_while_the_stream_is_captured(stream):
    arguments = {"x": filled(1)}
    call = made(arguments)
    stream.captured = True
    with pytest.raises(EngineError, match="step was called while its stream is captured"):
        called(call, lambda x: None, *arguments.values())


def test_a_call_runs_on_the_gpu_of_its_arrays(stream, monkeypatch):
    call, seen = made({"x": filled(1)}), []

    @contextmanager
    def on_gpu(gpu):
        before, stream.gpu = stream.gpu, gpu
        yield
        stream.gpu = before

    monkeypatch.setattr(device_arrays, "on_gpu", on_gpu)
    call.graph.launch_on = lambda at: seen.append(stream.gpu)
    for stream.gpu in (0, 1):
        called(call, lambda x: None, filled(2))
    assert (seen, stream.gpu) == ([0, 0], 1)


def test_a_forked_child_is_told_where_it_was_made(monkeypatch):
    """CUDA works in the parent only: there was a raw error of CUDA's, and the finaliser waited for an event."""
    call = made({"x": filled(1)})
    monkeypatch.setattr(forks, "_kept", [])
    monkeypatch.setattr(forks, "_owners", Alive())
    forks.tell_children(call)
    forks._after_fork()
    assert forks._kept == [call]
    for calling in (call.free_stream, lambda: run(call, {"x": filled(1)})):
        with pytest.raises(EngineError, match="the parallelised 'step' was made before this process was forked") as caught:
            calling()
        assert "spawn" in caught.value.hint


def test_runs_follow_each_other_on_whichever_stream_and_its_memory_outlives_them(stream):
    call = made({"x": filled(1)})
    slot = weakref.ref(call.slots[0].memory)
    call.graph.launch_on = lambda at: stream.seen.append(("launch", at))
    for stream.pointer in (1, 2):
        called(call, lambda x: None, filled(1))
    assert stream.seen == [("launch", 1), ("record", 1), ("hold", 2), ("launch", 2), ("record", 2)]
    kept = []
    captured_call.CudaEvent.synchronize = lambda event: kept.append(slot() is not None)
    del call
    assert kept == [True]
    assert slot() is None


def test_keys_in_another_order_are_refused_among_the_named_arguments_too():
    def joined(**named):
        return list(named.values())

    calls, first, second = Calls(joined), filled(1), filled(2)
    call = made(calls.arguments((), {"a": first, "b": second}))
    assert call.arrays_of(calls.arguments((), {"a": second, "b": first})) == [second, first]
    turned = calls.arguments((), {"b": second, "a": first})
    assert call.arrays_of(turned) is None
    assert call.why_not(turned, PLAIN_MODE)[1] == "pass the keys in the order 'a', 'b'"


def test_after_ctrl_c_while_a_stream_was_to_wait_the_next_call_waits(stream, monkeypatch):
    call = made({"x": filled(1)})
    call._tensors = True
    run(call, {"x": filled(1)})
    stream.pointer = 2
    with monkeypatch.context() as patched:
        patched.setattr(captured_call.CudaEvent, "hold", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run(call, {"x": filled(1)})
    stream.seen.clear()
    run(call, {"x": filled(1)})
    assert stream.seen == [("hold", 2), ("record", 2)]


def test_what_waits_for_the_last_run_is_there_as_soon_as_there_is_one(stream, monkeypatch):
    """Ctrl-C that comes between the two would leave a run that nobody waits for."""
    call, deferring = made({"x": filled(1)}), []
    monkeypatch.setattr(captured_call, "when_gone", lambda *_: deferring.append(bool(deferred()._depth)))
    run(call, {"x": filled(1)})
    assert deferring == [True]


def test_what_follows_waits_for_a_run_that_failed_halfway(stream):
    call = made({"x": filled(1)})
    call.graph.launch_on = lambda at: 1 / 0
    with pytest.raises(ZeroDivisionError):
        run(call, {"x": filled(2)})
    assert stream.seen == [("record", 1)]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 6)), max_size=6))
def test_arrays_that_share_memory_are_found(spans):
    memory = np.zeros(32)
    arrays = [Like(memory[start : start + count]) for start, count in spans]
    bytes_of = [set(range(start, start + count)) for start, count in spans]
    wanted = {number for number, own in enumerate(bytes_of) if any(own & other for index, other in enumerate(bytes_of) if index != number)}
    groups = overlapping(arrays)
    assert sorted(number for group in groups for number in group) == sorted(wanted)
    assert all(len(group) > 1 for group in groups)


@given(st.integers(1, 4), st.integers(1, 5), st.sampled_from([1, -1, 2]), st.booleans())
def test_the_extent_of_an_array_is_what_its_elements_span(rows, columns, step, turned):
    memory = np.arange(200.0).reshape(10, 20)
    values = memory[: 2 * rows : 2, :columns][:, ::step]
    array = Like(values.T if turned else values)
    start = memory.ctypes.data
    addresses = [start + 8 * int(each) for each in values.ravel()]
    assert device_arrays.extent(array) == (min(addresses), max(addresses) + 8)
