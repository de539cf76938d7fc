"""Tasks that the workers of an executor do, or processes of our own; what a process was doing when it died is done once more, alone."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager, suppress
from itertools import islice
from typing import TypeVar

from streamscope.errors import StreamscopeError, described
from streamscope.interrupts import is_interruption

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")

PROCESSES = "processes"
"""The executor that is a pool of our own."""
_MOST_PROCESSES = 2
_IN_FLIGHT = 64
"""Tasks that a foreign executor has at a time, whose number of workers nobody knows: each holds its inputs."""


class UndoneError(Exception):
    """An executor failed for a ``reason``. ``left`` are the numbers of the tasks that are not done."""

    def __init__(self, left: Sequence[int], reason: Exception) -> None:
        self.left, self.reason = left, reason
        super().__init__(f"{len(left)} tasks are not done")


class NotLoadedError(Exception):
    """Processes cannot be given the tasks; the text says why."""


class Dead:
    """Result of a task whose process ended twice, the second time with nothing beside it."""


def on_executor(
    executor: Executor, function: Callable[[_Task], _Result], tasks: Sequence[_Task]
) -> Generator[tuple[int, _Result], None, None]:
    """Yield number and result of tasks, in any order, as somebody else's executor has done them.

    ``function`` stands at the top of a module, where workers find it by its name.

    Raises
    ------
    UndoneError
        The executor failed, or the function did, except for errors of ours, which pass.
    """
    left = dict(enumerate(tasks))
    try:
        with closing(_submitted(executor, function, left, _IN_FLIGHT, {})) as done:
            for number, result in done:
                del left[number]
                yield number, result
    except StreamscopeError:
        raise
    except Exception as error:
        if is_interruption(error):
            raise
        raise UndoneError(tuple(left), error) from error


def in_processes(function: Callable[[_Task], _Result], tasks: Sequence[_Task]) -> Generator[tuple[int, _Result | Dead], None, None]:
    """Yield number and result of tasks, in any order, as processes of our own have done them.

    If one dies, each task that was being done is done once more, alone. Whatever ends the generator ends the processes.

    Raises
    ------
    NotLoadedError
        The tasks cannot be pickled, or a process cannot load them.
    """
    left = dict(enumerate(tasks))
    while left:
        in_flight: dict[Future[_Result], int] = {}
        processes = min(_MOST_PROCESSES, os.cpu_count() or 1, len(left))
        with (
            _pool(processes, next(iter(left.values()))) as pool,
            suppress(BrokenProcessPool),
            closing(_submitted(pool, function, left, processes, in_flight)) as done,
        ):
            for number, result in done:
                del left[number]
                yield number, result
        for number in sorted(in_flight.values()):
            yield number, _once_more(function, left.pop(number))


def _submitted(
    executor: Executor,
    function: Callable[[_Task], _Result],
    left: Mapping[int, _Task],
    most: int,
    in_flight: dict[Future[_Result], int],
) -> Generator[tuple[int, _Result], None, None]:
    """Give an executor tasks, ``most`` at a time; ``in_flight`` then holds those that it had when it failed."""
    rest = iter(list(left.items()))
    try:
        while True:
            for number, task in islice(rest, most - len(in_flight)):
                in_flight[executor.submit(function, task)] = number
            if not in_flight:
                return
            for future in wait(in_flight, return_when=FIRST_COMPLETED).done:
                result = future.result()
                yield in_flight.pop(future), result
    finally:
        for future in in_flight:
            future.cancel()


def _once_more(function: Callable[[_Task], _Result], task: _Task) -> _Result | Dead:
    """Do a task in a process of its own."""
    with _pool(1, task) as pool:
        try:
            return pool.submit(function, task).result()
        except BrokenProcessPool:
            return Dead()


@contextmanager
def _pool(processes: int, task: object) -> Iterator[Executor]:
    """Give a pool whose processes can load a task. Whatever ends the block early ends them, too."""
    try:
        pickle.dumps(task)
    except Exception as error:
        raise NotLoadedError(f"cannot be sent to processes: {described(error)}") from error
    main = sys.modules["__main__"]
    if not hasattr(main, "__spec__"):  # Shells put a module of their own there, and a process that starts asks for it.
        main.__spec__ = None
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), _begin_worker)
    try:
        try:
            for loaded in [pool.submit(_load, task) for _ in range(processes)]:  # All processes start at once.
                loaded.result()
        except BrokenProcessPool as error:  # Each task would fail for the same reason.
            raise NotLoadedError("cannot be loaded: processes end before they have") from error
        yield pool
        pool.shutdown()
    finally:
        workers = list((pool._processes or {}).values())  # noqa: SLF001 — `kill_workers` is there from Python 3.14 on
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.kill()


def _load(_: object) -> None:
    """Do nothing: a worker that can do that has loaded the task."""


def _begin_worker() -> None:
    """Leave Ctrl-C to the parent, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)
