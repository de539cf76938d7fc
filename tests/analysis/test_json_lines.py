"""Metrics as JSON Lines: each number of the summary once, with what it is and rests on."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from streamscope import analysis
from streamscope.analysis import json_lines, summary
from streamscope.trace import Basis, DeviceInfo, SpanBuilder, SpanKind, Trace, TraceInfo

INFO = TraceInfo("kineto", "step", DeviceInfo("cuda", "card"), "kineto")


def trace(info=INFO, basis=Basis.MEASURED, *, lost=False):
    builder = SpanBuilder(["thread 1", "stream 7", "stream 8"])
    builder.add(SpanKind.LAUNCH, "launch", "thread 1", 0, 3_000, correlation=1)
    builder.add(SpanKind.LAUNCH, "launch", "thread 1", 4_000, 6_000, correlation=2)
    builder.add(SpanKind.KERNEL, "gemm", "stream 7", 5_000, 25_000, correlation=1)
    if not lost:
        builder.add(SpanKind.COPY, "copy", "stream 8", 26_000, 30_000, correlation=2, basis=basis)
    return Trace(builder.build(), info)


def lines(found):
    return [json.loads(line) for line in json_lines(found).splitlines()]


def test_each_number_of_the_summary_is_a_line():
    found = {(line.get("lane"), line["name"]): line["value"] for line in lines(trace())}
    wanted = summary(trace()).to_dict()
    assert found[None, "kernel_count"] == wanted["kernel_count"] == 1
    assert found[None, "idle_us.host_wait"] == wanted["idle_us"]["host_wait"]
    assert found[None, "launch_latency_us.p95"] == wanted["launch_latency_us"]["p95"] == 5.0
    assert found["stream 8", "copy_us"] == 4.0
    assert found["stream 7", "busy_us"] == 20.0
    numbers = 5 + 5 + 15 + 4 * 2 + 1 + 2 * (3 + 5)
    assert len(lines(trace())) == len(found) == numbers


def test_a_line_says_what_its_number_is():
    count = next(line for line in lines(trace()) if line["name"] == "kernel_count")
    assert count == {
        "name": "kernel_count", "value": 1, "unit": "1", "definition": "kernel_count", "at_least": False, "basis": "measured",
        "program": "step", "engine": "kineto", "device": "card", "gpu": 0,
    }  # fmt: skip
    assert {line["unit"] for line in lines(trace()) if "_us" in line["name"]} == {"us"}


def test_definitions_can_be_looked_up():
    for line in lines(trace()):
        assert getattr(analysis, line["definition"]).__doc__


@pytest.mark.parametrize(
    ("info", "basis", "words"),
    [
        (INFO, Basis.MEASURED, {"measured"}),
        (INFO, Basis.PLACED, {"measured", "placed"}),
        (replace(INFO, device=DeviceInfo("simulated", "card")), Basis.PLACED, {"simulated"}),
        (replace(INFO, device=DeviceInfo("simulated", "card"), recorder="prediction"), Basis.MEASURED, {"predicted"}),
    ],
)
def test_what_a_number_rests_on_stands_beside_it(info, basis, words):
    found = lines(trace(info, basis))
    assert {line["basis"] for line in found} == words
    if basis == Basis.PLACED and not info.device.simulated:
        by_name = {(line.get("lane"), line["name"]): line["basis"] for line in found}
        assert by_name[None, "api_time_us.median"] == by_name["stream 7", "busy_us"] == "measured"
        assert by_name[None, "gpu_busy_us"] == by_name["stream 8", "copy_us"] == "placed"


def test_lower_bounds_and_missing_values_are_marked():
    """The second call has nothing on the device: records were lost."""
    found = {(line.get("lane"), line["name"]): line for line in lines(trace(lost=True))}
    assert found[None, "gpu_busy_us"]["at_least"]
    assert found["stream 7", "busy_us"]["at_least"]
    assert found[None, "overlap"]["at_least"]
    assert found[None, "kernel_count"]["at_least"]
    assert not found[None, "span_us"]["at_least"]
    empty = {line["name"]: line["value"] for line in lines(Trace(SpanBuilder(["host"]).build(), INFO))}
    assert empty["launch_latency_us.median"] is None
    assert empty["kernel_count"] == 0
