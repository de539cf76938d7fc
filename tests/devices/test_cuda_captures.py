"""What may be destroyed only outside captures waits until no thread captures; this needs no GPU."""

from __future__ import annotations

import threading

from streamscope.devices.cuda.captures import Captures


def in_a_thread(work):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_where_nobody_captures_it_is_destroyed_at_once():
    captures, destroyed = Captures(), []
    captures.destroy(lambda: destroyed.append(1))
    assert destroyed == [1]


def test_a_thread_that_captures_waits_until_its_last_capture_is_over():
    captures, destroyed = Captures(), []
    captures.begun(7)
    captures.begun(8)
    captures.destroy(lambda: destroyed.append(1))
    captures.destroy(lambda: destroyed.append(2))
    captures.ended(7)
    captures.ended(7)
    assert (destroyed, captures.active) == ([], True)
    captures.ended(8)
    assert (destroyed, captures.active) == ([1, 2], False)


def test_captures_are_of_their_thread():
    captures, seen = Captures(), []
    captures.begun(7)
    in_a_thread(lambda: seen.append(captures.active))
    assert (seen, captures.active) == ([False], True)


def test_other_threads_wait_too():
    """A library that destroys a handle waits for the device, which would break this thread's capture."""
    captures, destroyed = Captures(), []
    captures.begun(7)
    captures.destroy(lambda: destroyed.append(1))
    in_a_thread(lambda: captures.destroy(lambda: destroyed.append(2)))
    assert destroyed == []
    captures.ended(7)
    assert destroyed == [1, 2]


def test_the_last_capture_of_any_thread_ends_the_waiting():
    captures, destroyed = Captures(), []
    captures.begun(7)
    in_a_thread(lambda: captures.begun(8))
    captures.destroy(lambda: destroyed.append(1))
    captures.ended(7)
    assert (destroyed, captures.active) == ([], False)
    in_a_thread(lambda: captures.ended(8))
    assert destroyed == [1]
