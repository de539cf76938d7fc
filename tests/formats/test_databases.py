"""Databases of Nsight Systems and of rocprofv3, of older and newer schemas."""

import sqlite3
from contextlib import closing

import pytest
from tests.formats.databases import BASE, PROCESS, nsight, rocpd
from tests.formats.kineto_files import rows

from streamscope.analysis import summary
from streamscope.errors import TraceError
from streamscope.formats import database
from streamscope.formats.read import read
from streamscope.trace import BEFORE, HELD

HOST, RANGES, ONE, TWO = "thread 4243", "thread 4243 ranges", "stream 7", "stream 20"
STEP = [
    ("RANGE", "step", RANGES, -2000, 90_000, -1),
    ("RANGE", "load", RANGES, -1000, 4000, -1),
    ("LAUNCH", "cudaLaunchKernel", HOST, 0, 3001, 0),
    ("EVENT", "cudaEventRecord", HOST, 3100, 3200, -1),
    ("EVENT", "cudaStreamWaitEvent", HOST, 3300, 3400, -1),
    ("LAUNCH", "cudaMemcpyAsync", HOST, 4000, 6000, 1),
    ("KERNEL", "gemm", ONE, 5000, 9999, 0),
    ("LAUNCH", "cudaMemsetAsync", HOST, 6000, 7000, 2),
    ("API", "cudaMalloc", HOST, 7400, 7900, -1),
    ("GRAPH_LAUNCH", "cudaGraphLaunch", HOST, 8000, 11_000, 3),
    ("COPY", "Memcpy HtoD", TWO, 10_000, 12_000, 1),
    ("SYNC", "cudaStreamSynchronize stream 7", HOST, 11_000, 25_000, -1),
    ("SET", "Memset", ONE, 12_500, 13_000, 2),
    ("KERNEL", "a_kernel", ONE, 20_000, 21_000, 3),
    ("KERNEL", "b_kernel", ONE, 21_000, 23_500, 3),
]
COLUMNS = ("kind", "name", "lane", "start_ns", "end_ns", "correlation")
TOOK = "the profiler itself took 1.20 µs of host time within the span"
LOST = "Nsight Systems says: Not all CUDA events might have been collected."


def test_an_export_of_nsight(tmp_path):
    trace = read(nsight(tmp_path / "step.sqlite"))
    assert rows(trace, *COLUMNS) == STEP
    assert "gpu_busy_us" in summary(trace).at_least  # since Nsight says that records were lost
    kernels = [row for row in rows(trace, "kind", "symbol", "blocks", "threads", "graph_node", "bytes") if row[0] in ("KERNEL", "COPY")]
    assert kernels == [
        ("KERNEL", "void ns::gemm<float>(float*)", 24, 64, -1, 0),
        ("COPY", None, 0, 0, -1, 4096),
        ("KERNEL", "a_kernel", 1, 32, 100, 0),
        ("KERNEL", "b_kernel", 1, 32, 101, 0),
    ]
    info = trace.info
    assert (info.engine, info.program, info.recorder, info.device.name) == ("nsys", "step", "nsys", "NVIDIA H200")
    assert (info.device.details, info.created) == (
        {"multiprocessors": 132, "memory_bytes": 150109880320, "gpu": 0, "gpus": [0]},
        "2025-11-13T02:13:20+00:00",
    )
    assert (info.notes, info.versions) == ((LOST, TOOK), {"schema of Nsight Systems": "3.13.2"})


def test_a_copy_that_waited_for_an_event_knows_for_which_kernel(tmp_path):
    trace = read(nsight(tmp_path / "step.sqlite"))
    names = [trace.spans.names[code] for code in trace.spans.name]
    assert [(names[before], names[after]) for before, after in trace.origins.row_waits.tolist()] == [("gemm", "Memcpy HtoD")]
    assert not trace.origins.complete  # what waits inside of a graph is not said


def test_an_older_export_has_less_and_reads_the_same(tmp_path):
    trace = read(nsight(tmp_path / "step.sqlite", older=True))
    expected = [("SYNC", "cudaStreamSynchronize", *row[2:]) if row[0] == "SYNC" else row for row in STEP]
    assert [row[:5] for row in rows(trace, *COLUMNS)] == [row[:5] for row in expected]
    assert (trace.info.device.name, trace.info.notes, trace.info.created) == ("GPU 0", (), "")


def test_a_graph_that_was_recorded_as_a_whole_is_one_span_and_a_note(tmp_path):
    trace = read(nsight(tmp_path / "step.sqlite", graph_as_a_whole=True))
    assert ("GRAPH", "graph", "stream 7 graphs", 20_000, 23_500, 3) in rows(trace, *COLUMNS)
    assert not {"a_kernel", "b_kernel"} & {name for (name,) in rows(trace, "name")}
    assert trace.info.notes[0].startswith("1 graph launch recorded as a whole: the kernels inside are not in the file")


def test_two_processes_with_the_same_correlations_are_told_apart(tmp_path):
    path = nsight(tmp_path / "step.sqlite")
    with closing(sqlite3.connect(path)) as connection, connection:
        other = 1 << 24
        for table, column in (("KERNEL", "globalPid"), ("RUNTIME", "globalTid")):
            name = f"CUPTI_ACTIVITY_KIND_{table}"
            connection.execute(f"CREATE TABLE copied AS SELECT * FROM {name} WHERE correlationId = 11")
            connection.execute(f"UPDATE copied SET {column} = {column} + {other}, start = start + 30000, end = end + 30000")
            connection.execute(f"INSERT INTO {name} SELECT * FROM copied")
            connection.execute("DROP TABLE copied")
    lanes = {lane for kind, lane in rows(read(path), "kind", "lane") if kind == "KERNEL"}
    assert lanes == {"stream 7 (process 4242)", "stream 7 (process 4243)"}
    joined = [row for row in rows(read(path), "name", "start_ns", "correlation") if row[0] in ("cudaLaunchKernel", "gemm")]
    one, other = joined[0][2], joined[2][2]
    assert one != other
    assert joined == [("cudaLaunchKernel", 0, one), ("gemm", 5000, one), ("cudaLaunchKernel", 30_000, other), ("gemm", 35_000, other)]


@pytest.mark.parametrize("stamps", [False, True], ids=["schema 3", "schema 4"])
def test_a_file_of_rocprofv3(tmp_path, stamps):
    trace = read(rocpd(tmp_path / "7_results.db", stamps=stamps))
    assert rows(trace, *COLUMNS) == [
        ("RANGE", "my range", "thread 77 ranges", -100, 13_000, -1),
        ("LAUNCH", "hipLaunchKernel", "thread 77", 0, 3000, 100),
        ("LAUNCH", "hipMemcpyAsync", "thread 77", 4000, 6000, 101),
        ("KERNEL", "gemm", "stream 2", 5000, 9999, 100),
        ("COPY", "Memcpy HtoD", "stream 2", 10_000, 12_000, 101),
        ("SYNC", "hipDeviceSynchronize", "thread 77", 12_000, 14_000, -1),
    ]
    (kernel,) = [row for row in rows(trace, "kind", "symbol", "blocks", "threads") if row[0] == "KERNEL"]
    assert kernel == ("KERNEL", "void ns::gemm<float>(float*)", 10 * 3, 64 * 2)  # 5 rows of work-items in groups of 2
    info = trace.info
    assert (info.engine, info.program, info.device.kind, info.device.name) == ("rocpd", "7_results", "hip", "AMD Instinct MI300X")
    assert info.versions == {"rocpd schema_version": "4" if stamps else "3"}
    assert info.notes == ()
    assert trace.origins.complete


def test_a_file_of_several_processes_joins_each_with_its_own_calls(tmp_path):
    trace = read(rocpd(tmp_path / "t.db", guids=("_0a1b", "_0a1c")))
    launches = [row for row in rows(trace, "kind", "correlation") if row[0] in ("LAUNCH", "KERNEL")]
    assert len(launches) == 6
    assert len({correlation for _, correlation in launches}) == 4


def test_a_database_of_something_else_is_told(tmp_path):
    with closing(sqlite3.connect(tmp_path / "t.db")) as connection, connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    with pytest.raises(TraceError, match=r"t\.db.*neither of Nsight Systems nor of rocprofv3"):
        read(tmp_path / "t.db")


METRICS = "timestamp INTEGER, typeId INTEGER NOT NULL, metricId INTEGER NOT NULL, value INTEGER NOT NULL"
METRIC_NAMES = "typeId INTEGER NOT NULL, sourceId INTEGER, typeName TEXT, metricId INTEGER NOT NULL, metricName TEXT NOT NULL"


def with_metrics(path, values, names, columns=METRICS):
    """Add metrics of GPUs to an export: rows of time, type, metric and value; and of type, metric and name."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"CREATE TABLE GPU_METRICS ({columns})")
        connection.executemany("INSERT INTO GPU_METRICS VALUES (?, ?, ?, ?)", values)
        connection.execute(f"CREATE TABLE TARGET_INFO_GPU_METRICS ({METRIC_NAMES})")
        connection.executemany("INSERT INTO TARGET_INFO_GPU_METRICS VALUES (?, 0, 'GPU Metrics', ?, ?)", names)
    return path


def test_metrics_of_gpus_are_counters_and_marks_are_markers(tmp_path):
    kind = (7 << 40) | 3  # Of the machine's GPU 3, which is CUDA's 0 in this file.
    values = [(BASE + 500, kind, 1, 80), (BASE - 100, kind, 1, 20), (BASE + 500, kind, 2, 1980), (BASE + 700, kind, 9, 5)]
    path = with_metrics(nsight(tmp_path / "m.sqlite"), values, [(kind, 1, "SMs Active [Throughput %]"), (kind, 2, "GPC Clock [MHz]")])
    trace = read(path)
    assert trace.counters.to_pandas()[["time_ns", "name", "unit", "gpu", "value"]].to_numpy().tolist() == [
        [-100, "SMs Active", "Throughput %", 0, 20.0],
        [500, "SMs Active", "Throughput %", 0, 80.0],
        [500, "GPC Clock", "MHz", 0, 1980.0],
        [700, "metric 9", "", 0, 5.0],
    ]
    assert trace.markers.to_pandas().to_numpy().tolist() == [[5, "a mark", HOST]]
    assert rows(trace, "kind", "name", "lane", "start_ns", "end_ns", "correlation") == STEP


def test_metrics_that_cannot_be_read_are_told_and_the_rest_is_read(tmp_path, monkeypatch):
    path = with_metrics(
        nsight(tmp_path / "m.sqlite"), [(BASE, 3, 1, 0.5)], [], "timestamp INTEGER, typeId INTEGER, metricId INTEGER, value REAL"
    )
    trace = read(path)
    assert "left out: metrics of the GPUs: its column GPU_METRICS.value must hold whole numbers only" in trace.info.notes
    assert len(trace.counters) == 0
    many = with_metrics(nsight(tmp_path / "n.sqlite"), [(BASE + at, 3, 1, 5) for at in range(100)], [])
    monkeypatch.setattr(database, "MOST_ROWS", 50)
    trace = read(many)
    assert "left out: metrics of the GPUs: its table 'GPU_METRICS' has more than 50 rows" in trace.info.notes
    assert rows(trace, "kind", "name", "lane", "start_ns", "end_ns", "correlation") == STEP


MEMORY = """start INTEGER NOT NULL, globalPid INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL,
    address INTEGER NOT NULL, pc INTEGER, bytes INTEGER NOT NULL, memKind INTEGER NOT NULL, memoryOperationType INTEGER NOT NULL,
    name INTEGER, correlationId INTEGER, streamId INTEGER, localMemoryPoolAddress INTEGER, localMemoryPoolSize INTEGER"""


def memory_event(at, nbytes, address, *, kind=2, frees=0, pid=PROCESS, **more):
    """Return a row as Nsight Systems 2025 writes it; kind 1 is pinned, 2 device, 5 static memory."""
    given = {"memKind": kind, "memoryOperationType": frees, "globalPid": (1 << 56) | (pid << 24), "deviceId": 0, "contextId": 1}
    return {"start": BASE + at, "bytes": nbytes, "address": address, **given, **more}


def test_memory_that_was_taken_from_cuda_is_told_by_kind_and_range(tmp_path):
    events = [
        memory_event(7500, 1 << 20, 0x7F00, correlationId=16), memory_event(20_000, 1 << 20, 0x7F00, frees=1),
        memory_event(9000, 512, 0x8000, localMemoryPoolAddress=77, localMemoryPoolSize=1 << 25), memory_event(-50, 64, 0x9000, frees=1),
        memory_event(100, 4096, 0xA000, kind=1), memory_event(-3000, 8, 0xB000, kind=5, name=1),
    ]  # fmt: skip
    trace = read(nsight(tmp_path / "m.sqlite", extra=[("CUDA_GPU_MEMORY_USAGE_EVENTS", MEMORY, events)]))
    found = trace.memory.to_pandas()[["start_ns", "end_ns", "bytes", "gpu", "level", "kind"]].to_numpy().tolist()
    assert found == [
        [BEFORE, HELD, 1 << 25, 0, "reserved", "before the recording"],
        [BEFORE, -50, 64, 0, "reserved", "before the recording"],
        [-3000, HELD, 8, 0, "reserved", "CUDA static"],
        [100, HELD, 4096, -1, "reserved", "pinned"],
        [7500, 20_000, 1 << 20, 0, "reserved", "CUDA"],
        [9000, HELD, 512, 0, "allocated", "cudaMallocAsync"],
    ]
    names = dict(zip(trace.memory.bytes.tolist(), trace.memory.names, strict=True))
    assert names[1 << 20] == "step"  # The innermost range around the call with that correlation.
    assert names[8] == "cudaLaunchKernel_v7000"  # The first text of the file stands for that of a variable.
    assert rows(trace, "kind", "name", "lane", "start_ns", "end_ns", "correlation") == STEP


def test_addresses_of_two_processes_stay_apart(tmp_path):
    events = [memory_event(1, 5, 7), memory_event(2, 9, 7, pid=PROCESS + 1), memory_event(3, 5, 7, frees=1)]
    trace = read(nsight(tmp_path / "m.sqlite", extra=[("CUDA_GPU_MEMORY_USAGE_EVENTS", MEMORY, events)]))
    assert trace.memory.to_pandas()[["start_ns", "end_ns", "bytes"]].to_numpy().tolist() == [[1, 3, 5], [2, HELD, 9]]
    assert not any("memory" in note for note in trace.info.notes)


def test_memory_that_cannot_be_read_is_told(tmp_path):
    columns = "start INTEGER, bytes REAL, address INTEGER, memoryOperationType INTEGER"
    rows_ = [{"start": BASE, "bytes": 0.5, "address": 1, "memoryOperationType": 0}]
    trace = read(nsight(tmp_path / "m.sqlite", extra=[("CUDA_GPU_MEMORY_USAGE_EVENTS", columns, rows_)]))
    note = "left out: memory of the GPUs: its column CUDA_GPU_MEMORY_USAGE_EVENTS.bytes must hold whole numbers only"
    assert note in trace.info.notes
    assert len(trace.memory) == 0
