"""Ctrl-C at a time when it does no harm: what must not stop halfway is finished first."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType
from typing import Any

_Handler = Callable[[int, FrameType | None], Any]


class _Deferral:
    """The handler of Ctrl-C that was there before, and whether it was asked for meanwhile."""

    def __init__(self, handler: _Handler) -> None:
        self.handler = handler
        self.arrived: tuple[int, FrameType | None] | None = None

    def note(self, number: int, frame: FrameType | None) -> None:
        self.arrived = (number, frame)

    def deliver(self) -> None:
        arrived, self.arrived = self.arrived, None
        if arrived is not None:
            self.handler(*arrived)


_current: list[_Deferral] = []
"""The deferral that is in force, if any; only the main thread gets interrupts, and only it comes here."""


@contextmanager
def deferred() -> Iterator[None]:
    """Let Ctrl-C wait until the end of the block."""
    handler = signal.getsignal(signal.SIGINT)
    if current_thread() is not main_thread() or _current or not callable(handler):
        yield
        return
    deferral = _Deferral(handler)
    signal.signal(signal.SIGINT, deferral.note)
    _current.append(deferral)
    try:
        yield
    finally:
        _current.clear()
        signal.signal(signal.SIGINT, handler)
        deferral.deliver()


@contextmanager
def allowed() -> Iterator[None]:
    """Let Ctrl-C through again, inside a block that defers it: for a function of the user's."""
    if current_thread() is not main_thread() or not _current:
        yield
        return
    deferral = _current.pop()
    try:
        signal.signal(signal.SIGINT, deferral.handler)
        deferral.deliver()
        yield
    finally:
        signal.signal(signal.SIGINT, deferral.note)
        _current.append(deferral)
