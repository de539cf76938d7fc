"""Reads Kineto's Chrome JSON, as PyTorch's profiler writes it: kernels, calls, ranges.

A time is in µs, with three decimals, and becomes whole ns. A kernel is joined with its launch by the correlation that both name; flows say
the same once more, and are not looked at. Files of ROCm have the same categories, with HIP's names of calls.
"""

from __future__ import annotations

import io
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any, BinaryIO, Literal

import numpy as np
import numpy.typing as npt

from streamscope.errors import TraceError, printable
from streamscope.formats.kineto.counters import CountersAndMarkers
from streamscope.formats.kineto.events import AnyEvent, Beside, EventsReader
from streamscope.formats.kineto.memory import MemoryMarks, is_mark
from streamscope.formats.kineto.ranks import by_process, of_one_process
from streamscope.formats.kineto.stacks import MOST_FRAMES, Frames, Operators, Stacks, ThreadTimes
from streamscope.formats.kineto.values import fact_of, products, times_ns, whole_numbers
from streamscope.formats.kineto.writer import NOTE
from streamscope.formats.metadata import created_at, device_info, host_info, versions_of
from streamscope.trace.activities import (
    FAR_NS,
    NO_WORK_HINT,
    ON_DEVICE,
    Activities,
    NoWorkError,
    Streams,
    joined,
    name_waits,
    no_work,
    wanted_gpus,
)
from streamscope.trace.counters import Note
from streamscope.trace.file_checks import DamagedError, named_values
from streamscope.trace.foreign import EventWaits, foreign_trace
from streamscope.trace.info import DeviceInfo, TraceInfo
from streamscope.trace.instances import CollectiveFacts, PeerFacts
from streamscope.trace.joins import distinct, looked_up
from streamscope.trace.launch_sites import Site, stored_sites
from streamscope.trace.memory import Allocations
from streamscope.trace.memory_events import allocations_of
from streamscope.trace.plausibility import recorded
from streamscope.trace.spans import MOST_FOREIGN_SPANS, SpanKind
from streamscope.trace.symbols import call_kinds
from streamscope.trace.trace import Trace
from streamscope.words import counted, listed

_DEVICE = {
    "kernel": SpanKind.KERNEL, "gpu_memcpy": SpanKind.COPY, "gpu_memset": SpanKind.SET, "memcpy": SpanKind.COPY, "memset": SpanKind.SET,
}  # fmt: skip
"""The last two stand in files of PyTorch before 1.12, as do ``Kernel``, ``Runtime`` and ``Operator``."""
_RANGES = ("cpu_op", "user_annotation", "operator", "nvtx")
_OPERATORS = ("cpu_op", "operator")
_CALLS = ("runtime", "driver")
_WAITS = ("correlation", "stream", "wait_on_stream", "recorded_by")
"""Arguments that synchronisations have."""
_MOST_DIGITS = 19
"""A stream or thread with as many digits is kept by its text: 2**64 - 1, for one, stands for a stream that is not known."""
_STREAM_WAIT, _STREAM_SYNC = "Stream Wait Event", "Stream Sync"
MOST_KEPT = 10_000_000
"""Events of a file that are kept until its end; then the shortest ranges and calls beyond what a trace may have are left out."""
_QUIET = frozenset({"ac2g", "async_cpu_to_gpu", "async_gpu", "fwdbwd", "trace", "overhead", "cuda_sync", "gpu_user_annotation"})
"""Categories that are skipped without loss: flows, and events that stand in the file a second time."""
_QUIET_PHASES = frozenset("MstfEe")
"""Names of processes and threads, flows, and ends, whose begins are counted."""
_BEGUN = "whose begin and end stand apart"
_OF_THE_HOST = _QUIET | {
    *_RANGES,
    NOTE,
    "python_function",
    "cpu_instant_event",
    "external_correlation",
    "cuda_event",
    "cuda_profiler_range",
}
"""Categories that say nothing of another accelerator."""


def read_events(
    file: BinaryIO | io.BufferedIOBase, program: str, gpu: int | None = None, *, skip: bool = False, least_range_ns: int = 0
) -> Trace:
    """Read a Kineto file, open at its start and not compressed.

    ``program``: name of the trace.
    ``skip``: leave out events that are damaged, and count them; else they are an error.
    ``least_range_ns``: leave out shorter ranges.
    """
    reader = EventsReader(file, skip=skip)
    found: _Collected | None = None
    own, wrong = None, 0
    for events in reader.pieces():
        if found is None:
            found = _Collected(_own_sites(reader.beside.streamscope), least_range_ns)
            own = None if reader.beside.streamscope is None else _own_info(reader.beside.streamscope)
        wrong += _add(found, events, skip=skip)
        del events  # Before the next ones are made.
    assert found is not None  # There is a last piece always.
    if own is None and reader.beside.streamscope is not None:
        raise ValueError("'streamscope' must stand before the events: without it, simulated times would be read as measured ones")
    notes = reader.notes()
    if wrong:
        notes.append(f"left out: {counted(wrong, 'event')} whose values are not as PyTorch's profiler writes them")
    stored = {} if own is None else named_values(reader.beside.streamscope)
    held = Allocations.from_dict(stored.get("memory"))
    if type(left_out := stored.get("allocations_left_out")) is int:
        notes.append(f"memory is not in this file: {counted(left_out, 'allocation')} were too many for it; to_parquet keeps them")
    if type(left_out := stored.get("lines_left_out")) is int:
        notes.append(f"without its line: {counted(left_out, 'device span')} of a graph, which one call launched; to_parquet keeps them")
    trace = found.trace(reader.beside, program, gpu, notes, reader.lost + wrong, ours=own is not None, held=held)
    if own is None:
        return trace
    device = own.device if gpu is None else own.device.of_one(gpu)
    device = replace(device, details=trace.info.device.details)
    own = replace(own, device=device, notes=trace.info.notes, ledger=trace.info.ledger, zero_ns=trace.info.zero_ns)
    whole = [Note(**named_values(note)) for note in stored.get("user_notes", ())]
    return replace(trace, info=own, user_notes=(*whole, *trace.user_notes))


def _own_info(stored: Any) -> TraceInfo:
    """Return the origin of the times in a file that Streamscope wrote: measured or not, recorder, engine, program."""
    values = named_values(stored)
    device = DeviceInfo(**named_values(values["device"]))
    given = {name: values[name] for name in ("engine", "program", "recorder", "stretched")}
    given |= {name: values[name] for name in ("rank", "local_rank", "world_size", "host") if name in values}
    return TraceInfo(**given, device=device, versions={}, created="")


def _own_sites(stored: Any) -> tuple[Site, ...]:
    """Return the places in the user's code that calls of a file of ours have by their numbers."""
    return stored_sites(named_values(stored["sites"])) if isinstance(stored, dict) and "sites" in stored else ()


def _add(found: _Collected, events: list[AnyEvent], *, skip: bool) -> int:
    """Add events, with ``skip`` all but those whose values are wrong; return how many these are."""
    try:
        if skip:
            # A trial on nothing that is kept: a failure halfway would leave half of the events in `found`.
            _Collected().add(events)
        found.add(events)
    except (TypeError, ValueError, LookupError) as error:
        if not skip:
            raise DamagedError(str(error)) from error
        whole = [event for event in events if _fits(event)]
        found.add(whole)
        return len(events) - len(whole)
    return 0


def _fits(event: AnyEvent) -> bool:
    try:
        _Collected().add([event])
    except (TypeError, ValueError, LookupError):
        return False
    return True


class _Collected:
    """Collects the activities of a file, piece by piece."""

    def __init__(self, sites: Sequence[Site] = (), least_range_ns: int = 0) -> None:
        self._least_range_ns = least_range_ns
        self._names: dict[str, int] = {}
        self._places: dict[int, str] = {}
        self._pids: dict[str, int] = {}
        self._parts: list[Activities] = []
        self._lost = Counter[str]()
        self._profiler: list[npt.NDArray[np.int64]] = [np.zeros((2, 0), np.int64)]
        self._waits: dict[str, list[npt.NDArray[np.int64]]] = {
            name: [np.zeros((0, len(_WAITS)), np.int64)] for name in (_STREAM_WAIT, _STREAM_SYNC)
        }
        self._streams = Streams("context")
        self._facts: list[CollectiveFacts | PeerFacts | Site] = [*sites]
        self._sites = len(sites)
        self._stacks = Stacks()
        self._kept = self._on_device = 0
        self._timeless = 0
        """Kernels, copies and sets without a time."""
        self._categories = Counter[str]()
        self._noted = CountersAndMarkers()
        self._memory = MemoryMarks()
        self._empty = True

    def add(self, events: Sequence[AnyEvent]) -> None:
        by_category, by_phase = defaultdict[str, list[Any]](list), defaultdict[str, list[Any]](list)
        for event in events:
            if event.ph == "X":
                by_category[event.cat].append(event)
            elif event.ph not in _QUIET_PHASES:
                by_phase[event.ph].append(event)
        self._empty = self._empty and not events
        for phase, its_events in by_phase.items():
            for event in self._add_memory(self._noted.add(phase, its_events)):
                self._lost[_unread(event)] += 1
        # Events without a word about them: nothing is lost with those.
        self._lost.pop("", None)
        for category, its_events in by_category.items():
            self._add_category(category.lower(), its_events)

    def trace(
        self, beside: Beside, program: str, gpu: int | None, said: Sequence[str], lost: int, *, ours: bool, held: Allocations
    ) -> Trace:
        if not self._on_device:
            raise self._no_work(_job(beside.distributedInfo))
        self._lost += self._noted.lost
        self._parts[-1].names, self._parts[-1].facts = tuple(self._names), self._facts
        notes = [*said, *(f"left out: {counted(count, 'event')} {what}" for what, count in sorted(self._lost.items()))]
        if frames := self._categories["python_function"]:
            which = "launch call and allocation" if self._memory else "launch call"
            notes.append(
                f"of {counted(frames, 'frame')} of Python, only those of the user's code and of modules around each {which} are kept"
            )
        if self._stacks.left_out:
            notes.append(f"left out: {counted(self._stacks.left_out, 'frame')} of Python, since {MOST_FRAMES:,} are kept")
        found = recorded(self._joined(), notes, _unknown_ns(beside))
        of_processes = found
        gpu_of = _gpu_of_processes(found, tuple(self._pids)) if self._noted else {}
        # In a file of ours, a correlation is that of one call, which may have launched work on several GPUs.
        told = of_one_process(found) if ours else by_process(found, tuple(self._pids))
        found = told.found
        notes += told.notes
        gpus = wanted_gpus(found, gpu)
        if told.devices:  # Copies between GPUs name them as their processes do.
            found.facts = [PeerFacts(-1, -1) if isinstance(fact, PeerFacts) else fact for fact in found.facts]
        found.places = {**found.places, **self._streams.texts_of(found)}
        waits = None
        if not told.several:  # Else correlations of the file say nothing by themselves.
            waited = self._said(_STREAM_SYNC)
            name_waits(found, waited["correlation"], waited["stream"], gpu)
            waits = self._event_waits(found)
        noted = self._noted.noted({} if told.several else gpu_of, ours=ours)
        marks = self._memory.events(of_processes, self._stacks, notes, several=told.several, renumbered=bool(told.devices))
        memory = partial(allocations_of, marks)
        hip = any(name.startswith("hip") for name in self._names)
        base_ns = beside.baseTimeNanoseconds
        device = host_info({one: _device(beside.deviceProperties, one, told.devices.get(one, one), hip=hip) for one in gpus})
        return foreign_trace(
            found, engine="kineto", program=program, device=device, recorder="kineto", gpu=gpu,
            notes=notes, waits=waits, noted=noted, memory=partial(_moved, held) if len(held) else memory,
            clock_ns=_clock_ns(beside, ours=ours),
            profiler=tuple(np.concatenate(self._profiler, axis=1)),
            versions=_versions(beside), created=created_at(int(found.start_ns.min()) + (base_ns if type(base_ns) is int else 0)),
            ledger={"lost_records": float(lost)} if lost else {}, **({} if told.several else _job(beside.distributedInfo)),
        )  # fmt: skip

    def _joined(self) -> Activities:
        found = joined(self._parts)
        found.places = self._places
        on_device = found.is_kind(ON_DEVICE)
        if (np.abs(found.start_ns[on_device]) >= FAR_NS).all():
            years = FAR_NS // (365 * 24 * 3600 * 10**9)
            raise TraceError(
                f"the times of its kernels are {years} years and more: 'ts' and 'dur' are in µs, and these look like ns",
                hint="divide 'ts' and 'dur' by 1,000",
            )
        if self._stacks.count:
            calls = np.flatnonzero(~on_device & (found.correlation >= 0))
            columns = ThreadTimes(found.process[calls], found.place[calls], found.start_ns[calls], found.end_ns[calls])
            site, sites = self._stacks.sites(columns)
            found.fact[calls] = np.where(site >= 0, site + len(found.facts), found.fact[calls])
            found.facts = [*found.facts, *sites]
        return found

    def _add_category(self, category: str, events: list[Any]) -> None:
        """Keep the events of one category as activities, or count them as unread."""
        device = _DEVICE.get(category)
        is_call = category.rpartition("_")[2] in _CALLS
        if device is None and not is_call and category not in _RANGES:
            if category == "overhead":
                timed = [event for event in events if event.ts is not None and event.dur is not None]
                start_ns = times_ns([event.ts for event in timed])
                self._profiler.append(np.stack((start_ns, start_ns + times_ns([event.dur for event in timed]))))
                self._count(len(timed))
            elif category == "cuda_sync":
                self._add_synchronisations(events)
            elif category == "python_function":
                self._add_frames(events)
            elif category == NOTE:
                self._noted.add_notes(events)
            elif category not in _QUIET:
                self._lost[_of_category(category)] += len(events)
            self._categories[category] += len(events)
            return
        self._categories[category] += len(events)
        if self._least_range_ns and device is None and not is_call:
            events = self._long(events)
        timed = [event for event in events if event.ts is not None and event.dur is not None]
        if len(timed) < len(events):
            self._lost[f"{_of_category(category)} without a time"] += len(events) - len(timed)
            self._timeless += len(events) - len(timed) if device is not None else 0
        self._count(len(timed), on_device=device is not None)
        start_ns = times_ns([event.ts for event in timed])
        columns: dict[str, Any] = {"start_ns": start_ns, "end_ns": start_ns + times_ns([event.dur for event in timed])}
        columns["name"] = _codes([event.name for event in timed], self._names)
        if is_call:
            used, code = distinct(columns["name"])
            texts = list(self._names)
            columns["kind"] = call_kinds([texts[each] for each in used.tolist()])[code]
        else:
            columns["kind"] = np.full(len(timed), SpanKind.RANGE if device is None else device, np.uint8)
        columns["process"] = _codes([event.pid for event in timed], self._pids)
        arguments = [event.args for event in timed]
        if device is None:
            columns["place"] = _numbers([event.tid for event in timed], self._places)
        if category in _OPERATORS:
            self._add_operators(arguments, columns)
        if device is not None or is_call:
            columns["correlation"] = whole_numbers([None if given is None else given.correlation for given in arguments], 0)
            columns["correlation"][columns["correlation"] == 0] = -1  # CUPTI counts from 1
        if is_call and self._sites:
            site = whole_numbers([given and given.site for given in arguments], -1)
            columns["fact"] = np.where((site >= 0) & (site < self._sites), site, -1)
        if device is not None:
            columns |= _on_device(timed, arguments, self._places)
            columns["fact"] = self._facts_of(arguments, "from_gpu" if device == SpanKind.COPY else "collective")
            # Streams of two contexts may have one number.
            columns["place"] = self._streams.places(columns["place"], _contexts(arguments))
        self._parts.append(Activities(**columns))

    def _long(self, events: list[Any]) -> list[Any]:
        """Return ranges that are not short, and operators whose number joins the backward pass with the forward one."""
        least_us = (self._least_range_ns - 0.5) / 1000
        return [
            event
            for event in events
            if event.dur is None or event.dur >= least_us or (event.args is not None and event.args.sequence_number is not None)
        ]

    def _add_memory(self, events: Sequence[Any]) -> Sequence[Any]:
        """Keep the marks of memory among some events, and return the others."""
        marks = [event for event in events if is_mark(event)]
        if not marks:
            return events
        self._count(len(marks))
        self._memory.add(marks, _codes([event.pid for event in marks], self._pids), _numbers([event.tid for event in marks], self._places))
        return [event for event in events if not is_mark(event)]

    def _add_frames(self, events: list[Any]) -> None:
        """Keep frames of the user's code and of modules."""
        timed = [event for event in events if event.ts is not None and event.dur is not None]
        if len(timed) < len(events):
            self._lost["of category 'python_function' without a time"] += len(events) - len(timed)
        code = self._stacks.code([event.name for event in timed])
        rows = np.flatnonzero(code >= 0)
        kept = [timed[row] for row in rows.tolist()]
        start_ns = times_ns([event.ts for event in kept])
        end_ns = start_ns + times_ns([event.dur for event in kept])
        process = _codes([event.pid for event in kept], self._pids)
        self._stacks.add(Frames(process, _numbers([event.tid for event in kept], self._places), start_ns, end_ns, code[rows]))

    def _add_operators(self, given: list[Any], columns: Mapping[str, npt.NDArray[Any]]) -> None:
        """Keep operators that have a sequence number, by which operators of the backward pass belong to those of the forward one."""
        sequence = whole_numbers([args and args.sequence_number for args in given], -1)
        known = sequence >= 0
        if known.any():
            forward = whole_numbers([args and args.forward_thread for args in given], 0)
            times = {name: columns[name] for name in ("process", "place", "start_ns", "end_ns")}
            some = Operators(**times, sequence=sequence, forward=forward)
            self._stacks.add(some if known.all() else some.rows(known))

    def _facts_of(self, arguments: Sequence[Any], argument: str) -> npt.NDArray[np.int64]:
        """Keep what work with an argument says of other GPUs, and return its places; -1 for all other work."""
        found, said = np.full(len(arguments), -1), attrgetter(argument)
        for at in [at for at, given in enumerate(arguments) if given is not None and said(given) is not None]:
            found[at] = len(self._facts)
            self._facts.append(fact_of(arguments[at]))
        return found

    def _no_work(self, job: Mapping[str, int]) -> TraceError:
        """Say why a file has no work of a GPU that can be read."""
        if self._empty:
            return TraceError("it holds no events", hint=NO_WORK_HINT)
        if self._timeless:
            return TraceError(
                f"none of its {counted(self._timeless, 'device span')} has a time",
                hint="an event of phase X needs both ts and dur, in µs",
            )
        if begun := self._lost[_BEGUN]:
            return TraceError(
                f"it holds no work of a GPU in whole events, but {counted(begun, 'event')} {_BEGUN}",
                hint="Kineto writes an event of phase X, with ts and dur in µs, for each kernel",
            )
        others = [category for category in self._categories if category not in _OF_THE_HOST and not category.startswith(("cuda_", "hip_"))]
        if not self._categories:
            return TraceError("it holds no event of phase X, which has a time", hint=NO_WORK_HINT)
        if others:
            what = listed([f"{counted(self._categories[each], 'event')} {_of_category(each)}" for each in others[:5]])
            return TraceError(
                f"it has none of Kineto's categories of a GPU, such as 'kernel', but {what}: of another accelerator, or another program",
                hint="JAX writes an .xplane.pb beside it, which is read; of any table of spans, ss.Trace.from_spans makes a trace",
            )
        if any(category.rpartition("_")[2] in _CALLS for category in self._categories):
            hint = "CUPTI recorded nothing: synchronize before the profiler stops, and let no other profiler use CUPTI at the time"
            return NoWorkError("it holds calls of the CUDA or HIP runtime, but no work of a GPU", hint=hint, job=job)
        return no_work(job)

    def _count(self, count: int, *, on_device: bool = False) -> None:
        """Stop where there is more than a trace may hold, or than is kept of a file until its end."""
        self._kept += count
        self._on_device += count if on_device else 0
        if self._on_device > MOST_FOREIGN_SPANS:
            raise TraceError(f"it has more than the {MOST_FOREIGN_SPANS:,} kernels, copies and sets that a trace may have")
        if self._kept > MOST_KEPT:
            raise TraceError(f"it has more than {MOST_KEPT:,} calls, ranges, kernels and copies")

    def _add_synchronisations(self, events: list[Any]) -> None:
        """Keep arguments of waits as columns, -1 where they are missing."""
        for name, parts in self._waits.items():
            said = [event.args for event in events if event.name == name and event.args is not None]
            columns = {argument: whole_numbers([getattr(args, argument) for args in said], -1) for argument in _WAITS}
            context = _contexts(said)
            for argument in ("stream", "wait_on_stream"):
                columns[argument] = self._streams.places(columns[argument], context)
            parts.append(np.stack(list(columns.values()), axis=1))
            self._count(len(said))

    def _said(self, name: str) -> dict[str, npt.NDArray[np.int64]]:
        """Return arguments of all synchronisations of one name."""
        return dict(zip(_WAITS, np.concatenate(self._waits[name]).T, strict=True))

    def _event_waits(self, found: Activities) -> EventWaits:
        """Return the waits of streams for events of which the file says where they were recorded. PyTorch 2.11 says it of none."""
        calls = found.rows((found.gpu < 0) & (found.correlation > 0))
        wait, waiting, recorded_on, record = self._said(_STREAM_WAIT).values()
        wait_ns, record_ns = (looked_up(calls.correlation, calls.start_ns, each, -FAR_NS) for each in (wait, record))
        known = (record > 0) & (recorded_on >= 0) & (wait_ns > -FAR_NS) & (record_ns > -FAR_NS)
        return EventWaits(recorded_on[known], record_ns[known], waiting[known], wait_ns[known])


def _clock_ns(beside: Beside, *, ours: bool) -> int | None:
    """Return the host's time where the file's clock shows 0; None where a file of ours does not say it."""
    base_ns = 0 if beside.baseTimeNanoseconds is None else beside.baseTimeNanoseconds
    found = beside.streamscope.get("clock_ns") if ours else base_ns
    return found if type(found) is int and abs(found) < FAR_NS else None


def _moved(held: Allocations, zero_ns: int, said: list[str]) -> Allocations:
    """Return the memory of a file of ours on the trace's clock; nothing of it is left out."""
    return held.since(zero_ns)


def _unknown_ns(beside: Beside) -> set[int]:
    """Return how a file writes a time that CUPTI did not have, which is 0 there: as 0, or as 0 less the base."""
    base_ns = beside.baseTimeNanoseconds
    return {0, -base_ns} if type(base_ns) is int and abs(base_ns) < FAR_NS else {0}


def _of_category(category: str) -> str:
    return f"of category {printable(category)[:50]!r}" if category else "without a category"


def _gpu_of_processes(found: Activities, pids: Sequence[str]) -> dict[str, int]:
    """Return the GPU of each process that stands for one: Kineto has a process for each GPU."""
    device = found.is_kind(ON_DEVICE)
    processes, process = distinct(found.process[device])
    gpus, gpu = distinct(found.gpu[device])
    hosts = set(distinct(found.process[~device])[0].tolist())
    of: dict[int, list[int]] = {}
    for pair in distinct(process * len(gpus) + gpu)[0].tolist():
        of.setdefault(int(processes[pair // len(gpus)]), []).append(int(gpus[pair % len(gpus)]))
    return {pids[code]: its[0] for code, its in of.items() if len(its) == 1 and code >= 0 and code not in hosts}


def _unread(event: AnyEvent) -> str:
    """Describe an event that is not a span; empty where nothing is lost with it."""
    if event.ph in ("B", "b"):
        return _BEGUN
    if event.name.startswith("["):  # "[OutOfMemory]"; "[memory]" without a time or an address
        return f"called {printable(event.name)[:50]!r}"
    if event.ph in ("i", "I", "R"):
        return _of_category(event.cat) if event.cat else ""  # Marks of the profiler itself, such as "Record Window End".
    return f"of phase {printable(event.ph)[:50]!r}"


def _contexts(arguments: Sequence[Any]) -> npt.NDArray[np.int64]:
    """Return the numbers of contexts, -1 where there is none."""
    found = [-1 if given is None else given.copy_context if given.context is None else given.context for given in arguments]
    if {*map(type, found)} == {int} and -1 <= min(found) <= max(found) < 2**63:  # As in nearly every file.
        return np.array(found, np.int64)
    return np.array([one if type(one) is int and 0 <= one < 2**63 else -1 for one in found], np.int64)


def _on_device(events: list[Any], arguments: list[Any], places: dict[int, str]) -> dict[str, npt.NDArray[np.int64]]:
    streams = [event.tid if given is None or given.stream is None else given.stream for event, given in zip(events, arguments, strict=True)]
    gpus = [
        _device_of(event.pid) if given is None or given.device is None else given.device
        for event, given in zip(events, arguments, strict=True)
    ]
    return {
        "place": _numbers(streams, places),
        "gpu": np.maximum(whole_numbers(gpus, 0), 0),
        "graph_node": np.maximum(whole_numbers([given and given.graph_node_id for given in arguments], -1), -1),
        "blocks": products([given and given.grid for given in arguments]),
        "threads": products([given and given.block for given in arguments]),
        "bytes": whole_numbers([given and given.bytes for given in arguments], 0),
    }


def _codes(values: Sequence[int | str | None], known: dict[str, int]) -> npt.NDArray[np.int64]:
    """Return numbers of names or processes; few different ones stand in many events, so each is looked up once a chunk."""
    code = {value: known.setdefault("" if value is None else str(value), len(known)) for value in dict.fromkeys(values)}
    if len(code) == 1:  # As of processes in nearly every file.
        return np.full(len(values), next(iter(code.values())), np.int64)
    return np.fromiter(map(code.__getitem__, values), np.int64, len(values))


def _device_of(pid: int | str | None) -> int | None:
    """Return the number of a device in the place of a process; tools that merge files put text before it."""
    if not isinstance(pid, str):
        return pid
    found = re.findall(r"\d{1,9}", pid)
    return int(found[-1]) if found else None


def _numbers(values: Sequence[Any], places: dict[int, str]) -> npt.NDArray[np.int64]:
    """Return numbers of threads or streams; any other value gets one from -2 down, and its text is kept in ``places``."""
    numbers = np.array(values)
    if numbers.dtype == np.int64 and numbers.ndim == 1 and numbers.min(initial=0) >= -1:
        return numbers
    texts = {text: number for number, text in places.items()}
    found = []
    for value in values:
        if not isinstance(value, int | str | None):
            raise TypeError(f"{value!r:.20} is not the number or the name of a stream")
        text = "?" if value is None else str(value)
        plain = text.isascii() and text.removeprefix("-").isdigit() and len(text) < _MOST_DIGITS and int(text) >= -1
        number = int(text) if plain else texts.setdefault(text, -2 - len(texts))
        if not plain:
            places[number] = text
        found.append(number)
    return np.array(found, np.int64)


def _device(properties: Any, gpu: int, number: int, *, hip: bool) -> DeviceInfo:
    """Return the GPU by the properties that the file has of each, under the ``number`` that it has there."""
    known = [each for each in properties if isinstance(each, Mapping)] if isinstance(properties, list) else []
    found = next((each for each in known if each.get("id") == number), {})
    name = found.get("name")
    kind: Literal["cuda", "hip"] = "hip" if hip or (isinstance(name, str) and name.startswith("AMD")) else "cuda"
    keys = {"multiprocessors": "numSms", "memory_bytes": "totalGlobalMem", "compute_major": "computeMajor", "compute_minor": "computeMinor"}
    return device_info(kind, name, gpu, **{ours: found.get(theirs) for ours, theirs in keys.items()})


def _job(given: Any) -> dict[str, Any]:
    """Return the rank and how many there are, as the profiler of one rank says it; a file that was merged has that of one of them."""
    values = given if isinstance(given, Mapping) else {}
    found = {name: values.get(name) for name in ("rank", "world_size")}
    return {name: value for name, value in found.items() if type(value) is int and 0 <= value < 2**31}


def _versions(beside: Beside) -> dict[str, str]:
    libraries = ("cuda_runtime", "cuda_driver", "cupti", "hip_runtime")
    given = {name: getattr(beside, f"{name}_version") for name in libraries}
    return versions_of({**given, **(beside.versions if isinstance(beside.versions, Mapping) else {})})
