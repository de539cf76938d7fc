"""Errors that are kept: without our own frames, which would keep memory with them and say nothing to the user."""

from __future__ import annotations

from types import TracebackType


def kept(error: BaseException) -> BaseException:
    """Return an error as it can be kept for long: frames of this package are taken out of its traceback, and of those it came from.

    They hold operations and variables, and these hold what went wrong with them: a cycle, which would stay until the collector runs. What
    is no `Exception` but ends the program is raised on, which puts the frames back in. So of that it is another one, without a traceback.
    """
    if not isinstance(error, Exception):
        return _another(error)
    told: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is not None and id(one) not in told:
            told.add(id(one))
            one.__traceback__ = _of_others(one.__traceback__)
            left += [one.__cause__, one.__context__]
    return error


def _another(error: BaseException) -> BaseException:
    """Return an error of the same class, made by Python's own class that it is derived from: a user's may want other arguments."""
    base = next(each for each in type(error).__mro__ if each.__module__ == "builtins")
    arguments = (error.message, error.exceptions) if isinstance(error, BaseExceptionGroup) else error.args
    another: BaseException = base.__new__(type(error), *arguments)
    return another


def _of_others(traceback: TracebackType | None) -> TracebackType | None:
    """Link the entries of a traceback that are not ours."""
    first: TracebackType | None = None
    last: TracebackType | None = None
    while traceback is not None:
        following = traceback.tb_next
        if not str(traceback.tb_frame.f_globals.get("__name__", "")).startswith("streamscope."):
            if last is None:
                first = traceback
            else:
                last.tb_next = traceback
            last = traceback
        traceback = following
    if last is not None:
        last.tb_next = None
    return first
