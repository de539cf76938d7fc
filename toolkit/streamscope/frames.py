"""Which frames of a traceback are the user's, and what a notebook shows of an error of ours: the user's lines and our sentence."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType

BETWEEN = ("streamscope_widgets", "IPython", "ipykernel", "traitlets", "contextlib", "functools")
"""What stands between the user's lines and ours."""
ALL = "(%tb shows what Streamscope did)"


def is_ours(module: str) -> bool:
    """Tell whether a module is this package's. A ready workload is written as a user would write it, so its lines count as the user's."""
    return module.startswith("streamscope.") and not module.startswith("streamscope.workloads.")


def notebook_traceback(error: BaseException) -> list[str]:
    """Return what IPython shows of an error of ours, in the shell's own style; ``%tb`` gets everything."""
    from IPython import get_ipython

    shell = get_ipython()
    if _is_asked_for_all():
        return list(shell.InteractiveTB.structured_traceback(type(error), error, error.__traceback__))
    with _users_frames_only(error):
        shown = list(shell.InteractiveTB.structured_traceback(type(error), error, error.__traceback__, tb_offset=0))
    return [*shown, ALL]


@contextmanager
def _users_frames_only(error: BaseException) -> Iterator[None]:
    """Leave the user's frames alone in the tracebacks of an error and of those that led to it, while the block runs."""
    before: dict[BaseException, TracebackType | None] = {}
    reached: BaseException | None = error
    while reached is not None and reached not in before:
        before[reached] = reached.__traceback__
        reached = reached.__cause__ or (None if reached.__suppress_context__ else reached.__context__)
    try:
        for one, trace in before.items():
            one.__traceback__ = _without_ours(trace)
        yield
    finally:
        for one, trace in before.items():
            one.__traceback__ = trace


def _without_ours(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback of the user's frames, and of those of other libraries below them."""
    if trace is None:
        return None
    rest = _without_ours(trace.tb_next)
    if _is_between(trace.tb_frame) or _calls_magic(trace):
        return rest
    return TracebackType(rest, trace.tb_frame, trace.tb_lasti, trace.tb_lineno)


def _calls_magic(trace: TracebackType) -> bool:
    """Tell whether a frame is what IPython makes of a magic's line, in words that the user did not write."""
    called = trace.tb_next.tb_frame if trace.tb_next is not None else None
    return (
        called is not None
        and called.f_code.co_name in ("run_cell_magic", "run_line_magic")
        and called.f_globals.get("__name__") == "IPython.core.interactiveshell"
    )


def _is_between(frame: FrameType) -> bool:
    module = str(frame.f_globals.get("__name__", ""))
    return is_ours(module) or module.partition(".")[0] in BETWEEN


def _is_asked_for_all() -> bool:
    """Tell whether ``%tb`` asks."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 — as in `user_line`
    while frame is not None:
        if frame.f_code.co_name == "tb" and frame.f_globals.get("__name__") == "IPython.core.magics.execution":
            return True
        frame = frame.f_back
    return False
