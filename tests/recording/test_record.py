"""Recording any code, with a CUPTI of Python: what becomes of its records, and that it is switched off whatever happens."""

from __future__ import annotations

import ctypes
import operator
import os
import signal
import sys
import threading
import time
from _thread import interrupt_main
from collections import deque
from contextlib import contextmanager, suppress
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from tests.recording.fake_cupti import ActivityKind, Driver, Runtime, call, launch, record, rows, text

import streamscope as ss
from streamscope.errors import RecordingError, RecordingWarning
from streamscope.interrupts import deferred
from streamscope.recording import counting
from streamscope.recording import record as module
from streamscope.recording import subscription as subscribing
from streamscope.trace.spans import SpanKind


@contextmanager
def recorded_with_warning(match):
    """Record a block, which warns that the recording is not whole."""
    with pytest.warns(RecordingWarning, match=match), ss.record() as recording:
        yield recording


def test_a_launch_is_joined_with_its_kernel_and_has_its_names_and_size(library):
    with ss.record("step") as recording:
        began = library.now
        launch(library, correlation=5)
    trace = recording.trace
    assert (trace.info.engine, trace.info.program, trace.info.recorder, trace.info.notes) == ("recorded", "step", "cupti", ())
    (host,) = rows(trace, SpanKind.LAUNCH).itertuples()
    (kernel,) = rows(trace, SpanKind.KERNEL).itertuples()
    assert (host.name, host.lane, host.correlation) == ("cudaLaunchKernel", "thread 11", 5)
    assert (kernel.name, kernel.symbol, kernel.lane, kernel.correlation) == ("axpy", "axpy(float*)", "stream 7", 5)
    assert (kernel.blocks, kernel.threads, kernel.operation, kernel.graph_node) == (8, 64, -1, -1)
    assert (host.start_ns, host.end_ns, kernel.start_ns, kernel.end_ns) == (0, 20, 30, 90)
    assert began + host.start_ns == recording._start_ns


def test_each_node_of_a_graph_is_a_span_and_the_launch_is_one_around_them(library):
    with ss.record() as recording:
        launch(library, correlation=5, node=(2 << 32) + 0, call=Runtime.cudaGraphLaunch_v10000)
        library.records.append(
            record(
                ActivityKind.MEMSET,
                start=library.now,
                end=library.now + 7,
                correlation_id=5,
                stream_id=9,
                graph_node_id=(2 << 32) + 1,
                bytes=64,
            )
        )
    nodes = rows(recording.trace, SpanKind.KERNEL, SpanKind.SET)
    assert nodes.graph_node.tolist() == [2 << 32, (2 << 32) + 1]
    assert nodes.bytes.tolist() == [0, 64]
    (graph,) = rows(recording.trace, SpanKind.GRAPH).itertuples()
    assert (graph.start_ns, graph.end_ns, graph.correlation) == (nodes.start_ns.min(), nodes.end_ns.max(), 5)
    assert rows(recording.trace, SpanKind.GRAPH_LAUNCH).correlation.tolist() == [5]


def test_times_are_those_of_the_systems_clock_whichever_another_profiler_left(library):
    with ss.record():
        first, between, second = library.clock(), time.clock_gettime_ns(time.CLOCK_REALTIME), library.clock()
    assert first <= between <= second


def test_a_launch_whose_kernel_has_no_record_is_told(library):
    with recorded_with_warning("'recording' is not whole: 1 launch call without") as recording:
        launch(library, correlation=5)
        launch(library, correlation=6, kernel=False)
    assert "1 launch call without a kernel, copy or set" in " ".join(recording.trace.info.notes)


def test_records_that_cupti_dropped_are_told(library):
    with recorded_with_warning("CUPTI dropped 3 records") as recording:
        launch(library, correlation=5)
        library.dropped = 3
    assert "CUPTI dropped 3 records: busy time and overlap are lower bounds" in recording.trace.info.notes
    assert recording.trace.info.ledger["lost_records"] == 3


def test_launches_into_a_graph_that_is_captured_are_not_missing(library):
    with recorded_with_warning("1 launch call without") as recording:
        launch(library, correlation=4)
        call(library, Runtime.cudaStreamBeginCapture_v10000)
        launch(library, correlation=5, kernel=False)
        launch(library, correlation=6, kernel=False, thread=12)  # as autograd does, which launches from a thread of its own
        launch(library, correlation=7)  # on a stream that is not captured
        call(library, Runtime.cudaStreamEndCapture_v10000)
        launch(library, correlation=8, kernel=False)
    notes = " ".join(recording.trace.info.notes)
    assert "2 launch calls went into CUDA graphs that were captured" in notes
    assert "1 launch call without" in notes
    assert sorted(rows(recording.trace, SpanKind.LAUNCH).correlation) == [4, 7, 8]


def test_calls_that_put_nothing_on_the_device_are_not_launches(library):
    with ss.record() as recording:
        launch(library, correlation=4)
        call(library, Runtime.cudaMemcpyAsync_v3020, correlation=5)  # of no bytes
        call(library, Runtime.cudaLaunchKernel_v7000, correlation=6, return_value=1)  # it failed
        call(library, Runtime.cudaMalloc_v3020, correlation=7)
    assert rows(recording.trace, SpanKind.API).name.tolist() == ["cudaMemcpyAsync", "cudaLaunchKernel", "cudaMalloc"]
    assert recording.trace.info.notes == ()


def test_copies_ranges_threads_and_loading_have_lanes_of_their_own(library):
    with ss.record() as recording:
        begin = library.now
        library.records.append(record(ActivityKind.MARKER, flags_=2, timestamp=begin, id=1, name=text(b"epoch"), thread=12))
        launch(library, correlation=4, thread=12)
        library.records.append(record(ActivityKind.MARKER, flags_=4, timestamp=library.now, id=1, thread=12))
        library.records.append(record(ActivityKind.OVERHEAD, overhead_kind=5 << 16, start=begin + 1, end=begin + 3, thread=11))
        library.records.append(record(ActivityKind.OVERHEAD, overhead_kind=1 << 16, start=begin + 1, end=begin + 2001, thread=11))
        library.records.append(
            record(ActivityKind.MEMCPY, start=library.now, end=library.now + 9, copy_kind=2, bytes=96, stream_id=7, correlation_id=4)
        )
    trace = recording.trace
    (named,) = rows(trace, SpanKind.RANGE).itertuples()
    assert (named.name, named.lane, named.end_ns - named.start_ns) == ("epoch", "thread 12 ranges", 100)
    assert rows(trace, SpanKind.COPY)[["name", "bytes"]].values.tolist() == [["copy to host", 96]]
    assert rows(trace, SpanKind.COMPILE)[["name", "lane"]].values.tolist() == [["load kernel", "thread 11"]]
    assert trace.info.ledger["cupti_itself_ns"] == 2000


def test_ranges_that_are_open_at_an_end_of_the_block_are_told(library):
    with ss.record() as recording:
        launch(library, correlation=4)
        library.records.append(record(ActivityKind.MARKER, flags_=4, timestamp=library.now, id=1, thread=12))
        library.records.append(record(ActivityKind.MARKER, flags_=2, timestamp=library.now, id=2, name=text(b"epoch"), thread=12))
    assert recording.trace.info.notes == ("2 NVTX ranges left out: begun before the block, or not ended in it",)


def test_waits_of_streams_for_events_join_the_kernels(library):
    def event(correlation, number, stream):
        call(library, Runtime.cudaEventRecord_v3020, correlation=correlation)
        library.records.append(record(ActivityKind.CUDA_EVENT, correlation_id=correlation, stream_id=stream, cuda_event_sync_id=number))

    def wait(correlation, number, stream):
        waited = {"correlation_id": correlation, "stream_id": stream, "cuda_event_sync_id": number}
        library.records.append(record(ActivityKind.SYNCHRONIZATION, type=2, start=library.now + 1, **waited))
        call(library, Runtime.cudaStreamWaitEvent_v3020, correlation=correlation)

    with ss.record() as recording:
        launch(library, correlation=1, stream=7)
        event(2, 40, 7)
        launch(library, correlation=3, stream=7)
        event(4, 41, 7)
        wait(5, 40, 9)  # for the first kernel, not for the second
        launch(library, correlation=6, stream=9)
        library.records.append(record(ActivityKind.SYNCHRONIZATION, type=3, correlation_id=7, stream_id=9))
        call(library, Runtime.cudaStreamSynchronize_v3020, correlation=7)
    spans, origins = recording.trace.spans, recording.trace.origins
    ((before, behind),) = origins.row_waits.tolist()
    assert (spans.correlation[before], spans.correlation[behind]) == (1, 6)
    assert (spans.kind[before], spans.kind[behind]) == (SpanKind.KERNEL, SpanKind.KERNEL)
    assert origins.complete
    assert rows(recording.trace, SpanKind.SYNC).name.tolist() == ["cudaStreamSynchronize stream 9"]


def test_all_gpus_are_kept_unless_one_is_asked_for(library):
    def work():
        launch(library, correlation=4, gpu=0)
        launch(library, correlation=5, gpu=1)
        launch(library, correlation=6, gpu=1, stream=9)

    with ss.record() as whole:
        work()
    with ss.record(gpu=0) as first:
        work()
    spans = whole.trace.spans
    assert (whole.trace.gpus, whole.trace.info.device.name) == ((0, 1), "GPU 0 and GPU 1")
    assert spans.lanes == ("thread 11", "GPU 0 stream 7", "GPU 1 stream 7", "GPU 1 stream 9")
    assert spans.gpus == (-1, 0, 1, 1)
    assert "2 GPUs: 0 and 1" in whole.trace.info.notes[0]
    assert len(rows(whole.trace.of_gpu(1), SpanKind.KERNEL)) == 2
    assert (len(rows(first.trace, SpanKind.KERNEL)), first.trace.info.device.name) == (1, "GPU 0")
    assert any("left out" in note for note in first.trace.info.notes)
    with ss.record(gpu=2) as third:
        work()
    with pytest.raises(RecordingError, match=r"nothing ran on GPU 2 .*work ran on GPU 0, GPU 1"):
        _ = third.trace


def test_a_graph_on_two_gpus_is_a_span_on_each(library):
    with ss.record() as recording:
        launch(library, correlation=5, node=(2 << 32) + 0, call=Runtime.cudaGraphLaunch_v10000)
        library.records.append(
            record(ActivityKind.MEMSET, start=library.now, end=library.now + 7, correlation_id=5, device_id=1, graph_node_id=(2 << 32) + 1)
        )
    graphs = rows(recording.trace, SpanKind.GRAPH)
    assert graphs.lane.tolist() == ["GPU 0 stream 7 graphs", "GPU 1 stream 0 graphs"]
    assert (graphs.end_ns - graphs.start_ns).tolist() == [60, 7]


def test_copies_between_gpus_say_from_which_to_which(library):
    with ss.record() as recording:
        launch(library, correlation=4)
        for at, (source, target) in enumerate([(1, 0), (1, 1), (0, 1)]):
            call(library, Runtime.cudaMemcpyAsync_v3020, correlation=5 + at)
            library.records.append(
                record(ActivityKind.MEMCPY2, start=library.now, end=library.now + 9, correlation_id=5 + at, device_id=source, stream_id=7,
                       copy_kind=10 if source != target else 8, bytes=64, src_device_id=source, dst_device_id=target)
            )  # fmt: skip
    peers, spans = recording.trace.peers, recording.trace.spans
    assert list(zip(spans.correlation[peers.span], peers.from_gpu, peers.to_gpu, strict=True)) == [(5, 1, 0), (7, 0, 1)]
    assert [spans.names[name] for name in spans.name[peers.span]] == ["copy between devices"] * 2
    assert spans.gpu[peers.span].tolist() == [1, 0]


def payload(*numbers):
    """Return the address of a copy of an NVTX payload, as CUPTI makes one: it is freed where it is read."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    content = np.array(numbers, np.uint64).tobytes()
    data, address = libc.malloc(len(content)), libc.malloc(24)
    ctypes.memmove(data, content, len(content))
    ctypes.memmove(address, np.array([1 << 24, len(content), data], np.uint64).tobytes(), 24)
    return address


@pytest.mark.parametrize(
    ("name", "kernel", "numbers", "kind", "nbytes", "communicator", "peer"),
    [
        (b"ncclAllReduce", b"ncclDevKernel_Generic_1", (0xABC, 4096, 0), "all_reduce", 4096, "abc", -1),
        (b"ncclAllReduce", b"ncclDevKernel_Generic_1", (4096, 0), "all_reduce", 0, "", -1),  # before NCCL 2.24
        (b"ncclReduceScatter", b"ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", (7, 512, 0), "reduce_scatter", 0, "7", -1),
        (b"ncclAllGather", b"ncclDevKernel_Generic_1", (7, 512), "all_gather", 0, "7", -1),
        (b"ncclSend", b"ncclDevKernel_SendRecv", (7, 512, 3), "send", 512, "7", 3),
        (b"ncclRecv", b"ncclDevKernel_SendRecv", (512, 3), "recv", 0, "", -1),
    ],
)
def test_the_payload_of_nccls_ranges_has_bytes_communicator_and_peer(library, name, kernel, numbers, kind, nbytes, communicator, peer):
    with ss.record() as recording:
        for one in (1, 2):  # of two GPUs, in a group
            start = record(ActivityKind.MARKER, flags_=2, timestamp=library.now, id=one, thread=11, name=text(name), domain=text(b"NCCL"))
            end = record(ActivityKind.MARKER, flags_=4, timestamp=library.now + 1, id=one, thread=11)
            more = record(ActivityKind.MARKER_DATA, id=one, payload_kind=6, payload=payload(*numbers))
            library.records += [start, more, end]
            library.now += 5
        launch(library, kernel, correlation=4, gpu=0)
        launch(library, kernel, correlation=5, gpu=1)
    found = recording.trace.collectives
    assert found.words("kind") == [kind] * 2
    assert found.nbytes.tolist() == [nbytes] * 2
    assert found.words("communicator") == [communicator] * 2
    assert found.peer.tolist() == [peer] * 2


def test_collectives_are_known_by_the_ranges_of_nccl_and_joined_across_gpus(library):
    nccl, all_reduce, number = text(b"NCCL"), text(b"ncclAllReduce"), iter(range(1, 99))

    def called(domain=nccl, name=all_reduce):
        one = next(number)
        for flag, more in ((2, {"name": name, "domain": domain}), (4, {})):
            library.records.append(record(ActivityKind.MARKER, flags_=flag, timestamp=library.now, id=one, thread=11, **more))
            library.now += 5

    with ss.record() as recording:
        called()
        called()
        launch(library, b"ncclDevKernel_Generic_1", correlation=4, gpu=0)
        launch(library, b"ncclDevKernel_Generic_1", correlation=5, gpu=1)
        launch(library, correlation=6, gpu=1)
        called(domain=text(b"mine"))  # no call of NCCL
        called(name=text(b"ncclGroupStart"))
        launch(library, b"ncclDevKernel_AllGather_RING_LL", correlation=7, gpu=0)
        launch(library, b"ncclDevKernel_AllGather_RING_LL", correlation=8, gpu=1)
    found, spans = recording.trace.collectives, recording.trace.spans
    assert spans.correlation[found.span].tolist() == [4, 5, 7, 8]
    assert found.words("kind") == ["all_reduce", "all_reduce", "all_gather", "all_gather"]
    assert found.instance[0] != found.instance[2]


def test_a_pause_is_cut_out_and_told(library):
    with ss.record() as recording:
        launch(library, correlation=5)
        call(library, Runtime.cudaEventRecord_v3020, correlation=6)
        recording.pause()
        assert (library.enabled, library.attached, repr(recording)) == ([], 0, "<recording 'recording': paused>")
        library.now += 7_000_000  # what runs here leaves no record
        recording.resume()
        assert len(library.enabled) == len(module.KINDS)
        launch(library, b"_Z4waxyPf", correlation=5, gpu=1)  # CUPTI counts anew
    trace = recording.trace
    kernels = rows(trace, SpanKind.KERNEL)
    assert kernels.name.tolist() == ["axpy", "waxy"]
    calls = rows(trace, SpanKind.LAUNCH)
    assert [trace.spans.correlation[row] for row in kernels.index] == calls.correlation.tolist()
    assert calls.correlation.nunique() == 2
    assert kernels.start_ns.tolist()[0] == 30
    assert (kernels.start_ns - calls.start_ns.tolist()).tolist() == [30, 30]
    assert calls.start_ns.tolist()[1] < 1_000
    assert trace.info.ledger["recorded_ns"] < 1_000
    assert trace.info.notes[0] == "cut out: 1 pause, 7.00 ms together, at 0.130 µs"


def test_counters_and_markers_lie_at_the_recordings_times_and_what_a_pause_says_is_gone(library, monkeypatch):
    host_ns = 10**15  # The host's clock is another one, and runs as quick.
    monkeypatch.setattr(counting.time, "perf_counter_ns", lambda: host_ns + library.now)
    loss, done = ss.counter("loss"), ss.counter("done")
    with ss.record() as recording:
        launch(library, correlation=5)
        first_ns = library.now - recording._start_ns
        loss.set(2.5)
        done.add(4)
        library.now += 500
        ss.marker("epoch 1")
        recording.pause()
        paused_ns = library.now
        loss.set(99)
        ss.marker("in the pause")
        library.now += 7_000_000
        recording.resume()
        loss.set(1.5)
        done.add(4)
    trace = recording.trace
    assert counting._hearing == ()
    found = trace.counters.to_pandas()
    assert found["name"].tolist() == ["loss", "done", "loss", "done"]
    assert found["value"].tolist() == [2.5, 4, 1.5, 8]
    assert found["time_ns"].tolist()[:2] == pytest.approx([first_ns] * 2, abs=20)
    assert paused_ns - recording._pieces[0].start_ns - 300 < found["time_ns"].tolist()[2] < 2_000
    assert trace.markers.names == ["epoch 1"]
    assert trace.markers.time_ns.tolist() == pytest.approx([first_ns + 500], abs=20)
    assert trace.markers.threads == [f"thread {threading.get_native_id()}"]


def test_nobody_listens_any_more_when_a_block_has_failed(library):
    with suppress(KeyError), ss.record() as recording:
        launch(library, correlation=5)
        ss.counter("loss").set(1)
        raise KeyError
    assert counting._hearing == ()
    assert recording.trace.counters.value.tolist() == [1.0]


def test_what_lasts_into_a_pause_ends_there(library):
    with ss.record() as recording:
        launch(library, correlation=5)
        library.records.append(
            record(ActivityKind.RUNTIME, cbid=10, start=library.now, end=library.now + 10**6, thread_id=12, correlation_id=7)
        )
        library.records.append(record(ActivityKind.MARKER, flags_=2, timestamp=library.now, id=1, name=text(b"epoch"), thread=12))
        library.now += 10
        recording.pause()
        paused_ns = library.now - recording._pieces[0].start_ns
        library.now += 10**6
        recording.resume()
        library.records.append(record(ActivityKind.MARKER, flags_=4, timestamp=library.now, id=1, thread=12))
        launch(library, correlation=5)
    (wait,) = rows(recording.trace, SpanKind.SYNC).itertuples()
    assert wait.end_ns <= paused_ns
    assert any("2 NVTX ranges left out" in note for note in recording.trace.info.notes)


def test_pauses_are_in_order(library):
    recording = ss.record("step")
    with pytest.raises(RecordingError, match=r"cannot pause: <recording 'step': not begun>"):
        recording.pause()
    with recording:
        launch(library, correlation=5)
        with pytest.raises(RecordingError, match="cannot resume"):
            recording.resume()
        recording.pause()
        with pytest.raises(RecordingError, match="cannot pause"):
            recording.pause()
    assert len(rows(recording.trace, SpanKind.KERNEL)) == 1  # it ended in the pause
    assert recording.trace.info.notes == ()
    with pytest.raises(RecordingError, match="cannot resume"):
        recording.resume()


def test_a_recording_that_cannot_go_on_keeps_what_it_has(library):
    recording = ss.record("step")

    def refused():
        with recording:
            launch(library, correlation=5)
            recording.pause()
            library.refusals["cuptiActivityRegisterCallbacks"] = 39
            recording.resume()

    with pytest.raises(RecordingError, match="another profiler"):
        refused()
    assert (library.enabled, len(rows(recording.trace, SpanKind.KERNEL))) == ([], 1)


def test_a_pause_that_fails_ends_the_recording(library):
    library.refusals["cuptiActivityFlushAll"] = 13
    with ss.record("step") as recording, pytest.raises(RecordingError, match="cuptiActivityFlushAll"):
        recording.pause()
    assert library.enabled == []
    with pytest.raises(RecordingError, match="'step' failed: CUPTI refused"):
        _ = recording.trace


@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt()])
def test_an_exception_goes_through_and_what_ran_is_there(library, error):
    recording = ss.record("step")

    def fail():
        with recording:
            launch(library, correlation=5)
            raise error

    with pytest.raises(type(error)) as raised:
        fail()
    assert raised.value is error
    assert library.enabled == []
    assert recording.trace.info.notes == (f"the block ended with {type(error).__name__}",)
    assert len(rows(recording.trace, SpanKind.KERNEL)) == 1
    with ss.record():
        assert library.enabled


def test_a_recording_is_read_when_it_has_ended_and_made_once(library):
    recording = ss.record("step")
    with recording:
        launch(library, correlation=5)
        assert repr(recording) == "<recording 'step': recording>"
        with pytest.raises(RecordingError, match="'step' has not ended"):
            _ = recording.trace
    assert repr(recording) == "<recording 'step': 2 spans>"
    with pytest.raises(RecordingError, match="was used before"), recording:
        pass


def test_a_block_without_work_says_so(library):
    with ss.record("step") as recording:
        pass
    with pytest.raises(RecordingError, match="nothing ran on a GPU"):
        _ = recording.trace


def test_recordings_are_not_nested_and_not_made_by_two_threads(library):
    refused = []

    def other():
        try:
            with ss.record():
                pass
        except RecordingError as error:
            refused.append(str(error))

    with ss.record() as recording:
        other()
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert len(library.enabled) == len(module.KINDS)
        launch(library, correlation=5)
    assert len(refused) == 2
    assert all("under way" in text for text in refused)
    assert len(rows(recording.trace, SpanKind.KERNEL)) == 1


def test_cupti_leaves_the_process_when_a_recording_has_ended(library):
    for _ in range(2):
        with ss.record():
            assert (library.attached, library.subscription.attached) == (1, True)
        assert (library.attached, library.subscription.attached) == (0, False)


def test_beside_another_subscriber_cupti_stays(library):
    library.refusals["cuptiSubscribe"] = 39
    with ss.record() as recording:
        launch(library, correlation=5)
    assert len(rows(recording.trace, SpanKind.KERNEL)) == 1
    assert library.subscription.attached
    assert library.left_out == set()  # The other profiler goes on with all calls.


def test_records_of_another_subscriber_are_taken_only_if_asked_for(library):
    library._subscriber = another = object()
    library._callbacks = theirs = (object(), object())
    with (
        pytest.raises(RecordingError, match="another subscriber"),
        library.subscription.recording(["CONCURRENT_KERNEL"], beside_others=False),
    ):
        pass
    assert (library._subscriber, library._callbacks, library.enabled) == (another, theirs, [])
    assert not library.subscription.attached
    library._subscriber = None
    with library.subscription.recording(["CONCURRENT_KERNEL"], beside_others=False) as found:
        pass
    assert len(found) == 1


def test_cupti_that_cannot_leave_is_at_least_unsubscribed(library):
    library.refusals["cuptiEnableCallback"] = 1
    for _ in range(2):
        with ss.record():
            assert library._subscriber is not None
        assert library._subscriber is None
        assert library.subscription.attached


def test_processes_that_are_started_later_do_not_load_cupti(library, monkeypatch):
    monkeypatch.delenv(subscribing.NVTX)
    monkeypatch.setattr(subscribing, "_loaded_path", lambda: "/lib/libcupti.so.13")
    with ss.record():
        assert os.environ[subscribing.NVTX] == "/lib/libcupti.so.13"
    assert subscribing.NVTX not in os.environ
    monkeypatch.setenv(subscribing.NVTX, "/another.so")
    with ss.record():
        pass
    assert os.environ[subscribing.NVTX] == "/another.so"


@pytest.mark.parametrize("where", ["_held", "_filled"])
def test_ctrl_c_while_cupti_asks_for_a_buffer_comes_when_cupti_has_returned(library, where):
    class Interrupting(dict):
        left = 2

        def __setitem__(self, key, value):
            super().__setitem__(key, value)
            if self.left:
                self.left -= 1
                raise KeyboardInterrupt

    recording = ss.record()

    def interrupted():
        with recording:
            setattr(library.subscription, where, Interrupting())
            launch(library, correlation=5)
            launch(library, correlation=6)
            recording.reached = "the buffer"
            with deferred():  # as in C
                library.cuptiActivityFlushAll(0)  # which CUPTI does by itself when a buffer is full
                recording.reached = "the end of the call"
            recording.reached = "the end"

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert recording.reached == "the end of the call"
    assert len(rows(recording.trace, SpanKind.KERNEL)) == 2
    assert library.enabled == []
    with ss.record():
        pass


def interrupted_at_the_entry(function, *arguments):
    """Call a function of ctypes' with Ctrl-C waiting to be noticed by the first Python code, which is what the function calls."""
    deque(map(operator.call, [interrupt_main, partial(function, *arguments)]), maxlen=0)  # All of it is C.
    partial(lambda: None)()  # Here it comes again: from Python 3.14 on not behind a call with keywords.


def test_ctrl_c_that_waits_as_cupti_calls_comes_when_cupti_has_returned(library):
    """Python could not catch it where it is noticed: before the first line of what CUPTI calls."""
    before = signal.getsignal(signal.SIGINT)
    kernel = record(ActivityKind.CONCURRENT_KERNEL, start=5, end=9, name=text(b"axpy"))
    buffer, size, most = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
    with ss.record() as recording:
        requested, completed = library._callbacks
        with pytest.raises(KeyboardInterrupt):
            interrupted_at_the_entry(requested, ctypes.byref(buffer), ctypes.byref(size), ctypes.byref(most))
        assert size.value == subscribing.BUFFER_BYTES
        ctypes.memmove(buffer.value, kernel, len(kernel))
        with pytest.raises(KeyboardInterrupt):
            interrupted_at_the_entry(completed, None, 0, buffer.value, size.value, len(kernel))
        launch(library, correlation=5)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert len(rows(recording.trace, SpanKind.KERNEL)) == 2
    assert signal.getsignal(signal.SIGINT) is before


def test_without_memory_for_a_buffer_cupti_gets_none(library, monkeypatch):
    def full():
        raise MemoryError

    monkeypatch.setattr(subscribing, "_buffer", full)
    library.subscription._spare.clear()
    buffer, size, most = ctypes.c_void_p(1), ctypes.c_size_t(1), ctypes.c_size_t(1)
    library.subscription._callbacks[0](ctypes.byref(buffer), ctypes.byref(size), ctypes.byref(most))
    assert (buffer.value, size.value, most.value) == (None, 0, 0)


def test_ctrl_c_while_a_recording_begins_leaves_nothing_enabled(library, monkeypatch):
    enable = library.cuptiActivityEnable
    monkeypatch.setattr(library, "cuptiActivityEnable", lambda kind: signal.raise_signal(signal.SIGINT) or enable(kind))
    with pytest.raises(KeyboardInterrupt), ss.record():
        pytest.fail("the block began")
    assert (library.enabled, library.attached) == ([], 0)


@pytest.mark.parametrize("refused", ["cuptiActivityRegisterCallbacks", f"cuptiActivityEnable {int(ActivityKind.RUNTIME)}"])
@pytest.mark.parametrize(
    ("status", "hint"), [(35, "NVreg_RestrictProfilingToAdminUsers"), (39, "another profiler"), (3, "streamscope doctor")]
)
def test_a_refusal_says_what_to_do_and_leaves_nothing_enabled(library, refused, status, hint):
    library.refusals[refused] = status
    with pytest.raises(RecordingError, match=rf"CUPTI_ERROR_{status}.*{hint}"), ss.record():
        pass
    assert library.enabled == []
    library.refusals.clear()
    with ss.record():
        assert library.enabled


def test_a_failure_at_the_end_leaves_nothing_enabled_and_does_not_hide_the_users_error(library):
    library.refusals["cuptiActivityFlushAll"] = 13
    with pytest.raises(RecordingError, match="cuptiActivityFlushAll"), ss.record():
        pass
    with pytest.raises(ValueError, match="mine") as raised, ss.record():
        raise ValueError("mine")
    assert "its recording failed" in raised.value.__notes__[0]
    assert library.enabled == []


def test_torchs_profiler_and_a_recording_do_not_share_cupti(library, monkeypatch):
    autograd = SimpleNamespace(_profiler_enabled=lambda: True)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(_C=SimpleNamespace(_autograd=autograd)))
    with pytest.raises(RecordingError, match="PyTorch's profiler is recording"), ss.record():
        pass
    autograd._profiler_enabled = lambda: False
    with ss.record():
        assert library.enabled


def test_another_profiler_that_takes_cupti_over_is_told(library, monkeypatch):
    monkeypatch.setattr(module, "_waited_for_gpus", lambda: (True, []))  # and the wait leaves no record
    with recorded_with_warning("another profiler took CUPTI over") as recording:
        launch(library, correlation=5)
    assert module.TAKEN_OVER in recording.trace.info.notes


def test_questions_to_cuda_are_not_recorded(library):
    with ss.record():
        left_out = set(library.left_out)
    assert left_out == {("runtime", int(Runtime.cudaGetDevice_v3020)), ("driver", int(Driver.cuDriverGetVersion))}
    assert subscribing.is_query("cuStreamGetCaptureInfo_v2")
    assert subscribing.is_query("cudaEventCreateWithFlags_v3020")
    assert not any(
        map(subscribing.is_query, ["cuModuleGetFunction", "cudaMalloc_v3020", "cudaEventRecord_v3020", "cudaStreamBeginCapture_v10000"])
    )


def test_without_a_gpu_it_says_where_to_record(monkeypatch):
    monkeypatch.setattr(subscribing, "has_driver", lambda: True)

    def get_timestamp():
        raise RuntimeError("CUDA driver is not found")

    subscribing.subscription.cache_clear()
    monkeypatch.setattr(module, "subscription", subscribing.subscription)
    monkeypatch.setitem(sys.modules, "cupti", SimpleNamespace(cupti=SimpleNamespace(__version__="13.0.1", get_timestamp=get_timestamp)))
    with pytest.raises(RecordingError, match=r"CUDA driver is not found.*record on a machine with an NVIDIA GPU.*ss\.read"), ss.record():
        pass
    subscribing.subscription.cache_clear()


def test_without_a_driver_it_does_not_say_that_a_package_is_missing(monkeypatch):
    subscribing.subscription.cache_clear()
    monkeypatch.setitem(sys.modules, "cupti", None)
    monkeypatch.setattr(subscribing, "has_driver", lambda: False)
    with pytest.raises(RecordingError, match=r"^there is no NVIDIA GPU here \(record on a machine with .*ss\.read"), ss.record():
        pass
    subscribing.subscription.cache_clear()


def test_without_cupti_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(subscribing, "has_driver", lambda: True)
    subscribing.subscription.cache_clear()
    monkeypatch.setitem(sys.modules, "cupti", None)
    with pytest.raises(RecordingError, match=r"cupti-python is not installed \(pip install 'cupti-python>="), ss.record():
        pass
    subscribing.subscription.cache_clear()


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"name": 3}, "name=3"),
        ({"name": ""}, "name=''"),
        ({"gpu": -1}, "gpu=-1"),
        ({"gpu": True}, "gpu=True"),
        ({"path": 5}, "an int cannot be a path"),
        ({"path": "step.json"}, r"path='step.json' must end with .parquet"),
    ],
)
def test_wrong_arguments_are_refused_at_once(arguments, match):
    with pytest.raises(RecordingError, match=match):
        ss.record(**arguments)
