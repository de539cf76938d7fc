"""What holds for every program and every legal schedule."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.counting import calls_of

from streamscope.devices.cost_model import CostModel
from streamscope.devices.simulated import SimulatedDevice
from streamscope.program.launch import Cost, Launch, LaunchKind
from streamscope.program.variable import ArraySpec, MemoryPlace

VARIABLES, STREAMS = 4, 3
MODEL = CostModel.load()


@dataclass(frozen=True)
class Step:
    """One operation of a random program, where it runs, and what the adversary does to it."""

    reads: tuple[int, ...]
    write: int
    stream: int
    kind: LaunchKind
    cost: Cost
    delay_ns: int
    stretch: float


steps = st.builds(
    Step,
    reads=st.sets(st.integers(0, VARIABLES - 1), max_size=2).map(lambda ids: tuple(sorted(ids))),
    write=st.integers(0, VARIABLES - 1),
    stream=st.integers(0, STREAMS - 1),
    kind=st.sampled_from([LaunchKind.KERNEL] * 4 + [LaunchKind.COPY_IN, LaunchKind.COPY_OUT]),
    cost=st.builds(Cost, bytes=st.integers(0, 10**8), blocks=st.integers(1, 2000), threads=st.sampled_from([32, 256, 1024])),
    delay_ns=st.integers(0, 50_000),
    stretch=st.floats(0.1, 10),
)
programs = st.lists(steps, min_size=1, max_size=25)


def reference(index):
    """Return a step's function, which depends on the order of everything: an affine map modulo a prime."""
    return lambda arrays: [np.array((sum((k + 2) * int(a) for k, a in enumerate(arrays)) * 31 + index + 1) % 1_000_003)]


def serial(program):
    values = [np.array(k) for k in range(VARIABLES)]
    for index, step in enumerate(program):
        values[step.write] = reference(index)([values[k] for k in step.reads])[0]
    return [int(value) for value in values]


class Runner:
    """Runs a random program with just the waits that its reads and writes need."""

    def __init__(self, program):
        sways = {index: (step.delay_ns, step.stretch) for index, step in enumerate(program)}
        self.program = program
        self.device = SimulatedDevice(MODEL, delays=lambda launch, stream: sways[launch.operation])
        self.device.log.enabled = True
        self.streams = [self.device.stream(str(number)) for number in range(STREAMS)]
        self.buffers = [self.device.allocate(ArraySpec((), np.dtype("int64")), MemoryPlace.DEVICE) for _ in range(VARIABLES)]
        self.calls = [self.bind(index, step) for index, step in enumerate(program)]

    def bind(self, index, step):
        launch = Launch(index, 0, str(index), step.kind, step.reads, (step.write,), step.cost, reference(index))
        return self.device.bind(launch, [self.buffers[k] for k in step.reads], [self.buffers[step.write]], self.streams[step.stream])

    def reset(self):
        for number, buffer in enumerate(self.buffers):
            self.device.write(buffer, np.array(number))

    def issue(self):
        writer, readers = {}, {k: [] for k in range(VARIABLES)}
        for step, call in zip(self.program, self.calls, strict=True):
            needed = [writer[k] for k in step.reads if k in writer] + readers[step.write] + [writer[k] for k in [step.write] if k in writer]
            for event in needed:
                self.streams[step.stream].wait(event)
            call()
            done = self.device.event()
            self.streams[step.stream].record(done)
            for k in step.reads:
                readers[k].append(done)
            writer[step.write], readers[step.write] = done, []

    def values(self):
        return [int(self.device.read(buffer)) for buffer in self.buffers]


@given(programs)
def test_with_the_waits_that_it_needs_a_program_gives_the_serial_result_whatever_the_schedule(program):
    runner = Runner(program)
    runner.reset()
    runner.issue()
    runner.device.synchronize()
    assert runner.values() == serial(program)


@given(programs)
def test_a_capture_of_it_gives_the_serial_result_too(program):
    runner = Runner(program)
    device, origin = runner.device, runner.device.stream("origin")
    device.begin_capture(origin)
    fork = device.event()
    origin.record(fork)
    for stream in runner.streams:
        stream.wait(fork)
    runner.issue()
    for stream in runner.streams:
        join = device.event()
        stream.record(join)
        origin.wait(join)
    graph = device.end_capture(origin)
    assert graph.node_count == len(program)
    for _ in range(2):
        runner.reset()
        graph.launch(origin)
        origin.synchronize()
        assert runner.values() == serial(program)


@given(programs)
def test_what_runs_side_by_side_obeys_the_chip(program):
    runner = Runner(program)
    runner.reset()
    for call in runner.calls:
        call()
    runner.device.synchronize()
    log = {record.operation: record for record in runner.device.log}
    assert len(log) == len(program)
    tolerance = 1e-3
    for index, step in enumerate(program):
        taken_ns = log[index].end_ns - log[index].start_ns
        alone_ns = step.stretch * round(
            MODEL.kernel_ns(step.cost) if step.kind is LaunchKind.KERNEL else MODEL.copy_ns(step.cost, step.kind)
        )
        if step.kind is LaunchKind.KERNEL:
            assert taken_ns >= alone_ns - tolerance, "no kernel is faster in company than alone"
        else:
            least, most = alone_ns - tolerance, alone_ns / MODEL.bus_both_share + tolerance
            assert least <= taken_ns <= most, "a copy shares the bus with those of the other direction only"
    for kind in (LaunchKind.COPY_IN, LaunchKind.COPY_OUT):
        assert_apart([record for record in log.values() if record.kind is kind], 0)
    for stream in runner.streams:
        lane = [record for record in log.values() if record.stream == stream.name]
        assert [record.operation for record in sorted(lane, key=lambda record: record.start_ns)] == [record.operation for record in lane]
        assert_apart(lane, MODEL.kernel_gap_ns)


def assert_apart(records, gap_ns):
    ordered = sorted(records, key=lambda record: record.start_ns)
    for before, after in pairwise(ordered):
        assert after.start_ns >= before.end_ns + gap_ns - 1e-3


@given(programs)
@settings(max_examples=20)
def test_the_same_calls_give_the_same_times(program):
    logs = []
    for _ in range(2):
        runner = Runner(program)
        runner.reset()
        runner.issue()
        runner.device.synchronize()
        logs.append((runner.device.now_ns(), list(runner.device.log)))
    assert logs[0] == logs[1]


def test_to_simulate_an_operation_is_as_much_work_in_a_long_program():
    def simulate(count):
        rng = np.random.default_rng(0)
        choices = rng.integers(0, (VARIABLES, VARIABLES, STREAMS, 500), (count, 4)).tolist()
        program = [Step((r,), w, s, LaunchKind.KERNEL, Cost(bytes=10_000, blocks=b + 1), 0, 1.0) for r, w, s, b in choices]
        runner = Runner(program)
        runner.reset()
        runner.issue()
        runner.device.synchronize()
        assert runner.values() == serial(program)

    assert calls_of(simulate, 2_000) < 5 * calls_of(simulate, 500)


def test_streams_that_are_done_make_a_synchronisation_little_work():
    device = SimulatedDevice()

    def done(count):
        for number in range(count):
            stream = device.stream(f"stream {number}")
            stream.record(device.event())
        device.synchronize()
        return calls_of(device.synchronize)

    few = done(10)
    assert done(500) - few <= 2 * 500  # whether each has come, and whether it is captured
