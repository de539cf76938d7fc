"""Probes of one call: what it touches besides what it declares, and what it declares without need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from streamscope.auditing.findings import Kind
from streamscope.auditing.guard import Array, GuardedCall, Memory, differing, equal, poisoned_memory, random_values
from streamscope.program.variable import ArraySpec

POISON = (0x5A, 0xA5)
"""Bytes of fresh memory in two calls: as floats one is large and positive and the other small and negative, as bools they differ."""

SCALES = (1, 100, 1)
"""Sizes of the random values that are tried, after the program's own."""


@dataclass(frozen=True)
class Remark:
    """What a probe found of one call.

    Attributes
    ----------
    kind : Kind
    variables : tuple of int
    detail : str
    """

    kind: Kind
    variables: tuple[int, ...]
    detail: str


def call_guarded(call: GuardedCall, memory: Memory) -> tuple[list[Array] | None, list[Remark]]:
    """Call once with all that is declared read only locked; return the results, or None if there are none that fit, and remarks.

    If the call writes to what is locked, it is called again on copies that it may write to.
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


def probe(call: GuardedCall, memory: Memory, specs: Mapping[int, ArraySpec]) -> list[Remark]:
    """Probe a call that works: elements that it never writes, state that it hides, and reads that it does not need."""
    try:
        first, again, other = (_poisoned(call, memory, byte) for byte in (POISON[0], POISON[0], POISON[1]))
    except Exception as error:  # noqa: BLE001 — the user's code
        return [Remark(Kind.HIDDEN_STATE, call.writes, f"raised {type(error).__name__} when it was called again: {error}")]
    if changed := _changed(call, first, again):
        return [Remark(Kind.HIDDEN_STATE, changed, "gives another result when it is called again with the same values")]
    remarks = []
    for variable, one, two in zip(call.writes, first, other, strict=True):
        if number := int(np.count_nonzero(differing(one, two))):
            remarks.append(Remark(Kind.UNWRITTEN, (variable,), f"{number:,} of {one.size:,} elements"))
    return remarks + [Remark(Kind.NEEDLESS_READ, (variable,), "") for variable in _needless(call, memory, specs)]


def _poisoned(call: GuardedCall, memory: Memory, byte: int) -> list[Array]:
    with poisoned_memory(byte):
        return call(memory)


def _changed(call: GuardedCall, one: Sequence[Array], other: Sequence[Array]) -> tuple[int, ...]:
    return tuple(variable for variable, a, b in zip(call.writes, one, other, strict=True) if not equal(a, b))


def _needless(call: GuardedCall, memory: Memory, specs: Mapping[int, ArraySpec]) -> list[int]:
    """Return the variables whose values make no difference, whatever was tried. Those without elements make none anyway."""
    random = np.random.default_rng(0)
    unseen = [variable for variable in dict.fromkeys(call.reads) if specs[variable].size > 0]
    if all(spec.size == 0 for spec in call.specs):
        return []
    for values in _trials(call, memory, specs, random):
        result = _outcome(call, values)
        if result is None:
            continue
        for variable in list(unseen):
            found = _outcome(call, {**values, variable: _other_values(values[variable], specs[variable], random)})
            # To raise an exception for one value and not for another is to need the value.
            if found is None or _changed(call, result, found):
                unseen.remove(variable)
        if not unseen:
            break
    return unseen


def _trials(call: GuardedCall, memory: Memory, specs: Mapping[int, ArraySpec], random: np.random.Generator) -> Iterator[dict[int, Array]]:
    yield {variable: memory[variable] for variable in call.reads}
    for scale in SCALES:
        yield {variable: random_values(specs[variable], random, scale) for variable in dict.fromkeys(call.reads)}


def _other_values(values: Array, spec: ArraySpec, random: np.random.Generator) -> Array:
    found = random_values(spec, random)
    if spec.dtype.kind == "b":
        return ~values
    return found + found.dtype.type(1) if equal(found, values) else found


def _outcome(call: GuardedCall, values: Memory) -> list[Array] | None:
    """Return the results for values that the user's code may not take; None if it does not."""
    try:
        return _poisoned(call, values, POISON[0])
    except Exception:  # noqa: BLE001 — the user's code
        return None
