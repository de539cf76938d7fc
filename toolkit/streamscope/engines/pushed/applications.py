"""Applications: a template with its variables, bound to a lane when it is first issued there."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from streamscope.engines.pushed.lanes import Lane
from streamscope.engines.pushed.memory_pool import MemoryPool
from streamscope.engines.pushed.templates import Template
from streamscope.engines.pushed.variable import VariableState, buffer_of
from streamscope.interrupts import when_gone
from streamscope.program.launch import LaunchKind

if TYPE_CHECKING:
    from streamscope.devices.protocol import Buffer, Call, Device


class Scratch:
    """Memory for what a template makes and nobody outside sees; it goes back to the pool with the calls that use it."""

    def __init__(self, memory: MemoryPool, lane: Lane) -> None:
        self.buffers: list[Buffer] = []
        self.release = when_gone(self, partial(_release, self.buffers, memory, lane)).now
        """Give the memory back, behind what its lane has been given."""


def _release(buffers: list[Buffer], memory: MemoryPool, lane: Lane) -> None:
    last = lane.last
    while buffers:
        memory.free(buffers.pop(), () if last is None else ((lane.stream, last.lease),))


class Part:
    """One template with its variables.

    Attributes
    ----------
    name : str
    template : Template
    inputs : tuple of VariableState
        What it reads, each once, as the inputs of the template's program.
    reads, writes : tuple of VariableState
        What it only reads, and what it writes.
    calls : dict of int to tuple of callables
        By lane: the calls that put it on the lane's stream.
    """

    __slots__ = ("_scratch", "calls", "inputs", "name", "reads", "template", "writes")

    def __init__(self, name: str, template: Template, inputs: Sequence[VariableState], writes: Sequence[VariableState]) -> None:
        self.name = name
        self.template = template
        self.inputs = tuple(inputs)
        self.writes = tuple(writes)
        self.reads = tuple(state for state in inputs if state not in self.writes)
        self.calls: dict[int, tuple[Call, ...]] = {}
        self._scratch: list[Scratch] = []

    def bind(self, device: Device, memory: MemoryPool, lane: Lane) -> tuple[Call, ...]:
        """Prepare the launches for a lane, with memory for what is written first by it.

        Raises
        ------
        OutOfMemoryError
            The message names the operation.
        DeviceError
            A launch cannot run on the device.
        """
        program, stream = self.template.program, lane.stream
        for state in self.writes:
            if state.buffer is None:
                state.buffer = memory.allocate(state.spec, state.place, stream, purpose=f"{state.name!r}, which {self.name} writes,")
        buffers = dict(zip(program.inputs, map(buffer_of, self.inputs), strict=True))
        buffers.update(zip(program.outputs, map(buffer_of, self.writes), strict=True))
        scratch = Scratch(memory, lane)
        try:
            for variable in self.template.temporaries:
                declared = program.variables[variable]
                buffers[variable] = memory.allocate(declared.spec, declared.place, stream, purpose=f"{declared.name!r} in {self.name}")
                scratch.buffers.append(buffers[variable])
            calls = tuple(
                device.bind(launch, [buffers[v] for v in launch.reads], [buffers[v] for v in launch.writes], stream)
                for launch in self.template.launches
            )
        except BaseException:
            scratch.release()  # Now: the error that is kept holds this frame.
            raise
        if scratch.buffers:
            self._scratch.append(scratch)
        self.calls[lane.index] = calls
        return calls


class Application:
    """What is issued as one operation: one set of waits, one event.

    Attributes
    ----------
    parts : tuple of Part
        One, but in bulk; in this order on one stream.
    reads, writes : tuple of VariableState
        What the parts only read, and what one of them writes; each once.
    priority : bool
        It goes on the stream of higher priority.
    lines : tuple of str or None
        The user's line of each part, where it is known already.
    estimate_ns : float
        About how long it runs alone.
    lane : Lane or None
        Where it goes always; None if that is chosen afresh each time.
    kind : LaunchKind
        Of the parts' launches, see `Template`.
    launches : bool
        There is something to put on a stream; on empty arrays there is not.
    """

    __slots__ = ("estimate_ns", "kind", "lane", "launches", "lines", "parts", "priority", "reads", "writes")

    def __init__(
        self, parts: Sequence[Part], *, priority: bool, lines: Sequence[str | None], estimate_ns: float, lane: Lane | None
    ) -> None:
        self.parts = tuple(parts)
        self.priority = priority
        self.lines = tuple(lines)
        self.estimate_ns = estimate_ns
        self.lane = lane
        self.kind: LaunchKind = self.parts[0].template.kind
        self.launches = bool(self.parts[0].template.launches) or any(part.template.launches for part in self.parts)
        self.writes = tuple(dict.fromkeys(state for part in self.parts for state in part.writes))
        self.reads = tuple(dict.fromkeys(state for part in self.parts for state in part.reads if state not in self.writes))

    @property
    def states(self) -> tuple[VariableState, ...]:
        """All variables that it uses."""
        return (*self.reads, *self.writes)
