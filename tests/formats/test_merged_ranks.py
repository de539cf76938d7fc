"""Ranks that were merged into one file: launches are joined with kernels of their own process, and nothing is guessed."""

import sqlite3
from contextlib import closing
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.formats.databases import GLOBAL_PID, PROCESS, THREAD, nsight
from tests.formats.kineto_files import call, content, dumps, event, kernel, rows

import streamscope as ss
from streamscope.formats.kineto import ranks as kineto_ranks
from streamscope.trace import SpanKind

CANNOT = "cannot be told, and launch latency is unknown: correlations stand twice in the file, as where files of several ranks were merged"


def written(tmp_path, events):
    (tmp_path / "t.json").write_text(dumps(content(list(events))), encoding="utf-8")
    return tmp_path / "t.json"


def rank(shift_ns=0, *, host=100, device_pid=0, device=0, count=5, latency_ns=10_000, first=1):
    """Return a rank's calls, every 20 µs, with a kernel of 5 µs each after so long, a range around and a synchronisation behind."""
    found = [
        event("user_annotation", "step", shift_ns, shift_ns + 20_000 * count + 50_000, tid=1, pid=host),
        call("cudaDeviceSynchronize", shift_ns + 20_000 * count, shift_ns + 20_000 * count + 30_000, first + count, tid=1) | {"pid": host},
    ]
    for row in range(count):
        at = shift_ns + 20_000 * row
        ran = kernel("k", at + latency_ns, at + latency_ns + 5000, first + row, device=device, context=1)
        found += [call("cudaLaunchKernel", at, at + 4000, first + row, tid=1) | {"pid": host}, ran | {"pid": device_pid}]
    return found


def measured(path, gpu):
    """Return the metrics of one GPU. They are the same where all GPUs of the file are read, if it names the process of each launch."""
    found = ss.analysis.summary(ss.read(path, gpu=gpu))
    of_all = next(each for each in ss.analysis.summary(ss.read(path)).each_gpu if each.gpu == gpu)
    names = ("kernel_count", "gpu_busy_us", "span_us", "idle", "overlap", "launch_latency", "queue_time", "api_time", "launch_overhead")
    if found.launch_latency:
        assert [getattr(found, name) for name in names] == [getattr(of_all, name) for name in names]
    latency = found.launch_latency
    return found.kernel_count, found.gpu_busy_us, found.span_us, found.overlap, latency and latency.median_us, latency and latency.p95_us


@pytest.mark.parametrize("name", ["merged_like_sglang", "merged_ranks"])
@pytest.mark.parametrize("gpu", [0, 1])
def test_each_rank_of_a_merged_file_is_measured_by_itself(repository, name, gpu):
    path = repository / "tests" / "data" / "cases" / f"{name}.json"
    assert measured(path, gpu) == (5, 25.0, 95.0, 0.0, 10.0, 10.0)
    trace = ss.read(path, gpu=gpu)
    assert trace.info.device.name == f"GPU {gpu}"
    assert "launch latency is unknown" not in " ".join(trace.info.notes)


@pytest.mark.parametrize(("gpu", "count", "busy_us", "span_us"), [(0, 5, 25.0, 95.0), (1, 6, 36.0, 116.0)])
def test_each_gpu_of_one_process_is_measured_by_itself(repository, gpu, count, busy_us, span_us):
    path = repository / "tests" / "data" / "cases" / "two_gpus.json"
    assert measured(path, gpu) == (count, busy_us, span_us, 0.0, 10.0, 10.0)
    trace = ss.read(path, gpu=gpu)
    assert trace.info.device.name == f"GPU {'AB'[gpu]}"
    (note,) = trace.info.notes
    assert note.startswith(f"only GPU {gpu}; left out: ")
    assert f"of GPU {1 - gpu}, and " in note


PIDS = {
    "before": ("rank{}_100", "rank{}_0"),
    "in brackets": ("[TP0{}] 100", "[TP0{}] 0"),
    "behind": ("100_rank{}", "0_rank{}"),
    "in words": ("100 (rank {})", "0 (rank {})"),
    "alone": ("{}", "{}"),
    "alone, as text": ("rank {}", "rank {}"),
}


@pytest.mark.parametrize("style", PIDS)
@pytest.mark.parametrize("shift_ns", [1000, 7000, 10_000_000])
def test_ranks_that_all_say_device_0_are_gpus_of_their_own(tmp_path, style, shift_ns):
    host, device = PIDS[style]
    ranks = [rank(shift_ns * number, host=host.format(number), device_pid=device.format(number)) for number in range(3)]
    path = written(tmp_path, chain(*ranks))
    for gpu in range(3):
        assert measured(path, gpu) == (5, 25.0, 130.0, 0.0, 10.0, 10.0)
    notes = ss.read(path, gpu=2).info.notes
    assert "several processes have a device of the same number: GPU 0 is device 0 of" in notes[0]
    assert notes[1] == (
        "only GPU 2; left out: 10 device spans of GPU 0, GPU 1, and 10 calls that launched them, "
        "and 4 calls and ranges of processes on other GPUs (gpu= chooses another)"
    )


def test_ranks_are_in_the_order_of_their_numbers(tmp_path):
    ranks = [rank(host=f"rank{number}_9", device_pid=f"rank{number}_0", count=1 + number) for number in (10, 9, 2)]
    path = written(tmp_path, chain(*ranks))
    assert [measured(path, gpu)[0] for gpu in range(3)] == [3, 10, 11]


def test_times_tell_ranks_apart_where_kernels_do_not_say_whose_they_are(tmp_path):
    """The second rank began when the first had run: its kernels are nobody else's, since correlations stand twice."""
    path = written(tmp_path, [*rank(host="a 100"), *rank(1_000_000, host="b 100", device_pid=1, device=1)])
    assert [measured(path, gpu) for gpu in (0, 1)] == [(5, 25.0, 130.0, 0.0, 10.0, 10.0)] * 2


@pytest.mark.parametrize(
    "events",
    [
        [*rank(host="a 100"), *rank(1000, host="b 100", device_pid=1, device=1)],  # at one time, on two devices
        [*rank(host="a 100"), *rank(1_000_000, host="b 100")],  # one after the other, on one device
        [*rank(host="a 100"), *rank(1000, host="b 100")],
        [*rank(host=100), *rank(1_000_000, host=100, device_pid=1, device=1)],  # nothing was changed
        [*rank(host=100), *rank(1000, host=100, device_pid=1, device=1)],
        [*rank(host=100), *rank(500_000, host=100)],
    ],
)
def test_what_cannot_be_told_is_said_and_no_latency_given(tmp_path, events):
    path = written(tmp_path, events)
    trace = ss.read(path)
    assert any(CANNOT in note for note in trace.info.notes)
    found = ss.analysis.summary(trace)
    assert (found.launch_latency, found.queue_time, found.launch_overhead) == (None, None, None)
    assert "launch_latency" not in str(found.to_dict()["launch_latency_us"])
    assert not any("launch call" in note and "without a kernel" in note for note in trace.info.notes)
    assert (trace.spans.correlation == -1).all()


def test_only_the_rank_that_cannot_be_told_has_no_latency(tmp_path):
    """The calls of a third rank are told apart by their numbers."""
    both = [*rank(host="a 1"), *rank(1000, host="b 1", device_pid=1, device=1)]
    path = written(tmp_path, [*both, *rank(2000, host="c 1", device_pid=2, device=2, first=1000)])
    assert measured(path, 2)[-2:] == (10.0, 10.0)
    assert measured(path, 0)[-2:] == (None, None)


def test_kernels_of_a_rank_whose_calls_are_missing_are_nobody_elses(tmp_path):
    kernels = [each for each in rank(1000, device_pid="rank1_0") if each["cat"] == "kernel"]
    path = written(tmp_path, [*rank(host="rank0_1", device_pid="rank0_0"), *kernels])
    assert measured(path, 0)[-2:] == (10.0, 10.0)
    assert measured(path, 1)[-2:] == (None, None)


def test_threads_of_two_processes_with_one_number_are_two(tmp_path):
    path = written(tmp_path, [*rank(host="a 100"), *rank(1000, host="b 100")])
    lanes = ss.read(path).spans.lanes
    assert [lane for lane in lanes if lane.startswith("thread")] == [
        "thread 1 (process a 100)", "thread 1 (process a 100) ranges", "thread 1 (process b 100)", "thread 1 (process b 100) ranges",
    ]  # fmt: skip


def test_processes_with_numbers_of_their_own_stay_joined(tmp_path):
    """One process launches on two GPUs, another one on the second; all correlations differ, as in a file of one profiler."""
    events = [*rank(host=1), *rank(0, host=1, device_pid=1, device=1, first=100), *rank(3000, host=2, device_pid=1, device=1, first=200)]
    path = written(tmp_path, events)
    assert measured(path, 0)[-2:] == (10.0, 10.0)
    trace = ss.read(path, gpu=1)
    calls = trace.spans.of_kind([SpanKind.LAUNCH])
    assert len(calls) + ss.analysis.kernel_count(trace.spans) >= 10


def test_a_call_of_the_driver_inside_of_one_of_the_runtime_is_one_with_it(tmp_path):
    inner = [call("cuLaunchKernel", 20_000 * row + 1000, 20_000 * row + 3000, row + 1, tid=1, category="cuda_driver") for row in range(5)]
    path = written(tmp_path, [*rank(host=4242), *inner])
    assert measured(path, 0)[-2:] == (10.0, 10.0)
    assert ss.read(path).info.notes == ()


def graphs(*, host="1", devices=(0, 1), pid="{}", node=True, shift_ns=0):
    """Return five launches of a graph, and 10 µs after each its nodes: three of 5 µs on each device."""
    found = []
    for row in range(5):
        at = shift_ns + 100_000 * row
        found.append(call("cudaGraphLaunch", at, at + 8000, row + 1, tid=1) | {"pid": host})
        for device in devices:
            for number in range(3):
                more = {"graph_node_id": 1 + number + 3 * device} if node else {}
                ran = kernel(
                    "k", at + 10_000 + 6000 * number, at + 15_000 + 6000 * number, row + 1, device=device, context=1 + device, **more
                )
                found.append(ran | {"pid": pid.format(device)})
    return found


@pytest.mark.parametrize("node", [True, False])
@pytest.mark.parametrize("gpu", [0, 1])
def test_a_graph_on_two_gpus_is_of_one_launch(tmp_path, gpu, node):
    path = written(tmp_path, graphs(node=node))
    assert measured(path, gpu) == (15, 75.0, 427.0, 0.0, 10.0, 10.0)
    assert not any("cannot be told" in note or "several processes" in note for note in ss.read(path, gpu=gpu).info.notes)


def test_graphs_on_two_gpus_of_each_rank(tmp_path):
    path = written(tmp_path, [*graphs(host="r0_1", pid="r0_{}"), *graphs(host="r1_1", pid="r1_{}", shift_ns=3000)])
    assert [measured(path, gpu)[-2:] for gpu in range(4)] == [(10.0, 10.0)] * 4


def test_graphs_of_merged_ranks_are_not_of_one_launch(tmp_path):
    path = written(tmp_path, [*graphs(devices=(0,)), *graphs(devices=(1,), shift_ns=20_000)])
    assert [measured(path, gpu)[-2:] for gpu in (0, 1)] == [(None, None)] * 2
    assert any(CANNOT in note for note in ss.read(path).info.notes)


MIXED = "work of several processes is on GPU 0: busy, idle and overlap there are of all of them together"


@pytest.mark.parametrize(
    "events",
    [
        [*rank(host="a 100"), *rank(1000, host="b 100")],  # a prefix of calls alone
        [*rank(host=100), *rank(500_000, host=100)],  # nothing was changed
        [*rank(host=100), *rank(1000, host=101, first=100)],  # processes of one device, each with numbers of its own
        [*graphs(host="a 1", devices=(0,)), *graphs(host="b 1", devices=(0,), shift_ns=3000)],
    ],
)
def test_times_of_several_processes_on_one_device_are_told_to_be_of_all(tmp_path, events):
    assert MIXED in ss.read(written(tmp_path, events)).info.notes


@pytest.mark.parametrize(
    "events",
    [
        rank(host=100),
        [*rank(host="a 100"), *rank(1000, host="b 100", device_pid=1, device=1)],
        [*rank(host="a 100", device_pid="a 0"), *rank(1000, host="b 100", device_pid="b 0")],
        graphs(devices=(0,), node=False),
        [each for each in rank() if each["cat"] == "kernel"],
        [each for each in graphs(devices=(0,), node=False) if each["cat"] == "kernel"],
    ],
)
def test_a_device_of_one_process_is_not(tmp_path, events):
    assert not any("all of them together" in note for note in ss.read(written(tmp_path, events)).info.notes)


@settings(max_examples=30, deadline=None)
@given(
    ranks=st.lists(st.tuples(st.integers(0, 400), st.integers(1, 6), st.integers(1, 8), st.integers(4, 40)), min_size=2, max_size=4),
    tagged=st.booleans(),
)
def test_no_latency_is_ever_of_another_rank(tmp_path_factory, ranks, tagged):
    """Whether ranks are told apart or not, a latency that is given is that of the rank, and so is all else."""
    events = []
    for number, (shift, first, count, latency) in enumerate(ranks):
        pids = (f"r{number}_9", f"r{number}_{number}") if tagged else (900 + number, number)
        events += rank(1000 * shift, host=pids[0], device_pid=pids[1], device=number, count=count, latency_ns=1000 * latency, first=first)
    path = written(tmp_path_factory.mktemp("ranks"), events)
    for number, (_, _, count, latency) in enumerate(ranks):
        found = ss.analysis.summary(ss.read(path, gpu=number))
        assert (found.kernel_count, found.gpu_busy_us) == (count, 5.0 * count)
        assert tagged <= (found.launch_latency is not None)
        if found.launch_latency is not None:
            assert (found.launch_latency.median_us, found.launch_latency.p95_us) == (latency, latency)


def test_very_many_processes_are_not_compared_with_each_other(tmp_path, monkeypatch):
    monkeypatch.setattr(kineto_ranks, "_MOST_PROCESSES", 5)
    ranks = [rank(1000 * number, host=f"r{number}_1", device_pid=f"r{number}_{number}", device=number) for number in range(6)]
    assert any(CANNOT in note for note in ss.read(written(tmp_path, chain(*ranks))).info.notes)


@pytest.mark.parametrize("visible", [False, True])
def test_processes_of_a_database_that_worked_on_other_gpus_are_left_out(tmp_path, visible):
    """Each process of a report counts its own correlations: a second one on GPU 1, half a second later, or on the one that it calls 0."""
    gpus = [{"gpuId": gpu, "cudaId": 0 if visible else gpu, "pid": PROCESS + gpu} for gpu in (0, 1)]
    extra = [("TARGET_INFO_CUDA_DEVICE", "gpuId INTEGER, cudaId INTEGER, pid INTEGER", gpus)]
    path = nsight(tmp_path / "t.sqlite", extra=extra)
    alone = rows(ss.read(path), "kind", "name", "lane", "start_ns", "end_ns")
    with closing(sqlite3.connect(path)) as connection, connection:
        for table in ("KERNEL", "MEMCPY", "MEMSET", "RUNTIME", "SYNCHRONIZATION"):
            name = f"CUPTI_ACTIVITY_KIND_{table}"
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({name})")]
            later = {"start": "start + 500000000", "end": "end + 500000000", "deviceId": "0" if visible else "1",
                     "globalPid": str(GLOBAL_PID + (1 << 24)), "globalTid": str((GLOBAL_PID + (1 << 24)) | THREAD)}  # fmt: skip
            connection.execute(f"INSERT INTO {name} SELECT {', '.join(later.get(column, column) for column in columns)} FROM {name}")
    assert rows(ss.read(path, gpu=0), "kind", "name", "lane", "start_ns", "end_ns") == alone
    other = ss.analysis.summary(ss.read(path, gpu=1))
    assert other.launch_latency == ss.analysis.summary(ss.read(path, gpu=0)).launch_latency
