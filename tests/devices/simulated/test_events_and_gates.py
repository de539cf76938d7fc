"""Events, gates and deadlocks, by CUDA's rules."""

import pytest

from streamscope.devices.simulated import SimulatedDevice
from streamscope.errors import DeviceError


def test_a_wait_for_an_event_that_was_never_recorded_is_no_wait(bench):
    main = bench.device.stream("main")
    event = bench.device.event()  # 1
    main.wait(event)  # 8
    bench.kernel(main, 100)()  # 108
    event.synchronize()
    assert event.done()
    main.synchronize()
    assert bench.spans() == [pytest.approx((158, 258), abs=0.01)]


def test_a_wait_takes_the_latest_record_at_the_time_of_the_call(bench):
    device, (a, b, c) = bench.device, map(bench.device.stream, "abc")
    event = device.event()
    bench.kernel(a, 1000, blocks=1)()
    a.record(event)
    b.wait(event)  # the record behind the first kernel
    bench.kernel(a, 1000, blocks=1)()
    a.record(event)
    c.wait(event)  # the one behind the second
    bench.kernel(b, 1, blocks=1)()
    bench.kernel(c, 1, blocks=1)()
    device.synchronize()
    (_, first_end), (_, second_end), (b_start, _), (c_start, _) = bench.spans()
    assert (b_start, c_start) == (pytest.approx(first_end + 15), pytest.approx(second_end + 15))


def test_an_event_recorded_anew_is_not_done(bench):
    device, main = bench.device, bench.device.stream("main")
    event = device.event()
    main.record(event)
    event.synchronize()
    assert event.done()
    bench.kernel(main, 1000)()
    main.record(event)
    assert not event.done()
    event.synchronize()
    assert event.done()


def test_polling_an_event_passes_time(bench):
    main = bench.device.stream("main")
    event = bench.device.event()  # 1
    bench.kernel(main, 300)()  # call to 101, runs 151 to 451
    main.record(event)  # call to 131, done at 456
    polls = 1
    while not event.done():
        polls += 1
    assert polls == 109  # the first multiple of 3 from 131 on that is not before 456
    assert bench.device.now_ns() == 131 + 3 * 109


def test_a_pair_of_events_times_what_lies_between(bench):
    device, main = bench.device, bench.device.stream("main")
    start, end = device.event(timing=True), device.event(timing=True)  # 2
    main.record(start)  # call to 32, stamped at 32 + 50 + 20 = 102
    bench.kernel(main, 200)()  # call to 132, runs 182 to 382
    main.record(end)  # stamped at 382 + 5 + 20 = 407
    main.synchronize()
    assert device.elapsed_ns(start, end) == pytest.approx(305, abs=0.01)
    assert device.elapsed_ns(end, start) == pytest.approx(-305, abs=0.01)


def test_events_that_cannot_be_timed_say_why(bench):
    device, main = bench.device, bench.device.stream("main")
    timed, plain = device.event(timing=True), device.event()
    main.record(plain)
    with pytest.raises(DeviceError, match="without timing"):
        device.elapsed_ns(timed, plain)
    with pytest.raises(DeviceError, match="never recorded"):
        device.elapsed_ns(timed, timed)
    main.record(timed)
    with pytest.raises(DeviceError, match="has not finished"):
        device.elapsed_ns(timed, timed)
    timed.synchronize()
    assert device.elapsed_ns(timed, timed) == 0


def test_a_gate_lets_the_device_run_without_waiting_for_the_host(bench):
    device, main = bench.device, bench.device.stream("main")
    gate = device.gate()
    gate.hold(main)  # 7
    for _ in range(3):
        bench.kernel(main, 20)()  # 307
    assert bench.spans() == []
    gate.open()
    gate.open()
    main.synchronize()
    assert bench.spans() == [pytest.approx(span, abs=0.01) for span in [(317, 337), (347, 367), (377, 397)]]


def test_a_gate_holds_nothing_that_was_put_before(bench):
    device, main = bench.device, bench.device.stream("main")
    bench.kernel(main, 20)()
    device.gate().hold(main)
    bench.kernel(main, 20)()
    bench.device.stream("other").synchronize()
    for _ in range(100):
        device.event()
    assert len(bench.spans()) == 1


@pytest.mark.parametrize("through", ["stream", "device", "event", "other stream"])
def test_a_host_that_waits_for_a_closed_gate_is_told_and_not_hung(bench, through):
    device, (main, other) = bench.device, map(bench.device.stream, ("main", "other"))
    gate, event = device.gate(), device.event()
    gate.hold(main)
    bench.kernel(main, 100)()
    main.record(event)
    other.wait(event)
    bench.kernel(other, 100)()
    waits = {"stream": main.synchronize, "device": device.synchronize, "event": event.synchronize, "other stream": other.synchronize}
    with pytest.raises(DeviceError, match=r"deadlock.*gate that is still closed"):
        waits[through]()
    gate.open()
    device.synchronize()
    assert len(bench.spans()) == 2


def test_a_full_queue_behind_a_closed_gate_is_told_and_not_hung(make_bench):
    bench = make_bench(queue_depth=8)
    device, main = bench.device, bench.device.stream("main")
    assert device.model.queue_depth == 8
    gate, event, kernel = device.gate(), device.event(), bench.kernel(main, 100)
    gate.hold(main)
    for _ in range(7):
        kernel()
    with pytest.raises(DeviceError, match="item 9 on stream 'main'"):
        kernel()
    with pytest.raises(DeviceError, match="deadlock"):
        main.record(event)
    assert event.done(), "a record that was refused must not count"
    gate.open()
    kernel()
    main.synchronize()
    assert len(bench.spans()) == 8


def test_the_queue_of_an_h200_holds_1024(make_bench):
    bench = make_bench(base="measured")
    main = bench.device.stream("main")
    gate, kernel = bench.device.gate(), bench.kernel(main, 1000)
    gate.hold(main)
    for _ in range(1023):
        kernel()
    with pytest.raises(DeviceError, match="deadlock"):
        kernel()


def test_things_of_another_device_are_refused(bench):
    other = SimulatedDevice()
    with pytest.raises(DeviceError, match="does not belong"):
        bench.device.stream("main").wait(other.event())
    with pytest.raises(DeviceError, match="does not belong"):
        bench.device.begin_capture(other.stream("main"))
    with pytest.raises(DeviceError, match="does not belong"):
        bench.device.read(object())


def test_the_device_says_that_it_is_simulated():
    device = SimulatedDevice()
    assert (device.info.kind, device.info.name) == ("simulated", "simulated NVIDIA H200")
    assert device.info.details["cost_model"]["driver"] == device.model.provenance.driver
    assert device.working_kernel_ns == device.model.working_kernel_ns
