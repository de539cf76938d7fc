"""Analysis of traces: busy and idle time, overlap, launches, the metrics of an engine, a verdict on several. Draws nothing."""

from streamscope.analysis.activity import Activity, Occupation, activity, fullness
from streamscope.analysis.communication import COMMUNICATION
from streamscope.analysis.critical_path import Bound, CriticalPath, critical_path
from streamscope.analysis.idle import Gaps, IdleCause, IdleSplit, device_gaps, device_idle, idle_by_stream, stream_gaps
from streamscope.analysis.json_lines import json_lines
from streamscope.analysis.launch_delays import late_kernels, launch_overhead_ns, queue_full_ns, short_kernels
from streamscope.analysis.launches import (
    Launches,
    MissingRecords,
    api_time_ns,
    call_times_ns,
    incomplete_replays,
    join_launches,
    launch_latency_ns,
    missing_records,
    queue_length,
    queue_time_ns,
)
from streamscope.analysis.metric import METRICS, Metric, definitions
from streamscope.analysis.metrics import EngineMetrics, measure
from streamscope.analysis.neighbours import Neighbours, neighbours, net_overlap_ns
from streamscope.analysis.operations import OperationTable, operation_table
from streamscope.analysis.overlap import (
    StreamPair,
    average_concurrency,
    concurrency,
    copy_busy_ns,
    copy_compute_overlap,
    exposed_copy_ns,
    exposed_host_ns,
    gpu_busy_ns,
    host_device_overlap,
    kernel_count,
    kernel_time_ns,
    overlap_fraction,
    overlap_ns,
    span_ns,
    stream_overlap,
)
from streamscope.analysis.statistics import MedianInterval, Ranking, median_interval
from streamscope.analysis.summary import Spread, StreamSummary, Summary, summary
from streamscope.analysis.uncertainty import busy_error_ns, overlap_error
from streamscope.analysis.verdict import Change, Shares, Verdict, assess, difference, verdict
from streamscope.analysis.work import Work, WorkSplit, exposed_communication_ns, work_of, work_split

__all__ = [
    "COMMUNICATION",
    "METRICS",
    "Activity",
    "Bound",
    "Change",
    "CriticalPath",
    "EngineMetrics",
    "Gaps",
    "IdleCause",
    "IdleSplit",
    "Launches",
    "MedianInterval",
    "Metric",
    "MissingRecords",
    "Neighbours",
    "Occupation",
    "OperationTable",
    "Ranking",
    "Shares",
    "Spread",
    "StreamPair",
    "StreamSummary",
    "Summary",
    "Verdict",
    "Work",
    "WorkSplit",
    "activity",
    "api_time_ns",
    "assess",
    "average_concurrency",
    "busy_error_ns",
    "call_times_ns",
    "concurrency",
    "copy_busy_ns",
    "copy_compute_overlap",
    "critical_path",
    "definitions",
    "device_gaps",
    "device_idle",
    "difference",
    "exposed_communication_ns",
    "exposed_copy_ns",
    "exposed_host_ns",
    "fullness",
    "gpu_busy_ns",
    "host_device_overlap",
    "idle_by_stream",
    "incomplete_replays",
    "join_launches",
    "json_lines",
    "kernel_count",
    "kernel_time_ns",
    "late_kernels",
    "launch_latency_ns",
    "launch_overhead_ns",
    "measure",
    "median_interval",
    "missing_records",
    "neighbours",
    "net_overlap_ns",
    "operation_table",
    "overlap_error",
    "overlap_fraction",
    "overlap_ns",
    "queue_full_ns",
    "queue_length",
    "queue_time_ns",
    "short_kernels",
    "span_ns",
    "stream_gaps",
    "stream_overlap",
    "summary",
    "verdict",
    "work_of",
    "work_split",
]  # fmt: skip
