"""A preview says what a comparison on the simulated device says, without computing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamscope as ss
from streamscope.comparing.preview import Preview
from streamscope.engine_entry import ENGINES
from streamscope.errors import EngineError
from streamscope.workloads import WORKLOADS

FEW = 8
"""A small value for a setting, where it can be so small."""
FEWER = {"resnet50-v2": {"depth": 1}, "transformer": {"layers": 1}}


def spans_of(run):
    table = run.trace.to_pandas()
    return table.drop(columns=["start_ns", "end_ns"]), table[["start_ns", "end_ns"]]


@settings(max_examples=5)
@given(st.integers(1, 4), st.integers(1, 5), st.sampled_from([16, 70_000]), st.integers(0, 1), st.integers(1, 4))
def test_it_has_the_spans_and_times_of_the_comparison(branches, length, size, copies, streams):
    function, inputs = ss.workload("branches").build(branches=branches, length=length, size=size, copies=copies)
    compared = ss.compare(function, *inputs, device="simulated", streams=streams, progress=False)
    previewed = Preview(function.trace(*inputs)).comparison(ENGINES, streams=streams)
    assert list(previewed) == list(compared)
    for engine, run in compared.items():
        assert previewed[engine].metrics.makespan_us == pytest.approx(run.metrics.makespan_us, abs=0.002)
        (what, when), (expected, then) = spans_of(previewed[engine]), spans_of(run)
        assert what.equals(expected)
        assert previewed[engine].trace.origins.to_dict() == run.trace.origins.to_dict()
        assert abs(when - then).to_numpy().max() <= 2  # ns: the clock of a device that was used before is rounded elsewhere.


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_has_the_makespans_of_its_comparison(name):
    workload = WORKLOADS[name]
    values = {key: max(setting.least, min(setting.default, FEW)) for key, setting in workload.settings.items()}
    function, inputs = workload.build(**{**values, **FEWER.get(name, {})})
    compared = ss.compare(function, *inputs, device="simulated", progress=False)
    previewed = Preview(function.trace(*inputs)).comparison(ENGINES)
    for engine, run in compared.items():
        assert previewed[engine].metrics.makespan_us == pytest.approx(run.metrics.makespan_us, abs=0.002)


def test_a_host_function_takes_its_time_and_is_not_called():
    function, specs = ss.workload("pipeline").outline(chunks=2, size=1 << 20)
    previewed = Preview(function.trace(*specs)).comparison(["async"])
    assert previewed["async"].metrics.host_function_us > 300


def test_no_memory_is_taken_whatever_the_size():
    function, specs = ss.workload("branches").outline(branches=256, length=1, size=1 << 28)
    assert sum(spec.nbytes for spec in specs) > 1 << 37
    assert Preview(function.trace(*specs)).comparison(["async"])["async"].metrics.kernel_count == 256 + 255


def test_other_streams_are_the_work_of_the_engines_that_use_them():
    function, specs = ss.workload("branches").outline()
    preview = Preview(function.trace(*specs))
    two, four = (preview.comparison(ENGINES, streams=streams) for streams in (2, 4))
    assert [engine for engine in ENGINES if two[engine] is not four[engine]] == ["dual", "graph-dual"]
    assert preview.comparison(["dual"], streams=2)["dual"] is two["dual"]


def test_an_engine_that_is_new_has_the_streams_that_it_takes(monkeypatch):
    function, specs = ss.workload("branches").outline()
    theirs = ENGINES["graph-dual"]
    new = replace(theirs, name="new", plan=lambda *given, **more: replace(theirs.plan(*given, **more), engine="new"))
    monkeypatch.setitem(ENGINES.guests(), "new", new)
    runs = Preview(function.trace(*specs)).comparison(["graph-dual", "new"], streams=4)
    assert runs["new"].metrics.makespan_us == runs["graph-dual"].metrics.makespan_us


def test_streams_out_of_range():
    function, specs = ss.workload("branches").outline()
    with pytest.raises(EngineError, match="streams=0"):
        Preview(function.trace(*specs)).comparison(["async"], streams=0)


def test_as_much_communication_hides_as_two_h200_recorded():
    function, outline = ss.workload("data-parallel").outline(width=2048, rows=1024)
    metrics = Preview(function.trace(*outline)).comparison(["graph", "graph-dual"]).metrics
    assert metrics["graph-dual"].exposed_us == pytest.approx(0.68 * metrics["graph"].exposed_us, rel=0.03)


def test_the_exposed_share_is_within_five_points_of_that_on_two_h200():
    """Three recordings of 2026-11-27: 137.8, 154.5 and 137.7 µs of 266, 270 and 261 are exposed on GPU 0. The model learnt from them."""
    function, outline = ss.workload("data-parallel").outline(width=2048, rows=1024)
    metrics = Preview(function.trace(*outline)).comparison(["graph-dual"]).metrics["graph-dual"]
    assert metrics.exposed_us / metrics.communication_us == pytest.approx(0.527, abs=0.05)
    assert metrics.exposed_us == pytest.approx(137.8, rel=0.03)
