# ruff: noqa: N802 - the names are those of CUPTI
"""A CUPTI of Python: what the subscription asks of cupti-python and of the library, with records that a test makes up."""

from __future__ import annotations

import ctypes
from enum import IntEnum
from types import SimpleNamespace

import numpy as np

API = np.dtype([("kind", "i4"), ("cbid", "u4"), ("start", "u8"), ("end", "u8"), ("process_id", "u4"), ("thread_id", "u4"),
                ("correlation_id", "u4"), ("return_value", "u4")])  # fmt: skip
_PLACE = [("device_id", "u4"), ("context_id", "u4"), ("stream_id", "u4"), ("correlation_id", "u4"), ("graph_node_id", "u8")]
KERNEL = np.dtype([("kind", "i4"), ("pad", "u4"), ("start", "u8"), ("end", "u8"), *_PLACE, ("name", "i8"),
                   *((f"{what}_{axis}", "i4") for what in ("grid", "block") for axis in "xyz")])  # fmt: skip
MEMCPY = np.dtype([("kind", "i4"), ("copy_kind", "u1"), ("pad", "u1", (3,)), ("bytes", "u8"), ("start", "u8"), ("end", "u8"), *_PLACE])
PEER = np.dtype([("kind", "i4"), ("copy_kind", "u1"), ("pad", "u1", (3,)), ("bytes", "u8"), ("start", "u8"), ("end", "u8"), *_PLACE,
                 ("src_device_id", "u4"), ("dst_device_id", "u4")])  # fmt: skip
MEMSET = np.dtype([("kind", "i4"), ("value", "u4"), ("bytes", "u8"), ("start", "u8"), ("end", "u8"), *_PLACE])
OBJECT = np.dtype([("pt", [("process_id", "u4"), ("thread_id", "u4")]), ("pad", "u4")])
MARKER = np.dtype([("kind", "i4"), ("flags_", "i4"), ("timestamp", "u8"), ("id", "u4"), ("object_kind", "i4"), ("object_id", OBJECT),
                   ("pad", "u4"), ("name", "i8"), ("domain", "i8")])  # fmt: skip
MARKER_DATA = np.dtype([("kind", "i4"), ("flags_", "i4"), ("id", "u4"), ("payload_kind", "i4"),
                        ("payload", [("metric_value_uint64", "u8")]), ("color", "u4"), ("category", "u4")])  # fmt: skip
OVERHEAD = np.dtype([("kind", "i4"), ("overhead_kind", "i4"), ("object_kind", "i4"), ("object_id", OBJECT), ("start", "u8"), ("end", "u8")])
SYNCHRONIZATION = np.dtype([("kind", "i4"), ("type", "i4"), ("start", "u8"), ("end", "u8"), ("correlation_id", "u4"), ("context_id", "u4"),
                            ("stream_id", "u4"), ("pad", "u4"), ("cuda_event_sync_id", "u8")])  # fmt: skip
CUDA_EVENT = np.dtype([("kind", "i4"), ("correlation_id", "u4"), ("context_id", "u4"), ("stream_id", "u4"), ("cuda_event_sync_id", "u8")])


MEMORY = np.dtype([("kind", "i4"), ("memory_operation_type", "i4"), ("memory_kind", "i4"), ("correlation_id", "u4"), ("address", "u8"),
                   ("bytes", "u8"), ("timestamp", "u8"), ("pc", "u8"), ("process_id", "u4"), ("device_id", "u4"), ("context_id", "u4"),
                   ("stream_id", "u4"), ("name", "i8"), ("is_async", "u4"), ("pad1", "u4"),
                   ("memory_pool_config", [("memory_pool_type", "i4"), ("pad2", "u4"), ("address", "u8"), ("release_threshold", "u8"),
                                           ("pool", [("size_", "u8")]), ("utilized_size", "u8")]), ("source", "i8")])  # fmt: skip


class ActivityKind(IntEnum):
    MEMCPY = 1
    MEMSET = 2
    DRIVER = 4
    RUNTIME = 5
    CONCURRENT_KERNEL = 10
    MARKER = 12
    MARKER_DATA = 13
    OVERHEAD = 17
    MEMCPY2 = 22
    CUDA_EVENT = 36
    SYNCHRONIZATION = 38
    MEMORY2 = 49


Runtime = IntEnum(
    "Runtime",
    {
        "cudaLaunchKernel_v7000": 1,
        "cudaGraphLaunch_v10000": 2,
        "cudaStreamBeginCapture_v10000": 3,
        "cudaStreamEndCapture_v10000": 4,
        "cudaMemcpyAsync_v3020": 5,
        "cudaGetDevice_v3020": 6,
        "cudaMalloc_v3020": 7,
        "cudaEventRecord_v3020": 8,
        "cudaStreamWaitEvent_v3020": 9,
        "cudaStreamSynchronize_v3020": 10,
    },
)


Driver = IntEnum(
    "Driver",
    {
        "cuDriverGetVersion": 3,
        "cuLaunchKernel": 1,
        "cuCtxSynchronize": 2,
    },
)


DTYPES = {"kernel": KERNEL, "memcpy": MEMCPY, "memcpy_pto_p": PEER, "memset": MEMSET, "api": API, "marker": MARKER,
          "marker_data": MARKER_DATA, "overhead": OVERHEAD, "synchronization": SYNCHRONIZATION, "cuda_event": CUDA_EVENT,
          "memory": MEMORY}  # fmt: skip
OF_KIND = {
    ActivityKind.MEMCPY: MEMCPY, ActivityKind.MEMCPY2: PEER, ActivityKind.MEMSET: MEMSET, ActivityKind.DRIVER: API,
    ActivityKind.RUNTIME: API, ActivityKind.CONCURRENT_KERNEL: KERNEL, ActivityKind.MARKER: MARKER,
    ActivityKind.MARKER_DATA: MARKER_DATA, ActivityKind.OVERHEAD: OVERHEAD,
    ActivityKind.CUDA_EVENT: CUDA_EVENT, ActivityKind.SYNCHRONIZATION: SYNCHRONIZATION,
    ActivityKind.MEMORY2: MEMORY,
}  # fmt: skip

CUPTI = SimpleNamespace(
    __version__="13.0.1",
    ActivityKind=ActivityKind,
    runtime_api_trace_cbid=Runtime,
    driver_api_trace_cbid=Driver,
    **{f"activity_{name}7_dtype": dtype for name, dtype in DTYPES.items()},
    activity_kernel6_dtype=np.dtype([("kind", "i4"), ("other", "u4")]),  # an older version of the structure
)


def record(kind: ActivityKind, **fields) -> bytes:
    """Return the bytes of one record; ``thread`` is the thread of a marker or an overhead, ``pool`` address and size of a memory pool."""
    row = np.zeros((), OF_KIND[kind])
    row["kind"] = kind
    if (pool := fields.pop("pool", None)) is not None:
        row["memory_pool_config"]["address"], row["memory_pool_config"]["pool"]["size_"] = pool
    thread = fields.pop("thread", None)
    for name, value in fields.items():
        row[name] = value
    if thread is not None:
        row["object_id"]["pt"]["thread_id"] = thread
    return row.tobytes()


class Library:
    """The functions of libcupti that the subscription calls. Records that a test appends come back in buffers, some a buffer."""

    def __init__(self, in_a_buffer: int = 3) -> None:
        self.records: list[bytes] = []
        self.enabled: list[int] = []
        self.left_out: set[tuple[str, int]] = set()
        self.refusals: dict[str, int] = {}
        self.dropped = 0
        self.now = 1_000
        self._in_a_buffer = in_a_buffer
        self._callbacks: tuple = ()
        self.attached = 0
        self._subscriber = None
        self._told_of: set[tuple[int, int]] = set()

    def ask_version(self) -> None:
        """A call of CUDA's driver, of which CUPTI tells its subscriber."""
        if self._subscriber is not None and (1, Driver.cuDriverGetVersion) in self._told_of:
            for site in (0, 1):
                if self._subscriber is not None:
                    self._subscriber(None, 1, Driver.cuDriverGetVersion, ctypes.pointer(ctypes.c_int(site)))

    def cuptiSubscribe(self, subscriber, callback, _user) -> int:
        if status := self.refusals.get("cuptiSubscribe", 0):
            return status
        if self._subscriber is not None:
            return 39
        subscriber._obj.value, self._subscriber = 1, callback
        return 0

    def cuptiEnableCallback(self, enable: int, _subscriber, domain: int, call: int) -> int:
        self._told_of.add((domain, call))
        return self.refusals.get("cuptiEnableCallback", 1 - enable)

    def cuptiFinalize(self) -> int:
        assert not self.enabled
        self.attached, self._subscriber = 0, None
        return 0

    def cuptiUnsubscribe(self, _subscriber) -> int:
        self._subscriber = None
        return 0

    def cuptiGetTimestamp(self, stamp) -> int:
        self.now += 10
        stamp._obj.value = self.now
        return 0

    def cuptiActivityRegisterCallbacks(self, *callbacks) -> int:
        self._callbacks, self.attached = callbacks, 1
        return self.refusals.get("cuptiActivityRegisterCallbacks", 0)

    def cuptiActivitySetAttribute(self, *_) -> int:
        return 0

    def cuptiSetThreadIdType(self, _) -> int:
        return 0

    def cuptiActivityRegisterTimestampCallback(self, function: ctypes.c_void_p) -> int:
        assert not self.enabled
        self.clock = ctypes.CFUNCTYPE(ctypes.c_uint64)(function.value)
        return 0

    def cuptiActivityEnable(self, kind: int) -> int:
        status = self.refusals.get(f"cuptiActivityEnable {kind}", 0)
        if not status:
            self.enabled.append(kind)
        return status

    def cuptiActivityDisable(self, kind: int) -> int:
        self.enabled.remove(kind)
        return 0

    def cuptiActivityEnableRuntimeApi(self, call: int, enable: int) -> int:
        self._leave_out(("runtime", call), enable)
        return 0

    def cuptiActivityEnableDriverApi(self, call: int, enable: int) -> int:
        self._leave_out(("driver", call), enable)
        return 0

    def _leave_out(self, call: tuple[str, int], enable: int) -> None:
        (self.left_out.discard if enable else self.left_out.add)(call)

    def cuptiActivityFlushAll(self, _: int) -> int:
        requested, completed = self._callbacks
        records, self.records = self.records, []
        for first in range(0, len(records), self._in_a_buffer):
            content = b"".join(records[first : first + self._in_a_buffer])
            buffer, size, most = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
            requested(ctypes.byref(buffer), ctypes.byref(size), ctypes.byref(most))
            ctypes.memmove(buffer.value, content, len(content))
            completed(None, 0, buffer.value, size.value, len(content))
        return self.refusals.get("cuptiActivityFlushAll", 0)

    def cuptiActivityGetNumDroppedRecords(self, _context, _stream, dropped) -> int:
        dropped._obj.value, self.dropped = self.dropped, 0
        return 0

    def cuptiActivityGetNextRecord(self, base, length, record) -> int:
        kind = ctypes.c_int32.from_address(record._obj.value).value
        following = record._obj.value + OF_KIND[ActivityKind(kind)].itemsize
        if following >= base.value + length.value:
            return 12
        record._obj.value = following
        return 0

    def cuptiGetResultString(self, status: int, text) -> int:
        text._obj.value = f"CUPTI_ERROR_{status}".encode()
        return 0


TEXTS: list[ctypes.Array] = []


def text(content: bytes) -> int:
    """Return the address of a text that stays."""
    TEXTS.append(ctypes.create_string_buffer(content))
    return ctypes.addressof(TEXTS[-1])


def launch(
    library, name=b"_Z4axpyPf", *, correlation, stream=7, gpu=0, thread=11, node=0, call=Runtime.cudaLaunchKernel_v7000, kernel=True
):
    """Append a launch and its kernel."""
    start = library.now
    library.now += 100
    library.records.append(
        record(ActivityKind.RUNTIME, cbid=call, start=start, end=start + 20, thread_id=thread, correlation_id=correlation)
    )
    if kernel:
        library.records.append(
            record(ActivityKind.CONCURRENT_KERNEL, start=start + 30, end=start + 90, correlation_id=correlation, device_id=gpu,
                   stream_id=stream, graph_node_id=node, name=text(name), grid_x=4, grid_y=2, grid_z=1, block_x=32, block_y=1, block_z=2)
        )  # fmt: skip


def call(library, which, *, correlation=0, thread=11, **fields):
    library.records.append(
        record(
            ActivityKind.RUNTIME, cbid=which, start=library.now, end=library.now + 5, thread_id=thread, correlation_id=correlation, **fields
        )
    )
    library.now += 10


def rows(trace, *kinds):
    """Return the spans of some kinds as a DataFrame."""
    frame = trace.to_pandas()
    return frame[frame.kind.isin([kind.name.lower() for kind in kinds])]
