"""Files that PyTorch 2.11 recorded on an H200 (`tests/data/kineto`), against what Python's JSON and decimal numbers make of them."""

import gzip
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest

from streamscope.formats.read import read
from streamscope.trace import SpanKind

FILES = sorted((Path(__file__).parents[1] / "data" / "kineto").glob("*.json.gz"))
LAUNCHED = {"kernel": SpanKind.KERNEL, "gpu_memcpy": SpanKind.COPY, "gpu_memset": SpanKind.SET}


@pytest.fixture(params=FILES, ids=lambda path: path.name.partition(".")[0])
def both(request):
    """Return the trace that is read, and the events of the file with their times as ns since its zero, the first call."""
    content = json.loads(gzip.decompress(request.param.read_bytes()), parse_float=Decimal)
    events = [event for event in content["traceEvents"] if event["ph"] == "X"]
    zero = min(event["ts"] for event in events if event["cat"] in ("cuda_runtime", "cuda_driver"))
    for event in events:
        event["start_ns"], event["end_ns"] = (int((at - zero) * 1000) for at in (event["ts"], event["ts"] + event["dur"]))
    return read(request.param), events


def test_every_kernel_copy_and_set_is_there_to_the_nanosecond(both):
    trace, events = both
    spans = trace.spans.of_kind(LAUNCHED.values())
    lanes = [trace.spans.lanes[lane].partition(" ·")[0] for lane in spans.lane]
    columns = (spans.kind, lanes, spans.start_ns, spans.end_ns, spans.correlation, spans.blocks, spans.bytes)
    product = lambda sizes: sizes[0] * sizes[1] * sizes[2] if sizes else 0  # noqa: E731
    assert Counter(zip(*(column if isinstance(column, list) else column.tolist() for column in columns), strict=True)) == Counter(
        (int(LAUNCHED[event["cat"]]), f"stream {event['args']['stream']}", event["start_ns"], event["end_ns"],
         event["args"]["correlation"], product(event["args"].get("grid")), event["args"].get("bytes", 0))
        for event in events if event["cat"] in LAUNCHED
    )  # fmt: skip
    kernels = trace.spans.of_kind([SpanKind.KERNEL])
    symbols = Counter(event["name"] for event in events if event["cat"] == "kernel")
    assert Counter(trace.spans.names[code] for code in kernels.symbol) == symbols
    assert not set("<>():,* ") & set("".join(trace.spans.names[code] for code in kernels.name))


def test_every_call_and_range_is_there(both):
    trace, events = both
    calls = trace.spans.of_kind([SpanKind.LAUNCH, SpanKind.GRAPH_LAUNCH, SpanKind.EVENT, SpanKind.SYNC, SpanKind.API])
    expected = Counter((event["start_ns"], event["end_ns"]) for event in events if event["cat"] in ("cuda_runtime", "cuda_driver"))
    assert Counter(zip(calls.start_ns.tolist(), calls.end_ns.tolist(), strict=True)) == expected
    ranges = trace.spans.of_kind([SpanKind.RANGE])
    found = Counter(trace.spans.names[code] for code in ranges.name)
    assert found == Counter(event["name"] for event in events if event["cat"] in ("cpu_op", "user_annotation"))
    assert trace.spans.names[ranges.name[0]] == "step" if len(ranges) else True


def test_everything_on_the_gpu_has_one_launch(both):
    trace, _ = both
    spans = trace.spans
    launches = spans.of_kind([SpanKind.LAUNCH, SpanKind.GRAPH_LAUNCH])
    assert len(set(launches.correlation.tolist())) == len(launches)
    assert set(spans.of_kind(LAUNCHED.values()).correlation.tolist()) == set(launches.correlation.tolist())
    assert not any("without" in note or "left out" in note for note in trace.info.notes)


def test_where_they_come_from_is_kept(both):
    info = both[0].info
    assert (info.device.kind, info.device.name, info.device.details["multiprocessors"]) == ("cuda", "NVIDIA H200", 132)
    assert (info.versions["torch"], info.versions["cuda_runtime"]) == ("2.11.0+cu130", "13000")
    assert info.created.startswith("2026-11-22T15:47")


def test_what_the_profiler_took_is_told_where_it_lies_in_the_run_and_only_there(both):
    trace, events = both
    calls = [event for event in events if event["cat"] in ("cuda_runtime", "cuda_driver")]
    begin_us = min(event["ts"] for event in calls if any(word in event["name"] for word in ("Launch", "Mem", "Event", "Synchronize")))
    overheads = [event for event in events if event["cat"] == "overhead"]
    assert overheads
    within = [event for event in overheads if event["ts"] + event["dur"] > begin_us]
    assert any("the profiler itself took" in note for note in trace.info.notes) == bool(within)
