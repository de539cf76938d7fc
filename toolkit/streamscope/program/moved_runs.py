"""Runs of a program in NumPy with the result of each operation moved in its last digits: what of the outputs is a matter of rounding."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.kernels.expression.promotion import arithmetic
from streamscope.kernels.reduce.reduction_plan import checked_axes
from streamscope.program.launch import Launch, LaunchKind
from streamscope.program.operation import Operation, Program
from streamscope.program.reference import run_reference

Array = npt.NDArray[Any]

MOVED = {"float16": 1, "float32": 16, "float64": 16}
"""By how many units in the last place a result is moved, at most: as far as any operator may be off (`Definition.ulp`). Half is computed in
float32 and rounded once, so that all that can happen is its neighbour."""
JOINED = 0.125
"""Units by which it is moved further where n elements are joined, as in a sum, times the root of n: as far as NumPy comes off that adds one
element after the other, as it does along all axes but the last."""
PERIOD = 65_521
"""So many elements on, what moves up and what moves down repeats, since drawing it takes longer than most operations. A prime, so that it
does not along an axis."""
RUNS = ((0, 1), (0, -1), (1, 1), (2, 1))
"""Seeds and signs: the second moves all the other way than the first, so that what stands on a step, of floor or of a comparison, is moved
to both sides. In each, what moves up and what moves down cancels in some element or other; in all of them in next to none."""
RUNS_OF_MANY = 2
MANY = 2**24
"""Results of operations, above which there are fewer runs, since people wait for them."""


BY_OPERANDS = frozenset({"digamma", "gammaln", "gamma_gradient", "gammaln_gradient"})
"""Launches whose operands are moved, too: near their zeros they are off by as much as elsewhere, since their terms are."""


@dataclass(frozen=True)
class Moves:
    """By how much a run moves results: chance, all of it the other way where ``sign`` is -1."""

    random: np.random.Generator
    sign: int = 1

    def factors(self, count: int, share: float) -> Array:
        """Return so many factors that are off 1 by up to a share, and by half of it at least: by the same, two would often cancel."""
        return 1 + self.sign * np.where(self.random.random(count) < 0.5, share, -share) * self.random.uniform(0.5, 1, count)


def errors(output: Array, reference: Array) -> Array:
    """Return how far each element is from the reference; of whole numbers, it is 0 only where they are equal.

    Equal infinities and NaN where NaN is due are no error; a NaN anywhere else is an infinite one.
    """
    if reference.dtype.kind in "iub":
        # As float64, neighbours beyond 2**53 would be the same. Without a sign, 64 bits hold every difference.
        larger, smaller = (function(output, reference).astype(np.uint64) for function in (np.maximum, np.minimum))
        return np.asarray((larger - smaller).astype(np.float64))
    wide = np.complex128 if reference.dtype.kind == "c" else np.float64
    with np.errstate(invalid="ignore", over="ignore"):  # Infinity less infinity.
        found = np.asarray(np.abs(np.subtract(output, reference, dtype=wide)))
    odd = ~np.isfinite(found)
    if odd.any():
        ours, right = output[odd], reference[odd]
        found[odd] = np.where((ours == right) | (np.isnan(ours) & np.isnan(right)), 0.0, np.inf)
    return found


def spreads(program: Program, operations: Sequence[Operation], inputs: Sequence[Array], expected: Mapping[int, Array]) -> dict[int, Array]:
    """Return by how much moved runs were off, at most, for each element of those outputs that are floating-point numbers.

    Parameters
    ----------
    program : Program
    operations : sequence of Operation
        Those of the program that are run: all that the outputs depend on, with references that are functions of what they read alone.
    inputs : sequence of array
    expected : mapping of int to array
        By variable, the outputs of the program as it is.
    """
    wanted = {variable: reference for variable, reference in expected.items() if reference.dtype.kind == "f" and reference.size}
    found = {variable: np.zeros(reference.shape) for variable, reference in wanted.items()}
    results = sum(program.variables[variable].spec.size for operation in operations for variable in operation.writes)
    kept = RUNS if results <= MANY else RUNS[:RUNS_OF_MANY]
    runs: list[Moves | None] = [Moves(np.random.default_rng(seed), sign) for seed, sign in kept]
    if any(_joined(program, operation, launch) > 1 for operation in operations for launch in operation.launches):
        runs.append(None)  # Not moved. It only adds up more exactly than NumPy, which may be off by as much as the others move.
    for moves in runs if wanted else ():
        moved = replace(moved_program(program, operations, moves), outputs=tuple(wanted))
        for result, (variable, reference) in zip(run_reference(moved, inputs), wanted.items(), strict=True):
            np.maximum(found[variable], errors(result, reference), out=found[variable])
    return found


def moved_program(program: Program, operations: Sequence[Operation], moves: Moves | None) -> Program:
    """Return a program of some operations of another one, whose references are moved in their last digits, and join in more of them."""
    moved = (replace(each, work=tuple(_moved_launch(program, each, launch, moves) for launch in each.launches)) for each in operations)
    return replace(program, operations=tuple(moved))


def _moved_launch(program: Program, operation: Operation, launch: Launch, moves: Moves | None) -> Launch:
    """Return a launch with a reference that is moved; a copy as it is."""
    as_it_is = launch.reference
    if launch.kind is not LaunchKind.KERNEL or as_it_is is None:
        return launch
    writes = [program.variables[variable].spec for variable in launch.writes]
    count = _joined(program, operation, launch)
    with_operands = count > 1 or launch.name in BY_OPERANDS

    def reference(arrays: Sequence[Array]) -> Sequence[Array]:
        # Where a sum cancels, what is added says how far it may be off. In more digits, since NumPy itself is off, too.
        shares = [_share(arithmetic(each.dtype), count) for each in arrays] if with_operands else []
        given = [_moved(_wider(each), share, moves) for each, share in zip(arrays, shares, strict=True)] if with_operands else arrays
        results = zip(as_it_is(given), writes, strict=True)
        return [
            _moved(np.asarray(result), max(_share(spec.dtype), _share(arithmetic(spec.dtype), count)), moves) for result, spec in results
        ]

    return replace(launch, reference=reference)


def _joined(program: Program, operation: Operation, launch: Launch) -> int:
    """Return how many elements are joined to a floating-point number, at most; 1 where it comes of one element of each operand."""
    reads, writes = ([program.variables[variable].spec for variable in each] for each in (launch.reads, launch.writes))
    if any(spec.dtype.kind != "f" for spec in writes):
        return 1
    if "axis" in operation.attributes:
        axes = checked_axes(operation.name, reads[0].shape, operation.attributes["axis"])
        return max(1, math.prod(reads[0].shape[axis] for axis in axes))
    # A gradient is summed over the axes along which its operand was broadcast.
    return max(1, max((spec.size for spec in reads), default=1) // max(1, min(spec.size for spec in writes)))


def _wider(values: Array) -> Array:
    """Return floating-point numbers in more digits, where there are more."""
    if values.dtype.kind != "f":
        return values
    return values.astype(np.longdouble if values.dtype == np.float64 else np.float64)


def _share(dtype: np.dtype[Any], joined: int = 1) -> float:
    """Return by what share of itself a number is moved."""
    if dtype.kind != "f":
        return 0.0
    return float(np.finfo(dtype).eps) * (MOVED[dtype.name] + (JOINED * math.sqrt(joined) if joined > 1 else 0.0))


def _moved(values: Array, share: float, moves: Moves | None) -> Array:
    """Return numbers moved up or down by up to a share of themselves; what is not finite stays, and what is finite stays so."""
    if values.dtype.kind != "f" or moves is None:
        return values
    factors = moves.factors(min(values.size, PERIOD), share).astype(np.float32 if values.dtype == np.float16 else values.dtype)
    flat = values.reshape(-1)
    moved = np.empty_like(flat)
    whole = flat.size - flat.size % PERIOD
    if whole:
        np.multiply(flat[:whole].reshape(-1, PERIOD), factors, out=moved[:whole].reshape(-1, PERIOD), casting="same_kind")
    np.multiply(flat[whole:], factors[: flat.size - whole], out=moved[whole:], casting="same_kind")
    finite = np.isfinite(moved)
    return (moved if finite.all() else np.where(finite, moved, flat)).reshape(values.shape)
