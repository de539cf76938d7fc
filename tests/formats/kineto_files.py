"""Small Kineto files for tests."""

from __future__ import annotations

import json
import re

from streamscope.trace import SpanKind


def us(time_ns):
    """Return a time in µs as Kineto writes it: with three decimals."""
    sign, time_ns = ("-", -time_ns) if time_ns < 0 else ("", time_ns)
    return f"@@{sign}{time_ns // 1000}.{time_ns % 1000:03d}@@"


def dumps(value, **options):
    """Return JSON; what `us` returned stands in it as a number with all its digits."""
    return re.sub(r'"@@(.*?)@@"', r"\1", json.dumps(value, **options))


def event(category, name, start_ns, end_ns, *, tid=7, pid=0, **args):
    args = {key.replace("_", " ") if key in ("graph_node_id", "graph_id") else key: value for key, value in args.items()}
    times = {"ts": us(start_ns), "dur": us(end_ns - start_ns)}
    return {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, **times, "args": args}


def call(name, start_ns, end_ns, correlation=None, *, tid=4242, category="cuda_runtime"):
    return event(category, name, start_ns, end_ns, tid=tid, pid=4242, **({} if correlation is None else {"correlation": correlation}))


def kernel(name, start_ns, end_ns, correlation, *, stream=7, device=0, **args):
    return event("kernel", name, start_ns, end_ns, tid=stream, pid=device, device=device, stream=stream, correlation=correlation, **args)


def content(events, **beside):
    properties = [{"id": 0, "name": "NVIDIA H200", "numSms": 132}, {"id": 1, "name": "NVIDIA H200 b", "numSms": 132}]
    return {"schemaVersion": 1, "deviceProperties": properties, "baseTimeNanoseconds": 1763000000000000000, **beside, "traceEvents": events}


def step(base_ns=5_000_000_000):
    """A launch, a copy, a set, a graph of two nodes, waits and ranges, with the times that `test_kineto_reading` names."""
    at = base_ns.__add__
    return [
        {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "ts": us(at(0)), "args": {"name": "python"}},
        event("user_annotation", "step", at(-2000), at(90_000), tid=4242, pid=4242),
        event("cpu_op", "aten::mm", at(-1000), at(4000), tid=4242, pid=4242, **{"External id": 5, "Input Dims": [[2, 2]]}),
        call("cudaLaunchKernel", at(0), at(3001), 11),
        {"ph": "s", "id": 11, "pid": 4242, "tid": 4242, "ts": us(at(0)), "cat": "ac2g", "name": "ac2g"},
        kernel("void ns::gemm<float>(float*)", at(5000), at(9999), 11, grid=[2, 3, 4], block=[32, 2, 1]),
        {"ph": "f", "id": 11, "pid": 0, "tid": 7, "ts": us(at(5000)), "cat": "ac2g", "name": "ac2g", "bp": "e"},
        call("cudaMemcpyAsync", at(4000), at(6000), 12),
        event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", at(10_000), at(12_000), device=0, stream=20, correlation=12, bytes=4096),
        call("cudaMemsetAsync", at(6000), at(7000), 13),
        event("gpu_memset", "Memset (Device)", at(12_500), at(13_000), device=0, stream=7, correlation=13, bytes=64),
        call("cudaEventRecord", at(7000), at(7400), 14),
        call("cudaMalloc", at(7400), at(7900), 15),
        call("cudaGraphLaunch", at(8000), at(11_000), 16),
        kernel("a_kernel", at(20_000), at(21_000), 16, graph_node_id=100, graph_id=3),
        kernel("b_kernel", at(21_000), at(23_500), 16, graph_node_id=101, graph_id=3),
        call("cudaDeviceSynchronize", at(11_000), at(25_000), 17),
        event("overhead", "Instrumentation", at(100), at(1300), tid=0, pid=-1),
        event("gpu_user_annotation", "step", at(5000), at(23_500)),
    ]


def rows(trace, *columns):
    """Return the spans of a trace as tuples of some columns, with texts for numbers that stand for texts."""
    spans = trace.spans
    texts = {"kind": [kind.name for kind in SpanKind], "name": spans.names, "lane": spans.lanes, "symbol": (*spans.names, None)}
    found = [[texts[column][value] for value in values] if column in texts else values for column in columns
             for values in [getattr(spans, column).tolist()]]  # fmt: skip
    return list(zip(*found, strict=True))
