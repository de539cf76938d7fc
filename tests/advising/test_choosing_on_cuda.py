"""The choice and the advice on a real GPU."""

from __future__ import annotations

import sys

import pytest

import streamscope as ss
from streamscope.advising.break_even import BRANCHED
from streamscope.advising.device_costs import device_costs
from streamscope.measuring.choice import Standing
from streamscope.workloads import WORKLOADS

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def device():
    return ss.open_device("cuda")


def report(found):
    """Show what was found, for whoever runs pytest with ``-s``."""
    sys.stdout.write(f"\n{found}\n")


def test_costs_are_within_reason_and_explain_the_times(device):
    costs = device_costs(device)
    report(ss.advise(device=device))
    assert 1_000 < costs.ns("launch") < 12_000
    assert 1_000 < costs.ns("graph_launch") < 12_000
    assert 1_000 < costs.ns("round_trip") < 30_000
    assert costs.ns("graph_gap") < costs.ns("kernel_gap") + 500
    assert costs.fitted["launch"].margin_ns < 0.2 * costs.ns("launch")
    assert costs.residual < 0.25  # 0.05 where the host is quiet, 0.18 on one that was busy
    assert costs.capture_ns(1000) > costs.capture_ns(100) > costs.capture_ns(1) > 0


@pytest.mark.parametrize(
    "settings", [{"length": 200}, {"length": 20}, {"length": 50, "size": 1 << 20}, {"length": 20, "size": 1 << 24}], ids=str
)
def test_chains_are_predicted(device, settings):
    function, inputs = WORKLOADS["elementwise-chain"].build(**settings)
    advice = ss.advise(function, *inputs, device=device)
    report(advice)
    for engine in ("async", "graph"):
        assert advice.forecast.predicted_ns[engine] == pytest.approx(advice.forecast.makespans_ns[engine].median, rel=0.4), engine
    assert advice.forecast.predicted_speedup("graph") == pytest.approx(advice.forecast.speedups["graph"].median, rel=0.4)


@pytest.mark.parametrize("workload", ["branches", "conv-backward", "cnn"])
def test_workloads_are_predicted(device, workload):
    function, inputs = WORKLOADS[workload].build()
    advice = ss.advise(function, *inputs, device=device)
    report(advice)
    for engine in BRANCHED:
        assert advice.forecast.predicted_ns[engine] == pytest.approx(advice.forecast.makespans_ns[engine].median, rel=0.4), engine


def test_many_short_kernels_are_a_graph(device):
    function, inputs = WORKLOADS["elementwise-chain"].build(length=100)
    choice = ss.best(function, *inputs, device=device)
    report(choice)
    assert choice.engine == "graph"
    standings = {candidate.engine: candidate.standing for candidate in choice.candidates}
    assert standings["sync"] is standings["async"] is Standing.SLOWER


def test_long_kernels_need_no_graph(device):
    function, inputs = WORKLOADS["elementwise-chain"].build(length=4, size=1 << 27)
    choice = ss.best(function, *inputs, device=device, engines="async,graph")
    report(choice)
    assert choice.engine == "async"


def test_memory_is_limited(device):
    function, inputs = WORKLOADS["conv-backward"].build()
    free = ss.best(function, *inputs, device=device)
    report(free)
    held = {candidate.engine: candidate.device_bytes for candidate in free.candidates}
    limited = ss.best(function, *inputs, device=device, memory_limit=held["async"])
    report(limited)
    assert all(candidate.device_bytes <= held["async"] for candidate in limited.candidates if candidate.standing is not Standing.RULED_OUT)


def test_compare_with_auto(device):
    function, inputs = WORKLOADS["branches"].build()
    compared = ss.compare(function, *inputs, device=device, engines="auto", repeats=10, progress=False)
    assert f"Chosen: {compared.choice.engine}. Results are" in compared.verdict
    assert compared.choice.engine in ("graph", "graph-dual")
