"""Collectives on the GPUs of one host: by NCCL, all parts in one group, or by copies where NCCL is missing.

A collective whose parts do not all begin never ends, and neither does a wait for it. So waiting can be interrupted here, and whatever goes
wrong aborts the communicators. New ones are made for the next collective.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from streamscope.devices.cuda.captures import CAPTURES
from streamscope.devices.cuda.gpus import BY_ADDRESS
from streamscope.devices.cuda.nccl import BYTES, DTYPES, REDUCTIONS, Communicators, Holder, has_nccl, nccl, nccl_errors, nccl_version
from streamscope.errors import DeviceError
from streamscope.interrupts import deferred, when_gone
from streamscope.kernels.library.libraries import NOT_READY, SUCCESS, libraries

if TYPE_CHECKING:
    from streamscope.devices.cuda.memory import CudaBuffer
    from streamscope.program.collective import Collective
    from streamscope.program.launch import Launch

Call = Callable[[], None]
PartCall = tuple[int, str, tuple[int, ...]]
"""A call of NCCL: the part whose communicator makes it, the method, and its arguments."""
_Key = tuple[tuple[int, ...], int]
"""GPUs and priority of a communicator. Collectives of different priorities overtake each other, which one communicator does not allow."""

_SPIN_S = 0.01
_NAP_S = 0.001
"""How long a wait looks again at once, and how long it sleeps at most between two looks from then on: a hundredth of its time so far."""
_END_S = 5.0
"""How long streams are waited for after an abort."""

_idle: dict[_Key, list[Communicators]] = {}
"""Communicators of device objects that have gone, by the machine's numbers of the GPUs: making others takes a second."""


class Collectives:
    """The collectives of one device object: its communicators, made when they are first used.

    ``indices``: the machine's numbers of the device's GPUs.
    """

    def __init__(self, indices: Sequence[int]) -> None:
        self._indices = tuple(indices)
        self._made: dict[_Key, Communicators] = {}
        self._wanted: set[_Key] = set()
        self._lock = threading.RLock()
        self.aborts = 0
        """How often collectives were aborted."""
        self._of_thread = threading.local()
        when_gone(self, partial(_leave, self._indices, self._made))

    @property
    def library(self) -> str:
        """Name and version of what carries collectives out."""
        return f"NCCL {nccl_version()}" if has_nccl() else "copies between GPUs: NCCL is not installed"

    def bind(
        self,
        launches: Sequence[Launch],
        reads: Sequence[Sequence[CudaBuffer]],
        writes: Sequence[Sequence[CudaBuffer]],
        streams: Sequence[Any],
    ) -> Call:
        """Prepare a collective, one launch, one list of buffers and one stream a part; each call of the result issues all parts.

        Raises
        ------
        DeviceError
            An operand is not in one piece, or NCCL does not have the dtype.
        """
        collective = launches[0].collective
        assert collective is not None
        operands = [buffers[0] if collective.reads(part) else None for part, buffers in enumerate(reads)]
        results = [buffers[0] if collective.writes(part) else None for part, buffers in enumerate(writes)]
        for buffer in (*operands, *results):
            if buffer is not None and not buffer.array.flags.c_contiguous:
                raise DeviceError(f"{launches[0]} has an operand that is not in one piece", hint="copy it first: .copy()")
        if not has_nccl():
            return bind_copies(collective, operands, results, streams)
        calls = part_calls(collective, operands, results, [stream.pointer for stream in streams])
        return self._grouped(collective.communicator, calls, str(launches[0]), (operands, results, streams))

    def communicators(self, key: _Key) -> Communicators:
        """Return the communicators of some GPUs and a priority, made where there are none (any more)."""
        with self._lock:
            made = self._made.get(key)
            if made is None:
                if CAPTURES.active:
                    raise DeviceError("communicators cannot be made while a graph is captured", hint="run it once uncaptured")
                gpus, priority = key
                indices = tuple(self._indices[gpu] for gpu in gpus)
                try:
                    made = _idle[indices, priority].pop()
                except (KeyError, IndexError):  # In one step: other device objects take from there, too.
                    made = Communicators(indices)
                self._made[key] = made
                self._wanted.add(key)
            return made

    def begin_capture(self) -> None:
        """Make the communicators anew that were aborted, and note from now on which the calling thread's capture uses."""
        if len(self._made) < len(self._wanted):
            for key in tuple(self._wanted):
                self.communicators(key)
        self._of_thread.captured = set()

    def end_capture(self, graph: Holder) -> None:
        """Note which communicators a graph uses that the calling thread has captured."""
        for used in getattr(self._of_thread, "captured", ()):
            used.keep_track(graph)

    def abort(self) -> None:
        """End all collectives that are under way. Whoever waits for one gets a `DeviceError`, and graphs that hold collectives are lost."""
        with deferred():
            with self._lock:
                groups = list(self._made.values())
                self._made.clear()
                self.aborts += 1
            errors = []
            for group in groups:
                try:
                    group.abort()
                except DeviceError as error:
                    errors.append(error)
            if errors:
                raise errors[0]

    def wait(self, query: Callable[[], int]) -> bool:
        """Block the host until ``query`` no longer says that work is pending; false where there are no communicators: nothing can hang.

        Ctrl-C and errors abort the collectives.
        """
        return bool(self._made) and self.comes_within(query, math.inf)

    def comes_within(self, query: Callable[[], int], timeout_s: float) -> bool:
        """Block the host as `wait` does, so many seconds at most; tell whether the work is done. Time that is over aborts nothing."""
        aborts = self.aborts
        try:
            status = self._looking(query, timeout_s)
        except BaseException:
            if self._made:
                self.abort()
                limit_s = time.monotonic() + _END_S
                while query() == NOT_READY and time.monotonic() < limit_s:
                    time.sleep(_NAP_S)
            raise
        if status not in (SUCCESS, NOT_READY):
            raise libraries().runtime.CUDARuntimeError(status)
        if self.aborts != aborts:
            raise DeviceError("the collectives were aborted while they were waited for", hint="run it again")
        return bool(status == SUCCESS)

    def _looking(self, query: Callable[[], int], timeout_s: float) -> int:
        begin_s = time.monotonic()
        while (status := query()) == NOT_READY:
            so_far_s = time.monotonic() - begin_s
            if so_far_s >= timeout_s:
                break
            if so_far_s < _SPIN_S:
                continue  # The query lets other threads run; a sleep, even of nothing, takes 30 to 60 µs.
            time.sleep(min(so_far_s / 100, _NAP_S))
            if deferred().due:  # Ctrl-C came, and waits for the end of a block that may wait here for ever.
                self.abort()
            for group in tuple(self._made.values()):
                group.check()
        return status

    def _grouped(self, key: _Key, calls: Sequence[PartCall], what: str, kept: object) -> Call:
        """Return a call that makes some calls of NCCL in one group, with the communicators that there are then."""
        library = nccl()
        begin, end = library.groupStart, library.groupEnd
        used = self.communicators(key)
        bound = bound_calls(used, calls)

        def call(kept: object = kept) -> None:
            nonlocal used, bound
            made = self._made.get(key)
            if made is not used or made is None:
                used = self.communicators(key)
                bound = bound_calls(used, calls)
            if CAPTURES.active:
                self._of_thread.captured.add(used)
            with deferred():  # A group without one of its parts would never end.
                try:
                    begin()
                    for each in bound:
                        each()
                    end()
                except Exception:
                    with suppress(library.NcclError):
                        end()
                    self.abort()
                    with nccl_errors(f"{what} failed"):
                        raise

        return call


def bound_calls(communicators: Communicators, calls: Sequence[PartCall]) -> list[Call]:
    """Return calls of NCCL with the communicators of their parts."""
    return [partial(getattr(communicators.parts[part], method), *arguments) for part, method, arguments in calls]


# Without NCCL: each GPU fetches what its result is made of, and reduces it by itself. Right, and slow.

Piece = tuple[int, int, int]
"""Part whose operand it is cut from, where it begins there, and its bytes."""


def pieces_of(collective: Collective, part: int, nbytes: int) -> list[Piece]:
    """Return the pieces of operands, of ``nbytes`` each, that make up a part's result: one after the other, or reduced."""
    parts = range(len(collective.gpus))
    match collective.kind:
        case "all_reduce" | "all_gather":
            return [(source, 0, nbytes) for source in parts]
        case "reduce_scatter" | "all_to_all":
            share = nbytes // len(parts)
            return [(source, part * share, share) for source in parts]
        case _:  # "broadcast" or "send"
            return [(collective.root, 0, nbytes)]


def bind_copies(
    collective: Collective, operands: Sequence[CudaBuffer | None], results: Sequence[CudaBuffer | None], streams: Sequence[Any]
) -> Call:
    """Prepare a collective by copies between GPUs; of each part its operand, its result and its stream."""
    nbytes = next(buffer.spec.nbytes for buffer in operands if buffer is not None)
    parts = [
        _Part(pieces_of(collective, part, nbytes), operands, result, stream, collective.op)
        for part, (result, stream) in enumerate(zip(results, streams, strict=True))
        if result is not None
    ]
    meet = _meeting(streams)

    def call() -> None:
        meet()
        for part in parts:
            part.fetch()
        meet()  # A result may lie where an operand does: it is written when all have been read.
        for part in parts:
            part.store()

    return call


def _meeting(streams: Sequence[Any]) -> Call:
    """Return a call that lets all streams wait for each other."""
    events = [stream.device.event(gpu=stream.gpu) for stream in streams]

    def meet() -> None:
        for stream, event in zip(streams, events, strict=True):
            stream.record(event)
        for stream in streams:
            for other, event in zip(streams, events, strict=True):
                if other is not stream:
                    stream.wait(event)

    return meet


class _Part:
    """One GPU's share of the work: its result is put together in scratch memory first."""

    def __init__(self, pieces: Sequence[Piece], operands: Sequence[CudaBuffer | None], result: CudaBuffer, stream: Any, op: str) -> None:
        self._stream, self._result, self._op = stream, result, op
        self._fetched: list[tuple[Any, tuple[int, ...]]] = []
        dtype, device = result.spec.dtype, stream.device
        # Half-precision sums are rounded once.
        number = np.promote_types(dtype, np.float32) if op and dtype.kind == "f" else dtype
        total = result.spec.size * number.itemsize
        scratch = device.empty_bytes(total + (result.spec.nbytes if op else 0), stream.gpu)
        self._whole = scratch[:total].view(number)
        self._next = scratch[total:].view(dtype)
        place = 0
        for source, start, nbytes in pieces:
            operand = operands[source]
            assert operand is not None
            target = (self._next if op else self._whole).data.ptr + (0 if op else place)
            place += nbytes
            self._fetched.append((operand, (target, operand.pointer + start, nbytes, BY_ADDRESS, stream.pointer)))

    def fetch(self) -> None:
        copy, cupy = libraries().runtime.memcpyAsync, libraries().cupy
        reduce = {"sum": cupy.add, "mean": cupy.add, "min": cupy.minimum, "max": cupy.maximum}.get(self._op)
        with self._stream.device.on(self._stream.gpu), self._stream.current():
            for number, (_, arguments) in enumerate(self._fetched):
                copy(*arguments)
                if reduce is not None and number:
                    reduce(self._whole, self._next, out=self._whole)
                elif reduce is not None:
                    cupy.copyto(self._whole, self._next)
            if self._op == "mean":
                cupy.divide(self._whole, len(self._fetched), out=self._whole)

    def store(self) -> None:
        with self._stream.device.on(self._stream.gpu), self._stream.current():
            libraries().cupy.copyto(self._result.array.reshape(-1), self._whole, casting="unsafe")


def _leave(indices: Sequence[int], made: dict[_Key, Communicators]) -> None:
    """Leave communicators to the next device object with the same GPUs."""
    for (gpus, priority), communicators in made.items():
        _idle.setdefault((tuple(indices[gpu] for gpu in gpus), priority), []).append(communicators)


def part_calls(
    collective: Collective, operands: Sequence[CudaBuffer | None], results: Sequence[CudaBuffer | None], streams: Sequence[int]
) -> list[PartCall]:
    """Return the calls of NCCL that make up a collective, by part; none where the arrays are empty.

    ``operands``, ``results``: of each part, None where it has none. What is only moved goes as bytes.
    """
    some = next(buffer for buffer in operands if buffer is not None)
    if not some.spec.nbytes:
        return []
    sources = [0 if buffer is None else buffer.pointer for buffer in operands]
    targets = [0 if buffer is None else buffer.pointer for buffer in results]
    parts = range(len(streams))
    nbytes, root = some.spec.nbytes, collective.root
    match collective.kind:
        case "all_reduce" | "reduce_scatter" as kind:
            method, count = ("allReduce", some.spec.size) if kind == "all_reduce" else ("reduceScatter", some.spec.size // len(parts))
            how = _number(some.spec.dtype.name), REDUCTIONS[collective.op]
            return [(part, method, (sources[part], targets[part], count, *how, streams[part])) for part in parts]
        case "all_gather":
            return [(part, "allGather", (sources[part], targets[part], nbytes, BYTES, streams[part])) for part in parts]
        case "broadcast":
            return [
                (part, "broadcast", (sources[part] or targets[part], targets[part], nbytes, BYTES, root, streams[part])) for part in parts
            ]
        case "all_to_all":
            piece = nbytes // len(parts)
            calls: list[PartCall] = []
            for part in parts:
                for peer in parts:
                    calls.append((part, "send", (sources[part] + peer * piece, piece, BYTES, peer, streams[part])))
                    calls.append((part, "recv", (targets[part] + peer * piece, piece, BYTES, peer, streams[part])))
            return calls
        case _:  # "send"
            peers = [part for part in parts if part != root]
            sends: list[PartCall] = [(root, "send", (sources[root], nbytes, BYTES, peer, streams[root])) for peer in peers]
            return sends + [(peer, "recv", (targets[peer], nbytes, BYTES, root, streams[peer])) for peer in peers]


def _number(dtype: str) -> int:
    """Return NCCL's number of a dtype."""
    if dtype not in DTYPES:
        raise DeviceError(f"NCCL cannot reduce {dtype}", hint=f"convert it to one of {', '.join(DTYPES)}")
    return DTYPES[dtype]
