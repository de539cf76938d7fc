"""Memory of a recording on a real GPU, to the byte of the allocators' own numbers."""

from __future__ import annotations

import sys
import time

import numpy as np
import pytest

import streamscope as ss
from streamscope.recording import cupy_hook, torch_history
from streamscope.trace.memory import BEFORE, HELD, Level
from streamscope.trace.memory_events import held_bytes

pytestmark = pytest.mark.gpu
pytest.importorskip("cupti")
APART_S = 3e-4
"""PyTorch's history has whole microseconds."""


@pytest.fixture(scope="module")
def cp():
    return pytest.importorskip("cupy")


@pytest.fixture(scope="module")
def torch():
    found = pytest.importorskip("torch")
    if not found.cuda.is_available():
        pytest.skip("PyTorch without a GPU")
    return found


def probe(cp):
    """Count what PyTorch, where it is loaded, and CuPy's pool say of themselves."""
    time.sleep(APART_S)
    pool, torch = cp.get_default_memory_pool(), sys.modules.get("torch")
    ss.counter("lent").set(pool.used_bytes() + (torch.cuda.memory_allocated() if torch else 0))
    ss.counter("taken").set(pool.total_bytes() + (torch.cuda.memory_reserved() if torch else 0))
    time.sleep(APART_S)


def assert_held_as_said(trace):
    """Assert that the memory of pools is what the counters say."""
    for name, level in (("lent", Level.ALLOCATED), ("taken", Level.RESERVED)):
        (number,) = [number for number, series in enumerate(trace.counters.described) if series.name == name]
        rows = trace.counters.rows_of(number)
        driver = ["CUDA", "pinned", "managed", "CUDA static", "cudaMallocAsync"]
        held = trace.memory.rows((trace.memory.level == level) & ~np.isin(trace.memory.kinds, driver))
        found = held_bytes(held.start_ns, held.end_ns, held.bytes, trace.counters.time_ns[rows])
        assert found.tolist() == trace.counters.value[rows].astype(int).tolist()


def test_the_curve_is_pytorchs_own_and_pauses_lose_nothing(torch, cp):
    x = torch.randn(1000, 1001, device="cuda")
    with ss.record(memory=True) as recording:
        y = x @ x.T
        probe(cp)
        z = torch.empty(70 << 20, dtype=torch.uint8, device="cuda")
        recording.pause()
        del z
        torch.cuda.empty_cache()
        kept = y.exp()
        recording.resume()
        probe(cp)
        del y
        torch.cuda.empty_cache()
        probe(cp)
        kept.add_(1)
        probe(cp)
    assert_held_as_said(recording.trace)
    memory = recording.trace.memory
    assert not [note for note in recording.trace.info.notes if "emory" in note]
    assert __file__ in {site.file for site in memory.sites}
    assert not torch._C._cuda_isHistoryEnabled()


def test_the_curve_is_that_of_cupys_pool(cp):
    pool = cp.get_default_memory_pool()
    x = cp.ones((1000, 1001), cp.float32)
    gone = cp.ones(5_000_000, cp.uint8)
    with ss.record(memory=True) as recording:
        y = x * 2 + x
        probe(cp)
        del gone
        pool.free_all_blocks()
        probe(cp)
        y.sum()
        probe(cp)
    assert_held_as_said(recording.trace)
    taken = recording.trace.memory.rows(np.isin(recording.trace.memory.kinds, ["CuPy"]))
    taken = taken.rows(taken.level == Level.ALLOCATED)
    assert {taken.sites[code].file for code in taken.site.tolist()} <= {__file__}


def test_memory_of_the_driver_and_of_its_pools(cp):
    with ss.record(memory=True) as recording:
        cp.ones(3).sum()
        first = cp.cuda.Memory(3 << 20)
        second = cp.cuda.Memory(5 << 20)
        recording.pause()
        del first
        recording.resume()
        stream = cp.cuda.Stream(non_blocking=True)
        asynchronous = cp.cuda.runtime.mallocAsync(7 << 20, stream.ptr)
        cp.cuda.runtime.freeAsync(asynchronous, stream.ptr)
        stream.synchronize()
        cp.ones(3).sum()
    rows = recording.trace.memory.to_pandas()
    known = {(one.bytes, one.kind, one.level): one.end_ns for one in rows[rows["start_ns"] > BEFORE].itertuples()}
    assert known[3 << 20, "CUDA", "reserved"] < HELD
    assert known[5 << 20, "CUDA", "reserved"] == HELD
    assert known[7 << 20, "cudaMallocAsync", "allocated"] < HELD
    assert (
        rows[(rows["kind"] == "cudaMallocAsync") & (rows["level"] == "reserved") | (rows["start_ns"] == BEFORE)]["bytes"].max() >= 7 << 20
    )
    assert second.size == 5 << 20


def test_histories_that_keep_the_last_actions_alone_are_enough_for_the_last_seconds(torch, cp, monkeypatch):
    monkeypatch.setattr(torch_history, "_MOST_ACTIONS", 200)
    monkeypatch.setattr(cupy_hook, "_FEW", 100)
    with ss.record(memory=True, last=0.2) as recording:
        for _ in range(300):
            torch.ones(3000, device="cuda"), cp.ones(3000)
        time.sleep(0.4)
        slept_ns = time.time_ns()
        for _ in range(600):
            cp.ones(2000)
        assert recording._histories._open["cupy"]._log[0][0] > slept_ns
        late = torch.ones(5000, device="cuda")
        cp.ones(100).sum()
    memory = recording.trace.memory
    assert [note for note in recording.trace.info.notes if "its history keeps the last actions only" in note]
    rows = memory.to_pandas()
    (taken,) = rows[(rows["kind"] == "PyTorch") & (rows["level"] == "allocated") & (rows["start_ns"] > BEFORE)].itertuples()
    assert (taken.bytes, taken.end_ns, taken.file) == (late.nbytes, HELD, __file__)
    # CUDA's own records are beside them, also of variables of modules that were loaded meanwhile.
    reserved = rows[(rows["level"] == "reserved") & (rows["end_ns"] == HELD) & ~rows["kind"].str.contains("CUDA|pinned|managed")]
    taken_bytes = torch.cuda.memory_reserved() + cp.get_default_memory_pool().total_bytes()
    assert reserved["bytes"].sum() == taken_bytes, reserved.groupby("kind")["bytes"].sum()
