"""How far results may be from NumPy's: as far as rounding explains or, behind code that is not ours, as far as libraries round.

Whole numbers and truth values must be equal.

Our kernels compute each operation as NumPy does, but for the last digits. Perturbed runs measure what the last digits
change: NumPy runs the program again, and the last digits of each operation's result are perturbed. An output then
differs by as much as it depends on rounding, element by element, whatever the program is: errors of a chain add up,
cancellation enlarges them, a mean makes them small. An element may be off by `_ALLOWED` times as much, and by as much of
the median of all elements besides, since a single element may stay where it was by chance.

Libraries compute matrix products and convolutions less exactly than their dtype is. Nobody knows what operators and
host functions of the user's own do, or how close a reference of their own is to a line of CUDA; running them again may
have effects. A result that depends on one of them may be off by `BEHIND_OTHERS`, a share of the output's largest value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streamscope.arrays import Array
from streamscope.kernels.expression.promotion import arithmetic
from streamscope.kernels.reduce.reduction_plan import checked_axes
from streamscope.program.launch import HostCall, Launch, LaunchKind
from streamscope.program.operation import Operation, Program
from streamscope.program.reference import run_reference
from streamscope.program.variable import ArraySpec
from streamscope.program.view import View

_ALLOWED = 4
"""How many times the error of perturbed runs is allowed."""
_SAMPLE = 2**20
"""The median is taken of so many elements."""
BEHIND_OTHERS = {"float16": 2e-2, "float32": 2e-3, "float64": 1e-9}
"""For float32 that of TF32, which cuDNN uses. Of the dtypes on the way from the library to the output, the coarsest counts."""
PERTURBED_ULPS = {"float16": 1, "float32": 16, "float64": 16}
"""By how many units in the last place a result is perturbed, at most: as far as any operator may be off.
Half is computed in float32 and rounded once, so only its neighbour can come out."""
PERTURBED_ULPS_JOINED = 0.125
"""Further units where n elements are joined, as in a sum, times the root of n: as far as NumPy comes off that adds one
element after the other, as it does along all axes but the last."""
_PERIOD = 65_521
"""The perturbation repeats after so many elements, since drawing one takes longer than most operations. A prime, so
that it does not repeat along an axis."""
_RUNS = ((0, 1), (0, -1), (1, 1), (2, 1))
"""Seeds and signs. The second run goes the other way than the first, so that a value on a step, of floor or of a
comparison, goes to both sides. In each run, ups and downs cancel in some element or other; in all runs together, in
next to none."""
_RUNS_OF_MANY = 2
_MANY = 2**24
"""Above so many elements of results there are fewer runs, since people wait for them."""
_BY_OPERANDS = frozenset({"digamma", "gammaln", "gamma_gradient", "gammaln_gradient"})
"""Launches whose operands are perturbed, too: near their zeros they are off by as much as elsewhere, since their terms are."""


def allowed_errors(
    program: Program, inputs: Sequence[Array], expected: Sequence[Array], begun: Callable[[Operation], None] = lambda operation: None
) -> list[Array]:
    """Return the tolerance of each element of each output; a number where it is the same for all.

    The program must not be fused: results inside a fused operation would not be perturbed. ``begun`` is called before each operation that
    is run again, `steps_of_tolerance` times.
    """
    shares, ours = _depending_on_others(program)
    exact = {variable: reference for variable, reference in zip(program.outputs, expected, strict=True) if variable not in shares}
    found = _rounding_spreads(program, ours, inputs, exact, begun)
    return [
        _behind_others(reference, shares[variable]) if variable in shares else _of_rounding(reference, found.get(variable))
        for variable, reference in zip(program.outputs, expected, strict=True)
    ]


def steps_of_tolerance(program: Program) -> int:
    """Return how many operations `allowed_errors` runs again."""
    shares, ours = _depending_on_others(program)
    specs = [program.variables[variable].spec for variable in program.outputs if variable not in shares]
    return len(_runs(program, ours)) * len(ours) if any(map(_is_rounded, specs)) else 0


def adds_up_halves(program: Program) -> bool:
    """Tell whether numbers of float16 are added up, or multiplied: NumPy may round each step, and kernels round the result only."""
    return any(
        _joined(program, operation, launch) > 1 and any(spec.dtype == np.float16 for spec in program.read_specs(launch))
        for operation in program.operations
        for launch in operation.launches
    )


def allowed_of_others(reference: Array) -> Array:
    """Return how far a result of captured code may be off."""
    return _behind_others(reference, _share(reference.dtype))


def allowed_alone(reference: Array) -> Array:
    """Return how far the result of a single operation of ours may be off."""
    return _of_rounding(reference, None)


def _depending_on_others(program: Program) -> tuple[dict[int, float], list[Operation]]:
    """Return the variables that in the end depend on code that is not ours, with their shares, and the operations that do not."""
    shares: dict[int, float] = {}
    ours = []
    for operation in program.operations:
        touched = (*operation.reads, *operation.writes)
        found = [shares[variable] for variable in operation.reads if variable in shares]
        if isinstance(operation.work, HostCall) or any(launch.library or launch.vouched for launch in operation.work):
            found += [_share(program.variables[variable].spec.dtype) for variable in touched]
        if not found:
            ours.append(operation)
        for variable in operation.writes:
            shares.pop(variable, None)
            if found:
                shares[variable] = max(*found, _share(program.variables[variable].spec.dtype))
    return shares, ours


def _share(dtype: np.dtype[Any]) -> float:
    """Return `BEHIND_OTHERS` of a dtype; of complex numbers, that of their parts."""
    return BEHIND_OTHERS.get(np.finfo(dtype).dtype.name, 0.0) if dtype.kind in "fc" else 0.0


def _behind_others(reference: Array, share: float) -> Array:
    if reference.dtype.kind not in "fc":
        return np.zeros(())
    return np.asarray(share * float(np.abs(np.where(np.isfinite(reference), reference, 0)).max(initial=0.0)))


def _of_rounding(reference: Array, spread: Array | None) -> Array:
    """Return the tolerance where perturbed runs were off by ``spread``; None: there were none."""
    if reference.dtype.kind != "f":
        return np.zeros(())
    limits, size = np.finfo(reference.dtype), np.abs(reference.astype(np.float64))
    finite = np.isfinite(size)
    off = PERTURBED_ULPS[reference.dtype.name] * np.maximum(
        np.where(finite, size, 0.0) * float(limits.eps), float(limits.smallest_subnormal)
    )
    off = np.where(finite, off, 0.0) if spread is None else np.maximum(np.where(finite, off, 0.0), spread)
    # Zeros stay where they are, and would be most where a relu is last.
    others = off[finite & (size > 0) & np.isfinite(off)]
    others = others[:: 1 + others.size // _SAMPLE]
    typical = float(np.quantile(others, 0.5, method="lower")) if others.size else 0.0
    return np.asarray(_ALLOWED * (off + typical))


@dataclass(frozen=True)
class Perturbation:
    """By how much a run changes results: by chance, all of it the other way where ``sign`` is -1."""

    random: np.random.Generator
    sign: int = 1

    def factors(self, count: int, share: float) -> Array:
        """Return so many factors that are off 1 by up to a share, and by half of it at least: by the same, two would often cancel."""
        return 1 + self.sign * np.where(self.random.random(count) < 0.5, share, -share) * self.random.uniform(0.5, 1, count)


def absolute_errors(output: Array, reference: Array) -> Array:
    """Return how far each element is from the reference; of whole numbers, it is 0 only where they are equal.

    Equal infinities and NaN where NaN is due are not errors; a NaN anywhere else is an infinite one.
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


def _rounding_spreads(
    program: Program,
    operations: Sequence[Operation],
    inputs: Sequence[Array],
    expected: Mapping[int, Array],
    begun: Callable[[Operation], None] = lambda operation: None,
) -> dict[int, Array]:
    """Return by how much perturbed runs were off, at most, for each element of the floating-point outputs.

    ``operations`` are those of the program that are run: all that the outputs depend on, with references that depend only on what they
    read alone. ``expected`` has the outputs of the program as it is, by variable.
    """
    wanted = {variable: reference for variable, reference in expected.items() if _is_rounded(program.variables[variable].spec)}
    found = {variable: np.zeros(reference.shape) for variable, reference in wanted.items()}
    for perturbation in _runs(program, operations) if wanted else ():
        perturbed = replace(perturbed_program(program, operations, perturbation), outputs=tuple(wanted))
        for result, (variable, reference) in zip(run_reference(perturbed, inputs, begun), wanted.items(), strict=True):
            np.maximum(found[variable], absolute_errors(result, reference), out=found[variable])
    return found


def _is_rounded(spec: ArraySpec) -> bool:
    return spec.dtype.kind == "f" and spec.size > 0


def _runs(program: Program, operations: Sequence[Operation]) -> list[Perturbation | None]:
    """Return how operations are run again: perturbed, fewer times where people wait long for that, and more exactly than NumPy does."""
    results = sum(program.variables[variable].spec.size for operation in operations for variable in operation.writes)
    kept = _RUNS if results <= _MANY else _RUNS[:_RUNS_OF_MANY]
    runs: list[Perturbation | None] = [Perturbation(np.random.default_rng(seed), sign) for seed, sign in kept]
    if any(_joined(program, operation, launch) > 1 for operation in operations for launch in operation.launches):
        runs.append(None)  # Not perturbed: it only adds up more exactly than NumPy, which may be off by as much as the others.
    return runs


def perturbed_program(program: Program, operations: Sequence[Operation], perturbation: Perturbation | None) -> Program:
    """Return a program of some operations of another one, whose references are perturbed in their last digits, and join in more digits."""
    perturbed = (
        replace(each, work=tuple(_perturbed_launch(program, each, launch, perturbation) for launch in each.launches)) for each in operations
    )
    return replace(program, operations=tuple(perturbed))


def _perturbed_launch(program: Program, operation: Operation, launch: Launch, perturbation: Perturbation | None) -> Launch:
    """Return a launch with a perturbed reference; one that only moves elements stays as it is."""
    as_it_is = launch.reference
    if launch.kind is not LaunchKind.KERNEL or launch.exact or as_it_is is None:
        return launch
    writes, parts = [program.variables[variable].spec for variable in launch.writes], [part for _, part in launch.results]
    count = _joined(program, operation, launch)
    with_operands = count > 1 or launch.name in _BY_OPERANDS

    def reference(arrays: Sequence[Array]) -> Sequence[Array]:
        # Where a sum cancels, what is added says how far it may be off. In more digits, since NumPy itself is off, too.
        shares = [_perturbed_share(arithmetic(each.dtype), count) for each in arrays] if with_operands else []
        given = (
            [_perturbed(_wider(each), share, perturbation) for each, share in zip(arrays, shares, strict=True)] if with_operands else arrays
        )
        shares = [max(_perturbed_share(spec.dtype), _perturbed_share(arithmetic(spec.dtype), count)) for spec in writes]
        results = zip(as_it_is(given), parts, shares, strict=True)
        return [_perturbed_part(np.asarray(result), part, share, perturbation) for result, part, share in results]

    return replace(launch, reference=reference)


def _perturbed_part(values: Array, part: View | None, share: float, perturbation: Perturbation | None) -> Array:
    """Return a result with its written part perturbed; the rest is not rounded again."""
    if part is None:
        return _perturbed(values, share, perturbation)
    result = np.array(values, order="C")
    part.put(result, _perturbed(part.of(result).copy(), share, perturbation))
    return result


def _joined(program: Program, operation: Operation, launch: Launch) -> int:
    """Return how many elements are joined to a floating-point number, at most; 1 where it comes of one element of each operand."""
    reads, writes = program.read_specs(launch), [program.variables[variable].spec for variable in launch.writes]
    if launch.exact or any(spec.dtype.kind != "f" for spec in writes):
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


def _perturbed_share(dtype: np.dtype[Any], joined: int = 1) -> float:
    """Return the largest relative perturbation of a number."""
    if dtype.kind != "f":
        return 0.0
    return float(np.finfo(dtype).eps) * (PERTURBED_ULPS[dtype.name] + (PERTURBED_ULPS_JOINED * math.sqrt(joined) if joined > 1 else 0.0))


def _perturbed(values: Array, share: float, perturbation: Perturbation | None) -> Array:
    """Perturb numbers by up to a share of each; infinite ones stay, and finite ones stay finite."""
    if values.dtype.kind != "f" or perturbation is None:
        return values
    factors = perturbation.factors(min(values.size, _PERIOD), share).astype(np.float32 if values.dtype == np.float16 else values.dtype)
    flat = values.reshape(-1)
    moved = np.empty_like(flat)
    whole = flat.size - flat.size % _PERIOD
    if whole:
        np.multiply(flat[:whole].reshape(-1, _PERIOD), factors, out=moved[:whole].reshape(-1, _PERIOD), casting="same_kind")
    np.multiply(flat[whole:], factors[: flat.size - whole], out=moved[whole:], casting="same_kind")
    finite = np.isfinite(moved)
    return (moved if finite.all() else np.where(finite, moved, flat)).reshape(values.shape)
