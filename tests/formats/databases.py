"""Small databases as Nsight Systems and rocprofv3 write them: tables with the columns of real ones, and the step of `kineto_files`."""

from __future__ import annotations

import sqlite3
from contextlib import closing

PROCESS, THREAD = 4242, 4243
GLOBAL_PID = (1 << 56) | (PROCESS << 24)
BASE = 5_000_000_000


class Strings:
    """Texts with ids, from 1 on."""

    def __init__(self):
        self.ids = {}

    def __call__(self, text):
        return self.ids.setdefault(text, len(self.ids) + 1)


def made(path, tables):
    """Write tables: of each its columns, as in CREATE TABLE, and its rows as dicts."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for name, (columns, rows) in tables.items():
            connection.execute(f"CREATE TABLE {name} ({columns})")
            for row in rows:
                names = ", ".join(f'"{column}"' for column in row)
                connection.execute(f"INSERT INTO {name} ({names}) VALUES ({', '.join('?' * len(row))})", tuple(row.values()))
    return path


TIMES = "start INTEGER NOT NULL, end INTEGER NOT NULL"
PLACE = "deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL"
KERNEL = f"""{TIMES}, {PLACE}, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL,
    mangledName INTEGER, launchType INTEGER, cacheConfig INTEGER, registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL,
    gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL,
    staticSharedMemory INTEGER NOT NULL, graphNodeId INTEGER, sharedMemoryLimitConfig INTEGER"""
COPY = f"{TIMES}, {PLACE}, correlationId INTEGER, globalPid INTEGER, bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, graphNodeId INTEGER"
SET = f"{TIMES}, {PLACE}, correlationId INTEGER, globalPid INTEGER, value INTEGER NOT NULL, bytes INTEGER NOT NULL, graphNodeId INTEGER"
GRAPH = f"{TIMES}, {PLACE}, correlationId INTEGER, globalPid INTEGER, graphId INTEGER NOT NULL, graphExecId INTEGER NOT NULL"
CALL = (
    f"{TIMES}, eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL"
)
SYNC = f"{TIMES}, {PLACE}, correlationId INTEGER, globalPid INTEGER, syncType INTEGER NOT NULL, eventId INTEGER NOT NULL"
EVENT = f"{PLACE}, correlationId INTEGER, globalPid INTEGER, eventId INTEGER NOT NULL"
NVTX = """start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, category INTEGER, color INTEGER, text TEXT,
    globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER"""


def nsight(path, *, older=False, graph_as_a_whole=False, extra=()):
    """Write a step: a kernel, a copy that waits for it, a set, a graph of two nodes, a synchronisation and two ranges."""
    text = Strings()

    def device(start, end, stream, correlation, **others):
        place = {"deviceId": 0, "contextId": 1, "streamId": stream, "correlationId": correlation, "globalPid": GLOBAL_PID}
        return {"start": BASE + start, "end": BASE + end, **place, **others}

    def kernel(name, start, end, correlation, grid=(1, 1, 1), block=(32, 1, 1), **others):
        sizes = {
            f"{what}{axis}": size for what, three in (("grid", grid), ("block", block)) for axis, size in zip("XYZ", three, strict=True)
        }
        names = {"demangledName": text(name), "shortName": text(name.partition("(")[0])}
        return device(start, end, 7, correlation, **names, registersPerThread=32, staticSharedMemory=0, **sizes, **others)

    def call(name, start, end, correlation):
        return {"start": BASE + start, "end": BASE + end, "eventClass": 0, "globalTid": GLOBAL_PID | THREAD, "correlationId": correlation,
                "nameId": text(name), "returnValue": 0}  # fmt: skip

    def mark(start, end, kind=59, **others):
        ends = None if end is None else BASE + end
        return {"start": BASE + start, "end": ends, "eventType": kind, "globalTid": GLOBAL_PID | THREAD, **others}

    calls = [
        call("cudaLaunchKernel_v7000", 0, 3001, 11),
        call("cudaEventRecord_v3020", 3100, 3200, 12),
        call("cudaStreamWaitEvent_v3020", 3300, 3400, 13),
        call("cudaMemcpyAsync_v3020", 4000, 6000, 14),
        call("cudaMemsetAsync_v3020", 6000, 7000, 15),
        call("cudaMalloc_v3020", 7400, 7900, 16),
        call("cudaGraphLaunch_v10000", 8000, 11_000, 17),
        call("cudaStreamSynchronize_v3020", 11_000, 25_000, 18),
    ]
    nodes = [kernel("a_kernel", 20_000, 21_000, 17, graphNodeId=100), kernel("b_kernel", 21_000, 23_500, 17, graphNodeId=101)]
    whole = [device(20_000, 23_500, 7, 17, graphId=3, graphExecId=4)] if graph_as_a_whole else []
    kernels = [kernel("void ns::gemm<float>(float*)", 5000, 9999, 11, (2, 3, 4), (32, 2, 1)), *([] if graph_as_a_whole else nodes)]
    tables = {
        "CUPTI_ACTIVITY_KIND_KERNEL": (KERNEL, kernels),
        "CUPTI_ACTIVITY_KIND_MEMCPY": (COPY, [device(10_000, 12_000, 20, 14, bytes=4096, copyKind=1)]),
        "CUPTI_ACTIVITY_KIND_MEMSET": (SET, [device(12_500, 13_000, 7, 15, bytes=64, value=0)]),
        "CUPTI_ACTIVITY_KIND_RUNTIME": (CALL, calls),
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": (
            SYNC, [device(3350, 3350, 20, 13, syncType=2, eventId=86), device(11_100, 24_900, 7, 18, syncType=3, eventId=-1)],
        ),
        "CUPTI_ACTIVITY_KIND_CUDA_EVENT": (EVENT, [
            {"deviceId": 0, "contextId": 1, "streamId": 7, "correlationId": 12, "globalPid": GLOBAL_PID, "eventId": 86},
        ]),
        "NVTX_EVENTS": (NVTX, [
            mark(-2000, 90_000, text="step"), mark(-1000, 4000, textId=text("load")), mark(0, None, text="never ended"),
            mark(5, 6, kind=34, text="a mark"), mark(0, 0, kind=75, text="a domain"),
        ]),
        "TARGET_INFO_GPU": ("id INTEGER, name TEXT, totalMemory INTEGER, smCount INTEGER, cuDevice INTEGER",
                            [{"id": 3, "name": "NVIDIA H200", "totalMemory": 150109880320, "smCount": 132, "cuDevice": 0}]),
        "PROFILER_OVERHEAD": (f"{TIMES}, globalTid INTEGER, nameId INTEGER NOT NULL", [
            {"start": BASE + 100, "end": BASE + 1300, "nameId": text("CUPTI buffer request")},
        ]),
        "TARGET_INFO_SESSION_START_TIME": ("utcEpochNs INTEGER", [{"utcEpochNs": 1_763_000_000_000_000_000}]),
        "DIAGNOSTIC_EVENT": ("severity INTEGER, text TEXT", [{"text": "Not all CUDA events might have been collected."},
                                                            {"text": "Profiling has started."}]),
        "META_DATA_EXPORT": ("name TEXT, value TEXT", [{"name": "EXPORT_SCHEMA_VERSION", "value": "3.13.2"},
                                                         {"name": "EXPORT_HOST", "value": "x"}]),
    }  # fmt: skip
    if graph_as_a_whole:
        tables["CUPTI_ACTIVITY_KIND_GRAPH_TRACE"] = (GRAPH, whole)
    if older:  # before graphs, green contexts, events of synchronisation and demangled names in a column of their own
        for name in ("CUPTI_ACTIVITY_KIND_CUDA_EVENT", "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "TARGET_INFO_SESSION_START_TIME",
                     "PROFILER_OVERHEAD", "DIAGNOSTIC_EVENT", "META_DATA_EXPORT", "TARGET_INFO_GPU"):  # fmt: skip
            del tables[name]
        gone = ("graphNodeId", "greenContextId", "globalPid", "demangledName")
        for name, (columns, rows) in tables.items():
            kept = [column for column in columns.split(",") if column.split()[0] not in gone]
            tables[name] = (",".join(kept), [{key: value for key, value in row.items() if key not in gone} for row in rows])
        tables["CUPTI_ACTIVITY_KIND_RUNTIME"][1][:] = [row | {"globalTid": THREAD} for row in tables["CUPTI_ACTIVITY_KIND_RUNTIME"][1]]
    tables["StringIds"] = ("id INTEGER PRIMARY KEY, value TEXT NOT NULL", [{"id": one, "value": each} for each, one in text.ids.items()])
    for name, columns, rows in extra:
        tables[name] = (columns, rows)
    return made(path, tables)


def rocpd(path, *, stamps=False, guids=("_0a1b",)):
    """Write a kernel, a copy and a range; ``stamps`` as schemas from 4 on have them, one set of tables for each guid."""
    tables = {}
    for guid in guids:
        text, stamp, track = Strings(), Strings(), Strings()

        def row(start, end, event, stamp=stamp, track=track, **others):
            places = {name: others.pop(name) for name in ("tid", "agent_id", "queue_id", "stream_id") if name in others}
            if not stamps:
                return {"start": BASE + start, "end": BASE + end, "event_id": event, **places, **others}
            ids = {"start_id": stamp(BASE + start), "end_id": stamp(BASE + end), "track_id": track(tuple(places.items()))}
            return {**ids, "event_id": event, **others}

        times = ("start_id INTEGER, end_id INTEGER, track_id INTEGER" if stamps
                 else "start BIGINT, end BIGINT, tid INTEGER, agent_id INTEGER, queue_id INTEGER, stream_id INTEGER")  # fmt: skip
        size = [f"{what}_size_{axis}" for what in ("workgroup", "grid") for axis in "xyz"]
        kernel = row(
            5000, 9999, 1, tid=1, agent_id=5, queue_id=1, stream_id=2, kernel_id=9, **dict(zip(size, (64, 2, 1, 640, 5, 1), strict=True))
        )
        copies = [
            row(
                10_000, 12_000, 2, tid=1, stream_id=2, name_id=text("MEMORY_COPY_HOST_TO_DEVICE"), dst_agent_id=5, src_agent_id=4, size=4096
            )
        ]
        regions = [row(0, 3000, 3, tid=77, name_id=text("hipLaunchKernel")), row(4000, 6000, 4, tid=77, name_id=text("hipMemcpyAsync")),
                   row(-100, 13_000, 5, tid=77, name_id=text("my range")),
                   row(12_000, 14_000, 6, tid=77, name_id=text("hipDeviceSynchronize"))]  # fmt: skip
        api, marker = text("HIP_RUNTIME_API_EXT"), text("MARKER_CORE_RANGE_API")
        rows = [(1, 100, api), (2, 101, api), (3, 100, api), (4, 101, api), (5, 102, marker), (6, 103, api)]
        events = [{"id": one, "stack_id": stack, "category_id": category} for one, stack, category in rows]
        ends = "dst_agent_id INTEGER, src_agent_id INTEGER"
        agents = [{"id": 4, "type": "CPU", "type_index": 0, "name": "EPYC", "product_name": "AMD EPYC"},
                  {"id": 5, "type": "GPU", "type_index": 0, "name": "gfx942", "product_name": "AMD Instinct MI300X"}]  # fmt: skip
        here = {
            "kernel_dispatch": (f"{times}, event_id INTEGER, kernel_id INTEGER, {', '.join(size)}", [kernel]),
            "memory_copy": (f"{times}, event_id INTEGER, name_id INTEGER, {ends}, size INTEGER", copies),
            "region": (f"{times}, event_id INTEGER, name_id INTEGER", regions),
            "event": ("id INTEGER, stack_id INTEGER, category_id INTEGER", events),
            "info_agent": ("id INTEGER, type TEXT, type_index INTEGER, name TEXT, product_name TEXT", agents),
            "info_kernel_symbol": ("id INTEGER, kernel_name TEXT, display_name TEXT",
                                   [{"id": 9, "kernel_name": "_Z4gemmPf.kd", "display_name": "void ns::gemm<float>(float*)"}]),
            "metadata": ("tag TEXT, value TEXT", [{"tag": "schema_version", "value": "4" if stamps else "3"}]),
            "string": ("id INTEGER, string TEXT", [{"id": one, "string": each} for each, one in text.ids.items()]),
        }  # fmt: skip
        if stamps:
            here["timestamp"] = ("id INTEGER, value BIGINT", [{"id": one, "value": each} for each, one in stamp.ids.items()])
            here["track"] = ("id INTEGER, tid INTEGER, agent_id INTEGER, queue_id INTEGER, stream_id INTEGER",
                             [{"id": one, **dict(each)} for each, one in track.ids.items()])  # fmt: skip
        tables |= {f"rocpd_{name}{guid}": each for name, each in here.items()}
    return made(path, tables)
