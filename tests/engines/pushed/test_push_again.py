"""A push of what was pushed before stays short."""

from __future__ import annotations

import gc
import sys
from collections import Counter

import numpy as np
import pytest

import streamscope as ss
from streamscope.devices.simulated import SimulatedDevice

OURS = ("streamscope.engines.pushed.", "streamscope.order.")


def functions_of(push):
    """Return which Python functions of the engine run for a push, without those of the device."""
    called: Counter[str] = Counter()

    def count(frame, event, argument):
        if event == "call" and frame.f_globals["__name__"].startswith(OURS):
            called[frame.f_code.co_name] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        push()
    finally:
        sys.setprofile(before)
    return called


@pytest.mark.parametrize(("name", "more"), [("async", 0), ("dual", 3)])
def test_a_push_of_what_was_pushed_before_is_eight_functions(name, more):
    with ss.Engine(name, device=SimulatedDevice()) as engine:
        x, y = engine.variable(np.zeros(4)), engine.variable(np.ones(4))

        def push():
            engine.push(ss.ops.add, reads=(x, y), writes=(x,))

        for _ in range(3):
            push()
            engine.wait_all()
        called = functions_of(push)
        assert called.total() == 8 + more, called


@pytest.mark.parametrize("counted", [False, True])
def test_attributes_of_what_issues_are_found_quickly(counted):
    """They lie in no dictionary until somebody asks for one, as `vars` does. From then on, Python takes longer to find them."""
    with ss.Engine("async", device=SimulatedDevice()) as engine:
        if counted:
            engine.host_totals.start()
            engine.host_totals.pause()
        assert not any(isinstance(held, dict) and "_issuing" in held for held in gc.get_referents(engine._issuer))
