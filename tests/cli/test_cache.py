"""``streamscope cache``: the kernels on disk as text and as JSON, and their removal."""

from __future__ import annotations

import json

import pytest

from streamscope.cli.main import main
from streamscope.kernels.compile.cubin import Cubin
from streamscope.kernels.compile.kernel_cache import kernel_cache


def cubin(number, architecture="sm_90", nvrtc="13.0", size=1000):
    return Cubin(bytes([number]) * size, architecture, nvrtc, 1, 1)


def keys(*numbers):
    return [f"{number:064x}" for number in numbers]


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """A cache of two files for one architecture, one of three kernels, one for another, and a broken one."""
    monkeypatch.setenv("STREAMSCOPE_CACHE_DIR", str(tmp_path))
    folder = kernel_cache().folder
    folder.write(keys(1, 2, 3), cubin(1, size=3000))
    folder.write(keys(4), cubin(2))
    folder.write(keys(5), cubin(3, "sm_80", "12.9"))
    (folder.path / f"{keys(6)[0]}.cubin").write_bytes(b"half a file")
    return folder


def run(*arguments):
    return main(["cache", *arguments])


def test_as_json(folder, capsys):
    assert not run("--json")
    said = json.loads(capsys.readouterr().out)
    assert said["folder"] == str(folder.path)
    assert (said["kernels"], said["files"]) == (6, 4)
    assert said["bytes"] == sum(file.bytes for file in folder.files())


def test_as_text(folder, capsys):
    assert not run()
    out = capsys.readouterr().out
    assert str(folder.path) in out
    assert "6 kernels in 4 files" in out


def test_clearing(folder, capsys):
    size = sum(file.bytes for file in folder.files())
    assert not run("--clear", "--json")
    removed = json.loads(capsys.readouterr().out)
    assert removed == {"folder": str(folder.path), "removed_files": 4, "removed_bytes": size}
    assert folder.files() == []
    assert not run("--clear")
    assert "removed 0 files" in capsys.readouterr().out
    assert not run()
    assert "0 kernels in 0 files" in capsys.readouterr().out


def test_clearing_leaves_what_is_none_of_ours(folder):
    """Somebody may have named a folder that holds kernels of other tools."""
    others = ["other.cubin", f"{keys(1)[0]}_2.cubin", f"{keys(1)[0].upper()[:-1]}A.cubin", "old.partial", "notes.txt"]
    for name in others:
        (folder.path / name).write_bytes(b"theirs")
    (folder.path / f"{keys(9)[0]}.cubin").mkdir()
    assert not run("--clear")
    assert {path.name for path in folder.path.iterdir()} == {*others, f"{keys(9)[0]}.cubin"}


@pytest.mark.parametrize("place", ["kernels", ""])
def test_a_file_in_the_folders_place_is_not_called_empty(monkeypatch, tmp_path, capsys, place):
    taken = tmp_path / "cache"
    monkeypatch.setenv("STREAMSCOPE_CACHE_DIR", str(taken))
    if place:
        taken.mkdir()
    (taken / place).write_text("mine")
    assert not run()
    out = capsys.readouterr().out
    assert f"New kernels are kept in memory only: {taken / place} is not a folder (set STREAMSCOPE_CACHE_DIR" in out
    assert json.loads((run("--json"), capsys.readouterr().out)[1])["problem"] == f"{taken / place} is not a folder"
    assert run("--clear") == 1
    assert "Not a directory" in capsys.readouterr().err
    assert (taken / place).read_text() == "mine"


@pytest.mark.usefixtures("homeless")
def test_without_a_home_folder(capsys):
    assert not run()
    assert "New kernels are kept in memory only: there is no home folder for ~/.cache" in capsys.readouterr().out
    assert json.loads((run("--json"), capsys.readouterr().out)[1])["folder"] is None
    assert not run("--clear")
    assert "nothing to remove: there is no home folder" in capsys.readouterr().out


def test_a_folder_that_was_never_made(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("STREAMSCOPE_CACHE_DIR", str(tmp_path / "nowhere"))
    assert not run("--json")
    assert json.loads(capsys.readouterr().out)["kernels"] == 0
    assert not (tmp_path / "nowhere").exists()  # looking makes nothing


def test_one_that_cannot_be_cleared(folder, capsys, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.unlink", refuse)
    assert run("--clear") == 1
    err = capsys.readouterr().err
    assert "cannot clear" in err
    assert "hint: " in err
