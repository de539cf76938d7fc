"""What another order of captured code can bring at most: cases worked out by hand, and no simulated run is faster."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engines.test_captured_orders import orders, program_of

from streamscope.capturing.captured import upper_bound
from streamscope.devices.cost_model import CostModel
from streamscope.engine_entry import ENGINES
from streamscope.measuring.simulation import simulated_ns, without_data
from streamscope.program.launch import Cost

MODEL = CostModel.load()
FEW, ALL = Cost(0, blocks=1, threads=32), Cost(0, blocks=10_000, threads=1024)


def bound_of(durations_us, cost, capture, order):
    costs = [replace(cost, alone_ns=1e3 * us) for us in durations_us]
    return upper_bound(durations_us, costs, capture, order, MODEL)


CHAIN = ((), (0,), (1,), (2,))
DIAMOND = ((), (0,), (0,), (1, 2))


def test_a_diamond_of_small_kernels_is_as_long_as_its_longest_path():
    bound = bound_of([10.0, 20.0, 30.0, 10.0], FEW, CHAIN, DIAMOND)
    assert bound.capture_us == bound.one_stream_us == pytest.approx(70.09)  # three gaps
    assert bound.longest_path_us == bound.least_us == pytest.approx(50.06)
    assert bound.speedup == pytest.approx(70.09 / 50.06)
    assert str(bound) == "at most 1.4 times as fast as the capture: 50.1 µs of 70.1 µs"


def test_kernels_that_fill_the_chip_gain_nothing_side_by_side():
    bound = bound_of([100.0] * 4, ALL, CHAIN, ((),) * 4)
    assert bound.longest_path_us == 100.0
    assert 0.95 * 400 < bound.filled_us <= 400.0
    assert bound.nothing_to_gain
    assert str(bound) == f"nothing to gain here: the multiprocessors are full for {100 * bound.filled_us / 400.09:.0f} % of the time"


def test_a_chain_gains_nothing_and_neither_does_a_capture_that_has_the_true_order():
    assert str(bound_of([10.0] * 4, FEW, CHAIN, CHAIN)) == "nothing to gain here: the longest path takes 100 % of the time"
    assert bound_of([10.0] * 4, FEW, DIAMOND, DIAMOND).nothing_to_gain
    assert bound_of([100.0, 2.0], FEW, ((), (0,)), ((), ())).nothing_to_gain  # 100 of 102 µs
    assert str(bound_of([], FEW, (), ())) == str(bound_of([5.0], FEW, ((),), ((),)))
    assert str(bound_of([5.0], FEW, ((),), ((),))) == "nothing to gain here: there is nothing to run side by side"


def test_a_capture_that_forks_streams_is_as_long_as_its_own_longest_path():
    bound = bound_of([10.0, 20.0, 30.0, 10.0], FEW, DIAMOND, ((), (), (0,), (1, 2)))
    assert (bound.capture_us, bound.one_stream_us) == (pytest.approx(50.06), pytest.approx(70.09))


def test_a_chain_gains_nothing_though_its_gaps_were_longer_than_the_shortest():
    costs = [replace(FEW, alone_ns=1e4)] * 4
    bound = upper_bound([10.0] * 4, costs, CHAIN, CHAIN, MODEL, 60.0)
    assert bound.nothing_to_gain
    assert (bound.least_us, bound.speedup) == (60.0, 1.0)


def test_what_a_replay_of_the_capture_takes_is_believed_where_it_was_measured():
    costs = [replace(FEW, alone_ns=10_000.0)] * 4
    bound = upper_bound([10.0] * 4, costs, CHAIN, DIAMOND, MODEL, measured_us=60.12)
    assert bound.speedup == pytest.approx(60.12 / 30.06)
    quick = upper_bound([10.0] * 4, costs, CHAIN, CHAIN, MODEL, measured_us=39.0)  # than its longest path by our own times
    assert (quick.nothing_to_gain, quick.least_us, quick.speedup) == (True, 39.0, 1.0)


@settings(max_examples=40)
@given(orders(), st.data())
def test_no_simulated_run_is_faster_than_the_bound(drawn, data):
    capture, true = drawn
    size = st.tuples(st.integers(2000, 60_000), st.integers(1, 3000), st.sampled_from([32, 128, 256, 1024]), st.integers(0, 4))
    sizes = [data.draw(size) for _ in true]
    costs = [Cost(0, 0, blocks, threads, alone_ns=float(ns), per_multiprocessor=fit) for ns, blocks, threads, fit in sizes]
    program = program_of(capture, true)
    operations = tuple(
        replace(one, work=(replace(one.launches[0], cost=cost),)) for one, cost in zip(program.operations, costs, strict=True)
    )
    bound = upper_bound([cost.alone_ns / 1e3 for cost in costs], costs, capture, true, MODEL)
    for engine in ("graph", "graph-dual", "dual"):
        plan = ENGINES[engine].plan(replace(program, operations=operations), MODEL.estimate_ns, streams=4)
        _, done_ns = simulated_ns(without_data(plan), MODEL.estimate_ns, MODEL)
        assert done_ns >= 1e3 * max(bound.longest_path_us, bound.filled_us) - len(costs)  # Its clock has whole nanoseconds.
        if engine == "graph":
            assert done_ns >= 1e3 * bound.capture_us - len(costs)


def communicating(durations_us, capture, order, measured_us):
    """Return the bound of kernels and collectives in turns: kernel, collective, kernel, collective."""
    costs = [replace(FEW, alone_ns=1e3 * us) for us in durations_us]
    return upper_bound(durations_us, costs, capture, order, MODEL, measured_us, [number % 2 == 1 for number in range(len(costs))])


def test_a_tensor_parallel_chain_hides_no_communication():
    bound = communicating([10.0] * 4, CHAIN, CHAIN, 60.0)
    assert (bound.communication_us, bound.hidden_us) == (20.0, 0.0)
    assert str(bound) == (
        "nothing to gain here: the longest path takes 100 % of the time; of 20.0 µs of communication, any order hides at most 0 µs"
    )


def test_two_micro_batches_hide_all_communication_but_that_at_the_end_of_each():
    """Two chains of 10 and 30 µs, twice each: the links are busy for 120 of the 160 µs, and no order takes less."""
    chains = ((), (0,), (1,), (2,), (), (4,), (5,), (6,))
    bound = communicating([10.0, 30.0] * 4, tuple((at - 1,) if at else () for at in range(8)), chains, 165.0)
    assert (bound.communication_us, bound.hidden_us, bound.least_us) == (120.0, 40.0, 120.0)
