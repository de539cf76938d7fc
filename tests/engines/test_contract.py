"""The contract of engines: each entry's plan keeps the order of a program, carries the entry's name and has its traits."""

from __future__ import annotations

import numpy as np
import pytest

import streamscope as ss
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engine_entry import DEFAULT_ENGINE, ENGINES, EngineEntry, engine_with, simplest_first
from streamscope.engines.plan import MAIN, CallHost, HostWait, Issue, Plan, Replay, Synchronize
from streamscope.engines.prepared import Prepared
from streamscope.errors import EngineError

X = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)


@pytest.fixture(params=ENGINES)
def entry(request):
    return ENGINES[request.param]


def branches(x):
    """Branches that share variables, one written in place, with copies in and out."""
    a = ss.ops.tanh(x)
    b, c = a @ x, ss.ops.exp(a)
    ss.ops.add(a, b, out=a)
    return a - c, b


def swapped(launch, stream):
    """Delay every other operation, so that a missing wait shows."""
    return (20_000.0 * (launch.operation % 2), 1 + launch.operation % 3)


def test_an_entry_is_described_in_words(entry):
    assert ENGINES[entry.name] is entry
    assert entry.line
    assert "\n" not in entry.line
    assert all(isinstance(trait, str) and trait for trait in entry.traits)
    assert isinstance(entry.rank, int)


@pytest.mark.parametrize("streams", [None, 1, 3])
def test_its_plan_keeps_the_order_on_any_device_run_after_run(entry, streams):
    plan = entry.plan(ss.program(branches).trace(X), SimulatedDevice().estimate_ns, streams=streams)
    assert plan.engine == entry.name
    prepared = Prepared(plan, SimulatedDevice(delays=swapped))
    prepared.load([X])
    for _ in range(3):
        prepared.run()
    a = np.tanh(X)
    for found, expected in zip(prepared.outputs(), (a + a @ X - np.exp(a), a @ X), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_its_traits_are_those_of_its_plans(entry):
    plan = entry.plan(ss.program(branches).trace(X), SimulatedDevice().estimate_ns, streams=2)
    assert any(isinstance(step, Replay) for step in plan.steps) == entry.captures
    assert plan.streams == 1 or entry.takes_streams
    if entry.waits:
        works = [index for index, step in enumerate(plan.steps) if isinstance(step, Issue)]
        assert all(isinstance(plan.steps[index + 1], Synchronize) for index in works)
        assert not any(isinstance(step, CallHost) for step in plan.steps)


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (ENGINES[DEFAULT_ENGINE].plan, f"its plan names '{DEFAULT_ENGINE}' as its engine"),
        (lambda *_, **__: None, "it returned a NoneType, not a Plan"),
        (lambda *_, **__: {}["lane"], "KeyError: 'lane'"),
        (lambda program, *_, **__: Plan("mine", program, (MAIN,), (Synchronize(2),), 0), "Synchronize names lane 2 of 1"),
        (lambda program, *_, **__: Plan("mine", program, (MAIN,), (HostWait(0),), 0), "HostWait names event 0 of 0"),
        (lambda program, *_, **__: Plan("mine", program, (MAIN,), ("wait",), 0), "a str is no step"),
    ],
)
def test_an_engine_that_fails_or_plans_as_another_is_named(monkeypatch, plan, said):
    monkeypatch.setattr(ENGINES, "_guests", {"mine": EngineEntry(name="mine", line="", plan=plan)})
    with pytest.raises(EngineError, match=f"^engine 'mine' of the package 'unknown' failed to plan 'branches': {said}"):
        ss.compare(branches, X, engines="mine", device="simulated", progress=False)


def test_the_default_has_no_traits_and_own_entries_stand_from_the_simplest_on():
    assert engine_with() == DEFAULT_ENGINE
    assert simplest_first(reversed([*ENGINES.own])) == tuple(ENGINES.own)
    assert engine_with("no such trait") == ""
