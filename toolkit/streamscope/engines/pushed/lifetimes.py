"""Lifetimes of variables: made, deleted in their turn, their memory given back behind their last users."""

from __future__ import annotations

from collections import deque
from functools import partial
from itertools import count

from streamscope.engines.pushed.catalogue import Catalogue
from streamscope.engines.pushed.issuing import Issuer
from streamscope.engines.pushed.scheduler import Scheduler
from streamscope.engines.pushed.variable import DynamicVariable, Handle, VariableState
from streamscope.program.variable import ArraySpec, Place

_NUMBERS = count()
"""Numbers of variables, of all engines: the quick way of a push knows a variable by its number alone."""


class Lifetimes:
    """The variables of one engine.

    Attributes
    ----------
    live : dict of int to VariableState
        Those that have not been deleted.
    dropped : deque of Handle
        Those that Python has let go; see `collect`.
    """

    def __init__(self, issuer: Issuer, scheduler: Scheduler, catalogue: Catalogue) -> None:
        self.live: dict[int, VariableState] = {}
        self.dropped: deque[Handle] = deque()
        self._issuer = issuer
        self._scheduler = scheduler
        self._catalogue = catalogue
        self._unnamed = count()

    def new(self, spec: ArraySpec, place: Place, name: str | None) -> DynamicVariable:
        """Make a variable; it gets memory when it is first written."""
        number = next(_NUMBERS)
        state = VariableState(number, spec, place, name or f"variable {next(self._unnamed)}")
        made = DynamicVariable(state, self.dropped)
        with self._issuer.lock:
            self.live[number] = state
        return made

    def delete(self, state: VariableState) -> None:
        """Delete a variable after all earlier users; the caller holds the lock and has put off Ctrl-C."""
        if not state.deleted:
            state.deleted = True
            self._scheduler.take_turn((), (state,), partial(self._release, state))

    def collect(self) -> None:
        """Delete what Python has let go; the caller holds the lock and has put off Ctrl-C."""
        while self.dropped:
            state = self.live.get(self.dropped.popleft().number)
            if state is not None:
                self.delete(state)

    def clear(self) -> None:
        """Delete all variables, of which nothing is in use any more; the caller holds the lock and has put off Ctrl-C."""
        for state in list(self.live.values()):
            state.deleted = True
            self._release(state)
        self.dropped.clear()
        self._issuer.memory.trim(wait=True)

    def _release(self, state: VariableState) -> None:
        self._catalogue.forget(state)
        self.live.pop(state.id, None)
        buffer, state.buffer = state.buffer, None
        if buffer is not None:
            latest = {stamp.lane: stamp for stamp in sorted(state.users, key=lambda stamp: stamp.position)}
            self._issuer.memory.free(buffer, [(self._issuer.lanes[stamp.lane].stream, stamp.lease) for stamp in latest.values()])
        state.fault = None
        state.forget()
