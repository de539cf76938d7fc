"""Variables of one engine: made, filled, read and deleted, in order with all other operations."""

from __future__ import annotations

from collections import deque
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from streamscope.arrays import Array
from streamscope.engines.pushed.arguments import Asked
from streamscope.engines.pushed.host_operations import HostFunction
from streamscope.engines.pushed.variable import FIRST, Handle, PushedVariable, VariableState
from streamscope.errors import ProgramError
from streamscope.interrupts import deferred
from streamscope.ops.host import to_device, to_host
from streamscope.program.user_line import user_line
from streamscope.program.variable import ArraySpec, MemoryPlace, host_array

if TYPE_CHECKING:
    from streamscope.engines.pushed.catalogue import Catalogue
    from streamscope.engines.pushed.issuing import Issuer
    from streamscope.engines.pushed.pushing import Pusher
    from streamscope.engines.pushed.scheduler import Scheduler, TimeLimit


_NUMBERS = count()
"""Numbers of variables, of all engines: the quick way of a push knows a variable by its number alone."""


class Lifetimes:
    """The variables of one engine."""

    def __init__(self, issuer: Issuer, scheduler: Scheduler, catalogue: Catalogue) -> None:
        self.live: dict[int, VariableState] = {}
        """Those that have not been deleted."""
        self.dropped: deque[Handle] = deque()
        """Those that Python has let go; see `collect`."""
        self._issuer = issuer
        self._scheduler = scheduler
        self._catalogue = catalogue
        self._unnamed = count()
        issuer.live = self.live

    def new(self, spec: ArraySpec, place: MemoryPlace, name: str | None, gpu: int = 0) -> PushedVariable:
        """Make a variable; it gets memory when it is first written."""
        number = next(_NUMBERS)
        state = VariableState(number, spec, place, name or f"variable {next(self._unnamed)}", gpu)
        made = PushedVariable(state, self.dropped)
        with self._issuer.lock:
            self.live[number] = state
        return made

    def delete(self, state: VariableState) -> None:
        """Delete a variable after all earlier users; the caller holds the lock and has put off Ctrl-C."""
        if state.delete():
            self._scheduler.take_turn((), (state,), partial(self._release, state), priority=FIRST)

    def collect(self) -> None:
        """Delete variables that Python has let go; the caller holds the lock and has put off Ctrl-C."""
        while self.dropped:
            state = self.live.get(self.dropped.popleft().number)
            if state is not None:
                self.delete(state)

    def clear(self) -> None:
        """Delete all variables, of which nothing is in use any more; the caller holds the lock and has put off Ctrl-C."""
        for state in list(self.live.values()):
            self._release(state)
        self.dropped.clear()
        self._issuer.memory.trim(wait=True)

    def _release(self, state: VariableState) -> None:
        # Kept applications hold the buffer's address: launched again, they would use memory of another's.
        self._catalogue.forget(state)
        self.live.pop(state.id, None)
        buffer, stamps = state.release()
        if buffer is not None:
            self._issuer.memory.free(buffer, [(self._issuer.lanes[stamp.lane].stream, stamp) for stamp in stamps])


class Contents:
    """Fills variables, reads them, and waits for them.

    To and from the device it copies through page-locked memory of its own, on the copy streams, so that nothing else waits.
    """

    def __init__(self, issuer: Issuer, scheduler: Scheduler, pusher: Pusher, lifetimes: Lifetimes) -> None:
        self._issuer = issuer
        self._scheduler = scheduler
        self._pusher = pusher
        self._lifetimes = lifetimes

    def made_of(self, values: Any, place: MemoryPlace, name: str | None, gpu: int) -> PushedVariable:
        """Make a variable of values, or of a shape and a dtype; its version is 0 either way."""
        if isinstance(values, ArraySpec):
            return self._lifetimes.new(values, place, name, gpu)
        array = host_array(values)
        made = self._lifetimes.new(ArraySpec(array.shape, array.dtype), place, name, gpu)
        state = self._pusher.state_of(made)
        if place is MemoryPlace.HOST:
            self._fill(state, array)
        else:
            self.write(made, array)
        state.count_from_here()
        return made

    def write(self, variable: PushedVariable, values: Any) -> None:
        """Replace the values of a variable; the given ones are copied before this returns."""
        state, array = self._pusher.state_of(variable), host_array(values)
        if array.shape != state.spec.shape or array.dtype != state.spec.dtype:
            raise ProgramError(f"{array.dtype.name}{list(array.shape)} was written to {state.name!r}, which is {state.spec}")
        title = f"write {state.name}"
        if state.place is MemoryPlace.HOST:
            # The caller may change the array as soon as this returns.
            copy = array.copy()
            self._pusher.push_host(HostFunction(title, user_line(), lambda: copy, (), (state,), duration_ns=0.0))
        else:
            staging = self._staging(state)
            self._fill(self._pusher.state_of(staging), array)
            self._pusher.push(Asked(to_device, (staging,), (variable,), 0, title, {}))
            self._pusher.flush()  # Where nothing else waits, the staging memory goes back now, behind the copy.

    def read(self, variable: PushedVariable, limit: TimeLimit | None) -> Array:
        """Return a copy of the values of a variable."""
        self._scheduler.forbid_inside()
        state = self._pusher.state_of(variable)
        title = f"read {state.name}"
        if state.place is MemoryPlace.HOST:
            return self._read_host(state, title, limit)
        staging = self._staging(state)
        self._pusher.push(Asked(to_host, (variable,), (staging,), 0, title, {}))
        self._pusher.flush()
        copied = self._pusher.state_of(staging)
        # No lock is held while the host waits: others go on pushing.
        self._scheduler.wait(copied, write=False, limit=limit)
        with self._issuer.lock:
            return self._issuer.device.read(copied.memory())

    def wait(self, variable: PushedVariable, *, write: bool, limit: TimeLimit | None) -> None:
        """Block the host until a variable can be read, or written, by anybody."""
        state = self._pusher.state_of(variable)
        self._pusher.flush()
        self._scheduler.wait(state, write=write, limit=limit)

    def delete(self, variable: PushedVariable) -> None:
        """Delete a variable after all that was pushed before."""
        state = self._pusher.state_of(variable)
        self._pusher.flush()
        with self._issuer.lock, deferred():
            self._lifetimes.delete(state)

    def _read_host(self, state: VariableState, title: str, limit: TimeLimit | None) -> Array:
        copies: list[Array] = []

        def copy(values: Array) -> None:
            copies.append(np.array(values))

        if not state.written:
            raise ProgramError(f"{state.name!r} is read, and nothing has written it", hint="write it first, or make it of values")
        done = self._pusher.push_host(HostFunction(title, user_line(), copy, (state,), (), duration_ns=0.0))
        self._scheduler.block_on(done, title, limit)
        if not copies:
            # It was skipped, or it failed itself.
            self._scheduler.wait(state, write=False, limit=limit)
            raise ProgramError(
                f"{state.name!r} could not be read", hint="wait_all() raises the reason, unless another thread's wait already has"
            )
        return copies[0]

    def _staging(self, state: VariableState) -> PushedVariable:
        return self._lifetimes.new(state.spec, MemoryPlace.HOST, f"values of {state.name}")

    def _fill(self, state: VariableState, array: Array) -> None:
        with self._issuer.lock, deferred():
            state.fill(array, self._issuer.device, self._issuer.memory)
