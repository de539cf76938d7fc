"""Piecewise-linear curves between measured points."""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import pairwise

from streamscope.errors import DeviceError

Points = tuple[tuple[float, float], ...]
"""A piecewise-linear curve: two or more pairs (x, y), the x growing."""


def interpolate(points: Points, x: float) -> float:
    """Return the curve's value at ``x``: level before the first point, the last slope after the last."""
    if x <= points[0][0]:
        return points[0][1]
    right = min(bisect_right(points, (x, math.inf)), len(points) - 1)
    (x0, y0), (x1, y1) = points[right - 1], points[right]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


def slopes(points: Points) -> list[float]:
    """Return the slope between each two neighbours."""
    return [(y1 - y0) / (x1 - x0) for (x0, y0), (x1, y1) in pairwise(points)]


def checked_points(what: str, value: object) -> Points:
    """Return points read from a file, as tuples of floats."""
    if not isinstance(value, list | tuple) or len(value) < 2 or not all(isinstance(p, list | tuple) and len(p) == 2 for p in value):
        raise DeviceError(f"{what} is {value!r}, expected two or more pairs of numbers")
    for number in (number for pair in value for number in pair):
        if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number) or number < 0:
            raise DeviceError(f"{what} has {number!r}, expected numbers of at least 0")
    points = tuple((float(x), float(y)) for x, y in value)
    if any(left[0] >= right[0] for left, right in pairwise(points)):
        raise DeviceError(f"{what} = {points} must grow in its first numbers")
    return points
