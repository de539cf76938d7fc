"""NVTX ranges of operations and labels, on request, so that Nsight Systems and `ss.record` show the names that Streamscope knows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from streamscope.arguments import shown
from streamscope.errors import EngineError
from streamscope.interrupts import Alive, deferred


class Opened:
    """Ranges that a run has opened on its thread, one inside the other."""

    def __init__(self, push: Callable[[str], object], pop: Callable[[], object]) -> None:
        self._push, self._pop = push, pop
        self._depth = 0
        self._labels: tuple[str, ...] = ()

    def push(self, name: str) -> None:
        """Open a range. Ctrl-C must not come before it is counted: it would stay open, around all that follows on this thread."""
        with deferred():
            self._push(name)
            self._depth += 1

    def pop(self) -> None:
        """Close the innermost one."""
        with deferred():
            self._depth -= 1
            self._pop()

    def label(self, labels: Sequence[str]) -> None:
        """Close the labels that are over, and open new ones: neighbouring operations of a label share a range."""
        shared = 0
        for before, now in zip(self._labels, labels, strict=False):
            if before != now:
                break
            shared += 1
        for _ in self._labels[shared:]:
            self.pop()
        self._labels = self._labels[:shared]
        for name in labels[shared:]:
            self.push(name)
        self._labels = tuple(labels)

    def close(self) -> None:
        """Close all, also those of a call that failed."""
        while self._depth:
            self.pop()


class Watching(Protocol):
    """Has to know when ranges are wanted or not any more."""

    def apply(self) -> None:
        """Begin or end to make ranges, as is wanted now."""


class NvtxRanges:
    """Whether ranges are made in this process, and how."""

    def __init__(self) -> None:
        self.on = False
        self._functions: tuple[Callable[[str], object], Callable[[], object]] | None = None
        self._watching = Alive[int, Watching]()

    def opened(self) -> Opened | None:
        """Return what opens ranges for one run, None where none are wanted."""
        functions = self._functions
        return Opened(*functions) if self.on and functions is not None else None

    def tell(self, watching: Watching) -> None:
        """Call ``watching.apply()`` whenever ranges are switched on or off, for as long as it is there."""
        self._watching[id(watching)] = watching

    def switch(self, *, on: bool) -> None:
        """Make ranges from now on, or no more."""
        if on:
            self._functions = _functions()
        self.on = on
        for watching in self._watching.values():
            watching.apply()


RANGES = NvtxRanges()
"""Of the process, as NVTX is."""


def nvtx(on: bool = True) -> None:  # noqa: FBT001, FBT002 - ss.nvtx(False) reads as what it does
    """Make NVTX ranges of the names of programs, labels and operations, around the host's calls that issue them.

    Nsight Systems and `record` then show them. A run of a program is a range, in it are its labels, in them its operations and host
    functions. Operations and host functions that are pushed to an `Engine` are a range each. A graph is one range around its launch; its
    nodes have none. Runs that a recorder carries out, as in `compare`, have none. It holds for the whole process and all engines, until
    ``ss.nvtx(False)``; then nothing costs more than before.

    Parameters
    ----------
    on : bool

    Raises
    ------
    EngineError
        Neither the package ``nvtx`` nor CuPy is installed; or ``on`` is not a truth value.

    Examples
    --------
    You need ``nvtx`` or CuPy to make ranges, and a GPU to record them::

        ss.nvtx(True)                      # nsys profile python script.py
        with ss.record("step") as recording:
            prepared.run()
        recording.trace                    # the ranges are on the lane of the thread

    >>> ss.nvtx(False)  # No ranges from now on; it needs no package.
    """
    if not isinstance(on, bool):
        raise EngineError(f"ss.nvtx(on={shown(on)}) takes True or False")
    RANGES.switch(on=on)


def _functions() -> tuple[Callable[[str], Any], Callable[[], Any]]:
    try:
        from nvtx import pop_range, push_range
    except ImportError:
        try:
            from cupy.cuda.nvtx import RangePop, RangePush
        except ImportError:
            raise EngineError("ss.nvtx needs a package that makes NVTX ranges", hint="pip install nvtx, or CuPy") from None
        return RangePush, RangePop
    return push_range, pop_range
