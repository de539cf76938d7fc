"""Advice on programs: predicted, measured, and told in words."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import streamscope as ss
from streamscope.advising.break_even import BRANCHED, WORTH, graph_pays, second_stream_pays
from streamscope.advising.sentences import basis, program_words
from streamscope.trace.spans import SpanKind
from streamscope.words import format_us
from streamscope.workloads import WORKLOADS

BRANCHES = WORKLOADS["branches"]
CHAIN = WORKLOADS["elementwise-chain"]
MIXTURE = Path(__file__).parents[2] / "notebooks/recorded/captured/mixture_of_experts.captured.json"


def advice_on(workload, **settings):
    function, inputs = workload.build(**settings)
    return ss.advise(function, *inputs, device="simulated")


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_is_predicted_under_every_engine(name):
    function, inputs = WORKLOADS[name].build()
    check_predicted(function, *inputs)


def test_captured_code_is_predicted_on_more_than_two_streams():
    check_predicted(ss.load_captured(MIXTURE))


def check_predicted(function, *inputs):
    compared = ss.compare(function, *inputs, engines=BRANCHED, device="simulated", progress=False)
    forecast = ss.advise(function, *inputs, device="simulated", progress=False).forecast
    for engine in BRANCHED:
        assert forecast.predicted_ns[engine] == pytest.approx(compared[engine].metrics.makespan_us * 1e3, rel=0.12), engine


def test_the_point_is_the_median_kernel_and_their_number():
    forecast = advice_on(BRANCHES, branches=4, length=8).forecast
    assert forecast.kernels == 4 * 8 + 3
    function, inputs = BRANCHES.build(branches=4, length=8)
    compared = ss.compare(function, *inputs, device="simulated", progress=False)
    spans = compared["async"].trace.spans
    kernels = spans.duration_ns[spans.kind == SpanKind.KERNEL]
    assert forecast.kernel_ns == np.median(kernels)
    assert forecast.per_branch > 0
    assert advice_on(CHAIN, length=9).forecast.per_branch == 0


def test_a_capture_pays_after_as_many_replays_as_it_is_as_dear_as():
    advice = advice_on(CHAIN, length=100)
    forecast = advice.forecast
    saved_ns = forecast.predicted_ns["async"] - forecast.predicted_ns["graph"]
    assert forecast.capture_replays * saved_ns == pytest.approx(advice.costs.capture_ns(100))


def test_words_for_a_program():
    advice = advice_on(CHAIN, length=200, size=256)
    forecast = advice.forecast
    kernels = f"200 kernels of {format_us(forecast.kernel_ns / 1e3)} µs"
    assert advice.verdict.startswith(f"Simulated times, not measured. Your {kernels}: a graph should run them ")
    speedup, replays = forecast.speedup("graph"), forecast.capture_replays
    assert f"{speedup:.2f}× as fast as async, and {replays:.1f} replays pay for its capture" in advice.verdict
    assert "The dual engine has no use for a second stream here." in advice.verdict
    assert advice.verdict in " ".join(str(advice).split())


def test_more_than_two_streams_are_told_by_their_number():
    advice = advice_on(BRANCHES)
    said = program_words(replace(advice.forecast, streams="4 streams"))
    assert "A second stream should slow them to 0." in said
    assert "one by one; 4 streams should run them" in said
    assert "one stream in a graph" in said
    assert " 4 streams" not in advice.verdict


def test_words_for_a_second_stream_are_about_that_stream_alone():
    advice = advice_on(BRANCHES)
    dual, both, graph = (advice.forecast.speedup(engine) for engine in ("dual", "graph-dual", "graph"))
    assert dual < 1 < both / graph
    assert f"slow them to {dual:.2f}× the speed of async when they are launched one by one" in advice.verdict
    assert f"and run them {both / graph:.2f}× as fast as one stream in a graph" in advice.verdict


def test_long_kernels_are_told_apart_from_short_ones():
    advice = advice_on(CHAIN, length=3, size=1 << 23)
    assert "a graph should run them as fast as async" in advice.verdict
    assert "replays pay" not in advice.verdict.split("On the")[0]


def test_words_for_the_device_alone(costs):
    advice = ss.advise(device="simulated")
    assert advice.forecast is None
    assert advice.costs == costs
    high_us = graph_pays(costs).high_ns / 1e3
    assert f"A graph makes a long chain at least {WORTH * 100:.0f} % faster for kernels of up to {high_us:.1f} µs" in advice.verdict
    assert "Predicted with the cost model of the NVIDIA H200, measured 20" in str(advice)


def test_a_gpu_without_a_model_of_its_own_is_told_to_calibrate(costs):
    other = replace(costs, device=replace(costs.device, name="NVIDIA L4", kind="cuda"))
    assert basis(costs).endswith(".")
    assert "calibrate" not in basis(costs)
    assert basis(other).endswith("`streamscope calibrate` measures this GPU's.")


def test_a_program_without_kernels():
    @ss.program
    def nothing(x):
        return ss.host_function(lambda values: values + 1, duration_us=3)(x)

    advice = ss.advise(nothing, np.ones(4, np.float32), device="simulated")
    assert "nothing launches no kernels." in advice.verdict
    assert advice.forecast.kernels == 0


def test_it_is_json():
    advice = advice_on(BRANCHES)
    content = json.loads(json.dumps(advice.to_dict(), allow_nan=False))
    assert content["device"]["kind"] == "simulated"
    assert content["program"]["engines"]["async"]["speedup"] == 1
    pays = second_stream_pays(advice.costs, 4, in_graph=True)
    assert pays.low_ns > 0  # waits for another branch of a graph cost time
    assert pays.high_ns == float("inf")
    assert content["second_stream_pays_ns"]["in_graph"]["4"] == [pays.low_ns, None]
