"""Memory of a recording: of PyTorch's and CuPy's allocators, and of the driver, on the clock of the trace."""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from streamscope.arrays import BoolArray, IntArray
from streamscope.recording.activity_records import ActivityRecords, Rows
from streamscope.recording.cupy_hook import CupyHistory
from streamscope.recording.pauses import Piece, without_pauses_ns
from streamscope.recording.ring import Window
from streamscope.recording.torch_history import Held, TorchHistory
from streamscope.trace.memory import BEFORE, Allocations, Level
from streamscope.trace.memory_events import MemoryEvents, allocations_of
from streamscope.words import listed

MEMORY = "MEMORY2"
"""CUPTI's name of memory that is taken of the driver, and given back."""
_ALLOCATION, _RELEASE = 1, 2  # CUpti_ActivityMemoryOperationType
_KINDS = {0: "", 1: "pageable", 2: "pinned", 3: "CUDA", 4: "CUDA array", 5: "managed", 6: "CUDA static", 7: "managed static"}
"""By ``CUpti_ActivityMemoryKind``."""
_ON_HOST = (1, 2)


class AllocatorHistories:
    """Histories of the allocators that are loaded, from now on. They go on in pauses, so that nothing seems to be held that is not.

    ``gpus``: numbers of the GPUs that the process uses. ``last_ns``: of so long a time before the end alone they have to be whole.

    Attributes
    ----------
    window : Window
        The time that they have to be whole in.
    """

    def __init__(self, gpus: Sequence[int], last_ns: int | None = None) -> None:
        self.said: list[str] = []
        self.window = Window(last_ns)
        self._open: dict[str, TorchHistory | CupyHistory] = {}
        self._absent = [module for module in ("torch", "cupy") if module not in sys.modules]
        if "torch" in sys.modules:
            with self._of_known_version("torch"):
                self._open["torch"] = TorchHistory()
        if "cupy" in sys.modules:
            with self._of_known_version("cupy"):
                self._open["cupy"] = CupyHistory(gpus, self.window)

    def stop(self) -> None:
        """Leave the allocators as they were."""
        opened, self._open = self._open, {}
        for module, history in opened.items():
            with self._of_known_version(module):
                history.stop()

    def end(self) -> list[Held]:
        """Stop, and return what was taken and given back; `said` tells what is not known."""
        opened, self._open = self._open, {}
        found: list[Held] = []
        for module, history in opened.items():
            with self._of_known_version(module):
                found += history.end(self.said, self.window.since_ns())
        if late := [module for module in self._absent if module in sys.modules]:
            self.said.append(f"memory of {listed(late)} is not known, since it was loaded while this recorded")
        return found

    @contextmanager
    def _of_known_version(self, module: str) -> Iterator[None]:
        """Go on without a library's memory where its version lacks what the block uses."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 — of whichever kind
            self.said.append(f"memory of {module} {sys.modules[module].__version__} is not known: {type(error).__name__}: {error}")


def recorded_memory(
    records: ActivityRecords, pieces: Sequence[Piece], histories: Sequence[Held]
) -> Callable[[int, list[str]], Allocations]:
    """Return a function that makes the allocations of a recording, as `foreign_trace` wants it.

    ``records``: on the clock without pauses. What was given back before the trace's zero is left out.
    """
    start_ns = pieces[0].start_ns
    driver = records.memory[np.argsort(records.memory["time_ns"], kind="stable")]
    asynchronous = driver["async"] != 0
    left, known = _without_pools(driver[~asynchronous], [_on_clock(one, pieces) for one in histories])
    events = [*(_with_total(one, start_ns) for one in known), *_of_driver(left), *_of_cuda_pools(driver[asynchronous])]

    def allocations(zero_ns: int, said: list[str]) -> Allocations:
        found = allocations_of(events, zero_ns, said)
        found = found.rows(found.end_ns > 0)
        return replace(found, start_ns=np.where(found.start_ns < 0, BEFORE, found.start_ns))

    return allocations


def _on_clock(held: Held, pieces: Sequence[Piece]) -> Held:
    """Return memory on the clock without pauses, in the order of time; what came and went in one pause is left out."""
    time_ns, paused = without_pauses_ns(held.events.time_ns, pieces)
    events = replace(held.events, time_ns=time_ns)
    if paused.any():
        stays = ~_passing(events, paused)
        events, paused = events.rows(stays), paused[stays]
    # In a pause, what is given back goes first: both are seen at one moment, and were not held at the same time because of that.
    return replace(held, events=events.rows(np.lexsort((paused & (events.bytes > 0), events.time_ns))))


def _passing(events: MemoryEvents, paused: BoolArray) -> BoolArray:
    """Tell which events take memory that is given back in the same pause, or give it back."""
    order = np.argsort(events.address, kind="stable")
    address, takes, time_ns, within = events.address[order], events.bytes[order] > 0, events.time_ns[order], paused[order]
    pair = (np.diff(address) == 0) & takes[:-1] & ~takes[1:] & within[:-1] & within[1:] & (np.diff(time_ns) == 0)
    found = np.zeros(len(order), bool)
    found[order[:-1][pair]] = found[order[1:][pair]] = True
    return found


def _with_total(held: Held, start_ns: int) -> MemoryEvents:
    """Return events with the allocator's totals. The first one changes nothing, and tells what was held before."""
    events = held.events
    columns: dict[str, Any] = {
        name: np.append(value, getattr(events, name)) for name, value in (("time_ns", start_ns), ("bytes", 0), ("address", 0))
    }
    columns |= {name: np.append(-1, getattr(events, name)) for name in ("reserved", "name", "site")}
    columns["time_ns"][0] = min(start_ns, int(events.time_ns.min(initial=start_ns)) - 1)
    first = replace(events, **columns, gpu=np.full(len(events) + 1, held.gpu), total=held.before_bytes + np.cumsum(columns["bytes"]))
    return first.rows(np.argsort(first.time_ns, kind="stable"))


def _without_pools(driver: Rows, histories: Sequence[Held]) -> tuple[Rows, list[Held]]:
    """Return the driver's rows of memory that no allocator took, and the histories, CuPy's with what it gave back to the driver.

    An allocator's history and the driver tell of the same segments. CuPy's hooks do not tell when a pool gives one back.
    """
    found = list(histories)
    for held in found:
        if held.events.level is Level.RESERVED:
            driver = driver[~_matched(driver, held)]
    for number, held in enumerate(found):
        if held.after_bytes is not None:
            given = _given_back(driver, held)
            found[number], driver = _with_given(held, driver[given]), driver[~given]
    return driver, found


def _matched(driver: Rows, held: Held) -> BoolArray:
    """Tell which of the driver's rows, in order of time, are an allocator's: for each of its events the nearest one of the same address."""
    times_ns = driver["time_ns"].tolist()
    rows: dict[tuple[int, bool], list[int]] = {}
    for row in np.flatnonzero(driver["gpu"] == held.gpu).tolist():
        rows.setdefault((int(driver["address"][row]), bool(driver["what"][row] == _ALLOCATION)), []).append(row)
    found = np.zeros(len(driver), bool)
    events = held.events
    for address, takes, at_ns in zip(events.address.tolist(), (events.bytes > 0).tolist(), events.time_ns.tolist(), strict=True):
        same = rows.get((address, takes), [])
        if same:
            after = bisect_left(same, at_ns, key=times_ns.__getitem__)
            near = range(max(0, after - 1), min(after + 1, len(same)))
            found[same.pop(min(near, key=lambda place: abs(times_ns[same[place]] - at_ns)))] = True
    return found


def _given_back(driver: Rows, held: Held) -> BoolArray:
    """Tell which of the driver's rows are memory that a pool gave back: at an address of the pool's, or what it held before.

    Memory that was held before has an address that nobody knows. It was the pool's if the pool lacks as much at the end.
    """
    assert held.after_bytes is not None
    own, others, unseen = set[int](), set[int](), list[int]()
    found = np.zeros(len(driver), bool)
    taken = [(at_ns, 0, address, -1) for at_ns, address in zip(held.events.time_ns.tolist(), held.events.address.tolist(), strict=True)]
    on_gpu = np.flatnonzero(driver["gpu"] == held.gpu)
    rows = [(int(driver["time_ns"][row]), int(driver["what"][row]), int(driver["address"][row]), row) for row in on_gpu.tolist()]
    for _, what, address, row in sorted((*taken, *rows)):
        if row < 0 or what == _ALLOCATION:
            (own if row < 0 else others).add(address)
        elif address in own:
            own.discard(address)
            found[row] = True
        elif address in others:
            others.discard(address)
        else:
            unseen.append(row)
    lacks = held.before_bytes + int(held.events.bytes.sum()) - int(driver["bytes"][found].sum()) - held.after_bytes
    if lacks and lacks == int(driver["bytes"][unseen].sum()):
        found[unseen] = True
    return found


def _with_given(held: Held, given: Rows) -> Held:
    events = held.events
    columns: dict[str, Any] = {"time_ns": given["time_ns"], "bytes": -given["bytes"], "address": given["address"], "gpu": given["gpu"]}
    columns |= {name: np.full(len(given), -1) for name in ("total", "reserved", "name", "site")}
    columns = {name: np.concatenate([getattr(events, name), more]) for name, more in columns.items()}
    joined = replace(events, **columns)
    return replace(held, events=joined.rows(np.argsort(joined.time_ns, kind="stable")))


def _of_driver(driver: Rows) -> list[MemoryEvents]:
    """Return what the driver gave, and got back, by kind of memory."""
    gpu = np.where(np.isin(driver["kind"], _ON_HOST), -1, driver["gpu"])
    chosen = [(kind, driver["kind"] == number) for number, kind in _KINDS.items()]
    return [_events(driver[rows], gpu[rows], kind, Level.RESERVED) for kind, rows in chosen if rows.any()]


def _of_cuda_pools(driver: Rows) -> list[MemoryEvents]:
    """Return what pools of ``cudaMallocAsync`` lent and got back, each with the size of the pool."""
    found = []
    for pool in np.unique(driver["pool"]).tolist():
        rows = driver[driver["pool"] == pool]
        found.append(_events(rows, rows["gpu"], "cudaMallocAsync", Level.ALLOCATED, reserved=rows["pool_bytes"]))
    return found


def _events(driver: Rows, gpu: IntArray, kind: str, level: Level, **more: Any) -> MemoryEvents:
    nbytes = np.where(driver["what"] == _ALLOCATION, driver["bytes"], -driver["bytes"])
    return MemoryEvents(driver["time_ns"], nbytes, driver["address"], gpu, kind=kind, level=level, **more)


def given_back_in_pause(pieces: Sequence[Piece], is_held: Callable[[int, int], bool]) -> list[Piece]:
    """Return pieces whose last one says what the driver got back since, while nobody recorded.

    ``is_held``: tells whether an address is still the beginning of so many bytes.
    """
    memory = np.concatenate([piece.records.memory for piece in pieces])
    held: dict[int, Rows] = {}
    for row in memory[(memory["async"] == 0) & ~np.isin(memory["kind"], _ON_HOST)]:
        held.pop(int(row["address"]), None)
        if row["what"] == _ALLOCATION:
            held[int(row["address"])] = row
    gone = np.array([row for address, row in held.items() if not is_held(address, int(row["bytes"]))], memory.dtype)
    *before, last = pieces
    gone["what"], gone["time_ns"] = _RELEASE, last.waited_ns
    records = replace(last.records, memory=np.concatenate([last.records.memory, gone]))
    return [*before, replace(last, records=records)]
