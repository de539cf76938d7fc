"""Worker threads: everything that was put runs, whenever they are told to stop."""

from __future__ import annotations

import threading

import pytest

from streamscope.engines.pushed.workers import Workers
from streamscope.errors import EngineError

LONG_S = 30


def nothing():
    pass


def put_all(workers, tasks):
    for task in tasks:
        workers.put(task)


def ended(workers):
    """Wait until the threads that there are have ended."""
    for thread in list(workers.threads):
        thread.join(LONG_S)
        assert not thread.is_alive()


@pytest.mark.parametrize("most", [1, 3])
def test_what_tasks_put_after_the_stop_runs_too(most):
    workers, ran, go = Workers("worker", most, nothing), [], threading.Event()

    def chain(left):
        go.wait(LONG_S)
        ran.append(left)
        if left:
            workers.put(lambda: chain(left - 1))

    put_all(workers, [lambda: chain(5)] * 4)
    workers.stop()
    go.set()
    while workers.threads:
        ended(workers)
    assert sorted(ran) == sorted([*range(6)] * 4)


def test_what_is_put_when_all_threads_have_ended_runs_on_a_new_one():
    workers, ran = Workers("worker", 2, nothing), []
    put_all(workers, [lambda: ran.append(1)] * 3)
    workers.join()
    assert workers.threads == []
    put_all(workers, [lambda: ran.append(2)] * 3)
    while workers.threads:
        ended(workers)
    assert ran == [1, 1, 1, 2, 2, 2]


def test_the_last_thread_says_so_once():
    workers, last, barrier = Workers("worker", 3, nothing), [], threading.Barrier(3)
    put_all(workers, [lambda: barrier.wait(LONG_S)] * 3)
    threads = list(workers.threads)
    workers.stop(lambda: last.append(len(workers.threads)))
    for thread in threads:
        thread.join(LONG_S)
    assert last == [0]


def test_two_pools_that_put_into_each_other_after_the_stop():
    pools, ran = [Workers(name, 1, nothing) for name in "ab"], []

    def bounce(left):
        ran.append(left)
        if left:
            pools[left % 2].put(lambda: bounce(left - 1))

    go = threading.Event()
    pools[0].put(lambda: (go.wait(LONG_S), bounce(20)))
    for pool in pools:
        pool.stop()
    go.set()
    while any(pool.threads for pool in pools):
        for pool in pools:
            ended(pool)
    assert ran == list(range(20, -1, -1))


class TestNoThread:
    @pytest.fixture(autouse=True)
    def none_left(self, monkeypatch):
        def start(thread):
            raise RuntimeError("can't start new thread")

        self.patch = monkeypatch
        self.refuse = lambda: monkeypatch.setattr(threading.Thread, "start", start)

    def test_the_first_one_is_an_error_that_leaves_nothing_queued(self):
        workers, ran = Workers("worker", 2, nothing), []
        self.refuse()
        with pytest.raises(EngineError, match="cannot start a thread for a host operation"):
            workers.put(lambda: ran.append("refused"))
        self.patch.undo()
        workers.put(lambda: ran.append("taken"))
        workers.join()
        assert ran == ["taken"]

    def test_those_that_are_there_do_the_work(self):
        workers, ran, go = Workers("worker", 2, nothing), [], threading.Event()
        workers.put(lambda: go.wait(LONG_S))
        self.refuse()
        workers.put(lambda: ran.append(1))
        go.set()
        workers.join()
        assert ran == [1]
