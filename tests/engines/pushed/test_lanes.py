"""Lanes: as few waits as the hazard tracker of whole programs finds, and which lane starts an operation first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamscope.devices.simulated import SimulatedDevice
from streamscope.engines.pushed.lanes import CROSSING_NS, Lane, earliest, expect
from streamscope.order.clocks import fewest, merged
from streamscope.order.hazards import Accesses, HazardTracker, note

LANES = 4
SETS = st.sets(st.integers(0, 4), max_size=3)


class Work:
    def __init__(self, reads, writes):
        self.reads, self.writes = reads, writes


@given(st.lists(st.tuples(st.integers(0, LANES - 1), SETS, SETS), max_size=40))
def test_as_many_waits_as_the_tracker_of_programs_finds(operations):
    device = SimulatedDevice()
    lanes = [Lane(device, device.stream(str(index)), index, LANES) for index in range(LANES)]
    tracker = HazardTracker(LANES)
    variables = [Accesses() for _ in range(5)]
    for number, reads, writes in operations:
        lane = lanes[number]
        stamps = [variables[v].writer for v in reads | writes] + [stamp for v in writes for stamp in variables[v].readers.values()]
        foreign = [stamp for stamp in stamps if stamp is not None and stamp.lane != number]
        found = {(stamp.lane, stamp.position) for stamp in fewest(lane.clock, foreign)}
        before = lane.waits
        lane.wait(foreign)
        expected, _ = tracker.issue(number, reads, writes)
        assert found == {(stamp.lane, stamp.position) for stamp in expected}
        assert lane.waits - before == len(expected)
        stamp = lane.record()
        note(number, stamp, [variables[v] for v in reads - writes], [variables[v] for v in writes])


def test_merged_clocks():
    assert merged((1, 5, 0), (2, 3, 0)) == (2, 5, 0)


class TestTheEarliestStart:
    def lanes(self, *free_ns):
        device = SimulatedDevice()
        lanes = [Lane(device, device.stream(str(index)), index, len(free_ns)) for index in range(len(free_ns))]
        for lane, each in zip(lanes, free_ns, strict=True):
            expect(lane, each, 0.0)
        return lanes

    def written_on(self, lane):
        variable = Accesses()
        variable.writer = lane.record()
        return variable

    def test_what_reads_nothing_goes_where_there_is_least_to_do(self):
        lanes = self.lanes(30.0, 10.0, 20.0)
        assert earliest(lanes, Work((), ()), 0.0).index == 1
        assert earliest(lanes, Work((), ()), 100.0).index == 1  # All are free, and it was given the least so far.

    def test_a_chain_stays_on_its_stream(self):
        lanes = self.lanes(50_000.0, 0.0)
        x = self.written_on(lanes[0])
        assert earliest(lanes, Work((x,), ()), 0.0).index == 0
        assert earliest(lanes, Work((), (x,)), 60_000.0).index == 0

    def test_a_fork_goes_elsewhere_if_it_starts_earlier_there(self):
        lanes = self.lanes(50_000.0, 0.0)
        x = self.written_on(lanes[0])
        expect(lanes[0], CROSSING_NS - 1, 0.0)  # Something else is put behind what it reads.
        assert earliest(lanes, Work((x,), ()), 0.0).index == 0
        expect(lanes[0], 2.0, 0.0)
        assert earliest(lanes, Work((x,), ()), 0.0).index == 1
