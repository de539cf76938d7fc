"""Subjects to explore: ready workloads, whose settings are knobs, and the user's own programs with their inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import Parameter, signature
from typing import Any, ClassVar

import numpy as np

from streamscope.calling import traced
from streamscope.errors import ProgramError
from streamscope.program.foreign import ForeignProgram
from streamscope.program.operation import Program
from streamscope.program.variable import ArraySpec
from streamscope.tracing import ProgramFunction
from streamscope.words import listed
from streamscope.workloads import WORKLOADS, Setting, Workload
from streamscope_widgets.cell_program import is_array

FLOATS = ("float16", "float32", "float64")
"""Dtypes into which the explorer can convert floating-point inputs."""
LARGE = 500
"""From this default on, the values of a knob are powers of two."""
FEWEST = 8
"""Of settings with so many values at most, all are offered."""
LEAST_PIECE, MOST_PIECE = 1 << 8, 1 << 15
"""Of a setting in KiB that is off by default."""
MOST_ELEMENTS = 1 << 24
SWITCHES = {
    "copies": "copies in and out",
    "priority": "first layers first",
    "overlap": "reduce during the backward pass",
    "interleaved": "1F1B",
    "training": "training step",
    "half": "float16",
    "prenorm": "normalize first",
}
"""Settings that are on or off, in words."""
PIECES = "bucket"
"""The setting in KiB; 0 is the whole."""
FEW = 4


@dataclass(frozen=True)
class Knob:
    """A setting as the explorer offers it."""

    name: str
    meaning: str
    values: tuple[int, ...]
    """Values, in order."""
    value: int
    """Initial value."""


@dataclass(frozen=True)
class ReadyProgram:
    """A workload."""

    source: ClassVar[str] = "workload"
    workload: Workload
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its own."""
        return self.workload.name

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """One for each setting, over values around its default."""
        return tuple(Knob(name, setting.meaning, _around(setting), setting.default) for name, setting in self.workload.settings.items())

    def stands_for(self) -> object:
        """Return nothing: it is its settings."""
        return None

    def outline(self, values: Mapping[str, int], dtype: str | None) -> Program:
        """Trace it for these settings."""
        function, specs = self.workload.outline(**values)
        return function.trace(*(_spec(spec, dtype) for spec in specs))

    def built(self, values: Mapping[str, int], dtype: str | None) -> tuple[ProgramFunction, tuple[Any, ...]]:
        """Draw its inputs."""
        function, inputs = self.workload.build(**values)
        return function, tuple(_converted(array, dtype) for array in inputs)


@dataclass(frozen=True)
class OwnProgram:
    """A function of the user's, or captured code. Where no inputs are given, arrays with the names of its parameters are its inputs.

    Where no function is given, it is the one that the user's namespace calls so when it is asked for.
    """

    name: str
    function: Any = None
    inputs: Sequence[Any] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    namespace: Mapping[str, Any] = field(default_factory=dict)
    knobs: tuple[Knob, ...] = ()

    @property
    def source(self) -> str:
        """Where it comes from, which the list says of equal names."""
        return "notebook" if self.function is None else "passed"

    def stands_for(self) -> object:
        """Return the function itself, and shape and dtype of its arrays: equal where the function and the kinds of inputs are the same."""
        function = self._function()
        return id(function), [_spec(value, None) if is_array(value) else id(value) for value in self._arrays(function)]

    def outline(self, values: Mapping[str, int], dtype: str | None) -> Program:
        """Trace it for inputs like these; no array is made."""
        function = self._function()
        specs = [_spec(value, dtype) if is_array(value) else value for value in self._arrays(function)]
        return traced("ss.explore", function, specs, self.attributes)

    def built(self, values: Mapping[str, int], dtype: str | None) -> tuple[Any, tuple[Any, ...]]:
        """Return it as it is, with inputs of the dtype."""
        function = self._function()
        return function, tuple(_converted(value, dtype) for value in self._arrays(function))

    def _function(self) -> Any:
        if self.function is not None:
            return self.function
        function = self.namespace.get(self.name)
        if not isinstance(function, ProgramFunction):
            raise ProgramError(f"the notebook has no program {self.name!r} any more", hint="choose another one")
        return function

    def _arrays(self, function: Any) -> Sequence[Any]:
        if self.inputs or isinstance(function, ForeignProgram):
            return self.inputs
        needed = [
            name
            for name, parameter in signature(getattr(function, "function", function)).parameters.items()
            if parameter.default is Parameter.empty
            and parameter.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
            and name not in self.attributes
        ]
        if missing := [name for name in needed if not is_array(self.namespace.get(name))]:
            raise ProgramError(
                f"{self.name} takes {listed(needed)}, and the notebook has no arrays of the names {listed(missing)}",
                hint=f"assign them, or call ss.explore({self.name}, ...) with the inputs",
            )
        return [self.namespace[name] for name in needed]


Subject = ReadyProgram | OwnProgram
"""Something to explore."""


def subjects(own: OwnProgram | None, namespace: Mapping[str, Any]) -> Iterator[Subject]:
    """Yield the subjects: the given one, the programs of the user's namespace, the workloads."""
    if own is not None:
        yield own
    for name, value in namespace.items():
        if isinstance(value, ProgramFunction) and not name.startswith("_") and (own is None or value is not own.function):
            yield OwnProgram(name, namespace=namespace)
    yield from map(ReadyProgram, WORKLOADS.values())


def _around(setting: Setting) -> tuple[int, ...]:
    """Return the values of a knob: powers of two for large ranges, else up to twice the default, all of them if they are few."""
    if setting.default > LARGE:
        most, least = min(setting.most, MOST_ELEMENTS), max(setting.least, min(1 << 10, setting.default >> 2))
        return _powers(least, most)
    if setting.most <= FEWEST:
        return tuple(range(setting.least, setting.most + 1))
    if not setting.default and setting.most > LARGE:
        return 0, *_powers(LEAST_PIECE, MOST_PIECE)
    most = min(setting.most, max(2 * setting.default, FEW))
    values = {round(setting.least + (most - setting.least) * step / 32) for step in range(33)}
    return tuple(sorted({*values, setting.default}))


def _powers(least: int, most: int) -> tuple[int, ...]:
    """Return the powers of two from least to most."""
    return tuple(1 << power for power in range(31) if least <= 1 << power <= most)


def _spec(value: Any, dtype: str | None) -> Any:
    spec = value if isinstance(value, ArraySpec) else ArraySpec(value.shape, value.dtype)
    return spec if dtype is None or spec.dtype.kind != "f" else ArraySpec(spec.shape, np.dtype(dtype))


def _converted(value: Any, dtype: str | None) -> Any:
    return value.astype(dtype) if dtype is not None and getattr(getattr(value, "dtype", None), "kind", "") == "f" else value
