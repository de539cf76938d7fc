"""Schedules worked out by hand, with the round numbers of the bench."""

import pytest

from streamscope.errors import DeviceError
from streamscope.program.launch import Cost, LaunchKind


def exactly(*spans):
    return [pytest.approx(span, abs=0.01) for span in spans]


def test_a_launch_starts_its_latency_after_the_call_and_the_host_returns_after_its_end(bench):
    main = bench.device.stream("main")
    bench.kernel(main, 200)()
    assert bench.device.now_ns() == 100
    main.synchronize()
    assert bench.spans() == exactly((150, 350))
    assert bench.device.now_ns() == 390


def test_a_library_launch_takes_the_host_longer(bench):
    main = bench.device.stream("main")
    bench.device.bind(bench.launch(cost=Cost(bytes=0), library=True), [], [], main)()
    assert bench.device.now_ns() == 1000


def test_kernels_of_one_stream_follow_each_other_with_a_gap(bench):
    main = bench.device.stream("main")
    for _ in range(2):
        bench.kernel(main, 200)()
    main.synchronize()
    assert bench.spans() == exactly((150, 350), (360, 560))


def test_an_idle_stream_has_no_gap(bench):
    main = bench.device.stream("main")
    bench.kernel(main, 20)()
    bench.kernel(main, 20)()
    main.synchronize()
    assert bench.spans() == exactly((150, 170), (250, 270))


def test_two_kernels_that_each_fill_the_chip_share_it(bench):
    # A is alone from 150 to 250 and half done; both at half speed until A's other 100 are done at 450; B's last 100 alone.
    for name in ("a", "b"):
        bench.kernel(bench.device.stream(name), 200)()
    bench.device.synchronize()
    assert bench.spans() == exactly((150, 450), (250, 550))
    assert bench.device.now_ns() == 590


def test_two_kernels_with_multiprocessors_of_their_own_do_not_slow_each_other(bench):
    for name in ("a", "b"):
        bench.kernel(bench.device.stream(name), 200, blocks=66)()
    bench.device.synchronize()
    assert bench.spans() == exactly((150, 350), (250, 450))


def test_kernels_that_load_some_multiprocessors_do_not_slow_those_on_others(make_bench):
    # Its full throughput needs more than the 1,024 threads here, so the second would be slowed on the same multiprocessors.
    bench = make_bench(throughput_points=((0, 0), (256, 0.5), (2048, 1)))
    bench.kernel(bench.device.stream("full"), 200, blocks=100, threads=1024)()
    bench.kernel(bench.device.stream("thin"), 200, blocks=32, threads=32)()
    bench.device.synchronize()
    assert bench.spans() == exactly((150, 350), (250, 450))


def test_a_thin_kernel_among_many_threads_gets_its_share_of_them(bench):
    # 264 blocks of 1,024 threads and 132 of 1,024: a third of the chip for the second, which alone would have it all.
    bench.kernel(bench.device.stream("full"), 1000, blocks=264)()
    bench.kernel(bench.device.stream("thin"), 100, blocks=132)()
    bench.device.synchronize()
    assert bench.spans() == exactly((150, 1250), (250, 550))


def test_three_kernels_of_half_a_chip_run_at_two_thirds_of_their_speed(bench):
    # Two fit (150 and 250); from 350 on three share two places. A has 800 left: 1,200 at 2/3, to 1,550. B then has 900 - 800 = 100
    # left and C 200, side by side at full speed.
    for name in ("a", "b", "c"):
        bench.kernel(bench.device.stream(name), 1000, blocks=66)()
    bench.device.synchronize()
    assert bench.spans() == exactly((150, 1550), (250, 1650), (350, 1750))


def test_a_wait_holds_the_stream_until_the_event_is_recorded(bench):
    device, (a, b) = bench.device, map(bench.device.stream, "ab")
    event = device.event()  # 1
    bench.kernel(a, 200)()  # call until 101, runs 151 to 351
    a.record(event)  # done at 351 + 5 drain
    b.wait(event)
    bench.kernel(b, 100, blocks=1)()
    device.synchronize()
    assert bench.spans() == exactly((151, 351), (366, 466))


def test_an_event_waits_for_the_drain_also_when_a_wait_comes_between(bench):
    device, (a, b) = bench.device, map(bench.device.stream, "ab")
    before, event = device.event(), device.event()  # 2
    b.record(before)  # 32
    bench.kernel(a, 200)()  # call until 132, runs 182 to 382
    a.wait(before)
    a.record(event)  # 382 + 5 drain
    event.synchronize()
    assert device.now_ns() == 387 + 40


def test_copies_of_one_direction_queue_and_the_other_direction_and_kernels_run_beside_them(bench):
    streams = [bench.device.stream(name) for name in "abcd"]
    bench.copy(streams[0], LaunchKind.COPY_IN, 1000)()  # 150, for 100 + 1000
    bench.copy(streams[1], LaunchKind.COPY_IN, 400)()  # would start at 250
    bench.copy(streams[2], LaunchKind.COPY_OUT, 1000)()  # 350, for 100 + 500, twice as long beside the first
    bench.kernel(streams[3], 300)()  # 450
    bench.device.synchronize()
    # The first has 900 left at 350. Side by side, the third takes 1200 for its 600, and the first has 300 left for itself.
    assert bench.spans() == exactly((150, 1850), (1850, 2350), (350, 1550), (450, 750))


def test_a_graph_replays_with_small_gaps_and_its_branches_side_by_side(bench):
    device, (a, b) = bench.device, map(bench.device.stream, "ab")
    fork, join = device.event(), device.event()
    device.begin_capture(a)
    bench.kernel(a, 100, blocks=1)()
    a.record(fork)
    b.wait(fork)
    bench.kernel(a, 200, blocks=1)()
    bench.kernel(b, 300, blocks=1)()
    b.record(join)
    a.wait(join)
    bench.kernel(a, 50, blocks=1)()
    graph = device.end_capture(a)
    assert (graph.node_count, list(device.log)) == (4, [])

    t = device.now_ns()
    graph.launch(a)
    assert device.now_ns() == t + 60
    a.synchronize()
    s = t + 60 + 25
    # All come after one root: the second and the third are dispatched one after the other, and no edge costs more than another.
    assert bench.spans() == exactly((s, s + 100), (s + 102, s + 302), (s + 105, s + 405), (s + 407, s + 457))
    assert [record.stream for record in sorted(device.log, key=lambda record: record.operation)] == ["a", "a", "b", "a"]
    assert device.now_ns() == pytest.approx(s + 457 + 40, abs=1)


def test_the_host_puts_roots_on_the_device_one_after_the_other_and_their_branches_meet_at_a_price(bench):
    """Two roots, on a and b. Each goes on in its branch. The last node of a comes after both branches, that of b after its own alone."""
    device, (a, b) = bench.device, map(bench.device.stream, "ab")
    fork, join, end = device.event(), device.event(), device.event()
    device.begin_capture(a)
    a.record(fork)
    b.wait(fork)
    bench.kernel(a, 100, blocks=1)()
    bench.kernel(b, 200, blocks=1)()
    b.record(join)
    a.wait(join)
    bench.kernel(a, 50, blocks=1)()
    bench.kernel(a, 60, blocks=1)()
    bench.kernel(b, 10, blocks=1)()
    b.record(end)
    a.wait(end)
    graph = device.end_capture(a)
    t = device.now_ns()
    graph.launch(a)
    assert device.now_ns() == t + 60 + 11 + 5, "a root and a leaf more"
    a.synchronize()
    s = t + 60 + 25
    met = s + 211 + 2 + 30  # Gap and crossing; what comes behind in the branch that begins there has the gap alone.
    assert bench.spans() == exactly((s, s + 100), (s + 11, s + 211), (met, met + 50), (met + 52, met + 112), (s + 213, s + 223))


def test_a_graph_never_runs_beside_itself(bench):
    device, (a, b) = bench.device, map(bench.device.stream, "ab")
    device.begin_capture(a)
    bench.kernel(a, 1000, blocks=1)()
    graph = device.end_capture(a)
    t = device.now_ns()
    graph.launch(a)
    graph.launch(b)
    device.synchronize()
    assert bench.spans() == exactly((t + 85, t + 1085), (t + 1085, t + 2085))
    assert [record.replay for record in device.log] == [0, 1]


def test_an_empty_graph_is_done_at_once(bench):
    main = bench.device.stream("main")
    bench.device.begin_capture(main)
    graph = bench.device.end_capture(main)
    t = bench.device.now_ns()
    graph.launch(main)
    main.synchronize()
    assert (graph.node_count, bench.device.now_ns()) == (0, t + 60 + 25 + 40)


def test_the_host_blocks_while_a_queue_is_full(make_bench):
    bench = make_bench(queue_depth=2)
    main = bench.device.stream("main")
    for _ in range(3):
        bench.kernel(main, 1000)()
    # Two are pending at 200; the third call begins when the first kernel ends, at 1,150.
    assert bench.device.now_ns() == 1250
    main.synchronize()
    assert bench.spans() == exactly((150, 1150), (1160, 2160), (2170, 3170))


def test_an_adversary_delays_and_stretches(make_bench):
    bench = make_bench(lambda launch, stream: (30, 2) if (launch.name, stream) == ("late", "a") else (0, 1))
    a = bench.device.stream("a")
    bench.kernel(a, 100, name="late")()
    bench.kernel(a, 100)()
    a.synchronize()
    assert bench.spans() == exactly((180, 380), (390, 490))


@pytest.mark.parametrize("sway", [(-1, 1), (0, 0)])
def test_an_adversary_cannot_turn_time_back(make_bench, sway):
    bench = make_bench(lambda *_: sway)
    with pytest.raises(DeviceError, match="delays returned"):
        bench.kernel(bench.device.stream("a"), 100)()


def test_the_log_can_be_cleared_and_switched_off(bench):
    device = bench.device
    main = device.stream("main")
    kernel = bench.kernel(main, 100, name="k")
    kernel()
    main.synchronize()
    assert [(r.name, r.operation, r.part, r.kind, r.stream, r.replay) for r in device.log] == [("k", 0, 0, LaunchKind.KERNEL, "main", -1)]
    device.log.clear()
    device.log.enabled = False
    kernel()
    main.synchronize()
    assert device.log == []


def test_the_log_ends_at_the_hosts_clock(bench):
    main, other = bench.device.stream("main"), bench.device.stream("other")
    bench.kernel(main, 60)()  # 150 to 210
    bench.kernel(other, 60)()  # 250 to 310
    assert bench.spans() == []
    bench.kernel(main, 60)()
    assert bench.spans() == exactly((150, 210))
