"""Which engine and how many threads: arguments, the environment variable, and what is wrong with them."""

from __future__ import annotations

import os

from streamscope.engines import PLANNERS
from streamscope.errors import EngineError

ENGINE_VARIABLE = "STREAMSCOPE_ENGINE"
DEFAULT_ENGINE = "async"


def chosen_engine(name: object) -> str:
    """Return the name of an engine: the argument, else the environment variable's, else ``"async"``.

    Raises
    ------
    EngineError
        It is unknown; the message says where it came from.
    """
    variable = os.environ.get(ENGINE_VARIABLE, "")
    chosen = name if name is not None else variable.strip() or DEFAULT_ENGINE
    if not isinstance(chosen, str) or chosen not in PLANNERS:
        origin = "" if name is not None else f" in the environment variable {ENGINE_VARIABLE}"
        raise EngineError(f"unknown engine {chosen!r}{origin}", hint=f"choose from {', '.join(PLANNERS)}")
    return chosen


def checked_workers(count: object, argument: str) -> int:
    """Return a number of threads.

    Raises
    ------
    EngineError
        It is no whole number above 0.
    """
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise EngineError(f"{argument}={count!r} is not a whole number above 0", hint="threads are started only when they are needed")
    return count
