"""Files that are something else than a trace, or a trace of something else: the error says what they are, and what to do."""

import gzip
import json

import pytest
from tests.formats.kineto_files import call, content, dumps, event, kernel

import streamscope as ss
from streamscope.errors import TraceError
from streamscope.formats.kineto import events as kineto_events


def refused(path, match):
    with pytest.raises(TraceError, match=match) as caught:
        ss.read(path)
    assert "damaged" not in str(caught.value)
    return caught.value.hint


def written(tmp_path, value):
    (tmp_path / "t.json").write_text(dumps(value), encoding="utf-8")
    return tmp_path / "t.json"


@pytest.mark.parametrize("records", [1, 10_000])
@pytest.mark.parametrize("packed", [False, True])
def test_rocprofv3s_json_says_which_format_to_write_whatever_its_size(repository, tmp_path, monkeypatch, records, packed):
    monkeypatch.setattr(kineto_events, "PIECE_BYTES", 1 << 12)
    monkeypatch.setattr(kineto_events, "MOST_PIECE_BYTES", 1 << 16)
    found = json.loads((repository / "tests" / "data" / "cases" / "rocprofv3.json").read_text())
    found["rocprofiler-sdk-tool"][0]["buffer_records"]["kernel_dispatch"] *= records
    data = json.dumps(found, indent=2).encode()
    (tmp_path / "t.json").write_bytes(gzip.compress(data) if packed else data)
    assert "--output-format rocpd" in refused(tmp_path / "t.json", "this is rocprofv3's JSON")


@pytest.mark.parametrize("schema", ["1.0.1", "1.1.1-chakra.0.0.4"])
@pytest.mark.parametrize("nodes", [1, 2000])
def test_an_execution_trace_of_pytorch_says_what_records_times(tmp_path, monkeypatch, schema, nodes):
    monkeypatch.setattr(kineto_events, "PIECE_BYTES", 1 << 12)
    monkeypatch.setattr(kineto_events, "MOST_PIECE_BYTES", 1 << 16)
    node = {"id": 2, "name": "aten::mm", "ctrl_deps": 1, "inputs": {"values": [[1, 2]], "shapes": [[2, 2]], "types": ["Tensor(float)"]}}
    found = {"schema": schema, "pid": 7, "time": "2026-11-26 09:00:00", "start_ts": 5, "nodes": [node] * nodes}
    assert "export_chrome_trace" in refused(written(tmp_path, found), "this is an execution trace of PyTorch")


def test_large_json_of_something_else_is_not_called_damaged(tmp_path, monkeypatch):
    monkeypatch.setattr(kineto_events, "PIECE_BYTES", 1 << 12)
    monkeypatch.setattr(kineto_events, "MOST_PIECE_BYTES", 1 << 16)
    refused(written(tmp_path, {"rows": [[1, 2, 3]] * 20_000}), "it is JSON, but has no 'traceEvents' in its first [0-9,]+ bytes")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("run-", "these can be read"),
        ("my-comparison.json", "these can be read"),
        ("-", "standard input is not read"),
        ("comparison.json", "ss.load_comparison reads the folder"),
        ("step.nsys-rep", "nsys export"),
    ],
)
def test_hints_by_names_are_of_whole_names_and_of_endings(tmp_path, name, hint):
    (tmp_path / "runs").mkdir()
    for content_of_file in (None, b"hello"):
        if content_of_file:
            (tmp_path / "runs" / name).write_bytes(content_of_file)
        with pytest.raises(TraceError) as caught:
            ss.read(tmp_path / "runs" / name)
        assert caught.value.hint.startswith(hint) or hint in caught.value.hint


def test_a_comparison_under_another_name_is_told_by_its_content(tmp_path):
    function, inputs = ss.workload("branches").build(length=2)
    runs = ss.compare(function, *inputs, engines="graph", device="simulated", progress=False)
    saved = runs.save(tmp_path / "saved") / "comparison.json"
    refused(saved.rename(tmp_path / "saved" / "my-comparison.json"), "it is a comparison, of several traces")


ACCELERATOR = [event("cpu_op", "op", 0, 5, tid=1), *[event("mtia_ccp_events", "matmul", each, each + 1) for each in range(3)]]
CASES = {
    "calls alone": ([call("cudaLaunchKernel", 0, 5, 1)], "it holds calls of the CUDA or HIP runtime, but no work of a GPU", "synchronize"),
    "ranges alone": ([event("cpu_op", "op", 0, 5)], "it holds no work of a GPU", "switch CUDA activities on"),
    "another accelerator": (ACCELERATOR, "but 3 events of category 'mtia_ccp_events': of another accelerator", "from_spans"),
    "its runtime": ([event("privateuse1_runtime", "launch", 0, 5)], "but 1 event of category 'privateuse1_runtime'", "from_spans"),
    "no category": ([event("", "op", 0, 5)], "but 1 event without a category: of another accelerator", "from_spans"),
    "begins and ends": ([{"ph": each, "cat": "kernel", "name": "k", "ts": 5} for each in "BE"], "but 1 event whose begin and end", "X"),
    "kernels without dur": (
        [call("cudaLaunchKernel", 0, 5, 1), *[kernel("k", each, each, 1) | {"dur": None} for each in range(4)]],
        "none of its 4 device spans has a time",
        "needs both ts and dur",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_file_without_work_of_a_gpu_says_what_it_has_instead(tmp_path, case):
    events, message, hint = CASES[case]
    assert hint in refused(written(tmp_path, content(events)), message)


def test_what_is_left_out_is_counted_whatever_its_phase(tmp_path):
    memory = {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": 5, "s": "t", "args": {"Bytes": 512}}
    counter = {"ph": "C", "cat": "gpu", "name": "GPU 0 utilization", "pid": 1, "ts": 5, "args": {"utilization": 0.5}}
    marks = [
        {"ph": "i", "cat": "", "name": "Record Window End", "pid": "", "tid": "", "ts": 9, "s": "g"},
        {"ph": "M", "name": "process_name"},
    ]
    flows = [{"ph": phase, "cat": "ac2g", "id": 1, "ts": 1} for phase in "stf"]
    other = [{"ph": "N", "name": "object", "ts": 1}, {"ph": "i", "cat": "note", "name": "mark", "ts": 2}, event("", "uncategorised", 0, 5)]
    events = [call("cudaLaunchKernel", 0, 2, 1), kernel("k", 5, 9, 1), *[memory] * 400, *[counter] * 7, *marks, *flows, *other]
    trace = ss.read(written(tmp_path, content(events)))
    assert trace.info.notes == (
        "left out: 400 events called '[memory]'",
        "left out: 1 event of phase 'N'",
        "left out: 1 event without a category",
    )
    assert (len(trace.counters), trace.markers.names) == (7, ["mark"])


@pytest.mark.parametrize("number", [2**64 - 1, 2**63, -1, 2**32 - 1])
@pytest.mark.parametrize("of", ["stream", "tid", "correlation", "context", "graph node id", "bytes"])
def test_numbers_of_64_bits_without_a_sign_are_read(tmp_path, number, of):
    odd = kernel("odd", 5, 9, 1)
    odd["args"] = {key: value for key, value in odd["args"].items() if (key, of) != ("stream", "tid")}
    (odd if of == "tid" else odd["args"])[of] = number
    trace = ss.read(written(tmp_path, content([call("cudaLaunchKernel", 0, 2, 1), odd, kernel("k", 9, 12, 2)])))
    assert ss.analysis.kernel_count(trace.spans) == 2
    if of in ("stream", "tid"):
        assert f"stream {number}" in trace.spans.lanes


def test_a_missing_file_may_be_one_whose_name_begins_so(tmp_path):
    for name in ("graph-0b1c.parquet", "graph-dual-5d2e.parquet", "graph-dual.html"):
        (tmp_path / name).touch()
    (tmp_path / "sync-1.parquet").mkdir()
    for meant, name in (("graph.parquet", "graph-0b1c.parquet"), ("graph-dual.parquet", "graph-dual-5d2e.parquet")):
        assert refused(tmp_path / meant, "there is no trace file") == f"did you mean {name}?"
    for unlike in ("sync.parquet", "graph.json", ".parquet", "no/graph.parquet"):
        assert refused(tmp_path / unlike, "there is no trace file").startswith("these can be read")
