"""Ctrl-C that waits until it does no harm."""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial

import pytest
from tests.interrupting import Calls, Countdown, HandlerError, profiled, raising, traced

from streamscope.interrupts import deferred, is_interruption, let_through

# ruff: noqa: PT012 — it is the order of statements in the block that is tested.


def interrupt():
    signal.raise_signal(signal.SIGINT)


@pytest.fixture(autouse=True)
def _handler_is_as_before():
    before = signal.getsignal(signal.SIGINT)
    yield
    assert signal.getsignal(signal.SIGINT) is before


def test_it_comes_at_the_end_of_the_outermost_block():
    done = []
    with pytest.raises(KeyboardInterrupt):
        with deferred():
            with deferred():
                interrupt()
                done.append("inner")
            done.append("outer")
        done.append("never")
    assert done == ["inner", "outer"]


def test_without_one_nothing_comes():
    with deferred():
        pass
    with pytest.raises(KeyboardInterrupt):
        interrupt()


def test_a_long_block_can_ask_whether_one_is_due():
    seen = []
    with pytest.raises(KeyboardInterrupt), deferred() as outer:
        seen.append(outer.due)
        interrupt()
        seen.append(outer.due)
        with deferred() as inner:
            seen.append(inner.due)  # It would not be raised here.
    assert seen == [False, True, False]


class Opcodes:
    """Interrupts before the n-th instruction of `streamscope.interrupts`; counts on. That is more often than Python does."""

    def __init__(self, at=None, number=signal.SIGINT):
        self.countdown = Countdown(at, number)

    def __call__(self, frame, event, argument):
        if frame.f_globals.get("__name__") != "streamscope.interrupts":
            return None
        if event == "call":
            frame.f_trace_opcodes = True
            sys.settrace(self)  # Python 3.12 looks at the flag only then.
        if event == "opcode":
            self.countdown.tick()
        return self


@pytest.mark.parametrize("kind", [Calls, Opcodes])
def test_wherever_it_comes_in_a_block_the_handler_is_put_back(kind):
    """The fixture above sees that it is; here, that Ctrl-C is raised, once, and blocks defer as before."""

    def block(watch, done):
        with profiled(watch) if kind is Calls else traced(watch), deferred(), deferred():
            done.append("block")

    block(undisturbed := kind(), [])
    handler = signal.getsignal(signal.SIGINT)
    assert undisturbed.countdown.count > 10
    for at in range(1, undisturbed.countdown.count + 1):
        with pytest.raises(KeyboardInterrupt):
            block(kind(at), [])
        assert signal.getsignal(signal.SIGINT) is handler, at
        done = []
        with pytest.raises(KeyboardInterrupt), deferred():
            interrupt()
            done.append("deferred")
        assert done == ["deferred"]


@pytest.mark.parametrize("kind", [Calls, Opcodes])
def test_wherever_another_signals_handler_raises_the_handlers_are_put_back(kind):
    """It raises once, and never inside the block: what that does is done whole, or not begun."""

    def block(watch, done):
        with profiled(watch) if kind is Calls else traced(watch), deferred(), deferred():
            done.append("begun")
            let_through(int)
            done.append("ended")

    with raising(signal.SIGUSR1) as handler:
        block(undisturbed := kind(), [])
        for at in range(1, undisturbed.countdown.count + 1):
            with pytest.raises(HandlerError):
                block(kind(at, signal.SIGUSR1), done := [])
            assert done in ([], ["begun", "ended"], ["begun"]), at
            assert signal.getsignal(signal.SIGUSR1) is handler, at
            with pytest.raises(KeyboardInterrupt), deferred():
                interrupt()
            with deferred():
                pass  # It has been raised, and is not once more.


@pytest.mark.parametrize("number", [signal.SIGALRM, signal.SIGUSR2, signal.SIGTERM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGHUP])
def test_whatever_signal_it_is_its_handler_is_called_at_the_end_of_the_block(number):
    done = []
    with raising(number):
        with pytest.raises(HandlerError):
            with deferred():
                with deferred() as inner:
                    signal.raise_signal(number)
                    done.append(inner.due)
                done.append("outer")
            done.append("never")
        with pytest.raises(HandlerError), deferred():
            let_through(lambda: (signal.raise_signal(number), done.append("never")))
    assert done == [False, "outer"]


def test_of_several_that_arrive_each_is_delivered():
    with raising(signal.SIGUSR1), raising(signal.SIGUSR2), pytest.raises(KeyboardInterrupt) as caught, deferred():
        for number in (signal.SIGUSR2, signal.SIGUSR1, signal.SIGINT):
            signal.raise_signal(number)
    assert isinstance(caught.value.__context__, HandlerError)
    assert isinstance(caught.value.__context__.__context__, HandlerError)


def test_a_handler_that_the_block_sets_is_kept_and_one_that_was_ours_calls_nobody():
    with raising(signal.SIGUSR1), deferred():
        ours = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, ours)
    try:
        signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)


def raise_timeout():
    raise TimeoutError


class Limit:
    def __call__(self, number, frame):
        raise TimeoutError

    def method(self, number, frame):
        raise TimeoutError


def limit(what, number, frame):
    raise TimeoutError(what)


@pytest.mark.parametrize("handler", [Limit(), Limit().method, partial(limit, "five seconds"), lambda *_: limit("", *_)])
@pytest.mark.parametrize("inside", [False, True])
def test_an_error_of_a_handler_is_known_from_one_of_the_code_that_it_came_in(handler, inside):
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with deferred() if inside else nullcontext():
            with pytest.raises(TimeoutError) as caught:
                let_through(signal.raise_signal, signal.SIGUSR1)
            assert is_interruption(caught.value)
            with pytest.raises(TimeoutError) as caught:
                raise_timeout()
            assert not is_interruption(caught.value)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert is_interruption(KeyboardInterrupt())
    assert is_interruption(SystemExit())
    assert not is_interruption(ValueError())


def test_an_error_in_the_block_is_not_lost():
    with pytest.raises(KeyboardInterrupt) as caught, deferred():
        interrupt()
        raise ValueError("of the block")
    assert isinstance(caught.value.__context__, ValueError)
    with pytest.raises(ValueError, match="of the block"), deferred():
        raise ValueError("of the block")
    # It is spent: the next block is not interrupted.
    with deferred():
        pass


def test_it_is_let_through_for_a_function_of_the_users():
    done = []
    with pytest.raises(KeyboardInterrupt), deferred():
        try:
            let_through(lambda: (interrupt(), done.append("never")))
        finally:
            interrupt()
            done.append("cleaned up")
    assert done == ["cleaned up"]


def test_one_that_comes_as_the_function_returns_leaves_nothing_behind():
    """Wherever in our lines it comes: raised at once or at the end of the block, and blocks defer as before."""
    lines = range(count_lines_after_a_function())
    assert lines
    for line in lines:
        done = []
        with pytest.raises(KeyboardInterrupt), deferred():
            with deferred():
                run_with_interrupt_at(line)
                done.append("returned")
            done.append("cleaned up")
        assert done in ([], ["returned", "cleaned up"])
        with pytest.raises(KeyboardInterrupt), deferred():
            interrupt()
            done.append("deferred")
        assert done[-1] == "deferred"


def test_blocks_inside_the_function_defer_again():
    done = []

    def function():
        with deferred() as inner:
            interrupt()
            done.append(inner.due)
        done.append("never")

    with deferred():
        with pytest.raises(KeyboardInterrupt):
            let_through(function)
        interrupt()
        done.append("after")
        with pytest.raises(KeyboardInterrupt):  # at once, since it came before
            let_through(done.append, "never")
        done.append("end")
    assert done == [True, "after", "end"]


def test_a_generator_defers_for_the_block_of_who_uses_it():
    @contextmanager
    def deferring():
        with deferred():
            yield

    done = []
    with pytest.raises(KeyboardInterrupt), ExitStack() as stack, deferring():
        stack.enter_context(deferring())
        interrupt()
        done.append("block")
    assert done == ["block"]
    with pytest.raises(KeyboardInterrupt), ExitStack() as stack:
        stack.enter_context(deferring())
        interrupt()
        done.append("stack")
    assert done == ["block", "stack"]


def test_deep_in_a_recursion():
    def at_the_limit(left):
        return at_the_limit(left - 1) if left else let_through(int)

    for left in range(sys.getrecursionlimit()):
        try:
            with deferred():
                at_the_limit(left)
        except RecursionError:
            break
    else:
        pytest.fail("the limit was not reached")
    with pytest.raises(KeyboardInterrupt), deferred():
        interrupt()


class AlarmError(Exception):
    pass


def test_exceptions_of_other_signals_pass_and_ctrl_c_goes_on_working():
    """A timer whose handler raises, a thousand times, anywhere in blocks that defer."""

    def alarm(number, frame):
        raise AlarmError

    before = signal.signal(signal.SIGALRM, alarm)
    try:
        for number in range(1000):
            with suppress(AlarmError):
                signal.setitimer(signal.ITIMER_REAL, 1e-6 * (1 + number % 50))
                defer_for_ever()
            signal.setitimer(signal.ITIMER_REAL, 0)
            with pytest.raises(KeyboardInterrupt):
                interrupt()
            with pytest.raises(KeyboardInterrupt), deferred():
                interrupt()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def defer_for_ever():
    while True:
        with deferred():
            let_through(int)


def run_with_interrupt_at(line):
    """Let a function through, and interrupt at so many lines of ours after it has returned; return how many there are."""
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        if not frame.f_globals.get("__name__", "").startswith("streamscope"):
            return None
        if event == "line":
            count += 1
            if count == line + 1:
                interrupt()
        return trace

    before = sys.gettrace()

    def function():
        # The frames that called this one are traced from here on, too.
        frame = sys._getframe(1)
        while frame is not None and frame.f_globals.get("__name__", "").startswith("streamscope"):
            frame.f_trace = trace
            frame = frame.f_back
        sys.settrace(trace)

    try:
        let_through(function)
    finally:
        sys.settrace(before)
    return count


def count_lines_after_a_function():
    with deferred():
        return run_with_interrupt_at(-5)


def test_one_that_came_before_is_let_through_at_once():
    done = []
    with pytest.raises(KeyboardInterrupt), deferred(), deferred():
        interrupt()
        let_through(done.append, "never")
    assert done == []


def test_a_handler_of_the_users_is_called_and_one_that_the_block_sets_is_kept(monkeypatch):
    calls = []
    before = signal.signal(signal.SIGINT, lambda number, frame: calls.append(number))
    try:
        with deferred():
            interrupt()
            assert calls == []
        assert calls == [signal.SIGINT]
        with deferred():
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        with deferred():
            interrupt()  # ignored, as it was
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_do_not_defer():
    def worker():
        with deferred() as one:
            let_through(started.set)
            assert release.wait(10)
            dues.append(one.due)

    started, release, dues = threading.Event(), threading.Event(), []
    thread = threading.Thread(target=worker)
    thread.start()
    assert started.wait(10)
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupt()
    finally:
        release.set()
        thread.join()
    assert dues == [False]
