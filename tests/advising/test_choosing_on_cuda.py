"""The choice and the advice on a real GPU."""

from __future__ import annotations

import sys

import pytest

import streamscope as ss
from streamscope.measuring.choice import Standing
from streamscope.workloads import WORKLOADS

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def device():
    return ss.open_device("cuda")


def report(found):
    """Show what was found, for whoever runs pytest with ``-s``."""
    sys.stdout.write(f"\n{found}\n")


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
