"""Forked children: they have their parent's memory and none of its threads, so they would wait for those in vain.

Engines and prepared programs therefore say so at once in a child, and nothing of them is destroyed there: CUDA, too, works for the parent
only.
"""

from __future__ import annotations

import os
from threading import RLock
from typing import Protocol, cast

from streamscope.errors import EngineError
from streamscope.interrupts import Alive


class Owner(Protocol):
    """Something that a forked child cannot use."""

    def _leave_behind(self) -> None:
        """Refuse whatever is asked of it from now on: this is a forked child."""


def left_behind(what: str) -> EngineError:
    """Return the error that a forked child gets."""
    return EngineError(
        f"{what} was made before this process was forked, and works in the parent only",
        hint="make it in the child, and start processes by multiprocessing.get_context('spawn')",
    )


class _ForeignLock:
    """A lock that nobody gets."""

    def __init__(self, what: str) -> None:
        self._what = what

    def acquire(self) -> bool:
        """Raise EngineError."""
        raise left_behind(self._what)

    def release(self) -> None:
        """Do nothing: whoever held the lock when the process was forked may let go of it."""

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def foreign_lock(what: str) -> RLock:
    """Return the stand-in, in a forked child, for a lock that a thread of the parent may hold for ever: taking it raises EngineError."""
    return cast("RLock", _ForeignLock(what))


_owners = Alive[int, Owner]()
"""By address."""
_kept: list[Owner] = []
"""In a child: objects of the parent, so that nobody destroys them here."""


def tell_children(owner: Owner) -> None:
    """Let ``owner._leave_behind()`` be called in each child that is forked from now on."""
    _owners[id(owner)] = owner


def _after_fork() -> None:
    _kept.extend(_owners.values())
    _owners.clear()
    for owner in _kept:
        owner._leave_behind()  # noqa: SLF001 — hidden from users only


os.register_at_fork(after_in_child=_after_fork)
