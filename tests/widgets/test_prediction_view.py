"""A prediction as a cell's result: the answer, and both traces on one axis, each labelled as what it is."""

from __future__ import annotations

import pytest

import streamscope as ss
from streamscope_widgets.payload import encode
from streamscope_widgets.prediction_view import predicted_words, prediction_groups


@pytest.fixture(scope="module")
def measured(repository):
    return ss.read(repository / "tests/data/kineto/streams.json.gz")


def test_the_answer_and_both_traces(measured):
    prediction = ss.what_if(measured, engine="graph").kernel("*gemm*").scale(0.5)
    html = prediction._repr_html_()
    assert predicted_words(prediction).startswith("Predicted, not measured: ")
    assert f">{predicted_words(prediction)}<" in html
    for words in (
        "under graph with 2 *gemm* × 0.5; ",
        "took 1.54 ms with the profiler on; ",
        "predicted without the change: ",
        ", so the change makes it 1.",
        " times as fast",
    ):
        assert words in predicted_words(prediction)
    assert "all times are predicted" in html
    assert "all times are simulated" not in html
    assert len(html) < 200_000
    source, predicted = prediction_groups(prediction)
    assert (source.trace, predicted.trace) == (measured, prediction)
    assert (source.makespan_ns, predicted.makespan_ns) == (None, None)  # the profiler's file does not tell what recording cost
    assert "without recording" not in html


def test_where_the_run_without_recording_is_known_it_is_what_is_compared():
    function, inputs = ss.workload("branches").build(branches=2, length=3)
    trace = ss.compare(function, *inputs, engines="sync", device="simulated", progress=False)["sync"].trace
    prediction = ss.what_if(trace, engine="graph")
    assert [group.makespan_ns for group in prediction_groups(prediction)] == [prediction.before_ns, prediction.predicted_ns]


def test_only_what_is_predicted_is_called_so(measured):
    headers = encode(prediction_groups(ss.what_if(measured, engine="graph"))).header["groups"]
    assert [(header["label"], header["recorder"]) for header in headers] == [("streams", "kineto"), ("graph, predicted", "prediction")]
    assert not any("simulated" in remark for header in headers for remark in header["remarks"])


def test_in_text_it_is_a_sentence_and_no_table_of_numbers(measured):
    said = repr(ss.what_if(measured, engine="graph"))
    assert "predicted" in said.splitlines()[0]
    assert len(said) < 2000


@pytest.mark.usefixtures("bundle")
def test_live(measured):
    widget = ss.what_if(measured, engine="graph").timeline()
    assert widget.engines == ["streams", "graph, predicted"]
    assert widget.finding.startswith("Predicted, not measured: ")
