"""Watching a pushed engine: host time and NVTX range of each operation. An engine that is not watched runs the same code as ever."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter_ns
from typing import Any
from weakref import ref

from streamscope.engines.host_totals import HOST_FUNCTION, OPERATION, HostSums
from streamscope.engines.nvtx_ranges import RANGES
from streamscope.engines.pushed.catalogue import Application
from streamscope.engines.pushed.host_operations import HostFunction
from streamscope.engines.pushed.issuing import Issuer
from streamscope.words import listed

_MOST_NAMED = 3
"""Operations of a bulk that are named."""


class Watch:
    """Puts a watched way of issuing before an issuer's own, while somebody wants to know; takes it away again."""

    def __init__(self, issuer: Issuer, sums: HostSums) -> None:
        self.sums = sums
        self._issuer = issuer
        self._watches = False
        RANGES.tell(self)
        self.apply()

    @property
    def wanted(self) -> bool:
        """Whether somebody wants to know."""
        return self.sums.counting or RANGES.on

    def apply(self) -> None:
        """Begin or end to watch, as is wanted now."""
        # Of the instance, so that an engine that is not watched pays nothing. Not by `vars`: Python finds attributes more slowly once
        # somebody has asked for an object's. Weak, or the engine's memory would wait for Python's collector of cycles.
        if self.wanted:
            setattr(self._issuer, "issue", partial(_issue, ref(self._issuer), self.sums))  # noqa: B010 — no type checker lets a method be set
        elif self._watches:
            del self._issuer.issue
        self._watches = self.wanted

    def host(self, function: HostFunction) -> None:
        """Watch a host operation that is about to be queued."""
        if self.wanted:
            function.function = partial(_called, self.sums, function.name, function.function)


def _issue(
    issuing: Callable[[], Issuer | None], sums: HostSums, application: Application, where: str | None = None, pushed: int | None = None
) -> None:
    """Issue an operation as `Issuer.issue` does, and count it."""
    issuer = issuing()
    assert issuer is not None
    opened = RANGES.opened()
    start_ns = perf_counter_ns()
    try:
        if opened is not None:
            opened.push(name_of(application))
        Issuer.issue(issuer, application, where, pushed)
    finally:
        if opened is not None:
            opened.close()
    took_ns = perf_counter_ns() - start_ns
    # A skipped or failed one leaves its fault where it writes.
    failed = issuer.faults.live and any(state.fault is not None for state in application.writes)
    if sums.counting and not failed:
        sums.add((OPERATION, name_of(application)), took_ns)


def name_of(application: Application) -> str:
    """Return the name of an operation, or of a bulk: ``"bulk of 5: add, relu, add and 2 more"``."""
    parts = application.parts
    if len(parts) == 1:
        return parts[0].name
    names = [part.name for part in parts]
    few = ", ".join(names[:_MOST_NAMED]) + f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else listed(names)
    return f"bulk of {len(names)}: {few}"


def _called(sums: HostSums, name: str, function: Callable[..., Any], *arrays: Any, **attributes: Any) -> Any:
    """Call a host function, and count it."""
    opened = RANGES.opened()
    start_ns = perf_counter_ns()
    try:
        if opened is not None:
            opened.push(name)
        result = function(*arrays, **attributes)
    finally:
        if opened is not None:
            opened.close()
    if sums.counting:
        sums.add((HOST_FUNCTION, name), perf_counter_ns() - start_ns)
    return result
