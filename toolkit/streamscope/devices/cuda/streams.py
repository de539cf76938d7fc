"""CUDA streams and events."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from streamscope.devices.cuda.memory import TemporaryMemory
from streamscope.errors import DeviceError
from streamscope.interrupts import when_gone
from streamscope.kernels.library.libraries import NOT_READY, SUCCESS, checked, cuda_errors, libraries

if TYPE_CHECKING:
    from streamscope.devices.cuda.collectives import Collectives
    from streamscope.devices.cuda.device import CudaDevice

_NAP_S = 0.001
"""How long a wait with a time-out sleeps at most between two looks: a hundredth of its time so far."""
_EXTERNAL = 1
"""CU_EVENT_RECORD_EXTERNAL: inside a capture, make an event-record node."""


@dataclass(frozen=True)
class ForeignStream:
    """A stream of another library, as CUDA's stream protocol wants it."""

    pointer: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.pointer


class CudaEvent:
    """A CUDA event of the current GPU, which is GPU ``gpu`` of ours; without timing it is cheaper, and cannot be timed."""

    def __init__(self, *, timing: bool, gpu: int = 0) -> None:
        self.timing = timing
        self.gpu = gpu
        self.handle = libraries().cupy.cuda.Event(disable_timing=not timing)
        self.pointer: int = self.handle.ptr
        self.record: Callable[[int], None] = partial(libraries().runtime.eventRecord, self.pointer)
        """Records it on a stream of anybody's, by its address; no method, since each microsecond counts."""

    @cached_property
    def binding(self) -> Any:
        """The event as cuda-python's type."""
        return libraries().cuda.CUevent(self.pointer)

    def hold(self, stream: int) -> None:
        """Let a stream of anybody's wait for the latest record, by its address."""
        libraries().runtime.streamWaitEvent(stream, self.pointer)

    def synchronize(self) -> None:
        """Block the host until the latest record is done."""
        with cuda_errors("waiting for an event"):
            libraries().runtime.eventSynchronize(self.pointer)

    def comes_within(self, timeout_s: float) -> bool:
        """Block the host until the latest record is done, so many seconds at most; tell whether it is."""
        begin_s = time.monotonic()
        while not event_done(self.pointer):
            so_far_s = time.monotonic() - begin_s
            if so_far_s >= timeout_s:
                return False
            time.sleep(min(so_far_s / 100, _NAP_S))
        return True

    def done(self) -> bool:
        """Tell whether the latest record is done."""
        return event_done(self.pointer)


class EventOfHost(CudaEvent):
    """An event of a device with several GPUs, where a collective may never end: waiting for it can be interrupted."""

    def __init__(self, collectives: Collectives, *, timing: bool, gpu: int) -> None:
        super().__init__(timing=timing, gpu=gpu)
        self._collectives = collectives

    def synchronize(self) -> None:
        """Block the host until the latest record is done; Ctrl-C aborts the collectives."""
        with cuda_errors("waiting for an event"):
            if not self._collectives.wait(partial(libraries().runtime.eventQuery, self.pointer)):
                libraries().runtime.eventSynchronize(self.pointer)

    def comes_within(self, timeout_s: float) -> bool:
        """Block the host until the latest record is done, so many seconds at most; tell whether it is. Ctrl-C aborts the collectives."""
        with cuda_errors("waiting for an event"):
            return self._collectives.comes_within(partial(libraries().runtime.eventQuery, self.pointer), timeout_s)


def event_done(pointer: int) -> bool:
    """Tell whether the latest record of an event is done."""
    runtime = libraries().runtime
    status = runtime.eventQuery(pointer)
    if status in (SUCCESS, NOT_READY):
        return bool(status == SUCCESS)
    with cuda_errors("waiting for an event"):
        raise runtime.CUDARuntimeError(status)


class CudaStream:
    """A CUDA stream that does not synchronise with the default stream, with its own workspace and library handles.

    It is the current GPU's, which is GPU ``gpu`` of the device.
    """

    def __init__(self, device: CudaDevice, name: str, priority: int = 0, gpu: int = 0) -> None:
        lib = libraries()
        self.name = name
        self.device = device
        self.gpu = gpu
        self.handle = lib.cupy.cuda.Stream(non_blocking=True, priority=-priority)
        self.pointer: int = self.handle.ptr
        self.binding = lib.cuda.CUstream(self.pointer)
        self._runtime = lib.runtime
        self._workspaces: list[Any] = []
        self.auxiliary: CudaStream | None = None
        """Stream for the scopes that a user's operator opens on this one, where the engine has one."""

    def record(self, event: CudaEvent) -> None:
        """Record an event; inside a capture, one with timing becomes an event-record node."""
        # A plain record in a capture makes edges only: without a node, the event would have no time.
        if event.timing and self.device.capturing:
            checked(libraries().cuda.cuEventRecordWithFlags(event.binding, self.binding, _EXTERNAL))
        else:
            self._runtime.eventRecord(event.pointer, self.pointer)

    def bound_record(self, event: CudaEvent) -> Callable[[], None]:
        """Return a function that records an event outside of captures; the event must live as long."""
        return partial(self._runtime.eventRecord, event.pointer, self.pointer)

    def wait(self, event: CudaEvent) -> None:
        """Let the stream wait for the event's latest record."""
        self._runtime.streamWaitEvent(self.pointer, event.pointer)

    def synchronize(self) -> None:
        """Block the host until the stream is empty."""
        with cuda_errors(f"waiting for stream {self.name!r}"):
            self._runtime.streamSynchronize(self.pointer)

    def workspace(self, nbytes: int) -> Any:
        """Return an array of at least ``nbytes`` of scratch memory, which the stream keeps.

        All that runs on the stream shares it, since it runs in order; streams do not share theirs, since they run side by side.
        """
        found = next((workspace for workspace in self._workspaces if workspace.nbytes >= nbytes), None)
        if found is None:
            if self.device.capturing:
                raise DeviceError(f"stream {self.name!r} cannot allocate a workspace while a graph is captured")
            found = self.device.empty_bytes(max(1, nbytes), self.gpu)
            # Smaller ones stay: packed arguments and graphs hold their addresses.
            self._workspaces.append(found)
        return found

    @property
    def workspace_bytes(self) -> int:
        """Bytes of scratch memory that the stream keeps for libraries, cuBLAS's own among it."""
        from streamscope.kernels.library.cublas import WORKSPACE_BYTES

        cublas = WORKSPACE_BYTES if "cublas" in vars(self) else 0
        return cublas + sum(int(workspace.nbytes) for workspace in self._workspaces)

    @cached_property
    def temporaries(self) -> TemporaryMemory:
        """Memory for allocations of users' operators while they run on this stream."""
        return TemporaryMemory(self.device.on(self.gpu))

    @contextmanager
    def current(self) -> Iterator[None]:
        """Let CuPy launch on this stream, and allocate from `temporaries`, on the calling thread, whose current GPU is the stream's."""
        with self.handle, libraries().cupy.cuda.using_allocator(self.temporaries.malloc):
            yield

    @property
    def temporary_bytes(self) -> int:
        """Bytes that `temporaries` holds."""
        return self.temporaries.nbytes if "temporaries" in vars(self) else 0

    @cached_property
    def cudnn(self) -> Any:
        """A cuDNN handle on this stream."""
        from streamscope.kernels.library.cudnn import destroy_handle, make_handle

        with self.device.on(self.gpu):
            handle = make_handle(self.pointer)
        self._destroy_with_it(partial(destroy_handle, handle))
        return handle

    @cached_property
    def cublas(self) -> Any:
        """A cuBLAS handle on this stream, with a workspace of its own."""
        from streamscope.kernels.library.cublas import CublasHandle

        with self.device.on(self.gpu):
            handle = CublasHandle(self)
        self._destroy_with_it(handle.destroy)
        return handle

    def _destroy_with_it(self, destroy: Callable[[], None]) -> None:
        """Call a function when the stream object goes, outside captures; not at the end of the process, when CUDA may have gone."""
        when_gone(self, partial(self.device.captures.destroy, partial(_call_with, destroy, self.handle, self.device.on(self.gpu))))


class StreamOfHost(CudaStream):
    """A stream of a device with several GPUs, where a collective may never end: waiting for it can be interrupted."""

    def synchronize(self) -> None:
        """Block the host until the stream is empty; Ctrl-C aborts the collectives."""
        with cuda_errors(f"waiting for stream {self.name!r}"):
            if not self.device.collectives.wait(partial(self._runtime.streamQuery, self.pointer)):
                self._runtime.streamSynchronize(self.pointer)


def _call_with(destroy: Callable[[], None], stream: object, on: AbstractContextManager[object]) -> None:
    """Destroy the library handles of a CuPy stream, which has been kept until now."""
    with on:
        destroy()
