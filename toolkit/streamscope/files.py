"""Files that are whole or not there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from streamscope.errors import OutputError


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Give a temporary path in the same folder to write to, and rename it to ``path`` at the end; on any failure remove it.

    Raises
    ------
    OutputError
        The folder does not exist or cannot be written, or the disk is full.
    """
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial")
        os.close(handle)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}", hint="choose another folder, or free space") from error
    temporary = Path(name)
    try:
        yield temporary
        # mkstemp makes files that only the owner can read; give what an ordinary file would have.
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(path)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}", hint="choose another folder, or free space") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


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
