"""Real files of PyTorch's profiler (an H200): the numbers that Holistic Trace Analysis 0.5.0 gives for them, written down here."""

from pathlib import Path

import numpy as np
import pytest

import streamscope as ss
from streamscope.analysis import (
    critical_path,
    gpu_busy_ns,
    idle_by_stream,
    join_launches,
    kernel_count,
    queue_length,
    span_ns,
    summary,
    work_split,
)
from streamscope.trace.spans import DEVICE_KINDS

FILES = Path(__file__).resolve().parents[1] / "data" / "kineto"


def read(name):
    return ss.read(FILES / f"{name}.json.gz")


IDLE_US = {
    "streams": {"stream 7": (782.21, 10.17, 0), "stream 29": (517.25, 28.42, 0), "stream 33": (451.94, 28.29, 0)},
    "transformer_train": {"stream 7": (7706.37, 48.06, 0)},
    "resnet50_graph": {"stream 7": (0, 246.86, 0)},
    "streams_graph": {
        "stream 7": (75.46, 4.00, 73.66), "stream 176": (103.74, 4.58, 0), "stream 177": (103.90, 7.10, 0), "stream 178": (99.01, 3.62, 0),
    },
}  # fmt: skip
"""Host wait, kernel wait and other, as `get_idle_time_breakdown` rounds them."""


@pytest.mark.parametrize("name", IDLE_US)
def test_idle_time_by_stream_is_that_of_hta_where_gaps_are_whole(name):
    found = idle_by_stream(read(name).spans, launch_ns=0)
    assert {lane: len(causes) for lane, causes in IDLE_US[name].items()} == dict.fromkeys(found, 3)
    for lane, causes_us in IDLE_US[name].items():
        split = found[lane]
        assert split.launch_ns == 0
        assert (split.host_wait_ns / 1000, split.kernel_wait_ns / 1000, split.other_ns / 1000) == pytest.approx(causes_us, abs=0.011)


@pytest.mark.parametrize(
    ("name", "idle_us", "compute_us"),
    [("transformer_train", 7754.433578, 366.908), ("resnet50_graph", 246.858008, 1545.591), ("streams_graph", 81.376375, 130.560227)],
)
def test_the_temporal_breakdown_is_that_of_hta_from_the_first_to_the_last_end_on_the_device(name, idle_us, compute_us):
    spans = read(name).spans
    device = spans.of_kind(DEVICE_KINDS)
    assert work_split(device).idle_ns / 1000 == pytest.approx(idle_us, abs=0.005)  # HTA has the times as floats
    assert gpu_busy_ns(spans) / 1000 == work_split(spans).compute_ns / 1000 == pytest.approx(compute_us, abs=0.005)


def test_launch_delays_and_queue_lengths_are_those_of_hta():
    spans = read("streams").spans
    launches = join_launches(spans, DEVICE_KINDS)
    delay_us = np.maximum(launches.device_start_ns - launches.call_end_ns, 0) / 1000
    assert (len(delay_us), delay_us.mean(), delay_us.max()) == pytest.approx((28, 5.051054, 66.623844), abs=0.002)
    assert [int(queue_length(spans, lane).value.max()) for lane in ("stream 7", "stream 29", "stream 33")] == [1, 2, 1]


@pytest.mark.parametrize("name", [*IDLE_US, "resnet50_eager", "streams_cuda_only"])
def test_the_parts_of_real_files_add_up(name):
    trace = read(name)
    found, path = summary(trace), critical_path(trace)
    assert found.kernel_count == kernel_count(trace.spans) > 0
    assert found.span_us == pytest.approx(found.gpu_busy_us + found.copy_us + found.idle.total_ns / 1000)
    assert path.length_ns == path.whole_ns == span_ns(trace.spans)


def test_two_real_files_compared():
    found = ss.diff(read("resnet50_eager"), read("resnet50_graph"))
    assert len(found.pairs) == 560
    assert not [row for row in found.rows if row.status != "both"]
    times = "resnet50_graph took 2.76 ms, and resnet50_eager 20.8 ms, both with a profiler on."
    few, why = "One run each: too few repeats to tell a difference.", "14.1 ms less host wait and 2.74 ms less launch latency"
    assert found.answer == f"{times} {few} In resnet50_graph: {why}."
