"""The user's line that applied an operator, and its text."""

from __future__ import annotations

import linecache
import os.path
import sys
from collections.abc import Callable
from traceback import walk_tb
from types import FrameType
from typing import NamedTuple

from streamscope.tracebacks import is_known, is_ours


def user_line() -> str:
    """Return ``file:line`` of the nearest frame that is not this package's own; in a notebook ``In[3]:line``."""
    frame = user_frame()
    return _where(frame.f_code.co_filename, frame.f_lineno)


def user_function() -> str:
    """Return the name of the function in which that line stands; "function" where it stands in none."""
    name = user_frame(lambda module: is_ours(module) or module == "contextlib").f_code.co_name
    return name if name.isidentifier() else "function"


class UserLine(NamedTuple):
    """A line of the user's: ``"file.py:12"``, and its text, which is empty where the source is not to be had."""

    where: str
    source: str


class UserLines:
    """Finds the user's lines of one program, each looked up once."""

    def __init__(self) -> None:
        self.instead: UserLine | None = None
        """Line that stands for all from now on: the user's function has returned, and the nearest line is one that called us."""
        self._found: dict[tuple[str, int], UserLine] = {}
        self._files: set[str] = set()

    def here(self) -> UserLine:
        """Return the line that `user_line` names, and its text."""
        return self.instead or self.of(user_frame())

    def of(self, frame: FrameType) -> UserLine:
        """Return the line at which a frame stands, and its text."""
        key = frame.f_code.co_filename, frame.f_lineno
        line = self._found.get(key)
        if line is None:
            if key[0] not in self._files:
                self._files.add(key[0])
                linecache.checkcache(key[0])  # a file may have changed since, as a reloaded module
            line = self._found[key] = UserLine(_where(*key), linecache.getline(*key, frame.f_globals).strip())
        return line


def line_of_error(error: BaseException) -> UserLine | None:
    """Return the last of the user's lines that an error came through; None if it came through none."""
    frames = [(frame, number) for frame, number in walk_tb(error.__traceback__) if not is_known(frame.f_globals.get("__name__", ""))]
    if not frames:
        return None
    frame, number = frames[-1]
    path = frame.f_code.co_filename
    linecache.checkcache(path)
    return UserLine(_where(path, number), linecache.getline(path, number, frame.f_globals).strip())


def user_frame(skipped: Callable[[str], bool] = is_ours) -> FrameType:
    """Return the innermost frame whose module's name is not skipped, or else the outermost of all."""
    frame = sys._getframe(1)  # noqa: SLF001 — inspect.stack() reads source files, which takes longer than all the rest of tracing
    while frame.f_back is not None and skipped(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    return frame


def _where(path: str, number: int) -> str:
    name = cell_name(path) or os.path.basename(path)  # noqa: PTH119 — each operation asks, and a Path takes ten times as long
    return f"{name}:{number}"


def cell_name(path: str) -> str | None:
    """Return IPython's name of the cell whose code it keeps under a path; None for a file."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    named = shell.compile.format_code_name(path) if shell is not None else None
    return named[1] if named else None
