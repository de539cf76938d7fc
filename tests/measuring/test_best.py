"""The engine that is chosen: by time, within memory, never one that is wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.measuring.conftest import rounds_to_tell

import streamscope as ss
from streamscope.analysis.table import device_words
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engines import engine_names
from streamscope.engines import prepared as prepared_module
from streamscope.engines.prepared import prepare_traced
from streamscope.errors import EngineError, OutOfMemoryError
from streamscope.measuring.best import Selection, _twin
from streamscope.measuring.case import Case
from streamscope.measuring.choice import Standing
from streamscope.measuring.elimination import MARGIN, Elimination
from streamscope.workloads import WORKLOADS

MIB = 1 << 20
X = np.linspace(0.5, 1, 256, dtype=np.float32)


@ss.program
def chain(x):
    for _ in range(6):
        x = ss.ops.relu(x)
    return x


@ss.program
def two_chains(x):
    left, right = x, x
    for _ in range(4):
        left, right = ss.ops.relu(left), ss.ops.relu(right)
    return ss.ops.add(left, right)


@ss.program
def host_only(x):
    double = ss.host_function(lambda values: values * 2, duration_us=5)
    return double(x)


def standings(choice):
    return {candidate.engine: candidate.standing for candidate in choice.candidates}


SMALL_NETWORKS = {"resnet50-v2": {"size": 33, "depth": 1, "width": 8}, "transformer": {"layers": 1, "length": 8}}


@pytest.mark.parametrize("name", WORKLOADS)
def test_workloads_are_right_under_all_engines_and_the_choice_is_the_simplest_within_the_margin_of_the_fastest(name):
    small = {setting: 128 for setting in ("width", "rows", "tokens") if setting in WORKLOADS[name].settings}
    function, inputs = WORKLOADS[name].build(**SMALL_NETWORKS.get(name, small))
    compared = ss.compare(function, *inputs, device="simulated", progress=False)
    assert all(run.correct and run.max_abs_error == 0 and run.tolerance > 0 for run in compared.values())
    times = {engine: run.makespans_ns[-1] for engine, run in compared.items()}
    within = [engine for engine, time in times.items() if time <= min(times.values()) * (1 + MARGIN)]
    choice = ss.best(function, *inputs, device="simulated")
    assert choice.engine == within[0]
    assert choice.candidates[0].engine == choice.engine
    assert {candidate.engine for candidate in choice.candidates} == set(times)
    for candidate in choice.candidates:
        if candidate.makespan_ns is not None:
            assert candidate.makespan_ns.median == pytest.approx(times[candidate.engine], abs=2)  # The host's clock counts whole ns.


def test_the_choice_is_ready_to_run():
    choice = ss.best(two_chains, X, device="simulated")
    assert choice.engine == "graph-dual"
    choice.prepared.run()
    np.testing.assert_allclose(choice.prepared.outputs()[0], 2 * X)


def test_inputs_that_the_program_changes_are_loaded_for_the_next_run():
    @ss.program
    def doubled(x):
        return ss.ops.add(x, x, out=x)

    choice = ss.best(doubled, X, device="simulated")
    choice.prepared.run()
    np.testing.assert_array_equal(choice.prepared.outputs()[0], 2 * X)


def test_the_reason_has_the_numbers():
    choice = ss.best(two_chains, X, device="simulated")
    graph = next(candidate for candidate in choice.candidates if candidate.engine == "graph")
    assert choice.reason.startswith("graph-dual takes ")
    assert f"graph, the next, takes {graph.ratio.median:.2f}× as long" in choice.reason
    assert "simulated, not measured" in choice.reason
    assert choice.reason in " ".join(str(choice).split())
    assert "graph-dual" in choice._repr_html_()
    assert device_words(choice.device) in choice._repr_html_()


def test_engines_that_would_do_the_same_as_a_simpler_one_are_ruled_out():
    choice = ss.best(chain, X, device="simulated")
    assert choice.engine == "graph"
    assert {engine for engine, standing in standings(choice).items() if standing is Standing.RULED_OUT} == {"dual", "graph-dual"}
    assert "so it is async" in choice.reason
    alone = ss.best(chain, X, device="simulated", engines="dual")
    assert alone.engine == "dual"


@pytest.mark.parametrize(("function", "twins"), [
    (chain, {"dual": "async", "graph-dual": "graph"}), (two_chains, {}),
    (host_only, {"dual": "async", "graph": "async", "graph-dual": "async"}),
])  # fmt: skip
def test_the_simpler_engine_that_would_do_the_same(function, twins):
    traced = function.trace(X)
    found = {engine: _twin(prepare_traced(traced, engine, SimulatedDevice()).plan)[0] for engine in engine_names(None)}
    assert {engine: twin for engine, twin in found.items() if twin} == twins


def test_a_host_function_alone_makes_the_simplest_engine_the_best():
    choice = ss.best(host_only, X, device="simulated")
    assert choice.engine == "sync"
    assert "nothing in the program can be captured" in choice.reason


class CrampedDevice(SimulatedDevice):
    """Each stream holds a MiB of workspace."""

    def memory_of(self, streams):
        return {"workspaces_bytes": MIB * len(list(streams))}


def test_what_needs_more_memory_than_allowed_is_ruled_out():
    free = ss.best(two_chains, X, device=CrampedDevice())
    held = {candidate.engine: candidate.device_bytes for candidate in free.candidates}
    assert held["graph-dual"] > held["graph"] > MIB
    choice = ss.best(two_chains, X, device=CrampedDevice(), memory_limit=held["graph"])
    assert choice.engine == "graph"
    assert standings(choice)["graph-dual"] is standings(choice)["dual"] is Standing.RULED_OUT
    assert "MiB of device memory, and the limit is" in choice.reason
    assert ss.best(two_chains, X, device=CrampedDevice(), memory_limit=held["graph-dual"]).engine == "graph-dual"


def test_a_limit_below_everything_says_what_each_engine_needs():
    with pytest.raises(EngineError, match="no engine can be chosen") as caught:
        ss.best(chain, X, device="simulated", memory_limit="1 kB")
    assert "sync: it holds" in caught.value.message
    assert "raise the memory limit" in caught.value.hint


def test_an_engine_that_runs_out_of_memory_is_ruled_out(monkeypatch):
    prepare = Case.prepare

    def cramped(case, engine, device, streams):
        if engine == "graph":
            raise OutOfMemoryError("1 byte too many")
        return prepare(case, engine, device, streams)

    monkeypatch.setattr(Case, "prepare", cramped)
    choice = ss.best(chain, X, device="simulated")
    assert "graph (device memory ran out: 1 byte too many)" in choice.reason


def test_wrong_results_are_ruled_out(monkeypatch):
    prepare = Case.prepare

    def broken(case, engine, device, streams):
        checked = prepare(case, engine, device, streams)
        return replace(checked, max_abs_error=1.0) if engine.startswith("graph") else checked

    monkeypatch.setattr(Case, "prepare", broken)
    choice = ss.best(chain, X, device="simulated")
    assert choice.engine == "async"
    assert "graph (its results are wrong: off by 1, tolerance" in choice.reason


def test_a_segment_that_could_not_be_captured_rules_out(monkeypatch):
    def refuses(*_):
        raise EngineError("somebody synchronised")

    monkeypatch.setattr(prepared_module, "captured", refuses)
    choice = ss.best(two_chains, X, device="simulated")
    assert choice.engine not in ("graph", "graph-dual")
    assert "graph (a segment runs uncaptured: somebody synchronised)" in choice.reason


def test_noise_is_told_where_there_is_some(monkeypatch):
    """Every launch is late by a random time: rounds are counted, and intervals are given."""
    start, random = Selection.elimination, np.random.default_rng(0)
    monkeypatch.setattr(Selection, "elimination", lambda selection: Elimination(start(selection).names, exact=False))
    device = SimulatedDevice(delays=lambda launch, stream: (float(random.uniform(0, 500)), 1.0))
    choice = ss.best(chain, X, device=device, engines="sync,graph")
    graph, sync = choice.candidates
    assert choice.engine == graph.engine == "graph"
    assert graph.makespan_ns.count == rounds_to_tell(2)
    assert sync.ratio.low < sync.ratio.median < sync.ratio.high


def test_wrong_arguments():
    with pytest.raises(EngineError, match="unknown engine 'warp'"):
        ss.best(chain, X, engines="warp")
    with pytest.raises(EngineError, match="out of range"):
        ss.best(chain, X, streams=0)


def test_a_column_of_intervals_stands_only_where_a_time_has_one():
    choice = ss.best(chain, X, device="simulated", engines="sync,async", progress=False)
    assert "low to high" not in str(choice) + choice._repr_html_()
    assert [len(row) for row in choice.rows()] == [6] * 3
    best, *others = choice.candidates
    varied = replace(choice, candidates=(replace(best, makespan_ns=replace(best.makespan_ns, low=1.0)), *others))
    assert "low to high" in str(varied)
    assert "low to high" in varied._repr_html_()
    assert [len(row) for row in varied.rows()] == [7] * 3
