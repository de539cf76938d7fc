"""How far GPU busy and overlap may be off, where a trace says how far its kernels' durations may be."""

from __future__ import annotations

import numpy as np

from streamscope.analysis.gpus import of_busiest
from streamscope.analysis.overlap import gpu_busy_ns
from streamscope.trace.spans import SpanKind
from streamscope.trace.trace import Trace


def busy_error_ns(trace: Trace) -> float | None:
    """How far GPU busy may be off.

    Formula: GPU busy * (sum of the errors of all kernels' durations) / (sum of the durations). The recorder says how far one may be off:
    by a time, and by a share of its duration (``kernel_error_ns`` and ``kernel_error_share`` of the trace's calibration). All errors are
    those of one calibration, so they do not average out. Unit: ns. None where the recorder says nothing.

    Examples
    --------
    >>> from streamscope.trace import DeviceInfo, SpanTable, Trace, TraceInfo
    >>> spans = SpanTable.of(("kernel", "a", "main", 0, 1_000), ("kernel", "b", "main", 2_000, 3_000))
    >>> info = TraceInfo("async", "step", DeviceInfo("cuda", "NVIDIA H200"), calibration={"kernel_error_ns": 80.0})
    >>> ss.analysis.busy_error_ns(Trace(spans, info))
    160.0
    """
    error_ns, share = (float(trace.info.calibration.get(f"kernel_error_{what}", 0)) for what in ("ns", "share"))
    spans = of_busiest(trace.spans)
    lengths_ns = spans.of_kind([SpanKind.KERNEL]).duration_ns
    if not (error_ns or share) or not lengths_ns.any():
        return None
    return float(gpu_busy_ns(spans) * (error_ns * len(lengths_ns) / lengths_ns.sum() + share))


def overlap_error(trace: Trace) -> float | None:
    """How far the overlap may be off.

    Formula: the recorder's bound (``overlap_error`` of the trace's calibration); 0 where all kernels are on one stream. Unit: fraction.
    None where the recorder says nothing.

    Examples
    --------
    >>> from streamscope.trace import DeviceInfo, SpanTable, Trace, TraceInfo
    >>> spans = SpanTable.of(("kernel", "a", "main", 0, 1_000), ("kernel", "b", "aux", 0, 1_000))
    >>> info = TraceInfo("dual", "step", DeviceInfo("cuda", "NVIDIA H200"), calibration={"overlap_error": 0.1})
    >>> ss.analysis.overlap_error(Trace(spans, info))
    0.1
    """
    error = trace.info.calibration.get("overlap_error")
    if error is None:
        return None
    return float(error) if len(np.unique(of_busiest(trace.spans).of_kind([SpanKind.KERNEL]).lane)) > 1 else 0.0
