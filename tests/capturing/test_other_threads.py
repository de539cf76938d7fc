"""Kernels that another thread may have launched while an operator ran."""

from __future__ import annotations

import ctypes
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from streamscope.capturing.operators import BESIDE, Operator, OtherThreads
from streamscope.capturing.stream_capture import CAPTURES_AT_MOST, undisturbed
from streamscope.program.user_line import UserLine


@pytest.fixture
def worker():
    """A thread that runs what it is told to, and waits otherwise; with the number that the system gives it."""
    told, done, work = threading.Event(), threading.Event(), [lambda: None]

    def run():
        while told.wait():
            told.clear()
            if work[0] is None:
                return
            work[0]()
            done.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def tell(what):
        work[0] = what
        done.clear()
        told.set()
        assert done.wait(30)

    yield SimpleNamespace(tell=tell, number=thread.native_id)
    work[0] = None
    told.set()
    thread.join(30)


def test_a_thread_that_runs_is_noticed_and_one_that_waits_is_not(worker):
    others = OtherThreads()
    worker.tell(lambda: sum(range(1000)))
    before = others.times_ns()
    while (waiting := others.times_ns()) != before:  # It may still be on its way to wait.
        before = waiting
    assert worker.number in before
    assert threading.get_native_id() not in before
    worker.tell(lambda: sum(range(1000)))
    assert others.times_ns()[worker.number] > before[worker.number]


def test_threads_that_are_heard_and_ours_are_left_out(worker):
    others = OtherThreads()
    worker.tell(others.times_ns)  # An operator of autograd's, in its own thread.
    assert worker.number not in others.times_ns()
    assert worker.number not in OtherThreads([worker.number]).times_ns()


def test_a_thread_that_begins_or_ends_has_run():
    others = OtherThreads()
    go_on = threading.Event()
    before = others.times_ns()
    thread = threading.Thread(target=go_on.wait)
    thread.start()
    during = others.times_ns()
    go_on.set()
    thread.join()
    while Path(f"/proc/self/task/{thread.native_id}").exists():  # it ends a moment after Python has joined it
        time.sleep(0)
    assert set(during) - set(before) == {thread.native_id}
    assert thread.native_id not in others.times_ns()


@pytest.mark.parametrize(
    ("name", "noticed"),
    [("worker", True), ("cuda-worker", True), ("cuda_stream_3", True), ("cuda-EvtHandlr", False), ("cuda00001400006", False)],
)
def test_threads_that_python_does_not_know_are_noticed_but_for_the_drivers(name, noticed):
    """A thread of the C library's sleeps for a while; the CUDA driver has some, too, and they launch nothing."""
    library, thread = ctypes.CDLL(None), ctypes.c_ulong()
    others = OtherThreads()
    before = others.times_ns()
    known = {one.native_id for one in threading.enumerate()}
    assert library.pthread_create(ctypes.byref(thread), None, library.usleep, ctypes.c_void_p(300_000)) == 0
    library.pthread_setname_np.argtypes = library.pthread_join.argtypes = ctypes.c_ulong, ctypes.c_void_p
    assert library.pthread_setname_np(thread, name.encode()) == 0
    during = others.times_ns()
    library.pthread_join(thread, None)
    new = set(during) - set(before)
    assert len(new) == noticed
    assert new.isdisjoint(known)


@dataclass(frozen=True)
class Captured:
    """A capture, as far as it is looked at."""

    operators: list


@pytest.mark.parametrize("nodes", [1, 2])
def test_an_operator_is_known_from_the_capture_in_which_no_thread_ran_beside_it(nodes):
    """In the first capture a thread comes during the second operator, in the next ones during the first, which launches as many nodes."""
    first, second = (Operator("aten.mm.default", "", UserLine("", ""), (7,), (), (), range(0), call=call) for call in range(2))
    disturbed = replace(first, nodes=tuple(range(nodes)), why_unknown=BESIDE)
    captures = [Captured([first, replace(second, why_unknown=BESIDE)]), *[Captured([disturbed, second])] * 2]
    remaining = iter(captures)
    taken = undisturbed(lambda: next(remaining), lambda: None)
    assert [one.why_unknown for one in taken.operators] == ["" if nodes == 1 else BESIDE, ""]
    assert len(list(remaining)) == (1 if nodes == 1 else 0)


@pytest.mark.parametrize("disturbed", range(CAPTURES_AT_MOST + 2))
def test_a_capture_beside_which_another_thread_ran_is_taken_again_a_few_times(disturbed):
    plain = Operator("aten.mm.default", "", UserLine("", ""), (1,), (), (), range(0))
    seen = []

    def through():
        seen.append("captured")
        return Captured([plain, replace(plain, call=1, why_unknown=BESIDE if len(seen) <= 2 * disturbed else "")])

    taken = undisturbed(through, lambda: seen.append("restored"))
    count = min(disturbed + 1, CAPTURES_AT_MOST)
    assert seen == (["captured", "restored"] * count)[:-1]
    assert any(one.why_unknown for one in taken.operators) == (disturbed >= CAPTURES_AT_MOST)
