"""The catalogue: recent operations, traced and bound to their variables, so that pushing one again only launches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from streamscope.engines.pushed.lanes import Lane
from streamscope.engines.pushed.memory_pool import MemoryPool
from streamscope.engines.pushed.templates import Template, fitted, template_key, trace
from streamscope.engines.pushed.variable import VariableState
from streamscope.interrupts import deferred, when_gone
from streamscope.program.launch import Launch, LaunchKind

if TYPE_CHECKING:
    from streamscope.devices.protocol import Buffer, Call, Device
    from streamscope.engines.pushed.issuing import Issuer

Key = tuple[Any, ...]
_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")

TEMPLATES = 256
"""Traces that are kept, at least."""
APPLICATIONS = 1024
"""Applications to variables that are kept bound, at least."""


class Scratch:
    """Memory for a template's temporaries; it goes back to the pool with the calls that use it."""

    def __init__(self, memory: MemoryPool) -> None:
        self.buffers: list[tuple[Buffer, Lane]] = []
        """Each with the lane of its GPU."""
        self.release = when_gone(self, partial(_release, self.buffers, memory)).now
        """Give the memory back, behind the work of its lane."""


def _release(buffers: list[tuple[Buffer, Lane]], memory: MemoryPool) -> None:
    while buffers:
        buffer, lane = buffers.pop()
        last = lane.last
        memory.free(buffer, () if last is None else ((lane.stream, last),))


@dataclass(slots=True, eq=False)
class Part:
    """One template with its variables."""

    name: str
    template: Template
    inputs: tuple[VariableState, ...]
    """Variables it reads, each once, as the inputs of the template's program."""
    writes: tuple[VariableState, ...]
    reads: tuple[VariableState, ...] = field(init=False)
    """Variables it only reads."""
    calls: dict[int, tuple[Call, ...]] = field(default_factory=dict)
    """By lane: the calls that put it on the lane's stream; of a collective by its first lane."""
    _scratch: list[Scratch] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reads = tuple(state for state in self.inputs if state not in self.writes)

    def bind(self, device: Device, memory: MemoryPool, lanes: Sequence[Lane]) -> tuple[Call, ...]:
        """Prepare the launches for a lane, or for one of each GPU, with memory for variables that nothing has written before."""
        program, first = self.template.program, lanes[0]
        of_gpu = {lane.gpu: lane for lane in lanes}
        for state in self.writes:
            # A copy to another GPU is the work of a stream of this one.
            state.allocate(memory, of_gpu.get(state.gpu, first).stream, self.name)
        buffers = {variable: state.memory() for variable, state in zip(program.inputs, self.inputs, strict=True)}
        buffers |= {variable: state.memory() for variable, state in zip(program.outputs, self.writes, strict=True)}
        scratch = Scratch(memory)
        try:
            for variable in self.template.temporaries:
                declared = program.variables[variable]
                lane, purpose = of_gpu.get(declared.gpu, first), f"{declared.name!r} in {self.name}"
                buffers[variable] = memory.allocate(declared.spec, declared.place, lane.stream, purpose=purpose, gpu=declared.gpu)
                scratch.buffers.append((buffers[variable], lane))
            calls = tuple(self._calls(device, buffers, of_gpu))
        except BaseException:
            scratch.release()  # Now: the error that is kept holds this frame.
            raise
        if scratch.buffers:
            self._scratch.append(scratch)
        self.calls[first.index] = calls
        return calls

    def _calls(self, device: Device, buffers: Mapping[int, Buffer], lanes: Mapping[int, Lane]) -> Iterator[Call]:
        """Bind the launches in order; the parts of a collective, which stand one behind the other, together."""
        parts: list[Launch] = []
        for launch in self.template.launches:
            if launch.collective is None:
                yield device.bind(launch, *_operands(launch, buffers), lanes[launch.gpu].stream)
                continue
            parts.append(launch)
            if len(parts) == len(launch.collective.gpus):
                reads, writes = zip(*(_operands(part, buffers) for part in parts), strict=True)
                yield device.bind_collective(parts, reads, writes, [lanes[part.gpu].stream for part in parts])
                parts = []


def _operands(launch: Launch, buffers: Mapping[int, Buffer]) -> tuple[list[Buffer], list[Buffer]]:
    """Return the memory that a launch reads, and that it writes."""
    return [buffers[variable] for variable in launch.reads], [buffers[variable] for variable in launch.writes]


@dataclass(slots=True, eq=False)
class Application:
    """Parts that are issued as one operation, with one set of waits and one event; bound to a lane when first issued there."""

    parts: tuple[Part, ...]
    """One, but in bulk; in this order on one stream."""
    priority: bool
    """It goes on the stream of higher priority."""
    lines: tuple[str | None, ...]
    """The user's line of each part, where it is known already."""
    estimate_ns: float
    """About how long it runs alone."""
    lane: Lane | None
    """Where it goes always; None if that is chosen afresh each time, from ``choice``."""
    choice: tuple[Lane, ...]
    """The compute lanes of its GPU."""
    lanes: tuple[Lane, ...] = ()
    """Of collectives, one of each GPU; ``lane`` is the first."""
    kind: LaunchKind = field(init=False)
    """Of the parts' launches, see `Template`."""
    gpus: tuple[int, ...] = field(init=False)
    """Those of each part."""
    launches: bool = field(init=False)
    """There is something to put on a stream; on empty arrays there is not."""
    reads: tuple[VariableState, ...] = field(init=False)
    writes: tuple[VariableState, ...] = field(init=False)
    """Variables that the parts only read, and those that one of them writes; each once."""
    members: tuple[tuple[Lane, tuple[VariableState, ...], tuple[VariableState, ...]], ...] = field(init=False)
    """Of collectives, for each of ``lanes`` the variables that are read and written there."""

    def __post_init__(self) -> None:
        self.kind, self.gpus = self.template.kind, self.template.gpus
        self.launches = any(part.template.launches for part in self.parts)
        self.writes = tuple(dict.fromkeys(state for part in self.parts for state in part.writes))
        self.reads = tuple(dict.fromkeys(state for part in self.parts for state in part.reads if state not in self.writes))
        self.members = tuple((lane, self._there(self.reads, lane), self._there(self.writes, lane)) for lane in self.lanes)

    def _there(self, states: Sequence[VariableState], lane: Lane) -> tuple[VariableState, ...]:
        """Return the variables that the part on a lane uses; those of no part, which nothing uses, count as the first lane's."""
        others = set(self.gpus) if lane is self.lanes[0] else None
        return tuple(state for state in states if state.gpu == lane.gpu or (others is not None and state.gpu not in others))

    @property
    def template(self) -> Template:
        """Of its first part; those of the others are of the same kind, on the same GPUs."""
        return self.parts[0].template

    @property
    def states(self) -> tuple[VariableState, ...]:
        """All variables that it uses."""
        return (*self.reads, *self.writes)


def combined(pushed: Sequence[tuple[Application, str]]) -> Application:
    """Return operations, with the user's lines, as one."""
    applications, lines = zip(*pushed, strict=True)
    parts = tuple(part for application in applications for part in application.parts)
    estimate_ns = sum(application.estimate_ns for application in applications)
    first = applications[0]
    return Application(parts, first.priority, lines, estimate_ns, first.lane, first.choice, first.lanes)


class RecentlyUsed(dict[_K, _V | None]):
    """A bounded cache. ``cache[key]`` costs no more than with a dictionary, and is None if the key is not kept.

    Entries have two generations. When the young one is full it becomes the old one, and the old one's entries are dropped. An old entry
    that is used becomes young again. So the cache keeps the ``most`` entries that were used last, and at most twice as many.
    """

    def __init__(self, most: int, dropped: Callable[[_K, _V], None] | None = None) -> None:
        super().__init__()
        self._most = most
        self._dropped = dropped
        """Called with key and value of each entry that had to make room."""
        self._old: dict[_K, _V | None] = {}

    def __missing__(self, key: _K) -> _V | None:
        found = self._old.pop(key, None)
        if found is not None:
            self.put(key, found)
        return found

    def put(self, key: _K, value: _V) -> None:
        """Keep a value."""
        if super().__len__() >= self._most:
            with deferred():
                gone, self._old = self._old, dict(self)
                super().clear()
                if self._dropped is not None:
                    for old_key, old_value in gone.items():
                        if old_value is not None:
                            self._dropped(old_key, old_value)
        self[key] = value

    def forget(self, key: _K) -> None:
        """Forget a key, if it is there."""
        self.pop(key, None)
        self._old.pop(key, None)

    def clear(self) -> None:
        """Forget everything."""
        super().clear()
        self._old = {}

    def __len__(self) -> int:
        return super().__len__() + len(self._old)


class TracingError(Exception):
    """The pushed function raised while it was traced; ``__cause__`` is its exception."""


class Catalogue:
    """Templates and applications of one engine.

    Keys hold the numbers of variables, so that a variable can go while applications of it are kept; `forget` drops those.
    """

    def __init__(self, issuer: Issuer) -> None:
        self.misses = 0
        """Applications that were not kept, and so were made."""
        self.applications: RecentlyUsed[Key, Application] = RecentlyUsed(APPLICATIONS, self._unlink)
        """By key; the caller holds the lock."""
        self._templates: RecentlyUsed[Key, Template] = RecentlyUsed(TEMPLATES)
        self._keys: defaultdict[int, set[Key]] = defaultdict(set)
        self._issuer = issuer

    def application(
        self,
        key: Key | None,
        name: str,
        template: Template,
        arguments: Sequence[VariableState],
        writes: Sequence[VariableState],
        *,
        priority: bool,
    ) -> Application:
        """Make an application and, with a key, keep it; the caller holds the lock."""
        self.misses += 1
        part = Part(name, template, tuple(dict.fromkeys(arguments)), tuple(writes))
        estimate_ns = sum(self._issuer.device.estimate_ns(launch) for launch in template.launches)
        lanes = tuple(self._issuer.lane_for(template.kind, gpu, priority=priority) for gpu in template.gpus)
        together = tuple(lane for lane in lanes if lane is not None) if template.kind is LaunchKind.COLLECTIVE else ()
        choice = self._issuer.lanes_of(template.gpus[0]).compute
        application = Application((part,), priority, (None,), estimate_ns, lanes[0], choice, together)
        if key is not None:
            self.applications.put(key, application)
            for state in application.states:
                # So that deleting the variable drops what holds its memory.
                self._keys[state.id].add(key)
        return application

    def template(
        self,
        function: Callable[..., Any],
        name: str,
        arguments: Sequence[VariableState],
        writes: Sequence[VariableState],
        attributes: Mapping[str, Any],
    ) -> Template:
        """Return the template of a function for variables like these, traced if it is not kept, with no lock held."""
        key = template_key(function, arguments, writes, attributes)
        with self._issuer.lock:
            found = self._templates[key]
        if found is None:
            try:
                # Without the lock: it calls the user's function, which may push or wait.
                program = trace(function, name, arguments, writes, attributes)
            except Exception as error:
                raise TracingError from error
            found = fitted(program, tuple(dict.fromkeys(arguments)), writes)
            with self._issuer.lock:
                self._templates.put(key, found)
        return found

    def keys_of(self, state: VariableState) -> list[Key]:
        """Return the keys of the applications of a variable that are kept."""
        return list(self._keys.get(state.id, ()))

    def forget(self, state: VariableState) -> None:
        """Drop all that is kept of a variable; the caller holds the lock."""
        for key in self._keys.pop(state.id, ()):
            application = self.applications[key]
            self.applications.forget(key)
            if application is not None:
                self._unlink(key, application)

    def clear(self) -> None:
        """Drop everything."""
        self.applications.clear()
        self._templates.clear()
        self._keys.clear()

    def __len__(self) -> int:
        return len(self.applications) + len(self._templates)

    def _unlink(self, key: Key, application: Application) -> None:
        for state in application.states:
            if state.id in self._keys:
                self._keys[state.id].discard(key)
