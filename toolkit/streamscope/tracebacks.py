"""The user's frames of a traceback, and a notebook's display of an error that left a verb: the user's lines and a sentence."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import Any

_BETWEEN = ("streamscope_widgets", "IPython", "ipykernel", "traitlets", "contextlib", "functools")
"""Separator between the user's lines and ours."""
_LIBRARIES = ("numpy", "cupy", "cupyx", "cupy_backends", "torch", "torchvision", "triton", "numba", "jax", "jaxlib")
"""Whose lines are not the user's either."""
ALL = "(%tb shows what Streamscope did)"


def is_ours(module: str) -> bool:
    """Tell whether a module is this package's. A ready workload is written as a user would write it, so its lines count as the user's."""
    return module.startswith("streamscope.") and not module.startswith("streamscope.workloads.")


def is_known(module: str) -> bool:
    """Tell whether a module is ours, Python's, or installed: its lines are not the user's."""
    top = module.partition(".")[0]
    nvidias = module.startswith(("cuda.core.", "cuda.bindings."))  # Others may have a module named cuda.
    return nvidias or top in (*_LIBRARIES, *_BETWEEN) or top in sys.stdlib_module_names - {"__main__"} or is_ours(module)


@contextmanager
def users_lines_shown() -> Iterator[None]:
    """Let a notebook show the user's lines of errors in the block, Ctrl-C and the user's own errors included; those are raised on.

    IPython asks an error whether it wants to be shown in a way of its own, so errors that never came here are shown as ever.
    """
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        if _shell() is not None and not hasattr(error, "_render_traceback_"):
            with suppress(Exception):  # a class of the user's may take no attribute
                # The function does not hold the error: it and all that its frames hold would stay until the next garbage collection.
                error._render_traceback_ = _traceback_now  # type: ignore[union-attr]
        raise


def _traceback_now() -> list[str]:
    """Return IPython's display of the current error."""
    _, error, _ = _shell()._get_exc_info()  # noqa: SLF001 — as it found the error itself
    return notebook_traceback(error)


def _shell() -> Any:
    """Return IPython's shell, if this runs in one."""
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None


def notebook_traceback(error: BaseException) -> list[str]:
    """Return the display of an error in the shell's own style: the user's lines alone. ``%tb`` gets everything."""
    shell = _shell()
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
            one.__traceback__ = _without_ours(trace, interrupted=isinstance(error, KeyboardInterrupt))
        yield
    finally:
        for one, trace in before.items():
            one.__traceback__ = trace


def _without_ours(trace: TracebackType | None, *, interrupted: bool) -> TracebackType | None:
    """Return a traceback of the user's frames, and of those of other libraries below them, but for where Ctrl-C happened to arrive."""
    if trace is None:
        return None
    rest = _without_ours(trace.tb_next, interrupted=interrupted)
    module = str(trace.tb_frame.f_globals.get("__name__", ""))
    if is_ours(module) or module.partition(".")[0] in _BETWEEN or (interrupted and is_known(module)) or _calls_magic(trace):
        return rest
    return TracebackType(rest, trace.tb_frame, trace.tb_lasti, trace.tb_lineno)


def _calls_magic(trace: TracebackType) -> bool:
    """Tell whether a frame is IPython's translation of a magic's line, which the user did not write."""
    called = trace.tb_next.tb_frame if trace.tb_next is not None else None
    return (
        called is not None
        and called.f_code.co_name in ("run_cell_magic", "run_line_magic")
        and called.f_globals.get("__name__") == "IPython.core.interactiveshell"
    )


def _is_asked_for_all() -> bool:
    """Tell whether ``%tb`` asks."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 — as in `user_line`
    while frame is not None:
        if frame.f_code.co_name == "tb" and frame.f_globals.get("__name__") == "IPython.core.magics.execution":
            return True
        frame = frame.f_back
    return False
