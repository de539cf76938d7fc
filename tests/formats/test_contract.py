"""The contract of formats: every entry of the door keeps it, ours and those of packages that are installed here."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from tests.formats.databases import nsight, rocpd

import streamscope as ss
from streamscope.errors import OutputError, StreamscopeError
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
