"""Our own metrics, each an entry of the registry: named as in `METRICS`, in capitals."""

from __future__ import annotations

from streamscope.analysis.collectives import (
    bus_bandwidth,
    busy_imbalance,
    collective_transfer_ns,
    collective_wait_ns,
    peer_copy_ns,
    waited_for_ns,
)
from streamscope.analysis.idle import device_idle, host_wait_ns, kernel_wait_ns, launch_wait_ns, other_idle_ns
from streamscope.analysis.launches import (
    api_time_ns,
    call_times_ns,
    late_kernels,
    launch_latency_ns,
    launch_overhead_ns,
    queue_full_ns,
    queue_time_ns,
    short_kernels,
)
from streamscope.analysis.metric import ENGINE, HOST, TRACE, Metric
from streamscope.analysis.metrics import busy_fraction, device_memory_bytes, idle_ns, makespan_ns, recording_cost
from streamscope.analysis.neighbours import net_overlap_ns
from streamscope.analysis.overlap import (
    average_concurrency,
    copy_compute_overlap,
    exposed_copy_ns,
    gpu_busy_ns,
    host_device_overlap,
    kernel_count,
    overlap_fraction,
    span_ns,
)
from streamscope.analysis.work import exposed_communication_ns, hidden_communication_ns, mean_exposed_ns, mean_hidden_ns, work_split

_IDLE_PARTS = (
    ("host_wait", "idle: host wait", host_wait_ns),
    ("launch", "idle: launch", launch_wait_ns),
    ("kernel_wait", "idle: kernel wait", kernel_wait_ns),
    ("other", "idle: other", other_idle_ns),
)

MAKESPAN_US = Metric(name="makespan_us", label="makespan", unit="µs", function=makespan_ns, scope=(ENGINE,), first=True)
GPU_BUSY_US = Metric(name="gpu_busy_us", label="GPU busy", unit="µs", function=gpu_busy_ns, error="gpu_busy_error_us", share=True)
BUSY_FRACTION = Metric(
    name="busy_fraction", label="GPU busy", unit="%", function=busy_fraction, scope=(ENGINE,), error="busy_fraction_error", first=True
)
SPAN_US = Metric(name="span_us", label="span", unit="µs", function=span_ns, scope=(TRACE,))
COMMUNICATION_US = Metric(
    name="communication_us", label="communication", unit="µs", function=work_split, scope=(TRACE,), share=True, quiet_at=0
)
EXPOSED_US = Metric(
    name="exposed_us", label="communication alone", unit="µs", function=exposed_communication_ns, first=True, share=True, quiet_at=0
)
HIDDEN_US = Metric(
    name="hidden_us", label="communication hidden", unit="µs", function=hidden_communication_ns, first=True, share=True, quiet_at=0
)
MEAN_EXPOSED_US = Metric(
    name="mean_exposed_us", label="communication alone, mean of GPUs", unit="µs", function=mean_exposed_ns, scope=(TRACE, HOST), quiet_at=0
)
MEAN_HIDDEN_US = Metric(
    name="mean_hidden_us", label="communication hidden, mean of GPUs", unit="µs", function=mean_hidden_ns, scope=(TRACE, HOST), quiet_at=0
)
COLLECTIVE_WAIT_US = Metric(name="collective_wait_us", label="collectives: waiting", unit="µs", function=collective_wait_ns)
COLLECTIVE_TRANSFER_US = Metric(
    name="collective_transfer_us", label="collectives: transfer", unit="µs", function=collective_transfer_ns, scope=(TRACE,)
)
WAITED_FOR_US = Metric(name="waited_for_us", label="collectives: others waited for it", unit="µs", function=waited_for_ns, scope=(TRACE,))
BUS_BANDWIDTH = Metric(name="bus_bandwidth", label="bus bandwidth", unit="GB/s", function=bus_bandwidth, scope=(ENGINE, TRACE, HOST))
BUSY_IMBALANCE = Metric(
    name="busy_imbalance", label="imbalance of GPU busy", unit="%", function=busy_imbalance, scope=(ENGINE, TRACE, HOST)
)
PEER_COPY_US = Metric(name="peer_copy_us", label="copies between GPUs", unit="µs", function=peer_copy_ns, scope=(ENGINE, TRACE, HOST))
COPY_US = Metric(name="copy_us", label="copies and sets alone", unit="µs", function=exposed_copy_ns, scope=(TRACE,), share=True, quiet_at=0)
IDLE_US = Metric(name="idle_us", label="idle", unit="µs", function=idle_ns, of_trace=device_idle, first=True, share=True, parts=_IDLE_PARTS)
OVERLAP = Metric(name="overlap", label="overlap", unit="%", function=overlap_fraction, error="overlap_error", first=True)
AVERAGE_CONCURRENCY = Metric(
    name="average_concurrency", label="kernels at once", unit="×", function=average_concurrency, scope=(TRACE,), quiet_at=1
)
NET_OVERLAP_US = Metric(name="net_overlap_us", label="net gain of overlap", unit="µs", function=net_overlap_ns, scope=(TRACE,))
COPY_OVERLAP = Metric(
    name="copy_overlap", label="copies beside kernels", unit="%", function=copy_compute_overlap, scope=(ENGINE,), first=True
)
HOST_OVERLAP = Metric(name="host_overlap", label="host beside device", unit="%", function=host_device_overlap, scope=(ENGINE,), first=True)
KERNEL_COUNT = Metric(name="kernel_count", label="kernels", unit="", function=kernel_count, first=True)
SHORT_KERNELS = Metric(name="short_kernels", label="short kernels", unit="", function=short_kernels, scope=(TRACE,), quiet_at=0)
LATE_KERNELS = Metric(name="late_kernels", label="late kernels", unit="", function=late_kernels, scope=(TRACE,), quiet_at=0)
LAUNCH_LATENCY_US = Metric(name="launch_latency_us", label="launch latency", unit="µs", function=launch_latency_ns)
LAUNCH_OVERHEAD_US = Metric(
    name="launch_overhead_us", label="launch latency, empty queue", unit="µs", function=launch_overhead_ns, scope=(TRACE,)
)
QUEUE_TIME_US = Metric(name="queue_time_us", label="queue time", unit="µs", function=queue_time_ns)
API_TIME_US = Metric(name="api_time_us", label="API time", unit="µs", function=api_time_ns, of_trace=call_times_ns)
QUEUE_FULL_US = Metric(name="queue_full_us", label="queue full", unit="µs", function=queue_full_ns, scope=(TRACE,), quiet_at=0)
DEVICE_MEMORY_BYTES = Metric(name="device_memory_bytes", label="device memory", unit="MiB", function=device_memory_bytes, scope=(ENGINE,))
RECORDING_COST = Metric(name="recording_cost", label="recording", unit="×", function=recording_cost, scope=(ENGINE,))
