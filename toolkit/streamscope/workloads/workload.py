"""Ready programs with settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import index

import numpy as np

from streamscope.arrays import Array
from streamscope.errors import WorkloadError
from streamscope.program.variable import ArraySpec
from streamscope.tracing import ProgramFunction
from streamscope.words import counted


@dataclass(frozen=True)
class Drawn:
    """An input of a ready program: its spec, and how its values are drawn."""

    spec: ArraySpec
    draw: Callable[[np.random.Generator], Array]
    """``draw(random)`` returns values of that shape, in any dtype."""


_Made = tuple[ProgramFunction, tuple[Array, ...]]
"""A program and its inputs."""
Described = tuple[ProgramFunction, tuple[Drawn, ...]]
"""A program, and how its inputs are made."""


@dataclass(frozen=True)
class Setting:
    """A whole number that a user can set."""

    default: int
    least: int
    most: int
    meaning: str


@dataclass(frozen=True)
class Workload:
    """A ready program."""

    name: str
    description: str
    settings: Mapping[str, Setting]
    make: Callable[..., Described]
    """``make(**settings) -> (program, inputs)``, the inputs as `Drawn`."""

    def build(self, **values: int | str) -> _Made:
        """Return the program and its inputs, the same each time for the same settings.

        Raises
        ------
        WorkloadError
            A setting is unknown, or its value is not a whole number in its range.
        """
        program, inputs = self._made(values)
        random = np.random.default_rng(0)
        return program, tuple(one.draw(random).astype(one.spec.dtype, copy=False) for one in inputs)

    def outline(self, **values: int | str) -> tuple[ProgramFunction, tuple[ArraySpec, ...]]:
        """Return the program and the specs of its inputs, without values: it is traced and planned at once, whatever its size.

        Raises
        ------
        WorkloadError
            As `build`.
        """
        program, inputs = self._made(values)
        return program, tuple(one.spec for one in inputs)

    def on_gpus(self, values: Mapping[str, int | str], gpus: int | Sequence[int] | None) -> Mapping[str, int | str]:
        """Return settings with the number of GPUs to run on among them, where there is such a setting.

        Raises
        ------
        WorkloadError
            The settings have another number.
        """
        if gpus is None or "gpus" not in self.settings:
            return values
        count = gpus if isinstance(gpus, int) else len(gpus)
        if self._value("gpus", values.get("gpus", count)) != count:
            raise WorkloadError(
                f"setting gpus={values['gpus']} of {self.name!r} stands beside {counted(count, 'GPU')} to run on",
                hint="leave one of them out",
            )
        return {**values, "gpus": count}

    def _made(self, values: Mapping[str, int | str]) -> Described:
        chosen = {name: setting.default for name, setting in self.settings.items()}
        for name, value in values.items():
            chosen[name] = self._value(name, value)
        return self.make(**chosen)

    def _value(self, name: str, value: int | str) -> int:
        if name not in self.settings:
            raise WorkloadError(f"workload {self.name!r} has no setting {name!r}", hint=f"it has {', '.join(self.settings)}")
        setting = self.settings[name]
        extent = f"{setting.least} to {setting.most}"
        try:
            number = int(value) if isinstance(value, str) else index(value)
        except (TypeError, ValueError):
            raise WorkloadError(
                f"setting {name}={value!r} of {self.name!r} is not a whole number", hint=f"{extent}: {setting.meaning}"
            ) from None
        if not setting.least <= number <= setting.most:
            raise WorkloadError(f"setting {name}={number} of {self.name!r} is out of range", hint=extent)
        return number


def normal(*shape: int, scale: float = 1.0, dtype: str = "float32") -> Drawn:
    """Describe normally distributed values."""
    return Drawn(ArraySpec(shape, np.dtype(dtype)), lambda random: random.standard_normal(shape) * scale)


def half(*shape: int, scale: float = 1.0) -> Drawn:
    """Describe normally distributed float16 values."""
    return normal(*shape, scale=scale, dtype="float16")


def zeros(*shape: int) -> Drawn:
    """Describe float32 zeros, as an optimizer begins with."""
    return Drawn(ArraySpec(shape, np.dtype("float32")), lambda _: np.zeros(shape, np.float32))


def whole_numbers(count: int, *shape: int) -> Drawn:
    """Describe random whole numbers below a count: labels, or tokens."""
    return Drawn(ArraySpec(shape, np.dtype("int32")), lambda random: random.integers(0, count, shape))


def counting(count: int) -> Drawn:
    """Describe the whole numbers below a count, in order."""
    return Drawn(ArraySpec((count,), np.dtype("int32")), lambda _: np.arange(count))


def around(value: float, size: int) -> Drawn:
    """Describe float32 values near one number, as weights and biases of a normalization are."""
    return Drawn(ArraySpec((size,), np.dtype("float32")), lambda random: value + 0.1 * random.standard_normal(size))


def uniform(low: float, high: float, size: int, dtype: str = "float32") -> Drawn:
    """Describe evenly distributed values."""
    return Drawn(ArraySpec((size,), np.dtype(dtype)), lambda random: random.uniform(low, high, size))


def pixels(size: int) -> Drawn:
    """Describe whole numbers of a byte, as float32."""
    return Drawn(ArraySpec((size,), np.dtype("float32")), lambda random: random.integers(0, 256, size))
