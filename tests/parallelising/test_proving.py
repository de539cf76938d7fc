"""What a proof says of the differences that it has seen."""

from __future__ import annotations

import json

import numpy as np

from streamscope.capturing.memory import Access, Evidence, NodeMemory
from streamscope.parallelising.proving import Proof, ProvedOutput, _difference, _Left, _temporary

EQUAL = ProvedOutput("output 0", 0.0, 0.0, holds=True)
ATOMIC = ProvedOutput("output 1", 2e-6, 1e-6, holds=True)
WRONG = ProvedOutput("state", 0.0, 12.0, holds=False)


def proof(*outputs, first=""):
    return Proof("net", "graph-dual", 20, 40, outputs, 1.5, first)


def test_words():
    assert str(proof(EQUAL)) == (
        "net: graph-dual was equal to the capture in each bit, in 40 runs on 20 inputs, beside neighbours and with nodes held back (1.50 s)"
    )
    assert "as equal to the capture as that is to itself" in proof(EQUAL, ATOMIC).text
    assert "the capture's own output 1 differs from run to run" in proof(EQUAL, ATOMIC).text
    said = proof(EQUAL, WRONG, first="node 3, relu").text
    assert said == "graph-dual differs from the capture in state; what differed first was left by node 3, relu"


def test_what_holds():
    assert proof(EQUAL).holds
    assert proof(EQUAL).bit_equal
    assert proof(EQUAL, ATOMIC).holds
    assert not proof(EQUAL, ATOMIC).bit_equal
    assert proof(EQUAL, ATOMIC).self_difference == 2e-6
    assert not proof(EQUAL, WRONG).holds
    assert json.loads(json.dumps(proof(EQUAL, WRONG).to_dict()))["outputs"][1]["difference"] == 12


def test_results_are_equal_only_in_each_bit():
    nan = np.array([np.nan, 1], np.float32)
    assert _difference(nan, nan.copy()) == 0
    assert _difference(np.array([0.0]), np.array([-0.0])) > 0
    assert _difference(np.array([1.0, 2.0]), np.array([1.0, 2.5])) == 0.5
    assert _difference(np.array([1, 5, 7], np.uint8), np.array([1, 6, 9], np.uint8)) == 2


def test_a_result_that_is_not_equal_may_be_off_as_results_of_other_code_may_be():
    left, close, far = (_Left([np.array([1.0, second])], []) for second in (2.0, 2.0 + 1e-12, 2.1))
    assert close.allowed(left) == [True, True]
    assert far.allowed(left) == [False, True]


def test_only_memory_of_the_captures_own_that_a_run_fills_itself_is_cleared_before():
    def written(start, end, evidence=Evidence.SCHEMA, *, writes=True):
        return Access(start, end, True, writes, evidence)

    memories = [
        NodeMemory((written(0, 8), written(8, 16, writes=False), written(900, 990))),
        NodeMemory((written(4, 12), written(100, 140, Evidence.ALLOCATED), written(64, 96, Evidence.POINTER), written(180, 220))),
    ]
    assert _temporary(memories, [(0, 200), (950, 2000)]) == [(0, 12), (100, 140)]
