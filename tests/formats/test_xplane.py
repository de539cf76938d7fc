"""XPlane files that JAX 0.11 recorded on an H100 (`tests/data/xplane`), against what JAX itself reads in them (`jax.json`)."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from math import prod
from pathlib import Path

import pytest

import streamscope as ss
from streamscope.errors import TraceError
from streamscope.trace import SpanKind
from streamscope.trace.joins import CALL_KINDS
from streamscope.trace.spans import DEVICE_KINDS

FOLDER = Path(__file__).parents[1] / "data" / "xplane"
JAX = json.loads((FOLDER / "jax.json").read_text(encoding="utf-8"))


@pytest.fixture(params=JAX)
def both(request):
    """Return the trace that is read, what JAX says of it, and its zero: the first call."""
    said = JAX[request.param]
    return ss.read(FOLDER / f"{request.param}.xplane.pb"), said, min(start for _, _, start, *_ in said["calls"])


def product(details, name):
    found = re.search(rf"{name}:([\d,]+)", details)
    return prod(map(int, found[1].split(","))) if found else 0


def test_all_work_is_there_to_the_nanosecond(both):
    trace, said, zero = both
    frame = trace.spans.of_kind(DEVICE_KINDS).to_pandas()
    lanes = frame["lane"].astype(str).str.replace(r" · \d+$", "", regex=True)
    columns = (frame[name] for name in ("start_ns", "end_ns", "graph_node", "blocks", "threads", "bytes"))
    assert Counter(zip(lanes, *columns, strict=True)) == Counter(
        (re.sub(r"Stream #(\d+).*", r"stream \1", line), start - zero, start - zero + length, node,
         product(details, "grid"), product(details, "block"), product(details, "size"))
        for line, _, start, length, _, node, details in said["work"]
    )  # fmt: skip
    kernels = trace.spans.of_kind([SpanKind.KERNEL])
    assert Counter(kernels.names[code] for code in kernels.symbol) == Counter(name for line, name, *_ in said["work"] if "Compute" in line)


def test_each_launch_is_joined_with_its_work(both):
    trace, said, zero = both
    launches = trace.spans.of_kind(CALL_KINDS)
    start_of = dict(zip(launches.correlation.tolist(), launches.start_ns.tolist(), strict=True))
    jax_start_of = {correlation: start - zero for _, _, start, _, correlation in said["calls"] if correlation >= 0}
    work = trace.spans.of_kind(DEVICE_KINDS)
    found = Counter((start, start_of[one]) for start, one in zip(work.start_ns.tolist(), work.correlation.tolist(), strict=True))
    assert found == Counter((start - zero, jax_start_of[one]) for _, _, start, _, one, *_ in said["work"])


def test_the_gpu_the_versions_and_the_profiler_are_named(both):
    trace, said, _ = both
    info = trace.info
    assert (info.device.kind, info.device.name) == ("cuda", said["device"])
    assert (info.device.details["multiprocessors"], info.device.details["memory_bytes"]) == (said["core_count"], said["memory_size"])
    assert (info.versions["jax"], info.versions["cuda_driver"]) == (said["jax"], "13000")
    assert (info.engine, info.recorder, info.profiled) == ("xplane", "xplane", True)
    assert info.created.startswith("2026-11-26T17:47:")


def test_a_command_buffer_is_a_graph_and_python_is_a_range():
    trace = ss.read(FOLDER / "graphs.xplane.pb")
    (graph,) = {trace.spans.names[code] for code in trace.spans.of_kind([SpanKind.GRAPH_LAUNCH]).name}
    assert graph == "cuGraphLaunch (CudaGraph:2)"
    ranges = trace.spans.of_kind([SpanKind.RANGE])
    assert {"train", "fetching", "PjitFunction(step)"} <= {ranges.names[code] for code in ranges.name}


def test_a_compressed_file_and_a_folder_of_tensorboard_are_found(tmp_path):
    folder = tmp_path / "plugins" / "profile" / "2026_11_26"
    folder.mkdir(parents=True)
    data = (FOLDER / "kernels.xplane.pb").read_bytes()
    (folder / "host.xplane.pb").write_bytes(data)
    for path in (folder, tmp_path):
        with pytest.raises(TraceError, match="is a folder") as caught:
            ss.read(path)
        assert "host.xplane.pb" in caught.value.hint
    (tmp_path / "packed").write_bytes(gzip.compress(data))
    assert len(ss.read(tmp_path / "packed").spans) == len(ss.read(FOLDER / "kernels.xplane.pb").spans)
    assert ss.read(folder / "host.xplane.pb").info.program == "host"


def message(*fields):
    """Return a message of fields: a number and a whole number, bytes or a text."""
    found = bytearray()
    for number, value in fields:
        if isinstance(value, int):
            found += varint(number << 3) + varint(value % 2**64)
        else:
            data = value.encode() if isinstance(value, str) else value
            found += varint(number << 3 | 2) + varint(len(data)) + data
    return bytes(found)


def varint(number):
    return bytes(number >> shift & 127 | (128 if number >> shift + 7 else 0) for shift in range(0, max(1, number.bit_length()), 7))


def space(*events, name="/device:GPU:0", line="Stream #7(Compute)"):
    """Return a file with one line of events, all called "k"."""
    called = message((1, 1), (2, message((1, 1), (2, "k"))))
    return message((1, message((2, name), (3, message((2, line), *((4, event) for event in events))), (4, called))))


KERNEL = message((1, 1), (2, 5_000_000), (3, 2_000_999))
REFUSED = {
    "no event": (space(), "it holds no work of a GPU"),
    "a TPU": (space(KERNEL, name="/device:TPU:0"), "it holds work of '/device:TPU:0', and none of a GPU"),
    "lines of modules alone": (space(KERNEL, line="XLA Modules"), "it holds no work of a GPU"),
    "a number for a message": (space(KERNEL) + b"\x08\x01", r"\(JAX's XPlane \(.xplane.pb\)\) is damaged: it has a number in the place"),
    "an endless number": (space(KERNEL) + b"\x0a" + b"\xff" * 20, "is damaged: a number has too many bytes"),
    "a group": (space(KERNEL) + b"\x0b", "is damaged: "),
    "a message that is cut": (space(KERNEL)[:-1], "is damaged: it ends in the middle of a message"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_is_told(tmp_path, case):
    data, match = REFUSED[case]
    (tmp_path / "t.xplane.pb").write_bytes(data)
    with pytest.raises(TraceError, match=match):
        ss.read(tmp_path / "t.xplane.pb")


def test_picoseconds_and_negative_offsets_become_whole_nanoseconds(tmp_path):
    (tmp_path / "t.xplane.pb").write_bytes(space(KERNEL, message((1, 1), (2, -1_500_000), (3, 1_000_000))))
    found = ss.read(tmp_path / "t.xplane.pb").to_pandas()
    assert found["start_ns"].tolist() == [0, 6_500]
    assert found["end_ns"].tolist() == [1_000, 8_500]
