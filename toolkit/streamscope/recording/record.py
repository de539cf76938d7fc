"""Recording any CUDA code: ``with ss.record() as recording: …``, then ``recording.trace``."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from numbers import Real
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from streamscope.analysis.launches import missing_records
from streamscope.arguments import given_path, shown, whole_number
from streamscope.errors import RecordingError, RecordingWarning
from streamscope.formats.metadata import host_info
from streamscope.interrupts import deferred
from streamscope.recording.activity_records import ActivityRecords
from streamscope.recording.counting import HostTimes
from streamscope.recording.launch_lines import LaunchLines
from streamscope.recording.memory import MEMORY, AllocatorHistories, given_back_in_pause, recorded_memory
from streamscope.recording.pauses import Piece, said_without_pauses, without_pauses
from streamscope.recording.ranks import ALONE, check_file_name, file_of_rank, rank_here
from streamscope.recording.recorded_trace import CodeBlock, recorded_trace
from streamscope.recording.ring import launched_since, needed
from streamscope.recording.subscription import CALLS, NO_GPU_HINT, WORK, subscription
from streamscope.trace.info import DeviceInfo
from streamscope.trace.trace import Trace
from streamscope.words import time_text

KINDS = (*WORK, *CALLS, "SYNCHRONIZATION", "CUDA_EVENT", "OVERHEAD", "MARKER", "MARKER_DATA")
_LONGEST_S = 1e9
"""Seconds of ``last=``: times are 64 bits of ns."""
_NO_MEMORY = (1, 500)
"""CUDA_ERROR_INVALID_VALUE and CUDA_ERROR_NOT_FOUND: there is no memory at an address."""
TAKEN_OVER = "another profiler took CUPTI over while this recorded: what ran from then on is missing"


class Recording:
    """A recording of the block of a ``with`` statement; see `record`.

    Attributes
    ----------
    name : str
    gpu : int, optional
        Whose work is kept; that of all GPUs where None.
    path : Path, optional
        The file that the trace is written to; from the beginning of the block on, with the number of the rank.
    """

    def __init__(
        self,
        name: str,
        gpu: int | None,
        path: Path | None = None,
        last_ns: int | None = None,
        lines: LaunchLines | None = None,
        *,
        memory: bool = False,
    ) -> None:
        self.name = name
        self.gpu = gpu
        self.path = path
        self._last_ns = last_ns
        self._lines = lines
        self._kinds = (*KINDS, MEMORY) if memory else KINDS
        self._histories: AllocatorHistories | None = None
        self._state = "not begun"
        self._why = RecordingError(f"the recording {name!r} has not ended", hint="read recording.trace behind the with block")
        self._trace: Trace | None = None
        self._rank = ALONE
        self._open: AbstractContextManager[list[ActivityRecords]] | None = None
        self._records: list[ActivityRecords] = []
        self._pieces: list[Piece] = []
        self._start_ns = 0
        self._said: HostTimes | None = None
        self._obstacles: list[str] = []

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

    def pause(self) -> None:
        """Stop recording until `resume`; what runs in between is not kept.

        It waits for the GPUs first, since all that was launched before belongs to the recording. The pause is cut out of the trace: times
        behind it are earlier by its length, and a note says how long it was. CUPTI leaves the process meanwhile.

        Raises
        ------
        RecordingError
            The block has not begun, or has ended, or is paused; or CUPTI failed.

        Examples
        --------
        You need a GPU to record anything::

            with ss.record("epoch") as recording:
                for batch in batches:
                    step(batch)
                    recording.pause()
                    evaluate()             # not in the trace
                    recording.resume()
        """
        self._check_is("recording", "pause")
        with deferred():
            try:
                self._end()
            except Exception as failure:
                self._failed(failure)
                raise
            self._state = "paused"

    def resume(self) -> None:
        """Go on recording after `pause`. It waits for the GPUs first, so that nothing of the pause runs into the trace.

        Raises
        ------
        RecordingError
            The recording is not paused, or CUPTI refuses. What was recorded before the pause is kept.
        """
        self._check_is("paused", "resume")
        _waited_for_gpus()
        if self._histories is not None:
            self._pieces = given_back_in_pause(self._pieces, _is_held)
        self._begin()

    def __repr__(self) -> str:
        return f"<recording {self.name!r}: {self._state}>"

    def __enter__(self) -> Self:
        if self._state != "not begun":
            raise RecordingError(f"the recording {self.name!r} was used before", hint="write with ss.record(...) for each block")
        if self.path is not None:
            self._rank = rank_here()
            self.path = file_of_rank(self.path, self._rank)
        else:
            with suppress(RecordingError):  # Only the name of a file needs to know.
                self._rank = rank_here()
        with deferred():
            if MEMORY in self._kinds:
                self._histories = AllocatorHistories(_gpus_in_use(), self._last_ns)
        try:
            self._begin()
        except BaseException:
            self._stop_histories()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        notes = [f"the block ended with {kind.__name__}"] if kind is not None else []
        with deferred():
            try:
                if self._state == "recording":
                    self._end()
                if self._state != "failed":
                    self._found(notes)
                    self._write()
            except Exception as failure:
                if self._trace is None:
                    self._failed(failure)
                if error is None:
                    raise
                error.add_note(f"and its recording failed: {failure}")  # The user's error comes first.
            finally:
                self._stop_histories()

    def _check_is(self, state: str, verb: str) -> None:
        if self._state != state:
            raise RecordingError(f"cannot {verb}: {self!r}", hint="call pause() and then resume(), inside the with block")

    def _failed(self, failure: Exception) -> None:
        self._state = "failed"
        self._why = RecordingError(f"the recording {self.name!r} failed: {failure}")

    def _stop_histories(self) -> None:
        histories, self._histories = self._histories, None
        if histories is not None:
            histories.stop()

    def _begin(self) -> None:
        before = self._state
        try:
            with deferred():
                opened = subscription().recording(self._kinds, last_ns=self._last_ns)
                self._records = opened.__enter__()
                self._open, self._state = opened, "recording"
                self._said = HostTimes(subscription().now_ns, self._last_ns)
                if self._lines is not None:
                    self._lines.start()
                self._start_ns = subscription().now_ns()
                if self._histories is not None:
                    self._histories.window.begin()
        except BaseException:  # Ctrl-C, too, which waited until now
            self._close()
            self._state = before
            raise

    def _end(self) -> None:
        """Wait for the GPUs, and take the records since the beginning, or since the last pause."""
        if self._lines is not None:
            self._lines.stop()
        if self._said is not None:
            self._said.stop()
        if self._histories is not None:
            self._histories.window.end()
        end_ns = waited_ns = subscription().now_ns()  # Before the waits, which are ours and not the block's.
        try:
            waited, unfinished = _waited_for_gpus()
            waited_ns = subscription().now_ns()
            said, self._said = self._said, None
            heard = None if said is None else said.end()
        finally:
            self._close()
        (records,) = self._records
        if self._lines is not None and said is not None:
            records.calls["site"] = self._lines.sites_of(records.calls["thread"], records.calls["start_ns"], said.moved)
        self._obstacles += unfinished
        if waited and not (records.calls["start_ns"] >= end_ns).any():  # not even our own wait
            self._obstacles.append(TAKEN_OVER)
            warnings.warn(TAKEN_OVER, RecordingWarning, stacklevel=3)
        self._pieces.append(Piece(records, self._start_ns, end_ns, waited_ns, heard))
        if self._last_ns is not None:
            self._pieces = needed(self._pieces, self._last_ns)

    def _close(self) -> None:
        opened, self._open = self._open, None
        said, self._said = self._said, None
        if self._lines is not None:
            self._lines.stop()
        if said is not None:  # It could not begin, or end.
            said.stop()
        if opened is not None:
            opened.__exit__(None, None, None)

    def _found(self, notes: Sequence[str]) -> None:
        """Make the trace of the records."""
        records, end_ns, pauses = without_pauses(self._pieces, self._last_ns)
        start_ns = whole_ns = self._pieces[0].start_ns
        ring = []
        if self._last_ns is not None and end_ns - self._last_ns > start_ns:
            start_ns = end_ns - self._last_ns
            records, whole_ns, said = launched_since(records, start_ns)
            ring = [f"only the last {time_text(self._last_ns)} are kept: {said}"]
        memory = None
        if self._histories is not None:
            memory = recorded_memory(records, self._pieces, self._histories.end())
            ring += self._histories.said
            ring += ["memory of the driver's that no pool took is known from then on only"] if whole_ns > self._pieces[0].start_ns else []
        notes = [*notes, *ring, *pauses, *self._obstacles]
        gpus = np.unique(records.work["gpu"]).tolist()
        kept = gpus if self.gpu is None else [self.gpu] if self.gpu in gpus else []
        if not kept:
            others = ", ".join(f"GPU {other}" for other in gpus)
            where, hint = (f"GPU {self.gpu}", f"work ran on {others}") if others else ("a GPU", None)
            self._state = "nothing"
            self._why = RecordingError(f"nothing ran on {where} in the recording {self.name!r}", hint="; ".join(notes) or hint)
            return
        block = CodeBlock(self.name, start_ns, end_ns, self.gpu, None if self._last_ns is None else whole_ns)
        device = host_info({gpu: device_info(gpu) for gpu in kept})
        noted = said_without_pauses(self._pieces, start_ns)
        call_name = subscription().call_name
        clock_ns = None if len(self._pieces) > 1 else 0  # Behind a pause that is cut out, times are no longer CUPTI's.
        self._trace = recorded_trace(
            records, block, device, call_name, notes, rank=self._rank, noted=noted, lines=self._lines, memory=memory, clock_ns=clock_ns
        )
        self._state = f"{len(self._trace.spans):,} spans"
        if records.dropped or missing_records(self._trace.spans).calls:
            warnings.warn(f"the recording {self.name!r} is not whole: {'; '.join(self._trace.info.notes)}", RecordingWarning, stacklevel=3)

    def _write(self) -> None:
        if self.path is None:
            return
        if self._trace is None:
            warnings.warn(f"{self.path} is not written: {self._why}", RecordingWarning, stacklevel=3)
        else:
            self._trace.to_parquet(self.path)


def record(
    name: str = "recording",
    *,
    gpu: int | None = None,
    path: str | Path | None = None,
    last: float | None = None,
    stacks: bool = False,
    memory: bool = False,
) -> Recording:
    """Record the CUDA work of a block of code, whichever library it uses.

    Kernels, copies and sets on all GPUs, each node of a graph among them; calls of the CUDA runtime and driver, by all threads; NVTX
    ranges; values of `counter` and moments of `marker`. At the end of the block, it waits for the GPUs. A recorded call takes about a
    microsecond longer. Calls that only query CUDA are left out.

    Parameters
    ----------
    name : str
        Name of the trace.
    gpu : int, optional
        Whose work is kept, by CUDA's number; that of all GPUs by default. A note counts the work of other GPUs.
    path : str or Path, optional
        Parquet file that the trace is written to when the block ends. Where torchrun, srun or mpirun started several processes, each
        writes its own: ``{rank}`` in the path stands for the number of the process, 0 without them. A file of the same rank that
        Streamscope wrote is replaced.
    last : float, optional
        Keep only so many seconds before the end, so that the memory stays bounded however long the block takes. Records come back in
        buffers, and a buffer is dropped when all in it is older. Whatever was launched earlier is left out; a note says so, and
        ``trace.info.ledger["whole_from_ns"]`` says from when on the GPUs' lanes are whole. Pauses do not count.
    stacks : bool
        Also record which line of your own code made each launch call, and the functions and modules around it: ``trace.sites``, `by_code`
        and `call_tree`. It needs Python 3.12 or later. Each line of yours takes up to a microsecond longer; code of libraries, and
        Python's own, does not.
        ``trace.info.ledger["lines_ns"]`` is about how long that took in all. Kernels of PyTorch's backward pass are launched by a thread
        without Python, so their line is unknown.
    memory : bool
        Also record which memory is held, from when to when: ``trace.memory``. Blocks that PyTorch and CuPy lend, with your line that took
        each, segments that they take from the driver, and what else the driver gives. Both are asked for their own history, so an
        allocation takes some microseconds longer. CuPy tells of the thread that begins the recording.

    Returns
    -------
    Recording
        Its ``trace`` is there when the block has ended, even by an exception or Ctrl-C. Inside, ``pause()`` and ``resume()`` leave out
        a part of it.

    Raises
    ------
    RecordingError
        When the block is entered: CUPTI is missing or not permitted, another profiler holds it, or there is no GPU; ``path`` is given,
        and has no ``{rank}`` although there are several, or which one this is cannot be told; of ``stacks``, all of Python's tools
        for profilers are taken. At once: an argument is wrong, or Python is too old for ``stacks``.
    OutputError
        When the block is entered: ``path`` cannot be written, or is there and is no trace of the same rank. When it ends: writing failed.

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
    file = None if path is None else given_path(path, error=RecordingError)
    if file is not None:
        check_file_name(file)
    for what, value in (("stacks", stacks), ("memory", memory)):
        if not isinstance(value, bool):
            raise RecordingError(f"{what}={shown(value)} must be True or False")
    last_ns = None if last is None else _last_ns(last)
    return Recording(name, gpu, file, last_ns, LaunchLines(last_ns) if stacks else None, memory=memory)


def _last_ns(last: object) -> int:
    if isinstance(last, bool) or not isinstance(last, Real) or not 0 < float(last) < _LONGEST_S:
        raise RecordingError(f"last={shown(last)} must be a number of seconds above 0", hint="for example ss.record(last=10.0)")
    return max(1, round(float(last) * 1e9))


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


def _gpus_in_use() -> list[int]:
    """Return the numbers of the GPUs that the process has begun to use."""
    driver = _driver()
    gpus = range(int(driver.cuDeviceGetCount()[1]))
    return [gpu for gpu in gpus if driver.cuDevicePrimaryCtxGetState(driver.cuDeviceGet(gpu)[1])[2]]


def _is_held(address: int, nbytes: int) -> bool:
    """Tell whether memory of the driver's begins at an address and has so many bytes, as far as the driver tells."""
    status, start, size = _driver().cuMemGetAddressRange(address)
    if int(status):
        return int(status) not in _NO_MEMORY  # Without a context of this thread's, it tells nothing.
    return (int(start), int(size)) == (address, nbytes)


def _waited_for_gpus() -> tuple[bool, list[str]]:
    """Wait for all GPUs that the process uses; return whether there are any, and the obstacle if it cannot.

    The records of running work would have no end. CUDA does not wait while a stream is captured, and breaks the capture.
    """
    driver = _driver()
    relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    _, before = driver.cuThreadExchangeStreamCaptureMode(relaxed)
    waited, failed = False, []
    try:
        for gpu in _gpus_in_use():
            device = driver.cuDeviceGet(gpu)[1]
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
