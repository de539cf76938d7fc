"""Which of the user's lines applied an operator."""

from __future__ import annotations

import os.path
import sys


def user_line() -> str:
    """Return ``file:line`` of the nearest frame that is not this package's own; in a notebook ``In[3]:line``."""
    frame = sys._getframe(1)  # noqa: SLF001 — inspect.stack() reads source files, which takes longer than all the rest of tracing
    while frame.f_back is not None and _is_ours(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    path = frame.f_code.co_filename
    name = _cell_name(path) or os.path.basename(path)  # noqa: PTH119 — each operation asks, and a Path takes ten times as long
    return f"{name}:{frame.f_lineno}"


def _is_ours(module: str) -> bool:
    # A ready workload is written as a user would write it, so its lines count as the user's.
    return module.startswith("streamscope.") and not module.startswith("streamscope.workloads.")


def _cell_name(path: str) -> str | None:
    """Return what IPython calls the cell whose code it keeps under a path; None for a file."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    named = shell.compile.format_code_name(path) if shell is not None else None
    return named[1] if named else None
