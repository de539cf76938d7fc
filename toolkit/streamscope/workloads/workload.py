"""Ready programs with settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.errors import WorkloadError
from streamscope.tracing import ProgramFunction

Array = npt.NDArray[Any]
Made = tuple[ProgramFunction, tuple[Array, ...]]


@dataclass(frozen=True)
class Setting:
    """A whole number that a user can set.

    Attributes
    ----------
    default, least, most : int
    meaning : str
    """

    default: int
    least: int
    most: int
    meaning: str


@dataclass(frozen=True)
class Workload:
    """A ready program.

    Attributes
    ----------
    name, description : str
    settings : mapping of str to Setting
    make : callable
        ``make(random, **settings) -> (program, inputs)``.
    """

    name: str
    description: str
    settings: Mapping[str, Setting]
    make: Callable[..., Made]

    def build(self, **values: int | str) -> Made:
        """Return the program and its inputs, the same each time for the same settings.

        Raises
        ------
        WorkloadError
            A setting is unknown, or its value is not a whole number in its range.
        """
        chosen = {name: setting.default for name, setting in self.settings.items()}
        for name, value in values.items():
            chosen[name] = self._value(name, value)
        return self.make(np.random.default_rng(0), **chosen)

    def _value(self, name: str, value: int | str) -> int:
        if name not in self.settings:
            raise WorkloadError(f"workload {self.name!r} has no setting {name!r}", hint=f"it has {', '.join(self.settings)}")
        setting = self.settings[name]
        try:
            number = int(value) if isinstance(value, str) else index(value)
        except (TypeError, ValueError):
            raise WorkloadError(f"setting {name}={value!r} of {self.name!r} is not a whole number") from None
        if not setting.least <= number <= setting.most:
            raise WorkloadError(f"setting {name}={number} of {self.name!r} is out of range", hint=f"{setting.least} to {setting.most}")
        return number


def half(random: np.random.Generator, *shape: int, scale: float = 1.0) -> Array:
    """Return normally distributed float16 values."""
    return (random.standard_normal(shape) * scale).astype(np.float16)
