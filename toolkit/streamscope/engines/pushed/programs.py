"""Programs run by a pushed engine: prepared once for such shapes and attributes, replayed by any number of threads side by side."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from streamscope.arrays import Array
from streamscope.calling import as_program, check_keywords, traced
from streamscope.engines.host_totals import HostSums
from streamscope.engines.prepared import Prepared, prepare_traced
from streamscope.engines.pushed.arguments import check_hashable
from streamscope.engines.pushed.issuing import Issuer
from streamscope.engines.pushed.templates import typed
from streamscope.errors import OutOfMemoryError
from streamscope.host_memory import free_bytes
from streamscope.program.foreign import ForeignFunction, ForeignProgram
from streamscope.program.operation import Program
from streamscope.tracing import ProgramFunction

if TYPE_CHECKING:
    from streamscope.devices.protocol import Device


_KEPT_ANYWAY = 16
"""Programs, each for certain shapes and attributes, that stay prepared until memory has run out."""
_LEFT_FREE = 1 / 8
"""Share of the device's memory that more programs than that must leave free, for whoever else uses the device."""
_LEFT_FREE_ON_HOST = 1 << 30
"""Bytes of the host's memory that they must leave free: a preparation takes about 5 kB an operation, besides its variables."""
_KEPT_IDLE = 8
"""How many times one program is kept prepared, for threads that run it side by side."""


@dataclass
class _Entry:
    """A traced program, and those of its preparations that nobody is running.

    It holds its source, ``given``, so that no other has the same id.
    """

    given: object
    program: Program
    idle: list[Prepared] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)


class _KeptPrograms:
    """The programs of one engine that are kept prepared: as many as memory allows, those used last."""

    def __init__(self, device: Device) -> None:
        self.evicted = 0
        """Programs that had to make room."""
        self._device = device
        self._entries: OrderedDict[tuple[object, ...], _Entry] = OrderedDict()
        self._lock = Lock()

    def find(self, key: tuple[object, ...]) -> _Entry | None:
        """Return the program that is kept for a key, which counts as a use."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
            return entry

    def keep(self, key: tuple[object, ...], entry: _Entry) -> _Entry:
        """Keep a program, unless another thread has put one there meanwhile; return the one that is kept."""
        with self._lock:
            return self._entries.setdefault(key, entry)

    def make_room(self, entry: _Entry) -> None:
        """Evict programs other than one while memory is short."""
        while len(self._entries) > _KEPT_ANYWAY and self._is_short():
            self.evict(1, entry)

    def evict(self, most: int | None = None, besides: _Entry | None = None) -> bool:
        """Let programs go that were not used for longest, ``most`` of them or all; tell whether there were any."""
        with self._lock:
            keys = [key for key, entry in self._entries.items() if entry is not besides][:most]
            gone = [self._entries.pop(key) for key in keys]
            self.evicted += len(gone)
        return bool(gone)  # What they hold goes here, with no lock held.

    def clear(self) -> None:
        """Forget all programs."""
        with self._lock:
            self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)

    def _is_short(self) -> bool:
        return self._device.free_share() < _LEFT_FREE or free_bytes() < _LEFT_FREE_ON_HOST


class PreparedPrograms:
    """Runs the programs of one engine."""

    def __init__(self, issuer: Issuer, engine: str, streams: int | None, sums: HostSums) -> None:
        self.kept = _KeptPrograms(issuer.device)
        self.runs = self.prepared = 0
        """Runs that were asked for, and programs that were prepared for them."""
        self._issuer = issuer
        self._engine = engine
        """How programs run."""
        self._sums = sums
        self._streams = streams
        """Compute streams that ``dual`` and ``graph-dual`` may use."""
        self._counting = Lock()

    def run(self, given: object, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
        """Run a function or a program on arrays and return its outputs as NumPy arrays: one, or a tuple."""
        if attributes and isinstance(program := as_program(given), ProgramFunction):
            inputs, attributes = program.by_position(inputs, attributes)
        entry = self._entry(given, inputs, attributes)
        if isinstance(given, ForeignFunction):
            with entry.lock:  # There is one memory, that of the capture.
                outputs = self._outputs(entry, inputs, lambda prepared: _captured_outputs(prepared, given))
            return outputs[0] if len(outputs) == 1 else tuple(outputs)
        outputs = self._outputs(entry, inputs, Prepared.outputs)
        return outputs[0] if entry.program.single_output else tuple(outputs)

    def _entry(self, given: object, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> _Entry:
        # What was given is kept with its program, so its id stands for no other. A method is made anew each time that it is looked up.
        identity = id(given) if isinstance(given, ProgramFunction | ForeignProgram | Program) else given
        check_hashable(identity, attributes)
        # As text: something other than an array may have a shape that cannot be hashed. Tracing then says so.
        # A number of NumPy's is never written, an array without axes may be.
        shapes = (
            (str(getattr(value, "shape", ())), str(getattr(value, "dtype", type(value))), isinstance(value, np.generic)) for value in inputs
        )
        key = (identity, *shapes, None, *((name, typed(value)) for name, value in sorted(attributes.items())))
        with self._counting:
            self.runs += 1
        entry = self.kept.find(key)
        if entry is None:
            program = as_program(given)
            check_keywords("engine.run", (), program, inputs, attributes)
            entry = self.kept.keep(key, _Entry(given, traced("engine.run", program, inputs, attributes)))
        return entry

    def _outputs(self, entry: _Entry, inputs: Sequence[Any], collect: Callable[[Prepared], list[Array]]) -> list[Array]:
        with self._borrowed(entry) as prepared:
            prepared.load(inputs)
            prepared.run()
            return collect(prepared)

    @contextmanager
    def _borrowed(self, entry: _Entry) -> Iterator[Prepared]:
        """Lend a preparation that nobody else uses. One whose run failed or was interrupted is not used again."""
        try:
            # A list's `pop` is atomic: no two threads get the same preparation, without a lock.
            prepared = entry.idle.pop()
        except IndexError:
            prepared = self._prepared(entry)
        yield prepared  # One that is let go for an error waits for its work before its memory goes.
        if len(entry.idle) < _KEPT_IDLE:
            entry.idle.append(prepared)

    def _prepared(self, entry: _Entry) -> Prepared:
        """Prepare a program; others make room for it where memory is short, and more and more of them where it runs out."""
        self.kept.make_room(entry)
        prepared, most = None, 1
        while prepared is None:
            try:
                prepared = prepare_traced(entry.program, self._engine, self._issuer.device, streams=self._streams)
            except OutOfMemoryError:
                if not self.kept.evict(most, entry):
                    raise
                most *= 2
        prepared.host_sums = self._sums
        with self._counting:
            self.prepared += 1
        return prepared


def _captured_outputs(prepared: Prepared, function: ForeignFunction) -> list[Array]:
    prepared.wait()
    return function.outputs()
