"""Advice on a device, told in words."""

from __future__ import annotations

import json
from dataclasses import replace

import streamscope as ss
from streamscope.advising.break_even import WORTH, graph_pays, second_stream_pays
from streamscope.advising.sentences import basis


def test_words_for_the_device_alone(costs):
    advice = ss.advise(device="simulated")
    assert advice.costs == costs
    high_us = graph_pays(costs).high_ns / 1e3
    assert f"A graph makes a long chain at least {WORTH * 100:.0f} % faster for kernels of up to {high_us:.1f} µs" in advice.verdict
    assert "Predicted with the cost model of the NVIDIA H200, measured 20" in str(advice)


def test_a_gpu_without_a_model_of_its_own_is_told_to_calibrate(costs):
    other = replace(costs, device=replace(costs.device, name="NVIDIA L4", kind="cuda"))
    assert basis(costs).endswith(".")
    assert "calibrate" not in basis(costs)
    assert basis(other).endswith("`streamscope calibrate` measures this GPU's.")


def test_it_is_json():
    advice = ss.advise(device="simulated")
    content = json.loads(json.dumps(advice.to_dict(), allow_nan=False))
    assert content["device"]["kind"] == "simulated"
    pays = second_stream_pays(advice.costs, 4, in_graph=True)
    assert pays.low_ns > 0  # waits for another branch of a graph cost time
    assert pays.high_ns == float("inf")
    assert content["second_stream_pays_ns"]["in_graph"]["4"] == [pays.low_ns, None]
