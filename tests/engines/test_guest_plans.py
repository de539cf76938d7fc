"""A plan of another package's engine that misses an order of the program is refused before anything is launched, on any device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import streamscope as ss
from streamscope.auditing.findings import Kind
from streamscope.doors import GuestWarning
from streamscope.engine_entry import ENGINES
from streamscope.engines.plan import CallHost, Issue, Plan
from streamscope.engines.prepared import Prepared
from streamscope.errors import RaceError

NAME = "mine"
X = np.arange(64, dtype=np.float32)


@ss.program
def step(x):
    """Have kernels on two streams, copies, a host function, and a variable that the next run overwrites."""
    left, right = ss.ops.tanh(ss.ops.to_device(x)), ss.ops.sin(ss.ops.to_device(x))
    added = ss.host_function(lambda values: values + 1)(ss.ops.to_host(left * right))
    return ss.ops.to_device(added) + left


@pytest.fixture
def offer(monkeypatch):
    """A function that installs a guest's engine, whose plan is a change of that of another."""

    def offered(base, change=lambda plan: plan):
        def plan(program, estimate, streams=None):
            made = ENGINES[base].plan(program, estimate, streams=streams)
            return replace(change(made), engine=NAME)

        entry = replace(ENGINES[base], name=NAME, plan=plan, rank=100)
        monkeypatch.setattr(ENGINES, "_guests", {NAME: entry})
        monkeypatch.setattr(ENGINES, "_packages", {NAME: "theirs"})

    return offered


def prepared():
    return ss.prepare(step, X, engine=NAME, device="simulated", progress=False)


@pytest.mark.parametrize("base", ENGINES.own)
def test_a_plan_is_taken_and_without_any_of_its_waits_refused(offer, base):
    offer(base)
    waits, refused = prepared().plan.waits, 0
    for index in range(waits):
        offer(base, lambda plan, index=index: plan.without_wait(index))
        if any(finding.kind is Kind.BROKEN_CAPTURE for finding in ss.audit(step, X, engine=NAME, touches=False, progress=False).findings):
            continue  # It then runs uncaptured, in the order of its lanes.
        refused += 1
        with pytest.raises(
            RaceError, match=r"^the plan that engine 'mine' of the package 'theirs' made of 'step' does not let .* wait for "
        ):
            prepared()
    assert refused or base == "sync"


def of_issues(change):
    def changed(plan):
        issues = [position for position, step in enumerate(plan.steps) if isinstance(step, Issue | CallHost)]
        return replace(plan, steps=tuple(change(list(plan.steps), issues)))

    return changed


def swapped(steps, issues):
    steps[issues[-1]], steps[issues[-2]] = steps[issues[-2]], steps[issues[-1]]
    return steps


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda steps, issues: steps[: issues[-1]] + steps[issues[-1] + 1 :], r"issues .*add.* 0 times"),
        (lambda steps, issues: [*steps, steps[issues[0]]], r"issues .* 2 times"),
        (swapped, r"issues .* on the other side of a write of one of its variables than the program"),
    ],
)
def test_work_left_out_repeated_or_out_of_order_is_named(offer, change, said):
    offer("sync", of_issues(change))
    with pytest.raises(RaceError, match=said) as caught:
        prepared()
    assert caught.value.hint == "ss.audit(..., engine='mine') names each fault, and the wait that mends it"
    assert not ss.audit(step, X, engine=NAME, device="simulated", progress=False).ok, "which reads any plan"


def test_it_is_refused_on_a_device_that_nothing_was_asked_of(offer):
    """The device is asked for memory first of all, and a plan that is refused does not come that far."""
    offer("dual", lambda plan: plan.without_wait(0))
    program = step.trace(X)
    with pytest.raises(RaceError):
        Prepared(ENGINES[NAME].plan(program, lambda launch: 1e3, streams=2), object())


def test_one_that_nobody_named_is_left_out(offer):
    offer("dual", lambda plan: plan.without_wait(0))
    with pytest.warns(GuestWarning, match="^engine 'mine' of the package 'theirs' is left out: RaceError: the plan that .* does not let "):
        runs = ss.compare(step, X, device="simulated", progress=False)
    assert list(runs) == list(ENGINES.own)


def test_our_engines_and_plans_by_hand_are_not_checked(monkeypatch):
    monkeypatch.setattr("streamscope.engines.race_check._check_guest", lambda plan: 1 / 0)
    for engine in ENGINES.own:
        ss.prepare(step, X, engine=engine, device="simulated", progress=False)
    program = step.trace(X)
    Prepared(Plan("by hand", program, ("main",), (), 0), ss.open_device("simulated"))
