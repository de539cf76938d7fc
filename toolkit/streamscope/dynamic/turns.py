"""One lock for each device: all that issue work on it take turns."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from streamscope.interrupts import Result, deferred, let_through

if TYPE_CHECKING:
    from streamscope.devices.protocol import Device

_locks: WeakKeyDictionary[Device, RLock] = WeakKeyDictionary()
_making = Lock()


def lock_of(device: Device) -> RLock:
    """Return the lock of a device; engines on one device share it."""
    with _making:
        return _locks.setdefault(device, RLock())


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
