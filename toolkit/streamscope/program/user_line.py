"""The user's line that applied an operator, and its text."""

from __future__ import annotations

import linecache
import os.path
import sys
from collections.abc import Callable, Iterable, Sequence
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
        self._files: dict[str, str] = {}
        """Name that the lines of each file have, by its path: no two have one name."""

    def here(self) -> UserLine:
        """Return the line that `user_line` names, and its text."""
        return self.instead or self.of(user_frame())

    def of(self, frame: FrameType) -> UserLine:
        """Return the line at which a frame stands, and its text."""
        key = frame.f_code.co_filename, frame.f_lineno
        line = self._found.get(key)
        if line is None:
            if key[0] not in self._files:
                self._files[key[0]] = told_apart([*self._files, key[0]])[key[0]]
                linecache.checkcache(key[0])  # a file may have changed since, as a reloaded module
            line = self._found[key] = UserLine(f"{self._files[key[0]]}:{key[1]}", linecache.getline(*key, frame.f_globals).strip())
        return line

    def renamed(self) -> dict[str, str]:
        """Return new names of files by those that their lines have: of two ``layers.py``, the first got its name before the second came."""
        names = told_apart(self._files)
        return {had: names[path] for path, had in self._files.items() if names[path] != had}


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
    return f"{_name(path)}:{number}"


def _name(path: str) -> str:
    return cell_name(path) or os.path.basename(path)  # noqa: PTH119 — each operation asks, and a Path takes ten times as long


def told_apart(paths: Iterable[str]) -> dict[str, str]:
    """Return the name of each file, with as many of its folders as tell it from the others.

    Examples
    --------
    >>> from streamscope.program.user_line import told_apart
    >>> told_apart(["/home/me/a/layers.py", "/home/me/b/layers.py", "/home/me/train.py"])
    {'/home/me/a/layers.py': 'a/layers.py', '/home/me/b/layers.py': 'b/layers.py', '/home/me/train.py': 'train.py'}
    """
    of_name = dict[str, list[str]]()
    for path in paths:
        of_name.setdefault(_name(path), []).append(path)
    return {path: _tail(path, same) if len(same) > 1 else name for name, same in of_name.items() for path in same}


def _tail(path: str, same: Sequence[str]) -> str:
    """Return the end of a path that no other path of the same name has."""
    parts = path.replace("\\", "/").split("/")
    others = [other.replace("\\", "/").split("/") for other in same if other != path]
    length = next((size for size in range(1, len(parts)) if all(other[-size:] != parts[-size:] for other in others)), len(parts))
    return "/".join(parts[-length:])


def cell_name(path: str) -> str | None:
    """Return IPython's name of the cell whose code it keeps under a path; None for a file."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    named = shell.compile.format_code_name(path) if shell is not None else None
    return named[1] if named else None
