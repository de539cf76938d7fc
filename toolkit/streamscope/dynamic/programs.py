"""Programs run by a dynamic engine: prepared once for each set of shapes, replayed by any number of threads side by side."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy.typing as npt

from streamscope.capturing.function import CapturedFunction
from streamscope.dynamic.issuing import Issuer
from streamscope.engines.prepared import Prepared, prepare
from streamscope.errors import ProgramError
from streamscope.program.operation import Program
from streamscope.program.tracing import ProgramFunction

Array = npt.NDArray[Any]

KEPT_PROGRAMS = 16
"""Programs, each for one set of shapes, that are kept prepared."""
KEPT_IDLE = 8
"""How many times one program is kept prepared, for threads that run it side by side."""


@dataclass
class _Entry:
    """A traced program, and those of its preparations that nobody is running."""

    function: ProgramFunction | CapturedFunction
    program: Program
    idle: list[Prepared] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)


class PreparedPrograms:
    """The programs of one engine, those used last.

    Parameters
    ----------
    issuer : Issuer
    engine : str
        How programs run.
    streams : int
        Compute streams that ``dual`` and ``graph-dual`` may use.
    """

    def __init__(self, issuer: Issuer, engine: str, streams: int) -> None:
        self._issuer = issuer
        self._engine = engine
        self._streams = streams
        self._entries: OrderedDict[tuple[object, ...], _Entry] = OrderedDict()
        self._lock = Lock()

    def run(self, function: ProgramFunction | CapturedFunction, inputs: Sequence[Any]) -> Any:
        """Run a program on arrays and return its outputs as NumPy arrays: one, or a tuple.

        Raises
        ------
        ProgramError
            It is no program, or the inputs do not fit it.
        DeviceError
            It cannot run on the device, or failed there.
        """
        entry = self._entry(function, inputs)
        if isinstance(function, CapturedFunction):
            with entry.lock:  # There is one memory, that of the capture.
                outputs = self._outputs(entry, inputs, lambda prepared: _captured_outputs(prepared, function))
            return outputs[0] if len(outputs) == 1 else tuple(outputs)
        outputs = self._outputs(entry, inputs, Prepared.outputs)
        return outputs[0] if entry.program.single_output else tuple(outputs)

    def clear(self) -> None:
        """Forget all programs."""
        with self._lock:
            self._entries.clear()

    def _entry(self, function: ProgramFunction | CapturedFunction, inputs: Sequence[Any]) -> _Entry:
        if not isinstance(function, ProgramFunction | CapturedFunction):
            raise ProgramError(f"run wants a program, not a {type(function).__name__}", hint="decorate the function with @ss.program")
        if isinstance(function, CapturedFunction) and inputs:
            raise ProgramError(f"captured {function.name!r} takes no inputs: the capture holds its own", hint="call engine.run(captured)")
        # The entry holds the function, so its id stands for no other.
        # As text, since what is no array may have a shape that cannot be hashed; tracing says so.
        key = (id(function), *((str(getattr(value, "shape", ())), str(getattr(value, "dtype", type(value)))) for value in inputs))
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
                return entry
        entry = _Entry(function, function.trace(*inputs))
        with self._lock:
            entry = self._entries.setdefault(key, entry)
            while len(self._entries) > KEPT_PROGRAMS:
                self._entries.popitem(last=False)
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
            prepared = entry.idle.pop()
        except IndexError:
            prepared = prepare(entry.program, self._engine, self._issuer.device, streams=self._streams)
        yield prepared  # One that is let go for an error waits for its work before its memory goes.
        if len(entry.idle) < KEPT_IDLE:
            entry.idle.append(prepared)


def _captured_outputs(prepared: Prepared, function: CapturedFunction) -> list[Array]:
    prepared.wait()
    return function.outputs()
