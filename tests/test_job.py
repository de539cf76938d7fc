"""Ranks agree before each step, and a rank that does not go on ends all others with its reason.

The ranks are threads here, and the store is a dictionary; `benchmarks/job_faults.py` has processes, PyTorch's store and collectives.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from types import SimpleNamespace

import pytest

import streamscope.job as job_module
from streamscope.errors import EngineError, PeerError
from streamscope.job import Job, differing_rank, gathered, joined, since_last_start, the_same


class Store(dict[str, str]):
    """The store of a group."""

    def set(self, key, value):
        self[key] = value

    def get(self, key):
        return self[key]

    def check(self, keys):
        return all(key in self for key in keys)

    def delete_key(self, key):
        self.pop(key, None)

    def add(self, key, number):
        self[key] = self.get(key) + number if key in self else number
        return self[key]

    def clone(self):
        return self


class Silent(Store):
    """A store whose process has ended."""

    def check(self, keys):
        raise ConnectionError("connection reset by peer")

    def add(self, key, number):
        raise ConnectionError("connection reset by peer")


@pytest.fixture
def group(monkeypatch):
    """Let PyTorch have a process group of two ranks, each of the thread of that name; its store can be replaced."""
    found = SimpleNamespace(store=Store())
    inner = SimpleNamespace(_get_default_store=lambda: found.store, _abort_process_group=lambda: None)
    torch = SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: True, get_world_size=lambda: 2,
        get_rank=lambda: int(threading.current_thread().name), distributed_c10d=inner, TCPStore=dict,
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "torch.distributed", torch)
    return found


def block(*ranks, timeout_s=5.0):
    """Let ranks do a block together, and return each one's values or error."""
    ends = {}

    def one(rank):
        try:
            with joined("capturing", timeout_s):
                ends[rank] = gathered("numbers", rank)
        except PeerError as error:
            ends[rank] = error.message

    threads = [threading.Thread(target=one, args=(rank,), name=str(rank)) for rank in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return [ends[rank] for rank in ranks]


def run(*bodies, timeout_s=5.0, size=None, store=None, abort=lambda: None):
    """Let each rank run its function; return each one's result or error."""
    meet, ends = Store() if store is None else store, {}

    def one(rank, body):
        try:
            with Job(meet, rank, size or len(bodies), 1, timeout_s, abort) as job:
                ends[rank] = body(job)
        except BaseException as error:  # noqa: BLE001 — looked at below
            ends[rank] = error

    threads = [threading.Thread(target=one, args=each) for each in enumerate(bodies)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return [ends[rank] for rank in range(len(bodies))]


def test_all_ranks_get_the_values_of_all():
    def agree(job):
        return gathered("flags", job.rank == 1), the_same("times", [job.rank, 3 - job.rank])

    assert run(agree, agree, agree) == [([False, True, False], [2, 3])] * 3


def test_a_plan_that_differs_on_one_rank_is_seen_by_all():
    def compare(job):
        return differing_rank("making a graph", ((0, 1), (1, 0))[job.rank == 2]), differing_rank("timing", "the same")

    assert run(compare, compare, compare) == [(2, None)] * 3


def test_a_run_takes_as_long_as_on_the_rank_that_began_last():
    assert run(*[lambda job: since_last_start("times", [1.0 + job.rank, 5.0 - job.rank])] * 2) == [[1.0, 4.0]] * 2


def test_without_a_job_a_rank_agrees_with_itself():
    assert gathered("flags", value=True) == [True]


@pytest.mark.parametrize("error", [EngineError("it copies from host memory"), KeyboardInterrupt()])
def test_a_rank_that_refuses_makes_all_refuse_with_its_reason(error):
    def refuse(job):
        raise error

    def come(job):
        job.gathered("capturing", None)

    first, refused, last = run(come, refuse, come)
    assert refused is error
    why = "was interrupted" if isinstance(error, KeyboardInterrupt) else "failed: EngineError: it copies from host memory"
    assert first.message == f"rank 1 {why}, so rank 0 stopped at 'capturing'"
    assert last.message == f"rank 1 {why}, so rank 2 stopped at 'capturing'"


def test_a_rank_that_fails_behind_its_last_step_fails_the_others():
    def fail(job):
        job.gathered("capturing", None)
        raise ValueError("no such layer")

    ends = run(lambda job: job.gathered("capturing", None), fail)
    assert ends[0].message == "rank 1 failed: ValueError: no such layer, so rank 0 stopped at 'the end'"


def test_a_rank_that_does_not_come_is_named():
    (alone,) = run(lambda job: job.gathered("capturing", None), timeout_s=0.05, size=2)
    assert alone.message == "rank 1 did not come to 'capturing' within 0.05 s, so rank 0 stopped at 'capturing'"


def test_ranks_at_different_steps_all_stop():
    first, other = run(lambda job: job.gathered("timing", None), lambda job: job.gathered("proving", None))
    assert isinstance(first, PeerError)
    assert isinstance(other, PeerError)
    assert first.message == "rank 1 came to 'proving', and rank 0 to 'timing', so rank 0 stopped at 'timing'"


def test_a_store_that_is_gone_is_rank_0s_end():
    (alone,) = run(lambda job: job.gathered("capturing", None), size=2, store=Silent())
    assert alone.message.startswith("rank 0 cannot be reached, which holds the store: ConnectionError: connection reset by peer")


def test_a_rank_inside_a_collective_is_aborted_and_says_who_failed():
    """The collective of rank 0 ends only by an abort, since rank 1 never comes to it."""
    aborted = threading.Event()

    def collective(job):
        assert aborted.wait(10), "nobody aborted"
        raise RuntimeError("NCCL communicator was aborted")

    def fail(job):
        raise ValueError("no such layer")

    start = time.monotonic()
    waiting, failed = run(collective, fail, timeout_s=0.2, abort=aborted.set)
    assert isinstance(failed, ValueError)
    assert waiting.message == "rank 1 failed: ValueError: no such layer, so rank 0 stopped at 'the beginning'"
    assert "make it anew" in waiting.hint
    assert time.monotonic() - start < 10


def interrupted(monkeypatch, body):
    """Return how a rank of the main thread ends that another one has failed, and that no abort brings back."""
    monkeypatch.setattr(job_module, "_LEAVE_S", 0.02)
    store = Store()
    store.set("streamscope/1/failed/1", '[1, "failed: ValueError: no such layer", true]')
    why = "rank 1 failed: ValueError: no such layer, so rank 0 stopped at 'the beginning'"
    with pytest.raises(PeerError, match=why), Job(store, 0, 2, 1, 0.05, lambda: None) as job:
        body(job)
    time.sleep(0.05)  # An interrupt that came now would be the next one's.


def test_a_rank_that_waits_for_something_else_is_interrupted(monkeypatch):
    interrupted(monkeypatch, lambda job: time.sleep(20))


def test_an_interrupt_while_the_block_ends_is_the_blocks(monkeypatch):
    def ends(job):
        late, watching, kill = threading.Event(), job._end_watching, signal.pthread_kill
        monkeypatch.setattr(job, "_end_watching", lambda: (late.wait(5), watching()))
        monkeypatch.setattr(signal, "pthread_kill", lambda *who: (late.set(), kill(*who)))
        monkeypatch.setattr(job, "gathered", lambda *said: [])

    interrupted(monkeypatch, ends)


def test_an_error_of_the_rank_itself_stays_its_own():
    def own(job):
        raise ValueError("mine")

    first, second = run(own, own)
    assert str(first) == str(second) == "mine"


def test_a_group_made_anew_works_where_a_rank_did_not_come_before(group):
    assert block(0, 1) == [[0, 1]] * 2
    assert block(0, timeout_s=0.05) == ["rank 1 did not come to 'capturing' within 0.05 s, so rank 0 stopped at 'capturing'"]
    group.store = Store()
    assert block(0, 1) == [[0, 1]] * 2


def test_the_store_holds_no_more_after_many_blocks(group):
    block(0, 1)
    block(0, 1)
    few = {key.split("/", 2)[-1] for key in group.store}
    for _ in range(5):
        block(0, 1)
    assert {key.split("/", 2)[-1] for key in group.store} == few
    assert len(group.store) == len(few)


def test_a_store_that_is_gone_before_a_block_is_rank_0s_end_too(group):
    group.store = Silent()
    (said,) = block(1)
    assert said.startswith("rank 0 cannot be reached, which holds the store: ConnectionError")
