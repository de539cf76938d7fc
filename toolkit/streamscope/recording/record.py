"""Recording any CUDA code: ``with ss.record() as recording: …``, then ``recording.trace``."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self

import numpy as np

from streamscope.analysis.launches import missing_records
from streamscope.arguments import shown, whole_number
from streamscope.errors import RecordingError, RecordingWarning
from streamscope.formats.metadata import host_info
from streamscope.interrupts import deferred
from streamscope.recording.activity_records import ActivityRecords
from streamscope.recording.recorded_trace import CodeBlock, recorded_trace
from streamscope.recording.subscription import CALLS, NO_GPU_HINT, WORK, subscription
from streamscope.trace.info import DeviceInfo
from streamscope.trace.trace import Trace

KINDS = (*WORK, *CALLS, "SYNCHRONIZATION", "CUDA_EVENT", "OVERHEAD", "MARKER", "MARKER_DATA")
TAKEN_OVER = "another profiler took CUPTI over while this recorded: what ran from then on is missing"


class Recording:
    """A recording of the block of a ``with`` statement; see `record`.

    Attributes
    ----------
    name : str
    gpu : int, optional
        Whose work is kept; that of all GPUs where None.
    """

    def __init__(self, name: str, gpu: int | None) -> None:
        self.name = name
        self.gpu = gpu
        self._state = "not begun"
        self._why = RecordingError(f"the recording {name!r} has not ended", hint="read recording.trace behind the with block")
        self._trace: Trace | None = None
        self._open: AbstractContextManager[list[ActivityRecords]] | None = None
        self._records: list[ActivityRecords] = []
        self._start_ns = 0

    @property
    def trace(self) -> Trace:
        """The recorded trace, once the block has ended, even by an exception.

        Raises
        ------
        RecordingError
            The block has not ended, nothing ran on a GPU in it, or CUPTI failed.
        """
        if self._trace is None:
            raise self._why
        return self._trace

    def __repr__(self) -> str:
        return f"<recording {self.name!r}: {self._state}>"

    def __enter__(self) -> Self:
        if self._state != "not begun":
            raise RecordingError(f"the recording {self.name!r} was used before", hint="write with ss.record(...) for each block")
        try:
            with deferred():
                opened = subscription().recording(KINDS)
                self._records = opened.__enter__()
                self._open, self._state = opened, "recording"
                self._start_ns = subscription().now_ns()
        except BaseException:  # Ctrl-C, too, which waited until now
            self._close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        notes = [f"the block ended with {kind.__name__}"] if kind is not None else []
        with deferred():
            try:
                # Before the waits, which are ours and not the block's.
                end_ns = subscription().now_ns()
                try:
                    waited, unfinished = _waited_for_gpus()
                finally:
                    self._close()
                if waited and not (self._records[0].calls["start_ns"] >= end_ns).any():  # not even our own wait
                    unfinished.append(TAKEN_OVER)
                    warnings.warn(TAKEN_OVER, RecordingWarning, stacklevel=2)
                self._found(end_ns, [*notes, *unfinished])
            except Exception as failure:
                self._state = "failed"
                self._why = RecordingError(f"the recording {self.name!r} failed: {failure}")
                if error is None:
                    raise
                error.add_note(f"and its recording failed: {failure}")  # The user's error comes first.

    def _close(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            opened.__exit__(None, None, None)

    def _found(self, end_ns: int, notes: Sequence[str]) -> None:
        """Make the trace of the records."""
        (records,) = self._records
        gpus = np.unique(records.work["gpu"]).tolist()
        kept = gpus if self.gpu is None else [self.gpu] if self.gpu in gpus else []
        if not kept:
            others = ", ".join(f"GPU {other}" for other in gpus)
            where, hint = (f"GPU {self.gpu}", f"work ran on {others}") if others else ("a GPU", None)
            self._state = "nothing"
            self._why = RecordingError(f"nothing ran on {where} in the recording {self.name!r}", hint="; ".join(notes) or hint)
            return
        block = CodeBlock(self.name, self._start_ns, end_ns, self.gpu)
        device = host_info({gpu: device_info(gpu) for gpu in kept})
        self._trace = recorded_trace(records, block, device, subscription().call_name, notes)
        self._state = f"{len(self._trace.spans):,} spans"
        if records.dropped or missing_records(self._trace.spans).calls:
            warnings.warn(f"the recording {self.name!r} is not whole: {'; '.join(self._trace.info.notes)}", RecordingWarning, stacklevel=3)


def record(name: str = "recording", *, gpu: int | None = None) -> Recording:
    """Record the CUDA work of a block of code, whichever library it uses.

    Kernels, copies and sets on all GPUs, each node of a graph among them; calls of the CUDA runtime and driver, by all threads; and NVTX
    ranges. At the end of the block, it waits for the GPUs. A recorded call takes about a microsecond longer. Calls that only query CUDA
    are left out.

    Parameters
    ----------
    name : str
        Name of the trace.
    gpu : int, optional
        Whose work is kept, by CUDA's number; that of all GPUs by default. A note counts the work of other GPUs.

    Returns
    -------
    Recording
        Its ``trace`` is there when the block has ended, even by an exception or Ctrl-C.

    Raises
    ------
    RecordingError
        When the block is entered: CUPTI is missing or not permitted, another profiler holds it, or there is no GPU.

    Examples
    --------
    You need a GPU to record anything::

        with ss.record("step") as recording:
            loss = model(images).sum()
            loss.backward()

        recording.trace                               # in a notebook: how busy the GPU was, and a picture
        recording.trace.to_parquet("step.parquet")    # to open elsewhere: ss.read("step.parquet")
    """
    if not isinstance(name, str) or not name:  # type: ignore[redundant-expr]
        raise RecordingError(f"name={shown(name)} must be a string", hint='for example ss.record("step")')
    if gpu is not None:
        gpu = whole_number("gpu", gpu, least=0, error=RecordingError)
    return Recording(name, gpu)


def _driver() -> Any:
    from cuda.bindings import driver

    return driver


def device_info(gpu: int) -> DeviceInfo:
    """Return name and chip of a GPU, asked of the driver."""
    driver = _driver()
    attributes = driver.CUdevice_attribute
    status, device = driver.cuDeviceGet(gpu)
    if int(status):
        raise RecordingError(f"there is no GPU {gpu}: {status.name}", hint=NO_GPU_HINT)
    name = driver.cuDeviceGetName(256, device)[1].split(b"\0")[0].decode(errors="replace")

    def attribute(what: str) -> int:
        return int(driver.cuDeviceGetAttribute(getattr(attributes, f"CU_DEVICE_ATTRIBUTE_{what}"), device)[1])

    details = {
        "driver": int(driver.cuDriverGetVersion()[1]),
        "compute_capability": f"{attribute('COMPUTE_CAPABILITY_MAJOR')}.{attribute('COMPUTE_CAPABILITY_MINOR')}",
        "multiprocessors": attribute("MULTIPROCESSOR_COUNT"),
        "memory_bytes": int(driver.cuDeviceTotalMem(device)[1]),
    }
    return DeviceInfo("cuda", name, details)


def _waited_for_gpus() -> tuple[bool, list[str]]:
    """Wait for all GPUs that the process uses; return whether there are any, and the obstacle if it cannot.

    The records of running work would have no end. CUDA does not wait while a stream is captured, and breaks the capture.
    """
    driver = _driver()
    relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    _, before = driver.cuThreadExchangeStreamCaptureMode(relaxed)
    waited, failed = False, []
    try:
        for gpu in range(int(driver.cuDeviceGetCount()[1])):
            device = driver.cuDeviceGet(gpu)[1]
            if driver.cuDevicePrimaryCtxGetState(device)[2]:
                context = driver.cuDevicePrimaryCtxRetain(device)[1]
                driver.cuCtxPushCurrent(context)
                (status,) = driver.cuCtxSynchronize()
                driver.cuCtxPopCurrent()
                driver.cuDevicePrimaryCtxRelease(device)
                waited = True
                if int(status):
                    failed.append(f"GPU {gpu} had not finished and could not be waited for: {status.name}")
    finally:
        driver.cuThreadExchangeStreamCaptureMode(before)
    return waited, failed
