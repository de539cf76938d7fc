"""Inputs made like given ones: other values, of the same shape, dtype and scale, with which indices stay valid."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def made_like(values: Array, random: np.random.Generator) -> Array:
    """Return other values for an input.

    Floats change places and, by up to a half, their size; so signs, zeros and the scale stay. Whole numbers and truth values change places
    along the first axis that has several. Where there are several such axes, each stays within the range of its row along every axis: they
    may be indices into tables of different sizes. What is sorted stays as it is: it may say where parts begin.

    Examples
    --------
    >>> made_like(np.array([0, 2, 5]), np.random.default_rng(0))
    array([0, 2, 5])
    >>> sorted(made_like(np.array([5, 0, 2]), np.random.default_rng(0)).tolist())
    [0, 2, 5]
    """
    if values.dtype.kind in "fc":
        by = random.integers(max(1, values.size))  # All by as much: a permutation would take longer than a run.
        with np.errstate(over="ignore", invalid="ignore"):
            moved = np.roll(values.reshape(-1), by) * (random.random(values.size, np.float32) + np.float32(0.5))
            return np.asarray(moved.reshape(values.shape).astype(values.dtype))
    axes = [axis for axis, length in enumerate(values.shape) if length > 1]
    if not axes or bool((values.reshape(-1)[1:] >= values.reshape(-1)[:-1]).all()):
        return values.copy()
    moved = random.permutation(values, axis=axes[0])
    for axis in axes if len(axes) > 1 else ():
        rest = tuple(other for other in range(values.ndim) if other != axis)
        least, most = values.min(axis=rest, keepdims=True), values.max(axis=rest, keepdims=True)
        moved = np.where((moved >= least) & (moved <= most), moved, values)
    return np.asarray(moved)
