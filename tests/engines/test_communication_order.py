"""The order of collectives by priority: what is ready goes by it, and all that an operation needs comes before it."""

from __future__ import annotations

import numpy as np
import pytest

import streamscope as ss
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engines.communication_order import by_priority, has_priorities
from streamscope.engines.plan import Issue
from streamscope.engines.prepared import planned
from streamscope.order.graph import dependencies
from streamscope.workloads import WORKLOADS


def reduced(priorities, bucket=None):
    """Return a program that reduces arrays one after the other, all of which are ready at once."""

    def program(*values):
        pairs = [values[number : number + 2] for number in range(0, len(values), 2)]
        return tuple(
            each for pair, one in zip(pairs, priorities, strict=True) for each in ss.ops.all_reduce(pair, bucket=bucket, priority=one)
        )

    return ss.program(program).trace(*np.ones((2 * len(priorities), 1024), np.float32))


def issued(program, engine="graph-dual"):
    """Return the priorities of the collectives in the order in which a plan issues them."""
    plan = planned(program, engine, SimulatedDevice(gpus=2), None)
    parts = [
        step.launch for step in plan.flat() if isinstance(step, Issue) and step.launch.collective is not None and step.launch.part == 0
    ]
    return [part.collective.priority for part in parts]


@pytest.mark.parametrize("engine", ["dual", "graph-dual"])
def test_what_is_ready_at_once_goes_by_priority(engine):
    assert issued(reduced([0, 3, 1, 2]), engine) == [3, 2, 1, 0]


def test_without_priorities_the_order_stays():
    program = reduced([0, 0, 0])
    assert not has_priorities(program)
    assert issued(program) == [0, 0, 0]


def test_of_slices_that_are_ready_the_urgent_overtake_the_rest():
    assert issued(reduced([0, 1], bucket=2048)) == issued(reduced([0, 1], bucket="2 KiB")) == [1, 1, 0, 0]


@pytest.mark.parametrize("settings", [{}, {"bucket": 1}, {"overlap": 0}, {"gpus": 3, "bucket": 2}])
def test_every_operation_comes_behind_what_it_needs(settings):
    function, specs = WORKLOADS["data-parallel"].outline(layers=4, width=32, rows=8, priority=1, **settings)
    program = function.trace(*specs)
    streams = {(launch.operation, launch.part): 0 for launch in program.launches()}
    order = by_priority(program, range(len(program.operations)), streams, lambda launch: 1000.0)
    place = {position: number for number, position in enumerate(order)}
    assert sorted(order) == list(range(len(program.operations)))
    for position, earlier in enumerate(dependencies(program.operations)):
        assert all(place[one] < place[position] for one in earlier)
