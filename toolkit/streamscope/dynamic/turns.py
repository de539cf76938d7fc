"""One lock for each device: all that issue work on it take turns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, RLock
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from streamscope.interrupts import allowed, deferred

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


@contextmanager
def given_away(lock: RLock) -> Iterator[None]:
    """Let others have a lock that the calling thread holds once, while a function of the user's runs; Ctrl-C comes only in the function."""
    with deferred():
        lock.release()
        try:
            with allowed():
                yield
        finally:
            lock.acquire()
