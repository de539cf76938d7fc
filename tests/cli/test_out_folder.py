"""``compare --out DIR``: a comparison of ours there is replaced, as one; files of somebody else's stay as they are."""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path

import pytest
from tests.cli.test_cli import check_refused

from streamscope.cli.main import main
from streamscope.comparing import compare as comparing
from streamscope.comparing.comparison import load_comparison
from streamscope.comparing.comparison_folder import REPORT_MARK
from streamscope.trace.file_checks import with_digest

CHAIN = ("compare", "elementwise-chain", "--set", "length=6", "--set", "size=64", "--device", "simulated", "--engines", "sync")


def files_in(folder):
    """Return what a folder holds, by name; None for what is no file."""
    return {path.name: path.read_bytes() if path.is_file() else None for path in folder.iterdir()}


def unread(path):
    """Return the status of a path without its time of access, which following a link changes."""
    status = os.lstat(path)
    return {name: getattr(status, name) for name in dir(status) if name.startswith("st_") and not name.startswith("st_atime")}


def refused(folder, capsys, message, code=1):
    """Run a comparison that must not write anything, and check what it says."""
    before = None
    with suppress(OSError):
        before = files_in(folder)
    assert main((*CHAIN, "--out", str(folder))) == code
    check_refused(capsys, message)
    assert before is None or files_in(folder) == before


@pytest.fixture
def unrun(monkeypatch):
    """Let no comparison begin."""
    monkeypatch.setattr(comparing, "compare", lambda *_, **__: pytest.fail("it ran"))


THEIRS = {
    "report.html": ["<html><body>my report of the year</body></html>", ""],
    "comparison.json": ["not json", "[]", "3", "", "[" * 100_000, '{"engines": 3}', '{"engines": ["data"]}', '{"workload": "cnn"}', "\xff"],
}


@pytest.mark.usefixtures("unrun")
@pytest.mark.parametrize(("name", "content"), [(name, content) for name, contents in THEIRS.items() for content in contents])
def test_a_file_of_yours_stays(tmp_path, capsys, name, content):
    (tmp_path / "data.parquet").write_text("mine")
    (tmp_path / name).write_text(content, encoding="latin-1")
    refused(tmp_path, capsys, f"cannot write {tmp_path / name}: the one there is not ours")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"verdict": "another"}, "its digest does not match: it was changed after it was written"),
        ({"schema": 99}, "it has schema 99, and this Streamscope reads schema 3: upgrade streamscope"),
    ],
)
def test_why_a_comparison_cannot_be_replaced_is_told(tmp_path, capsys, change, reason):
    assert main((*CHAIN, "--out", str(tmp_path))) == 0
    capsys.readouterr()
    path = tmp_path / "comparison.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | change), encoding="utf-8")
    refused(tmp_path, capsys, reason)


@pytest.mark.usefixtures("unrun")
@pytest.mark.parametrize(
    "content", [{"engines": {}}, {"workload": 1, "device": 1, "engines": 1, "makespans_ns": 1, "verdict": 1, "traces": []}]
)
def test_what_another_json_lacks_is_told(tmp_path, capsys, content):
    (tmp_path / "comparison.json").write_text(json.dumps(with_digest(content)), encoding="utf-8")
    refused(
        tmp_path, capsys, "its traces are a list" if "traces" in content else "it lacks device, makespans_ns, traces, verdict, workload"
    )


@pytest.mark.usefixtures("unrun")
@pytest.mark.parametrize("name", THEIRS)
@pytest.mark.parametrize("kind", ["fifo", "folder", "socket", "link to a device"])
def test_what_is_no_file_stays(tmp_path, monkeypatch, capsys, name, kind):
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    with socket.socket(socket.AF_UNIX) as server:
        make = {
            "fifo": os.mkfifo,
            "folder": os.mkdir,
            "socket": server.bind,
            "link to a device": lambda name: Path(name).symlink_to(os.devnull),
        }
        make[kind](name)
        os.utime(name, (0, 0), follow_symlinks=False)  # so old that following a link makes it new
        before = unread(name)
        refused(tmp_path, capsys, f"cannot write {tmp_path / name}: it is ")
        assert unread(name) == before


def test_links_stay_and_what_they_lead_to_is_written(tmp_path):
    out, there = tmp_path / "out", tmp_path / "there"
    (tmp_path / "link").symlink_to("out")
    out.mkdir()
    there.mkdir()
    for name in THEIRS:
        (out / name).symlink_to(Path("..", "there", name))
    for engine in ("sync", "graph"):
        assert main((*CHAIN[:-1], engine, "--out", str(tmp_path / "link"))) == 0
        assert list(load_comparison(tmp_path / "link")) == [engine]
    assert sorted(path.name for path in there.iterdir()) == sorted(THEIRS)
    assert all((out / name).is_symlink() for name in THEIRS)
    assert len(list(out.iterdir())) == len(THEIRS) + 1


@pytest.mark.parametrize("engine", ["data", "../mine", "a\ud800"])
def test_no_file_goes_because_a_comparison_names_it(tmp_path, capsys, engine):
    """Only traces that are, to the byte, what the older comparison saved."""
    folder = tmp_path / "out"
    assert main((*CHAIN, "--out", str(folder))) == 0
    mine = [tmp_path / "mine.parquet", folder / "data.parquet", folder / f"data-{'0' * 12}.parquet"]
    for path in mine:
        path.write_text("mine")
    older = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
    older["engines"][engine] = older["engines"]["sync"]
    older["traces"][engine] = "0" * 64
    del older["digest"]
    (folder / "comparison.json").write_text(json.dumps(with_digest(older)), encoding="utf-8")
    main((*CHAIN, "--out", str(folder)))
    assert "Traceback" not in capsys.readouterr().err
    assert [path.read_text() for path in mine] == ["mine"] * 3


def test_the_older_comparison_goes_and_nothing_else(tmp_path):
    assert main((*CHAIN, "--out", str(tmp_path))) == 0
    older = set(files_in(tmp_path))
    for name in ("other.parquet", "notes.txt"):
        (tmp_path / name).write_text("mine")
    changed = next(tmp_path.glob("sync-*.parquet"))
    assert main((*CHAIN[:-1], "graph", "--out", str(tmp_path))) == 0
    assert not changed.exists()
    graph = next(tmp_path.glob("graph-*.parquet")).name
    assert set(files_in(tmp_path)) == older - {changed.name} | {"other.parquet", "notes.txt", graph}
    (tmp_path / graph).write_text("edited by you")
    assert main((*CHAIN, "--out", str(tmp_path))) == 0
    assert (tmp_path / graph).read_text() == "edited by you"
    assert list(load_comparison(tmp_path)) == ["sync"]


def test_permissions_stay(tmp_path):
    """Those of traces too, whose names are new."""
    assert main((*CHAIN, "--out", str(tmp_path))) == 0
    for path in tmp_path.iterdir():
        path.chmod(0o600)
    assert main((*CHAIN[:-1], "graph", "--out", str(tmp_path))) == 0
    assert {oct(stat.S_IMODE(path.stat().st_mode)) for path in tmp_path.iterdir()} == {"0o600"}


def test_a_home_folder(tmp_path, monkeypatch):
    """A shell leaves ``~`` alone in ``--out=~/x``."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert main((*CHAIN, "--out=~/out")) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert list(load_comparison("~/out")) == ["sync"]


@pytest.mark.usefixtures("unrun")
def test_names_that_no_folder_can_have(tmp_path, capsys):
    refused(tmp_path / ("a" * 300), capsys, "File name too long")
    refused(Path("~nobody-of-that-name/out"), capsys, "there is no home folder", code=2)
    assert not any(tmp_path.iterdir())


def test_all_or_none_where_the_last_file_cannot_get_its_name(tmp_path, monkeypatch, capsys):
    assert main((*CHAIN, "--out", str(tmp_path))) == 0
    capsys.readouterr()
    replace = Path.replace

    def failing(self, target):
        if target == tmp_path / "comparison.json":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", failing)
    refused(tmp_path, capsys, "Input/output error")


def test_what_is_told_of_a_full_disk_names_your_folder(tmp_path, monkeypatch, capsys):
    """Not the temporary one inside it, which is gone by then."""

    def failing(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", failing)
    refused(tmp_path, capsys, f"cannot write to folder {tmp_path}: No space left on device")


def test_a_report_is_known_by_its_mark(tmp_path):
    assert main((*CHAIN, "--out", str(tmp_path))) == 0
    assert REPORT_MARK in (tmp_path / "report.html").read_bytes()[:1000]
