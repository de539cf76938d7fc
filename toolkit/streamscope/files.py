"""Files that are whole or not there."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from secrets import token_urlsafe

from streamscope.arguments import given_path
from streamscope.errors import OutputError
from streamscope.interrupts import deferred

LOCK_TRIES, LOCK_PAUSE_S = 1500, 0.02
"""A folder is locked while its files get their names, which takes milliseconds: who waits longer waits for somebody else's lock."""


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Give a temporary path in the same folder to write to, and rename it to ``path`` at the end; on any failure remove it.

    A file that was there passes its permissions on.

    Raises
    ------
    OutputError
        The folder does not exist or cannot be written, something else than a file has the name, or the disk is full.
    """
    temporary = None
    if not path.parent.exists():
        raise OutputError(f"cannot write {path}: there is no folder {path.parent}", hint="make it first, or choose another folder")
    try:
        check_ordinary(path)
        with deferred():  # else Ctrl-C could leave a file that nobody knows of
            name = path.parent.absolute() / f".{path.name}.{token_urlsafe(6)}.partial"
            # Not mkstemp, whose files only the owner can read: to ask for the umask is to change it for all threads for a moment.
            name.touch(exist_ok=False)
            temporary = name
        mode = _mode(path, temporary)
        temporary.chmod(mode | stat.S_IWUSR)  # before anything is in it
        yield temporary
        temporary.chmod(mode)
        temporary.replace(path)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}", hint="choose another folder, or free space") from error
    finally:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


def user_cache() -> Path:
    """Return the user's cache folder (XDG); a relative ``XDG_CACHE_HOME`` is ignored, as its specification says."""
    given = expanded(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    return given if given.is_absolute() else expanded("~/.cache")


def expanded(path: str) -> Path:
    """Return the path that a user means, the home folder in the place of ``~``: no shell has seen what ``docker run -e`` sets."""
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


def check_ordinary(path: Path) -> None:
    """Check that no folder or device has a name that a file is to get: renaming would take the place of ``/dev/null``, too."""
    try:
        path.lstat()
    except FileNotFoundError:
        return
    if not path.is_file():
        kind = "a folder" if path.is_dir() else "no ordinary file"
        raise OutputError(f"cannot write {path}: it is {kind}", hint="choose another name")


def writable_file(path: Path) -> Path:
    """Make the folder of a file, and check that the file could be written there, before the work that it is to hold."""
    writable_folder(path.parent)
    try:
        check_ordinary(path)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}", hint="choose another name") from error
    return path


def writable_folder(path: Path) -> Path:
    """Make a folder, unless it is there, and check that it can be written to."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path
    except OSError as error:
        raise OutputError(f"cannot write to folder {path}: {error.strerror or error}", hint="choose another folder") from error


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
    temporary = None
    try:
        made = [path for path in (folder, *folder.parents) if not path.exists()]
        with deferred():
            temporary = Path(tempfile.mkdtemp(dir=writable_folder(folder), prefix=".streamscope."))
        with _locked(folder):
            older(folder)
        yield temporary
        with _locked(folder):
            gone = {*older(folder)} - {path.name for path in temporary.iterdir()}
            _move_files(temporary, folder, last)
            for name in gone:
                with suppress(OSError):  # Whatever holds it, what was asked for is there.
                    (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(f"cannot write to folder {folder}: {error.strerror or error}", hint="choose another folder") from error
    finally:
        with deferred():
            if temporary is not None:
                shutil.rmtree(temporary, ignore_errors=True)
            for path in made:
                with suppress(OSError):  # It has our files in it, or somebody else's.
                    path.rmdir()


def _mode(*paths: Path) -> int:
    """Return the permissions of the first of several files that is there."""
    return stat.S_IMODE(next(path for path in paths if path.exists()).stat().st_mode)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one writer after the other move files into a folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for _ in range(LOCK_TRIES):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(LOCK_PAUSE_S)
            except OSError:  # Some network file systems lock no folders.
                break
        else:
            raise OutputError(
                f"cannot write to folder {folder}: another process keeps it locked", hint="wait for it, or choose another folder"
            )
        yield
    finally:
        os.close(descriptor)


def _move_files(source: Path, target: Path, last: str) -> None:
    """Give files their names in another folder; if one cannot have it, put everything back."""
    names = sorted((path.name for path in source.iterdir()), key=lambda name: (name == last, name))
    for name in names:
        check_ordinary(target / name)
    with tempfile.TemporaryDirectory(dir=source) as before, deferred(), ExitStack() as undo:
        for name in names:
            new, place = source / name, target / name
            # New names have the permissions of the file that names them: who closed it to others closed all.
            new.chmod(_mode(place, target / last, new))
            if not place.exists():
                undo.callback(place.unlink, missing_ok=True)
            elif name != last:
                # A copy, so that no reader finds the place empty.
                undo.callback(Path(shutil.copy2(place, before)).replace, place)
            new.replace(place)
        undo.pop_all()
