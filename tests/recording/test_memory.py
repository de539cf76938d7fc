"""Memory of a recording: the curve is the allocator's own total at each moment, whatever was taken before, in a pause, or by whom."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.recording.fake_allocators import Cupy, MemoryHook, Pool, Torch
from tests.recording.fake_cupti import ActivityKind, launch, record

import streamscope as ss
from streamscope.errors import RecordingError
from streamscope.recording import cupy_hook
from streamscope.recording import record as module
from streamscope.recording.memory import _matched
from streamscope.recording.torch_history import Held, torch_memory
from streamscope.trace.memory import BEFORE, BEFORE_THE_RECORDING, HELD, Allocations, Level
from streamscope.trace.memory_events import MemoryEvents, held_bytes

MIB = 1 << 20
ALLOCATION, RELEASE = 1, 2


def held_at(memory: Allocations, time_ns: int, level: Level = Level.ALLOCATED, kinds=None, gpu: int = 0) -> int:
    """Return the bytes that are held right behind a moment."""
    chosen = (memory.level == level) & (memory.gpu == gpu)
    if kinds is not None:
        chosen &= np.isin(memory.kinds, kinds)
    rows = memory.rows(chosen)
    return int(held_bytes(rows.start_ns, rows.end_ns, rows.bytes, np.array([time_ns]))[0])


@pytest.fixture
def clock(library, monkeypatch):
    """The library's clock, for PyTorch in µs and for CuPy's hook in ns."""
    library.now = 1_000_000
    monkeypatch.setattr(cupy_hook.time, "time_ns", lambda: library.now)
    monkeypatch.setattr(module, "_gpus_in_use", lambda: [0])
    return library


@pytest.fixture
def torch(clock, monkeypatch):
    found = Torch(lambda: clock.now // 1000)
    monkeypatch.setitem(sys.modules, "torch", found)
    return found


@pytest.fixture
def cupy(clock, monkeypatch):
    found = Cupy()
    monkeypatch.setitem(sys.modules, "cupy", found)
    monkeypatch.setattr(MemoryHook, "hooks", {})
    return found


def driver(library, what, address, nbytes, kind=3, gpu=0, **more):
    """Append CUPTI's record of memory that the driver gives or gets back."""
    fields = {"memory_operation_type": what, "memory_kind": kind, "address": address, "bytes": nbytes, "timestamp": library.now}
    library.records.append(record(ActivityKind.MEMORY2, device_id=gpu, **fields, **more))


def step(library, at_ns=10_000):
    library.now += at_ns


SIZES = st.one_of(st.integers(1, 2 * MIB), st.integers(MIB, 40 * MIB), st.sampled_from([512, MIB, MIB + 1, 10 * MIB, 20 * MIB]))
ACTIONS = st.one_of(
    st.tuples(st.just("malloc"), SIZES), st.tuples(st.sampled_from(["free", "late", "complete", "empty"]), st.integers(0, 99))
)


def run(allocator, actions, blocks, pending):
    """Let an allocator do what was drawn."""
    for action, number in actions:
        if action == "malloc":
            blocks.append(allocator.malloc(number))
        elif action in ("free", "late") and blocks:
            block = blocks.pop(number % len(blocks))
            allocator.free(block, used_elsewhere=action == "late")
            pending += [block] if action == "late" else []
        elif action == "complete" and pending:
            allocator.complete(pending.pop(number % len(pending)))
        elif action == "empty":
            allocator.empty_cache()


@settings(max_examples=30)
@given(st.lists(ACTIONS, max_size=25), st.lists(ACTIONS, max_size=40))
def test_blocks_of_pytorch_have_the_bytes_that_its_allocator_counts(earlier, later):
    ticks = iter(range(10**6))
    torch = Torch(lambda: next(ticks))
    allocator, blocks, pending = torch.allocators[0], [], []
    run(allocator, earlier, blocks, pending)
    allocator.records = True
    before = torch._snapshot()
    totals = allocator.allocated, allocator.reserved
    allocator.log.clear()
    run(allocator, later, blocks, pending)
    said = []
    found = torch_memory(before, torch._snapshot(), said)
    assert said == []
    if not found:
        assert not allocator.log
        return
    lent, taken = found
    assert (lent.before_bytes, taken.before_bytes) == totals
    assert lent.before_bytes + np.cumsum(lent.events.bytes)[-1:].sum() == allocator.allocated or not len(lent.events)
    steps = np.diff([totals[0], *(allocated for _, allocated, _ in allocator.log)])
    assert lent.events.bytes.tolist() == steps[steps != 0].tolist()
    steps = np.diff([totals[1], *(reserved for _, _, reserved in allocator.log)])
    assert taken.events.bytes.tolist() == steps[steps != 0].tolist()


def test_the_curve_is_pytorchs_own_at_each_operation_and_lines_are_the_users(torch, library):
    allocator = torch.allocators[0]
    weights = allocator.malloc(5 * MIB + 3)
    gone = allocator.malloc(700)
    inside = [{"filename": "/opt/lib/python3.12/site-packages/torch/nn/functional.py", "line": 1, "name": "relu"}]
    users = {"filename": "/home/me/train.py", "line": 12, "name": "forward"}
    seen = []
    with ss.record(memory=True) as recording:
        launch(library, correlation=5)
        for nbytes in (1000, 30 * MIB, 3 * MIB):
            step(library)
            allocator.frames = [*inside, users]
            block = allocator.malloc(nbytes)
            seen.append((library.now, allocator.allocated, allocator.reserved))
        step(library)
        allocator.free(gone)
        allocator.free(block)
        seen.append((library.now, allocator.allocated, allocator.reserved))
        allocator.frames = []
        step(library)
        allocator.malloc(MIB)
        seen.append((library.now, allocator.allocated, allocator.reserved))
    memory, zero_ns = recording.trace.memory, recording._pieces[0].start_ns
    for at_ns, allocated, reserved in seen:
        assert held_at(memory, at_ns - zero_ns + 900) == allocated
        assert held_at(memory, at_ns - zero_ns + 900, Level.RESERVED) == reserved
    rows = memory.to_pandas()
    lent = rows[(rows["level"] == "allocated") & (rows["kind"] == "PyTorch")]
    assert lent["bytes"].tolist() == [1024, 30 * MIB, 3 * MIB, MIB]
    assert list(zip(lent["file"], lent["line"], lent["function"], strict=True))[:3] == [("/home/me/train.py", 12, "forward")] * 3
    assert lent["line"].tolist()[3] == 0
    before = rows[(rows["kind"] == BEFORE_THE_RECORDING) & (rows["level"] == "allocated")]
    assert sorted(before["bytes"]) == [gone.requested // 512 * 512 + 512, weights.size]
    assert set(before["start_ns"]) == {BEFORE}
    assert torch.history[-1][0] is None
    assert torch.history[0] == ("all", {"context": "alloc", "stacks": "python", "max_entries": 1_000_000})


def test_what_was_held_is_a_row_even_if_nothing_is_taken(torch, library):
    torch.allocators[0].malloc(3 * MIB)
    with ss.record(memory=True) as recording:
        launch(library, correlation=5)
    memory = recording.trace.memory
    assert list(zip(memory.bytes.tolist(), memory.kinds, memory.level.tolist(), strict=True)) == [
        (3 * MIB, BEFORE_THE_RECORDING, Level.ALLOCATED), (20 * MIB, BEFORE_THE_RECORDING, Level.RESERVED)
    ]  # fmt: skip


def test_a_users_own_history_goes_on_as_it_was(torch, library):
    allocator = torch.allocators[0]
    allocator.records = True
    allocator.malloc(MIB)
    with ss.record(memory=True) as recording:
        launch(library, correlation=5)
        step(library)
        allocator.malloc(2 * MIB)
    assert torch.history == []
    assert allocator.trace[0]["action"] == "segment_alloc"
    memory = recording.trace.memory
    assert memory.bytes[(memory.level == Level.ALLOCATED) & (memory.start_ns > BEFORE)].tolist() == [2 * MIB]


def test_a_history_that_forgot_is_told_and_nothing_is_guessed(torch, library):
    allocator = torch.allocators[0]
    allocator.records = True
    allocator.malloc(MIB)
    with ss.record(memory=True) as recording:
        launch(library, correlation=5)
        allocator.malloc(2 * MIB)
        del allocator.trace[:4]  # as a ring does
    assert len(recording.trace.memory) == 0
    assert any("PyTorch's memory on GPU 0 is not known: its history keeps" in note for note in recording.trace.info.notes)


def test_an_allocator_that_divides_otherwise_has_the_bytes_that_were_asked_for():
    ticks = iter(range(100))
    torch = Torch(lambda: next(ticks))
    allocator = torch.allocators[0]
    allocator.records = True
    before = torch._snapshot()
    allocator.malloc(1000)
    after = torch._snapshot()
    after["segments"][0]["blocks"][0]["size"] = 2048
    said = []
    lent, _ = torch_memory(before, after, said)
    assert lent.events.bytes.tolist() == [1000]
    assert said == ["PyTorch's blocks on GPU 0 have the bytes that were asked for: how its allocator rounds them up is not known"]


def test_parts_of_an_expandable_segment_are_given_back_in_other_pieces():
    def action(name, address, size, at):
        return {"action": name, "addr": address, "size": size, "time_us": at}

    base, page = 1 << 30, 2 * MIB
    mark = action("snapshot", 0, 0, 0)
    actions = [
        action("segment_map", base, page, 1),
        action("segment_map", base + page, 4 * page, 2),
        action("alloc", base, page + 512, 3),
        action("free_requested", base, page + 512, 4),
        action("free_completed", base, page + 512, 4),
        action("segment_unmap", base + 2 * page, 2 * page, 5),
        action("segment_unmap", base, page, 6),
    ]
    blocks = [(base + page, page), (base + 4 * page, page)]
    segments = [
        {"device": 0, "address": at, "total_size": size, "is_expandable": True,
         "blocks": [{"address": at, "size": size, "requested_size": 0, "state": "inactive"}]}
        for at, size in blocks
    ]  # fmt: skip
    before = {"segments": [], "device_traces": [[]]}
    after = {
        "segments": segments,
        "device_traces": [[mark, *actions]],
        "allocator_settings": {"expandable_segments": True},
    }
    said = []
    lent, taken = torch_memory(before, after, said)
    assert said == []
    assert lent.events.bytes.tolist() == [page + 512, -page - 512]
    assert np.cumsum(taken.events.bytes)[[0, 1, -1]].tolist() == [page, 5 * page, 2 * page]


def test_arrays_of_cupy_and_the_segments_of_its_pool(cupy, library, monkeypatch):
    monkeypatch.setattr(cupy_hook, "is_users", lambda file: file == __file__)
    pool = cupy.pool
    kept, gone = pool.malloc(1000), pool.malloc(5000)
    seen = []
    with ss.record(memory=True) as recording:
        launch(library, correlation=5)
        assert list(MemoryHook.hooks) == ["streamscope"]
        step(library)
        first = pool.malloc(700)
        seen.append((library.now, pool.used_bytes(), pool.total_bytes()))
        driver(library, ALLOCATION, first[0], 1024)  # The same segment, by CUPTI.
        step(library)
        pool.free(gone)
        seen.append((library.now, pool.used_bytes(), pool.total_bytes()))
        step(library)
        pool.free(first)
        driver(library, RELEASE, first[0], 1024)
        pool.total -= 1024
        seen.append((library.now, pool.used_bytes(), pool.total_bytes()))
        step(library)
        driver(library, RELEASE, 77, 5120)  # It held that before, at an address that nobody knows.
        pool.total -= 5120
        seen.append((library.now, pool.used_bytes(), pool.total_bytes()))
    assert MemoryHook.hooks == {}
    assert kept in pool.used.items()
    memory, zero_ns = recording.trace.memory, recording._pieces[0].start_ns
    for at_ns, used, total in seen:
        assert held_at(memory, at_ns - zero_ns + 10) == used
        assert held_at(memory, at_ns - zero_ns + 10, Level.RESERVED) == total
    rows = memory.to_pandas()
    (taken,) = rows[(rows["kind"] == "CuPy") & (rows["level"] == "allocated")].itertuples()
    assert (taken.bytes, taken.file, taken.function) == (1024, __file__, "test_arrays_of_cupy_and_the_segments_of_its_pool")


def test_a_pool_that_takes_from_another_counts_once(cupy, library):
    with ss.record(memory=True) as recording:
        launch(library, correlation=5)
        inner = Pool(cupy.pool.malloc)
        step(library)
        piece = inner.malloc(4096)
        step(library)
        inner.free(piece)
        assert cupy.pool.used_bytes() == 4096
    memory = recording.trace.memory
    assert memory.bytes[memory.level == Level.ALLOCATED].tolist() == [4096]
    assert memory.end_ns[memory.level == Level.ALLOCATED].tolist() == [HELD]
    assert memory.bytes[memory.level == Level.RESERVED].tolist() == [4096]


def test_memory_that_another_thread_takes_is_told(cupy, library, monkeypatch):
    with ss.record(memory=True) as recording:
        launch(library, correlation=5)
        cupy.pool.malloc(512)
        hooks = dict(MemoryHook.hooks)
        MemoryHook.hooks.clear()
        cupy.pool.malloc(2 * MIB)
        MemoryHook.hooks.update(hooks)
    assert "CuPy's memory on GPU 0: other threads took 2.0 MiB, which is not known in time" in recording.trace.info.notes


def test_what_the_driver_gives_is_known_by_its_kind_and_pools_of_cuda_are_apart(clock, library):
    with ss.record(memory=True) as recording:
        launch(library, correlation=5)
        step(library)
        driver(library, ALLOCATION, 1 << 20, 4096)
        driver(library, ALLOCATION, 1 << 21, 8192, kind=2)
        driver(library, ALLOCATION, 1 << 22, 600, is_async=1, pool=(9, 2 * MIB))
        step(library)
        driver(library, RELEASE, 1 << 20, 4096)
        driver(library, RELEASE, 1 << 23, 512)  # taken before
        driver(library, RELEASE, 1 << 22, 600, is_async=1, pool=(9, 0))
    rows = recording.trace.memory.to_pandas()
    known = [(one.bytes, one.kind, one.level, one.gpu, one.end_ns == HELD) for one in rows.itertuples() if one.start_ns > BEFORE]
    assert sorted(known) == [
        (600, "cudaMallocAsync", "allocated", 0, False), (4096, "CUDA", "reserved", 0, False), (8192, "pinned", "reserved", -1, True),
    ]  # fmt: skip
    # The first that is known of a pool may have been there before.
    assert sorted(rows[rows["start_ns"] == BEFORE]["bytes"]) == [512, 2 * MIB]


def test_segments_at_one_address_are_matched_in_time_that_grows_with_their_number():
    count = 10_000
    rows = np.zeros(2 * count, [(name, np.int64) for name in ("time_ns", "gpu", "address", "what", "bytes")])
    rows["time_ns"], rows["address"], rows["what"] = np.arange(2 * count) * 10, 7, np.tile([ALLOCATION, RELEASE], count)
    events = rows[2:]  # The allocator's history has not the first ones.
    column = np.full(len(events), 7), np.zeros(len(events), np.int64)
    history = MemoryEvents(events["time_ns"] + 4, np.where(events["what"] == ALLOCATION, 1, -1), *column, level=Level.RESERVED)
    began = time.perf_counter()
    found = _matched(rows, Held(0, history, 0))
    assert np.flatnonzero(~found).tolist() == [0, 1]
    assert time.perf_counter() - began < 10  # It took 25 s, when each was compared with all others.


def test_a_pause_loses_no_memory(torch, library, monkeypatch):
    allocator = torch.allocators[0]
    monkeypatch.setattr(module, "_is_held", lambda address, nbytes: address != 64)
    with ss.record(memory=True) as recording:
        launch(library, correlation=5)
        step(library)
        first, second = allocator.malloc(MIB), allocator.malloc(2 * MIB)
        driver(library, ALLOCATION, 64, 4096)
        driver(library, ALLOCATION, 128, 512)
        step(library)
        recording.pause()
        pause_ns = recording._pieces[0].waited_ns - recording._pieces[0].start_ns
        step(library)
        passing = allocator.malloc(70 * MIB)
        allocator.free(first)
        step(library)
        allocator.free(passing)
        stays = allocator.malloc(3 * MIB)
        step(library, 5_000_000)
        recording.resume()
        launch(library, correlation=5)
        step(library)
        allocator.free(second)
        now_ns, allocated = library.now, allocator.allocated
    memory, pieces = recording.trace.memory, recording._pieces
    cut_ns = pieces[1].start_ns - pieces[0].waited_ns
    lent = memory.rows((memory.level == Level.ALLOCATED) & np.isin(memory.kinds, ["PyTorch"]))
    assert lent.bytes.tolist() == [MIB, 2 * MIB, stays.size]
    assert lent.end_ns.tolist()[0] == pytest.approx(pause_ns, abs=10)
    assert lent.start_ns.tolist()[2] == pytest.approx(pause_ns, abs=10)
    assert held_at(memory, now_ns - cut_ns - pieces[0].start_ns + 900) == allocated == stays.size
    gone, left = (memory.bytes == 4096), (memory.bytes == 512)
    assert memory.end_ns[gone].tolist() == pytest.approx([pause_ns], abs=10)
    assert memory.end_ns[left].tolist() == [HELD]


def test_of_the_last_seconds_what_is_still_held_was_there_before(torch, library):
    allocator = torch.allocators[0]
    with ss.record(memory=True, last=30e-6) as recording:
        launch(library, correlation=5)
        step(library)
        allocator.malloc(MIB)
        allocator.free(allocator.malloc(9 * MIB))
        step(library, 100_000)
        launch(library, correlation=6)
        step(library)
        allocator.malloc(2 * MIB)
        step(library)
    memory = recording.trace.memory
    lent = memory.rows(memory.level == Level.ALLOCATED)
    assert lent.bytes.tolist() == [MIB, 2 * MIB]
    assert (lent.start_ns == BEFORE).tolist() == [True, False]
    assert lent.kinds == ["PyTorch", "PyTorch"]


def test_a_history_that_forgot_what_came_before_the_last_seconds_is_enough(torch, library):
    allocator = torch.allocators[0]
    with ss.record(memory=True, last=60e-6) as recording:
        launch(library, correlation=5)
        step(library)
        kept, gone = allocator.malloc(1000), allocator.malloc(9 * MIB)
        step(library, 100_000)
        del allocator.trace[:-2]  # as a ring does
        launch(library, correlation=6)
        step(library)
        allocator.malloc(700)
        step(library)
        allocator.free(gone)
        step(library)
    memory = recording.trace.memory
    lent = memory.rows(memory.level == Level.ALLOCATED)
    assert kept.allocated
    assert sorted(zip(lent.bytes.tolist(), (lent.start_ns == BEFORE).tolist(), (lent.end_ns == HELD).tolist(), strict=True)) == [
        (700, False, True), (1000, True, True), (9 * MIB, True, False),
    ]  # fmt: skip
    assert memory.bytes[memory.level == Level.RESERVED].sum() == allocator.reserved
    assert [note for note in recording.trace.info.notes if "its history keeps the last actions only" in note]


@pytest.mark.parametrize("paused", [False, True])
def test_cupys_history_drops_what_came_and_went_before_the_last_seconds(cupy, library, monkeypatch, paused):
    monkeypatch.setattr(cupy_hook, "_FEW", 20)
    with ss.record(memory=True, last=1e-3) as recording:
        launch(library, correlation=5)
        kept = cupy.pool.malloc(700)
        for _ in range(100):
            step(library, 100_000)
            cupy.pool.free(cupy.pool.malloc(512))
        assert len(recording._histories._open["cupy"]._log) <= 41
        if paused:
            recording.pause()
            step(library, 10**9)
            recording.resume()
            for _ in range(50):  # Too many to keep, were the pause counted.
                cupy.pool.free(cupy.pool.malloc(2048))
        launch(library, correlation=6)
        step(library)
    memory = recording.trace.memory
    lent = memory.rows(memory.level == Level.ALLOCATED)
    assert kept in cupy.pool.used.items()
    assert lent.bytes[lent.end_ns == HELD].tolist() == [1024]
    assert 8 <= np.count_nonzero(lent.bytes == 512) <= 11
    assert np.count_nonzero(lent.bytes == 2048) == 50 * paused


def test_an_allocator_of_an_unknown_version_is_told_and_the_recording_goes_on(torch, library):
    del torch.cuda.memory._snapshot
    with ss.record(memory=True) as recording:
        launch(library, correlation=5)
    assert torch.history[-1][0] is None
    assert any(note.startswith("memory of torch 2.11.0 is not known: AttributeError") for note in recording.trace.info.notes)


@pytest.mark.parametrize("failing", [KeyError, KeyboardInterrupt])
def test_allocators_are_left_as_they_were_when_a_block_fails(torch, cupy, library, failing):
    with suppress(failing), ss.record(memory=True):
        launch(library, correlation=5)
        raise failing
    assert torch.history[-1][0] is None
    assert MemoryHook.hooks == {}
    library.refusals["cuptiActivityRegisterCallbacks"] = 1
    with pytest.raises(RecordingError, match="CUPTI refused"), ss.record(memory=True):
        pass
    assert torch.history[-1][0] is None
    assert MemoryHook.hooks == {}


def test_without_memory_nothing_is_asked(torch, cupy, library):
    with ss.record() as recording:
        assert ActivityKind.MEMORY2 not in library.enabled
        assert MemoryHook.hooks == {}
        launch(library, correlation=5)
    assert torch.history == []
    assert len(recording.trace.memory) == 0


def test_memory_is_true_or_false():
    with pytest.raises(RecordingError, match="memory='all' must be True or False"):
        ss.record(memory="all")


@pytest.mark.parametrize(
    ("answer", "held"),
    [((0, 64, 512), True), ((0, 64, 1024), False), ((0, 0, 512), False), ((500, 0, 0), False), ((1, 0, 0), False), ((201, 0, 0), True)],
)
def test_memory_is_gone_only_where_the_driver_says_so(monkeypatch, answer, held):
    monkeypatch.setattr(module, "_driver", lambda: SimpleNamespace(cuMemGetAddressRange=lambda _: answer))
    assert module._is_held(64, 512) is held
