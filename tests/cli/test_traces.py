"""``streamscope read`` and ``convert``: traces of any origin in a terminal."""

from __future__ import annotations

import gzip
import json
import re
import sys
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tests.cli.test_cli import check_refused

import streamscope as ss
from streamscope.analysis import summary
from streamscope.analysis.metrics import PROFILED
from streamscope.cli.main import main
from streamscope.formats.read import LARGE_FILE_BYTES
from streamscope.results import screen
from streamscope.trace import Allocation, Allocations, DeviceInfo, LaunchSites, Markers, Site, SpanBuilder, SpanKind, Trace, TraceInfo

KEYS = [
    "gpu", "span_us", "gpu_busy_us", "communication_us", "exposed_us", "hidden_us", "mean_exposed_us", "mean_hidden_us",
    "collective_wait_us", "collective_transfer_us",
    "waited_for_us", "bus_bandwidth", "busy_imbalance", "peer_copy_us", "copy_us", "idle_us", "overlap", "average_concurrency",
    "net_overlap_us",
    "kernel_count", "short_kernels", "late_kernels", "launch_latency_us", "launch_overhead_us", "queue_time_us", "api_time_us",
    "queue_full_us", "streams", "at_least", "warnings", "gpus", "links", "counters", "markers", "user_notes",
]  # fmt: skip


@pytest.fixture
def trace():
    builder = SpanBuilder(["thread 1", "stream 7", "stream 20"])
    builder.add(SpanKind.LAUNCH, "cudaLaunchKernel", "thread 1", 0, 3_000, correlation=1)
    builder.add(SpanKind.LAUNCH, "cudaLaunchKernel", "thread 1", 4_000, 6_000, correlation=2)
    builder.add(SpanKind.KERNEL, "gemm", "stream 7", 5_000, 25_000, correlation=1, symbol="sm90_gemm<64, 64>")
    builder.add(SpanKind.KERNEL, "[bold]relu[/bold]", "stream 20", 15_000, 30_000, correlation=2)
    return Trace(
        builder.build(), TraceInfo("kineto", "step", DeviceInfo("cuda", "NVIDIA H200"), "kineto", notes=("one GPU of two",), stretched=True)
    )


@pytest.fixture
def path(trace, tmp_path):
    return trace.to_parquet(tmp_path / "step.parquet")


def test_the_metrics_as_json(trace, path, capsys):
    assert main(["read", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [key for key in found if key in KEYS] == KEYS, "others are metrics of installed packages"
    assert found == summary(trace).to_dict() | {"memory": None}
    assert set(found["idle_us"]) == {"total", "host_wait", "launch", "kernel_wait", "other"}
    assert set(found["launch_latency_us"]) == {"median", "p95"}
    assert [stream["name"] for stream in found["streams"]] == ["stream 7", "stream 20"]
    assert found["warnings"] == [PROFILED, "one GPU of two"]
    assert (found["span_us"], found["gpu_busy_us"], found["overlap"]) == (30.0, 25.0, 0.4)  # 10 µs of 25 side by side


def test_several_gpus_stand_side_by_side_and_one_can_be_chosen(tmp_path, capsys):
    path = of_gpus(tmp_path / "two.json", gpu0=9, gpu1=5)
    assert main(["read", path]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "two · kineto · GPU 0 and GPU 1 · GPU 0 of 2, which has most work"
    assert [line.split()[:3] for line in lines if re.match(r"\d +\d", line)][:2] == [["0", "1", "9.00"], ["1", "1", "5.00"]]
    assert main(["read", path, "--gpu", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["gpu"], found["gpu_busy_us"], len(found["gpus"])) == (1, 5, 1)


def test_kernels_that_communicate_are_named_on_the_command_line(path, capsys):
    assert main(["read", str(path), "--json", "--communication", "g*", "--communication", "*ring*"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["communication_us"], found["exposed_us"]) == (20, 10)  # the gemm alone until the other kernel begins
    assert "no kernel is called '*ring*': this name adds nothing to communication" in found["warnings"]


def test_the_metrics_as_a_table(path, capsys):
    assert main(["read", str(path)]) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert lines[0] == "step · kineto · NVIDIA H200"
    assert [line.split() for line in lines if line.startswith("overlap")] == [["overlap", "40", "%"]]
    (row,) = (line.split() for line in lines if line.startswith("stream 20"))
    assert row[2:4] == ["1", "15.0"]
    assert lines[-2:] == [f"[1] {PROFILED}", "[2] one GPU of two"]
    assert captured.err == ""


@pytest.fixture
def with_sites(trace, tmp_path):
    """Return a file whose first kernel has a line and a module."""
    row = int((trace.spans.kind == SpanKind.KERNEL).argmax())
    sites = LaunchSites(np.array([row]), np.array([0]), (Site("forward", "model.py", 12, "Linear_0", defined=True),))
    return replace(trace, sites=sites).to_parquet(tmp_path / "sites.parquet")


def test_markers_are_counted(trace, tmp_path, capsys):
    marked = replace(trace, markers=Markers.of([(5, "epoch 1", ""), (9, "epoch 2", "")])).to_parquet(tmp_path / "marked.parquet")
    assert main(["read", str(marked)]) == 0
    assert "2 markers" in capsys.readouterr().out


def test_what_costs_most_stands_beside_the_metrics(with_sites, path, capsys):
    assert main(["read", str(with_sites)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "forward (model.py:12) costs most: 57 % of 35.0 µs on the GPU. --by line shows all of it." in said
    assert main(["read", str(path)]) == 0
    assert "--by" not in capsys.readouterr().out


def test_time_by_line_as_json(with_sites, capsys):
    assert main(["read", str(with_sites), "--by", "line", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == ss.analysis.by_code(ss.read(with_sites), "line").to_dict()
    assert found["rows"] == [
        {"name": "forward", "file": "model.py", "line": 12, "kernels": 1, "gpu_us": 20.0, "exposed_us": 0.0, "idle_us": 5.0,
         "share": 20 / 35},
        {"name": "unknown", "file": None, "line": None, "kernels": 1, "gpu_us": 15.0, "exposed_us": 0.0, "idle_us": 0.0, "share": 15 / 35},
    ]  # fmt: skip
    assert (found["by"], found["unattributed_us"], found["gpu_us"]) == ("line", 0.0, 35.0)


@pytest.mark.parametrize(
    ("by", "heads", "first"),
    [
        ("line", "function defined at kernels GPU, µs share", "forward model.py:12 1 20.0 57 %"),
        ("module", "module modules kernels GPU, µs share with inside, µs", "Linear_0 1 1 20.0 57 % 20.0"),
    ],
)
def test_time_by_line_as_a_table(with_sites, capsys, by, heads, first):
    assert main(["read", str(with_sites), "--by", by]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "step · NVIDIA H200"
    assert "costs most: 57 % of 35.0 µs on the GPU." in lines[1]
    assert lines[3] == f"{heads} exposed, µs idle caused, µs"
    assert lines[4] == f"{first} 0 5.00"
    assert lines[5].startswith("unknown")


def test_time_by_range_of_a_trace_without_ranges(path, capsys):
    assert main(["read", str(path), "--by", "range"]) == 0
    assert "names no range for any kernel" in capsys.readouterr().out


def test_time_by_anything_else_is_refused(path, capsys):
    assert main(["read", str(path), "--by", "file"]) == 2
    check_refused(capsys, "'file' is not one of module, line, range", "streamscope read --help")


@pytest.fixture
def with_memory(trace, tmp_path):
    rows = [
        Allocation(3 << 20, kind="before the recording"),
        Allocation(1 << 20, 5_000, 9_000, site=Site("forward", "model.py", 12), name="mm"),
    ]
    return Trace(trace.spans, trace.info, memory=Allocations.of(rows)).to_parquet(tmp_path / "memory.parquet")


def test_memory_stands_beside_the_metrics(with_memory, path, capsys):
    assert main(["read", str(with_memory), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["memory"]
    assert (found["peak_bytes"], found["at_us"], [row["bytes"] for row in found["held_by"]]) == (4 << 20, 5.0, [3 << 20, 1 << 20])
    assert main(["read", str(with_memory)]) == 0
    assert "The GPU holds at most 4.0 MiB, first at 5.00 µs; 75 % of it is held before the recording." in capsys.readouterr().out
    assert main(["read", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["memory"] is None


@pytest.mark.parametrize(("options", "row"), [((), "forward model.py:12 1 1.00 25 %"), (("--by", "range"), "mm 1 1.00 25 %")])
def test_memory_as_a_table(with_memory, path, capsys, options, row):
    assert main(["read", str(with_memory), "--memory", *options]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert row in lines
    assert "[1] To lower the peak by a tenth, 1 allocation would have to go: 1.0 MiB of forward (model.py:12)." in lines or options
    assert main(["read", str(path), "--memory"]) == 1
    check_refused(capsys, "tells nothing of memory", "profile_memory=True")


def test_every_format_that_is_written_is_read(trace, path, tmp_path, capsys):
    """From ours to Kineto, packed, and back: the numbers stay, notes do not."""
    wanted = summary(trace).to_dict() | {"warnings": [PROFILED], "memory": None}
    chain = [path, *(tmp_path / name for name in ("a.json", "b.json.gz", "c.parquet"))]
    for source, target in pairwise(chain):
        assert main(["convert", str(source), str(target)]) == 0
        assert capsys.readouterr().out == f"wrote {target}\n"
        assert main(["read", str(target), "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == wanted
    assert gzip.decompress(chain[2].read_bytes()).startswith(b'{"schemaVersion": 1')


def test_formats_for_others(trace, path, tmp_path):
    for name in ("t.pftrace", "t.perfetto-trace", "t.csv", "t.html", "t.md", "t.jsonl"):
        assert main(["convert", str(path), str(tmp_path / name)]) == 0
    assert (tmp_path / "t.pftrace").read_bytes() == trace.to_perfetto(tmp_path / "again.pftrace").read_bytes()
    assert (tmp_path / "t.csv").read_bytes() == trace.to_csv(tmp_path / "again.csv").read_bytes()
    assert (tmp_path / "t.html").read_bytes() == trace.report(tmp_path / "again.html").read_bytes()
    assert (tmp_path / "t.md").read_text(encoding="utf-8") == summary(trace).to_markdown()
    assert (tmp_path / "t.jsonl").read_text(encoding="utf-8") == ss.analysis.json_lines(trace)


@pytest.mark.parametrize("command", [("read",), ("convert",)])
@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "there is no trace file"), (b"PK\x03\x04", "its format is unknown"), (b'{"traceEvents": [', "broken.json")],
    ids=["missing", "zip", "truncated"],
)
def test_what_cannot_be_read_is_one_line(tmp_path, capsys, command, content, message):
    source = tmp_path / "broken.json"
    if content is not None:
        source.write_bytes(content)
    target = [str(tmp_path / "out.md")] if command == ("convert",) else []
    assert main([*command, str(source), *target]) == 1
    check_refused(capsys, message)
    assert not (tmp_path / "out.md").exists()


def test_a_trace_is_not_written_over_itself(trace, tmp_path, capsys):
    file = trace.to_kineto(tmp_path / "step.json")
    before = file.read_bytes()
    (tmp_path / "other.json").symlink_to(file)
    assert main(["convert", str(file), str(tmp_path / "other.json")]) == 1
    assert "it is the file that is read" in capsys.readouterr().err
    assert file.read_bytes() == before


def test_a_folder_says_which_of_its_files_can_be_read(trace, tmp_path, capsys):
    """`torch.profiler.tensorboard_trace_handler` fills a folder."""
    folder = tmp_path / "log"
    folder.mkdir()
    (folder / "a.json").write_text("{}")
    assert main(["read", str(folder)]) == 1
    assert f"{str(folder)!r} is a folder" in capsys.readouterr().err
    file = trace.to_kineto(folder / "host_1.2.pt.trace.json")
    assert main(["read", str(folder)]) == 1
    said = capsys.readouterr().err
    assert f"hint: name a file: {str(file)!r} is in it" in said
    assert "ranks" not in said
    assert main(["compare", str(file)]) == 1
    assert "is a trace, not captured code" in capsys.readouterr().err


@pytest.mark.parametrize("named", [".", "job"])
def test_a_folder_of_several_traces_says_what_reads_ranks(trace, tmp_path, capsys, named):
    job = tmp_path / "job"
    job.mkdir()
    for rank in range(2):
        trace.to_kineto(job / f"rank{rank}.json")
    assert main(["read", str(tmp_path / named)]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert f"rank0.json' is in it; of a job of several ranks, streamscope ranks or ss.read_ranks reads {str(job)!r}" in said


def test_standard_input_is_not_read(capsys):
    assert main(["read", "-"]) == 1
    assert "standard input is not read" in capsys.readouterr().err


def test_an_unknown_ending_is_told_before_anything_is_read(path, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("streamscope.formats.read.read", lambda *_: pytest.fail("it was read"))
    assert main(["convert", str(path), str(tmp_path / "t.xlsx")]) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert "its name ends with '.xlsx'" in first
    ours = [".json", ".json.gz", ".pftrace", ".perfetto-trace", ".parquet", ".jsonl", ".csv", ".html", ".pdf", ".md"]
    assert [ending for ending in re.findall(r"\.[\w.-]*\w", second) if ending in ours] == ours, "others are of installed packages"


@pytest.mark.parametrize("command", ["convert", "export"])
def test_the_help_lists_each_ending_that_can_be_written(tmp_path, capsys, monkeypatch, command):
    """And no other: those that the hint of a wrong one lists."""
    monkeypatch.setenv("COLUMNS", "300")
    assert main([command, "--help"]) == 0
    listed = next(line for line in capsys.readouterr().out.splitlines() if re.search(r" (Ends|Each ends) with ", line))
    assert main([command, str(tmp_path), str(tmp_path / "out.txt")]) == 1
    hint = capsys.readouterr().err.splitlines()[-1]
    endings = re.findall(r"\.[a-z][a-z.-]*[a-z]", hint)
    assert len(endings) > 5
    assert sorted(re.findall(r"\.[a-z][a-z.-]*[a-z]", listed)) == sorted(endings)


def test_a_gpu_is_a_whole_number(path, capsys):
    assert main(["read", str(path), "--gpu", "first"]) == 2
    assert "--gpu" in capsys.readouterr().err


def test_names_cannot_style_the_terminal(path, capsys):
    assert main(["read", str(path)]) == 0
    assert "\x1b" not in capsys.readouterr().out


@pytest.fixture
def graph_path(trace, tmp_path):
    """The same two kernels, side by side from the start and with half the launches' cost."""
    builder = SpanBuilder(["thread 1", "stream 7", "stream 20"])
    builder.add(SpanKind.GRAPH_LAUNCH, "cudaGraphLaunch", "thread 1", 0, 2_000, correlation=1)
    builder.add(SpanKind.KERNEL, "gemm", "stream 7", 3_000, 23_000, correlation=1)
    builder.add(SpanKind.KERNEL, "[bold]relu[/bold]", "stream 20", 3_000, 18_000, correlation=1)
    return Trace(builder.build(), replace(trace.info, program="graph", notes=())).to_parquet(tmp_path / "graph.parquet")


def test_two_traces_as_json(path, graph_path, capsys):
    assert main(["diff", str(path), str(graph_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == ss.diff(ss.read(path), ss.read(graph_path)).to_dict()
    assert found["difference_us"] == 23.0 - 30.0
    assert sum(part["difference_us"] for part in found["contributions"]) == pytest.approx(-7.0)


def of_gpus(path, **busy_us):
    """Write a trace of PyTorch's profiler with a kernel on each GPU, named by the GPU and its time: ``gpu0=5``."""
    events = []
    for number, (name, took_us) in enumerate(busy_us.items(), 1):
        gpu, times, arguments = int(name[-1]), {"ph": "X", "ts": 20 * number}, {"correlation": number}
        events.append({**times, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9, "dur": 2, "args": arguments})
        arguments = {**arguments, "device": gpu, "context": 1, "stream": 7}
        event = {"cat": "kernel", "name": f"kernel_{gpu}_{took_us}", "pid": gpu, "tid": 7, "dur": took_us, "args": arguments}
        events.append({**times, **event})
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return str(path)


@pytest.mark.parametrize(
    ("first", "second", "options", "compared"),
    [
        ({"gpu0": 9, "gpu1": 5}, {"gpu0": 6, "gpu1": 7}, [], "kernel_0_9 kernel_0_6"),
        ({"gpu0": 1, "gpu1": 5}, {"gpu0": 8, "gpu1": 7}, [], "kernel_1_5 kernel_1_7"),
        ({"gpu0": 9, "gpu1": 5}, {"gpu1": 6, "gpu2": 7}, [], "kernel_0_9 kernel_2_7"),
        ({"gpu0": 9, "gpu2": 5}, {"gpu1": 6, "gpu2": 7}, [], "kernel_2_5 kernel_2_7"),
        ({"gpu0": 9}, {"gpu1": 6}, [], "kernel_0_9 kernel_1_6"),
        ({"gpu0": 9, "gpu1": 5}, {"gpu0": 6, "gpu1": 7}, ["--gpu", "1"], "kernel_1_5 kernel_1_7"),
    ],
)
def test_one_gpu_is_compared_with_itself_where_both_files_have_it(tmp_path, capsys, first, second, options, compared):
    files = [of_gpus(tmp_path / f"{name}.json", **busy_us) for name, busy_us in (("a", first), ("b", second))]
    assert main(["diff", *files, *options]) == 0
    out = capsys.readouterr().out
    kernels = sorted(set(re.findall(r"kernel_\d_\d", out)))
    assert kernels == sorted(compared.split())
    numbers = [name.split("_")[1] for name in compared.split()]
    assert (f"GPU {numbers[0]} is compared with GPU {numbers[1]}" in out) == (numbers[0] != numbers[1])


def test_two_traces_as_tables(path, graph_path, capsys):
    assert main(["diff", str(path), str(graph_path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("step · kineto → graph · kineto\n")
    assert ss.diff(ss.read(path), ss.read(graph_path)).answer in out
    (span,) = (line.split() for line in out.splitlines() if line.startswith("span"))
    assert span == ["span", "30.0", "23.0", "−7.00"]
    assert "step: one GPU of two" in out


def test_a_long_name_leaves_room_for_the_numbers(trace, path, tmp_path, capsys, monkeypatch):
    """The sizes of terminals differ; the numbers of a row are what it is for."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    builder = SpanBuilder(["stream 7"])
    builder.add(SpanKind.KERNEL, "softmax<" + "64, " * 200, "stream 7", 0, 12_340)
    other = Trace(builder.build(), trace.info).to_parquet(tmp_path / "long.parquet")
    assert main(["diff", str(path), str(other)]) == 0
    printed = re.sub("\x1b\\[[0-9;]*m", "", capsys.readouterr().out)
    lines = [line for line in printed.splitlines() if line.startswith("softmax<64")]
    assert lines
    assert all(len(line) <= 80 and "…" in line and "12.3" in line for line in lines)


def test_either_file_may_be_the_broken_one(path, tmp_path, capsys):
    for files in ((path, tmp_path / "missing"), (tmp_path / "missing", path)):
        assert main(["diff", *map(str, files)]) == 1
        assert "there is no trace file" in capsys.readouterr().err


@pytest.fixture(scope="module")
def run_path(tmp_path_factory):
    """A run of ours under `sync`, which knows what depends on what."""
    function, inputs = ss.workload("branches").build()
    runs = ss.compare(function, *inputs, engines="sync", device="simulated", progress=False)
    return runs["sync"].trace.to_parquet(tmp_path_factory.mktemp("runs") / "sync.parquet")


WHAT_IFS = {
    ("--engine", "graph"): lambda trace: ss.what_if(trace, engine="graph"),
    ("--engine", "graph", "--streams", "2"): lambda trace: ss.what_if(trace, engine="graph", streams=2),
    ("--scale", "relu=0.5", "--scale", "mul*=2"): lambda trace: ss.what_if(trace).kernel("relu").scale(0.5).kernel("mul*").scale(2),
    ("--engine", "async", "--without", "relu"): lambda trace: ss.what_if(trace, engine="async").without("relu"),
    ("--measured-us", "400"): lambda trace: ss.what_if(trace, measured_us=400),
}


@pytest.mark.parametrize("options", WHAT_IFS, ids=" ".join)
def test_a_prediction_is_that_of_python(run_path, options, capsys):
    wanted = WHAT_IFS[options](ss.read(run_path))
    assert main(["what-if", str(run_path), *options, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == wanted.to_dict()
    assert {"engine", "streams", "before_us", "predicted_us", "speedup", "notes"} <= set(found)
    assert main(["what-if", str(run_path), *options]) == 0
    out = capsys.readouterr().out
    assert out.startswith(str(wanted).splitlines()[0])
    assert "predicted" in out


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--engine", "warp"), 2, "warp"),
        (("--streams", "0"), 2, "--streams"),
        (("--scale", "relu"), 2, "'relu' is not KERNEL=FACTOR"),
        (("--scale", "=2"), 2, "is not KERNEL=FACTOR"),
        (("--scale", "relu=two"), 2, "is not KERNEL=FACTOR"),
        (("--scale", "relu=-1"), 2, "'relu=-1' is out of range: a factor is above 0, and 1,000,000 at most"),
        (("--scale", "relu=1e400"), 2, "is out of range"),
        (("--scale", "relu=0"), 2, "is out of range"),
        (("--scale", "relu=99999999999999999999"), 2, "is out of range"),
        (("--scale", "gelu=2"), 1, "gelu"),
        (("--without", "gelu"), 1, "gelu"),
    ],
)
def test_what_cannot_be_supposed_is_one_line(run_path, options, code, message, capsys):
    assert main(["what-if", str(run_path), *options]) == code
    check_refused(capsys, message)


def test_kernels_of_one_short_name_are_told_apart_and_numbers_are_whole_at_80_columns(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    symbols = [
        f"void at::native::vectorized_elementwise_kernel<4, at::native::{name}<float>, int>(int)" for name in ("AddFunctor", "FillFunctor")
    ]
    paths = []
    for factor in (1, 2):
        builder = SpanBuilder(["stream 7"])
        for at in range(40):
            start_ns = 100_000 * at
            end_ns = start_ns + 10_000 * factor + 7 * at * factor
            builder.add(SpanKind.KERNEL, "vectorized_elementwise_kernel", "stream 7", start_ns, end_ns, symbol=symbols[at % 2])
        info = TraceInfo("kineto", f"step {factor}", DeviceInfo("cuda", "card"), "kineto")
        paths.append(Trace(builder.build(), info).to_parquet(tmp_path / f"{factor}.parquet"))
    assert main(["diff", *map(str, paths)]) == 0
    words = capsys.readouterr().out.split()
    assert {"AddFunctor", "FillFunctor"} <= set(words)
    (row,) = [row for row in ss.diff(*map(ss.read, paths)).rows if "AddFunctor" in row.called]
    assert {word for cell in row.cells()[1:] for word in cell.split()} <= set(words)
    assert row.name == symbols[0]
    assert main(["read", str(paths[0])]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "AddFunctor" in line]
    assert line.split()[:3] == ["20", "203", "10.1"]


def test_names_are_whole_where_there_is_no_terminal(capsys):
    path = Path(__file__).parents[1] / "data/kineto/resnet50_graph.json.gz"
    assert main(("read", str(path))) == 0
    printed = capsys.readouterr().out
    assert "…" not in printed
    assert all(kernel.name in printed for kernel in summary(ss.read(path)).kernels)


@pytest.mark.parametrize("command", [["read"], ["diff", "resnet50_eager"]])
def test_in_a_pipe_long_names_stand_behind_the_numbers(command, capsys):
    """A long name in front moved all numbers 180 columns to the right."""
    files = [str(Path(__file__).parents[1] / f"data/kineto/{name}.json.gz") for name in (*command[1:], "resnet50_graph")]
    assert main([command[0], *files]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(line == line.rstrip() for line in lines)
    (start,) = {line.index(word) for line in lines for word in ("nvjet", "cutlass", "sm80_xmma", "sm90_xmma") if f"  {word}" in line}
    (head,) = (line for line in lines if line.startswith("count"))
    assert head.split()[-1] in ("name", "kernel")
    assert head.index(head.split()[-1]) == start < 80


def test_in_a_terminal_each_command_says_what_it_does(trace, path, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(screen, "BETWEEN_DRAWINGS_S", 0.0)
    name = tmp_path / "[red]step.json"
    kineto = str(trace.to_kineto(name))
    for command, words in (
        (["read", kineto, "--json"], "measuring"),
        (["convert", kineto, str(tmp_path / "out.pftrace")], "writing out.pftrace"),
        (["diff", kineto, str(path), "--json"], "comparing"),
        (["what-if", kineto, "--engine", "graph", "--json"], "predicting"),
    ):
        assert main(command) == 0
        said = capsys.readouterr()
        shown = said.err.find(f"reading {name.name}")
        assert 0 <= shown < said.err.find(words), command
        assert words.partition(" ")[0] not in said.out


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_reading_says_how_many_bytes_it_has_read(trace, tmp_path, ending):
    file = trace.to_kineto(tmp_path / f"step.json{ending}")
    told = []
    assert len(ss.read(file, progress=lambda *said: told.append(said)).spans) == len(trace.spans)
    size = file.stat().st_size
    assert all(0 < done <= whole == size and what == f"reading {file.name}" for what, done, whole in told)
    assert told[-1][1:] == (size, size)


@pytest.mark.parametrize(("ending", "large"), [(".json", True), (".json.gz", True), (".parquet", True), (".json", False)])
def test_a_large_file_is_read_with_a_bar(trace, tmp_path, ending, large, monkeypatch):
    file = trace.to_parquet(tmp_path / f"step{ending}") if ending == ".parquet" else trace.to_kineto(tmp_path / f"step{ending}")
    assert file.stat().st_size < LARGE_FILE_BYTES
    drawn = []
    monkeypatch.setattr("streamscope.results.screen.progress_bar", lambda title: nullcontext(lambda *said: drawn.append((title, *said))))
    monkeypatch.setattr("streamscope.formats.read.LARGE_FILE_BYTES", file.stat().st_size - large)
    ss.read(file)
    assert {(title, what) for title, what, _, _ in drawn} == ({(f"reading {file.name}",) * 2} if large else set())
    drawn.clear()
    ss.read(file, progress=False)
    assert not drawn


@pytest.mark.parametrize("ending", [".json", ".json.gz", ".pftrace", ".parquet", ".csv", ".html", ".md", ".jsonl"])
def test_ctrl_c_leaves_no_half_file(path, tmp_path, ending, monkeypatch, capsys):
    """It comes as the file gets its name, when all of it has been written."""

    def interrupted(self, target):
        raise KeyboardInterrupt

    there = sorted(tmp_path.iterdir())
    monkeypatch.setattr(Path, "replace", interrupted)
    assert main(["convert", str(path), str(tmp_path / f"out{ending}")]) == 130
    assert sorted(tmp_path.iterdir()) == there
    assert "wrote" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "command", [["read", "{0}"], ["convert", "{0}", "{1}"], ["diff", "{0}", "{0}"], ["what-if", "{0}"]], ids=lambda each: each[0]
)
def test_each_command_reads_what_is_whole_of_a_damaged_file_where_it_is_asked_to(repository, tmp_path, capsys, command):
    file, out = repository / "tests" / "data" / "cases" / "truncated.json", tmp_path / "t.parquet"
    arguments = [each.format(file, out) for each in command]
    assert main(arguments) == 1
    assert "--damaged skip" in " ".join(capsys.readouterr().err.split())
    assert main([*arguments, "--damaged", "skip"]) == 0
    notes = ss.read(out).info.notes if out.exists() else [" ".join(capsys.readouterr().out.split())]
    assert any("left out: 1 event without an end" in note for note in notes)
    assert main([*arguments, "--damaged", "ignore"]) == 2


def test_notes_name_the_option_of_the_command_line_and_the_gpu_that_was_chosen(repository, capsys):
    path = repository / "tests" / "data" / "cases" / "merged_ranks.json"
    assert main(["read", str(path), "--gpu", "1"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("merged_ranks · kineto · GPU 1 of 2\n")
    assert "(--gpu chooses another)" in out
    assert "gpu=" not in out


def test_what_a_damaged_file_has_less_of_may_be_missing(repository, capsys):
    whole, damaged = (str(repository / "tests" / "data" / "cases" / f"{name}.json") for name in ("two_gpus", "truncated"))
    assert main(["read", damaged, "--damaged", "skip", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["at_least"] == ["gpu_busy_us", "kernel_count", "overlap"]
    assert main(["diff", whole, damaged, "--damaged", "skip"]) == 0
    assert "\ntruncated lacks records, so its metrics are lower bounds, and" in capsys.readouterr().out


def test_kernels_beyond_the_first_ten_are_counted(tmp_path, capsys):
    builder = SpanBuilder(["stream 7"])
    for at in range(12):
        builder.add(SpanKind.KERNEL, f"kernel {at}", "stream 7", 1_000 * at, 1_000 * at + 500)
    written = Trace(builder.build(), TraceInfo("kineto", "step", DeviceInfo("cuda", "NVIDIA H200"), "kineto")).to_parquet(
        tmp_path / "t.parquet"
    )
    assert main(["read", str(written)]) == 0
    assert "\nand 2 more kernels by name\n" in capsys.readouterr().out
    assert "And 2 more kernels by name" in summary(ss.read(written)).to_markdown()


def test_where_compare_writes_a_report_is_told(capsys):
    assert main(["compare", "branches", "--report", "x.html"]) == 2
    assert "hint: --out DIR writes" in capsys.readouterr().err
