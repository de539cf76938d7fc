from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from streamscope.errors import OutputError, ProgramError
from streamscope.files import filled_whole, writable_file, writable_folder, written_whole


def contents(folder):
    return sorted(path.name for path in folder.iterdir())


def write_half(path, error):
    """Write a file, and fail before it may have its name."""
    with written_whole(path) as temporary:
        temporary.write_text("half")
        raise error


def fill(folder, files, error=None):
    """Write files into a folder, and perhaps fail before they may have their names."""
    with filled_whole(folder) as temporary:
        for name, text in files.items():
            (temporary / name).write_text(text)
        if error is not None:
            raise error


class TestWrittenWhole:
    def test_a_file_is_there_with_its_name(self, tmp_path):
        with written_whole(tmp_path / "a.txt") as path:
            path.write_text("whole")
            assert contents(tmp_path) == [path.name]
            assert path.name != "a.txt"
        assert contents(tmp_path) == ["a.txt"]
        assert (tmp_path / "a.txt").read_text() == "whole"

    @pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), ProgramError("x")])
    def test_a_failure_leaves_what_was_there(self, tmp_path, error):
        (tmp_path / "a.txt").write_text("before")
        with pytest.raises(type(error)):
            write_half(tmp_path / "a.txt", error)
        assert contents(tmp_path) == ["a.txt"]
        assert (tmp_path / "a.txt").read_text() == "before"

    def test_a_full_disk(self, tmp_path):
        with pytest.raises(OutputError, match=r"cannot write .*a\.txt: No space left on device"):
            write_half(tmp_path / "a.txt", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        assert contents(tmp_path) == []

    def test_no_folder(self, tmp_path):
        with pytest.raises(OutputError, match=r"cannot write .*a\.txt: No such file"), written_whole(tmp_path / "none" / "a.txt"):
            pytest.fail("the body must not run")

    def test_the_name_is_a_folders(self, tmp_path):
        (tmp_path / "a").mkdir()
        with pytest.raises(OutputError, match=r"cannot write .*a: it is a folder"), written_whole(tmp_path / "a"):
            pytest.fail("the body must not run")
        assert contents(tmp_path) == ["a"]

    def test_what_is_no_file_is_not_replaced(self, tmp_path):
        """A file would take the place of ``/dev/null`` for the whole machine, where root writes to it."""
        os.mkfifo(tmp_path / "pipe")
        (tmp_path / "link").symlink_to("pipe")
        for name in ("pipe", "link"):
            with pytest.raises(OutputError, match="it is no ordinary file"), written_whole(tmp_path / name):
                pytest.fail("the body must not run")
        assert contents(tmp_path) == ["link", "pipe"]
        assert (tmp_path / "link").is_fifo()

    def test_others_may_read_it_as_they_may_read_other_files(self, tmp_path):
        (tmp_path / "plain").write_text("")
        with written_whole(tmp_path / "ours") as path:
            path.write_text("")
        modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("plain", "ours")}
        assert len(modes) == 1

    def test_the_umask_of_other_threads_stays_as_it_is(self, tmp_path, monkeypatch):
        before = os.umask(0o027)
        try:
            with monkeypatch.context() as patch:
                patch.setattr(os, "umask", lambda _: pytest.fail("it is the whole process's"))
                with written_whole(tmp_path / "a.txt") as path:
                    path.write_text("")
        finally:
            os.umask(before)
        assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o640

    def test_the_longest_names(self, tmp_path):
        name = "a" * (255 - len("..12345678.partial"))
        with written_whole(tmp_path / name) as path:
            path.write_text("")
        assert contents(tmp_path) == [name]

    def test_a_folder_that_is_named_from_here(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        with written_whole(Path("a.txt")) as path:
            assert path.is_absolute()
            path.write_text("")
        assert contents(tmp_path) == ["a.txt"]


class TestWritableFile:
    def test_its_folder_is_made_and_it_is_not(self, tmp_path):
        assert writable_file(tmp_path / "a" / "b.html") == tmp_path / "a" / "b.html"
        assert contents(tmp_path / "a") == []

    def test_one_that_is_there_stays_as_it_is(self, tmp_path):
        (tmp_path / "file").write_text("x")
        writable_file(tmp_path / "file")
        assert (tmp_path / "file").read_text() == "x"

    def test_a_name_that_no_file_can_have(self, tmp_path):
        with pytest.raises(OutputError, match="File name too long"):
            writable_file(tmp_path / ("a" * 300))

    def test_a_folder_is_no_file_and_a_file_no_folder(self, tmp_path):
        with pytest.raises(OutputError, match="it is a folder"):
            writable_file(tmp_path)
        (tmp_path / "file").write_text("x")
        with pytest.raises(OutputError, match="cannot write to folder"):
            writable_file(tmp_path / "file" / "below")


class TestWritableFolder:
    def test_it_is_made_with_its_parents(self, tmp_path):
        assert writable_folder(tmp_path / "a" / "b") == tmp_path / "a" / "b"
        assert contents(tmp_path / "a" / "b") == []

    def test_one_that_is_there_stays_as_it_is(self, tmp_path):
        (tmp_path / "file").write_text("x")
        writable_folder(tmp_path)
        assert contents(tmp_path) == ["file"]

    def test_a_file_is_no_folder(self, tmp_path):
        (tmp_path / "file").write_text("x")
        with pytest.raises(OutputError, match=r"cannot write to folder .*file: File exists"):
            writable_folder(tmp_path / "file")
        with pytest.raises(OutputError, match="Not a directory"):
            writable_folder(tmp_path / "file" / "below")


class TestFilledWhole:
    def test_files_come_together(self, tmp_path):
        target = tmp_path / "new" / "out"
        with filled_whole(target) as folder:
            (folder / "a").write_text("1")
            (folder / "b").write_text("2")
            assert not (target / "a").exists()
        assert contents(target) == ["a", "b"]

    def test_other_files_stay(self, tmp_path):
        (tmp_path / "old").write_text("1")
        (tmp_path / "a").write_text("before")
        fill(tmp_path, {"a": "after"})
        assert contents(tmp_path) == ["a", "old"]
        assert (tmp_path / "a").read_text() == "after"

    def test_a_failure_leaves_nothing_behind(self, tmp_path):
        with pytest.raises(ProgramError, match="half-way"):
            fill(tmp_path / "new" / "out", {"a": "1"}, ProgramError("half-way"))
        assert contents(tmp_path) == []

    def test_a_failure_leaves_what_was_there(self, tmp_path):
        (tmp_path / "a").write_text("before")
        with pytest.raises(OutputError, match="No space left"):
            fill(tmp_path, {"a": "after"}, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        assert contents(tmp_path) == ["a"]
        assert (tmp_path / "a").read_text() == "before"

    def test_all_or_none_where_a_name_is_taken_by_a_folder(self, tmp_path):
        (tmp_path / "b").mkdir()
        with pytest.raises(OutputError, match=r"cannot write .*b: there is a folder of that name"):
            fill(tmp_path, {"a": "1", "b": "2"})
        assert contents(tmp_path) == ["b"]

    def test_it_is_writable_before_the_work_begins(self, tmp_path):
        (tmp_path / "file").write_text("x")
        with pytest.raises(OutputError, match="cannot write to folder"), filled_whole(tmp_path / "file"):
            pytest.fail("the body must not run")
