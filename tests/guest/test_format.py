"""A format of another package: found, read, measured, shown and written like ours. `docs/doors.md` has the package's files."""

from __future__ import annotations

import io
import warnings
from dataclasses import replace

import numpy as np
import pytest

import streamscope as ss
from streamscope.cli.main import main
from streamscope.doors import GuestWarning
from streamscope.errors import OutputError, TraceError
from streamscope.trace import FORMATS, Format

LOG = "# steplog\ngemm,compute,0,20\ncopy in,copies,5.5,10\ngemm,compute,21,20\n"


@pytest.fixture
def path(guest, tmp_path):
    (tmp_path / "run.steplog").write_text(LOG)
    return tmp_path / "run.steplog"


def test_it_is_read_like_a_format_of_ours(path):
    trace = ss.read(path)
    assert trace.to_pandas()[["name", "lane", "start_ns", "end_ns"]].values.tolist() == [
        ["gemm", "compute", 0, 20_000],
        ["copy in", "copies", 5_500, 15_500],
        ["gemm", "compute", 21_000, 41_000],
    ]
    info = trace.info
    assert (info.program, info.engine, info.recorder, info.device.name) == ("run", "steplog", "steplog", "our accelerator")


def test_notebook_report_and_terminal_show_it_and_that_its_recorder_stretches(path, tmp_path, capsys):
    trace = ss.read(path)
    assert "a profiler stretched the recorded run" in " ".join(ss.analysis.summary(trace).warnings)
    for page in (trace._repr_html_(), trace.report(tmp_path / "run.md").read_text(encoding="utf-8")):
        assert "our accelerator" in page
        assert "profiler stretched the recorded run" in page
    assert main(["read", str(path)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("run · steplog · our accelerator")
    assert "a profiler stretched the recorded run" in shown


def test_the_warning_stays_in_a_copy_where_the_package_is_missing(path, tmp_path, monkeypatch):
    copy = ss.read(path).to_parquet(tmp_path / "run.parquet")
    monkeypatch.setattr(FORMATS, "_guests", {})
    assert ss.read(copy).info.profiled
    with pytest.raises(TraceError, match="its format is unknown") as caught:
        ss.read(path)
    assert "step log" not in caught.value.hint


def test_it_is_written_by_its_ending_and_named_where_a_file_is_refused(path, tmp_path):
    assert main(["convert", str(path), str(tmp_path / "again.steplog")]) == 0
    columns = ["name", "lane", "start_ns", "end_ns"]
    assert ss.read(tmp_path / "again.steplog").to_pandas()[columns].equals(ss.read(path).to_pandas()[columns])
    (tmp_path / "other").write_text("hello")
    with pytest.raises(TraceError) as caught:
        ss.read(tmp_path / "other")
    assert "step log (.steplog)" in caught.value.hint


def test_a_simulated_trace_does_not_become_a_measured_one(path, tmp_path):
    runs = ss.compare(lambda x: x + x, np.ones(4, np.float32), engines="async", device="simulated", progress=False)
    with pytest.raises(OutputError, match="these are simulated"):
        runs["async"].trace.save(tmp_path / "t.steplog")


def test_a_damaged_file_is_told_by_the_name_of_its_format(path):
    path.write_text(LOG + "no commas\n")
    with pytest.raises(TraceError, match=r"run\.steplog' \(step log \(\.steplog\)\) is damaged: "):
        ss.read(path)


ERRORS = (
    AttributeError("x"),
    ZeroDivisionError(),
    SystemError(),
    EOFError(),
    StopIteration(),
    RecursionError(),
    OSError("disk"),
    MemoryError(),
)


def a_format(read, sniff=lambda start, path: True, label="a guest"):
    return Format(name="guest", label=label, suffixes=(".guest",), sniff=sniff, read=read)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_whatever_a_reader_raises_is_an_error_of_ours(path, monkeypatch, error):
    def read(file, options):
        raise error

    monkeypatch.setattr(FORMATS, "_guests", {"guest": a_format(read)})
    with pytest.raises(TraceError, match=r"run\.steplog"):
        ss.read(path)


def test_a_reader_that_returns_no_trace_and_a_sniffer_that_fails_are_told(path, monkeypatch):
    formats = {
        "blind": a_format(lambda file, options: None, lambda start, path: 1 / 0),
        "empty": a_format(lambda file, options: None, lambda start, path: b"copies" in start, "nothing"),
    }
    monkeypatch.setattr(FORMATS, "_guests", formats)
    blind = pytest.warns(GuestWarning, match="^format 'blind' of the package 'steplog' is left out: ZeroDivisionError: division by zero")
    monkeypatch.setitem(FORMATS._packages, "blind", "steplog")
    with blind, pytest.raises(TraceError, match=r"\(nothing\) is damaged: its reader returned None, not a Trace"):
        ss.read(path)


def test_a_writer_that_fails_leaves_the_older_file(path, tmp_path, monkeypatch):
    def write(trace, path):
        assert path.name == "old.steplog"
        path.write_text("half")
        raise KeyError("lane")

    trace = ss.read(path)
    old = tmp_path / "old.steplog"
    old.write_text("old")
    monkeypatch.setitem(FORMATS._guests, "steplog", replace(FORMATS["steplog"], write=write))
    with pytest.raises(OutputError, match=r"cannot write .*old\.steplog: the format 'steplog' of the package 'steplog' fails: KeyError"):
        trace.save(old)
    assert old.read_text() == "old"
    assert sorted(each.name for each in tmp_path.iterdir() if each.is_file()) == ["old.steplog", "run.steplog"]


def test_the_terminal_warns_in_a_line(path, monkeypatch, capsys):
    blind = replace(FORMATS["steplog"], name="blind", sniff=lambda start, path: 1 / 0)
    monkeypatch.setattr(FORMATS, "_guests", {"blind": blind, **FORMATS.guests()})
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert main(["read", str(path)]) == 0
    assert capsys.readouterr().err.splitlines() == [
        "warning: format 'blind' of the package 'unknown' is left out: ZeroDivisionError: division by zero"
    ]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_error_of_the_callers_progress_is_passed_on(path, error):
    def progress(what, done, whole):
        raise error("stop")

    with pytest.raises(error, match=r"^stop$"):
        ss.read(path, progress=progress)


def test_the_file_is_a_whole_binary_file_with_progress(path, monkeypatch):
    seen = []

    def read(file, options):
        assert isinstance(file, io.BufferedReader)
        assert isinstance(file.raw, io.RawIOBase)
        seen.extend((file.readable(), file.seekable(), file.writable(), file.name, file.peek(1)[:1], file.readline(), file.tell()))
        file.seek(0, io.SEEK_END)
        size = file.tell()
        file.seek(0)
        seen.extend((size, len(file.read()), file.fileno() > 2))
        raise TraceError("enough")

    monkeypatch.setattr(FORMATS, "_guests", {"guest": a_format(read)})
    told = []
    with pytest.raises(TraceError, match="enough"):
        ss.read(path, progress=lambda what, done, whole: told.append((done, whole)))
    assert seen == [True, True, False, path, b"#", b"# steplog\n", 10, len(LOG), len(LOG), True]
    assert told[-1] == (len(LOG), len(LOG))
