"""The process's one subscription to CUPTI: found, asked for records, and left switched off whatever happens.

CUPTI's buffers are taken whole, by ctypes: Python runs twice a buffer, not once a record. cupti-python says where in a record which field
lies.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.errors import RecordingError
from streamscope.interrupts import Again, CalledByC, deferred
from streamscope.kernels.library.libraries import driver_version, has_driver
from streamscope.recording.activity_records import STRUCTURES, ActivityRecords, layouts_of, may_have_payloads
from streamscope.recording.recorders import STAYS

WORK = ("CONCURRENT_KERNEL", "MEMCPY", "MEMCPY2", "MEMSET")
CALLS = ("RUNTIME", "DRIVER")
"""CUPTI's names of device work, and of calls of the host."""
BUFFER_BYTES, _SPARE_BUFFERS = 8 << 20, 2
"""Each holds 38,000 kernels. Those that are spare are in memory before they are asked for, which is in the middle of a user's call."""
NVTX = "NVTX_INJECTION64_PATH"
_PERMISSION_HINT = "run as root, or load the driver with NVreg_RestrictProfilingToAdminUsers=0; see streamscope doctor"
_OTHER_PROFILER_HINT = "another profiler holds CUPTI: end it (torch.profiler, Nsight Systems, DCGM), or restart this process without it"
_HINTS = {7: _OTHER_PROFILER_HINT, 35: _PERMISSION_HINT, 36: _OTHER_PROFILER_HINT, 39: _OTHER_PROFILER_HINT, 40: _PERMISSION_HINT}
_QUERIES = (
    "Get", "Query", "Peek", "Occupancy", "IsCapturing", "SetDevice", "SetCurrent", "PushCurrent", "PopCurrent", "SetAttribute",
    "ExchangeStreamCaptureMode", "TensorMapEncode", "EventCreate", "EventDestroy", "CallConfiguration",
)  # fmt: skip
"""In names of calls that only ask, or only touch the host's memory. They are not recorded: PyTorch makes ten of them for each kernel."""
_ZEROED_BUFFERS = 5  # CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER
_NO_MORE = 12  # CUPTI_ERROR_MAX_LIMIT_REACHED
_MOST_PAYLOAD_BYTES = 1 << 16
"""Larger ones, or of unknown size, are not read: NCCL's have 16 to 40 bytes."""
_SYSTEM_THREAD_IDS = 1  # CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM
_REQUESTED = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t))
_CALLED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.POINTER(ctypes.c_int))
_DRIVER_API, _AT_EXIT = 1, 1  # CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_API_EXIT
_COMPLETED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)

_Bytes = npt.NDArray[np.uint8]


class Subscription:
    """CUPTI, as one process uses it: one recording at a time.

    ``library`` is the CUPTI that cupti-python has loaded. ``ask_version`` calls ``cuDriverGetVersion``, at the end of which CUPTI can
    leave. While CUPTI is `attached`, the process launches more slowly, graphs above all.
    """

    def __init__(self, cupti: Any, library: ctypes.CDLL, ask_version: Callable[[], object]) -> None:
        self.cupti = cupti
        self._library = library
        self._ask_version = ask_version
        self._layouts = layouts_of(cupti, {structure: _dtype(cupti, structure) for structure in STRUCTURES})
        self._queries = [
            (switch, int(call))
            for switch, calls in (
                ("cuptiActivityEnableRuntimeApi", cupti.runtime_api_trace_cbid),
                ("cuptiActivityEnableDriverApi", cupti.driver_api_trace_cbid),
            )
            for call in calls
            if is_query(call.name)
        ]
        self._spare: list[npt.NDArray[np.uint64]] = []
        self._held: dict[int, npt.NDArray[np.uint64]] = {}
        self._filled: dict[int, _Bytes] = {}
        self._done_ns: dict[int, int] = {}
        """When each came back, if only the last `_last_ns` are kept."""
        self._last_ns: int | None = None
        self._ctrl_c = CalledByC(Subscription._request, Subscription._complete)
        self._set_variable = False
        self._queries_off = False
        self._callbacks = _REQUESTED(self._request), _COMPLETED(self._complete)
        self._recording = threading.Lock()
        self._subscriber: ctypes.c_void_p | None = None
        self._leaving = False
        self._told = _CALLED(self._called)
        self.attached = False

    def now_ns(self) -> int:
        """Return the time on CUPTI's clock."""
        stamp = ctypes.c_uint64()
        self._library.cuptiGetTimestamp(ctypes.byref(stamp))
        return stamp.value

    def call_name(self, code: int, number: int) -> str:
        """Return the name of a function of the CUDA runtime (code 1) or driver (0): ``"cudaLaunchKernel"``."""
        names = self.cupti.runtime_api_trace_cbid if code else self.cupti.driver_api_trace_cbid
        try:
            name = names(number).name
        except ValueError:
            return f"call {number} of the CUDA {'runtime' if code else 'driver'}"
        return re.sub(r"(_v\d+|_ptsz|_ptds)+$", "", name)

    @contextmanager
    def recording(self, kinds: Sequence[str], *, beside_others: bool = True, last_ns: int | None = None) -> Iterator[list[ActivityRecords]]:
        """Record the process's GPU work in the block; the list then holds the records, even if the block raises.

        ``kinds`` are names of CUPTI's kinds of activity, for example ``"CONCURRENT_KERNEL"``. CUPTI hands out a record once: where another
        profiler has subscribed, this takes its records, or refuses unless ``beside_others``. With ``last_ns``, buffers that came back
        longer ago are dropped as others come back.
        """
        chosen = [int(self.cupti.ActivityKind[kind]) for kind in kinds]
        found: list[ActivityRecords] = []
        self._begin(chosen, beside_others=beside_others, last_ns=last_ns)
        try:
            yield found
        finally:
            with deferred():
                try:
                    found.append(self._end(chosen))
                finally:
                    self._recording.release()
                    self._ctrl_c.end()

    def _begin(self, kinds: Sequence[int], *, beside_others: bool, last_ns: int | None) -> None:
        _refuse_beside_torch()
        if not self._recording.acquire(blocking=False):
            raise RecordingError("a recording by CUPTI is under way in this process", hint="end it first; recordings cannot be nested")
        with deferred():
            enabled: list[int] = []
            self._last_ns = last_ns
            self._ctrl_c.begin()
            try:
                while len(self._spare) < _SPARE_BUFFERS:
                    self._spare.append(_buffer(touched=True))
                self._attach(beside_others=beside_others)
                # Ours are zeros (`_buffer`): CUPTI need not clear them in the middle of a user's call.
                flag, size = ctypes.c_uint8(1), ctypes.c_size_t(1)
                self._library.cuptiActivitySetAttribute(_ZEROED_BUFFERS, ctypes.byref(size), ctypes.byref(flag))
                self._library.cuptiSetThreadIdType(_SYSTEM_THREAD_IDS)
                # PyTorch's profiler leaves a clock that counts cycles, and sets it anew when it needs it.
                with suppress(OSError, AttributeError):  # Without that library there is no such profiler, either.
                    self._library.cuptiActivityRegisterTimestampCallback(_real_time())
                if NVTX not in os.environ and (path := _loaded_path()):
                    os.environ[NVTX] = path
                    self._set_variable = True
                for kind in kinds:
                    self._check("cuptiActivityEnable", kind)
                    enabled.append(kind)
                self._record_queries(enable=False)
            except BaseException:
                self._leave(enabled)
                self._recording.release()
                self._ctrl_c.end()
                raise

    def _end(self, kinds: Sequence[int]) -> ActivityRecords:
        """Take the records there are, and switch CUPTI off."""
        dropped = ctypes.c_size_t()
        try:
            self._check("cuptiActivityFlushAll", 1)
            self._library.cuptiActivityGetNumDroppedRecords(None, 0, ctypes.byref(dropped))
            filled, self._filled, self._done_ns = self._filled, {}, {}
            return ActivityRecords.decoded(filled.values(), self._layouts, self._size_at, _text_at, _payload_at, dropped.value)
        finally:
            self._leave(kinds)

    def _leave(self, kinds: Sequence[int]) -> None:
        """Leave the process as it was."""
        if self._queries_off and self._subscriber is None:  # Another profiler keeps CUPTI: it may want all calls.
            self._record_queries(enable=True)
        for kind in kinds:
            self._library.cuptiActivityDisable(kind)
        self._detach()
        if self._set_variable:
            os.environ.pop(NVTX, None)  # Processes that are started from here would load CUPTI.
            self._set_variable = False

    def _record_queries(self, *, enable: bool) -> None:
        for switch, call in self._queries:
            getattr(self._library, switch)(call, int(enable))
        self._queries_off = not enable

    def _attach(self, *, beside_others: bool) -> None:
        """Become CUPTI's subscriber, which only one can be; where another is, its activities can be had all the same."""
        subscriber = ctypes.c_void_p()
        if not self._library.cuptiSubscribe(ctypes.byref(subscriber), self._told, None):
            self._subscriber = subscriber
        elif not beside_others:
            raise RecordingError("CUPTI has another subscriber", hint=_OTHER_PROFILER_HINT)
        self.attached = True
        # Each time: another profiler may have put its own in their place.
        self._check("cuptiActivityRegisterCallbacks", *self._callbacks)

    def _detach(self) -> None:
        """Let CUPTI leave the process, which would launch more slowly: it does so at the end of a call of CUDA, which it tells of."""
        subscriber, self._subscriber = self._subscriber, None
        if subscriber is None:
            return
        asked = int(self.cupti.driver_api_trace_cbid.cuDriverGetVersion)
        if not self._library.cuptiEnableCallback(1, subscriber, _DRIVER_API, asked):
            self._leaving = True
            self._ask_version()
            self._leaving = False
        if self.attached:  # It did not leave. At least others may subscribe.
            self._library.cuptiUnsubscribe(subscriber)

    def _called(self, _user: int, _domain: int, _call: int, data: Any) -> None:
        """Be told of a call of CUDA, by CUPTI."""
        if self._leaving and data[0] == _AT_EXIT:
            self._leaving = False
            self.attached = self._library.cuptiFinalize() != 0

    def _check(self, function: str, *arguments: Any) -> None:
        self._succeeded(function, getattr(self._library, function)(*arguments))

    def _succeeded(self, function: str, status: int) -> None:
        if status:
            said = ctypes.c_char_p()
            self._library.cuptiGetResultString(status, ctypes.byref(said))
            name = (said.value or b"").decode() or f"error {status}"
            hint = _HINTS.get(status) or too_new(_version(self.cupti), driver_version()) or "see streamscope doctor"
            raise RecordingError(f"CUPTI refused {function}: {name}", hint=hint)

    def _request(self, buffer: Any, size: Any, most: Any) -> Again | None:
        """Give CUPTI an empty buffer; called by CUPTI, in whichever thread.

        ctypes swallows exceptions here, and CUPTI would write to wherever its pointer leads. So Ctrl-C comes when CUPTI has returned.
        """
        while True:
            try:
                try:
                    memory = self._spare.pop()
                except IndexError:
                    memory = _buffer()
                self._held[memory.ctypes.data] = memory
                buffer[0], size[0], most[0] = memory.ctypes.data, BUFFER_BYTES, 0
            except Exception:  # noqa: BLE001 - no memory: without a buffer, CUPTI drops records, and counts them.
                buffer[0], size[0], most[0] = None, 0, 0
            except BaseException:  # noqa: BLE001 - Ctrl-C, where the recording is another thread's
                self._ctrl_c.arrived = True
                continue
            return self._ctrl_c.again()

    def _complete(self, context: int, stream: int, buffer: int, size: int, valid: int) -> Again | None:
        """Take a buffer back; called by CUPTI, in whichever thread. Ctrl-C waits as above."""
        while True:
            try:
                memory = self._held.get(buffer)
                if memory is not None and valid:
                    if self._last_ns is not None:
                        self._done_ns[buffer] = self.now_ns()
                    # Kept before it is let go: after Ctrl-C between the two, the loop finds it once more.
                    self._filled[buffer] = memory.view(np.uint8)[:valid]
                self._held.pop(buffer, None)
                if self._last_ns is not None:
                    self._drop_before(self.now_ns() - self._last_ns)
            except BaseException:  # noqa: BLE001 - Ctrl-C, where the recording is another thread's
                self._ctrl_c.arrived = True
                continue
            return self._ctrl_c.again()

    def _drop_before(self, edge_ns: int) -> None:
        """Drop the buffers that came back before: all in them had ended by then. Ctrl-C may come anywhere: it is called again."""
        for buffer in list(self._filled):  # a copy, since CUPTI calls in several threads
            if self._done_ns.get(buffer, edge_ns) >= edge_ns:
                return
            # Taken out first: nothing is freed twice.
            content = self._filled.pop(buffer, None)
            self._done_ns.pop(buffer, None)
            if content is not None:
                with suppress(Exception):  # CUPTI swallows them; what is not freed here is small.
                    self._free_payloads(content)

    def _free_payloads(self, content: _Bytes) -> None:
        """Free the payloads of NVTX ranges in a buffer that nobody will read; most buffers have none, which one look at all words tells."""
        kind = int(self.cupti.ActivityKind.MARKER_DATA)
        layout = self._layouts[kind]
        if may_have_payloads(content, kind, layout):
            ActivityRecords.decoded([content], {kind: layout}, self._size_at, _text_at, _payload_at)

    def _size_at(self, buffer: _Bytes, offset: int) -> int:
        """Return the size of a record, which depends on the CUPTI that is in use, by asking it where the next one is."""
        base = buffer.ctypes.data
        record = ctypes.c_void_p(base + offset)
        status = self._library.cuptiActivityGetNextRecord(ctypes.c_void_p(base), ctypes.c_size_t(len(buffer)), ctypes.byref(record))
        if status == _NO_MORE:
            return len(buffer) - offset
        self._succeeded("cuptiActivityGetNextRecord", status)
        return int(record.value or 0) - base - offset


@cache
def _real_time() -> ctypes.c_void_p:
    """Return the address of a function without arguments that tells CLOCK_REALTIME in ns: CUPTI's own clock, in C++ `system_clock::now`."""
    return ctypes.cast(getattr(ctypes.CDLL("libstdc++.so.6"), "_ZNSt6chrono3_V212system_clock3nowEv"), ctypes.c_void_p)  # noqa: B009


def is_query(name: str) -> bool:
    """Tell whether a call of CUDA only asks, or only touches the host's memory; one that loads a kernel does more."""
    return any(word in name for word in _QUERIES) and "ModuleGet" not in name


@cache
def subscription() -> Subscription:
    """Return CUPTI, loaded.

    Raises
    ------
    RecordingError
        cupti-python is missing, or does not fit, or there is no GPU.
    """
    try:
        from cupti import cupti
    except ImportError as error:
        if not has_driver():
            raise RecordingError("there is no NVIDIA GPU here", hint=NO_GPU_HINT) from None
        why, hint = without_cupti(driver_version()[0]) if error.name == "cupti" else (str(error), _INSTALL_HINT)
        raise RecordingError(f"CUPTI cannot be loaded: {why}", hint=hint) from None
    try:
        cupti.get_timestamp()  # This loads the library.
        from cuda.bindings import driver

        return Subscription(cupti, _loaded_library(cupti), driver.cuDriverGetVersion)
    except RecordingError:
        raise
    except Exception as error:
        if not has_driver():
            raise RecordingError("there is no NVIDIA GPU here", hint=NO_GPU_HINT) from error
        hint = too_new(_version(cupti), driver_version()) or NO_GPU_HINT
        raise RecordingError(f"CUPTI does not work here: {error}", hint=hint) from error


_INSTALL_HINT = "pip install cupti-python, of the CUDA version that is in use: cupti-python>=13,<14 for CUDA 13"
NO_GPU_HINT = "record on a machine with an NVIDIA GPU, save with recording.trace.to_parquet(path), and open it here with ss.read(path)"


def without_cupti(cuda: int, python: tuple[int, int] = sys.version_info[:2]) -> tuple[str, str]:
    """Reason and remedy where cupti-python is not installed, for a driver of CUDA ``cuda``."""
    if cuda == 12 and python >= (3, 13):
        return f"NVIDIA made no cupti-python of CUDA 12 for Python 3.{python[1]}", "use Python 3.12 or 3.11, or a driver of CUDA 13"
    wanted = ">=12.8,<13" if cuda == 12 else ">=13.2,<14" if python >= (3, 14) else ">=13.0,<14"  # 13.2: the first for Python 3.14
    return "cupti-python is not installed", f"pip install 'cupti-python{wanted}'"


def too_new(cupti: str, driver: tuple[int, int], python: tuple[int, int] = sys.version_info[:2]) -> str:
    """Hint where CUPTI refuses and is newer than the driver; empty where it is not newer."""
    release = cupti.split(".")[:2]
    if not any(driver) or tuple(map(int, release)) <= driver:
        return ""
    older = " or use Python 3.13, for which there is an older one" if python >= (3, 14) else " or install an older cupti-python"
    return f"cupti-python {'.'.join(release)} is newer than the driver's CUDA {driver[0]}.{driver[1]}: install a newer driver,{older}"


def is_attached() -> bool:
    """Tell whether CUPTI stayed in this process after a recording, so that launches are dearer."""
    return subscription.cache_info().currsize > 0 and subscription().attached


STAYS.append(is_attached)


def _loaded_library(cupti: Any) -> ctypes.CDLL:
    """Return the CUPTI that is loaded, which may be PyTorch's: two in one process would not know of each other."""
    major = int(_version(cupti).split(".")[0])
    return ctypes.CDLL(f"libcupti.so.{major}", mode=os.RTLD_NOW | getattr(os, "RTLD_NOLOAD", 0))


def _loaded_path() -> str:
    """Return the file of the library, which NVTX loads when the process makes its first range."""
    with Path("/proc/self/maps").open(encoding="utf-8") as maps:
        return next((line.split(maxsplit=5)[5].rstrip("\n") for line in maps if "/libcupti.so" in line), "")


def _version(cupti: Any) -> str:
    from importlib import metadata

    return str(cupti.__version__) if hasattr(cupti, "__version__") else metadata.version("cupti-python")


def _dtype(cupti: Any, structure: str) -> np.dtype[Any]:
    """Return the newest layout that cupti-python has of a structure."""
    versions = {int(found[1] or 0): name for name in dir(cupti) if (found := re.fullmatch(rf"activity_{structure}(\d*)_dtype", name))}
    if not versions:
        raise RecordingError(f"cupti-python {_version(cupti)} has no layout for records of {structure}", hint=_INSTALL_HINT)
    newest: np.dtype[Any] = np.dtype(getattr(cupti, versions[max(versions)]))
    return newest


def _buffer(*, touched: bool = False) -> npt.NDArray[np.uint64]:
    """Return an empty buffer, as CUPTI wants it: all zeros."""
    memory = np.zeros(BUFFER_BYTES // 8, np.uint64)
    if touched:
        # A write to each page brings it into memory; `np.zeros` alone only reserves it.
        memory[:: 4096 // 8] = 0
    return memory


def _text_at(address: int) -> str:
    return ctypes.string_at(address).decode(errors="replace")


class _PayloadData(ctypes.Structure):
    """``nvtxPayloadData_t``."""

    _fields_ = (("schema", ctypes.c_uint64), ("size", ctypes.c_size_t), ("payload", ctypes.c_void_p))


def _payload_at(address: int) -> bytes:
    """Return the payload of an NVTX range, which CUPTI copied for us, and free it."""
    data = _PayloadData.from_address(address)
    known = data.payload and data.size <= _MOST_PAYLOAD_BYTES
    content = ctypes.string_at(data.payload, data.size) if known else b""
    free = ctypes.CDLL(None).free
    free(ctypes.c_void_p(data.payload))
    free(ctypes.c_void_p(address))
    return content


def _refuse_beside_torch() -> None:
    """Refuse to record while PyTorch's profiler does, which would take the records, or lose its own."""
    torch = sys.modules.get("torch")
    enabled = getattr(getattr(getattr(torch, "_C", None), "_autograd", None), "_profiler_enabled", None)
    if callable(enabled) and enabled():
        raise RecordingError("PyTorch's profiler is recording", hint="end it first: CUPTI serves one profiler a process")
