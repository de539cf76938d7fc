"""The costs that are fitted are those of the device, whatever they are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streamscope.advising.device_costs import COSTS, Fitted, device_costs, fit
from streamscope.advising.probes import CAPTURED, samples
from streamscope.devices.cost_model import CostModel
from streamscope.devices.points import slopes
from streamscope.devices.simulated import SimulatedDevice


def truth(model):
    """What the costs are by the device's own cost model, in ns."""
    return {
        "launch": model.launch_ns,
        "ordering": model.event_record_ns + model.stream_wait_ns,
        "graph_launch": model.graph_launch_points[0][1],
        "round_trip": model.launch_latency_ns + model.synchronize_return_ns,
        "graph_latency": model.graph_launch_latency_ns,
        "kernel_gap": model.kernel_gap_ns,
        "crossing": model.drain_ns,
        "graph_gap": model.graph_node_gap_ns,
    }


def test_the_fitted_costs_are_those_of_the_cost_model(costs):
    for name, true_ns in truth(CostModel.load()).items():
        assert costs.ns(name) == pytest.approx(true_ns, rel=0.03), name
        if name != "graph_launch":  # The fit takes it for a line, on which measured points do not quite lie.
            assert abs(costs.ns(name) - true_ns) <= costs.fitted[name].margin_ns + 1, name
    assert costs.run_ns < 1
    each_node = slopes(CostModel.load().graph_launch_points)
    assert min(each_node) <= costs.ns("graph_launch_node") <= max(each_node)
    assert costs.residual < 0.02


def test_the_fit_follows_another_device():
    """A host half as fast, gaps a third as long, a graph launch twice as long, waits thrice as dear: nothing comes from a constant."""
    h200 = CostModel.load()
    there = h200.launch_latency_ns / (h200.launch_latency_ns + h200.synchronize_return_ns)
    other = replace(
        h200,
        launch_ns=5_500.0,
        event_record_ns=900.0,
        stream_wait_ns=870.0,
        kernel_gap_ns=330.0,
        event_pair_gated_excess_ns=h200.event_pair_empty_ns + 330.0 + 1_500.0,
        graph_node_gap_ns=80.0,
        event_pair_graph_excess_ns=2_000.0,
        launch_latency_ns=11_000.0 * there,  # Divided as on the reference device, since the two hardly show apart.
        synchronize_return_ns=11_000.0 * (1 - there),
        graph_launch_latency_ns=4_000.0,
        graph_launch_points=((1.0, 3_000.0), (1000.0, 8_000.0)),
    )
    device = SimulatedDevice(other)
    fitted, residual = fit(samples(device), device.info)
    assert residual < 0.02
    expected = truth(other) | {"graph_launch_node": 5_000 / 999}
    for name in (
        "launch",
        "ordering",
        "graph_launch",
        "graph_launch_node",
        "round_trip",
        "graph_latency",
        "kernel_gap",
        "crossing",
        "graph_gap",
    ):
        assert abs(fitted[name].value_ns - expected[name]) <= max(0.03 * expected[name], fitted[name].margin_ns), name
        assert fitted[name].value_ns == pytest.approx(expected[name], rel=0.1), name


def test_captures_are_as_dear_as_launching_and_instantiating(costs):
    model = CostModel.load()
    for nodes in CAPTURED:
        assert costs.capture_ns(nodes) == pytest.approx(nodes * model.launch_ns + model.graph_instantiate_ns(nodes), rel=0.001)


def test_it_is_measured_once_for_a_device_and_again_for_another(costs, monkeypatch):
    calls = []

    def counted(device, said):
        calls.append(device)
        return costs

    monkeypatch.setattr("streamscope.advising.device_costs.fitted_costs", counted)
    assert device_costs(SimulatedDevice()) is costs
    assert calls == []
    slower = SimulatedDevice(replace(CostModel.load(), launch_ns=4_321.0))
    device_costs(slower)
    device_costs(SimulatedDevice(slower.model))
    assert calls == [slower]


def test_every_cost_has_its_words_and_its_margin(costs):
    assert list(costs.fitted) == list(COSTS)
    assert all(isinstance(fitted, Fitted) and fitted.margin_ns >= 0 for fitted in costs.fitted.values())
