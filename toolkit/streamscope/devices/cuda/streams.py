"""CUDA streams and events."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from streamscope.devices.cuda.driver import checked, cuda_errors, libraries
from streamscope.errors import DeviceError

if TYPE_CHECKING:
    from streamscope.devices.cuda.device import CudaDevice

_EXTERNAL = 1
"""CU_EVENT_RECORD_EXTERNAL: inside a capture, make an event-record node."""


class CudaEvent:
    """A CUDA event; without timing it is cheaper, and cannot be timed."""

    def __init__(self, *, timing: bool) -> None:
        self.timing = timing
        self.handle = libraries().cupy.cuda.Event(disable_timing=not timing)
        self.pointer: int = self.handle.ptr

    @cached_property
    def binding(self) -> Any:
        """The event as cuda-python's type."""
        return libraries().cuda.CUevent(self.pointer)

    def synchronize(self) -> None:
        """Block the host until the latest record is done."""
        with cuda_errors("waiting for an event"):
            libraries().runtime.eventSynchronize(self.pointer)

    def done(self) -> bool:
        """Tell whether the latest record is done."""
        return bool(self.handle.done)


class CudaStream:
    """A CUDA stream that does not synchronise with the default stream, with what belongs to it alone (workspace, library handles)."""

    def __init__(self, device: CudaDevice, name: str, priority: int = 0) -> None:
        lib = libraries()
        self.name = name
        self.device = device
        self.handle = lib.cupy.cuda.Stream(non_blocking=True, priority=-priority)
        self.pointer: int = self.handle.ptr
        self.binding = lib.cuda.CUstream(self.pointer)
        self._runtime = lib.runtime
        self._workspace: Any = None
        self.auxiliary: CudaStream | None = None
        """Stream for the scopes that a user's operator opens on this one, where the engine has one."""

    def record(self, event: CudaEvent) -> None:
        """Record an event; inside a capture, one with timing becomes an event-record node."""
        if event.timing and self.device.capturing:
            checked(libraries().cuda.cuEventRecordWithFlags(event.binding, self.binding, _EXTERNAL))
        else:
            self._runtime.eventRecord(event.pointer, self.pointer)

    def wait(self, event: CudaEvent) -> None:
        """Let the stream wait for the event's latest record."""
        self._runtime.streamWaitEvent(self.pointer, event.pointer)

    def synchronize(self) -> None:
        """Block the host until the stream is empty."""
        with cuda_errors(f"waiting for stream {self.name!r}"):
            self._runtime.streamSynchronize(self.pointer)

    def workspace(self, nbytes: int) -> Any:
        """Return an array of at least ``nbytes`` of scratch memory; whoever packs its address must keep the array.

        All that runs on the stream shares it, since it runs in order; streams do not share theirs, since they run side by side.
        """
        if self.device.capturing:
            raise DeviceError(f"stream {self.name!r} cannot allocate a workspace while a graph is captured")
        if self._workspace is None or self._workspace.nbytes < nbytes:
            self._workspace = self.device.empty_bytes(max(1, nbytes))
        return self._workspace

    @property
    def workspace_bytes(self) -> int:
        """Size of the stream's workspace in bytes."""
        return 0 if self._workspace is None else int(self._workspace.nbytes)

    @cached_property
    def cudnn(self) -> Any:
        """A cuDNN handle on this stream."""
        from streamscope.devices.cuda.cudnn import make_handle

        return make_handle(self.pointer)

    @cached_property
    def cublas(self) -> Any:
        """A cuBLAS handle on this stream, with a workspace of its own."""
        from streamscope.devices.cuda.cublas import CublasHandle

        return CublasHandle(self)
