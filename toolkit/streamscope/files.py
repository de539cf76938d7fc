"""Files that are whole or not there."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_urlsafe

from streamscope.errors import OutputError
from streamscope.interrupts import deferred


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Give a temporary path in the same folder to write to, and rename it to ``path`` at the end; on any failure remove it.

    Raises
    ------
    OutputError
        The folder does not exist or cannot be written, something else than a file has the name, or the disk is full.
    """
    temporary = None
    try:
        _check_ordinary(path)
        with deferred():  # else Ctrl-C could leave a file that nobody knows of
            name = path.parent.absolute() / f".{path.name}.{token_urlsafe(6)}.partial"
            # Not mkstemp, whose files only the owner can read: to ask for the umask is to change it for all threads for a moment.
            name.touch(exist_ok=False)
            temporary = name
        yield temporary
        temporary.replace(path)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}", hint="choose another folder, or free space") from error
    finally:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


def user_cache() -> Path:
    """Return the user's cache folder (XDG); a relative ``XDG_CACHE_HOME`` is ignored, as its specification says.

    Raises
    ------
    OutputError
        There is no home folder to look in.
    """
    given = expanded(os.environ.get("XDG_CACHE_HOME", ""))
    return given if given.is_absolute() else expanded("~/.cache")


def expanded(path: str) -> Path:
    """Return the path that a user means, the home folder in the place of ``~``: no shell has seen what ``docker run -e`` sets.

    Raises
    ------
    OutputError
        There is no such home folder.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise OutputError(f"there is no home folder for {path}", hint="set HOME, or write the whole path") from None


def writable_file(path: Path) -> Path:
    """Make the folder of a file, and check that the file could be written there, before the work that it is to hold.

    Raises
    ------
    OutputError
        It could not.
    """
    writable_folder(path.parent)
    try:
        _check_ordinary(path)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}", hint="choose another name") from error
    return path


def writable_folder(path: Path) -> Path:
    """Make a folder, unless it is there, and check that it can be written to.

    Raises
    ------
    OutputError
        It cannot.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path
    except OSError as error:
        raise OutputError(f"cannot write to folder {path}: {error.strerror or error}", hint="choose another folder") from error


@contextmanager
def filled_whole(folder: Path) -> Iterator[Path]:
    """Give a temporary folder inside ``folder`` to write files to, and move them out of it at the end, all or none.

    The folder is made, and found writable, before the body runs. On any failure it is left as it was.

    Raises
    ------
    OutputError
        The folder cannot be made or written to, or a folder has the name of one of the files.
    """
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    temporary = None
    try:
        with deferred():
            temporary = Path(tempfile.mkdtemp(dir=writable_folder(folder), prefix=".streamscope."))
        yield temporary
        _move_files(temporary, folder)
        shutil.rmtree(temporary, ignore_errors=True)
    except BaseException as error:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
        for path in made:
            with suppress(OSError):  # Somebody else may have put something into it.
                path.rmdir()
        if isinstance(error, OSError):
            raise OutputError(f"cannot write to folder {folder}: {error.strerror or error}", hint="choose another folder") from error
        raise


def _check_ordinary(path: Path) -> None:
    """Check that no folder or device has a name that a file is to get: renaming would take the place of ``/dev/null``, too."""
    if path.exists() and not path.is_file():
        kind = "a folder" if path.is_dir() else "no ordinary file"
        raise OutputError(f"cannot write {path}: it is {kind}", hint="choose another name")


def _move_files(source: Path, target: Path) -> None:
    files = sorted(source.iterdir())
    for file in files:
        if (target / file.name).is_dir():
            raise OutputError(
                f"cannot write {target / file.name}: there is a folder of that name", hint="remove it, or choose another folder"
            )
    for file in files:
        file.replace(target / file.name)
