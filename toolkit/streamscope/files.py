"""Files that are whole or not there."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from streamscope.arguments import given_path
from streamscope.errors import OutputError
from streamscope.interrupts import deferred

LOCK_TRIES, _LOCK_PAUSE_S = 1500, 0.02
"""A folder is locked while its files get their names, which takes milliseconds: who waits longer waits for somebody else's lock."""
_NOBODYS_S = 24 * 3600
"""Age from which a temporary file is nobody's any more, where the writer cannot be asked for."""
_UNKNOWN_BOOT = "00000000"
_UNFINISHED = re.compile(r"\.streamscope\.(?P<boot>[0-9a-f]{8})\.[0-9a-f]{16}\.partial")


@contextmanager
def written_whole(path: Path, *, named: bool = False) -> Iterator[Path]:
    """Give a temporary path to write to, and rename it to ``path`` at the end; on any failure remove it.

    ``named``: whether the temporary path has the name of the file, in a folder of its own: for writers that go by the ending.
    A symbolic link stays: the file that it leads to is written. A file that was there passes its permissions on.

    Raises
    ------
    OutputError
        The folder does not exist or cannot be written, something else than a file has the name, or the disk is full.
    """
    try:
        place = destination(path)
        if not place.parent.exists():
            raise _no_folder(path, place)
        with _unfinished_as(place.parent, path.name) if named else unfinished_file(place.parent) as temporary:
            mode = _mode(place, temporary)
            temporary.chmod(mode | stat.S_IWUSR)  # before anything is in it
            yield temporary
            temporary.chmod(mode)
            # A rename inside one folder is atomic: readers find the old file or the new one, whole.
            temporary.replace(place)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}", hint="choose another folder, or free space") from error


def written_anew(stem: Path, first: int, write: Callable[[Path], Collection[Path]]) -> list[Path]:
    """Let files and folders be written under names that nobody has, and return them: ``stem-3.svg``, where 3 is the next free number.

    ``first``: the number to begin with.
    ``write``: takes a path; writes files or folders whose names begin as that path does, and returns them.

    Raises
    ------
    OutputError
        The folder cannot be written to.
    """
    folder = stem.parent
    try:
        with _unfinished(Path(os.path.realpath(writable_folder(folder))), _made_folder) as temporary:
            written = write(temporary / stem.name)
            number = first
            while True:
                names = {path: stem.with_name(f"{stem.name}-{number}{path.name.removeprefix(stem.name)}") for path in written}
                try:
                    _move_anew(names)
                except FileExistsError:
                    number += 1
                else:
                    return list(names.values())
    except OSError as error:
        raise OutputError(f"cannot write to folder {folder}: {error.strerror or error}", hint="choose another folder") from error


@contextmanager
def unfinished_file(folder: Path) -> Iterator[Path]:
    """Give an empty file with a temporary name, and remove it, unless it has got another name."""
    # Not mkstemp, whose files only the owner can read: to ask for the umask is to change it for all threads for a moment.
    with _unfinished(folder, lambda path: os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)) as temporary:
        yield temporary


@contextmanager
def _unfinished_as(folder: Path, name: str) -> Iterator[Path]:
    """Give an empty file of that name in a folder with a temporary name, and remove the folder."""
    with _unfinished(folder, _made_folder) as inside:
        (inside / name).touch()
        yield inside / name


@contextmanager
def _unfinished(folder: Path, make: Callable[[Path], int | None]) -> Iterator[Path]:
    """Give a file or folder with a temporary name, locked for as long as its writer lives, and remove it at the end.

    ``make``: takes the name; makes the file or folder, and returns it opened; None where another process has cleared it already.
    """
    clear_unfinished(folder)
    temporary: Path | None = None
    descriptor: int | None = None
    try:
        while temporary is None:
            with deferred():  # else Ctrl-C could leave a file that nobody knows of
                path = unfinished_name(folder)
                descriptor = make(path)
                if descriptor is not None and _lock(descriptor) is not False and path.exists():
                    temporary = path
                elif descriptor is not None:  # Another process is clearing the folder, and has found it before it was locked.
                    os.close(descriptor)
                    descriptor = None
        yield temporary
    finally:
        with deferred():
            if temporary is not None:
                _remove(temporary)
            if descriptor is not None:
                os.close(descriptor)


def unfinished_name(folder: Path) -> Path:
    """Return a temporary name that `clear_unfinished` knows. It is short, so that each name that a file can have can be written."""
    return folder / f".streamscope.{_boot()}.{os.urandom(8).hex()}.partial"


def clear_unfinished(folder: Path) -> None:
    """Remove files and folders with temporary names whose writers were killed.

    A living writer holds a lock, which ends with its process, however that ends. Of another machine's writers, and on file systems without
    locks, nothing is known: what they have left goes after a day. What other users have left stays.
    """
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if found := _UNFINISHED.fullmatch(entry.name):
                with suppress(OSError):
                    _clear(Path(entry.path), here=found["boot"] == _boot() != _UNKNOWN_BOOT)


def _clear(path: Path, *, here: bool) -> None:
    """Remove a temporary file or folder if its writer has gone; ``here``: whether the writer ran since this machine was started."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status, locked = os.fstat(descriptor), _lock(descriptor)
        gone = bool(locked and here) or (locked is not False and time.time() - status.st_mtime > _NOBODYS_S)
        if gone and status.st_uid == os.geteuid():
            _remove(path)
    finally:
        # This lets go of the lock, too.
        os.close(descriptor)


def _lock(descriptor: int) -> bool | None:
    """Lock an open file or folder; return whether that could be done, and None where it cannot be known."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # Some network file systems have no locks, or none of folders.
        return None
    return True


def _remove(path: Path) -> None:
    """Remove a file or a folder with all that is in it, as far as that can be done."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    with suppress(OSError):
        path.unlink(missing_ok=True)


@lru_cache(maxsize=1)
def _boot() -> str:
    """Return the beginning of a number that this machine has had since it was started, and no other one has."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")[:8]
    return _UNKNOWN_BOOT


def user_cache() -> Path:
    """Return the user's cache folder (XDG); a relative ``XDG_CACHE_HOME`` is ignored, as its specification says."""
    given = expanded(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    return given if given.is_absolute() else expanded("~/.cache")


def expanded(path: str) -> Path:
    """Return the path that a user means, the home folder in the place of ``~``: no shell expands the values of ``docker run -e``."""
    return given_path(path, error=OutputError)


def suffix_of(path: Path, *known: str, other: str | None = None) -> str:
    """Return the ending of a file's name, which says the format: one of ``known``; ``other`` for a name without one.

    Of several that fit, as ``.gz`` and ``.json.gz``, it is the longest.
    """
    *_, suffix = (path.suffix.lower() or other, *sorted((each for each in known if path.name.lower()[1:].endswith(each)), key=len))
    if suffix not in known:
        *others, last = known
        use = f"{', '.join(others)} or {last}" if others else last
        ends = f"ends with {path.suffix!r}" if path.suffix else "has no ending"
        raise OutputError(f"cannot write {path}: its name {ends}", hint=f"use {use}")
    return suffix


def destination(path: Path) -> Path:
    """Return the file that writing to a path makes or changes: where its links lead.

    Raises
    ------
    OSError
        The links lead in a circle, or through a place that is closed to you.
    OutputError
        A folder or a device is there. Renaming would take the place of ``/dev/null``, too.
    """
    with suppress(FileNotFoundError, NotADirectoryError):
        # The system knows more than the names: in a folder that everybody can write to, it follows no link of a stranger.
        if not stat.S_ISREG(mode := path.stat().st_mode):
            kind = "a folder" if stat.S_ISDIR(mode) else "no ordinary file"
            raise OutputError(f"cannot write {path}: it is {kind}", hint="choose another name")
    return Path(os.path.realpath(path))


def writable_file(path: Path) -> Path:
    """Make the folder of a file, and check that the file could be written there, before the work that it is to hold.

    Where a link leads, nobody asked for a folder: one that is not there is refused, as by `written_whole`.
    """
    try:
        place = destination(path)
        dangling = path.is_symlink() and not place.parent.exists()
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}", hint="choose another name") from error
    if dangling:
        raise _no_folder(path, place)
    writable_folder(place.parent)
    return path


def _no_folder(path: Path, place: Path) -> OutputError:
    return OutputError(f"cannot write {path}: there is no folder {place.parent}", hint="make it first, or choose another folder")


def writable_folder(path: Path, *, private: bool = False) -> Path:
    """Make a folder, or the one that a link leads to, unless it is there, and check that it can be written to.

    ``private``: whether it is made for you alone; see `make_private`.
    """
    try:
        if private:
            make_private(path)
        else:
            Path(os.path.realpath(path)).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path
    except OSError as error:
        raise OutputError(f"cannot write to folder {path}: {error.strerror or error}", hint="choose another folder") from error


def make_private(folder: Path) -> None:
    """Make a folder, and those above it that are not there, for you alone (0700). Folders that are there stay as they are."""
    place = Path(os.path.realpath(folder))
    for missing in reversed([path for path in (place, *place.parents) if not path.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)
    if not place.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))


@contextmanager
def filled_whole(folder: Path, *, last: str, older: Callable[[Path], Collection[str]] = lambda _: ()) -> Iterator[Path]:
    """Give a temporary folder inside ``folder`` to write files to, and move them out of it at the end, all or none.

    The folder is made, and found writable, before the body runs. On any failure it is left as it was. Of several processes that fill one
    folder, one after the other moves its files.

    ``last``: the file that names the others. It gets its name last, by one rename, so that all that it names is there.
    ``older``: takes the folder; returns the names of the files that go as soon as the new ones are there, and raises an `OutputError` if
        the folder has a file that must stay. It is called before the body runs, and again when the files move.

    Raises
    ------
    OutputError
        The folder cannot be made or written to, or a file in it must stay.
    """
    made: list[Path] = []
    try:
        place = Path(os.path.realpath(folder))
        made = [path for path in (place, *place.parents) if not path.exists()]
        writable_folder(folder)
        with _unfinished(place, _made_folder) as temporary:
            with _locked(place):
                older(folder)
            yield temporary
            with _locked(place):
                gone = {*older(folder)} - {path.name for path in temporary.iterdir()}
                # Under the lock: files of two writers would mix, and `last` would name those of the other.
                _move_files(temporary, place, last)
                for name in gone:
                    with suppress(OSError):  # Whatever holds it, what was asked for is there.
                        (place / name).unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(f"cannot write to folder {folder}: {error.strerror or error}", hint="choose another folder") from error
    finally:
        with deferred():
            for path in made:
                with suppress(OSError):  # It has our files in it, or somebody else's.
                    path.rmdir()


def _made_folder(path: Path) -> int | None:
    path.mkdir(mode=0o700)
    with suppress(FileNotFoundError):
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    return None


def _move_anew(names: Mapping[Path, Path]) -> None:
    """Give files and folders other names, all or none; raise `FileExistsError` if one is taken."""
    with deferred(), ExitStack() as undo:
        for path, name in names.items():
            # To make a name is to find it free: between a look and a rename, somebody else could take it.
            undo.callback(_claim(name, folder=path.is_dir()))
        for path, name in names.items():
            path.replace(name)
        # All have their names: there is nothing to take back any more.
        undo.pop_all()


def _claim(name: Path, *, folder: bool) -> Callable[[], None]:
    """Make an empty file or folder with a name that nobody has; return the function that removes it."""
    if folder:
        name.mkdir()
        return name.rmdir
    name.touch(exist_ok=False)
    return name.unlink


def _mode(*paths: Path) -> int:
    """Return the permissions of the first of several files that is there."""
    return stat.S_IMODE(next(path for path in paths if path.exists()).stat().st_mode)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one writer after the other move files into a folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for _ in range(LOCK_TRIES):
            if _lock(descriptor) is not False:
                break
            time.sleep(_LOCK_PAUSE_S)
        else:
            raise OutputError(
                f"cannot write to folder {folder}: another process keeps it locked", hint="wait for it, or choose another folder"
            )
        yield
    finally:
        os.close(descriptor)


def _move_files(source: Path, target: Path, last: str) -> None:
    """Give files their names in another folder, or where links in it lead; if one cannot have it, put everything back."""
    names = sorted((path.name for path in source.iterdir()), key=lambda name: (name == last, name))
    places = {name: destination(target / name) for name in names}
    with tempfile.TemporaryDirectory(dir=source) as before, deferred(), ExitStack() as undo:
        for name, place in places.items():
            new = source / name
            # New names have the permissions of the file that names them: who closed it to others closed all.
            new.chmod(_mode(place, target / last, new))
            if not place.exists():
                undo.callback(place.unlink, missing_ok=True)
            elif name != last:
                # A copy, so that no reader finds the place empty.
                undo.callback(_rename, Path(shutil.copy2(place, before)), place)
            _rename(new, place)
        undo.pop_all()


def _rename(source: Path, place: Path) -> None:
    """Give a file another name at once, on another disk, too."""
    try:
        source.replace(place)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        with unfinished_file(place.parent) as temporary:
            shutil.copy2(source, temporary)
            temporary.replace(place)
