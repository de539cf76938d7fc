"""Tasks done by workers: each once, whatever their order; what dies is done once more, alone."""

from __future__ import annotations

from concurrent.futures import Executor, Future, ThreadPoolExecutor

import pytest

from streamscope import workers
from streamscope.errors import TraceError


def square(number):
    if number < 0:
        raise TraceError(f"{number} is negative")
    return number * number


class Breaking(Executor):
    """Does tasks at once; of some, the executor fails."""

    def __init__(self, breaks, error):
        self.breaks, self.error = breaks, error

    def submit(self, function, task):
        future = Future()
        future.set_exception(self.error) if self.breaks(task) else future.set_result(function(task))
        return future


@pytest.mark.parametrize("most", [1, 3, 64])
def test_an_executor_does_each_task_once(monkeypatch, most):
    monkeypatch.setattr(workers, "_IN_FLIGHT", most)
    with ThreadPoolExecutor(3) as threads:
        assert sorted(workers.on_executor(threads, square, range(10))) == [(number, number**2) for number in range(10)]


def test_an_executor_that_fails_leaves_tasks_and_errors_of_ours_pass(monkeypatch):
    monkeypatch.setattr(workers, "_IN_FLIGHT", 1)
    with pytest.raises(workers.UndoneError, match="3 tasks") as failed:
        list(workers.on_executor(Breaking(lambda task: task == 2, OSError("gone")), square, range(5)))
    assert (failed.value.left, str(failed.value.reason)) == ((2, 3, 4), "gone")
    with ThreadPoolExecutor(1) as threads, pytest.raises(TraceError, match="-1 is negative"):
        list(workers.on_executor(threads, square, [-1]))


def test_a_task_is_done_once_more_alone_if_the_process_beside_it_dies(monkeypatch):
    """Without processes: the first two tasks are with a worker that dies, which the first one would have survived."""
    pools = []

    @workers.contextmanager
    def pool(processes, task):
        pools.append(processes)
        first = len(pools) == 1
        yield Breaking(lambda task: first or task == 8, workers.BrokenProcessPool("gone"))

    monkeypatch.setattr(workers, "_pool", pool)
    monkeypatch.setattr(workers.os, "cpu_count", lambda: 8)
    found = dict(workers.in_processes(square, [4, 8, 16, 32]))
    assert isinstance(found.pop(1), workers.Dead)
    assert found == {0: 16, 2: 256, 3: 1024}
    assert pools == [2, 1, 1, 2]


def test_what_cannot_be_sent_is_told():
    with pytest.raises(workers.NotLoadedError, match="cannot be sent to processes"):
        list(workers.in_processes(square, [lambda: 0]))
