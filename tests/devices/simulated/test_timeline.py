"""The discrete-event core on its own."""

from streamscope.devices.simulated.core import Moment, Timeline


def test_actions_are_done_in_order_of_time_and_then_of_their_coming():
    timeline, done = Timeline(), []
    for time_ns, name in [(20, "c"), (10, "a"), (20, "d"), (10, "b")]:
        timeline.at(time_ns, lambda name=name: done.append((timeline.now_ns, name)))
    timeline.run_to(15)
    assert (done, timeline.now_ns) == ([(10, "a"), (10, "b")], 15)
    timeline.run_to(20)
    assert done[2:] == [(20, "c"), (20, "d")]


def test_an_action_put_in_the_past_is_done_now():
    timeline, done = Timeline(), []
    timeline.run_to(100)
    timeline.at(50, lambda: done.append(timeline.now_ns))
    timeline.run_to(100)
    assert done == [100]


def test_a_cancelled_action_moves_no_clock():
    timeline = Timeline()
    timeline.at(10, lambda: None).cancel()
    assert not timeline.run_until(lambda: False)
    assert timeline.now_ns == 0


def test_running_until_a_condition_goes_no_further():
    timeline, done = Timeline(), []
    for time_ns in (1, 2, 3):
        timeline.at(time_ns, lambda time_ns=time_ns: done.append(time_ns))
    assert timeline.run_until(lambda: len(done) == 2)
    assert (done, timeline.now_ns) == ([1, 2], 2)


def test_a_moment_does_what_waited_for_it_once_and_what_comes_later_at_once():
    moment, done = Moment(), []
    moment.then(lambda: done.append("before"))
    assert done == []
    moment.come(5)
    moment.then(lambda: done.append("after"))
    assert (done, moment.time_ns) == (["before", "after"], 5)
