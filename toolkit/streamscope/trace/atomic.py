"""Writing a file so that it is there whole or not at all."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from streamscope.errors import OutputError


@contextmanager
def atomic_file(path: str | Path) -> Iterator[BinaryIO]:
    """Open a new file beside ``path`` for writing, and give it that name once everything is written.

    An older file at ``path`` stays as it was until then. If anything fails, in the body or here, the new file is removed.

    Raises
    ------
    OutputError
        The folder does not exist or cannot be written, ``path`` is a folder, or the disk is full.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            yield file
        temporary.replace(path)
    except BaseException as error:
        _remove(temporary)
        if isinstance(error, OSError):
            reason = error.strerror or str(error)
            raise OutputError(f"cannot write {str(path)!r}: {reason}", hint="is the folder there, writable and not full?") from error
        raise


def _remove(temporary: Path) -> None:
    try:
        temporary.unlink(missing_ok=True)
    except OSError:  # the folder itself is not one; the first error says so
        return
