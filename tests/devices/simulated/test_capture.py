"""The rules of capture: what breaks one, and that streams are usable afterwards."""

import pytest

from streamscope.errors import EngineError
from streamscope.program.variable import ArraySpec, MemoryPlace


@pytest.fixture
def two(bench):
    """Return a device, a stream under capture, and another stream."""
    main, side = bench.device.stream("main"), bench.device.stream("side")
    bench.device.begin_capture(main)
    return bench.device, main, side


def assert_usable(bench, *streams):
    for stream in streams:
        before = len(bench.device.log)
        bench.kernel(stream, 100)()
        stream.synchronize()
        assert len(bench.device.log) == before + 1


def test_captured_work_does_not_run(bench, two):
    device, main, side = two
    bench.kernel(main, 100)()
    device.end_capture(main)
    device.synchronize()
    assert list(device.log) == []
    assert_usable(bench, main, side)


def test_a_fork_that_is_not_joined_is_an_error(bench, two):
    device, main, side = two
    fork = device.event()
    main.record(fork)
    side.wait(fork)
    bench.kernel(side, 100)()
    with pytest.raises(EngineError, match="stream 'side' was not joined to 'main'"):
        device.end_capture(main)
    assert_usable(bench, main, side)


def test_work_put_on_a_fork_behind_its_join_is_an_error(bench, two):
    device, main, side = two
    fork, join = device.event(), device.event()
    main.record(fork)
    side.wait(fork)
    bench.kernel(side, 100)()
    side.record(join)
    main.wait(join)
    bench.kernel(side, 100)()
    with pytest.raises(EngineError, match="not joined"):
        device.end_capture(main)


def test_a_fork_without_work_needs_no_join(bench, two):
    device, main, side = two
    fork = device.event()
    bench.kernel(main, 100)()
    main.record(fork)
    side.wait(fork)
    assert device.end_capture(main).node_count == 1
    assert_usable(bench, main, side)


def test_a_fork_may_be_joined_by_way_of_another(bench, two):
    device, main, side = two
    third = device.stream("third")
    events = [device.event() for _ in range(4)]
    main.record(events[0])
    side.wait(events[0])
    bench.kernel(side, 100)()
    side.record(events[1])
    third.wait(events[1])
    bench.kernel(third, 100)()
    third.record(events[2])
    main.wait(events[2])
    graph = device.end_capture(main)
    graph.launch(main)
    main.synchronize()
    (_, first_end), (second_start, _) = bench.spans()
    assert second_start == pytest.approx(first_end + 2)


HOST_WAITS = {
    "stream": lambda device, main, side: main.synchronize(),
    "other stream": lambda device, main, side: side.synchronize(),
    "device": lambda device, main, side: device.synchronize(),
    "event": lambda device, main, side: device.event().synchronize(),
    "allocate": lambda device, main, side: device.allocate(ArraySpec((1,), "int8"), MemoryPlace.DEVICE),
    "gate": lambda device, main, side: device.gate().hold(side),
}


@pytest.mark.parametrize("what", HOST_WAITS)
def test_what_makes_the_host_wait_breaks_the_capture(bench, two, what):
    device, main, side = two
    with pytest.raises(EngineError, match="not possible while stream 'main' is captured"):
        HOST_WAITS[what](device, main, side)
    with pytest.raises(EngineError, match="broken before"):
        bench.kernel(main, 100)()
    with pytest.raises(EngineError, match="not possible while"):
        device.end_capture(main)
    assert_usable(bench, main, side)


@pytest.mark.parametrize("call", ["read", "write"])
def test_the_host_cannot_touch_memory_during_a_capture(bench, call):
    buffer, main = bench.buffer(1.0), bench.device.stream("main")
    bench.device.begin_capture(main)
    with pytest.raises(EngineError, match="memory is not possible"):
        bench.device.read(buffer) if call == "read" else bench.device.write(buffer, 2.0)
    bench.device.abandon_capture(main)
    assert bench.value(buffer) == 1


@pytest.mark.parametrize("ask", ["done", "synchronize"])
def test_an_event_recorded_in_a_capture_cannot_be_asked(bench, two, ask):
    device, main, side = two
    event = device.event()
    main.record(event)
    with pytest.raises(EngineError):
        getattr(event, ask)()
    with pytest.raises(EngineError):
        device.end_capture(main)
    with pytest.raises(EngineError, match="last recorded in a capture"):
        getattr(event, ask)()
    with pytest.raises(EngineError, match="last recorded in a capture"):
        side.wait(event)
    main.record(event)
    side.wait(event)
    event.synchronize()
    assert event.done()


def test_waiting_for_an_event_recorded_before_the_capture_is_an_error(bench):
    device, main = bench.device, bench.device.stream("main")
    event = device.event()
    main.record(event)
    device.begin_capture(main)
    with pytest.raises(EngineError, match="from outside its capture"):
        main.wait(event)
    with pytest.raises(EngineError, match="from outside its capture"):
        device.end_capture(main)
    assert_usable(bench, main)


def test_waiting_in_a_capture_for_an_event_never_recorded_is_no_wait(bench, two):
    device, main, _ = two
    main.wait(device.event())
    bench.kernel(main, 100)()
    assert device.end_capture(main).node_count == 1


def test_two_captures_cannot_wait_for_each_other(bench, two):
    device, main, side = two
    device.begin_capture(side)
    event = device.event()
    main.record(event)
    with pytest.raises(EngineError, match="from outside its capture"):
        side.wait(event)
    with pytest.raises(EngineError, match="from outside"):
        device.end_capture(side)
    assert device.end_capture(main).node_count == 0
    assert_usable(bench, main, side)


def test_timed_events_do_not_order_captured_work(bench, two):
    device, main, _ = two
    event = device.event(timing=True)
    main.record(event)
    with pytest.raises(EngineError, match="event with timing"):
        main.wait(event)


def test_a_launch_that_cannot_be_captured_breaks_the_capture_and_says_why(bench, two):
    device, main, _ = two
    launch = bench.launch(cost=bench.cost(100), name="dropout", capturable=False, why_not="it draws from a host generator")
    call = device.bind(launch, [], [], main)
    with pytest.raises(EngineError, match=r"'dropout' \(operation 0\) cannot be captured: it draws from a host generator"):
        call()
    with pytest.raises(EngineError, match="'dropout'"):
        device.end_capture(main)
    call()
    main.synchronize()
    assert len(device.log) == 1


def test_launching_a_graph_on_a_captured_stream_is_an_error(bench, two):
    device, main, _ = two
    graph = device.end_capture(main)
    device.begin_capture(main)
    with pytest.raises(EngineError, match="graph was launched on a captured stream"):
        graph.launch(main)
    device.abandon_capture(main)
    graph.launch(main)
    main.synchronize()


def test_capture_begins_once_and_ends_where_it_began(bench, two):
    device, main, side = two
    fork = device.event()
    main.record(fork)
    side.wait(fork)
    with pytest.raises(EngineError, match="did not begin on stream 'side'"):
        device.end_capture(side)
    assert_usable(bench, main, side)
    with pytest.raises(EngineError, match="not being captured"):
        device.end_capture(main)
    device.begin_capture(main)
    with pytest.raises(EngineError, match="being captured already"):
        device.begin_capture(main)
    with pytest.raises(EngineError, match="being captured already"):
        device.end_capture(main)


@pytest.mark.parametrize("on", ["main", "side"])
def test_abandoning_leaves_every_stream_usable_and_never_raises(bench, two, on):
    device, main, side = two
    fork = device.event()
    main.record(fork)
    side.wait(fork)
    bench.kernel(side, 100)()
    with pytest.raises(EngineError):
        device.synchronize()
    for _ in range(2):
        device.abandon_capture({"main": main, "side": side}[on])
    device.abandon_capture(object())
    assert_usable(bench, main, side)


def test_timed_events_in_a_graph_are_recorded_anew_by_each_replay(bench, two):
    device, main, _ = two
    start, end = device.event(timing=True), device.event(timing=True)
    main.record(start)
    bench.kernel(main, 100)()
    main.record(end)
    graph = device.end_capture(main)
    assert graph.node_count == 3
    assert end.done(), "never recorded until the first replay"
    ends = []
    for _ in range(2):
        graph.launch(main)
        assert not end.done()
        end.synchronize()
        assert device.elapsed_ns(start, end) == pytest.approx(100 + 10, abs=0.01)
        ends.append(device.log[-1].end_ns)
    assert [record.replay for record in device.log] == [0, 1]
    assert ends[1] > ends[0]
