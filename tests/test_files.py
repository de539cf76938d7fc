from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Barrier

import pytest

from streamscope import files
from streamscope.cli.main import StoppedError, Stops
from streamscope.errors import OutputError, ProgramError
from streamscope.files import filled_whole, writable_file, writable_folder, written_anew, written_whole


def contents(folder):
    return sorted(path.name for path in folder.iterdir())


def fail():
    raise OSError(errno.EIO, os.strerror(errno.EIO))


@contextmanager
def as_somebody_else():
    """Root may do anything, so be somebody else for a while."""
    before = os.geteuid()
    if not before:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def write_half(path, error):
    """Write a file, and fail before it may have its name."""
    with written_whole(path) as temporary:
        temporary.write_text("half")
        raise error


def fill(folder, files, error=None, older=lambda _: ()):
    """Write files into a folder, and perhaps fail before they may have their names."""
    with filled_whole(folder, last="z", older=older) as temporary:
        for name, text in files.items():
            (temporary / name).write_text(text)
        if error is not None:
            raise error


def write_texts(stem, *ends):
    """Write a file for each ending of a name."""
    paths = [stem.with_name(stem.name + end) for end in ends]
    for path in paths:
        path.write_text("new")
    return paths


def raised(error):
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
        with (
            pytest.raises(OutputError, match=r"cannot write .*a\.txt: there is no folder .*make it first"),
            written_whole(tmp_path / "none" / "a.txt"),
        ):
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
        assert mode_of(tmp_path / "plain") == mode_of(tmp_path / "ours")

    def test_the_permissions_of_the_file_that_was_there_stay(self, tmp_path):
        (tmp_path / "a").touch(mode=0o600)
        with written_whole(tmp_path / "a") as path:
            assert mode_of(path) == 0o600  # before anything is in it
            path.write_text("secret")
        assert mode_of(tmp_path / "a") == 0o600
        (tmp_path / "a").chmod(0o444)
        with written_whole(tmp_path / "a") as path:
            path.write_text("kept from changes by accident, not by us")
        assert mode_of(tmp_path / "a") == 0o444

    def test_the_umask_of_other_threads_stays_as_it_is(self, tmp_path, monkeypatch):
        before = os.umask(0o027)
        try:
            with monkeypatch.context() as patch:
                patch.setattr(os, "umask", lambda _: pytest.fail("it is the whole process's"))
                with written_whole(tmp_path / "a.txt") as path:
                    path.write_text("")
        finally:
            os.umask(before)
        assert mode_of(tmp_path / "a.txt") == 0o640

    @pytest.mark.parametrize("name", ["a" * 238, "a" * 255, "ä" * 127 + "a"], ids=lambda name: f"{len(name.encode())}-{name[0]}")
    def test_the_longest_names(self, tmp_path, name):
        """A file's name may have 255 bytes."""
        with written_whole(tmp_path / name) as path:
            path.write_text("")
        assert contents(tmp_path) == [name]
        fill(tmp_path, {name: "filled"})
        assert (tmp_path / name).read_text() == "filled"

    def test_a_link_stays_and_the_file_that_it_leads_to_is_written(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        there = tmp_path / "there"
        there.mkdir()
        (there / "kept").write_text("before")
        (there / "kept").chmod(0o600)
        links = {"absolute": there / "kept", "relative": "there/kept", "chain": "relative", "there/back": "../chain"}
        for name, target in links.items():
            (tmp_path / name).symlink_to(target)
        for name in links:
            with written_whole(tmp_path / name) as path:
                assert path.parent == there  # so that the rename is atomic there
                path.write_text(name)
                assert (there / "kept").read_text() != name
            assert ((tmp_path / name).read_text(), (there / "kept").read_text(), mode_of(there / "kept")) == (name, name, 0o600)
            assert (tmp_path / name).is_symlink()
        with written_whole(Path("chain")) as path:
            path.write_text("named from here")
        assert (there / "kept").read_text() == "named from here"

    def test_a_link_to_a_file_that_is_not_there_yet(self, tmp_path):
        (tmp_path / "there").mkdir()
        (tmp_path / "link").symlink_to("there/new")
        with written_whole(tmp_path / "link") as path:
            path.write_text("new")
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "there" / "new").read_text() == "new"
        (tmp_path / "link to nowhere").symlink_to("none/new")
        with (
            pytest.raises(OutputError, match=r"cannot write .*link to nowhere: there is no folder .*none"),
            written_whole(tmp_path / "link to nowhere"),
        ):
            pytest.fail("the body must not run")

    def test_links_in_a_circle(self, tmp_path):
        for name, target in (("self", "self"), ("a", "b"), ("b", "a")):
            (tmp_path / name).symlink_to(target)
        for name in ("self", "a"):
            for write in (lambda path: write_half(path, None), lambda path: fill(path.parent, {path.name: "x"}), writable_file):
                with pytest.raises(OutputError, match="Too many levels of symbolic links"):
                    write(tmp_path / name)
        assert contents(tmp_path) == ["a", "b", "self"]

    def test_a_failure_leaves_a_link_and_its_file(self, tmp_path):
        (tmp_path / "file").write_text("before")
        (tmp_path / "link").symlink_to("file")
        with pytest.raises(ProgramError):
            write_half(tmp_path / "link", ProgramError("x"))
        assert contents(tmp_path) == ["file", "link"]
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "file").read_text() == "before"

    def test_a_folder_that_is_named_from_here(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        with written_whole(Path("a.txt")) as path:
            assert path.is_absolute()
            path.write_text("")
        assert contents(tmp_path) == ["a.txt"]


class TestWrittenAnew:
    def test_no_file_is_replaced_and_none_is_left_where_one_name_is_taken(self, tmp_path):
        (tmp_path / "x-3-more.b").write_text("a stranger's")
        found = written_anew(tmp_path / "x", 3, lambda stem: write_texts(stem, ".a", "-more.b"))
        assert found == [tmp_path / "x-4.a", tmp_path / "x-4-more.b"]
        assert contents(tmp_path) == ["x-3-more.b", "x-4-more.b", "x-4.a"]
        assert (tmp_path / "x-3-more.b").read_text() == "a stranger's"

    def test_of_many_writers_each_has_a_name_of_its_own(self, tmp_path):
        barrier = Barrier(8, timeout=60)

        def write(stem):
            barrier.wait()  # All look for a name at once.
            return write_texts(stem, ".a")

        with ThreadPoolExecutor(8) as pool:
            found = [*pool.map(lambda _: written_anew(tmp_path / "x", 1, write), range(8))]
        assert sorted(path for (path,) in found) == [tmp_path / f"x-{number}.a" for number in range(1, 9)]
        assert contents(tmp_path) == [f"x-{number}.a" for number in range(1, 9)]

    def test_a_failure_leaves_nothing(self, tmp_path, monkeypatch):
        with pytest.raises(ProgramError):
            written_anew(tmp_path / "x", 1, lambda stem: (write_texts(stem, ".a"), raised(ProgramError("half-way"))))
        replace = Path.replace
        monkeypatch.setattr(Path, "replace", lambda self, to: fail() if to.name == "x-1.b" else replace(self, to))
        with pytest.raises(OutputError, match="Input/output error"):
            written_anew(tmp_path / "x", 1, lambda stem: write_texts(stem, ".a", ".b"))
        assert contents(tmp_path) == []


WRITER = """
import sys
from pathlib import Path
from streamscope.files import filled_whole, written_whole
path = Path(sys.argv[1])
with written_whole(path / "file") as file, filled_whole(path, last="z") as folder:
    file.write_text("half")
    (folder / "z").write_text("half")
    print(file.name, folder.name, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def writer(tmp_path):
    """A process that writes a file and fills a folder, and is in the middle of both; with the temporary names."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process, process.stdout.readline().split()
        process.kill()


class TestWhatAKilledProcessLeaves:
    @pytest.mark.parametrize("write", ["written_whole", "filled_whole"])
    def test_the_next_writer_clears_it_and_nothing_of_a_living_one(self, tmp_path, writer, write):
        def write_now():
            if write == "written_whole":
                with written_whole(tmp_path / "ours") as path:
                    path.write_text("whole")
            else:
                fill(tmp_path, {"ours": "whole"})

        process, left = writer
        write_now()
        assert contents(tmp_path) == sorted([*left, "ours"])
        process.kill()
        process.wait()
        assert contents(tmp_path) == sorted([*left, "ours"])
        write_now()
        assert contents(tmp_path) == ["ours"]

    @pytest.mark.parametrize(("age_s", "stays"), [(23 * 3600, True), (25 * 3600, False)])
    @pytest.mark.parametrize("why", ["another machine's", "no locks"])
    def test_of_what_nothing_is_known_goes_after_a_day(self, tmp_path, monkeypatch, age_s, stays, why):
        if why == "no locks":
            monkeypatch.setattr(files.fcntl, "flock", lambda *_: fail())
        name = files.unfinished_name(tmp_path).name
        parts = name.split(".")
        parts[2] = "0123abcd" if why == "another machine's" else parts[2]
        left = tmp_path / ".".join(parts)
        left.write_text("half")
        os.utime(left, (time.time() - age_s,) * 2)
        with written_whole(tmp_path / "ours") as path:
            path.write_text("whole")
        assert left.exists() is stays

    def test_what_is_not_ours_stays(self, tmp_path, monkeypatch):
        names = [".x.partial", ".streamscope.x.partial", "streamscope.0123abcd.0123456789abcdef.partial", ".streamscope"]
        for name in names:
            (tmp_path / name).write_text("")
            os.utime(tmp_path / name, (0, 0))
        files.unfinished_name(tmp_path).symlink_to(tmp_path / names[0])
        os.mkfifo(tmp_path / "pipe")
        files.clear_unfinished(tmp_path)
        assert len(contents(tmp_path)) == len(names) + 2
        files.unfinished_name(tmp_path).write_text("another user's")
        monkeypatch.setattr(files.os, "geteuid", lambda: os.getuid() + 1)
        files.clear_unfinished(tmp_path)
        assert len(contents(tmp_path)) == len(names) + 3

    @pytest.mark.parametrize("after", ["open", "flock"])
    @pytest.mark.parametrize("write", [written_whole, lambda path: filled_whole(path.parent, last="a")], ids=["file", "folder"])
    def test_one_that_was_cleared_before_it_was_locked_is_made_again(self, tmp_path, monkeypatch, write, after):
        """Between making and locking it, nobody can tell that its writer lives."""
        module = files.os if after == "open" else files.fcntl
        cleared, function = [], getattr(module, after)

        def clear_first(*given, **options):
            left = contents(tmp_path)
            if left and not cleared:
                cleared.extend(left)
                files.clear_unfinished(tmp_path)
            return function(*given, **options)

        monkeypatch.setattr(module, after, clear_first)
        with write(tmp_path / "a") as path:
            (path if path.is_file() else path / "a").write_text("whole")
            assert contents(tmp_path) == [path.name] != cleared
        assert (tmp_path / "a").read_text() == "whole"


class TestWritableFile:
    def test_its_folder_is_made_and_it_is_not(self, tmp_path):
        assert writable_file(tmp_path / "a" / "b.html") == tmp_path / "a" / "b.html"
        assert contents(tmp_path / "a") == []

    def test_no_folder_is_made_where_a_link_leads(self, tmp_path):
        (tmp_path / "link").symlink_to("none/new.html")
        with pytest.raises(OutputError, match=r"cannot write .*link: there is no folder .*none"):
            writable_file(tmp_path / "link")
        assert contents(tmp_path) == ["link"]

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
        with filled_whole(target, last="b") as folder:
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
        with pytest.raises(OutputError, match=r"cannot write .*b: it is a folder"):
            fill(tmp_path, {"a": "1", "b": "2"})
        assert contents(tmp_path) == ["b"]

    def test_it_is_writable_before_the_work_begins(self, tmp_path):
        (tmp_path / "file").write_text("x")
        with pytest.raises(OutputError, match="cannot write to folder"), filled_whole(tmp_path / "file", last="z"):
            pytest.fail("the body must not run")

    def test_all_or_none_where_the_last_name_cannot_be_had(self, tmp_path, monkeypatch):
        """Whatever the reason, whichever file it is."""
        before = {"a": "1", "z": "2", "mine": "3"}
        for name, text in before.items():
            (tmp_path / name).write_text(text)
        replace = Path.replace
        for failing in ("a", "b", "z"):
            with monkeypatch.context() as patch:
                patch.setattr(
                    Path, "replace", lambda self, to, at=failing: fail() if to == tmp_path / at and self.name == at else replace(self, to)
                )
                with pytest.raises(OutputError, match="Input/output error"):
                    fill(tmp_path, {"a": "new", "b": "new", "z": "new"}, older=lambda _: ["mine"])
            assert {path.name: path.read_text() for path in tmp_path.iterdir()} == before

    def test_what_names_the_others_comes_last(self, tmp_path, monkeypatch):
        moved = []
        replace = Path.replace
        monkeypatch.setattr(Path, "replace", lambda self, to: (moved.append(to.name), replace(self, to)))
        with filled_whole(tmp_path, last="b") as folder:
            for name in "cba":
                (folder / name).touch()
        assert moved == ["a", "c", "b"]

    def test_older_files_go_when_the_new_ones_are_there_and_not_before(self, tmp_path):
        for name in ("older", "a"):
            (tmp_path / name).write_text("1")
        with pytest.raises(ProgramError):
            fill(tmp_path, {"a": "2"}, ProgramError("x"), older=lambda _: ["older", "a"])
        assert contents(tmp_path) == ["a", "older"]
        fill(tmp_path, {"a": "2"}, older=lambda _: ["older", "a"])
        assert contents(tmp_path) == ["a"]
        assert (tmp_path / "a").read_text() == "2"

    def test_what_must_stay_is_found_before_the_work_begins(self, tmp_path):
        def older(folder):
            raise OutputError(f"{folder} has a file of yours")

        with pytest.raises(OutputError, match="a file of yours"), filled_whole(tmp_path / "out", last="z", older=older):
            pytest.fail("the body must not run")
        assert contents(tmp_path) == []

    def test_of_two_writers_the_second_sees_what_the_first_wrote(self, tmp_path):
        def older(folder):
            return [path.name for path in folder.iterdir() if path.is_file()]

        with filled_whole(tmp_path, last="z", older=older) as folder:
            for name in ("second", "z"):
                (folder / name).write_text("2")
            fill(tmp_path, {"first": "1", "z": "1"}, older=older)
            assert contents(tmp_path) == [folder.name, "first", "z"]
        assert contents(tmp_path) == ["second", "z"]
        assert (tmp_path / "z").read_text() == "2"

    def test_a_folder_that_stays_locked(self, tmp_path, monkeypatch):
        monkeypatch.setattr(files, "LOCK_TRIES", 2)
        folder = os.open(tmp_path, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            with pytest.raises(OutputError, match="another process keeps it locked"):
                fill(tmp_path, {"a": "1"})
        finally:
            os.close(folder)
        assert contents(tmp_path) == []

    def test_permissions_stay_and_new_files_have_those_of_the_file_that_names_them(self, tmp_path):
        for name, mode in (("a", 0o640), ("z", 0o600)):
            (tmp_path / name).touch(mode=mode)
        fill(tmp_path, {"a": "1", "b": "1", "z": "1"})
        assert [oct(mode_of(tmp_path / name)) for name in "abz"] == ["0o640", "0o600", "0o600"]

    def test_a_link_leads_to_the_folder_that_is_made(self, tmp_path):
        (tmp_path / "link").symlink_to("there")
        fill(tmp_path / "link", {"a": "1"})
        assert (tmp_path / "link").is_symlink()
        assert contents(tmp_path / "there") == ["a"]

    @pytest.mark.parametrize("other_disk", [False, True])
    def test_links_in_the_folder_stay_and_what_they_lead_to_is_all_written_or_none_of_it(self, tmp_path, monkeypatch, other_disk):
        there = tmp_path / "there"
        there.mkdir()
        (there / "a").write_text("before")
        (tmp_path / "out").mkdir()
        for name in "abz":
            (tmp_path / "out" / name).symlink_to(Path("..", "there", name))
        replace = Path.replace

        def replaced(self, to):
            if self.parent.parent == tmp_path / "out" and to.parent == there and other_disk:
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
            return fail() if to.name == failing else replace(self, to)

        monkeypatch.setattr(Path, "replace", replaced)
        for failing, expected in (("z", {"a": "before"}), ("", {"a": "new", "b": "new", "z": "new"})):
            with pytest.raises(OutputError) if failing else nullcontext():
                fill(tmp_path / "out", dict.fromkeys("abz", "new"))
            assert {path.name: path.read_text() for path in there.iterdir()} == expected
            assert [path.is_symlink() for path in (tmp_path / "out").iterdir()] == [True] * 3

    def test_names_that_no_folder_can_have(self, tmp_path):
        for folder in (tmp_path / ("a" * 300), tmp_path / ("a" * 300) / "b", Path("/proc/none/out")):
            with pytest.raises(OutputError, match="cannot write to folder"):
                fill(folder, {"a": "1"})
        assert contents(tmp_path) == []

    def test_a_folder_whose_parent_cannot_be_searched(self, tmp_path):
        tmp_path.chmod(0)
        try:
            with as_somebody_else(), pytest.raises(OutputError, match=r"cannot write to folder .*out: Permission denied"):
                fill(tmp_path / "out", {"a": "1"})
        finally:
            tmp_path.chmod(0o700)
        assert contents(tmp_path) == []

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_a_signal_while_files_move_comes_before_or_after(self, tmp_path, monkeypatch, number):
        """Never between: it waits for the last file."""
        copy = files.shutil.copy2
        monkeypatch.setattr(files.shutil, "copy2", lambda *paths: (signal.raise_signal(number), copy(*paths))[-1])
        (tmp_path / "a").write_text("before")
        stops = Stops()
        stops.begin()
        try:
            with pytest.raises(StoppedError):
                fill(tmp_path, {"a": "1", "b": "1", "z": "1"})
        finally:
            stops.end()
        assert contents(tmp_path) == ["a", "b", "z"]
        assert (tmp_path / "a").read_text() == "1"
