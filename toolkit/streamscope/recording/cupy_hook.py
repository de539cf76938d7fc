"""Memory of CuPy's pools while something records: what each thread that records takes and gives back, by a memory hook of CuPy's."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from types import CodeType, FrameType
from typing import Any

import numpy as np

from streamscope.errors import printable
from streamscope.program.user_line import cell_name
from streamscope.recording.launch_lines import is_users
from streamscope.recording.ring import Window
from streamscope.recording.torch_history import Held
from streamscope.trace.launch_sites import Site
from streamscope.trace.memory import Level
from streamscope.trace.memory_events import MemoryEvents
from streamscope.words import binary_size

_NAME = "streamscope"
_FEW = 1 << 16
"""Entries of which none is dropped, however old: they take 10 MB."""
_Taken = tuple[int, int, int, int, Level, CodeType | None, int]
"""Time on the system's clock, GPU, address, bytes (negative where they are given back), level, and the code and line of the user's."""


class CupyHistory:
    """Notes from now on what the pools of CuPy lend to this thread; CuPy has hooks for one thread only."""

    def __init__(self, gpus: Sequence[int], window: Window) -> None:
        self._cupy = sys.modules["cupy"]
        self._log: list[_Taken] = []
        self._gpus = gpus
        self._before = self._totals()
        self._hook = _hook_class(self._cupy.cuda.MemoryHook)(self._log, window)
        self._hook.__enter__()

    def stop(self) -> None:
        """Note no more."""
        self._hook.off = True
        with suppress(KeyError):  # Another thread ends the recording than began it.
            self._hook.__exit__()

    def end(self, said: list[str], _since_ns: int) -> list[Held]:
        """Stop, and return what was taken and given back, of each GPU and level."""
        self.stop()
        after = self._totals()
        found = []
        for (gpu, level), before_bytes in self._before.items():
            rows = [row for row in self._log if (row[1], row[4]) == (gpu, level)]
            found.append(Held(gpu, _events(gpu, level, rows), before_bytes, after[gpu, level] if level is Level.RESERVED else None))
            unseen = after[gpu, level] - before_bytes - sum(row[3] for row in rows)
            if unseen and level is Level.ALLOCATED:
                verb = "took" if unseen > 0 else "gave back"
                said.append(f"CuPy's memory on GPU {gpu}: other threads {verb} {binary_size(abs(unseen))}, which is not known in time")
        return found

    def _totals(self) -> dict[tuple[int, Level], int]:
        """Return the bytes that pools of CuPy have lent, and taken from the driver, by GPU and level."""
        cuda, found = self._cupy.cuda, {}
        pools = {id(pool): pool for pool in (self._cupy.get_default_memory_pool(), getattr(cuda.get_allocator(), "__self__", None))}
        known = [pool for pool in pools.values() if isinstance(pool, cuda.MemoryPool)]
        for gpu in self._gpus:
            with cuda.Device(gpu):
                found[gpu, Level.ALLOCATED] = sum(int(pool.used_bytes()) for pool in known)
                found[gpu, Level.RESERVED] = sum(int(pool.total_bytes()) for pool in known)
        return found


def _events(gpu: int, level: Level, rows: Sequence[_Taken]) -> MemoryEvents:
    sites: dict[Site, int] = {}
    table = [(at_ns, nbytes, address, _site(code, line, sites)) for at_ns, _, address, nbytes, _, code, line in rows]
    time_ns, nbytes, address, site = np.array(table, np.int64).reshape(-1, 4).T
    return MemoryEvents(time_ns, nbytes, address, np.full(len(rows), gpu), site=site, sites=tuple(sites), kind="CuPy", level=level)


def _site(code: CodeType | None, line: int, known: dict[Site, int]) -> int:
    if code is None:
        return -1
    file = cell_name(code.co_filename) or code.co_filename
    return known.setdefault(Site(printable(code.co_qualname), printable(file), line), len(known))


def _place() -> tuple[CodeType | None, int]:
    """Return code and line of the innermost function of the user's that runs."""
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 — this is called for each array
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    return (None, 0) if frame is None else (frame.f_code, frame.f_lineno or 0)


def without_passed(log: Sequence[_Taken], since_ns: int) -> list[_Taken]:
    """Return entries without the memory that was lent and given back before a time.

    Examples
    --------
    >>> from streamscope.recording.cupy_hook import without_passed
    >>> lent, given = (5, 0, 4096, 512, 0, None, 0), (9, 0, 4096, -512, 0, None, 0)
    >>> without_passed([lent, given], 10), len(without_passed([lent, given], 7))
    ([], 2)
    """
    lent: dict[tuple[int, int], int] = {}
    passed = set[int]()
    for number, (at_ns, gpu, address, nbytes, level, *_) in enumerate(log):
        if level == Level.ALLOCATED and nbytes > 0:
            lent[gpu, address] = number
        elif level == Level.ALLOCATED and (taken := lent.pop((gpu, address), None)) is not None and at_ns < since_ns:
            passed |= {taken, number}
    return [each for number, each in enumerate(log) if number not in passed]


def _hook_class(base: type[Any]) -> type[Any]:
    """Return the class of a hook; CuPy, which has its base, is loaded only where the user did it."""

    class Hook(base):  # type: ignore[misc]
        """Notes what pools lend and take.

        A pool may take its memory from another one, as those of Streamscope's streams do. What it lends is part of what that one lent.
        """

        name = _NAME

        def __init__(self, log: list[_Taken], window: Window) -> None:
            self.off = False
            self._log, self._window, self._most = log, window, _FEW
            self._taking: list[list[tuple[int, int]]] = []
            """Pieces that pools lent while a pool took memory, for each pool that takes some just now."""
            self._inner: dict[int, int] = {}
            """Pieces that pools lent to other pools: end by address."""
            self._aside: set[int] = set()
            """Numbers of pieces in those."""

        def alloc_preprocess(self, **_: Any) -> None:
            self._taking.append([])

        def alloc_postprocess(self, *, device_id: int, mem_size: int, mem_ptr: int, **_: Any) -> None:
            lent = self._taking.pop() if self._taking else []
            self._inner.update(lent)
            if mem_ptr and not lent and not self.off:
                self._log.append((time.time_ns(), device_id, mem_ptr, mem_size, Level.RESERVED, *_place()))

        def malloc_postprocess(self, *, device_id: int, mem_size: int, mem_ptr: int, pmem_id: int, **_: Any) -> None:
            if not mem_ptr or not mem_size or self.off:
                return
            if self._inner and any(start <= mem_ptr < end for start, end in self._inner.items()):
                self._aside.add(pmem_id)
                return
            if self._taking:
                self._taking[-1].append((mem_ptr, mem_ptr + mem_size))
            self._log.append((time.time_ns(), device_id, mem_ptr, mem_size, Level.ALLOCATED, *_place()))

        def free_postprocess(self, *, device_id: int, mem_size: int, mem_ptr: int, pmem_id: int, **_: Any) -> None:
            if pmem_id in self._aside:
                self._aside.discard(pmem_id)
            elif not self.off:
                self._inner.pop(mem_ptr, None)
                self._log.append((time.time_ns(), device_id, mem_ptr, -mem_size, Level.ALLOCATED, None, 0))
                if len(self._log) > self._most:
                    self._log[:] = without_passed(self._log, self._window.since_ns())
                    self._most = max(_FEW, 2 * len(self._log))

    return Hook
