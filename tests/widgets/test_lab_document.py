"""What the server sends JupyterLab of a file."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import streamscope as ss
from streamscope.errors import TraceError
from streamscope_widgets.lab import document as lab
from streamscope_widgets.lab.handler import read_apart
from streamscope_widgets.payload import as_groups, encode, encode_paths

pytestmark = pytest.mark.usefixtures("bundle")


def run_apart(work):
    """Run a coroutine in a thread of its own: in this one, the browser of another test may keep a loop running."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def unpacked(data):
    length = int.from_bytes(data[:4], "little")
    assert (8 + length) % 8 == 0  # Typed arrays of the block begin at multiples of eight.
    return json.loads(data[8 : 8 + length]), data[8 + length :]


@pytest.fixture(scope="module")
def comparison():
    x = np.ones((2, 8, 8), np.float32)
    return ss.compare(lambda x, w: x @ w, *x, engines="async,graph", device="simulated", progress=False, name="<b>step</b>")


def test_a_trace(five_engines, tmp_path):
    trace = five_engines(20)["graph"]
    content, block = unpacked(lab.document(trace.to_parquet(tmp_path / "graph.parquet"), "graph.parquet"))
    expected = encode(as_groups([trace]))
    assert content["title"] == "step · graph · NVIDIA H200 · graph.parquet"
    assert content["finding"].startswith("The GPU is busy ")
    assert content["header"] == expected.header
    assert block == expected.block


def test_a_trace_of_another_profiler_comes_with_its_warnings(repository, tmp_path):
    whole = gzip.decompress((repository / "tests/data/kineto/streams_graph.json.gz").read_bytes())
    path = tmp_path / "streams_graph.json.gz"
    path.write_bytes(gzip.compress(whole.replace(b'"traceEvents": [', b'"traceEvents": [{"ph": "X", "cat": "mine"},', 1)))
    content, block = unpacked(lab.document(path, path.name))
    trace = ss.read(path)
    assert content["title"] == "streams_graph · kineto · NVIDIA H200 · streams_graph.json.gz"
    assert content["warnings"] == ["Left out: 1 event of category 'mine'"]
    assert content["header"] == encode(as_groups([trace])).header
    assert block == encode(as_groups([trace])).block


def test_a_comparison_comes_with_its_verdict(comparison, tmp_path):
    content, block = unpacked(lab.document(comparison.save(tmp_path) / "comparison.json", "comparison.json"))
    assert content["title"] == "<b>step</b> · simulated NVIDIA H200: all times are simulated"  # JupyterLab is given text.
    assert content["finding"] == comparison.verdict
    assert [group["label"] for group in content["header"]["groups"]] == ["async", "graph"]
    assert block == encode(as_groups(comparison.groups())).block


def test_the_end_of_a_trace_that_is_too_long_is_left_out_and_told(large_trace, tmp_path, monkeypatch):
    monkeypatch.setattr(lab, "MOST_SPANS", 1000)
    content, block = unpacked(lab.document(large_trace(4000).to_parquet(tmp_path / "long.parquet"), "long.parquet"))
    (group,) = content["header"]["groups"]
    assert group["count"] == 1000
    assert "3,000 of 4,000 spans left out" in group["remarks"]
    assert len(block) < 40_000


@pytest.mark.parametrize("name", ["broken.parquet", "comparison.json", "broken.pt.trace.json", "other.json.gz", "other.sqlite", "other.db"])
def test_what_is_not_ours_is_refused(tmp_path, name):
    (tmp_path / name).write_bytes(b"PAR1<img src=x onerror=alert(1)>")
    with pytest.raises(TraceError):
        lab.document(tmp_path / name, name)


def test_critical_paths_are_sent_when_they_are_asked_for(comparison, tmp_path):
    path = comparison.save(tmp_path) / "comparison.json"
    stamp = unpacked(lab.document(path, path.name))[0]["stamp"]
    content, block = unpacked(lab.answer(path, path.name, stamp))
    expected = encode_paths(as_groups(comparison.groups()))
    assert content["header"] == expected.header
    assert block == expected.block


def test_critical_paths_of_a_file_that_was_written_again_are_not_sent(five_engines, tmp_path, monkeypatch):
    traces, path = five_engines(20), tmp_path / "step.parquet"
    traces["graph"].to_parquet(path)
    stamp = unpacked(lab.answer(path, path.name))[0]["stamp"]
    traces["dual"].to_parquet(path)
    assert unpacked(lab.answer(path, path.name, stamp)) == ({"changed": True}, b"")
    assert unpacked(lab.answer(path, path.name))[0]["stamp"] != stamp

    def written_meanwhile(place):
        traces["async"].to_parquet(path)
        return ss.read(place)

    monkeypatch.setattr(lab, "read", written_meanwhile)
    stamp = unpacked(lab.answer(path, path.name))[0]["stamp"]
    monkeypatch.setattr(lab, "read", lambda place: (traces["dual"].to_parquet(path), ss.read(place))[1])
    assert unpacked(lab.answer(path, path.name, stamp)) == ({"changed": True}, b"")


def test_the_server_has_a_file_read_by_another_process(five_engines, tmp_path):
    path = five_engines(20)["graph"].to_parquet(tmp_path / "graph.parquet")
    assert run_apart(read_apart(path, "graph.parquet", "")) == lab.document(path, "graph.parquet")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    refused = unpacked(run_apart(read_apart(tmp_path / "broken.parquet", "broken.parquet", "")))[0]["refused"]
    assert refused.startswith("cannot read 'broken.parquet': ")
    assert str(tmp_path) not in refused


def test_two_files_are_read_at_one_time_and_what_ends_without_an_answer_is_an_error(monkeypatch):
    lock, now, most = threading.Lock(), [0], [0]
    two = threading.Barrier(2)

    def run(command, **_):
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        two.wait(30)
        with lock:
            now[0] -= 1
        return SimpleNamespace(returncode=-9, stdout=b"", stderr=b"")

    async def six():
        return await asyncio.gather(*(read_apart(Path("a"), "a.parquet", "") for _ in range(6)), return_exceptions=True)

    monkeypatch.setattr("subprocess.run", run)
    errors = run_apart(six())
    assert most == [2]
    assert {(error.status_code, error.log_message) for error in errors} == {(500, "reading a.parquet failed with code -9")}


def test_a_refusal_says_why():
    assert unpacked(lab.refusal("no <b>trace</b>")) == ({"refused": "no <b>trace</b>"}, b"")
