"""Kineto's Chrome JSON, as PyTorch's profiler writes it: the names that its reader and its writer share.

A time is in µs, with three decimals, after ``baseTimeNanoseconds``. An event of ours has Kineto's own names for what Kineto knows, and
names that begin with `OURS` for the rest. The key ``streamscope`` beside ``traceEvents`` marks a file of ours. It holds the `TraceInfo`,
the `Origins`, and the lanes: of each track its lane, and ``pid`` and ``tid`` of its events. It also says how long before its zero the trace
begins. Times in the file count from there, since programs drop events before 0.
"""

from __future__ import annotations

from streamscope.trace.spans import SpanKind

OURS = "streamscope"
EVENTS = "traceEvents"
HOST_PID, DEVICE_PID = 1, 0

RUNTIME, DRIVER = "cuda_runtime", "cuda_driver"
CATEGORIES = {
    SpanKind.LAUNCH: RUNTIME,
    SpanKind.GRAPH_LAUNCH: RUNTIME,
    SpanKind.EVENT: RUNTIME,
    SpanKind.SYNC: RUNTIME,
    SpanKind.API: RUNTIME,
    SpanKind.HOST: "cpu_op",
    SpanKind.COMPILE: "overhead",
    SpanKind.RANGE: "user_annotation",
    SpanKind.KERNEL: "kernel",
    SpanKind.COPY: "gpu_memcpy",
    SpanKind.SET: "gpu_memset",
    SpanKind.GRAPH: "gpu_user_annotation",
}
"""Category of each kind of span. A call whose name begins with ``cu``, but not with ``cuda``, is of the driver."""

CALLS = {SpanKind.KERNEL: "cudaLaunchKernel", SpanKind.COPY: "cudaMemcpyAsync", SpanKind.SET: "cudaMemsetAsync"}
"""What a launch is called, by what it put on the device, where its own name is not that of a call."""
GRAPH_CALL = "cudaGraphLaunch"
PREFIXES = {SpanKind.COPY: "Memcpy", SpanKind.SET: "Memset"}
"""How names of copies and sets begin: programs tell them from kernels by that."""
assert set(CATEGORIES) == set(SpanKind)

FLOW, WAIT = "ac2g", "streamscope wait"
"""Categories of arrows: from a call to what it put on the device; from what was waited for to what waited."""


def ours(column: str) -> str:
    """Return the name of an argument that only we write."""
    return f"{OURS} {column}"
