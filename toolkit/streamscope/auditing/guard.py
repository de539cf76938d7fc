"""Calling a NumPy reference or a host function on guarded arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.program.launch import HostCall, Launch, as_arrays
from streamscope.program.variable import ArraySpec

Array = npt.NDArray[Any]
Memory = Mapping[int, Array]


@dataclass(frozen=True)
class GuardedCall:
    """A reference or a host function that can be called on chosen arrays, as often as is needed.

    Attributes
    ----------
    name : str
    reads, writes : tuple of int
        Ids of variables.
    specs : tuple of ArraySpec
        Of what it writes.
    function : callable
        ``function(arrays of reads) -> arrays of writes``.
    """

    name: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    specs: tuple[ArraySpec, ...]
    function: Callable[[Sequence[Array]], Sequence[Array]]

    def __call__(self, memory: Memory, protected: Iterable[int] = ()) -> list[Array]:
        """Call the function on copies of its variables, some of which it cannot write to; return its results as arrays."""
        return self.watched(memory, protected)[0]

    def watched(self, memory: Memory, protected: Iterable[int] = ()) -> tuple[list[Array], set[int]]:
        """Call the function likewise; return also the variables whose copy it changed."""
        locked = set(protected)
        copies = {variable: memory[variable].copy() for variable in set(self.reads)}
        for variable in locked & set(copies):
            # The copy itself is locked, so that a view's base is no way round it.
            copies[variable].flags.writeable = False
        with np.errstate(all="ignore"):
            results = [np.asarray(result) for result in self.function([copies[variable] for variable in self.reads])]
        changed = {variable for variable, copy in copies.items() if not equal(copy, memory[variable])}
        return results, changed

    @property
    def declared_read_only(self) -> set[int]:
        """The variables that it reads and does not write."""
        return set(self.reads) - set(self.writes)

    def misfit(self, results: Sequence[Array]) -> str | None:
        """Return why results do not fit the variables that it writes; None if they do."""
        if len(results) != len(self.specs):
            return f"returned {len(results)} arrays for {len(self.specs)} variables"
        for result, spec in zip(results, self.specs, strict=True):
            if result.shape != spec.shape or not np.can_cast(result.dtype, spec.dtype, "same_kind"):
                return f"returned {result.dtype.name}[{', '.join(map(str, result.shape))}] for a variable that is {spec}"
        return None


def guarded_call(work: Launch | HostCall, specs: Sequence[ArraySpec]) -> GuardedCall | None:
    """Return a piece of work as a call; None if it has no NumPy reference. ``specs`` are those of what it writes."""
    if isinstance(work, HostCall):
        call = work
        return GuardedCall(work.name, work.reads, work.writes, tuple(specs), lambda arrays: as_arrays(call.function(*arrays)))
    if work.reference is None:
        return None
    return GuardedCall(work.name, work.reads, work.writes, tuple(specs), work.reference)


def equal(one: Array, other: Array) -> bool:
    """Tell whether two arrays are the same, NaN where NaN is."""
    return not bool(differing(one, other).any()) if one.shape == other.shape else False


def differing(one: Array, other: Array) -> npt.NDArray[np.bool_]:
    """Return where two arrays of one shape differ; NaN does not differ from NaN."""
    return np.asarray((one != other) & ~((one != one) & (other != other)))  # noqa: PLR0124 — only NaN differs from itself, in any dtype


def random_values(spec: ArraySpec, random: np.random.Generator, scale: int = 1) -> Array:
    """Return random values: normally distributed, or whole numbers from 0 that are small enough to be an index of something."""
    if spec.dtype.kind == "f":
        return (random.standard_normal(spec.shape) * scale).astype(spec.dtype)
    if spec.dtype.kind == "b":
        return random.integers(0, 2, spec.shape).astype(spec.dtype)
    return random.integers(0, min(8 * scale, 128), spec.shape).astype(spec.dtype)


def unusual_values(spec: ArraySpec, random: np.random.Generator) -> Array:
    """Return random values with zeros and, where the dtype has it, NaN among them."""
    values = random_values(spec, random)
    values[random.random(spec.shape) < 0.25] = 0
    if spec.dtype.kind == "f":
        values[random.random(spec.shape) < 0.25] = np.nan
    return values
