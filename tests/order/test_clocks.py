"""Vector clocks, by hand."""

from streamscope.order.clocks import Stamp, fewest, merged


def test_a_stamp_knows_its_clock_and_itself():
    assert Stamp(0, 3, (1, 5, 2)).known == (3, 5, 2)
    assert Stamp(1, 6, (1, 5, 2)).known == (1, 6, 2)
    assert merged((1, 5, 2), (3, 4, 2)) == (3, 5, 2)


def test_one_wait_a_lane_for_its_latest_and_none_for_what_is_known():
    first, second = Stamp(0, 1, (0, 0)), Stamp(0, 2, (1, 0))
    assert fewest((0, 0), [first, second]) == fewest((0, 0), [second, first]) == [second]
    assert fewest((1, 0), [first]) == fewest((2, 0), [first, second]) == []


def test_no_wait_for_what_another_one_implies():
    earlier, later, unaware = Stamp(0, 2, (1, 0)), Stamp(1, 4, (2, 3)), Stamp(1, 4, (1, 3))
    assert fewest((0, 0), [earlier, later]) == [later]
    assert fewest((0, 0), [unaware, earlier]) == [earlier, unaware]  # By lane.
