"""Placement of launches in a graph."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamscope.engines.plan import Issue, RecordEvent, WaitEvent
from streamscope.program.collective import Collective
from streamscope.program.launch import Cost, Launch, LaunchKind
from streamscope.recording.placing import begun_when_free, fitted_to_ends, place_in_graph, with_shorter_gaps


def issue(lane: int, kind: LaunchKind = LaunchKind.KERNEL, gpu: int = 0) -> Issue:
    return Issue(Launch(0, 0, "kernel", kind, (), (), Cost(0), None, gpu=gpu), lane)


def test_ends_that_respect_the_order_stay():
    starts = place_in_graph([issue(0), issue(0)], {0: 10, 1: 20}, {0: 100, 1: 130})
    assert starts == {0: 90, 1: 110}


def test_two_launches_of_a_lane_that_would_overlap_part_in_the_middle():
    # Measured ends 100 and 106, both 10 long: 4 too close, so each gives 2.
    starts = place_in_graph([issue(0), issue(0)], {0: 10, 1: 10}, {0: 100, 1: 106})
    assert starts == {0: 88, 1: 98}


def test_a_wait_orders_launches_of_two_lanes_and_nothing_else_does():
    steps = [issue(0), RecordEvent(0, 0), issue(1), WaitEvent(0, 1), issue(1)]
    starts = place_in_graph(steps, {0: 10, 2: 50, 4: 10}, {0: 100, 2: 95, 4: 104})
    # The last launch waits for the first: pushed to 100 or pulled to 94, and with it whatever comes before it on its lane.
    assert starts == {0: pytest.approx((90 + 84) / 2), 2: pytest.approx((45 + 44) / 2), 4: pytest.approx((100 + 94) / 2)}


@given(st.lists(st.tuples(st.floats(0.5, 50), st.floats(-3, 3)), min_size=1, max_size=30))
def test_whatever_the_noise_a_lane_stays_in_order_and_near_what_was_measured(launches):
    steps = [issue(0) for _ in launches]
    durations = {index: duration for index, (duration, _) in enumerate(launches)}
    true_end, ends = 0.0, {}
    for index, (duration, noise) in enumerate(launches):
        true_end += duration
        ends[index] = true_end + noise
    starts = place_in_graph(steps, durations, ends)
    for index in range(1, len(steps)):
        assert starts[index] >= starts[index - 1] + durations[index - 1] - 1e-6
    for index, end in ends.items():
        assert starts[index] + durations[index] == pytest.approx(end, abs=6.001)


def test_durations_that_do_not_fit_between_the_ends_are_shortened_alike():
    steps = [issue(0) for _ in range(4)]
    # 10 between the ends, but 12 long in the median: 2 too long.
    assert fitted_to_ends(steps, {0: 12, 1: 12, 2: 14, 3: 11}, {0: 12, 1: 22, 2: 32, 3: 42}) == {0: 10, 1: 10, 2: 12, 3: 9}


def test_durations_that_fit_and_launches_of_one_lane_each_stay():
    assert fitted_to_ends([issue(0), issue(0)], {0: 8, 1: 9}, {0: 10, 1: 20}) == {0: 8, 1: 9}
    assert fitted_to_ends([issue(0), issue(1)], {0: 8, 1: 90}, {0: 10, 1: 20}) == {0: 8, 1: 90}


def test_gaps_are_shortened_alike_and_launches_are_not():
    # Two gaps of 20 in a lane, and one of 4 before the launch of another lane; 50 of 70 ns are left.
    steps = [issue(0), RecordEvent(0, 0), issue(0), issue(0), WaitEvent(0, 1), issue(1)]
    found = with_shorter_gaps(steps, {0: (0, 10), 2: (30, 40), 3: (60, 70), 5: (14, 34)}, 50 / 70)
    assert {index: pytest.approx(times, abs=1e-3) for index, times in {0: (20, 30), 2: (40, 50), 3: (60, 70), 5: (32, 52)}.items()} == found


def test_parts_of_a_collective_end_together_when_gaps_are_shortened():
    def part(number):
        launch = Launch(7, number, "all_reduce", LaunchKind.COLLECTIVE, (), (), Cost(0), None, gpu=number)
        return Issue(replace(launch, collective=Collective("all_reduce", (0, 1), 8, "sum")), number)

    # Part 0 waits for part 1, which begins 4 ns after the kernel ahead of it.
    times = {0: (0.0, 10.0), 1: (0.0, 40.0), 2: (12.0, 60.0), 3: (44.0, 60.0)}
    found = with_shorter_gaps([issue(0), issue(1, gpu=1), part(0), part(1)], times, 58 / 60)
    assert found == {index: pytest.approx(times, abs=1e-3) for index, times in {0: (2, 12), 1: (2, 42), 2: (13, 60), 3: (44, 60)}.items()}


def test_one_that_sends_ends_before_the_other_begins_and_what_follows_it_moves_with_it():
    """A broadcast, whose root is in lane 0 with a kernel ahead and one behind; the other part comes long after."""

    def part(number):
        launch = Launch(7, number, "broadcast", LaunchKind.COLLECTIVE, (), (), Cost(0), None, gpu=number)
        return Issue(replace(launch, collective=Collective("broadcast", (0, 1), 8)), number)

    times = {0: (0.0, 10.0), 1: (20.0, 28.0), 2: (95.0, 100.0), 3: (38.0, 60.0)}
    found = with_shorter_gaps([issue(0), part(0), part(1), issue(0)], times, 0.525)
    # The receiver's gap of 95 is halved; the root's and the kernel's, of 10 each, too.
    expected = {0: (47.5, 57.5), 1: (62.5, 70.5), 2: (95, 100), 3: (75.5, 97.5)}
    assert found == {index: pytest.approx(each, abs=1e-3) for index, each in expected.items()}


def test_a_launch_that_begins_before_what_it_depends_on_ends_stays_so():
    found = with_shorter_gaps([issue(0), issue(0), issue(0)], {0: (0, 10), 1: (8, 20), 2: (60, 70)}, 50 / 70)
    assert found == {index: pytest.approx(each, abs=1e-3) for index, each in {0: (20, 30), 1: (28, 40), 2: (60, 70)}.items()}


def test_where_gaps_are_too_short_launches_take_longer_than_the_share():
    assert with_shorter_gaps([issue(0), issue(0)], {0: (0, 10), 1: (12, 22)}, 0.5) == {0: (2, 12), 1: (12, 22)}


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0, 30), st.floats(0.1, 30)), min_size=1, max_size=20), st.floats(0.5, 1))
def test_with_shorter_gaps_lanes_keep_their_order_and_launches_their_durations(launches, share):
    steps, times, ends, busy = [], {}, [0.0] * 3, [0.0] * 3
    for index, (lane, gap, length) in enumerate(launches):
        steps.append(issue(lane))
        times[index] = (ends[lane] + gap, ends[lane] + gap + length)
        ends[lane], busy[lane] = times[index][1], busy[lane] + length
    found = with_shorter_gaps(steps, times, share)
    first, last = min(start for start, _ in times.values()), max(ends)
    assert max(end for _, end in found.values()) == pytest.approx(last, abs=1e-6)
    # All gaps count from when the first launch begins.
    expected = max(share * (last - first), *busy)
    assert last - min(start for start, _ in found.values()) <= expected + 1e-3
    for index, (start, end) in found.items():
        assert end - start == pytest.approx(times[index][1] - times[index][0], abs=1e-6)
    for lane in range(3):
        own = [found[index] for index, (each, _, _) in enumerate(launches) if each == lane]
        assert all(one[1] <= other[0] + 1e-6 for one, other in pairwise(own))


def test_a_kernel_beside_a_collective_begins_when_nothing_keeps_it_waiting():
    # On GPU 0: two kernels of lane 0, a collective from 100 to 900 us, one kernel of lane 2; on GPU 1, without a collective, two of lane 3.
    steps = [
        issue(0),
        issue(0),
        issue(1, LaunchKind.COLLECTIVE),
        RecordEvent(0, 0),
        WaitEvent(0, 2),
        issue(2),
        issue(3, gpu=1),
        issue(3, gpu=1),
    ]
    durations = {0: 100e3, 1: 50e3, 2: 800e3, 5: 50e3, 6: 100e3, 7: 50e3}
    starts = {0: 0.0, 1: 130e3, 2: 100e3, 5: 260e3, 6: 0.0, 7: 130e3}
    # The first waits for its lane alone, the next one for the kernel that began before it, too.
    assert begun_when_free(steps, starts, durations) == starts | {1: 100e3, 5: 180e3}


def test_gaps_of_every_graph_and_those_before_a_collective_stay():
    steps = [issue(0), issue(0), issue(0), issue(1, LaunchKind.COLLECTIVE)]
    starts = {0: 0.0, 1: 130e3, 2: 181.5e3, 3: 110e3}
    assert begun_when_free(steps, starts, {0: 100e3, 1: 50e3, 2: 50e3, 3: 800e3}) == starts
