"""The model against what was measured on an H200: within 10 %.

``measured.json`` holds the costs of the machine on which these tables were measured; the built-in ``h200.json`` those of another one, on
which absolute times differ, but two streams must gain as much.
"""

import pytest


def microseconds(us):
    return pytest.approx(1000 * us, rel=0.1)


@pytest.mark.parametrize("base", ["measured", "h200"])
@pytest.mark.parametrize(("blocks", "speedup"), [(16, 1.96), (66, 1.96), (132, 1.63), (1056, 1.03), (8448, 1.02)])
def test_two_equal_kernels_on_two_streams(make_bench, base, blocks, speedup):
    def makespan(streams):
        bench = make_bench(base=base)
        lanes = [bench.device.stream(str(number)) for number in range(streams)]
        for number in range(2):
            bench.kernel(lanes[number % streams], 100_000, blocks=blocks, threads=256)()
        bench.device.synchronize()
        return max(end for _, end in bench.spans()) - min(start for start, _ in bench.spans())

    assert makespan(1) / makespan(2) == pytest.approx(speedup, rel=0.1)


def test_launch_and_synchronize(make_bench):
    bench = make_bench(base="measured")
    main = bench.device.stream("main")
    bench.kernel(main, 830, blocks=1)()
    assert bench.device.now_ns() == microseconds(3.03)
    main.synchronize()
    assert bench.device.now_ns() == microseconds(9.9)


def chain(bench, length, ns=900):
    main = bench.device.stream("main")
    kernel = bench.kernel(main, ns, blocks=1)
    return main, lambda: [kernel() for _ in range(length)]


def took(bench, action, stream):
    begin = bench.device.now_ns()
    action()
    stream.synchronize()
    return bench.device.now_ns() - begin


@pytest.mark.parametrize(
    ("nodes", "instantiate_us", "launch_us", "replay_us", "plain_us", "ratio"),
    [
        (1, 62, 1.3, 6.2, 10.6, 1.7),
        (20, 48, 1.6, 25.7, 106.9, 4.2),
        (100, 148, 1.6, 103, 485, 4.7),
        (1000, 2200, 3.3, 980, 4700, 4.8),
    ],
)
def test_a_chain_as_a_graph_and_plain(make_bench, nodes, instantiate_us, launch_us, replay_us, plain_us, ratio):
    bench = make_bench(base="measured", launch_ns=4800)
    main, issue = chain(bench, nodes)
    plain = took(bench, issue, main)

    bench.device.begin_capture(main)
    issue()
    before = bench.device.now_ns()
    graph = bench.device.end_capture(main)
    assert bench.device.now_ns() - before == microseconds(instantiate_us)

    before = bench.device.now_ns()
    graph.launch(main)
    assert bench.device.now_ns() - before == microseconds(launch_us)
    main.synchronize()
    replay = took(bench, lambda: graph.launch(main), main)
    assert (replay, plain) == (microseconds(replay_us), microseconds(plain_us))
    assert plain / replay == pytest.approx(ratio, rel=0.1)


def pair(bench, ns, *, gated):
    """Record, launch, record; return what the pair of events reads."""
    device = bench.device
    main = device.stream("main")
    start, end = device.event(timing=True), device.event(timing=True)
    gate = device.gate()
    if gated:
        gate.hold(main)
    main.record(start)
    if ns:
        bench.kernel(main, ns, blocks=1)()
    main.record(end)
    gate.open()
    main.synchronize()
    return device.elapsed_ns(start, end)


@pytest.mark.parametrize("gated", [False, True])
def test_an_empty_pair_of_events(make_bench, gated):
    assert pair(make_bench(base="measured"), 0, gated=gated) == microseconds(1.27)


MEASURED_PAIRS = [
    (0.83, 10.69, 4.16, 3.74),
    (1.09, 10.83, 4.38, 4.02),
    (3.14, 11.09, 6.43, 6.18),
    (7.68, 10.54, 10.94, 10.69),
    (23.6, 26.9, 26.9, 26.5),
]


@pytest.mark.parametrize(("cupti_us", "natural_us", "gated_us", "graph_us"), MEASURED_PAIRS)
def test_a_gated_pair_of_events(make_bench, cupti_us, natural_us, gated_us, graph_us):
    assert pair(make_bench(base="measured"), 1000 * cupti_us, gated=True) == pytest.approx(1000 * gated_us, abs=60)


@pytest.mark.parametrize(("cupti_us", "natural_us", "gated_us", "graph_us"), MEASURED_PAIRS)
def test_a_natural_pair_reads_the_host_when_the_kernel_is_short(make_bench, cupti_us, natural_us, gated_us, graph_us):
    # The measurement's host took 10.7 us from one record to the next: CUPTI was on, and the calls were made from Python.
    bench = make_bench(base="measured", event_record_ns=10_700 - 3030)
    assert pair(bench, 1000 * cupti_us, gated=False) == microseconds(natural_us)


def test_a_natural_pair_around_a_library_call_reads_the_host(make_bench):
    readings = []
    for ns in (1000, 2000):
        bench = make_bench(base="measured", launch_ns=10_000, event_record_ns=4000)
        readings.append(pair(bench, ns, gated=False))
    assert readings == [pytest.approx(14_000)] * 2


@pytest.mark.parametrize("excess_us", [2.9, 2.2])
@pytest.mark.parametrize(("cupti_us", "natural_us", "gated_us", "graph_us"), MEASURED_PAIRS)
def test_a_pair_of_events_in_a_graph(make_bench, cupti_us, natural_us, gated_us, graph_us, excess_us):
    bench = make_bench(base="measured", event_pair_graph_excess_ns=1000 * excess_us)
    device, main = bench.device, bench.device.stream("main")
    events = [device.event(timing=True) for _ in range(2)]
    device.begin_capture(main)
    main.record(events[0])
    bench.kernel(main, 1000 * cupti_us, blocks=1)()
    main.record(events[1])
    graph = device.end_capture(main)
    graph.launch(main)
    main.synchronize()
    reading = device.elapsed_ns(*events)
    assert reading == pytest.approx(1000 * (cupti_us + excess_us))
    if excess_us == 2.9:
        assert reading == pytest.approx(1000 * graph_us, abs=200)


def two_branches(bench, lanes):
    """Return a stream, and what issues two small library calls on one lane, or on two with a fork and a join."""
    device, main = bench.device, bench.device.stream("main")
    side = device.stream("side") if lanes == 2 else main
    fork, join = device.event(), device.event()
    left, right = bench.kernel(main, 4000, blocks=16), bench.kernel(side, 4000, blocks=16)

    def issue():
        if lanes == 2:
            main.record(fork)
            side.wait(fork)
        left()
        right()
        if lanes == 2:
            side.record(join)
            main.wait(join)

    return main, issue


def test_a_second_stream_slows_small_work_launched_one_by_one_and_speeds_it_up_in_a_graph(make_bench):
    plain, captured = {}, {}
    for lanes in (1, 2):
        bench = make_bench(base="measured", launch_ns=10_000)
        main, issue = two_branches(bench, lanes)
        plain[lanes] = took(bench, issue, main)
        bench.device.begin_capture(main)
        issue()
        graph = bench.device.end_capture(main)
        captured[lanes] = took(bench, lambda graph=graph, main=main: graph.launch(main), main)
    assert plain[1] / plain[2] < 0.95
    assert 1.25 < captured[1] / captured[2] < 1.5
