"""Ctrl-C, or another signal, at chosen moments."""

from __future__ import annotations

import signal
import sys
from _thread import interrupt_main
from contextlib import contextmanager


class Countdown:
    """Interrupts at the n-th time that it is asked; counts on."""

    def __init__(self, at=None, number=signal.SIGINT):
        self.at = at
        self.number = number
        self.count = 0

    def tick(self):
        self.count += 1
        if self.count == self.at:
            signal.raise_signal(self.number)


class Lines:
    """Interrupts at the n-th line of this package that is run; counts on."""

    def __init__(self, at=None, number=signal.SIGINT):
        self.countdown = Countdown(at, number)

    def __call__(self, frame, event, argument):
        if not frame.f_globals.get("__name__", "").startswith(("streamscope.", "contextlib")):
            return None
        if event == "line":
            self.countdown.tick()
        return self


@contextmanager
def traced(lines):
    before = sys.gettrace()
    sys.settrace(lines)
    try:
        yield
    finally:
        sys.settrace(before)


class Calls:
    """Interrupts at the n-th moment at which Python would raise Ctrl-C in this package: as a function begins, or a C function returns.

    Counts on. Between lines, as `Lines` does, is more often than Python does: it never comes at the end of a ``with`` block, say.
    From Python 3.14 on, Python may raise between ``lock.__enter__`` and the block, and the lock stays locked (CPython's issue 148874). No
    code of ours can prevent that, so it does not come there.
    """

    def __init__(self, at=None, number=signal.SIGINT):
        self.countdown = Countdown(at, number)

    def __call__(self, frame, event, argument):
        if event == "c_return" and argument.__name__ == "__enter__":
            return
        if event in ("call", "c_return") and frame.f_globals.get("__name__", "").startswith(("streamscope.", "contextlib")):
            self.countdown.tick()


@contextmanager
def profiled(calls):
    before = sys.getprofile()
    sys.setprofile(calls)
    try:
        yield
    finally:
        sys.setprofile(before)


class Tripping:
    """Lets Ctrl-C wait to be noticed by the next Python code, as one that comes in the middle of C code does, when it is let go."""

    __del__ = interrupt_main


class HandlerError(Exception):
    """What the handler of `raising` raises."""


@contextmanager
def raising(number=signal.SIGUSR1):
    """Let a signal's handler raise, as one does that limits the time of something."""

    def handle(number, frame):
        raise HandlerError

    before = signal.signal(number, handle)
    try:
        yield handle
    finally:
        signal.signal(number, before)
