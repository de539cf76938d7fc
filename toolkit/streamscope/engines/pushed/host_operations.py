"""Host operations: a Python function over NumPy arrays, with what it waits for and what it gets and gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streamscope.engines.pushed.issuing import Issuer
from streamscope.engines.pushed.lanes import EventStamp
from streamscope.engines.pushed.variable import VariableState, buffer_of
from streamscope.errors import EngineError
from streamscope.interrupts import deferred, let_through
from streamscope.order.clocks import Clock, fewest
from streamscope.order.hazards import HOST, unordered
from streamscope.program.launch import HostCall
from streamscope.program.variable import Place

DURATION_NS = 20_000.0
"""How long a function takes on the simulated device that does not say: the same as `ss.host_function`."""


class HostFunction:
    """A function with the variables it is called on.

    Attributes
    ----------
    name, where : str
        What errors call it, and the user's line that pushed it.
    function : callable
        ``function(*arrays, **attributes) -> array, tuple of arrays, or None if it writes nothing``.
    arguments, writes : sequence of VariableState
    attributes : mapping
    duration_ns : float
        On the simulated device.
    in_turn : callable
        Called before the device is waited for, and when the function has returned, before its results count; see `Order`.
    """

    def __init__(
        self,
        name: str,
        where: str,
        function: Callable[..., Any],
        arguments: Sequence[VariableState],
        writes: Sequence[VariableState],
        attributes: Mapping[str, Any],
        duration_ns: float = DURATION_NS,
    ) -> None:
        self.name = name
        self.where = where
        self.function = function
        self.arguments = tuple(arguments)
        self.writes = tuple(dict.fromkeys(writes))
        self.attributes = dict(attributes)
        self.duration_ns = duration_ns
        self.in_turn: Callable[[], object] = int

    @property
    def reads(self) -> tuple[VariableState, ...]:
        """What it only reads, each once."""
        return tuple(state for state in dict.fromkeys(self.arguments) if state not in self.writes)

    def before(self, known: Clock) -> list[EventStamp]:
        """Return what the host must wait for first, given what it knows; the caller holds the lock."""
        return fewest(known, unordered(HOST, known, self.reads, self.writes))

    def written(self) -> None:
        """Note that it has returned: its writes are finished, and the device has nothing to do with them any more."""
        for state in self.writes:
            state.version += 1
            state.fault = None
            state.forget()

    def allocate(self, issuer: Issuer) -> None:
        """Get memory for what is written first by it; the caller holds the lock and has put off Ctrl-C.

        Raises
        ------
        OutOfMemoryError
        """
        for state in self.writes:
            if state.buffer is None:
                state.buffer = issuer.memory.allocate(state.spec, Place.HOST, None, purpose=f"{state.name!r}, which {self.name} writes,")

    def run(self, issuer: Issuer) -> None:
        """Call the function on the calling thread, with no lock held while it runs; raises what it raises."""
        reads = [buffer_of(state) for state in self.arguments]
        with issuer.lock, deferred():
            self.allocate(issuer)
        ids = {state: number for number, state in enumerate(dict.fromkeys((*self.arguments, *self.writes)))}
        call = HostCall(
            0, self.name, tuple(ids[s] for s in self.arguments), tuple(ids[s] for s in self.writes), self._called, self.duration_ns
        )
        issuer.device.bind_host(call, reads, [buffer_of(state) for state in self.writes])()

    def _called(self, *arrays: Any) -> Any:
        """Call the function as `bind_host` wants it."""
        result = let_through(self.function, *arrays, **self.attributes)
        self.in_turn()
        if not self.writes:
            return ()
        if result is None:
            raise EngineError(f"{self.name} returned None, and writes {len(self.writes)} variables", hint="return an array for each")
        return result
