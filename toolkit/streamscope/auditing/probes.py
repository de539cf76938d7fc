"""Calls of NumPy references and host functions on guarded arrays, which show undeclared and needless accesses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.arrays import Array
from streamscope.auditing.findings import Kind
from streamscope.auditing.poison import poisoned_memory
from streamscope.program.launch import HostCall, Launch, as_arrays
from streamscope.program.variable import ArraySpec
from streamscope.words import counted

Memory = Mapping[int, Array]
_POISON = (0x5A, 0x00)
"""Bytes of fresh memory in two calls: as numbers one is large, in any dtype, and the other 0; as bools they differ."""

_SCALES = (1, 100, 1)
"""Sizes of the random values that are tried, after the program's own."""
_ORDINARY, _EXTREME = (0.0, 1.0, -1.0, 100.0, np.nan), (np.inf, -np.inf)
"""What a whole variable is filled with. Extremes come last, and no single element has them: it may be how long a function waits, or how
often it does something, with results that tell nothing of it."""


@dataclass(frozen=True)
class GuardedCall:
    """A reference or a host function that can be called on chosen arrays, as often as is needed."""

    name: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    """Ids of variables."""
    specs: tuple[ArraySpec, ...]
    """Specs of the variables that it writes."""
    function: Callable[[Sequence[Array]], Sequence[Array]]
    """``function(arrays of reads) -> arrays of writes``."""

    def __call__(self, memory: Memory, protected: Iterable[int] = ()) -> list[Array]:
        """Call the function on copies of its variables, some of which it cannot write to; return its results as arrays."""
        return self.watched(memory, protected)[0]

    def watched(self, memory: Memory, protected: Iterable[int] = ()) -> tuple[list[Array], set[int]]:
        """Call the function likewise; return also the variables whose copy it changed."""
        locked = set(protected)
        copies = {variable: memory[variable].copy() for variable in set(self.reads)}
        for variable in locked & set(copies):
            # The copy itself is locked, so that a view's base is not a way round it.
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
            return f"returned {counted(len(results), 'array')} for {counted(len(self.specs), 'variable')}"
        for result, spec in zip(results, self.specs, strict=True):
            if result.shape != spec.shape or not np.can_cast(result.dtype, spec.dtype, "same_kind"):
                return f"returned {result.dtype.name}[{', '.join(map(str, result.shape))}] for a variable that is {spec}"
        return None


def guarded_call(work: Launch | HostCall, specs: Sequence[ArraySpec]) -> GuardedCall | None:
    """Return a piece of work as a call; None if it has no NumPy reference. ``specs`` are those of its outputs."""
    if isinstance(work, HostCall):
        call = work
        return GuardedCall(work.name, work.reads, work.writes, tuple(specs), lambda arrays: as_arrays(call.function(*arrays)))
    if work.reference is None:
        return None
    return GuardedCall(work.name, work.reads, work.writes, tuple(specs), work.reference)


def equal(one: Array, other: Array) -> bool:
    """Tell whether two arrays are the same, NaN where NaN is."""
    return not bool(_differing(one, other).any()) if one.shape == other.shape else False


def _differing(one: Array, other: Array) -> npt.NDArray[np.bool_]:
    """Return where two arrays of one shape differ; NaN does not differ from NaN."""
    return np.asarray((one != other) & ~((one != one) & (other != other)))  # noqa: PLR0124 — only NaN differs from itself, in any dtype


def random_values(spec: ArraySpec, random: np.random.Generator, scale: int = 1) -> Array:
    """Return random values: normally distributed, or whole numbers from 0 that are small enough to be an index of something."""
    if spec.dtype.kind == "f":
        drawn: Any = random.standard_normal(spec.shape) * scale
    else:
        drawn = random.integers(0, 2 if spec.dtype.kind == "b" else min(8 * scale, 128), spec.shape)
    return np.asarray(drawn, spec.dtype)  # of no axes, NumPy draws a number


def _unusual_values(spec: ArraySpec, random: np.random.Generator) -> Array:
    """Return random values with zeros and, where the dtype has it, NaN among them."""
    values = random_values(spec, random)
    values[random.random(spec.shape) < 0.25] = 0
    if spec.dtype.kind == "f":
        values[random.random(spec.shape) < 0.25] = np.nan
    return values


@dataclass(frozen=True)
class Remark:
    """Observations on one call."""

    kind: Kind
    variables: tuple[int, ...]
    detail: str
    drawn: bool = False
    """It shows with random values that the audit drew, which the program may never have."""


def call_guarded(call: GuardedCall, memory: Memory) -> tuple[list[Array] | None, list[Remark]]:
    """Call once with declared read-only arrays locked; return the results, or None if none fit, and remarks.

    If the call writes to a locked array, it is called again on copies that it may write to.
    """
    locked = call.declared_read_only
    remarks: list[Remark] = []
    try:
        results, changed = call.watched(memory, locked)
    except Exception as error:  # noqa: BLE001 — a reference or a host function is the user's code
        culprits = {variable for variable in locked if _cannot_be_locked(call, memory, variable)}
        if not culprits:
            return None, [Remark(Kind.WRONG_RESULT, call.writes, f"raised {type(error).__name__}: {error}")]
        try:
            results, changed = call.watched(memory)
        except Exception as second:  # noqa: BLE001 — as above
            return None, [Remark(Kind.WRONG_RESULT, call.writes, f"raised {type(second).__name__}: {second}")]
        changed |= culprits
    remarks += [Remark(Kind.UNDECLARED_TOUCH, (variable,), "") for variable in sorted(changed & locked)]
    if (misfit := call.misfit(results)) is not None:
        return None, [*remarks, Remark(Kind.WRONG_RESULT, call.writes, misfit)]
    return results, remarks


def _cannot_be_locked(call: GuardedCall, memory: Memory, variable: int) -> bool:
    """Tell whether NumPy refuses a write when this variable alone is locked."""
    try:
        call(memory, [variable])
    except ValueError as error:
        return "read-only" in str(error)
    except Exception:  # noqa: BLE001 — something else is wrong with the call, which is reported as such
        return False
    return False


def probe(call: GuardedCall, memory: Memory, specs: Mapping[int, ArraySpec], *, declared: bool) -> list[Remark]:
    """Probe a call that works: with values that it got and others, in turn, and with other bytes in fresh memory.

    So it shows elements that it never writes, hidden state, writes for some values only, and reads that it does not
    need. The latter is asked only where a user ``declared`` them: our operators read what they need, also where no value shows it.
    """
    own = {variable: memory[variable] for variable in call.reads}
    try:
        first, again, other = (_poisoned(call, own, byte) for byte in (_POISON[0], _POISON[0], _POISON[1]))
    except Exception as error:  # noqa: BLE001 — the user's code
        return [Remark(Kind.HIDDEN_STATE, call.writes, f"raised {type(error).__name__} when it was called again: {error}")]
    if changed := _changed(call, first, again):
        return [Remark(Kind.HIDDEN_STATE, changed, "gives another result when it is called again with the same values")]
    remarks = _unwritten(call, first, other)
    unseen = _Unseen(call, specs, declared=declared)
    unseen.look(own, first)
    for values in _drawn(call, specs):
        found = _outcome(call, values)
        if found is None:
            continue
        results, touched = found
        # Whatever else it does, it must not change what it only reads.
        remarks += [Remark(Kind.UNDECLARED_TOUCH, (variable,), "", drawn=True) for variable in sorted(touched & call.declared_read_only)]
        poisoned = _outcome(call, values, _POISON[1])
        if poisoned is not None:
            remarks += _unwritten(call, results, poisoned[0], drawn=True)
        unseen.look(values, results)
    unseen.look_closely(own)
    later = _outcome(call, own)
    if changed := call.writes if later is None else _changed(call, first, later[0]):
        detail = "gives another result for the same values after it was called with others"
        return [Remark(Kind.HIDDEN_STATE, changed, detail)]
    return remarks + [Remark(Kind.NEEDLESS_READ, (variable,), "") for variable in unseen.variables]


def _poisoned(call: GuardedCall, values: Memory, byte: int) -> list[Array]:
    with poisoned_memory(byte):
        return call(values)


def _changed(call: GuardedCall, one: Sequence[Array], other: Sequence[Array]) -> tuple[int, ...]:
    return tuple(variable for variable, a, b in zip(call.writes, one, other, strict=True) if not equal(a, b))


def _unwritten(call: GuardedCall, one: Sequence[Array], other: Sequence[Array], *, drawn: bool = False) -> list[Remark]:
    """Return the differences of two calls whose fresh memory held different bytes."""
    remarks = []
    for variable, a, b in zip(call.writes, one, other, strict=True):
        if a.shape != b.shape:
            continue
        if number := int(np.count_nonzero(_differing(a, b))):
            remarks.append(Remark(Kind.UNWRITTEN, (variable,), f"{number:,} of {a.size:,} elements", drawn))
    return remarks


class _Unseen:
    """The variables whose values have made no difference, whatever was tried. Those without elements make none anyway."""

    def __init__(self, call: GuardedCall, specs: Mapping[int, ArraySpec], *, declared: bool) -> None:
        self._call = call
        self._specs = specs
        self._random = np.random.default_rng(0)
        looked_at = declared and any(spec.size > 0 for spec in call.specs)
        self.variables = [variable for variable in dict.fromkeys(call.reads) if specs[variable].size > 0] if looked_at else []

    def look(self, values: Memory, results: Sequence[Array]) -> None:
        """Try other values of each variable beside these of the others, which gave these results."""
        for variable in list(self.variables):
            self._try(variable, _other_values(values[variable], self._specs[variable], self._random), values, results)

    def look_closely(self, own: Memory) -> None:
        """Try values that random ones may never be, for accesses still unseen: all elements alike, or as another variable's.

        A comparison tells nothing of numbers that all differ, nor ``any`` of numbers none of which is 0; and of two truth values one hides
        the other. So the others are as they were, all 0 and all 1.
        """
        contexts: list[Memory] = [own, *({each: _filled(fill, self._specs[each]) for each in own} for fill in (0.0, 1.0))]
        for fills, values in product((_ORDINARY, _EXTREME), contexts):
            found = _outcome(self._call, values) if self.variables else None
            if found is None:
                continue
            for variable in list(self.variables):
                spec, others = self._specs[variable], [values[other] for other in values if other != variable]
                tried = fills if fills is _ORDINARY or spec.size > 1 else ()
                for other in (*(_like(array, spec) for array in others), *(_filled(fill, spec) for fill in tried)):
                    if variable in self.variables:
                        self._try(variable, other, values, found[0])

    def _try(self, variable: int, other: Array, values: Memory, results: Sequence[Array]) -> None:
        found = _outcome(self._call, {**values, variable: other})
        # To raise an exception for one value and not for another is to need the value.
        if found is None or _changed(self._call, results, _without_nan(found[0], results) if _is_odd(other) else found[0]):
            self.variables.remove(variable)


def _is_odd(values: Array) -> bool:
    """Tell whether an element is NaN or infinite."""
    return values.dtype.kind == "f" and not bool(np.isfinite(values).all())


def _without_nan(results: Sequence[Array], others: Sequence[Array]) -> list[Array]:
    """Return results with those of another call where they are NaN: one that goes through ``0 * x`` says nothing of the value."""
    fits = all(a.shape == b.shape for a, b in zip(results, others, strict=True))
    return [np.where(a != a, b, a) for a, b in zip(results, others, strict=True)] if fits else list(results)  # noqa: PLR0124 — as above


def _filled(fill: float, spec: ArraySpec) -> Array:
    """Return an array of one number, or of the nearest that its dtype has."""
    if spec.dtype.kind in "iu":
        limits = np.iinfo(spec.dtype.name)
        whole = 0 if math.isnan(fill) else min(max(fill, limits.min), limits.max)
        return np.full(spec.shape, int(whole), spec.dtype)
    return np.full(spec.shape, fill, spec.dtype)


def _like(array: Array, spec: ArraySpec) -> Array:
    """Return the elements of another array, in turn."""
    with np.errstate(all="ignore"):
        return np.asarray(np.resize(array, spec.shape).astype(spec.dtype))


def _drawn(call: GuardedCall, specs: Mapping[int, ArraySpec]) -> Iterator[dict[int, Array]]:
    """Yield values that the program did not come with."""
    random = np.random.default_rng(1)
    read = dict.fromkeys(call.reads)
    for scale in _SCALES:
        yield {variable: random_values(specs[variable], random, scale) for variable in read}
    yield {variable: _unusual_values(specs[variable], random) for variable in read}


def _other_values(values: Array, spec: ArraySpec, random: np.random.Generator) -> Array:
    if spec.dtype.kind == "b":
        return np.logical_not(values, out=np.empty(spec.shape, np.bool_))
    found = random_values(spec, random)
    return np.add(found, found.dtype.type(1), out=found) if equal(found, values) else found


def _outcome(call: GuardedCall, values: Memory, byte: int = _POISON[0]) -> tuple[list[Array], set[int]] | None:
    """Return results and changes for values that the user's code may not take; None if it takes none."""
    try:
        with poisoned_memory(byte):
            return call.watched(values)
    except Exception:  # noqa: BLE001 — the user's code
        return None
