"""What a parallelised function gains, in words and as a table."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.parallelising.gains import gain

from streamscope.capturing.as_called import AsCalled
from streamscope.capturing.operators import Parting
from streamscope.parallelising.proving import Proof, ProvedOutput


def test_a_gain_names_before_and_after_with_the_interval_of_runs_in_turns():
    found = gain(before_us=1616, after_us=909, ratio=1.78)
    assert found.parallel
    assert found.text.startswith(
        "inception takes 909 µs a run, and 1.62 ms in the order in which it was captured: 1.78× as fast (1.76 to 1.80)."
    )
    assert "The order was taken of 2 orders: fewest edges 909 µs; 2 streams 1.00 ms." in found.text
    assert [row[1:] for row in found.rows()] == [("7,000", "0.23×"), ("1,616", "1.00×"), ("909", "1.78×")]
    assert "NumPy" not in str(found)


def test_where_nothing_is_gained_it_says_so():
    found = gain(before_us=400, after_us=399, ratio=None)
    assert not found.parallel
    assert found.speedup is None
    assert found.after_ns == found.before_ns
    assert found.text.startswith(
        "Nothing to gain: inception runs in the order in which it was captured, 400 µs a run (graph-dual is no faster)."
    )
    assert "fewest edges" not in found.text
    assert len(found.rows()) == 2


def test_an_engine_that_was_ruled_out_is_named_with_the_reason():
    found = gain(before_us=400, after_us=None, ratio=None)
    assert "(graph-dual was ruled out: it uses one stream here, so it is graph)" in found.text


def test_a_capture_that_is_not_what_is_called_is_told_first():
    called = AsCalled(1, 2e-3, parting=Parting("aten.all.default", "aten.arange.start", "masks.py:7"))
    found = replace(gain(before_us=1616, after_us=909, ratio=1.78), as_called=called)
    assert found.facts[0] == str(called)
    assert "aten.arange.start (masks.py:7) where a plain call calls aten.all.default" in found.text
    assert found.to_dict()["as_called"]["verdict"] == "different"


@pytest.mark.parametrize("holds", [True, False])
def test_a_proof_is_told_and_one_that_fails_keeps_the_captured_order(holds):
    proof = Proof("inception", "graph-dual", 3, 6, (ProvedOutput("output 0", 0.0, 0.0 if holds else 2.0, holds),), 0.1)
    found = gain(before_us=1616, after_us=909, ratio=1.78)
    found = replace(found, proof=proof, choice=found.choice if holds else replace(found.choice, engine="graph"))
    if holds:
        assert "Graph-dual was equal to the capture in each bit, in 6 runs on 3 inputs" in found.text
    else:
        assert found.text.startswith(
            "inception runs in the order in which it was captured, 1.62 ms a run, since the other was not proven: "
            "graph-dual differs from the capture in output 0."
        )
        assert found.speedup is None


def test_what_a_call_costs_besides_its_graph_is_told():
    found = replace(gain(before_us=400, after_us=399, ratio=None), call_us=(6.12, 5.04), compared=(1, 3, 0))
    assert "A call takes 6.1 µs more than the launch of its graph, and 5.0 µs more of the host" in found.text
    assert "it compares 1 array and 3 other values." in found.text
    assert "more than the launch" not in gain(before_us=400, after_us=399, ratio=None).text
