"""Numbers: read at the start, committed at the end, poison until then; faults; host functions; memory."""

import gc

import numpy as np
import pytest

from streamscope.devices.simulated import SimulatedDevice
from streamscope.errors import DeviceError, OutOfMemoryError, ProgramError
from streamscope.program.launch import Cost, LaunchKind
from streamscope.program.variable import ArraySpec, MemoryPlace


@pytest.mark.parametrize(
    ("dtype", "expected"), [("float16", np.nan), ("float64", np.nan), ("int8", 0x5A), ("int32", 0x5A5A5A5A), ("bool", True)]
)
def test_fresh_memory_is_poison(bench, dtype, expected):
    for place in MemoryPlace:
        buffer = bench.device.allocate(ArraySpec((2, 3), np.dtype(dtype)), place)
        np.testing.assert_array_equal(bench.device.read(buffer), np.full((2, 3), expected, dtype))
        assert (buffer.spec.shape, buffer.place) == ((2, 3), place)


def test_what_is_read_is_a_copy(bench):
    buffer = bench.buffer([1.0, 2.0])
    bench.device.read(buffer)[:] = 9
    np.testing.assert_array_equal(bench.device.read(buffer), [1, 2])


@pytest.mark.parametrize("values", [np.zeros(3), np.zeros((1, 2)), np.zeros(2, complex)])
def test_what_does_not_fit_is_not_written(bench, values):
    buffer = bench.buffer([1.0, 2.0])
    with pytest.raises(DeviceError, match=r"float64\[2\]"):
        bench.device.write(buffer, values)
    np.testing.assert_array_equal(bench.device.read(buffer), [1, 2])


def test_device_memory_is_limited_and_freed(make_bench):
    bench = make_bench(memory_gb=1e-6)
    spec = ArraySpec((600,), np.dtype("int8"))
    first = bench.device.allocate(spec, MemoryPlace.DEVICE)
    bench.device.allocate(spec, MemoryPlace.HOST)
    with pytest.raises(OutOfMemoryError, match=r"600 bytes and 400 of 1,000"):
        bench.device.allocate(spec, MemoryPlace.DEVICE)
    assert first.spec is spec
    del first
    gc.collect()
    bench.device.allocate(spec, MemoryPlace.DEVICE)


def test_more_than_this_machine_has_is_our_error(make_bench):
    bench = make_bench(memory_gb=1e12)
    with pytest.raises(OutOfMemoryError, match="more than this machine has"):
        bench.device.allocate(ArraySpec((10**17,), np.dtype("int8")), MemoryPlace.DEVICE)


def test_a_launch_commits_at_its_end_and_not_before(bench):
    main, other = bench.device.stream("main"), bench.device.stream("other")
    x, y = bench.buffer(3.0), bench.buffer(0.0)
    bench.compute(main, lambda a: a + 1, [x], [y])()  # 150 to 350
    bench.kernel(other, 1)()  # 200
    assert bench.value(y) == 0
    bench.kernel(other, 1)()  # 300
    assert bench.value(y) == 0
    bench.kernel(other, 1)()  # 400
    assert bench.value(y) == 4


def test_a_launch_reads_at_its_start(bench):
    main, other = bench.device.stream("main"), bench.device.stream("other")
    x, y = bench.buffer(3.0), bench.buffer(0.0)
    bench.compute(main, lambda a: a + 1, [x], [y], ns=1000)()  # reads at 150
    bench.kernel(other, 1)()  # 200
    bench.device.write(x, np.float64(100))
    main.synchronize()
    assert bench.value(y) == 4


def test_a_missing_wait_gives_a_wrong_number(bench):
    def run(*, wait):
        a, b = bench.device.stream("a"), bench.device.stream("b")
        x, y, z = bench.buffer(1.0), bench.buffer(-1.0), bench.buffer(0.0)
        event = bench.device.event()
        bench.compute(a, lambda v: v + 1, [x], [y], ns=1000)()
        a.record(event)
        if wait:
            b.wait(event)
        bench.compute(b, lambda v: 10 * v, [y], [z])()
        bench.device.synchronize()
        return bench.value(z)

    assert (run(wait=True), run(wait=False)) == (20, -10)


def test_a_write_that_does_not_wait_for_a_reader_is_found_by_an_adversary(make_bench):
    def run(delay_ns):
        bench = make_bench(lambda launch, _: (delay_ns if launch.name == "reader" else 0, 1))
        a, b = bench.device.stream("a"), bench.device.stream("b")
        x, y = bench.buffer(1.0), bench.buffer(0.0)
        bench.compute(a, lambda v: v, [x], [y], name="reader")()
        bench.compute(b, lambda: np.float64(7), [], [x])()
        bench.device.synchronize()
        return bench.value(y)

    assert (run(0), run(1000)) == (1, 7)


def test_a_result_that_is_a_view_of_an_input_does_not_change_with_it(bench):
    main, other = bench.device.stream("main"), bench.device.stream("other")
    x, y = bench.buffer([1.0, 2.0]), bench.buffer([0.0, 0.0])
    bench.compute(main, lambda a: a[::-1], [x], [y], ns=1000)()
    bench.kernel(other, 1)()
    bench.device.write(x, np.array([8.0, 9.0]))
    main.synchronize()
    np.testing.assert_array_equal(bench.device.read(y), [2, 1])


def test_a_copy_without_a_reference_copies(bench):
    main = bench.device.stream("main")
    source, target = (
        bench.buffer([1.0, 2.0], place=MemoryPlace.HOST),
        bench.device.allocate(ArraySpec((2,), np.dtype("float64")), MemoryPlace.DEVICE),
    )
    launch = bench.launch(kind=LaunchKind.COPY_IN, cost=Cost(bytes=16), reads=(0,), writes=(1,), reference=None)
    bench.device.bind(launch, [source], [target], main)()
    main.synchronize()
    np.testing.assert_array_equal(bench.device.read(target), [1, 2])


def test_in_a_graph_each_replay_computes_anew(bench):
    main = bench.device.stream("main")
    x = bench.buffer(1.0)
    double = bench.compute(main, lambda v: 2 * v, [x], [x])
    bench.device.begin_capture(main)
    double()
    double()
    graph = bench.device.end_capture(main)
    assert bench.value(x) == 1
    for expected in (4, 16):
        graph.launch(main)
        main.synchronize()
        assert bench.value(x) == expected


def test_an_operator_without_a_reference_is_refused_at_bind(bench):
    launch = bench.launch(cost=Cost(bytes=4), name="mine", reference=None)
    with pytest.raises(DeviceError, match=r"'mine' has no NumPy reference, so it runs on CUDA only .*reference=\.\.\."):
        bench.device.bind(launch, [], [], bench.device.stream("main"))


def test_the_wrong_number_of_buffers_is_refused_at_bind(bench):
    launch = bench.launch(cost=Cost(bytes=4), name="mine", reads=(0, 1))
    with pytest.raises(DeviceError, match="'mine' reads 2 variables and was bound to 1"):
        bench.device.bind(launch, [bench.buffer()], [], bench.device.stream("main"))


def fails(*_):
    raise ValueError("no such luck")


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (fails, "ValueError: no such luck"),
        (lambda v: np.zeros(3), r"float64\[3\] for float64\[\]"),
        (lambda v: v.fill(0), "read-only"),
    ],
)
@pytest.mark.parametrize("through", ["stream", "event", "device"])
def test_a_failed_launch_is_raised_once_at_the_next_synchronisation(bench, function, reason, through):
    device, main = bench.device, bench.device.stream("main")
    x, y, z = bench.buffer(1.0), bench.buffer(5.0), bench.buffer(0.0)
    event = device.event()
    bench.compute(main, function, [x], [y], name="bad")()
    bench.compute(main, lambda v: v, [x], [z])()
    main.record(event)
    synchronize = {"stream": main, "event": event, "device": device}[through].synchronize
    with pytest.raises(DeviceError, match=rf"^bad \(operation 0\) failed: .*{reason}"):
        synchronize()
    synchronize()
    assert (bench.value(y), bench.value(z)) == (5, 1)


def test_of_two_failed_launches_the_first_is_raised(bench):
    main = bench.device.stream("main")
    for name in ("first", "second"):
        bench.compute(main, fails, [], [bench.buffer()], name=name)()
    with pytest.raises(DeviceError, match=r"^first "):
        main.synchronize()
    main.synchronize()


def test_a_reference_with_too_many_results_is_a_failed_launch(bench):
    main = bench.device.stream("main")
    bench.compute(main, None, [], [bench.buffer()], reference=lambda _: [np.zeros(()), np.zeros(())])()
    with pytest.raises(DeviceError, match="2 arrays for 1 variable"):
        main.synchronize()


def test_references_on_poison_do_not_warn(bench):
    main = bench.device.stream("main")
    x, y = bench.buffer([0.0, -1.0, np.nan]), bench.buffer([0.0] * 3)
    bench.compute(main, np.log, [x], [y])()
    main.synchronize()
    np.testing.assert_array_equal(bench.device.read(y), [-np.inf, np.nan, np.nan])


def test_a_host_function_sees_memory_as_of_now_and_writes_when_it_is_done(bench):
    main = bench.device.stream("main")
    x, y, z = (bench.buffer(value, place=MemoryPlace.HOST) for value in (1.0, 0.0, 0.0))
    seen = []

    def step(v):
        seen.append((bench.device.now_ns(), float(v)))
        return v + 100

    host = bench.host(step, [x], [y], duration_ns=1000)
    bench.compute(main, lambda v: v + 1, [x], [x])()  # 150 to 350
    host()
    bench.compute(main, lambda v: v + 1, [x], [x])()  # call until 1200, 1250 to 1450
    for _ in range(3):
        bench.kernel(main, 1)()  # 1500
    host()
    assert seen == [(100, 1.0), (1500, 3.0)]
    assert (bench.device.now_ns(), bench.value(y)) == (2500, 103)

    # A launch that starts while the function runs still reads what was there before.
    bench.compute(main, lambda v: v, [y], [z])()  # starts at 2650
    bench.host(lambda v: v * 0, [x], [y], duration_ns=1000)()  # 2600 to 3600
    assert (bench.value(y), bench.value(z)) == (0, 103)


def test_a_host_functions_exception_is_the_callers(bench):
    with pytest.raises(ValueError, match="no such luck"):
        bench.host(fails, [], [])()
    with pytest.raises(DeviceError, match="'host step' returned 2 arrays for 1"):
        bench.host(lambda: (np.zeros(()), np.zeros(())), [], [bench.buffer()])()
    bench.host(lambda: None, [], [], duration_ns=5)()
    assert bench.device.now_ns() == 5


def test_a_spec_that_is_not_supported_never_gets_here():
    with pytest.raises(ProgramError, match="complex128"):
        SimulatedDevice().allocate(ArraySpec((1,), np.dtype("complex128")), MemoryPlace.DEVICE)
