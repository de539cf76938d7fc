"""One lock for each device: all that issue work on it take turns."""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from streamscope.forks import foreign_lock
from streamscope.interrupts import Result, deferred, let_through

if TYPE_CHECKING:
    from streamscope.devices.protocol import Device

_locks: WeakKeyDictionary[Device, RLock] = WeakKeyDictionary()
_making = Lock()


def lock_of(device: Device) -> RLock:
    """Return the lock of a device; engines on one device share it."""
    with _making:
        return _locks.setdefault(device, RLock())


def _after_fork() -> None:
    global _making  # noqa: PLW0603 — a thread of the parent may hold it for ever
    _making = Lock()
    for device in list(_locks):
        _locks[device] = foreign_lock(f"an engine on this {device.info.name}")


os.register_at_fork(after_in_child=_after_fork)


def one_thread_at_a_time(device: Device) -> bool:
    """Tell whether every call of the device needs the lock: a simulated device has one clock, and no CUDA driver to order its callers."""
    return device.info.kind == "simulated"


def given_away(lock: RLock, function: Callable[..., Result], /, *arguments: Any, **options: Any) -> Result:
    """Call a function of the user's while others may have a lock that the calling thread holds once; Ctrl-C comes only in the function."""
    with deferred():
        lock.release()
        try:
            return let_through(function, *arguments, **options)
        finally:
            lock.acquire()
