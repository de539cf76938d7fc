"""Predictions and break-even points against runs on the simulated device."""

from __future__ import annotations

from math import inf, isnan, sqrt

import numpy as np
import pytest

from streamscope.advising.break_even import (
    BRANCHED,
    WORTH,
    branch_regions,
    branched_ns,
    chain_ns,
    chain_regions,
    fewest_kernels,
    graph_pays,
    graph_speedup,
    launch_bound_below_ns,
    replays_to_pay,
    second_stream_pays,
)
from streamscope.devices.cost_model import CostModel

LENGTHS_NS = (500.0, 1_000.0, 1_700.0, 2_000.0, 5_000.0, 20_000.0, 80_000.0)


@pytest.mark.parametrize("count", [1, 2, 7, 40, 200])
@pytest.mark.parametrize("length_ns", LENGTHS_NS)
def test_a_chain_is_predicted(costs, simulated_chain_ns, count, length_ns):
    alone, replayed = (simulated_chain_ns(engine, count, length_ns) for engine in ("async", "graph"))
    assert chain_ns(costs, "async", count, length_ns) == pytest.approx(alone, rel=0.03)
    assert chain_ns(costs, "graph", count, length_ns) == pytest.approx(replayed, rel=0.03)
    assert graph_speedup(costs, count, length_ns) == pytest.approx(alone / replayed, rel=0.03)


@pytest.mark.parametrize("engine", BRANCHED)
@pytest.mark.parametrize("count", [1, 4, 15])
def test_branches_are_predicted(costs, simulated_branches_ns, engine, count):
    for length_ns in LENGTHS_NS:
        assert branched_ns(costs, engine, count, length_ns) == pytest.approx(simulated_branches_ns(engine, count, length_ns), rel=0.05)


def bisected(pays, low_ns, high_ns):
    """The length between two at which something begins, or ceases, to pay."""
    rising = pays(high_ns)
    assert pays(low_ns) != rising
    while high_ns / low_ns > 1.002:
        middle_ns = sqrt(low_ns * high_ns)
        low_ns, high_ns = (low_ns, middle_ns) if pays(middle_ns) == rising else (middle_ns, high_ns)
    return sqrt(low_ns * high_ns)


@pytest.mark.parametrize("count", [3, 50])
def test_up_to_which_length_a_graph_pays(costs, simulated_chain_ns, count):
    def pays(length_ns):
        return simulated_chain_ns("async", count, length_ns) >= (1 + WORTH) * simulated_chain_ns("graph", count, length_ns)

    found = graph_pays(costs, count)
    assert found.low_ns == 0
    assert found.high_ns == pytest.approx(bisected(pays, 2_000, 1e5), rel=0.05)


@pytest.mark.parametrize("count", [1, 4])
def test_from_which_length_on_a_second_stream_pays_one_by_one(costs, simulated_branches_ns, count):
    def pays(length_ns):
        return simulated_branches_ns("async", count, length_ns) >= (1 + WORTH) * simulated_branches_ns("dual", count, length_ns)

    found = second_stream_pays(costs, count, in_graph=False)
    assert found.high_ns == inf
    assert found.low_ns == pytest.approx(bisected(pays, 300, 1e5), rel=0.05)


@pytest.mark.parametrize("count", [1, 4])
def test_from_which_length_on_a_second_stream_pays_in_a_graph(costs, simulated_branches_ns, count):
    """What one branch waits for on another comes late, so the shortest kernels do not pay."""

    def gain(length_ns):
        return simulated_branches_ns("graph", count, length_ns) / simulated_branches_ns("graph-dual", count, length_ns)

    found = second_stream_pays(costs, count, in_graph=True)
    assert found.high_ns == inf
    # The gain grows slowly with the length there, so what is known well is how much there is to gain.
    assert gain(found.low_ns) == pytest.approx(1 + WORTH, abs=0.01)
    assert gain(0.7 * found.low_ns) < 1 + WORTH < gain(1.3 * found.low_ns)


def test_what_never_pays(costs):
    """With one kernel in each of no branches to speak of, and a speed-up that is 1 everywhere."""
    from streamscope.advising.break_even import _range

    assert _range(lambda length_ns: 1.0).never
    assert isnan(_range(lambda length_ns: 1.0).low_ns)
    assert _range(lambda length_ns: 2.0).high_ns == inf
    stretch = _range(lambda length_ns: 2.0 if 700 <= length_ns <= 9_000 else 1.0)
    assert (stretch.low_ns, stretch.high_ns) == (pytest.approx(700, rel=0.01), pytest.approx(9_000, rel=0.01))


def test_kernels_wait_for_the_host_below_launch_less_gap(costs):
    model = CostModel.load()
    assert launch_bound_below_ns(costs) == pytest.approx(model.launch_ns - model.kernel_gap_ns, rel=0.03)


def test_from_how_many_kernels_on_a_graph_pays(costs):
    for length_ns in LENGTHS_NS:
        count = fewest_kernels(costs, length_ns)
        pays = [number for number in (*range(1, 100), 1000) if graph_speedup(costs, number, length_ns) >= 1 + WORTH]
        assert count == (pays[0] if pays else None)
    assert fewest_kernels(costs, 80_000) is None


def test_a_capture_is_paid_for_by_what_the_replays_save(costs, simulated_chain_ns):
    saved_ns = simulated_chain_ns("async", 100, 872.0) - simulated_chain_ns("graph", 100, 872.0)
    replays = replays_to_pay(costs, 100, saved_ns)
    assert replays * saved_ns == pytest.approx(costs.capture_ns(100))
    assert replays_to_pay(costs, 100, 0.0) == replays_to_pay(costs, 100, -5.0) == inf


def test_regions_are_won_by_the_simplest_engine_near_the_fastest(costs):
    for regions in (chain_regions(costs), branch_regions(costs)):
        for row, column in ((0, 0), (3, 9), (-1, 4), (-1, -1)):
            count, length_ns = int(regions.counts[row]), float(regions.lengths_us[column]) * 1e3
            times = {engine: chain_ns(costs, engine, count, length_ns) for engine in ("async", "graph")}
            if len(regions.engines) > 2:
                times = {engine: branched_ns(costs, engine, count, length_ns) for engine in BRANCHED}
            winner = next(engine for engine in regions.engines if times[engine] <= (1 + WORTH) * min(times.values()))
            assert regions.engines[regions.winner[row, column]] == winner
            assert regions.speedup[row, column] == pytest.approx(times["async"] / times[winner])
    assert np.isfinite(branch_regions(costs).dual_from_us).all()
