"""A bounded cache of what was used recently, with a look-up that costs no more than a dictionary's."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Two generations of entries: when the young one is full it becomes the old one, and what was in the old one is dropped.

    What is used while it is in the old one becomes young again. So the ``size`` entries that were used last are kept, and at most twice as
    many.

    Parameters
    ----------
    size : int
    dropped : callable, optional
        Called with key and value of each entry that had to make room.
    """

    def __init__(self, size: int, dropped: Callable[[K, V], None] | None = None) -> None:
        self._size = size
        self._dropped = dropped
        self._young: dict[K, V] = {}
        self._old: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        """Return what is kept for a key, or None."""
        found = self._young.get(key)
        if found is None:
            found = self._old.pop(key, None)
            if found is not None:
                self.put(key, found)
        return found

    def put(self, key: K, value: V) -> None:
        """Keep a value."""
        if len(self._young) >= self._size:
            gone, self._old, self._young = self._old, self._young, {}
            if self._dropped is not None:
                for old_key, old_value in gone.items():
                    self._dropped(old_key, old_value)
        self._young[key] = value

    def pop(self, key: K) -> None:
        """Forget a key, if it is there."""
        self._young.pop(key, None)
        self._old.pop(key, None)

    def clear(self) -> None:
        """Forget everything."""
        self._young, self._old = {}, {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)
