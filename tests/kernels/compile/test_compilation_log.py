"""The log of compilations: its sums against ones worked out by hand, and its stages as a trace."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamscope.kernels.compile import compilation_log as module
from streamscope.kernels.compile.compilation_log import CompilationLog, CompileStage, KernelRecord, LaunchCost, StageTime, lane_order
from streamscope.kernels.compile.cubin import Cubin
from streamscope.kernels.compile.kernel_cache import Origin
from streamscope.trace.spans import SpanKind


def log_of(*stages):
    log = CompilationLog()
    for stage, lane, start, end in stages:
        log.add_stage(StageTime(stage, "k", lane, start, end))
    return log


def test_times_by_hand():
    log = log_of(
        (CompileStage.LOOK_UP, "host", 100, 110),
        (CompileStage.COMPILE, "worker 1", 110, 160),
        (CompileStage.COMPILE, "worker 2", 120, 170),
        (CompileStage.STORE, "worker 1", 160, 165),
        (CompileStage.LOAD, "host", 300, 320),
    )
    assert log.stage_ns == {CompileStage.LOOK_UP: 10, CompileStage.COMPILE: 100, CompileStage.STORE: 5, CompileStage.LOAD: 20}
    assert log.wall_ns == 90  # 100 to 170 and 300 to 320


intervals = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda each: (each[0], each[0] + each[1])), max_size=12)


@given(intervals)
def test_wall_clock_is_the_time_in_which_something_was_done(found):
    log = log_of(*((CompileStage.COMPILE, f"worker {number}", start, end) for number, (start, end) in enumerate(found)))
    assert log.wall_ns == len({tick for start, end in found for tick in range(start, end)})


def test_a_kernels_share_of_its_unit():
    cubin = Cubin(b"", "sm_90", "13.0", 90, 3)
    assert KernelRecord("k", "sm_90", Origin.DISK, cubin).compile_ns == 30
    failed = KernelRecord("k", "sm_90", Origin.FAILED)
    assert (failed.compile_ns, failed.resources) == (0, None)


def test_every_record_goes_to_the_session_too():
    session = CompilationLog()
    log = CompilationLog(copy_to=session)
    cost = LaunchCost("a GPU", 1.0, 2.0, 3.0)
    log.add_kernel(KernelRecord("k", "sm_90", Origin.FAILED))
    log.note_launch_cost(cost)
    with pytest.raises(ZeroDivisionError), log.stage(CompileStage.COMPILE, "k", 7):
        raise ZeroDivisionError
    for each in (log, session):
        assert each.counts == {Origin.FAILED: 1}
        assert each.launch_cost is cost
        (stage,) = each.stages
        assert (stage.stage, stage.what, stage.lane, stage.code_bytes) == (CompileStage.COMPILE, "k", "host", 7)
        assert stage.end_ns >= stage.start_ns


def test_it_is_bounded(monkeypatch):
    log = CompilationLog()
    assert (log.kernels.maxlen, log.stages.maxlen) == (module.MOST_KEPT, module.MOST_KEPT)


def test_it_is_read_while_it_is_written():
    log, ended, failed = log_of((CompileStage.COMPILE, "host", 0, 1)), threading.Event(), []

    def read():
        while not ended.is_set():
            try:
                str(log), log.wall_ns, log.counts
            except RuntimeError as error:  # changed during iteration
                failed.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    for number in range(3000):
        log.add_stage(StageTime(CompileStage.COMPILE, "k", "host", number, number + 1))
        log.add_kernel(KernelRecord("k", "sm_90", Origin.MEMORY))
    ended.set()
    thread.join()
    assert not failed


def test_its_lanes_are_in_order():
    stages = [StageTime(CompileStage.COMPILE, "k", lane, 0, 1) for lane in ("worker 10", "worker 2", "host", "worker 1")]
    assert lane_order(stages) == ["host", "worker 1", "worker 2", "worker 10"]


def test_as_a_trace():
    log = log_of((CompileStage.LOOK_UP, "host", 1000, 1100), (CompileStage.COMPILE, "worker 1", 1100, 1900))
    log.add_kernel(KernelRecord("k", "sm_80", Origin.FAILED))
    trace = log.trace("batched", "step")
    assert (trace.info.engine, trace.info.program) == ("batched", "step")
    assert "sm_80" in trace.info.device.name
    spans = trace.spans
    assert list(spans.start_ns) == [0, 100]
    assert list(spans.end_ns) == [100, 900]
    assert set(spans.kind) == {SpanKind.COMPILE}


def test_an_empty_log():
    log = CompilationLog()
    assert (log.wall_ns, log.code_bytes, log.stage_ns, log.counts) == (0, 0, {}, {})
    assert str(log) == "0 kernels: none; 0 bytes of device code; no time"
    assert len(log.trace().spans.start_ns) == 0


def test_both_ways_on_one_axis():
    timeline = pytest.importorskip("streamscope_widgets.timeline")
    one = log_of((CompileStage.COMPILE, "worker 1", 5000, 9000))
    many = log_of((CompileStage.COMPILE, "worker 1", 0, 1000), (CompileStage.COMPILE, "worker 2", 0, 1100))
    widget = timeline.timeline([one.trace("one by one"), many.trace("batched")])
    assert isinstance(widget, timeline.TimelineWidget)
    assert isinstance(many.timeline(), timeline.TimelineWidget)
