"""The stamp recorder, on a simulated device whose kernels stamp as it knows that they ran; and how stamps become spans."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.recording.test_events import SMALL, device_spans, truth
from tests.recording.test_events import prepared_workload as prepared_on

from streamscope.devices.cuda.stamps import Slots
from streamscope.devices.cuda.timer import TimerClock
from streamscope.devices.log import LogRecord
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engine_entry import ENGINES
from streamscope.engines.plan import Issue
from streamscope.engines.prepared import Prepared, prepare_traced
from streamscope.errors import RecordingError
from streamscope.ops import to_gpu
from streamscope.program.launch import Cost, Launch, LaunchKind
from streamscope.recording import events, passes, stamps
from streamscope.recording.launch_kernels import LaunchKernel
from streamscope.recording.marks import MARKS_OWNER, Mark, Marker
from streamscope.recording.placing import STAGGER_NS, Placed, apart, between
from streamscope.recording.stamp_overhead import LeftOut, kernel_of
from streamscope.recording.stamps import StampRecorder, stamp_excess_ns, stamping_ns
from streamscope.trace.spans import Basis, SpanKind
from streamscope.tracing import program as as_program
from streamscope.words import time_text

EPOCH_NS = 1_790_000_000_000_000_000
"""What the device's timer counts from; no float holds such a number and its nanoseconds."""


class Memory:
    """Stamps of a simulated device: what its log says, on a timer of its own."""

    def __init__(self, device: StampingDevice, slots: list[Slots]) -> None:
        self.device = device
        self.slots = slots
        self.too_large = device.too_large

    def clear(self) -> None:
        self.device.log.clear()

    def read(self) -> list[np.ndarray]:
        times: dict[tuple[int, int], list[LogRecord]] = {}
        for record in self.device.log:
            times.setdefault((record.operation, record.part), []).append(record)
        return [self._stamps(number, slots, times) for number, slots in enumerate(self.slots)]

    def _stamps(self, number: int, slots: Slots, times: dict[tuple[int, int], list[LogRecord]]) -> np.ndarray:
        key = (MARKS_OWNER[0], number) if slots.owner == MARKS_OWNER else slots.owner
        if key not in times or key in self.device.silent:
            return np.zeros((slots.blocks, 3), np.int64)
        later = 0 if slots.owner == MARKS_OWNER else sum(each.owner == key for each in self.slots[number + 1 :])
        record = times[key][-1 - later]  # of the last run
        # Before the first stamp, and after the last. Stamps make no kernel longer here.
        excess = stamp_excess_ns(slots.blocks, in_graph=record.replay >= 0) - stamping_ns(slots.blocks)
        unseen = (excess + self.device.more_ns) / 2
        start, end = round(record.start_ns + unseen), round(record.end_ns - unseen)
        start = end if slots.owner == MARKS_OWNER else start  # A mark lasts no longer than what its stamp leaves out.
        begun = np.linspace(start, max(start, end - 100), slots.blocks).astype(np.int64) if slots.blocks > 1 else np.array([start])
        ended = np.append(begun[1:], end) if slots.blocks > 1 else np.array([max(start, end)])
        return np.stack([begun + EPOCH_NS, ended + EPOCH_NS, np.arange(slots.blocks) % 132], axis=1)


class StampingDevice(SimulatedDevice):
    """A simulated device whose kernels, but for those of libraries, can stamp.

    They take ``more_ns`` longer, besides what their stamps say, than those of an H200.
    """

    more_ns = 0
    too_large = frozenset()
    silent = frozenset()  # owners of kernels that leave no stamps

    def stamping(self, memory: Memory) -> AbstractContextManager[None]:
        return nullcontext()

    def stamp_memory(self, program) -> Memory:
        self.log.enabled = True
        own = [launch for launch in program.launches() if launch.kind is LaunchKind.KERNEL and not launch.library]
        slots = [
            Slots(f"{one.name}_kernel", (one.operation, one.part), kernel.blocks, kernel.threads, 0, 0)
            for one in own
            for kernel in one.cost.kernels
        ]
        return Memory(self, slots)


@pytest.fixture
def stamping(monkeypatch):
    """Let the recorder's own kernels run on a simulated device."""

    def mark(self: Marker, stream) -> Mark:
        number = len(self.memory.slots)
        launch = Launch(MARKS_OWNER[0], number, "mark", LaunchKind.KERNEL, (), (), Cost(0, 0, 1, 1), lambda _: [])
        self.memory.slots.append(Slots("mark", MARKS_OWNER, 1, 1, 0, 0))
        return Mark(self.device.bind(launch, [], [], stream), number)

    monkeypatch.setattr(Marker, "mark", mark)
    monkeypatch.setattr(stamps, "align_timer", lambda *_: TimerClock(-EPOCH_NS, 50.0))
    leave_out(monkeypatch, 0)


def leave_out(monkeypatch, more_ns: int) -> None:
    """Let stamps leave out so much more than on the H200 of the constants: so does its reference kernel, as all kernels do."""
    monkeypatch.setattr(StampingDevice, "more_ns", more_ns)
    reference_ns = SimulatedDevice().working_kernel_ns - more_ns
    for name in ("REFERENCE_NS", "REFERENCE_IN_GRAPH_NS"):
        monkeypatch.setattr(stamps, name, reference_ns)


def left_out_by_cupti(slots, more_ns):
    """Return what CUPTI says that stamps leave out; ``more_ns``, by kernel, is how much more than on an H200."""
    found = {}
    for kernel in dict.fromkeys(map(kernel_of, slots)):
        queued_ns, in_graph_ns = (stamp_excess_ns(kernel[1], in_graph=inside) + more_ns(kernel) for inside in (False, True))
        found[kernel] = LeftOut(queued_ns, in_graph_ns)
    return found


def prepared_workload(name: str, engine: str) -> Prepared:
    return prepared_on(name, engine, StampingDevice)


# Two engines for each workload, others for the next.
@pytest.mark.usefixtures("stamping")
@pytest.mark.parametrize(
    ("workload", "engine"),
    [
        (name, [*ENGINES][(2 * number + other) % len(ENGINES)])
        for number, name in enumerate(name for name in SMALL if "-parallel" not in name)
        for other in (0, 1)
    ],
)
def test_stamped_kernels_are_where_they_truly_ran(workload, engine):
    prepared = prepared_workload(workload, engine)
    trace = StampRecorder(prepared.device, 1).record(prepared)
    expected, found, measured = truth(prepared), device_spans(trace), device_spans(trace, Basis.MEASURED)
    own = {(one.operation, one.part) for one in prepared.program.launches() if one.kind is LaunchKind.KERNEL and not one.library}
    assert found.keys() == expected.keys()
    assert measured.keys() == own
    # Events behind copies and library calls slow a run outside graphs, so only lengths can be compared with an unrecorded one there.
    for key in own:
        lasted = expected[key][1] - expected[key][0]
        assert found[key][1] - found[key][0] == pytest.approx(lasted, abs=max(40, 0.05 * lasted))
    if own == expected.keys():
        for key, times in expected.items():
            assert found[key] == pytest.approx(times, abs=60)


@pytest.mark.usefixtures("stamping")
@pytest.mark.parametrize("engine", ["graph", "graph-dual"])
@pytest.mark.parametrize("workload", ["cnn", "attention", "conv-backward", "lstm", "pipeline"])
def test_launches_without_stamps_are_placed_near_their_true_times_in_graphs(workload, engine):
    prepared = prepared_workload(workload, engine)
    trace = StampRecorder(prepared.device, 1).record(prepared)
    expected, found = truth(prepared), device_spans(trace)
    shift = np.median([found[key][1] - expected[key][1] for key in expected])
    for key, (start, end) in expected.items():
        assert found[key][1] - shift == pytest.approx(end, abs=1_000)
        # A root that takes a little longer than alone is taken to have begun late.
        assert start - 1_000 <= found[key][0] - shift <= start + STAGGER_NS


@pytest.mark.usefixtures("stamping")
@pytest.mark.parametrize("engine", ENGINES)
def test_spans_of_a_stream_do_not_overlap_and_blocks_lie_within_their_kernels(engine):
    prepared = prepared_workload("cnn", engine)
    trace = StampRecorder(prepared.device, 1).record(prepared)
    spans = trace.spans.of_kind([SpanKind.KERNEL, SpanKind.COPY])
    for lane in set(spans.lane.tolist()):
        mine = spans.select(spans.lane == lane)
        assert (mine.start_ns[1:] >= mine.end_ns[:-1]).all()
    times = device_spans(trace)
    keys = list(zip(trace.blocks.operation.tolist(), trace.blocks.part.tolist(), strict=True))
    assert set(keys) == set(device_spans(trace, Basis.MEASURED))
    assert (trace.blocks.start_ns >= [times[key][0] - 1 for key in keys]).all()
    assert (trace.blocks.end_ns <= [times[key][1] + 1 for key in keys]).all()
    assert trace.info.recorder == "stamps"
    assert trace.info.ledger["unrecorded_ns"] > 0
    assert any("cannot be stamped" in note for note in trace.info.notes)
    stamped = spans.select(spans.basis == Basis.MEASURED)
    assert all(spans.names[code].endswith("_kernel") for code in stamped.symbol)


@pytest.mark.usefixtures("stamping")
def test_the_results_are_still_right_and_the_plain_kernels_run_on_after_recording():
    for engine in ENGINES:
        prepared = prepared_workload("branches", engine)
        before, calls = prepared.outputs(), [bound.call for bound in prepared.bound]
        StampRecorder(prepared.device, 1).record(prepared)
        assert [bound.call for bound in prepared.bound] == calls
        prepared.run()
        for one, other in zip(prepared.outputs(), before, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.usefixtures("stamping")
def test_more_blocks_than_a_trace_keeps_are_left_out_with_a_note(monkeypatch):
    monkeypatch.setattr(stamps.Blocks, "MOST", 3)
    trace = StampRecorder((prepared := prepared_workload("branches", "graph")).device, 1).record(prepared)
    assert len(trace.blocks) == 0
    assert any("blocks are left out: a trace keeps 3" in note for note in trace.info.notes)


@pytest.mark.usefixtures("stamping")
@pytest.mark.parametrize("engine", ["async", "graph"])
def test_without_cupti_the_reference_kernel_tells_what_stamps_leave_out(engine, monkeypatch):
    leave_out(monkeypatch, -260)
    prepared = prepared_workload("branches", engine)
    trace = StampRecorder(prepared.device, 1).record(prepared)
    for key, (start, end) in truth(prepared).items():
        found = device_spans(trace)[key]
        assert found[1] - found[0] == pytest.approx(end - start, abs=60)
    found = trace.info.calibration
    assert found["stamp_difference_ns"] == pytest.approx(-260, abs=60)
    assert found["stamp_correction_ns"] == -260
    assert not found["stamp_by_cupti"]
    added = f"{time_text(found['stamp_excess_ns'], 2)} are added around the first and last block of a kernel"
    assert f"{added}, as the reference kernel tells; CUPTI could not" in trace.info.notes


@pytest.mark.usefixtures("stamping")
@pytest.mark.parametrize("engine", ["async", "graph"])
def test_cupti_is_believed_where_it_can_be_had(engine, monkeypatch):
    """Events say here what they like: 260 ns less than is true."""
    measured = passes.alone_ns
    for module in (stamps, events):
        monkeypatch.setattr(module, "alone_ns", lambda *given: {index: each - 260 for index, each in measured(*given).items()})
    monkeypatch.setattr(StampingDevice, "more_ns", -90)
    monkeypatch.setattr(stamps, "left_out_ns", lambda _device, memory, _launches: left_out_by_cupti(memory.slots, lambda _: -90))
    prepared = prepared_workload("cnn", engine)
    trace = StampRecorder(prepared.device, 1).record(prepared)
    found = device_spans(trace)
    for key, (start, end) in truth(prepared).items():
        assert found[key][1] - found[key][0] == pytest.approx(end - start, abs=60)
    assert trace.info.calibration["stamp_correction_ns"] == pytest.approx(-90, abs=1)
    assert trace.info.calibration["stamp_by_cupti"] == 1
    assert any("around the first and last block of a kernel, as CUPTI measured here" in note for note in trace.info.notes)


@pytest.mark.usefixtures("stamping")
@pytest.mark.parametrize("engine", ["async", "graph"])
def test_each_kernel_gets_what_cupti_says_of_it(engine, monkeypatch):
    prepared = prepared_workload("branches", engine)
    before = device_spans(StampRecorder(prepared.device, 1).record(prepared), Basis.MEASURED)
    slots = prepared.device.stamp_memory(prepared.program).slots
    more_ns = {kernel: 40 * number for number, kernel in enumerate(dict.fromkeys(map(kernel_of, slots)))}
    assert len(more_ns) > 1
    monkeypatch.setattr(stamps, "left_out_ns", lambda *_: left_out_by_cupti(slots, more_ns.get))
    after = device_spans(StampRecorder(prepared.device, 1).record(prepared), Basis.MEASURED)
    found = {key: (end - start) - (before[key][1] - before[key][0]) for key, (start, end) in after.items()}
    assert found == pytest.approx({one.owner: more_ns[kernel_of(one)] for one in slots}, abs=2)


@pytest.mark.usefixtures("stamping")
def test_kernels_that_cupti_did_not_measure_are_counted(monkeypatch):
    prepared = prepared_workload("branches", "async")
    slots = prepared.device.stamp_memory(prepared.program).slots
    known = kernel_of(slots[0])
    others = sum(kernel_of(slot) != known for slot in slots)
    assert 1 < others < len(slots)
    monkeypatch.setattr(stamps, "left_out_ns", lambda *_: left_out_by_cupti(slots[:1], lambda _: 0))
    notes = StampRecorder(prepared.device, 1).record(prepared).info.notes
    assert any(f"as CUPTI measured here; {others} kernels that it did not measure got the median of the others" in note for note in notes)


@pytest.mark.usefixtures("stamping")
@pytest.mark.parametrize("engine", ["async", "graph"])
def test_stamps_are_believed_and_events_corrected_by_them(engine, monkeypatch):
    """Here all that events say is 260 ns too short, as it is where the reference kernel takes so much longer than it did."""
    prepared = prepared_workload("cnn", engine)
    expected = device_spans(StampRecorder(prepared.device, 1).record(prepared))
    measured = passes.alone_ns
    for module in (stamps, events):
        monkeypatch.setattr(module, "alone_ns", lambda *given: {index: each - 260 for index, each in measured(*given).items()})
    trace = StampRecorder(prepared.device, 1).record(prepared)
    assert trace.info.calibration["stamp_difference_ns"] == pytest.approx(-260, abs=60)
    assert trace.info.calibration["stamp_correction_ns"] == 0
    found = device_spans(trace)
    assert {key: end - start for key, (start, end) in found.items()} == {
        key: pytest.approx(end - start, abs=60) for key, (start, end) in expected.items()
    }


@pytest.mark.usefixtures("stamping")
@pytest.mark.parametrize("engine", ["dual", "graph-dual"])
@pytest.mark.parametrize("workload", ["cnn", "pipeline"])
def test_events_and_marks_tell_the_same_ends_where_stamps_leave_out_less(workload, engine, monkeypatch):
    marked, ends, found = stamps.Recording._marked, [], []

    def watched(self, chosen, replay, correlation, *given):
        begun_ns, ended_ns, gap_ns = marked(self, chosen, replay, correlation, *given)
        ends[-1] |= {(correlation, index): (end_ns,) for index, end_ns in ended_ns.items()}
        return begun_ns, ended_ns, gap_ns

    monkeypatch.setattr(stamps.Recording, "_marked", watched)
    for more_ns in (0, -500):
        leave_out(monkeypatch, more_ns)
        ends.append({})
        prepared = prepared_workload(workload, engine)
        trace = StampRecorder(prepared.device, 1).record(prepared)
        found.append((trace.info.calibration["stamp_correction_ns"], device_spans(trace)))
    (correction_ns, expected), (other_ns, times) = found
    assert other_ns - correction_ns == pytest.approx(-500, abs=5)
    if "graph" in engine:
        expected, times = ends
        assert expected
    assert times == {key: pytest.approx(each, abs=5) for key, each in expected.items()}


@pytest.mark.usefixtures("stamping")
@pytest.mark.parametrize("engine", ENGINES)
def test_a_launch_with_a_kernel_too_large_to_stamp_is_timed_by_events_and_told(engine, monkeypatch):
    monkeypatch.setattr(StampingDevice, "too_large", frozenset({(2, 0)}))
    prepared = prepared_workload("branches", engine)
    trace = StampRecorder(prepared.device, 1).record(prepared)
    assert device_spans(trace).keys() == truth(prepared).keys()
    assert (2, 0) not in device_spans(trace, Basis.MEASURED)
    assert (2, 0) not in set(zip(trace.blocks.operation.tolist(), trace.blocks.part.tolist(), strict=True))
    assert any("1 launch with kernels of more than 1,048,576 blocks" in note for note in trace.info.notes)
    assert not any("libraries" in note for note in trace.info.notes)


@pytest.mark.usefixtures("stamping")
@pytest.mark.parametrize("engine", ENGINES)
def test_a_launch_without_stamps_is_told(engine, monkeypatch):
    monkeypatch.setattr(StampingDevice, "silent", frozenset({(2, 0)}))
    prepared = prepared_workload("branches", engine)
    trace = StampRecorder(prepared.device, 1).record(prepared)
    assert (2, 0) not in device_spans(trace)
    assert any("1 kernel without stamps" in note and "lower bounds" in note for note in trace.info.notes)


def test_what_stamps_leave_out_grows_with_the_blocks():
    assert [round(stamp_excess_ns(blocks)) for blocks in (1, 60, 600, 6_000)] == [635, 635, 840, 1_045]
    assert stamp_excess_ns(60, in_graph=True) == 760
    assert [round(stamping_ns(blocks)) for blocks in (1, 60, 600)] == [45, 45, 90]


def test_what_stamps_leave_out_is_as_the_docstring_says_of_the_measurements(repository):
    found = json.loads((repository / "benchmarks" / "results" / "stamp_accuracy.json").read_text(encoding="utf-8"))
    errors = {False: [0.0], True: [0.0]}
    for program in found["programs"].values():
        for engine, one in program.items():
            beside = "dual" in engine and one["blocks"] >= found["filling_blocks"]
            errors[beside].append(abs(one["left_out_ns"] - stamp_excess_ns(one["blocks"], in_graph="graph" in engine)))
    assert max(errors[False]) <= 200
    assert 1_000 < max(errors[True]) <= 3_400
    assert {one["blocks"] for program in found["programs"].values() for one in program.values()} >= {1, 4_224}
    assert max(one["blocks"] for program in found["programs"].values() for one in program.values()) == 4_224


def test_a_simulated_device_says_that_its_log_is_exact_already():
    with pytest.raises(RecordingError, match="simulated NVIDIA H200 has no kernels that could stamp"):
        StampRecorder.on(SimulatedDevice())


def test_what_has_no_stamps_begins_when_it_could_and_ends_as_marked():
    # 0 (stamped) → 1 → 2 (stamped), 0 → 3
    before = {0: [], 1: [0], 2: [1], 3: [0]}
    found = between(before, {0: (0, 100), 2: (300, 400)}, {}, {1: 290, 3: 180}, {1: 150, 3: 20}, 5)
    assert found == {1: (105, 290), 3: (105, 180)}


def test_nothing_is_shorter_than_alone_unless_a_stamped_launch_comes_next():
    before = {0: [], 1: [0], 2: [1]}
    assert between(before, {}, {0: 0}, {0: 50, 1: 70, 2: 200}, {0: 50, 1: 40, 2: 60}, 5) == {0: (0, 50), 1: (55, 95), 2: (100, 200)}
    assert between(before, {2: (70, 90)}, {0: 0}, {0: 50, 1: 70}, {0: 50, 1: 40}, 5) == {0: (0, 50), 1: (55, 70)}


def test_what_comes_first_on_a_branch_begins_late_unless_it_takes_much_longer_than_alone():
    assert between({0: []}, {}, {0: 0}, {0: 5_500}, {0: 4_000}, 5, forks=[0]) == {0: (1_500, 5_500)}
    assert between({0: []}, {}, {0: 0}, {0: 9_000}, {0: 4_000}, 5, forks=[0]) == {0: (0, 9_000)}
    assert between({0: []}, {}, {0: 0}, {0: 17_000}, {0: 4_000}, 5, forks=[0]) == {0: (13_000, 17_000)}  # not four times as slow
    assert between({0: [], 1: [0]}, {0: (0, 10)}, {}, {1: 900}, {1: 400}, 5, forks=[1]) == {1: (500, 900)}
    assert between({0: [], 1: [0]}, {0: (0, 10)}, {}, {1: 900}, {1: 400}, 5) == {1: (15, 900)}


def test_a_kernel_waits_until_those_ahead_of_it_have_handed_out_their_blocks():
    # 1 follows 0; 2 is stamped and hands out its blocks until 68 µs.
    before, known, ends, alone = {0: [], 1: [0], 2: []}, {0: (0, 1_000), 2: (0, 70_000)}, {1: 90_000}, {1: 20_000}
    assert between(before, known, {}, ends, alone, 5, filling=[(0, 68_000)]) == {1: (68_000, 90_000)}
    # Handed out until 40 µs and from 50 µs on: a mark behind it waits, too, and does not tell when it ended.
    assert between(before, known, {}, ends, alone, 5, filling=[(0, 40_000), (50_000, 89_000)]) == {1: (40_000, 60_000)}
    # One that began later is behind it.
    assert between(before, known, {}, ends, alone, 5, filling=[(2_000, 10_000)]) == {1: (1_005, 90_000)}
    # A copy needs no room.
    assert between(before, known, {}, ends, alone, 5, filling=[(0, 68_000)], copies={1}) == {1: (70_000, 90_000)}


def test_a_kernel_that_waits_for_none_begins_with_those_whose_blocks_hold_up_the_mark_ahead_of_it():
    before, known, ends, alone = {0: [], 1: []}, {0: (0, 70_000)}, {1: 90_000}, {1: 20_000}
    assert between(before, known, {1: 66_000}, ends, alone, 5, filling=[(100, 68_000)]) == {1: (100, 20_100)}
    assert between(before, known, {1: 50}, ends, alone, 5, filling=[(100, 19_000)]) == {1: (50, 90_000)}


def test_a_copy_is_as_long_as_alone():
    assert between({0: []}, {}, {0: 0}, {0: 500}, {0: 50}, 5, copies={0}) == {0: (450, 500)}


@given(st.lists(st.tuples(st.integers(0, 1), st.floats(0, 1e6), st.floats(0, 1e4), st.booleans()), max_size=12))
def test_launches_of_a_stream_are_parted_and_stay_whole(rows):
    launch = Launch(0, 0, "kernel", LaunchKind.KERNEL, (), (), Cost(0), None)
    placed = [
        Placed(
            Issue(launch, lane), 0, start, start + length, Basis.MEASURED if measured else Basis.PLACED, (LaunchKernel(SpanKind.KERNEL),)
        )
        for lane, start, length, measured in rows
    ]
    found = apart(placed)
    assert len(found) == len(placed)
    assert all(one.end_ns >= one.start_ns for one in found)
    for one, other in pairwise(found):
        assert one.step.lane != other.step.lane or one.end_ns <= other.start_ns


def test_a_program_over_several_gpus_is_refused():
    traced = as_program(lambda x: to_gpu(x, 1)).trace(np.ones(4))
    prepared = prepare_traced(traced, "async", SimulatedDevice(gpus=2))
    with pytest.raises(RecordingError, match="stamps know the clock of one GPU, and '<lambda>' runs on several"):
        StampRecorder(prepared.device).record(prepared)
