"""What a proof says of the differences that it has seen."""

from __future__ import annotations

import json

import numpy as np
import pytest

from streamscope.capturing.memory import Access, Evidence, NodeMemory
from streamscope.parallelising.proving import Proof, ProvedOutput, _difference, _Left, _temporary, _tried

EQUAL = ProvedOutput("output 0", 0.0, 0.0, holds=True)
ATOMIC = ProvedOutput("output 1", 2e-6, 1e-6, holds=True)
WRONG = ProvedOutput("state", 0.0, 12.0, holds=False)


def proof(*outputs):
    return Proof("net", "graph-dual", 20, 40, outputs, 1.5)


def test_words():
    assert str(proof(EQUAL)) == (
        "net: graph-dual was equal to the capture in each bit, in 40 runs on 20 inputs, beside neighbours and with nodes held back (1.50 s)"
    )
    assert "as equal to the capture as that is to itself" in proof(EQUAL, ATOMIC).text
    assert "the capture's own output 1 differs from run to run" in proof(EQUAL, ATOMIC).text
    assert proof(EQUAL, WRONG).text == "graph-dual differs from the capture in state"


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


class Trial:
    """Runs whose outputs are an atomic sum and an exact one; notes how often it looked again."""

    runs = 0

    def __init__(self, own, differs, fits=True):
        self.own, self.differs, self.fits = own, differs, fits
        self.looks = 0

    def self_differences(self, runs):
        self.looks += 1
        return iter([("output 0", self.own), ("state", 0.0)])

    def draw(self, number):
        self.number = number

    def sequential(self):
        return self

    disturbed = chosen = sequential

    def differences(self, other):
        return [self.differs, 0.0] if self.number == 1 else [0.0, 0.0]

    def allowed(self, other):
        return [self.fits, True]


@pytest.mark.parametrize(
    ("own", "differs", "fits", "looks", "holds"),
    [
        (1e-6, 2e-6, True, 1, True),  # The capture is known to differ there: nothing is looked at again.
        (0.0, 2e-6, True, 2, False),  # It was not known to, and does not in further runs either.
        (1e-6, 0.5, False, 2, False),  # It differs, but not by so much.
        (0.0, 0.0, True, 1, True),
    ],
)
def test_a_difference_is_looked_at_again_unless_the_capture_is_known_to_differ_there(own, differs, fits, looks, holds):
    trial = Trial(own, differs, fits)
    outputs, tried = _tried(trial, 4)
    assert trial.looks == looks
    assert all(one.holds for one in outputs) == holds
    assert outputs[0].difference == differs
    assert tried == (4 if holds else 2)
