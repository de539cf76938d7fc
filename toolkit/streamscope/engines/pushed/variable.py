"""Variables of the dynamic engine: what the user holds, and what the engine knows of it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING
from weakref import ref

from streamscope.engines.pushed.lanes import EventStamp
from streamscope.errors import ProgramError
from streamscope.order.hazards import Accesses
from streamscope.program.variable import ArraySpec, Place

if TYPE_CHECKING:
    from streamscope.devices.protocol import Buffer
    from streamscope.engines.pushed.faults import Fault
    from streamscope.engines.pushed.queues import Operation


class VariableState(Accesses[EventStamp]):
    """What the engine knows of a variable; all of it is guarded by the engine's lock.

    Its `Accesses` are device operations.

    Attributes
    ----------
    id : int
        Part of the keys of caches, so that they do not keep the variable alive.
    buffer : Buffer or None
        Its memory, from the first operation that writes it until it is deleted.
    version : int
    written : bool
        An operation that writes it was pushed.
    deleted : bool
        `Engine.delete` was called, though it may not have had its turn yet.
    reading, writing : int, bool
        Operations that have their turn: any number of readers or one writer.
    waiting : deque of (Operation, bool)
        Operations that wait for their turn, and whether they write.
    fault : Fault or None
        Why its values are not what was asked for.
    handle : Handle or None
        Notes when Python lets the user's object go.
    keys : set of tuple
        Keys of the cached applications that use it.
    """

    __slots__ = (
        "buffer", "deleted", "fault", "handle", "id", "keys", "name", "place", "reading", "spec", "version", "waiting", "writing",
        "written",
    )  # fmt: skip

    def __init__(self, number: int, spec: ArraySpec, place: Place, name: str) -> None:
        super().__init__()
        self.id = number
        self.spec = spec
        self.place = place
        self.name = name
        self.buffer: Buffer | None = None
        self.version = 0
        self.written = False
        self.deleted = False
        self.reading = 0
        self.writing = False
        self.waiting: deque[tuple[Operation, bool]] = deque()
        self.fault: Fault | None = None
        self.handle: Handle | None = None
        self.keys: set[tuple[object, ...]] = set()


def buffer_of(state: VariableState) -> Buffer:
    """Return the memory of a variable.

    Raises
    ------
    ProgramError
        It has none, since whatever was to write it first has failed.
    """
    if state.buffer is None:
        raise ProgramError(f"{state.name!r} has no values, since nothing has written it without an error", hint="write it first")
    return state.buffer


class Handle(ref["DynamicVariable"]):
    """Knows which variable a `DynamicVariable` stood for that Python has let go."""

    __slots__ = ("number",)
    number: int


class DynamicVariable:
    """A variable of a dynamic engine, made by `Engine.variable`.

    When Python lets it go, it is deleted as by `Engine.delete`.
    """

    __slots__ = ("__weakref__", "_id", "_state")

    def __init__(self, state: VariableState, dropped: deque[Handle]) -> None:
        self._id = state.id
        self._state = state
        # Any thread may let it go in the middle of anything, so no lock is taken: the engine deletes it when it is next used. A deque's
        # `append` is a C function, in which no Ctrl-C can come.
        state.handle = Handle(self, dropped.append)
        state.handle.number = state.id

    @property
    def spec(self) -> ArraySpec:
        """Shape and dtype."""
        return self._state.spec

    @property
    def place(self) -> Place:
        """Host or device memory."""
        return self._state.place

    @property
    def name(self) -> str:
        """What errors call it."""
        return self._state.name

    @property
    def version(self) -> int:
        """0 at first, and one more for each finished write; the device's count when issued, since all that follows comes after them."""
        return self._state.version

    def __repr__(self) -> str:
        return f"<{self.place.value} variable {self.name!r} {self.spec}, version {self.version}>"
