"""The folder of cubins: whole or missing, bounded, least recently used first, and never in the way."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir, nullcontext
from pathlib import Path

import pytest

from streamscope.errors import CacheWarning, OutputError
from streamscope.files import unfinished_file, unfinished_name
from streamscope.kernels.compile import cubin_folder
from streamscope.kernels.compile.cubin import CHECKSUM_END, HEADER_START, MAGIC, Cubin, packed
from streamscope.kernels.compile.cubin_folder import CubinFolder


def cubin(number=0, size=1000, kernels=1):
    return Cubin(bytes([number]) * size, "sm_90", "13.0", 5_000_000, kernels)


def keys(*numbers):
    return [f"{number:064x}" for number in numbers]


@pytest.fixture
def folder(tmp_path):
    return CubinFolder(tmp_path / "kernels")


def again(folder):
    """As another process sees it."""
    return CubinFolder(folder.path, folder.most_bytes)


def test_kernels_of_one_unit_share_a_file(folder):
    folder.write(keys(1, 2, 3), cubin(kernels=3))
    assert len({path.stat().st_ino for path in folder.path.iterdir()}) == 1
    (file,) = folder.files()
    assert sorted(path.stem for path in file.paths) == keys(1, 2, 3)
    assert file.bytes == len(packed(cubin(kernels=3)))
    other = again(folder)
    first = other.read(*keys(1))
    assert first == cubin(kernels=3)
    assert other.read(*keys(2)) is first  # read once
    assert other.read(*keys(4)) is None


def test_nothing_but_whole_files_is_left(folder):
    folder.write(keys(1, 2), cubin())
    folder.write(keys(1, 2), cubin(1))
    assert sorted(path.name for path in folder.path.iterdir()) == [f"{key}.cubin" for key in keys(1, 2)]
    assert again(folder).read(*keys(2)) == cubin(1)


LENGTHS = [0, 1, len(MAGIC), CHECKSUM_END - 1, CHECKSUM_END, HEADER_START, HEADER_START + 20, 500, len(packed(cubin())) - 1]


@pytest.mark.parametrize("length", LENGTHS)
def test_a_truncated_file_is_missing_and_replaced(folder, length):
    folder.write(keys(1), cubin())
    (path,) = folder.path.iterdir()
    path.write_bytes(packed(cubin())[:length])
    found = again(folder)
    with pytest.warns(CacheWarning, match="does not hold the kernel"):
        assert found.read(*keys(1)) is None
    found.write(keys(1), cubin())
    assert again(folder).read(*keys(1)) == cubin()


def test_a_cubin_too_large_to_be_read_is_not_written(folder, monkeypatch):
    monkeypatch.setattr(cubin_folder, "MOST_FILE_BYTES", 2000)
    with pytest.warns(CacheWarning, match="File too large"):
        folder.write(keys(1), cubin(size=2000))
    assert list(folder.path.iterdir()) == []


@pytest.mark.parametrize("mode", [0o1777, 0o770, 0o720, 0o702], ids=oct)
def test_a_folder_that_others_can_write_to_is_not_used(folder, mode):
    """Whoever writes a file there decides what runs on the GPU."""
    folder.write(keys(1), cubin())
    folder.path.chmod(mode)
    other = again(folder)
    who = "everybody" if mode & 0o002 else "its group"
    with pytest.warns(CacheWarning, match=f"{who} can write to it.*chmod go-w {folder.path}") as warned:
        found = [(other.read(key), other.write([key], cubin())) for key in keys(1, 2)]
    assert (found, len(warned)) == ([(None, None)] * 2, 1)
    assert len(list(folder.path.iterdir())) == 1
    assert f"{who} can write to it" in folder.problem()
    folder.path.chmod(0o755)  # Others may read.
    assert again(folder).read(*keys(1)) == cubin()


def test_a_file_that_others_can_write_to_is_not_used_and_replaced(folder):
    """They could, while the folder was open to them; closing it does not change what they have written."""
    folder.write(keys(1), cubin())
    (path,) = folder.path.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o660)
    other = again(folder)
    with pytest.warns(CacheWarning, match=f"cannot use {path}: its group can write to it; that is compiled again"):
        assert other.read(*keys(1)) is None
    other.write(keys(1), cubin(1))
    assert again(folder).read(*keys(1)) == cubin(1)


@pytest.mark.parametrize(("owner", "used"), [("you", True), ("root", True), ("another", False)])
def test_a_folder_that_another_user_owns_is_not_used(folder, monkeypatch, owner, used):
    """Its owner decides what runs on the GPU. Root could anyway."""
    folder.write(keys(1), cubin())
    found, uid = Path.stat, {"you": 1000, "root": 0, "another": 1001}[owner]

    def owned(path, **options):
        mode, inode, device, links, _, *rest = found(path, **options)
        return os.stat_result((mode, inode, device, links, uid, *rest))

    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(Path, "stat", owned)
    other = again(folder)
    with nullcontext() if used else pytest.warns(CacheWarning, match="user 1001 owns it, not you"):
        assert other.read(*keys(1)) == (cubin() if used else None)
        other.write(keys(2), cubin())
    assert len(list(folder.path.iterdir())) == 1 + used
    assert ("user 1001 owns it" in folder.problem()) is not used


def test_the_least_recently_used_go_first(tmp_path):
    size = len(packed(cubin()))
    folder = CubinFolder(tmp_path, most_bytes=10 * size)
    for number in range(10):
        folder.write(keys(number), cubin(number))
        os.utime(tmp_path / f"{keys(number)[0]}.cubin", (1000 + number, 1000 + number))
    assert folder.read(*keys(0)) == cubin(0)  # used now
    folder.write(keys(10), cubin(10))
    left = {int(path.stem, 16) for file in folder.files() for path in file.paths}
    assert left == {0, 10, 9, 8, 7, 6, 5, 4}  # 8 of 10, so that the next write need not evict
    assert sum(file.bytes for file in folder.files()) <= folder.most_bytes


def test_the_size_is_bounded_whatever_is_written(tmp_path):
    folder = CubinFolder(tmp_path, most_bytes=20_000)
    for number in range(60):
        folder.write(keys(2 * number, 2 * number + 1), cubin(number, size=300 * (1 + number % 7)))
        assert sum(path.stat().st_size for path in {each.stat().st_ino: each for each in tmp_path.iterdir()}.values()) <= 20_000
    folder.write(keys(1000), cubin(size=30_000))  # more than there is room for
    assert sum(file.bytes for file in folder.files()) <= 20_000


def test_what_a_killed_process_has_left_goes(folder):
    """It counts for nothing, so it would pile up."""
    folder.write(keys(1), cubin())
    (whole,) = folder.path.iterdir()
    half, link = (unfinished_name(folder.path) for _ in range(2))
    half.write_bytes(b"half")
    os.link(whole, link)
    with unfinished_file(folder.path) as living:
        assert not half.exists()
        assert not link.exists()
        os.link(living, link)
        folder.write(keys(2), cubin(2))
        assert living.exists()
        assert link.exists()  # It is the living one's, too.
    folder.clear()
    assert list(folder.path.iterdir()) == []


def test_names_of_unfinished_files_do_not_come_again(folder, monkeypatch):
    """A crash may leave a link to a cubin under such a name; writing to it again would change that cubin."""
    seen, link = [], os.link

    def noting(source, name):
        seen.append(name)
        link(source, name)

    monkeypatch.setattr(cubin_folder.os, "link", noting)
    folder.write(keys(1, 2), cubin())
    folder.write(keys(1, 2), cubin(1))
    assert len(set(seen)) == 2


def test_a_file_system_without_links(folder, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EPERM, "no links")

    monkeypatch.setattr(cubin_folder.os, "link", refuse)
    folder.write(keys(1, 2), cubin())
    assert [again(folder).read(key) for key in keys(1, 2)] == [cubin(), cubin()]
    assert len(folder.files()) == 2


def make_nothing(path):
    path.symlink_to(path.parent / "nowhere")


def make_itself(path):
    path.symlink_to(path)


def make_elsewhere(path):
    (path.parent / "elsewhere").mkdir()
    path.symlink_to(path.parent / "elsewhere")


def make_socket(path):
    with chdir(path.parent), socket.socket(socket.AF_UNIX) as made:  # its name is too long with the folders
        made.bind(path.name)


@pytest.mark.parametrize("make", [os.mkfifo, make_nothing, make_itself, make_elsewhere, make_socket])
def test_what_is_no_file_is_missing_and_replaced(folder, make):
    """And nothing waits for it: opening a FIFO would."""
    folder.path.mkdir()
    make(folder.path / f"{keys(1)[0]}.cubin")
    with pytest.warns(CacheWarning, match="does not hold the kernel"):
        assert folder.read(*keys(1)) is None
    assert folder.files() == []
    folder.write(keys(1, 2), cubin())
    assert [again(folder).read(key) for key in keys(1, 2)] == [cubin(), cubin()]


def test_a_folder_in_the_place_of_a_file_stays(folder):
    taken = folder.path / f"{keys(1)[0]}.cubin"
    taken.mkdir(parents=True)
    with pytest.warns(CacheWarning, match=r"cannot write .*: Is a directory") as warned:
        [folder.write(keys(*numbers), cubin()) for numbers in ((1, 2), (1,))]
    assert len(warned) == 1
    with pytest.warns(CacheWarning, match="does not hold the kernel"):
        assert [again(folder).read(key) for key in keys(1, 2)] == [None, cubin()]
    assert len(folder.files()) == 1
    assert folder.clear() > 0
    assert taken.is_dir()


def test_files_of_others_count_for_nothing_and_stay(tmp_path):
    folder = CubinFolder(tmp_path, most_bytes=2000)
    theirs = [tmp_path / name for name in ("other.cubin", "a.partial", "lock.cubin")]
    for path in theirs:
        path.write_bytes(b"theirs" * 1000)
        os.utime(path, (0, 0))
    for number in range(5):
        folder.write(keys(number), cubin(number))
    assert folder.files()
    folder.clear()
    assert sorted(tmp_path.iterdir()) == sorted(theirs)


def test_what_is_wrong_with_a_folder(tmp_path, monkeypatch):
    assert CubinFolder(tmp_path).problem() == CubinFolder(tmp_path / "a" / "b").problem() == ""
    assert list(tmp_path.iterdir()) == []  # nothing is made
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "file", tmp_path / "file" / "kernels"):
        assert CubinFolder(path).problem() == f"{tmp_path / 'file'} is not a folder"
        assert CubinFolder(path).files() == []
    make_nothing(tmp_path / "link")
    assert CubinFolder(tmp_path / "link" / "kernels").problem() == f"cannot write to {tmp_path / 'link'}: No such file or directory"
    assert CubinFolder(None, why_none="no home").problem() == "no home"
    monkeypatch.setattr(cubin_folder.tempfile, "TemporaryFile", lambda **_: (_ for _ in ()).throw(OSError(errno.EROFS, "read only")))
    assert CubinFolder(tmp_path).problem() == f"cannot write to {tmp_path}: read only"


def test_without_a_folder():
    folder = CubinFolder(None, why_none="there is no home")
    with pytest.warns(CacheWarning, match="cannot keep anything on disk: there is no home; .*STREAMSCOPE_CACHE_DIR") as warned:
        [folder.write(keys(number), cubin()) for number in range(2)]
    assert len(warned) == 1
    assert folder.read(*keys(1)) is None
    assert (folder.files(), folder.clear()) == ([], 0)


def test_a_file_cannot_be_cleared(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OutputError, match="Not a directory"):
        CubinFolder(tmp_path / "file").clear()


def test_a_file_in_the_folders_way(tmp_path):
    (tmp_path / "kernels").write_bytes(b"")
    folder = CubinFolder(tmp_path / "kernels")
    with pytest.warns(CacheWarning, match="STREAMSCOPE_CACHE_DIR") as warned:
        found = [(folder.read(*keys(1)), folder.write(keys(1), cubin())) for _ in range(3)]
    assert found == [(None, None)] * 3
    assert len(warned) == 1
    assert folder.files() == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_a_full_or_read_only_folder_warns_once(folder, monkeypatch, number):
    whole = Path.open

    def refuse(path, mode="r", *rest, **options):
        if "w" in mode:
            raise OSError(number, os.strerror(number))
        return whole(path, mode, *rest, **options)

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.warns(CacheWarning) as warned, ThreadPoolExecutor(8) as pool:
        pool.map(lambda each: folder.write(keys(each), cubin()), range(8))
    assert len(warned) == 1
    assert list(folder.path.iterdir()) == []


def test_a_disk_that_fills_up_leaves_no_part(folder, monkeypatch):
    def fill(*_, **__):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(cubin_folder.os, "link", fill)
    monkeypatch.setattr(shutil, "copyfile", fill)
    with pytest.warns(CacheWarning, match="write"):
        folder.write(keys(1, 2), cubin())
    assert list(folder.path.iterdir()) == []


def test_clearing(folder, monkeypatch):
    folder.write(keys(1, 2), cubin())
    folder.write(keys(3), cubin(3, size=10))
    assert folder.clear() == len(packed(cubin())) + len(packed(cubin(3, size=10)))
    assert folder.files() == []
    assert folder.read(*keys(1)) is None
    assert folder.clear() == 0
    folder.write(keys(1), cubin())
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", lambda *_, **__: (_ for _ in ()).throw(PermissionError(errno.EACCES, "not yours")))
        with pytest.raises(OutputError, match="not yours"):
            folder.clear()


def test_written_and_read_side_by_side(folder):
    """Readers see a whole cubin or none, never half of one."""
    wrong, ended = [], threading.Event()

    def read():
        while not ended.is_set():
            found = again(folder).read(*keys(1))
            if found is not None and len(set(found.image)) != 1:
                wrong.append(found)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        readers = [threading.Thread(target=read) for _ in range(3)]
        for reader in readers:
            reader.start()
        for number in range(100):
            folder.write(keys(1, 2), cubin(number, size=50_000))
        ended.set()
        for reader in readers:
            reader.join()
    assert not wrong
