"""Pieces of memory that captured code changes: which they are, without a GPU."""

from __future__ import annotations

import ctypes
import signal
from contextlib import ExitStack, contextmanager, nullcontext
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamscope.capturing import function, state
from streamscope.capturing.memory import Access, Evidence, around, inside

spans = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)).map(lambda each: (each[0], each[0] + each[1])), max_size=8)


def members(found):
    return {byte for start, end in found for byte in range(start, end)}


@given(spans)
def test_merged_spans_are_the_same_memory_sorted_and_apart(found):
    merged = state._merged(found)
    assert members(merged) == members(found)
    assert sum(end - start for start, end in merged) == len(members(found))
    assert merged == sorted(merged)


@given(spans, spans)
def test_what_is_without_others_is_the_rest(found, others):
    assert members(state._without(state._merged(found), state._merged(others))) == members(found) - members(others)


@given(spans, spans)
def test_what_is_common_lies_in_both(found, others):
    assert members(state._common(found, state._merged(others))) == members(found) & members(others)


def test_long_memory_is_saved_in_pieces():
    start, nbytes = 4096, 2 * state.PIECE + 512
    assert [end - at for at, end in state._merged([(start, start + nbytes)])] == [state.PIECE, state.PIECE, 512]


def test_neighbouring_lines_are_one_span_and_the_last_ends_with_the_memory():
    lines = np.array([False, True, True, False, True])
    assert state.rows_of_lines(lines, 1000, 1000 + 4 * state.LINE + 8) == [
        (1000 + state.LINE, 1000 + 3 * state.LINE),
        (1000 + 4 * state.LINE, 1000 + 4 * state.LINE + 8),
    ]


@given(st.integers(0, 90), spans)
def test_the_span_around_an_address(address, found):
    apart = state._merged(found)
    found_around = around(apart, address)
    assert (found_around is not None) == (address in members(apart))
    assert found_around is None or found_around[0] <= address < found_around[1]


def moved(grid, _, arguments):
    """Do what the kernel does, in host memory."""
    ((count,), (parts,)) = grid, arguments
    assert parts.shape == (count, 3)
    for source, target, size in parts.tolist():
        assert 0 < size <= state.MOVED
        if source:
            ctypes.memmove(target, source, size)
        else:
            ctypes.memset(target, 0, size)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3 * state.MOVED), st.integers(0, 2 * state.MOVED + 5)), max_size=4))
def test_all_moves_are_parts_of_one_launch(wanted):
    """Each is told by whether it clears, where its source begins, and how long it is."""
    memory = np.random.default_rng(0).integers(1, 255, 5 * state.MOVED + 8, np.uint8)
    targets = [np.full(size + 2, 7, np.uint8) for _, _, size in wanted]
    pairs = [
        (0 if clears else memory.ctypes.data + at, (target.ctypes.data + 1, target.ctypes.data + 1 + size))
        for (clears, at, size), target in zip(wanted, targets, strict=True)
    ]
    lib = SimpleNamespace(cupy=SimpleNamespace(asarray=np.asarray))
    with mock.patch.object(state, "libraries", return_value=lib), mock.patch.object(state, "_moving", return_value=moved):
        state.Moves(pairs).run()
    for (clears, at, size), target in zip(wanted, targets, strict=True):
        inside = np.zeros(size, np.uint8) if clears else memory[at : at + size]
        assert target.tolist() == [7, *inside.tolist(), 7]


@given(spans, spans)
def test_what_is_inside_is_in_one_of_them(found, others):
    apart = state._merged(others)
    for region in found:
        assert inside(region, apart) == any(start <= region[0] and region[1] <= end for start, end in apart)


class Bytes(np.ndarray):
    """Bytes like CuPy's, at any address of the host."""

    def get(self):
        return np.array(self)

    @staticmethod
    def at(shape, dtype, pointer):
        return np.frombuffer((ctypes.c_char * shape[0]).from_address(pointer), dtype).view(Bytes)


class Array:
    """An array like CuPy's, in memory of the host."""

    def __init__(self, values):
        self.values, self.nbytes, self.shape, self.strides = values, values.nbytes, values.shape, values.strides
        self.__cuda_array_interface__ = {"strides": None, "data": (values.ctypes.data, False)}
        self.region = (values.ctypes.data, values.ctypes.data + values.nbytes)

    def get(self):
        return self.values.copy()

    def copy(self):
        return Array(self.values.copy())

    def __setitem__(self, where, other):
        self.values[where] = other.values


def filled(value, count=256):
    return Array(np.full(count, value, np.float32))


@contextmanager
def host_memory(touched):
    """Let memory of the host be the device's, and nodes touch these pieces; yield its runtime, and what of that was called."""
    called = []

    def named(name, does=lambda *_: None):
        return lambda *given: (called.append(name), does(*given))[1]

    cuda = SimpleNamespace(
        UnownedMemory=lambda start, size, _: start,
        MemoryPointer=lambda start, offset: start + offset,
        MemoryPool=lambda: SimpleNamespace(malloc=None, free_all_blocks=lambda: None),
        using_allocator=lambda malloc: nullcontext(),
    )
    cupy = SimpleNamespace(ndarray=Bytes.at, asarray=lambda values: np.asarray(values).view(Bytes), cuda=cuda)
    cupy.pad = lambda values, widths: np.pad(values, widths).view(Bytes)
    runtime = SimpleNamespace(deviceSynchronize=named("wait"), memset=named("memset", ctypes.memset), memGetInfo=lambda: (0, 0))
    lib = SimpleNamespace(cupy=cupy, runtime=runtime)
    with ExitStack() as stack:
        for module in (state, function):
            stack.enter_context(mock.patch.object(module, "libraries", return_value=lib))
        stack.enter_context(mock.patch.object(state, "_blocks", return_value=sorted(each.region for each in touched)))
        yield SimpleNamespace(called=called, runtime=runtime)


def captured_of(results, own, run, inputs=(), accesses=()):
    """Return a captured function that ran, and returned such arrays."""
    found = object.__new__(function.CapturedFunction)
    regions = [each.region for each in results]
    found.name, found.nodes, found.timeout_s = "sample", [], None
    found.results, found._own, found._before = results, [each.region for each in own], [(each, each.copy()) for each in inputs]
    found._state = state.found_state([], accesses, found._own, regions, lambda: [each.get() for each in results], run)
    return found


outcomes = st.tuples(st.booleans(), st.booleans(), st.sampled_from([0, 3]), st.sampled_from([0, 8, 128, 256]), st.sampled_from([0, 5]))


@given(st.lists(outcomes, min_size=1, max_size=4))
def test_results_in_memory_of_others_are_only_cleared_where_a_run_writes_all_of_them(drawn):
    """Each is told by whether it is the capture's own, whether nodes touch it, what it held, and what a run writes to how much of it."""
    results = [filled(held) for _, _, held, _, _ in drawn]

    def run():
        for each, (_, _, _, count, value) in zip(results, drawn, strict=True):
            each.values[:count] = value

    def now():
        return [each.get().tolist() for each in results]

    def of_others(lists):
        return [each for each, (own, *_) in zip(lists, drawn, strict=True) if not own]

    own = [each for each, (own, *_) in zip(results, drawn, strict=True) if own]
    touched = [each for each, (own, touches, _, count, _) in zip(results, drawn, strict=True) if not own and (touches or count)]
    with host_memory(touched):
        before = now()
        captured = captured_of(results, own, run)
        assert of_others(now()) == of_others(before)
        with captured.keeping():
            captured.clear_outputs()
            for found, held, (is_own, _, _, count, value) in zip(now(), before, drawn, strict=True):
                assert found == ([0] * 256 if is_own or (count == 256 and value) else held)
            run()
            for found, held, (is_own, _, _, count, value) in zip(now(), before, drawn, strict=True):
                assert found == [value] * count + ([0] * 256 if is_own else held)[count:]
        assert of_others(now()) == of_others(before)


def test_an_input_that_is_changed_and_returned_and_a_buffer_that_is_added_to_are_put_back():
    x, added = filled(3), filled(7)

    def run():
        x.values *= 2
        added.values += x.values

    with host_memory([x, added]):
        captured = captured_of([x, added], [], run, inputs=[x])
        for _ in range(2):
            captured.clear_outputs()
            assert (x.values[0], added.values[0]) == (3, 7)
            run()
            assert (x.values[0], added.values[0]) == (6, 13)


@pytest.mark.parametrize("evidence", [Evidence.SCHEMA, Evidence.POINTER])
def test_rows_that_only_other_inputs_change_are_put_back(evidence):
    """As those of an embedding: the runs that look for state change the first row."""
    ids, table, frozen = filled(0, 1), filled(1, 4 * 128), filled(2)
    accesses = [Access(*each.region, True, True, evidence) for each in (table, frozen)]

    def run():
        table.values[128 * int(ids.values[0]) :][:128] += 1

    with host_memory([table, frozen]):
        captured = captured_of([], [], run, accesses=accesses)
        for row in range(4):
            ids.values[0] = row
            run()
            captured.clear_outputs()
            assert (table.values == 1).all()
        frozen.values[0] = 5  # What is used in an unknown way, and did not change, may be a weight of gigabytes: it is not saved.
        captured.clear_outputs()
        assert frozen.values[0] == (5 if evidence is Evidence.POINTER else 2)


def test_results_are_cleared_when_all_that_reads_them_is_done():
    x, y = filled(3), filled(0)
    with host_memory([x]) as device:
        captured = captured_of([y], [y], lambda: np.copyto(y.values, x.values))
        device.called.clear()
        captured.clear_outputs()
    assert device.called.index("wait") < device.called.index("memset")


@pytest.mark.parametrize("number", [1, 2, 3])
def test_ctrl_c_while_memory_is_put_back_comes_when_that_is_done(number):
    x, wait = filled(5, 128), mock.Mock()
    with host_memory([x]) as device:
        device.runtime.deviceSynchronize = wait
        kept = state.State([(x.region, x.values.view(np.uint8).copy())], None)

        def interrupted():
            if wait.call_count == number:
                signal.raise_signal(signal.SIGINT)

        def run():
            x.values[:] = 9
            with kept.keeping():
                x.values[:] = 1
                wait.reset_mock()
                wait.side_effect = interrupted

        with pytest.raises(KeyboardInterrupt):
            run()
    assert x.values.tolist() == [9] * 128


@pytest.mark.parametrize("on_host", [False, True])
def test_copies_are_compared_in_slices(monkeypatch, on_host):
    monkeypatch.setattr(state, "PIECE", 64)
    compared = []

    def count_nonzero(differs):
        compared.append(differs.size)
        return np.asarray(np.count_nonzero(differs))

    def copies(values):
        found = object.__new__(state.Copies)
        found._whole, found.values = (None if on_host else values), [values[:100], values[100:]]
        return found

    one = np.arange(200, dtype=np.uint8)
    other = one.copy()
    other[[0, 63, 64, 199]] += 1
    lib = SimpleNamespace(cupy=SimpleNamespace(asarray=np.asarray, count_nonzero=count_nonzero))
    with mock.patch.object(state, "libraries", return_value=lib):
        assert copies(one).differing(copies(other)) == 4
        assert copies(one).differing(copies(one.copy())) == 0
    assert max(compared) <= 64
    assert sum(compared) == 2 * 200
