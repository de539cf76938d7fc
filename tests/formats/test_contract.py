"""The contract of formats: every entry of the door keeps it, ours and those of packages that are installed here."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from tests.formats.databases import nsight, rocpd

import streamscope as ss
from streamscope.errors import OutputError, StreamscopeError, TraceError
from streamscope.trace import FORMATS, DeviceInfo, ReadOptions, SpanTable, Trace, TraceInfo

DATA = Path(__file__).parents[1] / "data"
SAMPLES = {
    "kineto": lambda path: path.write_bytes((DATA / "cases" / "two_gpus.json").read_bytes()),
    "nsight": nsight,
    "rocpd": rocpd,
    "xplane": lambda path: path.write_bytes((DATA / "xplane" / "kernels.xplane.pb").read_bytes()),
}
"""What writes a file of a format that has no writer, or that others write as well."""


READ = [name for name, entry in FORMATS.items() if entry.read]
WRITTEN = [name for name in READ if FORMATS[name].write]


@pytest.fixture(params=list(FORMATS))
def entry(request):
    return FORMATS[request.param]


def trace(kind="simulated"):
    spans = SpanTable.of(("launch", "a", "host", 0, 3_000, 0), ("kernel", "a", "main", 5_000, 25_000, 0))
    return Trace(spans, TraceInfo("async", "step", DeviceInfo(kind, "a model")))


def test_it_says_what_it_is(entry):
    assert FORMATS[entry.name] is entry
    assert entry.label
    assert entry.read or entry.write
    assert (entry.sniff is None) == (entry.read is None)
    assert all(suffix.startswith(".") and suffix == suffix.lower() for suffix in entry.suffixes)
    assert entry.recorder or not entry.stretches


def test_it_takes_no_file_of_something_else_for_its_own(entry):
    for start in (b"", b"\0" * 4096, b"hello", b"{", b'{"a": 1}', b"\x1f\x8b\x08", bytes(range(256)) * 16):
        assert not (entry.sniff and entry.sniff(start, None)), start


@pytest.mark.parametrize("entry", READ, indirect=True)
def test_it_knows_and_reads_its_own_files(entry, tmp_path):
    path = tmp_path / f"t{entry.suffixes[0]}"
    SAMPLES.get(entry.name, lambda path: entry.write(trace("cuda"), path))(path)
    assert entry.sniff(path.read_bytes()[:4096], path)
    assert not any(
        FORMATS[other].sniff(path.read_bytes()[:4096], path) for other in FORMATS if other != entry.name and FORMATS[other].sniff
    )
    found = ss.read(path)
    assert len(found.spans)
    if entry.recorder:
        assert (found.info.recorder, found.info.stretched) == (entry.recorder, entry.stretches)


@pytest.mark.parametrize("entry", READ, indirect=True)
def test_a_gpu_that_is_not_there_is_refused(entry, tmp_path):
    path = tmp_path / f"t{entry.suffixes[0]}"
    SAMPLES.get(entry.name, lambda path: entry.write(trace("cuda"), path))(path)
    with pytest.raises(TraceError, match="it holds no work of GPU 9") as refused:
        ss.read(path, gpu=9)
    assert refused.value.hint.startswith("it has work of GPU 0")


@pytest.mark.parametrize("entry", WRITTEN, indirect=True)
def test_one_gpu_is_read_of_several(entry, tmp_path):
    gpus = {f"GPU {gpu} main": gpu for gpu in range(3)}
    spans = SpanTable.of(*(("kernel", f"kernel_{gpu}", lane, 0, 9_000 + gpu) for lane, gpu in gpus.items()), gpus=gpus)
    path = entry.write(Trace(spans, TraceInfo("async", "step", DeviceInfo("cuda", "3 × a GPU"))), tmp_path / f"t{entry.suffixes[0]}")
    assert ss.read(path).gpus == (0, 1, 2)
    found = ss.read(path, gpu=2)
    assert (found.gpus, found.info.device.gpus) == ((2,), (0, 1, 2))
    assert [found.spans.names[name] for name in found.spans.name] == ["kernel_2"]
    assert "only GPU 2; left out: 2 device spans of GPU 0, GPU 1 (gpu= chooses another)" in found.info.notes
    assert str(ss.analysis.summary(found)).startswith("step · async · a GPU · GPU 2 of 3\n")


@pytest.mark.parametrize("entry", WRITTEN, indirect=True)
def test_it_keeps_that_times_are_simulated(entry, tmp_path):
    """A format of another package may refuse them."""
    for suffix in entry.suffixes:
        try:
            found = ss.read(entry.write(trace(), tmp_path / f"t{suffix}"))
        except OutputError:
            assert entry.name not in FORMATS.own
            continue
        assert found.info.device.simulated
        assert (found.info.engine, found.info.program) == ("async", "step")


@pytest.mark.parametrize("entry", READ, indirect=True)
def test_it_refuses_what_it_cannot_read_with_an_exception_and_nothing_else(entry, tmp_path):
    (tmp_path / "t").write_bytes(b"")
    with pytest.raises((StreamscopeError, ValueError, LookupError, TypeError, OSError)):
        entry.read(io.BufferedReader(io.BytesIO(b"")), ReadOptions(tmp_path / "t", "t"))
