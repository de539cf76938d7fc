"""Ranks of one job that agree before each step, through the store of their process group and never by a collective.

A collective waits for all ranks. So a rank that refuses, raises or dies leaves the others waiting on the GPU, where nobody can tell them
why. A store can: each rank says there that it has come, and what it found, and looks for the others. A thread says that the process lives,
and looks for failures while the main thread is inside a function and perhaps in a collective.
"""

from __future__ import annotations

import hashlib
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from streamscope.errors import PeerError, ProgramError, described

T = TypeVar("T")

TIMEOUT_S = 20.0
"""How long ranks wait for each other, if nobody says otherwise."""
THREAD = "streamscope job"
"""Name of the thread that watches the other ranks; it launches nothing."""
_FIRST_PAUSE_S, _LAST_PAUSE_S = 2e-5, 5e-3
"""Between two looks for the others: a twentieth of the wait so far, so that ranks go on at about the same time."""
_LOOK_EVERY_S, _BEAT_EVERY_S = 0.1, 1.0
"""How often the thread looks for failures, and says that this process lives."""
_NEWS_S = 1.0
"""How long a rank waits for the reason of an error that may be another rank's."""
_LEAVE_S = 2.0
"""How long rank 0, whose process most often holds the store, waits at the end until the others have read what it said."""
_KEPT = ("0", "1", "failed", "left", "lives")
"""Names of a rank's values in the store. Values of steps take the first two in turn: who comes to a step has read the one before."""
_ANEW = "the process group is aborted: make it anew, with destroy_process_group and init_process_group, or restart the job"


class Store(Protocol):
    """The part of a ``torch.distributed.Store`` that ranks agree by; a call returns at once."""

    def set(self, key: str, value: str, /) -> Any:
        """Set a value."""

    def get(self, key: str, /) -> bytes | str:
        """Return a value that is there."""

    def check(self, keys: list[str], /) -> bool:
        """Tell whether all keys are there."""

    def delete_key(self, key: str, /) -> Any:
        """Delete a value."""


@dataclass(frozen=True)
class _Lost:
    """A rank that does not go on, and why: the rest of a sentence about it."""

    rank: int
    why: str
    at_once: bool = False
    """Whether there is nothing left to wait for."""


class Job:
    """One of a job's ranks, the calling process, while all of them do something together; a context manager.

    Whatever ends the block in one rank by an error ends it in all of them, with its reason. Ranks that wait inside a function, where they
    cannot be told, are given so long to come out of it; then ``abort`` ends their collectives.

    ``store``: where the ranks meet; nobody else's blocking calls may hold it.
    ``rank`` and ``size``: which of how many.
    ``number``: of this block among all, the same on all ranks.
    ``timeout_s``: how long ranks wait for each other.
    ``abort``: ends the collectives that wait, and with them the process group.
    """

    def __init__(self, store: Store, rank: int, size: int, number: int, timeout_s: float, abort: Callable[[], object]) -> None:
        self.rank, self.size, self.timeout_s = rank, size, timeout_s
        self._store, self._number, self._abort = store, number, abort
        self._others = [one for one in range(size) if one != rank]
        self._count, self._step = 0, "the beginning"
        self._lost: _Lost | None = None
        self._aborted = self._waits = False
        self._ended, self._ending = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._watch, name=THREAD, daemon=True)
        self._caller = threading.current_thread()
        self._token: Any = None

    def __enter__(self) -> Self:
        self._token = _CURRENT.set(self)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        ended = error
        try:
            if error is None:
                self.gathered("the end", None)
        except BaseException as failed:  # noqa: BLE001 — raised below
            ended = failed
        try:
            self._end_watching()
        except KeyboardInterrupt as interrupt:
            ended = ended or interrupt
        _CURRENT.reset(self._token)
        if ended is not None and not isinstance(ended, PeerError) and (lost := self._cause(ended)) is not None:
            # Aborted collectives and interrupted waits raise errors of their own, which do not say why.
            reason = self._error(lost)
            reason.__cause__, ended = ended, reason
        with suppress(Exception):  # The store may be what is lost.
            self._leave(ended)
        if ended is not None and ended is not error:
            raise ended

    def _end_watching(self) -> None:
        """End the thread that watches; afterwards it interrupts nobody, and reads nothing that other ranks may delete."""
        try:
            with self._ending:
                self._ended.set()
        finally:
            self._ended.set()  # Its interrupt may come while this one waits for the lock.
        self._thread.join(_LEAVE_S)

    def gathered(self, step: str, value: T) -> list[T]:
        """Return each rank's value, by rank, as soon as all have come to this step.

        ``step``: what comes next, in words; the same on all ranks.
        ``value``: anything that JSON holds.

        Raises
        ------
        PeerError
            A rank refused or failed, does not come in time, or came to another step.
        """
        self._count, self._step, self._waits = self._count + 1, step, True
        try:
            found = self._said(step, value)
        except PeerError:
            raise
        except Exception as error:
            raise self._error(self._lost or _unreachable(error)) from error
        finally:
            self._waits = False
        if self._count == 1:
            self._forget_block_before()
        if other := next((one for one in sorted(found) if found[one][0] != step), None):
            raise self._error(_Lost(other, f"came to {found[other][0]!r}, and rank {self.rank} to {step!r}", at_once=True))
        return [found[one][1] for one in range(self.size)]

    def _forget_block_before(self) -> None:
        """Delete this rank's words of the block before, which all ranks have left."""
        with suppress(Exception):  # Not each store can do that.
            for name in _KEPT:
                self._store.delete_key(self._key(name, self.rank, self._number - 1))

    def _said(self, step: str, value: Any) -> dict[int, Any]:
        """Return step and value of each rank, as soon as all have said them."""
        place = str(self._count % 2)
        self._set(place, [self._count, step, value])
        found = {self.rank: [step, value]}
        start = time.monotonic()
        while missing := [one for one in self._others if one not in found]:
            waited_s = time.monotonic() - start  # Before the look: a store may take seconds to answer.
            for one in missing:
                if (said := self._get(place, one)) is not None and said[0] == self._count:
                    found[one] = said[1:]
            if len(found) == self.size:
                break
            if (lost := self._lost or self._failed()) is not None:
                raise self._error(lost)
            if waited_s > self.timeout_s:
                late = next(one for one in self._others if one not in found)
                raise self._error(_Lost(late, f"did not come to {step!r} within {self.timeout_s:g} s", at_once=True))
            time.sleep(min(max(waited_s / 20, _FIRST_PAUSE_S), _LAST_PAUSE_S))
        return found

    def _cause(self, error: BaseException) -> _Lost | None:
        """Return the rank because of which an error was raised here; None where it is this rank's own."""
        # A collective fails where its peer has failed, too, and may do so before the peer has told why.
        if not (self._aborted or _of_a_collective(error)):
            return None
        limit = time.monotonic() + _NEWS_S
        with suppress(Exception):
            while self._lost is None and time.monotonic() < limit:
                self._lost = self._failed()
                time.sleep(_LAST_PAUSE_S)
        return self._lost

    def _leave(self, error: BaseException | None) -> None:
        """Let the other ranks know why this one does not go on, and leave when they know."""
        if error is not None:
            lost = self._lost or _Lost(self.rank, _why(error))
            self._set("failed", [lost.rank, lost.why, lost.at_once])
        self._set("left", True)
        limit = time.monotonic() + _LEAVE_S
        while self.rank == 0 and time.monotonic() < limit and not self._store.check([self._key("left", one) for one in self._others]):
            time.sleep(_FIRST_PAUSE_S)

    def _failed(self) -> _Lost | None:
        """Return the first rank that says that it, or another one, does not go on."""
        said = (self._get("failed", one) for one in self._others)
        return next((_Lost(*one) for one in said if one is not None), None)

    def _error(self, lost: _Lost) -> PeerError:
        self._lost = lost
        hint = _ANEW if self._aborted else "call it on all ranks, in the same order and with functions that call the same collectives"
        return PeerError(f"rank {lost.rank} {lost.why}, so rank {self.rank} stopped at {self._step!r}", hint=hint)

    def _watch(self) -> None:
        """Say that this process lives, look for ranks that do not go on, and abort what waits for them."""
        since, beaten = 0.0, 0.0
        seen = dict.fromkeys(self._others, (None, time.monotonic()))
        while not self._ended.wait(_LOOK_EVERY_S):
            now = time.monotonic()
            try:
                if now - beaten >= _BEAT_EVERY_S:
                    beaten = now
                    self._set("lives", now)
                    seen = {one: self._sign_of_life(one, before) for one, before in seen.items()}
                lost = self._lost or self._failed() or self._silent(seen, now)
            except Exception as error:  # noqa: BLE001 — whatever a store raises, it cannot be reached
                lost = self._lost or _unreachable(error)
            if lost is None:
                continue
            self._lost = lost
            since = since or now
            # Who waits at a step is told there. Others get time to come to their next step by themselves.
            if not self._waits and (lost.at_once or now - since >= self.timeout_s):
                self._end()
                return

    def _sign_of_life(self, rank: int, before: tuple[Any, float]) -> tuple[Any, float]:
        said = self._get("lives", rank)
        return before if said == before[0] else (said, time.monotonic())

    def _silent(self, seen: Mapping[int, tuple[Any, float]], now: float) -> _Lost | None:
        """Return a rank whose process has ended, or hangs with all its threads."""
        limit_s = self.timeout_s + 3 * _BEAT_EVERY_S  # Longer than others wait for it: they say why, where it only is late.
        late = next((one for one, (_, at) in seen.items() if now - at > limit_s), None)
        return None if late is None else _Lost(late, f"has not been heard of for {limit_s:g} s: its process has ended", at_once=True)

    def _end(self) -> None:
        """End the collectives in which this rank waits, and interrupt it where it waits for something else."""
        self._aborted = True
        aborting = threading.Thread(target=self._abort_quietly, name=THREAD, daemon=True)
        aborting.start()
        aborting.join(_LEAVE_S)
        self._ended.wait(_LEAVE_S)
        with self._ending:  # Not behind the block, where nobody would know what for.
            if not self._ended.is_set() and self._caller is threading.main_thread() and self._caller.ident is not None:
                signal.pthread_kill(self._caller.ident, signal.SIGINT)

    def _abort_quietly(self) -> None:
        with suppress(Exception):
            self._abort()

    def _key(self, name: str, rank: int, number: int | None = None) -> str:
        return f"streamscope/{self._number if number is None else number}/{name}/{rank}"

    def _set(self, name: str, value: Any) -> None:
        self._store.set(self._key(name, self.rank), json.dumps(value))

    def _get(self, name: str, rank: int) -> Any:
        """Return the value of a rank, or None where it is not there yet."""
        key = self._key(name, rank)
        return json.loads(self._store.get(key)) if self._store.check([key]) else None


def _unreachable(error: Exception) -> _Lost:
    return _Lost(0, f"cannot be reached, which holds the store: {described(error)}", at_once=True)


def _of_a_collective(error: BaseException | None) -> bool:
    while error is not None:
        if any(word in str(error).lower() for word in ("nccl", "gloo", "c10d")):
            return True
        error = error.__cause__
    return False


def _why(error: BaseException) -> str:
    """Return why a rank does not go on: the rest of a sentence about it."""
    if isinstance(error, KeyboardInterrupt):
        return "was interrupted"
    return f"failed: {described(error)}"


_CURRENT: ContextVar[Job | None] = ContextVar("job", default=None)


def gathered(step: str, value: T) -> list[T]:
    """Return the value of each rank of the current job, by rank, as `Job.gathered` does; just this one where there is no job.

    Examples
    --------
    >>> from streamscope.job import gathered
    >>> max(gathered("timing", 3.5))
    3.5
    """
    job = _CURRENT.get()
    return [value] if job is None else job.gathered(step, value)


def the_same(step: str, values: Sequence[float]) -> list[float]:
    """Return the largest of all ranks' values, number by number, so that what follows from them is the same on each rank."""
    return [max(each) for each in zip(*gathered(step, list(values)), strict=True)]


def checked_timeout(timeout: Any) -> float | None:
    """Return a time-out in seconds as the verbs take it.

    Raises
    ------
    ProgramError
        It is neither None nor a positive number.
    """
    if timeout is None or (isinstance(timeout, int | float) and not isinstance(timeout, bool) and timeout > 0):
        return timeout
    raise ProgramError(f"timeout must be a number of seconds above 0, or None, not {timeout!r}", hint="timeout=20 waits so long for ranks")


def in_job() -> bool:
    """Tell whether this process does something together with other ranks now."""
    return _CURRENT.get() is not None


def since_last_start(step: str, times: Sequence[float]) -> list[float]:
    """Return how long each of several runs with collectives took from when the last rank began it; others waited for that rank."""
    return [min(each) for each in zip(*gathered(step, list(times)), strict=True)]


def differing_rank(step: str, value: object) -> int | None:
    """Return the first rank whose value has another text than rank 0's; None where all have the same. Long values cost no more."""
    ranks = gathered(step, hashlib.sha256(repr(value).encode()).hexdigest())
    return next((rank for rank, one in enumerate(ranks) if one != ranks[0]), None)


def go_alone() -> None:
    """Agree with nobody until the end of the current job's block: no rank has a collective in what follows."""
    _CURRENT.set(None)


def current_timeout_s() -> float | None:
    """Return how long ranks wait for each other in the current job; None where there is none."""
    job = _CURRENT.get()
    return None if job is None else job.timeout_s


@contextmanager
def joined(what: str, timeout_s: float | None = TIMEOUT_S) -> Iterator[None]:
    """Do a block together with all other ranks of this process's ``torch.distributed`` group, if it has one of several ranks.

    ``what``: the first step, in words.
    ``timeout_s``: how long ranks wait for each other; None to agree with nobody.

    Raises
    ------
    PeerError
        Another rank refused or failed, or did not come.
    """
    distributed = sys.modules.get("torch.distributed")
    several = distributed is not None and distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1
    if timeout_s is None or _CURRENT.get() is not None or distributed is None or not several:
        yield
        return
    rank, size = distributed.get_rank(), distributed.get_world_size()
    try:
        store = _own_store(distributed)
        # Counted in the store and not here: where ranks lost count of each other, a process group that is made anew begins anew.
        block = store.add(f"streamscope/blocks/{rank}", 1)
    except Exception as error:
        lost = _unreachable(error)
        raise PeerError(f"rank {lost.rank} {lost.why}, so rank {rank} stopped at {what!r}", hint=_ANEW) from error
    abort = distributed.distributed_c10d._abort_process_group  # noqa: SLF001 — no public way to end a collective that waits
    with Job(store, rank, size, block, timeout_s, abort) as job:
        job.gathered(what, None)
        yield


_connected: tuple[Any, Any] = (None, None)
"""The group's store, and our connection to it: one for all blocks."""


def _own_store(distributed: Any) -> Any:
    """Return the group's store, by a connection of our own: a call of PyTorch's that waits holds the other one."""
    global _connected  # noqa: PLW0603 — a process has one group
    store = distributed.distributed_c10d._get_default_store()  # noqa: SLF001 — no public way
    if _connected[0] is not store:
        _connected = (store, _connection(distributed, store))
    return _connected[1]


def _connection(distributed: Any, store: Any) -> Any:
    with suppress(Exception):  # Not each version of PyTorch, nor each store, can do that.
        return store.clone()
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    if isinstance(store, distributed.TCPStore):
        return distributed.TCPStore(store.host, store.port, is_master=False, wait_for_workers=False)
    return store
