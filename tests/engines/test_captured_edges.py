"""The graph engine orders of captured code what the capture orders, and nothing more."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.capturing.drawn import closure

from streamscope.engines.plan import Issue, RecordEvent, Replay, WaitEvent
from streamscope.engines.planners import graph as plan
from streamscope.program.launch import Cost, Launch, LaunchKind
from streamscope.program.operation import Operation, Program, Variable
from streamscope.program.variable import ArraySpec, MemoryPlace

TOKEN = ArraySpec((0,), np.dtype(np.uint8))


def captured(edges):
    """Return a program as `ss.capture` makes it: an operation for each node, which reads the tokens of those before it."""
    operations = []
    for number, before in enumerate(edges):
        launch = Launch(number, 0, "kernel", LaunchKind.KERNEL, before, (number,), Cost(0), None, None)
        operations.append(Operation(number, "kernel", before, (number,), {}, "", (launch,)))
    variables = tuple(Variable(number, f"edge {number}", TOKEN, MemoryPlace.DEVICE) for number in range(len(edges)))
    return Program("captured", variables, tuple(operations), (), (), captured=tuple(map(tuple, edges)))


def order_of(steps):
    """Return for each launch all that the streams and events of a capture put before it."""
    known, events, found = {}, {}, {}
    for step in steps:
        if isinstance(step, WaitEvent):
            known.setdefault(step.lane, set()).update(events[step.event])
        elif isinstance(step, RecordEvent):
            events[step.event] = set(known.get(step.lane, ()))
        elif isinstance(step, Issue):
            found[step.launch.operation] = set(known.get(step.lane, ()))
            known.setdefault(step.lane, set()).add(step.launch.operation)
    return [found[number] for number in sorted(found)]


def graph_of(edges):
    found = plan(captured(edges), lambda launch: 1.0)
    (replay,) = (step for step in found.steps if isinstance(step, Replay))
    return found, order_of(replay.steps)


@st.composite
def node_edges(draw):
    count = draw(st.integers(1, 14))
    return [tuple(sorted(draw(st.sets(st.integers(0, number - 1), max_size=3)))) if number else () for number in range(count)]


@given(node_edges())
def test_the_graph_of_captured_code_orders_what_the_capture_orders_and_nothing_more(edges):
    assert graph_of(edges)[1] == closure(edges)


def test_a_chain_takes_one_stream_and_four_branches_four_however_often_they_fork():
    assert graph_of([(), (0,), (1,)])[0].streams == 1
    fork_and_join = [()]
    for _ in range(5):
        last = len(fork_and_join) - 1
        fork_and_join += [(last,)] * 4 + [tuple(range(last + 1, last + 5))]
    found, order = graph_of(fork_and_join)
    assert found.streams == 4
    assert order == closure(fork_and_join)
